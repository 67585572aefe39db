/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing with antialias, as Pillow does since its version 13 (earlier ones
 * always take rows first): one pass along rows, one along columns, each rounded
 * to 8 bits, weights in fixed point of 22 bits. The
 * weights of a position are the filter stretched by the scale (when that is
 * more than 1) and divided by their sum. Called by processor.c. Read
 * loong/image.h before. */
#include <inttypes.h>
#include <math.h>

#include "base.h"
#include "loong/image.h"
#include "port.h"

enum { BITS = 32 - 8 - 2, CHANNELS = 3, MAX_PIXELS = 1 << 28 };

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic(double x) /* Keys, a = -0.5 */
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    }
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static const struct {
    double (*at)(double x);
    double support;
} filters[] = {[LOONG_IMAGE_BILINEAR] = {bilinear, 1.0},
               [LOONG_IMAGE_BICUBIC] = {bicubic, 2.0}};

/* Of every output position, the inputs it reads and their weights. */
typedef struct taps {
    int64_t size;  /* of weights of a position */
    int64_t *from; /* [outputs] first input */
    int64_t *count;
    int32_t *weights; /* [outputs, size] */
} taps_t;

static void taps_free(loong_context_t *ctx, taps_t *taps)
{
    loongi_free(ctx, taps->from);
    loongi_free(ctx, taps->weights);
}

