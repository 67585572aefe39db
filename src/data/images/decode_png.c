/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG, by libpng: every type and depth as 8-bit RGB, without alpha, gamma and
 * transparent colours. Called by decode.c. Read codec.h before. */
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "codec.h"

enum { HEAD = 24 }; /* signature, length and name of IHDR, width, height */

typedef struct png_source {
    const image_file_t *file;
    size_t at;
    image_trap_t trap;
} png_source_t;

static void fail(png_structp png, png_const_charp message)
{
    png_source_t *source = png_get_error_ptr(png);
    snprintf(source->trap.message, sizeof(source->trap.message), "%s",
             message);
    longjmp(source->trap.at, 1);
}

static void be_silent(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void take(png_structp png, png_bytep to, size_t length)
{
    png_source_t *source = png_get_io_ptr(png);
    if (length > source->file->length - source->at) {
        png_error(png, "the file ends within a chunk");
    }
    memcpy(to, source->file->bytes + source->at, length);
    source->at += length;
}

/* PIL clips grey of 16 bits without alpha and takes the upper half of all
 * others. A row of it is shorter than one of RGB, which it becomes here. */
static void clip_grey(uint8_t *row, size_t width)
{
    for (size_t x = 0; x < width; x++) {
        row[x] = row[2 * x] > 0 ? 255 : row[2 * x + 1];
    }
    for (size_t x = width; x-- > 0;) {
        row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = row[x];
    }
}

/* The colour that is transparent, where there is one alone and no other is in
 * part, of 8 bits as PIL keeps it: grey of fewer is not scaled. */
static void find_clear(png_structp png, png_infop head, uint8_t clear[4])
{
    png_bytep alpha = NULL;
    png_color_16p color = NULL;
    png_colorp palette = NULL;
    int count = 0, colors = 0, index = -1;
    int type = png_get_color_type(png, head);
    int depth = png_get_bit_depth(png, head);
    if (png_get_tRNS(png, head, &alpha, &count, &color) == 0 || depth == 16) {
        return;
    }
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_get_PLTE(png, head, &palette, &colors);
        for (int i = 0; i < count; i++) {
            if (alpha[i] != 255 &&
                (alpha[i] != 0 || index >= 0 || i >= colors)) {
                return;
            }
            index = alpha[i] == 0 ? i : index;
        }
    } else if (color != NULL && type == PNG_COLOR_TYPE_GRAY && depth > 1) {
        memset(clear, (uint8_t)color->gray, 3);
        clear[3] = 1;
    } else if (color != NULL && type == PNG_COLOR_TYPE_RGB) {
        const uint8_t rgb[] = {(uint8_t)color->red, (uint8_t)color->green,
                               (uint8_t)color->blue, 1};
        memcpy(clear, rgb, sizeof(rgb));
    }
    if (index >= 0) {
        const uint8_t rgb[] = {palette[index].red, palette[index].green,
                               palette[index].blue, 1};
        memcpy(clear, rgb, sizeof(rgb));
    }
}

static void read_all(png_structp png, png_infop head, size_t width,
                     size_t height, png_bytepp rows)
{
    int type = png_get_color_type(png, head);
    bool wide =
        type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, head) == 16;
    if (type == PNG_COLOR_TYPE_PALETTE) {
        png_set_palette_to_rgb(png);
    } else if (type == PNG_COLOR_TYPE_GRAY) {
        png_set_expand_gray_1_2_4_to_8(png);
    }
    if (!wide) {
        png_set_strip_16(png);
        png_set_gray_to_rgb(png);
    }
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, head);
    if (png_get_rowbytes(png, head) != width * (wide ? 2 : 3)) {
        png_error(png, "rows of an unexpected length");
    }
    png_read_image(png, rows);
    for (size_t y = 0; wide && y < height; y++) {
        clip_grey(rows[y], width);
    }
    png_read_end(png, NULL);
}

static bool try_read(png_source_t *source, png_structp png, png_infop head,
                     loong_image_t *image, png_bytepp rows)
{
    if (setjmp(source->trap.at) != 0) {
        return false;
    }
    png_set_read_fn(png, source, take);
    png_read_info(png, head);
    find_clear(png, head, image->clear);
    read_all(png, head, (size_t)image->width, (size_t)image->height, rows);
    return true;
}

loong_status_t loongi_png_read(const image_file_t *file, loong_image_t *image)
{
    png_source_t source = {file, 0, {.message = "out of memory"}};
    png_bytepp rows = NULL;
    LOONG_CHECK(file->ctx,
                file->length >= HEAD &&
                    memcmp(file->bytes + 12, "IHDR", 4) == 0,
                LOONG_ERR_FORMAT, "%s: no PNG header (IHDR)", file->name);
    image->width = loongi_big_endian(file->bytes + 16, 4);
    image->height = loongi_big_endian(file->bytes + 20, 4);
    if (image->pixels == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(file->ctx, (size_t)image->height, sizeof(*rows),
                            "rows of a PNG", &rows));
    for (int64_t y = 0; y < image->height; y++) {
        rows[y] = image->pixels + y * image->width * 3;
    }
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source,
                                             fail, be_silent);
    png_infop head = png != NULL ? png_create_info_struct(png) : NULL;
    bool done = head != NULL && try_read(&source, png, head, image, rows);
    png_destroy_read_struct(&png, &head, NULL);
    loongi_free(file->ctx, rows);
    LOONG_CHECK(file->ctx, done, LOONG_ERR_FORMAT, "%s: PNG: %s", file->name,
                source.trap.message);
    return LOONG_OK;
}
