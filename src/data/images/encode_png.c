/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixels as a PNG, by libpng, for people to look at. Called by src/show. Read
 * codec.h before. */
#include <stdio.h>
#include <string.h>

#include <png.h>

#include "codec.h"

typedef struct png_sink {
    loong_text_t *to;
    image_trap_t trap;
} png_sink_t;

static void fail(png_structp png, png_const_charp message)
{
    png_sink_t *sink = png_get_error_ptr(png);
    snprintf(sink->trap.message, sizeof(sink->trap.message), "%s", message);
    longjmp(sink->trap.at, 1);
}

static void give(png_structp png, png_bytep bytes, size_t length)
{
    png_sink_t *sink = png_get_io_ptr(png);
    loongi_text_append(sink->to, bytes, length);
}

static void flush(png_structp png)
{
    (void)png;
}

static void write_rows(png_structp png, png_infop head,
                       const loong_image_t *image)
{
    png_set_IHDR(png, head, (png_uint_32)image->width,
                 (png_uint_32)image->height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, head);
    for (int64_t y = 0; y < image->height; y++) {
        png_write_row(png, image->pixels + 3 * image->width * y);
    }
    png_write_end(png, head);
}

loong_status_t loongi_png_write(loong_context_t *ctx,
                                const loong_image_t *image, loong_text_t *to)
{
    png_sink_t sink = {.to = to};
    png_structp png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink, fail, NULL);
    png_infop head = png != NULL ? png_create_info_struct(png) : NULL;
    if (head == NULL || setjmp(sink.trap.at) != 0) {
        png_destroy_write_struct(&png, &head);
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY, "libpng: %s",
                          sink.trap.message);
    }
    png_set_write_fn(png, &sink, give, flush);
    write_rows(png, head, image);
    png_destroy_write_struct(&png, &head);
    return to->status;
}
