/* SPDX-License-Identifier: Apache-2.0
 *
 * How a picture is turned: tag 0x0112 of the first directory of a TIFF block
 * (Exif), which JPEG has in an APP1 segment, PNG in a chunk eXIf, WebP in a
 * chunk EXIF; where there is none, tiff:Orientation of a text (XMP). What is
 * malformed counts as absent, as it does in PIL. Called by decode.c. Read
 * codec.h before. */
#include <string.h>

#include "codec.h"

enum { TAG = 0x0112, ENTRY = 12 };

typedef struct span {
    const uint8_t *bytes;
    size_t length;
} span_t;

typedef struct metadata {
    span_t exif, xmp;
} metadata_t;

/* The first block that begins so is kept, without that beginning. */
static void keep_block(span_t *kept, span_t block, const char *begin,
                       size_t length)
{
    if (kept->bytes == NULL && block.length > length &&
        memcmp(block.bytes, begin, length) == 0) {
        *kept = (span_t){block.bytes + length, block.length - length};
    }
}

/* APP1 segments before the picture's data. */
static metadata_t in_jpeg(span_t file)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/";
    metadata_t found = {{NULL, 0}, {NULL, 0}};
    size_t at = 2, size;
    for (; at + 12 <= file.length && file.bytes[at] == 0xff; at += size) {
        const uint8_t *marker = file.bytes + at;
        size = marker[1] == 0xff ? 1 : 2 + loongi_big_endian(marker + 2, 2);
        if (marker[1] == 0xda || size > file.length - at) {
            break;
        }
        if (marker[1] == 0xe1 && size >= 4) {
            const span_t block = {marker + 4, size - 4};
            keep_block(&found.exif, block, "Exif\0\0", 6);
            keep_block(&found.xmp, block, xmp, sizeof(xmp));
        }
    }
    return found;
}

/* Chunks before the pixels: size, name, data, checksum. Those behind them, and
 * whether the bytes end before, are of interest where nothing was found. */
static metadata_t in_png(span_t file, bool behind, bool *ends_p)
{
    static const char xmp[] = "iTXtXML:com.adobe.xmp\0\0\0\0";
    metadata_t found = {{NULL, 0}, {NULL, 0}};
    bool seen = false; /* the pixels */
    size_t at = 8;
    *ends_p = false;
    while (at + 8 <= file.length) {
        const uint8_t *chunk = file.bytes + at;
        size_t size = loongi_big_endian(chunk, 4);
        seen = seen || memcmp(chunk + 4, "IDAT", 4) == 0;
        if (size > file.length - at - 8 || (seen && !behind)) {
            *ends_p = !seen;
            return found;
        }
        if (seen == behind) {
            const span_t block = {chunk + 4, size + 4};
            keep_block(&found.exif, block, "eXIf", 4);
            keep_block(&found.xmp, block, xmp, sizeof(xmp) - 1);
        }
        at += 8 + size + 4;
    }
    *ends_p = !seen;
    return found;
}

/* Chunks behind the pixels: name, size, data, a byte more behind an odd size.
 * A head says whether there are any. */
static metadata_t in_webp(span_t file, bool *ends_p)
{
    enum { HEAD = 21, EXIF = 8, XMP = 4 };
    metadata_t found = {{NULL, 0}, {NULL, 0}};
    int expected =
        file.length >= HEAD && memcmp(file.bytes + 12, "VP8X", 4) == 0
            ? file.bytes[HEAD - 1]
            : 0;
    size_t at = 12;
    while (at + 8 <= file.length) {
        const uint8_t *chunk = file.bytes + at;
        size_t size = loongi_little_endian(chunk + 4, 4);
        if (size > file.length - at - 8) {
            break;
        }
        if (memcmp(chunk, "EXIF", 4) == 0) {
            keep_block(&found.exif, (span_t){chunk + 8, size}, "", 0);
        } else if (memcmp(chunk, "XMP ", 4) == 0) {
            keep_block(&found.xmp, (span_t){chunk + 8, size}, "", 0);
        }
        at += 8 + size + size % 2;
    }
    bool lacks = ((expected & EXIF) != 0 && found.exif.bytes == NULL) ||
                 ((expected & XMP) != 0 && found.xmp.bytes == NULL);
    *ends_p = lacks &&
              file.length < 8 + (size_t)loongi_little_endian(file.bytes + 4, 4);
    return found;
}

