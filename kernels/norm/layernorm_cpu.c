/* SPDX-License-Identifier: Apache-2.0
 *
 * layernorm, add_layernorm and layernorm_grad; the formulas stand in
 * layernorm_ref.c. A row stays in the cache between the passes over it. Listed
 * in kernels/list.h; read fast.h and norm_cpu.h before. */
#include "fast.h"
#include "norm_cpu.h"

typedef struct forward {
    fast_mat_t x, y, w, b, mean, rstd;
    double eps;
} forward_t;

static const float *vector_at(const fast_mat_t *m, int64_t col)
{
    return (const float *)(const void *)fast_at(m, 0, col);
}

/* Mean and 1 / deviation, the deviation from the mean itself. */
static void statistics(const forward_t *j, int64_t t, float *mean_p,
                       float *rstd_p)
{
    float buf[FAST_CHUNK] __attribute__((aligned(64)));
    float from_mean[FAST_CHUNK] __attribute__((aligned(64)));
    float ones[FAST_CHUNK] __attribute__((aligned(64)));
    int64_t cols = j->x.cols;
    double sum = 0.0;
    double squares = 0.0;
    for (int i = 0; i < FAST_CHUNK; i++) {
        ones[i] = 1.0f;
    }
    for (int64_t c = 0; c < cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(cols - c, FAST_CHUNK);
        sum += (double)fast_dot(fast_get(&j->x, t, c, n, buf), ones, n);
    }
    float mean = (float)(sum / (double)cols);
    for (int64_t c = 0; c < cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(cols - c, FAST_CHUNK);
        const float *x = fast_get(&j->x, t, c, n, buf);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            from_mean[i] = x[i] - mean;
        }
        squares += (double)fast_dot(from_mean, from_mean, n);
    }
    *mean_p = mean;
    *rstd_p = (float)(1.0 / sqrt(squares / (double)cols + j->eps));
}

static void forward_row(const forward_t *j, int64_t t)
{
    float buf[3][FAST_CHUNK] __attribute__((aligned(64)));
    float mean;
    float r;
    statistics(j, t, &mean, &r);
    *(float *)(void *)fast_at(&j->mean, t, 0) = mean;
    *(float *)(void *)fast_at(&j->rstd, t, 0) = r;
    memset(buf[2], 0, sizeof(buf[2]));
    for (int64_t c = 0; c < j->x.cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(j->x.cols - c, FAST_CHUNK);
        const float *x = fast_get(&j->x, t, c, n, buf[0]);
        const float *w = vector_at(&j->w, c);
        const float *b = j->b.p != NULL ? vector_at(&j->b, c) : buf[2];
        float *y = fast_place(&j->y, t, c, buf[1]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            y[i] = (x[i] - mean) * r * w[i] + b[i];
        }
        fast_put(&j->y, t, c, n, y);
    }
}

/* The inputs are [x, w, b], or [a, b, w, b] with x = a + b an output. */
static loong_status_t forward_rows(const loong_kernel_call_t *call, bool add)
{
    const loong_norm_attr_t *attr = call->query->attr;
    fast_mat_t none = {NULL, 0, 0, 0, false};
    fast_mat_t u = fast_arg(call, 0);
    fast_mat_t v = fast_arg(call, 1);
    int w = add ? 2 : 1;
    forward_t j = {add ? fast_out(call, 3) : u, fast_out(call, 0),
                   fast_arg(call, w),
                   w + 1 < call->query->num_in ? fast_arg(call, w + 1) : none,
                   fast_out(call, 1), fast_out(call, 2), attr->eps};
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < j.y.rows; t++) {
        if (add) {
            norm_add_row(&u, &v, &j.x, t);
        }
        forward_row(&j, t);
    }
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    return forward_rows(call, false);
}

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    return forward_rows(call, true);
}

typedef struct backward {
    fast_mat_t dy, x, w, mean, rstd, dsum, dx;
    bool wanted; /* dw or db */
} backward_t;

/* What the second pass needs of the first: means of g and of g n. */
typedef struct means {
    float g;
    float gn;
} means_t;

