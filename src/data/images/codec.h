/* SPDX-License-Identifier: Apache-2.0
 *
 * What the decoders of the formats share, and the encoder of one. */
#ifndef LOONG_CODEC_H
#define LOONG_CODEC_H

#include <setjmp.h>

#include "base.h"
#include "loong/image.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file in memory, or its first bytes where only sizes are wanted. */
typedef struct image_file {
    loong_context_t *ctx;
    const char *name;
    const uint8_t *bytes;
    size_t length;
} image_file_t;

/* Where a library's error goes: its handlers may not return. */
typedef struct image_trap {
    jmp_buf at;
    char message[256];
} image_trap_t;

/* Fills in the sizes and, unless they are NULL, pixels [height,width,3] and,
 * where there is one, the colour that is transparent. */
LOONG_NODISCARD loong_status_t loongi_jpeg_read(const image_file_t *file,
                                                loong_image_t *image);
LOONG_NODISCARD loong_status_t loongi_png_read(const image_file_t *file,
                                               loong_image_t *image);
LOONG_NODISCARD loong_status_t loongi_webp_read(const image_file_t *file,
                                                loong_image_t *image);

/* Appends a file of the pixels. Errors: LOONG_ERR_MEMORY. */
LOONG_NODISCARD loong_status_t loongi_png_write(loong_context_t *ctx,
                                                const loong_image_t *image,
                                                loong_text_t *to);

/* Of Exif, 1 to 8; above 4 rows and columns are exchanged. Errors:
 * LOONG_ERR_FORMAT where the file's first bytes do not suffice. */
LOONG_NODISCARD loong_status_t loongi_image_orientation(
    const image_file_t *file, loong_image_format_t format, int *orientation_p);
/* LOONG_ERR_UNSUPPORTED where only bytes behind the pixels tell that it is
 * turned. */
LOONG_NODISCARD loong_status_t loongi_image_orientation_known(
    const image_file_t *file, loong_image_format_t format, int orientation);
/* Turns and mirrors an image so that it stands upright; upright->pixels has
 * room for it. */
void loongi_image_orient(int orientation, const loong_image_t *image,
                         loong_image_t *upright);

static inline uint32_t loongi_big_endian(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value = value << 8 | b[i];
    }
    return value;
}

static inline uint32_t loongi_little_endian(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | b[i];
    }
    return value;
}

#ifdef __cplusplus
}
#endif

#endif
