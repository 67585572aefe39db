/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing with antialias, as Pillow does since its version 13 (earlier ones,
 * and torch, always take rows first): one pass along rows, one along columns,
 * each rounded to 8 bits, weights in fixed point of 22 bits. The weights of a
 * position are the filter stretched by the scale (when that is more than 1) and
 * divided by their sum. Called by process.c and video.c. Read loong/image.h
 * before. */
#include <inttypes.h>
#include <math.h>

#include "base.h"
#include "loong/image.h"
#include "port.h"
#include "processor.h"

enum { BITS = 32 - 8 - 2, MAX_PIXELS = 1 << 28 };

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
    int bits;      /* of a weight, behind the point */
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
    exact += i * taps->size;
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
        exact[k] = sum != 0.0 ? exact[k] / sum : exact[k];
    }
    taps->from[i] = from;
    taps->count[i] = to - from;
}

/* Pillow's weights have 22 bits; torch's 16 in all, as many behind the point as
 * the largest leaves. */
static void fix_weights(const double *exact, int64_t count, bool as_torch,
                        taps_t *taps)
{
    double most = 0.0;
    for (int64_t k = 0; k < count; k++) {
        most = fmax(most, exact[k]);
    }
    taps->bits = BITS;
    for (int bits = 0; bits < BITS && as_torch; bits++) {
        taps->bits = bits;
        if ((int)(0.5 + most * (1 << (bits + 1))) >= 1 << 15) {
            break;
        }
    }
    for (int64_t k = 0; k < count; k++) {
        double fixed = exact[k] * (1 << taps->bits);
        taps->weights[k] = (int32_t)(fixed < 0 ? fixed - 0.5 : fixed + 0.5);
    }
}

