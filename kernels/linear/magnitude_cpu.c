/* SPDX-License-Identifier: Apache-2.0
 *
 * magnitude; the formula stands in magnitude_ref.c. Listed in kernels/list.h;
 * read fast.h before. */
#include "fast.h"

static bool has(const loong_kernel_query_t *q, int i)
{
    return q->num_in > i && q->arg[i].rank > 0;
}

static const float *vector(const loong_kernel_call_t *call, int i)
{
    return has(call->query, i) ? call->ptr[i] : NULL;
}

static void weigh_row(const fast_mat_t *x, const fast_mat_t *y, int64_t t,
                      const float *factors, const float *bias)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < x->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(x->cols - c, FAST_CHUNK);
        const float *from = fast_get(x, t, c, n, buf[0]);
        float *to = fast_place(y, t, c, buf[1]);
        const float *by = factors + c;
        if (bias != NULL) {
            const float *more = bias + c;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                to[i] = from[i] * by[i] + more[i];
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                to[i] = from[i] * by[i];
            }
        }
        fast_put(y, t, c, n, to);
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t s = fast_arg(call, 1);
    fast_mat_t y = fast_out(call, 0);
    const float *m = vector(call, 2);
    const float *bias = vector(call, 3);
    float *factors = call->workspace;
    for (int64_t c = 0; c < x.cols; c++) {
        float sum = *(const float *)(const void *)fast_at(&s, c, 0);
        factors[c] = (m != NULL ? m[c] : 1.0f) / sqrtf(sum);
    }
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        weigh_row(&x, &y, t, factors, bias);
    }
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(float) * (size_t)loong_karg_cols(&query->arg[0]);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t wide = 1u << 1 | (has(query, 2) ? 1u << 2 : 0u) |
                    (has(query, 3) ? 1u << 3 : 0u);
    return fast_support(query, wide, reason);
}

FAST_KERNEL(magnitude, support, workspace, run);
