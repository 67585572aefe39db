/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of any format that is read: which one, how large, its pixels. Called
 * by source.c and the classes of sources. Read codec.h before. */
#include <inttypes.h>
#include <string.h>

#include "codec.h"

enum { MAX_PIXELS = 89478485, CHANNELS = 3 };

static loong_status_t (*const read_as[])(const image_file_t *file,
                                         loong_image_t *image) = {
    [LOONG_IMAGE_JPEG] = loongi_jpeg_read,
    [LOONG_IMAGE_PNG] = loongi_png_read,
    [LOONG_IMAGE_WEBP] = loongi_webp_read,
};

static bool begins(const image_file_t *file, size_t at, const char *mark,
                   size_t length)
{
    return file->length >= at + length &&
           memcmp(file->bytes + at, mark, length) == 0;
}

static loong_status_t format_of(const image_file_t *file,
                                loong_image_format_t *format_p)
{
    LOONG_CHECK(file->ctx, file->length > 0, LOONG_ERR_FORMAT, "%s: is empty",
                file->name);
    if (begins(file, 0, "\xff\xd8\xff", 3)) {
        *format_p = LOONG_IMAGE_JPEG;
    } else if (begins(file, 0, "\x89PNG\r\n\x1a\n", 8)) {
        *format_p = LOONG_IMAGE_PNG;
    } else if (begins(file, 0, "RIFF", 4) && begins(file, 8, "WEBP", 4)) {
        *format_p = LOONG_IMAGE_WEBP;
    } else {
        return LOONG_FAIL(file->ctx, LOONG_ERR_UNSUPPORTED,
                          "%s: is no JPEG, PNG or WebP picture", file->name);
    }
    return LOONG_OK;
}

/* The sizes as stored, and how the picture is turned. */
static loong_status_t get_stored(const image_file_t *file,
                                 loong_image_format_t *format_p,
                                 loong_image_t *image, int *orientation_p)
{
    LOONG_TRY(format_of(file, format_p));
    LOONG_TRY(read_as[*format_p](file, image));
    LOONG_CHECK(file->ctx, image->width > 0 && image->height > 0,
                LOONG_ERR_FORMAT, "%s: has %" PRId64 " x %" PRId64 " pixels",
                file->name, image->width, image->height);
    return loongi_image_orientation(file, *format_p, orientation_p);
}

loong_status_t loong_image_get_info(loong_context_t *ctx, const char *name,
                                    const uint8_t *bytes, size_t length,
                                    loong_image_info_t *info)
{
    const image_file_t file = {ctx, name, bytes, length};
    loong_image_format_t format;
    loong_image_t stored = {0};
    int orientation = 1;
    LOONG_TRY(get_stored(&file, &format, &stored, &orientation));
    bool exchange = orientation > 4;
    *info = (loong_image_info_t){format,
                                 exchange ? stored.height : stored.width,
                                 exchange ? stored.width : stored.height};
    return LOONG_OK;
}

loong_status_t loong_image_decode(loong_context_t *ctx, const char *name,
                                  const uint8_t *bytes, size_t length,
                                  const loong_image_decode_params_t *params,
                                  loong_image_t *image)
{
    static const loong_image_decode_params_t defaults = {0};
    const image_file_t file = {ctx, name, bytes, length};
    loong_image_format_t format;
    loong_image_t decoded = {0};
    int orientation = 1;
    params = params != NULL ? params : &defaults;
    int64_t most = params->max_pixels > 0 ? params->max_pixels : MAX_PIXELS;
    LOONG_TRY(get_stored(&file, &format, &decoded, &orientation));
    LOONG_CHECK(ctx, decoded.width <= most / decoded.height,
                LOONG_ERR_UNSUPPORTED,
                "%s: has %" PRId64 " x %" PRId64 " pixels, more than the "
                "%" PRId64 " that are allowed",
                name, decoded.width, decoded.height, most);
    LOONG_TRY(loongi_calloc(ctx, (size_t)(decoded.width * decoded.height),
                            CHANNELS, "pixels of a picture", &decoded.pixels));
    loong_status_t status = read_as[format](&file, &decoded);
    if (status == LOONG_OK) {
        status = loongi_image_orient(ctx, orientation, &decoded);
    }
    if (status != LOONG_OK) {
        loong_image_free(ctx, &decoded);
        return status;
    }
    *image = decoded;
    return LOONG_OK;
}

void loong_image_free(loong_context_t *ctx, loong_image_t *image)
{
    loongi_free(ctx, image->pixels);
    memset(image, 0, sizeof(*image));
}
