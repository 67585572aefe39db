/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG, by libjpeg-turbo: the accurate DCT and smooth upsampling, its defaults,
 * as PIL has them. Damage that costs pixels is an error, of which the library
 * only warns; stray bytes between segments are none. Called by decode.c. Read
 * codec.h before. */
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "codec.h"

typedef struct jpeg_state {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    image_trap_t trap;
} jpeg_state_t;

static void fail(j_common_ptr jpeg)
{
    jpeg_state_t *state = (jpeg_state_t *)jpeg->client_data;
    jpeg->err->format_message(jpeg, state->trap.message);
    longjmp(state->trap.at, 1);
}

static void warn(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
        code != JWRN_JFIF_MAJOR) {
        fail(jpeg);
    }
}

/* CMYK as Adobe stores it, inverted. A product over 255 is rounded as PIL
 * rounds it. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, int64_t width)
{
    for (int64_t x = 0; x < width; x++) {
        int black = cmyk[4 * x + 3];
        for (int c = 0; c < 3; c++) {
            int product = (255 - cmyk[4 * x + c]) * black + 128;
            int value = black - (((product >> 8) + product) >> 8);
            rgb[3 * x + c] = (uint8_t)LOONG_MAX(value, 0);
        }
    }
}

static void read_rows(struct jpeg_decompress_struct *jpeg, uint8_t *pixels)
{
    JSAMPROW row = NULL;
    jpeg->out_color_space = JCS_RGB;
    if (jpeg->num_components == 4) {
        jpeg->out_color_space = JCS_CMYK;
        row = jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE,
                                     (size_t)jpeg->image_width * 4);
    }
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = pixels;
        pixels += (size_t)jpeg->output_width * 3;
        jpeg_read_scanlines(jpeg, row != NULL ? &row : &to, 1);
        if (row != NULL) {
            cmyk_to_rgb(row, to, jpeg->output_width);
        }
    }
}

static bool try_read(jpeg_state_t *state, const image_file_t *file,
                     loong_image_t *image)
{
    if (setjmp(state->trap.at) != 0) {
        return false;
    }
    jpeg_create_decompress(&state->jpeg);
    jpeg_mem_src(&state->jpeg, file->bytes, file->length);
    jpeg_read_header(&state->jpeg, TRUE);
    image->width = state->jpeg.image_width;
    image->height = state->jpeg.image_height;
    if (image->pixels != NULL) {
        read_rows(&state->jpeg, image->pixels);
    }
    return true;
}

loong_status_t loongi_jpeg_read(const image_file_t *file, loong_image_t *image)
{
    jpeg_state_t state;
    memset(&state, 0, sizeof(state));
    state.jpeg.err = jpeg_std_error(&state.errors);
    state.jpeg.client_data = &state;
    state.errors.error_exit = fail;
    state.errors.emit_message = warn;
    bool done = try_read(&state, file, image);
    jpeg_destroy_decompress(&state.jpeg);
    LOONG_CHECK(file->ctx, done, LOONG_ERR_FORMAT, "%s: JPEG: %s", file->name,
                state.trap.message);
    return LOONG_OK;
}
