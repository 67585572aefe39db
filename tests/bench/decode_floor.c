/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures through libjpeg-turbo, libpng and libwebp alone, for images.py: what
 * decoding costs at least. Of a picture of three channels of 8 bits; `to` has
 * room for its pixels. Compiled and called by that script. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>

void floor_jpeg(const uint8_t *bytes, size_t length, uint8_t *to);
void floor_png(const uint8_t *bytes, size_t length, uint8_t *to);
void floor_webp(const uint8_t *bytes, size_t length, uint8_t *to);

void floor_jpeg(const uint8_t *bytes, size_t length, uint8_t *to)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, bytes, length);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row =
            to + (size_t)jpeg.output_scanline * jpeg.output_width * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

static void take(png_structp png, png_bytep to, size_t length)
{
    const uint8_t **from = png_get_io_ptr(png);
    memcpy(to, *from, length);
    *from += length;
}

void floor_png(const uint8_t *bytes, size_t length, uint8_t *to)
{
    (void)length;
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop head = png_create_info_struct(png);
    png_set_read_fn(png, &bytes, take);
    png_read_info(png, head);
    size_t height = png_get_image_height(png, head);
    png_bytepp rows = malloc(height * sizeof(*rows));
    for (size_t y = 0; y < height; y++) {
        rows[y] = to + y * png_get_rowbytes(png, head);
    }
    png_read_image(png, rows);
    png_read_end(png, NULL);
    free(rows);
    png_destroy_read_struct(&png, &head, NULL);
}

void floor_webp(const uint8_t *bytes, size_t length, uint8_t *to)
{
    int width, height;
    if (WebPGetInfo(bytes, length, &width, &height)) {
        (void)!WebPDecodeRGBInto(bytes, length, to,
                                 (size_t)width * (size_t)height * 3,
                                 width * 3);
    }
}
