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

static loong_status_t check_pixels(const image_file_t *file,
                                   const loong_image_t *image, int64_t most)
{
    LOONG_CHECK(file->ctx, image->width <= most / image->height,
                LOONG_ERR_UNSUPPORTED,
                "%s: has %" PRId64 " x %" PRId64 " pixels, more than the "
                "%" PRId64 " that are allowed",
                file->name, image->width, image->height, most);
    return LOONG_OK;
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
    LOONG_TRY(check_pixels(&file, &stored, MAX_PIXELS));
    bool exchange = orientation > 4;
    *info = (loong_image_info_t){format,
                                 exchange ? stored.height : stored.width,
                                 exchange ? stored.width : stored.height};
    return LOONG_OK;
}

static loong_status_t take_room(loong_context_t *ctx, loong_image_t *image)
{
    return loongi_calloc(ctx, (size_t)(image->width * image->height), CHANNELS,
                         "pixels of a picture", &image->pixels);
}

/* The pixels of a picture whose stored sizes are known; turned ones take a
 * second room. */
static loong_status_t decode_into(const image_file_t *file,
                                  loong_image_format_t format, int orientation,
                                  uint8_t *to, loong_image_t *stored,
                                  loong_image_t *image)
{
    bool turned = orientation > 1;
    loong_image_t upright = *stored;
    upright.pixels = to;
    loong_status_t status =
        to == NULL ? take_room(file->ctx, &upright) : LOONG_OK;
    stored->pixels = upright.pixels;
    if (status == LOONG_OK && turned) {
        status = take_room(file->ctx, stored);
    }
    if (status == LOONG_OK) {
        status = read_as[format](file, stored);
    }
    if (status == LOONG_OK && turned) {
        loongi_image_orient(orientation, stored, &upright);
    }
    if (turned && stored->pixels != upright.pixels) {
        loongi_free(file->ctx, stored->pixels);
    }
    if (status != LOONG_OK) {
        loongi_free(file->ctx, to == NULL ? upright.pixels : NULL);
        return status;
    }
    memcpy(upright.clear, stored->clear, sizeof(upright.clear));
    *image = upright;
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
    LOONG_TRY(check_pixels(&file, &decoded, most));
    LOONG_TRY(loongi_image_orientation_known(&file, format, orientation));
    return decode_into(&file, format, orientation, params->to, &decoded, image);
}

void loong_image_free(loong_context_t *ctx, loong_image_t *image)
{
    loongi_free(ctx, image->pixels);
    memset(image, 0, sizeof(*image));
}
