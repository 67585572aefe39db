/* SPDX-License-Identifier: Apache-2.0
 *
 * WebP, by libwebp: lossy and lossless pictures, and the first frame of an
 * animation. Called by decode.c. Read codec.h before. */
#include <string.h>

#include <webp/decode.h>

#include "codec.h"

static const char *reason(VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return "a feature that libwebp does not know";
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return "the file ends too early";
    default:
        return "its bitstream is broken";
    }
}

static loong_status_t check(const image_file_t *file, VP8StatusCode code)
{
    LOONG_CHECK(file->ctx, code == VP8_STATUS_OK, LOONG_ERR_FORMAT,
                "%s: WebP: %s", file->name, reason(code));
    return LOONG_OK;
}

/* The first frame of an animation: where it stands in the picture, and its
 * chunks, which are those of a still picture. Chunks: name, size, data, a byte
 * more behind an odd size; ANMF: half of left and top, width and height less 1,
 * 24 bits each, 4 bytes more, chunks. */
typedef struct frame {
    const uint8_t *bytes;
    size_t length;
    uint32_t left, top, width, height;
} frame_t;

static frame_t first_frame(const image_file_t *file)
{
    enum { HEAD = 8, FRAME = 16 };
    frame_t frame = {NULL, 0, 0, 0, 0, 0};
    size_t at = 12;
    while (at + HEAD + FRAME <= file->length) {
        const uint8_t *chunk = file->bytes + at;
        const uint8_t *data = chunk + HEAD;
        size_t size = loongi_little_endian(chunk + 4, 4);
        if (size > file->length - at - HEAD) {
            break;
        }
        if (memcmp(chunk, "ANMF", 4) == 0 && size > FRAME) {
            frame = (frame_t){data + FRAME,
                              size - FRAME,
                              2 * loongi_little_endian(data, 3),
                              2 * loongi_little_endian(data + 3, 3),
                              1 + loongi_little_endian(data + 6, 3),
                              1 + loongi_little_endian(data + 9, 3)};
            break;
        }
        at += HEAD + size + size % 2;
    }
    return frame;
}

/* It is all of a picture that is no animation. What it leaves uncovered is
 * black. */
static loong_status_t find_frame(const image_file_t *file,
                                 WebPDecoderConfig *config, uint8_t *pixels,
                                 frame_t *frame)
{
    uint32_t width = (uint32_t)config->input.width;
    uint32_t height = (uint32_t)config->input.height;
    *frame = (frame_t){file->bytes, file->length, 0, 0, width, height};
    if (!config->input.has_animation) {
        return LOONG_OK;
    }
    *frame = first_frame(file);
    memset(pixels, 0, (size_t)width * height * 3);
    LOONG_TRY(check(
        file, frame->bytes != NULL
                  ? WebPGetFeatures(frame->bytes, frame->length, &config->input)
                  : VP8_STATUS_NOT_ENOUGH_DATA));
    bool inside = frame->left + frame->width <= width &&
                  frame->top + frame->height <= height;
    return check(file, inside &&
                               (uint32_t)config->input.width == frame->width &&
                               (uint32_t)config->input.height == frame->height
                           ? VP8_STATUS_OK
                           : VP8_STATUS_BITSTREAM_ERROR);
}

loong_status_t loongi_webp_read(const image_file_t *file, loong_image_t *image)
{
    WebPDecoderConfig config;
    LOONG_CHECK(file->ctx, WebPInitDecoderConfig(&config), LOONG_ERR_INTERNAL,
                "libwebp is of another version than its header");
    LOONG_TRY(
        check(file, WebPGetFeatures(file->bytes, file->length, &config.input)));
    image->width = config.input.width;
    image->height = config.input.height;
    if (image->pixels == NULL) {
        return LOONG_OK;
    }
    frame_t frame;
    LOONG_TRY(find_frame(file, &config, image->pixels, &frame));
    size_t first = ((size_t)frame.top * (size_t)image->width + frame.left) * 3;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = image->pixels + first;
    config.output.u.RGBA.stride = (int)image->width * 3;
    config.output.u.RGBA.size =
        (size_t)(image->width * image->height) * 3 - first;
    VP8StatusCode code = WebPDecode(frame.bytes, frame.length, &config);
    WebPFreeDecBuffer(&config.output);
    return check(file, code);
}
