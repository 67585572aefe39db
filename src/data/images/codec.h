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

/* A file in memory. */
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

/* Sizes from the head of a file of that format. */
LOONG_NODISCARD loong_status_t loongi_jpeg_info(const image_file_t *file,
                                                loong_image_info_t *info);
LOONG_NODISCARD loong_status_t loongi_png_info(const image_file_t *file,
                                               loong_image_info_t *info);
LOONG_NODISCARD loong_status_t loongi_webp_info(const image_file_t *file,
                                                loong_image_info_t *info);

/* The next marker of a JPEG file at or behind *at that a length follows, or the
 * end of its segments (0xd9, 0xda); *at is then behind it. -1: there is none.*/
int loongi_jpeg_marker(const uint8_t *bytes, size_t length, size_t *at);
/* How many bytes of a file are needed for its info, 0 if these suffice or do
 * not begin a JPEG: other formats have it at their beginning. */
size_t loongi_jpeg_need(const uint8_t *bytes, size_t length);

/* Pixels [height,width,3] of a file whose sizes are `info`. */
LOONG_NODISCARD loong_status_t loongi_jpeg_decode(
    const image_file_t *file, const loong_image_info_t *info, uint8_t *pixels);
LOONG_NODISCARD loong_status_t loongi_png_decode(const image_file_t *file,
                                                 const loong_image_info_t *info,
                                                 uint8_t *pixels);
LOONG_NODISCARD loong_status_t loongi_webp_decode(
    const image_file_t *file, const loong_image_info_t *info, uint8_t *pixels);

/* The Exif orientation, 1 (as stored) to 8; 1 where the file has none. */
int loongi_exif_orientation(const image_file_t *file,
                            loong_image_format_t format);

/* Turns and mirrors *image as the orientation says. */
LOONG_NODISCARD loong_status_t loongi_image_orient(loong_context_t *ctx,
                                                   int orientation,
                                                   loong_image_t *image);

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
