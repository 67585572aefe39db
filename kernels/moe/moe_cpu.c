/* SPDX-License-Identifier: Apache-2.0
 *
 * permute, unpermute, unpermute_dw, sigmoid_gate and its gradient; the formulas
 * stand in moe_ref.c. A row is one thread's. Listed in kernels/list.h; read
 * fast.h and moe.h before. */
#include "fast.h"
#include "moe.h"

/* The weight of a slot; input 3, or 1. */
static float weight_of(const loong_kernel_call_t *call, int64_t slot)
{
    return fast_present(call, 3) && call->query->num_in > 3
               ? ((const float *)call->ptr[3])[slot]
               : 1.0f;
}

static void scale_row(const fast_mat_t *x, int64_t from, const fast_mat_t *y,
                      int64_t to, float w)
{
    float in[FAST_CHUNK] __attribute__((aligned(64)));
    float out[FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < y->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(y->cols - c, FAST_CHUNK);
        const float *a = fast_get(x, from, c, n, in);
        float *b = fast_place(y, to, c, out);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            b[i] = w * a[i];
        }
        fast_put(y, to, c, n, b);
    }
}

static loong_status_t run_permute(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t y = fast_out(call, 0);
    const int32_t *source = call->ptr[1];
    int64_t k = call->query->arg[2].dim[1];
    size_t row = (size_t)y.cols * (y.half ? 2 : 4);
    bool weighted = call->query->num_in > 3 && call->ptr[3] != NULL;
    LOONG_TRY(loongi_moe_check_rows(call));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t r = 0; r < y.rows; r++) {
        int64_t s = source[r];
        if (s < 0) {
            continue;
        }
        if (weighted) {
            scale_row(&x, s / k, &y, r, weight_of(call, s));
        } else {
            memcpy(fast_at(&y, r, 0), fast_at(&x, s / k, 0), row);
        }
    }
    return LOONG_OK;
}

static void sum_rows(const loong_kernel_call_t *call, const fast_mat_t *x,
                     const fast_mat_t *y, int64_t t)
{
    const int32_t *dest = call->ptr[2];
    int64_t k = call->query->arg[2].dim[1];
    float in[FAST_CHUNK] __attribute__((aligned(64)));
    float sum[FAST_CHUNK] __attribute__((aligned(64)));
    for (int64_t c = 0; c < y->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(y->cols - c, FAST_CHUNK);
        if (call->accumulate & 1u) {
            memcpy(sum, fast_get(y, t, c, n, in), sizeof(*sum) * (size_t)n);
        } else {
            memset(sum, 0, sizeof(sum));
        }
        for (int64_t s = t * k; s < (t + 1) * k; s++) {
            if (dest[s] < 0) {
                continue;
            }
            const float *a = fast_get(x, dest[s], c, n, in);
            float w = weight_of(call, s);
#pragma omp simd
            for (int64_t i = 0; i < n; i++) {
                sum[i] += w * a[i];
            }
        }
        if (y->half) {
            fast_put(y, t, c, n, sum);
        } else {
            memcpy(fast_at(y, t, c), sum, sizeof(*sum) * (size_t)n);
        }
    }
}

static loong_status_t run_unpermute(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t y = fast_out(call, 0);
    const int32_t *dest = call->ptr[2];
    int64_t k = call->query->arg[2].dim[1];
    LOONG_TRY(loongi_moe_check_rows(call));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < y.rows; t++) {
        if (dest[t * k] != LOONG_NO_TOKEN) {
            sum_rows(call, &x, &y, t);
        }
    }
    return LOONG_OK;
}

static float dot_rows(const fast_mat_t *a, int64_t i, const fast_mat_t *b,
                      int64_t j)
{
    float left[FAST_CHUNK] __attribute__((aligned(64)));
    float right[FAST_CHUNK] __attribute__((aligned(64)));
    float sum = 0.0f;
    for (int64_t c = 0; c < a->cols; c += FAST_CHUNK) {
        int64_t n = LOONG_MIN(a->cols - c, FAST_CHUNK);
        sum += fast_dot(fast_get(a, i, c, n, left),
                        fast_get(b, j, c, n, right), n);
    }
    return sum;
}

static loong_status_t run_unpermute_dw(const loong_kernel_call_t *call)
{
    fast_mat_t dy = fast_arg(call, 0);
    fast_mat_t x = fast_arg(call, 1);
    const int32_t *dest = call->ptr[2];
    float *dw = call->ptr[3];
    int64_t k = call->query->arg[2].dim[1];
    LOONG_TRY(loongi_moe_check(call, 2, LOONG_NO_TOKEN, x.rows - 1));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < dy.rows; t++) {
        bool there = dest[t * k] != LOONG_NO_TOKEN;
        for (int64_t s = t * k; s < (there ? (t + 1) * k : 0); s++) {
            float sum = dest[s] < 0 ? 0.0f : dot_rows(&dy, t, &x, dest[s]);
            dw[s] = (call->accumulate & 1u ? dw[s] : 0.0f) + sum;
        }
    }
    return LOONG_OK;
}

static float gate_at(const fast_mat_t *g, int64_t t)
{
    float buf;
    return 1.0f / (1.0f + expf(-*fast_get(g, t, 0, 1, &buf)));
}

static loong_status_t run_sigmoid_gate(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t g = fast_arg(call, 1);
    fast_mat_t y = fast_out(call, 0);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        scale_row(&x, t, &y, t, gate_at(&g, t));
    }
    return LOONG_OK;
}

static loong_status_t run_sigmoid_gate_grad(const loong_kernel_call_t *call)
{
    fast_mat_t dy = fast_arg(call, 0);
    fast_mat_t x = fast_arg(call, 1);
    fast_mat_t g = fast_arg(call, 2);
    fast_mat_t dx = fast_out(call, 0);
    fast_mat_t dg = fast_out(call, 1);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        float s = gate_at(&g, t);
        float buf;
        float *out = fast_place(&dg, t, 0, &buf);
        *out = s * (1.0f - s) * dot_rows(&dy, t, &x, t);
        fast_put(&dg, t, 0, 1, out);
        scale_row(&dy, t, &dx, t, s);
    }
    return LOONG_OK;
}

/* Weights are wide, rows of one type. */
static bool support_move(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, query->num_in > 3 ? 1u << 3 : 0, reason);
}

static bool support_dw(const loong_kernel_query_t *query,
                       char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 1u << 3, reason);
}

static bool support_gate(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 0, reason);
}

FAST_KERNEL(permute, support_move, NULL, run_permute);
FAST_KERNEL(unpermute, support_move, NULL, run_unpermute);
FAST_KERNEL(unpermute_dw, support_dw, NULL, run_unpermute_dw);
FAST_KERNEL(sigmoid_gate, support_gate, NULL, run_sigmoid_gate);
FAST_KERNEL(sigmoid_gate_grad, support_gate, NULL, run_sigmoid_gate_grad);
