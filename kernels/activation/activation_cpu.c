/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu, gelu and their gradients; the formulas stand in activation_ref.c.
 * The tanh form is x s(2u): (1 + tanh u) / 2 is the logistic function of 2u,
 * which is exact in both tails. Listed in kernels/list.h; read fast.h
 * before. */
#include "fast.h"
#include "fast_math.h"
#include "moe/moe.h"

static void swiglu_chunk(const void *how, const float *const *in,
                         float *const *out, int64_t n)
{
    const float *a = in[0];
    const float *b = in[1];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = a[i] * fast_sigmoid(a[i]) * b[i];
    }
}

static void swiglu_grad_chunk(const void *how, const float *const *in,
                              float *const *out, int64_t n)
{
    const float *dy = in[0];
    const float *a = in[1];
    const float *b = in[2];
    float *da = out[0];
    float *db = out[1];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float x = a[i];
        float d = dy[i];
        float s = fast_sigmoid(x);
        float slope = s * (1.0f + x * (1.0f - s));
        da[i] = d * b[i] * slope;
        db[i] = d * x * s;
    }
}

/* Beyond 16 the tanh form is 0 or x to all places of a float. */
static inline float limited(float x)
{
    x = x < -16.0f ? -16.0f : x;
    return x > 16.0f ? 16.0f : x;
}

/* 2 sqrt(2 / pi), and times 0.044715. */
static const float slope_1 = 1.59576912f;
static const float slope_3 = 0.0713548163f;

static void gelu_tanh_chunk(const void *how, const float *const *in,
                            float *const *out, int64_t n)
{
    const float *x = in[0];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = limited(x[i]);
        y[i] = x[i] * fast_sigmoid(v * (slope_1 + slope_3 * v * v));
    }
}

static void gelu_chunk(const void *how, const float *const *in,
                       float *const *out, int64_t n)
{
    const float *x = in[0];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float density;
        y[i] = x[i] * fast_normal(x[i], &density);
    }
}

static void gelu_tanh_grad_chunk(const void *how, const float *const *in,
                                 float *const *out, int64_t n)
{
    const float *dy = in[0];
    const float *x = in[1];
    float *dx = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = limited(x[i]);
        float s = fast_sigmoid(v * (slope_1 + slope_3 * v * v));
        float inner = slope_1 + 3.0f * slope_3 * v * v;
        dx[i] = dy[i] * (s + v * s * (1.0f - s) * inner);
    }
}

static void gelu_grad_chunk(const void *how, const float *const *in,
                            float *const *out, int64_t n)
{
    const float *dy = in[0];
    const float *x = in[1];
    float *dx = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = limited(x[i]);
        float density;
        float below = fast_normal(v, &density);
        dx[i] = dy[i] * (below + v * density);
    }
}

static const float quick = 1.702f;

static void gelu_quick_chunk(const void *how, const float *const *in,
                             float *const *out, int64_t n)
{
    const float *x = in[0];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * fast_sigmoid(quick * x[i]);
    }
}

static void gelu_quick_grad_chunk(const void *how, const float *const *in,
                                  float *const *out, int64_t n)
{
    const float *dy = in[0];
    const float *x = in[1];
    float *dx = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = quick * x[i];
        float s = fast_sigmoid(v);
        dx[i] = dy[i] * s * (1.0f + v * (1.0f - s));
    }
}

/* By loong_activation_t. */
static const fast_chunk_fn gelu_chunks[] = {NULL, gelu_chunk, gelu_tanh_chunk,
                                            gelu_quick_chunk};
static const fast_chunk_fn gelu_grad_chunks[] = {
    NULL, gelu_grad_chunk, gelu_tanh_grad_chunk, gelu_quick_grad_chunk};

/* x = [a | b] as two operands. */
static loong_status_t run_swiglu(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t y = fast_out(call, 0);
    LOONG_TRY(loongi_moe_count_rows(call, 1, x.rows, &x.rows));
    fast_map_t m = {swiglu_chunk, NULL, call->query->threads, 2, 1,
                    {fast_columns(x, 0, y.cols),
                     fast_columns(x, y.cols, y.cols), y}};
    fast_map(&m);
    return LOONG_OK;
}

static loong_status_t run_swiglu_grad(const loong_kernel_call_t *call)
{
    fast_mat_t dy = fast_arg(call, 0);
    fast_mat_t x = fast_arg(call, 1);
    fast_mat_t dx = fast_out(call, 0);
    LOONG_TRY(loongi_moe_count_rows(call, 2, dy.rows, &dy.rows));
    fast_map_t m = {swiglu_grad_chunk, NULL, call->query->threads, 3, 2,
                    {dy, fast_columns(x, 0, dy.cols),
                     fast_columns(x, dy.cols, dy.cols),
                     fast_columns(dx, 0, dy.cols),
                     fast_columns(dx, dy.cols, dy.cols)}};
    fast_map(&m);
    return LOONG_OK;
}

static loong_status_t run_gelu(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a = call->query->attr;
    fast_map_t m = {gelu_chunks[a->form],
                    NULL,
                    call->query->threads,
                    1,
                    1,
                    {fast_arg(call, 0), fast_out(call, 0)}};
    fast_map(&m);
    return LOONG_OK;
}

static loong_status_t run_gelu_grad(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a = call->query->attr;
    fast_map_t m = {gelu_grad_chunks[a->form],
                    NULL,
                    call->query->threads,
                    2,
                    1,
                    {fast_arg(call, 0), fast_arg(call, 1), fast_out(call, 0)}};
    fast_map(&m);
    return LOONG_OK;
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 0, reason);
}

FAST_KERNEL(swiglu, support, NULL, run_swiglu);
FAST_KERNEL(swiglu_grad, support, NULL, run_swiglu_grad);
FAST_KERNEL(gelu, support, NULL, run_gelu);
FAST_KERNEL(gelu_grad, support, NULL, run_gelu_grad);