static means_t backward_sums(const backward_t *j, int64_t t, float *dw,
                             float *db)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    float norm[FAST_CHUNK];
    float grad[FAST_CHUNK];
    int64_t cols = j->x.cols;
    float m = *(float *)(void *)fast_at(&j->mean, t, 0);
    float r = *(float *)(void *)fast_at(&j->rstd, t, 0);
    double sum_g = 0.0;
    double sum_gn = 0.0;
    for (int64_t c = 0; c < cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(cols - c, FAST_CHUNK);
        const float *dy = fast_get(&j->dy, t, c, n, buf[0]);
        const float *x = fast_get(&j->x, t, c, n, buf[1]);
        const float *w = vector_at(&j->w, c);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            norm[i] = (x[i] - m) * r;
            grad[i] = dy[i] * w[i];
        }
        sum_g += (double)fast_dot(dy, w, n);
        sum_gn += (double)fast_dot(grad, norm, n);
        if (j->wanted) {
            float *part_w = dw + c;
            float *part_b = db + c;
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                part_w[i] += dy[i] * norm[i];
                part_b[i] += dy[i];
            }
        }
    }
    means_t means = {(float)(sum_g / (double)cols),
                     (float)(sum_gn / (double)cols)};
    return means;
}

/* dx may be the memory of dy: the first pass has read it all. */
static void backward_row(const backward_t *j, int64_t t, float *dw, float *db)
{
    float buf[4][FAST_CHUNK] __attribute__((aligned(64)));
    float m = *(float *)(void *)fast_at(&j->mean, t, 0);
    float r = *(float *)(void *)fast_at(&j->rstd, t, 0);
    means_t k = backward_sums(j, t, dw, db);
    for (int64_t c = 0; c < j->x.cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(j->x.cols - c, FAST_CHUNK);
        const float *dy = fast_get(&j->dy, t, c, n, buf[0]);
        const float *x = fast_get(&j->x, t, c, n, buf[1]);
        const float *w = vector_at(&j->w, c);
        const float *more = norm_more(&j->dsum, t, c, n, buf[2]);
        float *dx = fast_place(&j->dx, t, c, buf[3]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float norm = (x[i] - m) * r;
            dx[i] = r * (dy[i] * w[i] - k.g - norm * k.gn) + more[i];
        }
        fast_put(&j->dx, t, c, n, dx);
    }
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    fast_mat_t none = {NULL, 0, 0, 0, false};
    backward_t j = {fast_arg(call, 0), fast_arg(call, 1), fast_arg(call, 2),
                    fast_arg(call, 3), fast_arg(call, 4),
                    call->query->num_in > 5 ? fast_arg(call, 5) : none,
                    fast_out(call, 0),
                    fast_out(call, 1).p != NULL || fast_out(call, 2).p != NULL};
    int64_t cols = j.x.cols;
    float *partial = call->workspace;
    fast_blocks_t blocks = fast_blocks(j.x.rows);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t b = 0; b < blocks.count; b++) {
        float *dw = partial + b * 2 * cols; /* then db */
        int64_t end = LOONG_MIN((b + 1) * blocks.rows, j.x.rows);
        memset(dw, 0, sizeof(*dw) * 2 * (size_t)cols);
        for (int64_t t = b * blocks.rows; t < end; t++) {
            backward_row(&j, t, dw, dw + cols);
        }
    }
    fast_fold(call, 1, partial, 2 * cols, blocks.count);
    fast_fold(call, 2, partial + cols, 2 * cols, blocks.count);
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(float) * 2 * FAST_BLOCKS *
           (size_t)loong_karg_cols(&query->arg[1]);
}

/* Weights and statistics are fp32: operands [w .. end of in), outputs 1, 2. */
static bool support_forward(const loong_kernel_query_t *query, int w,
                            char reason[LOONG_REASON_SIZE])
{
    uint32_t wide = 6u << query->num_in;
    for (int i = w; i < query->num_in; i++) {
        wide |= 1u << i;
    }
    return fast_support(query, wide, reason);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return support_forward(query, 1, reason);
}

static bool support_add(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    return support_forward(query, 2, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 2 | 1u << 3 | 1u << 4, reason);
}

FAST_KERNEL(layernorm, support, NULL, run);
FAST_KERNEL(add_layernorm, support_add, NULL, run_add);
FAST_KERNEL(layernorm_grad, support_grad, workspace, run_grad);
