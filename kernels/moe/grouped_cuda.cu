/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear and its gradient of weights in fp32; the formulas stand in
 * moe_ref.c. A block makes SIDE x SIDE of the result, a thread four of them. */
#include "moe/grouped.cuh"

using namespace loong_cuda;

namespace {

enum { SIDE = 32, EACH_ROW = BLOCK / SIDE };

/* Where a block works: rows and columns of the result, of one expert, and how
 * long its sums are. */
struct work_t {
    int64_t row, rows; /* the first, and one behind the last */
    int64_t col, cols;
    int64_t depth;
    int64_t a_row, b_row; /* where the expert's rows of operands begin */
};

/* Element (i, l) of the left operand, (l, j) of the right one. */
template <int KIND>
__device__ __forceinline__ float left_at(const grouped_t &g, const work_t &w,
                                         int64_t i, int64_t l)
{
    if (i >= w.rows || l >= w.depth) {
        return 0.0f;
    }
    return KIND == GROUPED_DW ? row_of<float>(g.a, w.a_row + l)[i]
                              : row_of<float>(g.a, i)[l];
}

template <int KIND>
__device__ __forceinline__ float right_at(const grouped_t &g, const work_t &w,
                                          int64_t j, int64_t l)
{
    if (j >= w.cols || l >= w.depth) {
        return 0.0f;
    }
    return KIND == GROUPED_PLAIN ? row_of<float>(g.b, w.b_row + j)[l]
                                 : row_of<float>(g.b, w.b_row + l)[j];
}

template <int KIND>
__device__ void multiply(const grouped_t &g, const work_t &w,
                         float sum[SIDE / EACH_ROW], float *left, float *right)
{
    int x = (int)threadIdx.x % SIDE;
    int y = (int)threadIdx.x / SIDE;
    for (int64_t l = 0; l < w.depth; l += SIDE) {
        __syncthreads(); /* what was here was used */
        for (int r = y; r < SIDE; r += EACH_ROW) {
            /* Neighbours read neighbours. */
            bool transposed = KIND == GROUPED_DW;
            int i = transposed ? x : r;
            int d = transposed ? r : x;
            left[i * (SIDE + 1) + d] =
                left_at<KIND>(g, w, w.row + i, l + d);
            transposed = KIND != GROUPED_PLAIN;
            int j = transposed ? x : r;
            d = transposed ? r : x;
            right[j * (SIDE + 1) + d] =
                right_at<KIND>(g, w, w.col + j, l + d);
        }
        __syncthreads();
        for (int d = 0; d < SIDE; d++) {
            float b = right[x * (SIDE + 1) + d];
            for (int r = 0; r < SIDE / EACH_ROW; r++) {
                sum[r] += left[(y + r * EACH_ROW) * (SIDE + 1) + d] * b;
            }
        }
    }
}

template <int KIND>
__global__ void __launch_bounds__(BLOCK) multiply_groups(grouped_t g)
{
    LOONG_SHARED(float, left, SIDE * (SIDE + 1));
    LOONG_SHARED(float, right, SIDE * (SIDE + 1));
    bool dw = KIND == GROUPED_DW;
    work_t w;
    int64_t e = blockIdx.z;
    w.col = (int64_t)blockIdx.x * SIDE;
    w.cols = g.c.cols;
    if (dw) {
        w.row = (int64_t)blockIdx.y * SIDE;
        w.rows = g.a.cols;
        w.a_row = w.b_row = g.offset[e];
        w.depth = rows_of_expert(g, e);
    } else {
        row_tile_t tile = find_rows<WARPS>(g, (int)blockIdx.y);
        if (tile.expert < 0) {
            return;
        }
        e = tile.expert;
        w.row = tile.first;
        w.rows = g.offset[e + 1];
        w.a_row = 0;
        w.depth = g.a.cols;
        w.b_row = e * (g.b.rows / g.experts);
    }
    float sum[SIDE / EACH_ROW] = {0.0f, 0.0f, 0.0f, 0.0f};
    multiply<KIND>(g, w, sum, left, right);
    int64_t j = w.col + threadIdx.x % SIDE;
    int64_t base = dw ? e * w.rows : 0; /* row of the output */
    for (int r = 0; r < SIDE / EACH_ROW && j < w.cols; r++) {
        int64_t i = w.row + threadIdx.x / SIDE + r * EACH_ROW;
        if (i < w.rows) {
            float *to = row_of<float>(g.c, base + i) + j;
            *to = sum[r] + (dw && g.add ? *to : 0.0f);
        }
    }
}

unsigned sides(int64_t n)
{
    return (unsigned)((n + SIDE - 1) / SIDE);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, SIDE);
    dim3 grid(sides(g.c.cols), (unsigned)g.count);
    if (is_transposed(call->query)) {
        LOONG_LAUNCH((multiply_groups<GROUPED_TRANSPOSED>), grid, dim3(BLOCK),
                     0, stream_of(call), g);
    } else {
        LOONG_LAUNCH((multiply_groups<GROUPED_PLAIN>), grid, dim3(BLOCK), 0,
                     stream_of(call), g);
    }
    return launched(call);
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, SIDE);
    dim3 grid(sides(g.c.cols), sides(g.a.cols), (unsigned)g.experts);
    LOONG_LAUNCH((multiply_groups<GROUPED_DW>), grid, dim3(BLOCK), 0,
                 stream_of(call), g);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return grouped_support(query, LOONG_F32, SIDE, reason);
}

CUDA_KERNEL(grouped_linear, support, NULL, run);
CUDA_KERNEL(grouped_linear_dw, support, NULL, run_dw);
