/* SPDX-License-Identifier: Apache-2.0
 *
 * What the norms share. */
#ifndef LOONG_NORM_CPU_H
#define LOONG_NORM_CPU_H

#include "fast.h"

/* sum[t] = a[t] + b[t], rounded to its storage. */
static inline void norm_add_row(const fast_mat_t *a, const fast_mat_t *b,
                                const fast_mat_t *sum, int64_t t)
{
    float buf[3][FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < sum->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(sum->cols - c, FAST_CHUNK);
        const float *u = fast_get(a, t, c, n, buf[0]);
        const float *v = fast_get(b, t, c, n, buf[1]);
        float *s = fast_place(sum, t, c, buf[2]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            s[i] = u[i] + v[i];
        }
        fast_put(sum, t, c, n, s);
    }
}

/* The gradient that reaches the sum directly; zeros when there is none. */
static inline const float *norm_more(const fast_mat_t *dsum, int64_t row,
                                     int64_t col, int64_t n, float *buf)
{
    if (dsum->p != NULL) {
        return fast_get(dsum, row, col, n, buf);
    }
    memset(buf, 0, sizeof(*buf) * (size_t)n);
    return buf;
}

#endif
