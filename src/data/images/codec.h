/* SPDX-License-Identifier: Apache-2.0
 *
 * What the decoders of the formats share. */
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

/* Fills in the sizes and, unless it is NULL, pixels [height,width,3]. */
LOONG_NODISCARD loong_status_t loongi_jpeg_read(const image_file_t *file,
                                                loong_image_info_t *info,
                                                uint8_t *pixels);
LOONG_NODISCARD loong_status_t loongi_png_read(const image_file_t *file,
                                               loong_image_info_t *info,
                                               uint8_t *pixels);
LOONG_NODISCARD loong_status_t loongi_webp_read(const image_file_t *file,
                                                loong_image_info_t *info,
                                                uint8_t *pixels);

/* Turns and mirrors *image as the file's Exif orientation says. */
LOONG_NODISCARD loong_status_t loongi_image_orient(const image_file_t *file,
                                                   loong_image_format_t format,
                                                   loong_image_t *image);

static inline uint32_t loongi_big_endian(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value = value << 8 | b[i];
    }
    return value;
}

#ifdef __cplusplus
}
#endif

#endif
