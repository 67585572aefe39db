/* SPDX-License-Identifier: Apache-2.0
 *
 * mean_squares, rms_scale and their gradients; the formulas stand in
 * rms_scale_ref.c. Listed in kernels/list.h; read fast.h before. */
#include "fast.h"

static float *number(const fast_mat_t *m, int64_t t)
{
    return (float *)(void *)fast_at(m, t, 0);
}

static float inverse_root(const loong_kernel_call_t *call, float m)
{
    const loong_norm_attr_t *attr = call->query->attr;
    return (float)(1.0 / sqrt((double)m + attr->eps));
}

/* y = x factor w in one row; w NULL: ones. */
static void scale_row(const fast_mat_t *x, const fast_mat_t *y, int64_t t,
                      float factor, const fast_mat_t *w)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < x->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(x->cols - c, FAST_CHUNK);
        const float *from = fast_get(x, t, c, n, buf[0]);
        float *to = fast_place(y, t, c, buf[1]);
        if (w != NULL) {
            const float *by = (const float *)(const void *)fast_at(w, 0, c);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                to[i] = from[i] * factor * by[i];
            }
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                to[i] = from[i] * factor;
            }
        }
        fast_put(y, t, c, n, to);
    }
}

static loong_status_t run_squares(const loong_kernel_call_t *call)
{
    const loong_mean_squares_attr_t *attr = call->query->attr;
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t m = fast_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        float buf[FAST_CHUNK] __attribute__((aligned(64)));
        double sum = 0.0;
        for (int64_t c = 0; c < x.cols; c += FAST_CHUNK) {
            int64_t n = LOONG_MIN(x.cols - c, FAST_CHUNK);
            const float *row = fast_get(&x, t, c, n, buf);
            sum += (double)fast_dot(row, row, n);
        }
        *number(&m, t) = (float)(sum * attr->factor);
    }
    return LOONG_OK;
}

static loong_status_t run_squares_grad(const loong_kernel_call_t *call)
{
    const loong_mean_squares_attr_t *attr = call->query->attr;
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t dm = fast_arg(call, 1);
    fast_mat_t dx = fast_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        float factor = (float)(2.0 * attr->factor * (double)*number(&dm, t));
        scale_row(&x, &dx, t, factor, NULL);
    }
    return LOONG_OK;
}

static loong_status_t run_scale(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t m = fast_arg(call, 1);
    fast_mat_t w = fast_arg(call, 2);
    fast_mat_t y = fast_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        scale_row(&x, &y, t, inverse_root(call, *number(&m, t)), &w);
    }
    return LOONG_OK;
}

typedef struct backward {
    fast_mat_t dy, x, m, w, dx, dm;
} backward_t;

/* One row: dm, its part of dw added to dw[] (NULL: not wanted), and then dx,
 * which may be the memory of dy. */
static void backward_row(const loong_kernel_call_t *call, const backward_t *j,
                         int64_t t, float *dw)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    float g[FAST_CHUNK];
    float r = inverse_root(call, *number(&j->m, t));
    double dot = 0.0;
    for (int64_t c = 0; c < j->x.cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(j->x.cols - c, FAST_CHUNK);
        const float *dy = fast_get(&j->dy, t, c, n, buf[0]);
        const float *x = fast_get(&j->x, t, c, n, buf[1]);
        const float *w = (const float *)(const void *)fast_at(&j->w, 0, c);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            g[i] = dy[i] * w[i];
        }
        dot += (double)fast_dot(g, x, n);
        if (dw != NULL) {
            float *part = dw + c;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                part[i] += dy[i] * (x[i] * r);
            }
        }
    }
    double cube = (double)r * (double)r * (double)r;
    *number(&j->dm, t) = (float)(-0.5 * cube * dot);
    scale_row(&j->dy, &j->dx, t, r, &j->w);
}

static loong_status_t run_scale_grad(const loong_kernel_call_t *call)
{
    backward_t j = {fast_arg(call, 0), fast_arg(call, 1), fast_arg(call, 2),
                    fast_arg(call, 3), fast_out(call, 0), fast_out(call, 1)};
    bool wanted = fast_out(call, 2).p != NULL;
    float *partial = call->workspace;
    int64_t d = j.x.cols;
    fast_blocks_t blocks = fast_blocks(j.x.rows);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t b = 0; b < blocks.count; b++) {
        float *dw = wanted ? partial + b * d : NULL;
        if (wanted) {
            memset(dw, 0, sizeof(*dw) * (size_t)d);
        }
        int64_t end = LOONG_MIN((b + 1) * blocks.rows, j.x.rows);
        for (int64_t t = b * blocks.rows; t < end; t++) {
            backward_row(call, &j, t, dw);
        }
    }
    fast_fold(call, 2, partial, d, blocks.count);
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(float) * FAST_BLOCKS *
           (size_t)loong_karg_cols(&query->arg[1]);
}

static bool support_squares(const loong_kernel_query_t *query,
                            char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 1, reason);
}

static bool support_scale(const loong_kernel_query_t *query,
                          char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 1 | 1u << 2, reason);
}

static bool support_scale_grad(const loong_kernel_query_t *query,
                               char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6, reason);
}

FAST_KERNEL(mean_squares, support_squares, NULL, run_squares);
FAST_KERNEL(mean_squares_grad, support_squares, NULL, run_squares_grad);
FAST_KERNEL(rms_scale, support_scale, NULL, run_scale);
FAST_KERNEL(rms_scale_grad, support_scale_grad, workspace, run_scale_grad);