static loong_status_t make_taps(loong_context_t *ctx,
                                loong_image_filter_t filter, bool as_torch,
                                int64_t sizes[2], taps_t *taps)
{
    int64_t inputs = sizes[0];
    int64_t outputs = sizes[1];
    double scale = (double)inputs / (double)outputs;
    double support = filters[filter].support * LOONG_MAX(scale, 1.0);
    double *exact = NULL;
    loong_status_t status = LOONG_OK;
    taps->size = (int64_t)ceil(support) * 2 + 1;
    LOONG_TRY_GOTO(loongi_calloc(ctx, (size_t)(outputs * taps->size),
                                 sizeof(*exact), "weights of a filter",
                                 &exact),
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
    fix_weights(exact, outputs * taps->size, as_torch, taps);
out:
    loongi_free(ctx, exact);
    return status;
}

static inline uint8_t to_byte(int32_t sum, int bits)
{
    int32_t value = sum >> bits;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One row of pixels, each of a few neighbours. */
LOONG_CLONES static void filter_row(const taps_t *taps, const uint8_t *row,
                                    int64_t outputs, uint8_t *to)
{
    for (int64_t i = 0; i < outputs; i++, to += CHANNELS) {
        const uint8_t *from = row + taps->from[i] * CHANNELS;
        const int32_t *weights = taps->weights + i * taps->size;
        int32_t r = 1 << (taps->bits - 1), g = r, b = r;
        for (int64_t k = 0; k < taps->count[i]; k++) {
            r += from[CHANNELS * k] * weights[k];
            g += from[CHANNELS * k + 1] * weights[k];
            b += from[CHANNELS * k + 2] * weights[k];
        }
        to[0] = to_byte(r, taps->bits);
        to[1] = to_byte(g, taps->bits);
        to[2] = to_byte(b, taps->bits);
    }
}

/* A sum of rows of `width` bytes; the sums of a block stay in registers or in
 * the nearest cache. */
LOONG_CLONES static void filter_rows(const taps_t *taps, int64_t y,
                                     const uint8_t *rows, int64_t width,
                                     uint8_t *to)
{
    const int32_t *weights = taps->weights + y * taps->size;
    int64_t count = taps->count[y];
    enum { BLOCK = 512 };
    int32_t sums[BLOCK];
    for (int64_t x = 0; x < width; x += BLOCK) {
        int64_t n = LOONG_MIN(BLOCK, width - x);
        for (int64_t j = 0; j < n; j++) {
            sums[j] = 1 << (taps->bits - 1);
        }
        for (int64_t k = 0; k < count; k++) {
            const uint8_t *from = rows + k * width + x;
            int32_t weight = weights[k];
            for (int64_t j = 0; j < n; j++) {
                sums[j] += from[j] * weight;
            }
        }
        for (int64_t j = 0; j < n; j++) {
            to[x + j] = to_byte(sums[j], taps->bits);
        }
    }
}

/* A filter, and how it is computed. */
typedef struct means {
    loong_context_t *ctx;
    loong_image_filter_t filter;
    bool as_torch;
} means_t;

/* One pass: `outputs` pixels along each row, or along each column. */
static loong_status_t pass(const means_t *m, const loong_image_t *image,
                           bool along_rows, int64_t outputs,
                           loong_image_t *resized)
{
    loong_context_t *ctx = m->ctx;
    taps_t taps = {0};
    int64_t sizes[2] = {along_rows ? image->width : image->height, outputs};
    int64_t bytes = image->width * CHANNELS;
    loong_image_t result = *image;
    *(along_rows ? &result.width : &result.height) = outputs;
    result.pixels = NULL;
    loong_status_t status =
        make_taps(ctx, m->filter, m->as_torch, sizes, &taps);
    if (status == LOONG_OK) {
        status = loongi_calloc(ctx, (size_t)(result.width * result.height),
                               CHANNELS, "pixels of a picture", &result.pixels);
    }
    for (int64_t y = 0; status == LOONG_OK && y < result.height; y++) {
        uint8_t *to = result.pixels + y * result.width * CHANNELS;
        if (along_rows) {
            filter_row(&taps, image->pixels + y * bytes, outputs, to);
        } else {
            filter_rows(&taps, y, image->pixels + taps.from[y] * bytes, bytes,
                        to);
        }
    }
    taps_free(ctx, &taps);
    LOONG_TRY(status);
    *resized = result;
    return LOONG_OK;
}

static loong_status_t check(loong_context_t *ctx, const int64_t size[2],
                            loong_image_filter_t filter)
{
    LOONG_CHECK(ctx,
                size[0] > 0 && size[1] > 0 && size[0] <= MAX_PIXELS / size[1],
                LOONG_ERR_ARG,
                "a picture cannot be resized to %" PRId64 " x %" PRId64
                " pixels; 1 to %d are allowed", size[0], size[1], MAX_PIXELS);
    LOONG_CHECK(ctx,
                filter >= LOONG_IMAGE_BILINEAR && filter <= LOONG_IMAGE_BICUBIC,
                LOONG_ERR_ARG, "there is no filter %d", (int)filter);
    return LOONG_OK;
}

static loong_status_t resize(const means_t *m, const loong_image_t *image,
                             const int64_t size[2], bool rows_first,
                             loong_image_t *resized)
{
    loong_image_t between;
    LOONG_TRY(check(m->ctx, size, m->filter));
    if (size[1] == image->height) {
        return pass(m, image, true, size[0], resized);
    }
    if (size[0] == image->width) {
        return pass(m, image, false, size[1], resized);
    }
    LOONG_TRY(pass(m, image, rows_first, rows_first ? size[0] : size[1],
                   &between));
    loong_status_t status = pass(m, &between, !rows_first,
                                 rows_first ? size[1] : size[0], resized);
    loong_image_free(m->ctx, &between);
    return status;
}

loong_status_t loongi_image_resize_as_torch(loong_context_t *ctx,
                                            const loong_image_t *image,
                                            const int64_t size[2],
                                            loong_image_filter_t filter,
                                            loong_image_t *resized)
{
    const means_t m = {ctx, filter, true};
    return resize(&m, image, size, true, resized);
}

loong_status_t loong_image_resize(loong_context_t *ctx,
                                  const loong_image_t *image, int64_t width,
                                  int64_t height, loong_image_filter_t filter,
                                  loong_image_t *resized)
{
    const means_t m = {ctx, filter, false};
    const int64_t size[2] = {width, height};
    bool rows_first = height >= image->height ||
                      image->height - height <= 2 * (image->width - width);
    return resize(&m, image, size, rows_first, resized);
}
