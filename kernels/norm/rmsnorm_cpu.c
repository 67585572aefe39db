/* SPDX-License-Identifier: Apache-2.0
 *
 * rmsnorm, add_rmsnorm and rmsnorm_grad; the formulas stand in rmsnorm_ref.c.
 * A row stays in the cache between the passes over it. Listed in
 * kernels/list.h; read fast.h and norm_cpu.h before. */
#include "fast.h"
#include "norm_cpu.h"

typedef struct forward {
    fast_mat_t x, y, w, rstd;
    double eps;
} forward_t;

/* One group of d channels, beginning at column c0. */
static void forward_group(const forward_t *j, int64_t t, int64_t g)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    int64_t d = j->w.cols;
    double sum = 0.0;
    for (int64_t c = 0; c < d; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(d - c, FAST_CHUNK);
        const float *x = fast_get(&j->x, t, g * d + c, n, buf[0]);
        sum += (double)fast_dot(x, x, n);
    }
    float r = (float)(1.0 / sqrt(sum / (double)d + j->eps));
    *(float *)(void *)fast_at(&j->rstd, t, g) = r;
    for (int64_t c = 0; c < d; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(d - c, FAST_CHUNK);
        const float *x = fast_get(&j->x, t, g * d + c, n, buf[0]);
        const float *w = (const float *)(const void *)fast_at(&j->w, 0, c);
        float *y = fast_place(&j->y, t, g * d + c, buf[1]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i] * r * w[i];
        }
        fast_put(&j->y, t, g * d + c, n, y);
    }
}

/* a and b: what is added first into j->x; absent: nothing. */
static void forward_rows(const loong_kernel_call_t *call, const forward_t *j,
                         const fast_mat_t *a, const fast_mat_t *b)
{
    int64_t groups = j->y.cols / j->w.cols;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < j->y.rows; t++) {
        if (a != NULL) {
            norm_add_row(a, b, &j->x, t);
        }
        for (int64_t g = 0; g < groups; g++) {
            forward_group(j, t, g);
        }
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_norm_attr_t *attr = call->query->attr;
    forward_t j = {fast_arg(call, 0), fast_out(call, 0), fast_arg(call, 1),
                   fast_out(call, 1), attr->eps};
    forward_rows(call, &j, NULL, NULL);
    return LOONG_OK;
}

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    const loong_norm_attr_t *attr = call->query->attr;
    fast_mat_t a = fast_arg(call, 0);
    fast_mat_t b = fast_arg(call, 1);
    forward_t j = {fast_out(call, 2), fast_out(call, 0), fast_arg(call, 2),
                   fast_out(call, 1), attr->eps};
    forward_rows(call, &j, &a, &b);
    return LOONG_OK;
}

typedef struct backward {
    fast_mat_t dy, x, w, rstd, dsum, dx;
} backward_t;

/* dx of one group, and its part of dw added to dw[d] (NULL: not wanted). dx
 * may be the memory of dy: the first pass has read it all. */
static void backward_group(const backward_t *j, int64_t t, int64_t g,
                           float *dw)
{
    float buf[4][FAST_CHUNK] __attribute__((aligned(64)));
    float dyw[FAST_CHUNK];
    int64_t d = j->w.cols;
    float r = *(float *)(void *)fast_at(&j->rstd, t, g);
    double dot = 0.0;
    for (int64_t c = 0; c < d; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(d - c, FAST_CHUNK);
        const float *dy = fast_get(&j->dy, t, g * d + c, n, buf[0]);
        const float *x = fast_get(&j->x, t, g * d + c, n, buf[1]);
        const float *w = (const float *)(const void *)fast_at(&j->w, 0, c);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dyw[i] = dy[i] * w[i];
        }
        dot += (double)fast_dot(dyw, x, n);
        if (dw != NULL) {
            float *part = dw + c;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                part[i] += dy[i] * (x[i] * r);
            }
        }
    }
    float k = (float)(dot / (double)d * (double)r * (double)r);
    for (int64_t c = 0; c < d; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(d - c, FAST_CHUNK);
        const float *dy = fast_get(&j->dy, t, g * d + c, n, buf[0]);
        const float *x = fast_get(&j->x, t, g * d + c, n, buf[1]);
        const float *w = (const float *)(const void *)fast_at(&j->w, 0, c);
        const float *more = norm_more(&j->dsum, t, g * d + c, n, buf[2]);
        float *dx = fast_place(&j->dx, t, g * d + c, buf[3]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dx[i] = r * (dy[i] * w[i] - x[i] * k) + more[i];
        }
        fast_put(&j->dx, t, g * d + c, n, dx);
    }
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    fast_mat_t none = {NULL, 0, 0, 0, false};
    backward_t j = {fast_arg(call, 0), fast_arg(call, 1), fast_arg(call, 2),
                    fast_arg(call, 3),
                    call->query->num_in > 4 ? fast_arg(call, 4) : none,
                    fast_out(call, 0)};
    int64_t d = j.w.cols;
    int64_t groups = j.x.cols / d;
    bool wanted = fast_out(call, 1).p != NULL;
    float *partial = call->workspace;
    fast_blocks_t blocks = fast_blocks(j.x.rows);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t b = 0; b < blocks.count; b++) {
        float *dw = wanted ? partial + b * d : NULL;
        if (wanted) {
            memset(dw, 0, sizeof(*dw) * (size_t)d);
        }
        int64_t end = LOONG_MIN((b + 1) * blocks.rows, j.x.rows);
        for (int64_t t = b * blocks.rows; t < end; t++) {
            for (int64_t g = 0; g < groups; g++) {
                backward_group(&j, t, g, dw);
            }
        }
    }
    fast_fold(call, 1, partial, d, blocks.count);
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(float) * FAST_BLOCKS *
           (size_t)loong_karg_cols(&query->arg[2]);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 1 | 1u << 3, reason);
}

static bool support_add(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 2 | 1u << 4, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 2 | 1u << 3, reason);
}

FAST_KERNEL(rmsnorm, support, NULL, run);
FAST_KERNEL(add_rmsnorm, support_add, NULL, run_add);
FAST_KERNEL(rmsnorm_grad, support_grad, workspace, run_grad);