/* 0: it says nothing. */
static int exif_orientation(span_t exif)
{
    if (exif.length > 6 && memcmp(exif.bytes, "Exif\0\0", 6) == 0) {
        exif.bytes += 6;
        exif.length -= 6;
    }
    if (exif.length < 8) {
        return 0;
    }
    bool big = memcmp(exif.bytes, "MM", 2) == 0;
    uint32_t (*number)(const uint8_t *b, int bytes) =
        big ? loongi_big_endian : loongi_little_endian;
    size_t at = number(exif.bytes + 4, 4);
    if (at > exif.length - 2) {
        return 0;
    }
    size_t entries = number(exif.bytes + at, 2);
    for (at += 2; entries > 0 && at + ENTRY <= exif.length; entries--) {
        if (number(exif.bytes + at, 2) == TAG) {
            uint32_t value = number(exif.bytes + at + 8, 2);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
        at += ENTRY;
    }
    return 0;
}

/* tiff:Orientation="6" or tiff:Orientation>6 */
static int xmp_orientation(span_t xmp)
{
    static const char tag[] = "tiff:Orientation";
    const size_t length = sizeof(tag) - 1;
    for (size_t i = 0; i + length + 3 <= xmp.length; i++) {
        const uint8_t *at = xmp.bytes + i;
        if (memcmp(at, tag, length) == 0) {
            at += length;
            at += at[0] == '=' && at[1] == '"' ? 2 : at[0] == '>' ? 1 : 0;
            return *at >= '1' && *at <= '8' && at[-1] != 'n' ? *at - '0' : 0;
        }
    }
    return 0;
}

static int orientation_of(const metadata_t *metadata)
{
    int found = exif_orientation(metadata->exif);
    found = found > 0 ? found : xmp_orientation(metadata->xmp);
    return found > 0 ? found : 1;
}

loong_status_t loongi_image_orientation(const image_file_t *file,
                                        loong_image_format_t format,
                                        int *orientation_p)
{
    const span_t whole = {file->bytes, file->length};
    bool ends = false; /* before what is of interest */
    const metadata_t found =
        format == LOONG_IMAGE_PNG    ? in_png(whole, false, &ends)
        : format == LOONG_IMAGE_WEBP ? in_webp(whole, &ends)
                                     : in_jpeg(whole);
    LOONG_CHECK(file->ctx, !ends, LOONG_ERR_FORMAT,
                "%s: ends before what it says of its orientation", file->name);
    *orientation_p = orientation_of(&found);
    return LOONG_OK;
}

loong_status_t loongi_image_orientation_known(const image_file_t *file,
                                              loong_image_format_t format,
                                              int orientation)
{
    const span_t whole = {file->bytes, file->length};
    bool ends;
    metadata_t behind = {{NULL, 0}, {NULL, 0}};
    if (format == LOONG_IMAGE_PNG && orientation == 1) {
        behind = in_png(whole, true, &ends);
    }
    LOONG_CHECK(file->ctx, orientation_of(&behind) == 1, LOONG_ERR_UNSUPPORTED,
                "%s: PNG: its orientation stands behind its pixels, it is read "
                "before them",
                file->name);
    return LOONG_OK;
}

void loongi_image_orient(int orientation, const loong_image_t *image,
                         loong_image_t *upright)
{
    /* The upright picture's row y, column x is the stored one's, mirrored
     * along either axis, then with rows and columns exchanged. */
    static const struct {
        bool exchange, mirror_rows, mirror_columns;
    } how[9] = {[2] = {false, false, true}, [3] = {false, true, true},
                [4] = {false, true, false}, [5] = {true, false, false},
                [6] = {true, true, false},  [7] = {true, true, true},
                [8] = {true, false, true}};
    bool exchange = how[orientation].exchange;
    int64_t w = image->width, h = image->height;
    uint8_t *to = upright->pixels;
    upright->width = exchange ? h : w;
    upright->height = exchange ? w : h;
    for (int64_t y = 0; y < upright->height; y++) {
        for (int64_t x = 0; x < upright->width; x++, to += 3) {
            int64_t row = exchange ? x : y, column = exchange ? y : x;
            row = how[orientation].mirror_rows ? h - 1 - row : row;
            column = how[orientation].mirror_columns ? w - 1 - column : column;
            memcpy(to, image->pixels + (row * w + column) * 3, 3);
        }
    }
}
