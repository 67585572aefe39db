/* SPDX-License-Identifier: Apache-2.0
 *
 * rope; the formula stands in rope_ref.c. Listed in kernels/list.h; read fast.h
 * before. */
#include "fast.h"

/* y may be the memory of x. */
static void rotate_halves(const float *x, const float *c, const float *s,
                          float sign, int64_t half, float *y)
{
    const float *x2 = x + half;
    float *y2 = y + half;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float u = x[i];
        float v = x2[i];
        float w = sign * s[i];
        y[i] = u * c[i] - v * w;
        y2[i] = v * c[i] + u * w;
    }
}

static void rotate_pairs(const float *x, const float *c, const float *s,
                         float sign, int64_t half, float *y)
{
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float u = x[2 * i];
        float v = x[2 * i + 1];
        float w = sign * s[i];
        y[2 * i] = u * c[i] - v * w;
        y[2 * i + 1] = v * c[i] + u * w;
    }
}

static void rotate_row(const loong_rope_attr_t *a, const fast_mat_t *x,
                       const fast_mat_t *table, const fast_mat_t *y, int64_t t)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    const float *c = (const float *)(const void *)fast_at(table, t, 0);
    int64_t half = table->cols / 2;
    float sign = a->inverse ? -1.0f : 1.0f;
    int64_t d = a->head_dim;
    int64_t step = FAST_CHUNK / d * d; /* whole heads */
    for (int64_t col = 0; col < x->cols; col += step) {
        int64_t n = LOONG_MIN(x->cols - col, step);
        const float *in = fast_get(x, t, col, n, buf[0]);
        float *out = fast_place(y, t, col, buf[1]);
        for (int64_t h = 0; h < n; h += d) {
            const float *from = in + h + a->begin;
            float *to = out + h + a->begin;
            if (a->interleaved) {
                rotate_pairs(from, c, c + half, sign, half, to);
            } else {
                rotate_halves(from, c, c + half, sign, half, to);
            }
            memmove(out + h, in + h, sizeof(float) * (size_t)a->begin);
            memmove(to + 2 * half, from + 2 * half,
                    sizeof(float) * (size_t)(d - a->begin - 2 * half));
        }
        fast_put(y, t, col, n, out);
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t table = fast_arg(call, 1);
    fast_mat_t y = fast_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        rotate_row(call->query->attr, &x, &table, &y, t);
    }
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    const loong_rope_attr_t *a = query->attr;
    if (a->head_dim > FAST_CHUNK) {
        snprintf(reason, LOONG_REASON_SIZE, "heads of %d, at most %d",
                 a->head_dim, FAST_CHUNK);
        return false;
    }
    return fast_support(query, 1u << 1, reason);
}

FAST_KERNEL(rope, support, NULL, run);
