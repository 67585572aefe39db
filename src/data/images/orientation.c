/* SPDX-License-Identifier: Apache-2.0
 *
 * The Exif orientation: tag 0x0112 of the first directory of a TIFF block,
 * which JPEG has in an APP1 segment, PNG in a chunk eXIf, WebP in a chunk EXIF.
 * What is malformed counts as absent, as it does in PIL. Called by decode.c.
 * Read codec.h before. */
#include <string.h>

#include "codec.h"

enum { TAG = 0x0112, ENTRY = 12 };

typedef struct span {
    const uint8_t *bytes;
    size_t length;
} span_t;

static uint32_t little_endian(const uint8_t *b, int bytes)
{
    uint32_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        value = value << 8 | b[i];
    }
    return value;
}

/* The APP1 segment that begins with "Exif", before the picture's data. */
static span_t in_jpeg(span_t file)
{
    size_t at = 2, size;
    for (; at + 12 <= file.length && file.bytes[at] == 0xff; at += size) {
        const uint8_t *marker = file.bytes + at;
        size = marker[1] == 0xff ? 1 : 2 + loongi_big_endian(marker + 2, 2);
        if (marker[1] == 0xda || size > file.length - at) {
            break;
        }
        if (marker[1] == 0xe1 && size >= 10 &&
            memcmp(marker + 4, "Exif\0\0", 6) == 0) {
            return (span_t){marker + 10, size - 10};
        }
    }
    return (span_t){NULL, 0};
}

/* A chunk by name. PNG: size, name, data, checksum; RIFF: name, size, data, a
 * byte more behind an odd size. */
static span_t in_chunks(span_t file, bool png)
{
    size_t at = png ? 8 : 12;
    while (at + 8 <= file.length) {
        const uint8_t *chunk = file.bytes + at;
        size_t size =
            png ? loongi_big_endian(chunk, 4) : little_endian(chunk + 4, 4);
        if (size > file.length - at - 8) {
            break;
        }
        if (memcmp(chunk + (png ? 4 : 0), png ? "eXIf" : "EXIF", 4) == 0) {
            span_t found = {chunk + 8, size};
            if (size > 6 && memcmp(found.bytes, "Exif\0\0", 6) == 0) {
                found.bytes += 6;
                found.length -= 6;
            }
            return found;
        }
        at += 8 + size + (png ? 4 : size % 2);
    }
    return (span_t){NULL, 0};
}

static int exif_orientation(const image_file_t *file,
                            loong_image_format_t format)
{
    span_t whole = {file->bytes, file->length};
    span_t exif = format == LOONG_IMAGE_JPEG
                      ? in_jpeg(whole)
                      : in_chunks(whole, format == LOONG_IMAGE_PNG);
    if (exif.length < 8) {
        return 1;
    }
    bool big = memcmp(exif.bytes, "MM", 2) == 0;
    uint32_t (*number)(const uint8_t *b, int bytes) =
        big ? loongi_big_endian : little_endian;
    size_t at = number(exif.bytes + 4, 4);
    if (at > exif.length - 2) {
        return 1;
    }
    size_t entries = number(exif.bytes + at, 2);
    for (at += 2; entries > 0 && at + ENTRY <= exif.length; entries--) {
        if (number(exif.bytes + at, 2) == TAG) {
            uint32_t value = number(exif.bytes + at + 8, 2);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
        at += ENTRY;
    }
    return 1;
}

loong_status_t loongi_image_orient(const image_file_t *file,
                                   loong_image_format_t format,
                                   loong_image_t *image)
{
    /* The upright picture's row y, column x is the stored one's, mirrored
     * along either axis, then with rows and columns exchanged. */
    static const struct {
        bool exchange, mirror_rows, mirror_columns;
    } how[9] = {[2] = {false, false, true}, [3] = {false, true, true},
                [4] = {false, true, false}, [5] = {true, false, false},
                [6] = {true, true, false},  [7] = {true, true, true},
                [8] = {true, false, true}};
    int orientation = exif_orientation(file, format);
    if (orientation == 1) {
        return LOONG_OK;
    }
    bool exchange = how[orientation].exchange;
    int64_t w = image->width, h = image->height;
    loong_image_t turned = {exchange ? h : w, exchange ? w : h, NULL};
    LOONG_TRY(loongi_calloc(file->ctx, (size_t)(w * h), 3,
                            "pixels of a picture", &turned.pixels));
    uint8_t *to = turned.pixels;
    for (int64_t y = 0; y < turned.height; y++) {
        for (int64_t x = 0; x < turned.width; x++, to += 3) {
            int64_t row = exchange ? x : y, column = exchange ? y : x;
            row = how[orientation].mirror_rows ? h - 1 - row : row;
            column = how[orientation].mirror_columns ? w - 1 - column : column;
            memcpy(to, image->pixels + (row * w + column) * 3, 3);
        }
    }
    loong_image_free(file->ctx, image);
    *image = turned;
    return LOONG_OK;
}
