/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG, by libjpeg-turbo: the accurate DCT and smooth upsampling, its defaults,
 * as PIL has them. Damage that costs pixels is an error, of which the library
 * only warns; stray bytes between segments are none. */
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
    if (level >= 0) {
        return; /* a trace */
    }
    switch (jpeg->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
        return;
    default:
        fail(jpeg);
    }
}

static void be_silent(j_common_ptr jpeg)
{
    (void)jpeg;
}

/* A failure of what follows comes back at setjmp. */
static void begin(jpeg_state_t *state, const image_file_t *file)
{
    state->jpeg.client_data = state;
    jpeg_create_decompress(&state->jpeg);
    jpeg_mem_src(&state->jpeg, file->bytes, file->length);
    jpeg_read_header(&state->jpeg, TRUE);
}

static void prepare(jpeg_state_t *state)
{
    memset(state, 0, sizeof(*state));
    state->jpeg.err = jpeg_std_error(&state->errors);
    state->jpeg.client_data = state;
    state->errors.error_exit = fail;
    state->errors.emit_message = warn;
    state->errors.output_message = be_silent;
}

static loong_status_t end(jpeg_state_t *state, const image_file_t *file,
                          bool failed)
{
    jpeg_destroy_decompress(&state->jpeg);
    LOONG_CHECK(file->ctx, !failed, LOONG_ERR_FORMAT, "%s: %s", file->name,
                state->trap.message);
    return LOONG_OK;
}

int loongi_jpeg_marker(const uint8_t *bytes, size_t length, size_t *at)
{
    for (size_t i = *at; i < length;) {
        bool marks = bytes[i++] == 0xff;
        while (marks && i < length && bytes[i] == 0xff) {
            i++;
        }
        if (!marks || i >= length) {
            continue;
        }
        int marker = bytes[i++];
        bool alone = marker <= 1 || (marker >= 0xd0 && marker <= 0xd7);
        if (!alone) {
            *at = i;
            return marker;
        }
    }
    return -1;
}

/* Looks for a frame header, which has the size. When the bytes end before it,
 * *need_p is how many are wanted at least, else 0. */
static bool find_size(const uint8_t *bytes, size_t length,
                      loong_image_info_t *info, size_t *need_p)
{
    enum { FRAME = 7, ROOM = 16 };
    size_t at = 2;
    *need_p = length + ROOM;
    for (;;) {
        int marker = loongi_jpeg_marker(bytes, length, &at);
        if (marker == 0xd9 || marker == 0xda) {
            *need_p = 0;
            return false;
        }
        if (marker < 0 || at + FRAME > length) {
            return false;
        }
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 &&
            marker != 0xc8 && marker != 0xcc) {
            info->height = loongi_big_endian(bytes + at + 3, 2);
            info->width = loongi_big_endian(bytes + at + 5, 2);
            return true;
        }
        at += loongi_big_endian(bytes + at, 2);
        *need_p = LOONG_MAX(at, length) + ROOM;
    }
}

size_t loongi_jpeg_need(const uint8_t *bytes, size_t length)
{
    loong_image_info_t info;
    size_t need = 0;
    bool is_jpeg = length > 2 && bytes[0] == 0xff && bytes[1] == 0xd8;
    return is_jpeg && !find_size(bytes, length, &info, &need) ? need : 0;
}

loong_status_t loongi_jpeg_info(const image_file_t *file,
                                loong_image_info_t *info)
{
    size_t need = 0;
    LOONG_CHECK(file->ctx, find_size(file->bytes, file->length, info, &need),
                LOONG_ERR_FORMAT, "%s: JPEG: %s", file->name,
                need > 0 ? "the file ends before its frame header"
                         : "no frame header before the picture's data");
    return LOONG_OK;
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

/* `row`: room for a row of CMYK. */
static void read_rows(jpeg_state_t *state, uint8_t *row, uint8_t *pixels)
{
    struct jpeg_decompress_struct *jpeg = &state->jpeg;
    bool four = jpeg->num_components == 4;
    jpeg->out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = pixels + (size_t)jpeg->output_scanline * 3 *
                                   jpeg->output_width;
        JSAMPROW into = four ? row : to;
        jpeg_read_scanlines(jpeg, &into, 1);
        if (four) {
            cmyk_to_rgb(row, to, jpeg->output_width);
        }
    }
}

static bool try_read(jpeg_state_t *state, const image_file_t *file,
                     const loong_image_info_t *info, uint8_t *row,
                     uint8_t *pixels)
{
    if (setjmp(state->trap.at) != 0) {
        return false;
    }
    begin(state, file);
    if (state->jpeg.image_width != info->width ||
        state->jpeg.image_height != info->height) {
        snprintf(state->trap.message, sizeof(state->trap.message),
                 "two sizes in one file");
        return false;
    }
    read_rows(state, row, pixels);
    return true;
}

loong_status_t loongi_jpeg_decode(const image_file_t *file,
                                  const loong_image_info_t *info,
                                  uint8_t *pixels)
{
    jpeg_state_t state;
    uint8_t *row = NULL;
    LOONG_TRY(loongi_alloc(file->ctx, (size_t)info->width * 4, "row of a JPEG",
                           &row));
    prepare(&state);
    bool done = try_read(&state, file, info, row, pixels);
    loongi_free(file->ctx, row);
    return end(&state, file, !done);
}
