/* SPDX-License-Identifier: Apache-2.0
 *
 * rope_angles and rope_table_grad; the formulas stand in rope_ref.c. Both are
 * of few rows, or of a table that is a part of one head: simple before fast. */
#include "loong/rope.h"
#include "map.cuh"

using namespace loong_cuda;

namespace
{

struct table_grad_t {
    mat_t dy, x, y;
    int64_t head, half, begin;
    int interleaved, adds;
    float sign; /* of the sine's gradient */
};

__global__ void __launch_bounds__(BLOCK) make_angles(mat_t x, mat_t y)
{
    int64_t units = x.rows * x.cols;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += (int64_t)gridDim.x * BLOCK) {
        int64_t row = u / x.cols;
        int64_t i = u % x.cols;
        double angle = (double)row_of<float>(x, row)[i];
        row_of<float>(y, row)[i] = (float)cos(angle);
        row_of<float>(y, row)[x.cols + i] = (float)sin(angle);
    }
}

/* A thread sums a pair of a row over the heads, one after another. */
__global__ void __launch_bounds__(BLOCK) sum_rotations(table_grad_t a)
{
    int64_t units = a.x.rows * a.half;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += (int64_t)gridDim.x * BLOCK) {
        int64_t row = u / a.half;
        int64_t i = u % a.half;
        int64_t first = a.begin + (a.interleaved ? 2 * i : i);
        int64_t apart = a.interleaved ? 1 : a.half;
        float dc = 0.0f, ds = 0.0f;
        for (int64_t p = first; p < a.x.cols; p += a.head) {
            float b = load_one(a.x, row, p), c = load_one(a.x, row, p + apart);
            float db = load_one(a.dy, row, p);
            float d = load_one(a.dy, row, p + apart);
            dc += db * b + d * c;
            ds += d * b - db * c;
        }
        float *to = row_of<float>(a.y, row);
        to[i] = dc + (a.adds ? to[i] : 0.0f);
        to[a.half + i] = a.sign * ds + (a.adds ? to[a.half + i] : 0.0f);
    }
}

} // namespace

static loong_status_t run_angles(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    dim3 grid = grid_of(call, (x.rows * x.cols + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((make_angles), grid, dim3(BLOCK), 0, stream_of(call), x,
                 mat_out(call, 0));
    return launched(call);
}

static loong_status_t run_table_grad(const loong_kernel_call_t *call)
{
    const loong_rope_attr_t *attr =
        static_cast<const loong_rope_attr_t *>(call->query->attr);
    table_grad_t a;
    a.dy = mat_arg(call, 0);
    a.x = mat_arg(call, 1);
    a.y = mat_out(call, 0);
    a.head = attr->head_dim;
    a.half = a.y.cols / 2;
    a.begin = attr->begin;
    a.interleaved = attr->interleaved;
    a.adds = (call->accumulate & 1u) != 0;
    a.sign = attr->inverse ? -1.0f : 1.0f;
    dim3 grid = grid_of(call, (a.x.rows * a.half + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((sum_rotations), grid, dim3(BLOCK), 0, stream_of(call), a);
    return launched(call);
}

static bool support_angles(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 3u, 0, reason);
}

static bool support_table_grad(const loong_kernel_query_t *query,
                               char reason[LOONG_REASON_SIZE])
{
    const unsigned wide = 1u << 2 | 1u << 3;
    return cuda_support(query, wide, 0, reason) &&
           cuda_support_same(query, wide, reason);
}

CUDA_KERNEL(rope_angles, support_angles, NULL, run_angles);
CUDA_KERNEL(rope_table_grad, support_table_grad, NULL, run_table_grad);
