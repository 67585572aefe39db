/* SPDX-License-Identifier: Apache-2.0
 *
 * WebP, by libwebp: still pictures, lossy and lossless. Called by decode.c.
 * Read codec.h before. */
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

loong_status_t loongi_webp_read(const image_file_t *file,
                                loong_image_info_t *info, uint8_t *pixels)
{
    WebPDecoderConfig config;
    LOONG_CHECK(file->ctx, WebPInitDecoderConfig(&config), LOONG_ERR_INTERNAL,
                "libwebp is of another version than its header");
    LOONG_TRY(
        check(file, WebPGetFeatures(file->bytes, file->length, &config.input)));
    LOONG_CHECK(file->ctx, !config.input.has_animation, LOONG_ERR_UNSUPPORTED,
                "%s: is an animated WebP, only still pictures are read",
                file->name);
    info->width = config.input.width;
    info->height = config.input.height;
    if (pixels == NULL) {
        return LOONG_OK;
    }
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = pixels;
    config.output.u.RGBA.stride = (int)info->width * 3;
    config.output.u.RGBA.size = (size_t)(info->width * info->height) * 3;
    VP8StatusCode code = WebPDecode(file->bytes, file->length, &config);
    WebPFreeDecBuffer(&config.output);
    return check(file, code);
}