static void fill_position(loong_image_filter_t filter, double scale,
                          int64_t inputs, int64_t i, double *exact,
                          taps_t *taps)
{
    double stretch = LOONG_MAX(scale, 1.0);
    double support = filters[filter].support * stretch;
    double center = ((double)i + 0.5) * scale;
    double sum = 0.0;
    int64_t from = LOONG_MAX((int64_t)(center - support + 0.5), 0);
    int64_t to = LOONG_MIN((int64_t)(center + support + 0.5), inputs);
    for (int64_t k = 0; k < to - from; k++) {
        exact[k] = filters[filter].at(((double)(k + from) - center + 0.5) *
                                      (1.0 / stretch));
        sum += exact[k];
    }
    for (int64_t k = 0; k < to - from; k++) {
        double weight = sum != 0.0 ? exact[k] / sum : exact[k];
        double fixed = weight * (1 << BITS);
        taps->weights[i * taps->size + k] =
            (int32_t)(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    }
    taps->from[i] = from;
    taps->count[i] = to - from;
}

static loong_status_t make_taps(loong_context_t *ctx,
                                loong_image_filter_t filter, int64_t inputs,
                                int64_t outputs, taps_t *taps)
{
    double scale = (double)inputs / (double)outputs;
    double support = filters[filter].support * LOONG_MAX(scale, 1.0);
    double *exact = NULL;
    loong_status_t status = LOONG_OK;
    taps->size = (int64_t)ceil(support) * 2 + 1;
    LOONG_TRY_GOTO(loongi_calloc(ctx, (size_t)taps->size, sizeof(*exact),
                                 "weights of a filter", &exact),
                   status, out);
    LOONG_TRY_GOTO(loongi_calloc(ctx, (size_t)outputs * 2, sizeof(*taps->from),
                                 "taps of a filter", &taps->from),
                   status, out);
    LOONG_TRY_GOTO(loongi_calloc(ctx, (size_t)(outputs * taps->size),
                                 sizeof(*taps->weights), "weights of a filter",
                                 &taps->weights),
                   status, out);
    taps->count = taps->from + outputs;
    for (int64_t i = 0; i < outputs; i++) {
        fill_position(filter, scale, inputs, i, exact, taps);
    }
out:
    loongi_free(ctx, exact);
    return status;
}

static inline uint8_t to_byte(int32_t sum)
{
    int32_t value = sum >> BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One row of pixels, each of a few neighbours. */
LOONG_CLONES static void filter_row(const taps_t *taps, const uint8_t *row,
                                    int64_t outputs, uint8_t *to)
{
    for (int64_t i = 0; i < outputs; i++, to += CHANNELS) {
        const uint8_t *from = row + taps->from[i] * CHANNELS;
        const int32_t *weights = taps->weights + i * taps->size;
        int32_t r = 1 << (BITS - 1), g = r, b = r;
        for (int64_t k = 0; k < taps->count[i]; k++) {
            r += from[CHANNELS * k] * weights[k];
            g += from[CHANNELS * k + 1] * weights[k];
            b += from[CHANNELS * k + 2] * weights[k];
        }
        to[0] = to_byte(r);
        to[1] = to_byte(g);
        to[2] = to_byte(b);
    }
}

/* A sum of rows of `width` bytes; the sums of a block stay in registers or in
 * the nearest cache. */
LOONG_CLONES static void filter_rows(const uint8_t *rows, int64_t width,
                                     const int32_t *weights, int64_t count,
                                     uint8_t *to)
{
    enum { BLOCK = 512 };
    int32_t sums[BLOCK];
    for (int64_t x = 0; x < width; x += BLOCK) {
        int64_t n = LOONG_MIN(BLOCK, width - x);
        for (int64_t j = 0; j < n; j++) {
            sums[j] = 1 << (BITS - 1);
        }
        for (int64_t k = 0; k < count; k++) {
            const uint8_t *from = rows + k * width + x;
            int32_t weight = weights[k];
            for (int64_t j = 0; j < n; j++) {
                sums[j] += from[j] * weight;
            }
        }
        for (int64_t j = 0; j < n; j++) {
            to[x + j] = to_byte(sums[j]);
        }
    }
}

/* One pass: `outputs` pixels along each row, or along each column. */
static loong_status_t pass(loong_context_t *ctx, const loong_image_t *image,
                           loong_image_filter_t filter, bool along_rows,
                           int64_t outputs, loong_image_t *resized)
{
    taps_t taps = {0};
    int64_t inputs = along_rows ? image->width : image->height;
    int64_t bytes = image->width * CHANNELS;
    loong_image_t result = *image;
    *(along_rows ? &result.width : &result.height) = outputs;
    result.pixels = NULL;
    loong_status_t status = make_taps(ctx, filter, inputs, outputs, &taps);
    if (status == LOONG_OK) {
        status = loongi_calloc(ctx, (size_t)(result.width * result.height),
                               CHANNELS, "pixels of a picture", &result.pixels);
    }
    for (int64_t y = 0; status == LOONG_OK && y < result.height; y++) {
        uint8_t *to = result.pixels + y * result.width * CHANNELS;
        if (along_rows) {
            filter_row(&taps, image->pixels + y * bytes, outputs, to);
        } else {
            filter_rows(image->pixels + taps.from[y] * bytes, bytes,
                        taps.weights + y * taps.size, taps.count[y], to);
        }
    }
    taps_free(ctx, &taps);
    LOONG_TRY(status);
    *resized = result;
    return LOONG_OK;
}

loong_status_t loong_image_resize(loong_context_t *ctx,
                                  const loong_image_t *image, int64_t width,
                                  int64_t height, loong_image_filter_t filter,
                                  loong_image_t *resized)
{
    loong_image_t between;
    LOONG_CHECK(ctx, width > 0 && height > 0 && width <= MAX_PIXELS / height,
                LOONG_ERR_ARG,
                "a picture cannot be resized to %" PRId64 " x %" PRId64
                " pixels; 1 to %d are allowed", width, height, MAX_PIXELS);
    LOONG_CHECK(ctx,
                filter >= LOONG_IMAGE_BILINEAR && filter <= LOONG_IMAGE_BICUBIC,
                LOONG_ERR_ARG, "there is no filter %d", (int)filter);
    if (height == image->height) {
        return pass(ctx, image, filter, true, width, resized);
    }
    if (width == image->width) {
        return pass(ctx, image, filter, false, height, resized);
    }
    bool rows_first = height >= image->height ||
                      image->height - height <= 2 * (image->width - width);
    LOONG_TRY(pass(ctx, image, filter, rows_first, rows_first ? width : height,
                   &between));
    loong_status_t status = pass(ctx, &between, filter, !rows_first,
                                 rows_first ? height : width, resized);
    loong_image_free(ctx, &between);
    return status;
}
