/* SPDX-License-Identifier: Apache-2.0
 *
 * add, multiply, scale, cast, accumulate, sum_rows and sum_heads; the formulas
 * stand in elementwise_ref.c. Listed in kernels/list.h; read fast.h before. */
#include "fast.h"
#include "loong/collective.h"

static void add_chunk(const void *how, const float *const *in,
                      float *const *out, int64_t n)
{
    const float *a = in[0];
    const float *b = in[1];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = a[i] + b[i];
    }
}

static void multiply_chunk(const void *how, const float *const *in,
                           float *const *out, int64_t n)
{
    const float *a = in[0];
    const float *b = in[1];
    float *y = out[0];
    (void)how;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = a[i] * b[i];
    }
}

static void scale_chunk(const void *how, const float *const *in,
                        float *const *out, int64_t n)
{
    const float factor = ((const float *)how)[0];
    const float shift = ((const float *)how)[1];
    const float *x = in[0];
    float *y = out[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = factor * x[i] + shift;
    }
}

static void copy_chunk(const void *how, const float *const *in,
                       float *const *out, int64_t n)
{
    (void)how;
    memmove(out[0], in[0], sizeof(float) * (size_t)n);
}

/* Two operands of one shape. */
static loong_status_t run_two(const loong_kernel_call_t *call, fast_chunk_fn fn)
{
    fast_map_t m = {
        fn, NULL, call->query->threads,
        2,  1,    {fast_arg(call, 0), fast_arg(call, 1), fast_out(call, 0)}};
    fast_map(&m);
    return LOONG_OK;
}

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    return run_two(call, add_chunk);
}

static loong_status_t run_multiply(const loong_kernel_call_t *call)
{
    return run_two(call, multiply_chunk);
}

static loong_status_t run_scale(const loong_kernel_call_t *call)
{
    const loong_scale_attr_t *a = call->query->attr;
    const float how[2] = {(float)a->factor, (float)a->shift};
    fast_map_t m = {scale_chunk, how, call->query->threads, 1, 1,
                    {fast_arg(call, 0), fast_out(call, 0)}};
    fast_map(&m);
    return LOONG_OK;
}

/* y = x, or y = y + x. */
static loong_status_t run_copy(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t y = fast_out(call, 0);
    fast_map_t copy = {copy_chunk, NULL, call->query->threads, 1, 1, {x, y}};
    fast_map_t more = {add_chunk, NULL, call->query->threads, 2, 1, {y, x, y}};
    fast_map(call->accumulate & 1 ? &more : &copy);
    return LOONG_OK;
}

static loong_status_t run_sum_rows(const loong_kernel_call_t *call)
{
    fast_mat_t x = fast_arg(call, 0);
    float *partial = call->workspace;
    fast_blocks_t blocks = fast_blocks(x.rows);
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t b = 0; b < blocks.count; b++) {
        float buf[FAST_CHUNK] __attribute__((aligned(64)));
        int64_t end = LOONG_MIN((b + 1) * blocks.rows, x.rows);
        memset(partial + b * x.cols, 0, sizeof(float) * (size_t)x.cols);
        for (int64_t t = b * blocks.rows; t < end; t++) {
            for (int64_t c = 0; c < x.cols; c += FAST_CHUNK) {
                int64_t n = LOONG_MIN(x.cols - c, FAST_CHUNK);
                const float *in = fast_get(&x, t, c, n, buf);
                float *sum = partial + b * x.cols + c;
#pragma omp simd
                for (int64_t i = 0; i < n; i++) {
                    sum[i] += in[i];
                }
            }
        }
    }
    fast_fold(call, 0, partial, x.cols, blocks.count);
    return LOONG_OK;
}

/* One sum of heads: columns c .. c + n - 1 of y. */
/* Columns c .. c + n - 1 of a row of y, of one head. */
static void sum_heads_chunk(const fast_mat_t *x, const fast_mat_t *y,
                            const loong_repeat_heads_attr_t *a, int64_t t,
                            int64_t c, int64_t n)
{
    float buf[2][FAST_CHUNK] __attribute__((aligned(64)));
    int64_t d = a->head_dim;
    int64_t from = c / d * a->times * d + c % d;
    float *sum = fast_place(y, t, c, buf[0]);
    memmove(sum, fast_get(x, t, from, n, sum), sizeof(float) * (size_t)n);
    for (int64_t k = 1; k < a->times; k++) {
        const float *part = fast_get(x, t, from + k * d, n, buf[1]);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            sum[i] += part[i];
        }
    }
    fast_put(y, t, c, n, sum);
}

static loong_status_t run_sum_heads(const loong_kernel_call_t *call)
{
    const loong_repeat_heads_attr_t *a = call->query->attr;
    fast_mat_t x = fast_arg(call, 0);
    fast_mat_t y = fast_out(call, 0);
    int64_t d = a->head_dim;
    int64_t pieces = (y.cols + FAST_PIECE - 1) / FAST_PIECE;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t u = 0; u < y.rows * pieces; u++) {
        int64_t c = u % pieces * FAST_PIECE;
        int64_t end = LOONG_MIN(c + FAST_PIECE, y.cols);
        while (c < end) {
            int64_t n = LOONG_MIN(LOONG_MIN(d - c % d, FAST_CHUNK), end - c);
            sum_heads_chunk(&x, &y, a, u / pieces, c, n);
            c += n;
        }
    }
    return LOONG_OK;
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return sizeof(float) * FAST_BLOCKS *
           (size_t)loong_karg_cols(&query->arg[0]);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return fast_support(query, 0, reason);
}

FAST_KERNEL(add, support, NULL, run_add);
FAST_KERNEL(multiply, support, NULL, run_multiply);
FAST_KERNEL(scale, support, NULL, run_scale);
FAST_KERNEL(cast, support, NULL, run_copy);
FAST_KERNEL(accumulate, support, NULL, run_copy);
FAST_KERNEL(sum_rows, support, workspace, run_sum_rows);
FAST_KERNEL(sum_heads, support, NULL, run_sum_heads);
