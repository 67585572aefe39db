/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear and its gradient of weights in bf16 on tensor cores; the
 * formulas stand in moe_ref.c. A block makes SIDE x SIDE of the result, a warp
 * 32 rows of it; the operands of the next DEPTH terms are on their way during
 * the products of these. */
#include "moe/grouped.cuh"
#include "tensor.cuh"

using namespace loong_cuda;

namespace {

enum {
    SIDE = 128,
    DEPTH = 64,
    MT = 2,
    TEAM = SIDE / (MT * 16), /* warps */
    THREADS = TEAM * WARP,
    PART = SIDE * DEPTH, /* elements of one operand */
    SHARED = 4 * PART * (int)sizeof(half_t)
};

/* Operands of terms l .. l + DEPTH - 1. Their tiles lie as memory does. */
template <int KIND>
__device__ __forceinline__ void fetch(const grouped_t &g, const work_t &w,
                                      int64_t l, half_t *left, half_t *right)
{
    int rest = least(DEPTH, w.depth - l);
    if (KIND == GROUPED_DW) {
        slice_t a = {g.a, w.a_row + l, w.a_row + w.depth, w.row,
                     least(SIDE, w.rows - w.row)};
        load_tile<DEPTH, SIDE, THREADS>(left, a);
    } else {
        slice_t a = {g.a, w.row, w.rows, l, rest};
        load_tile<SIDE, DEPTH, THREADS>(left, a);
    }
    if (KIND == GROUPED_PLAIN) {
        slice_t b = {g.b, w.b_row + w.col, w.b_row + g.c.cols, l, rest};
        load_tile<SIDE, DEPTH, THREADS>(right, b);
    } else {
        slice_t b = {g.b, w.b_row + l, w.b_row + w.depth, w.col,
                     least(SIDE, g.c.cols - w.col)};
        load_tile<DEPTH, SIDE, THREADS>(right, b);
    }
}

/* Left operand of a tile whose rows are summed over: its columns of pieces
 * `piece` and the next one, rows row .. row + 15. */
template <int COLS>
__device__ __forceinline__ void
load_left_transposed(unsigned a[4], half_t *tile, int row, int piece)
{
    int lane = (int)threadIdx.x % WARP;
    LOAD_MATRICES(a,
                  piece_of<COLS>(tile, row + lane % 8 + lane / 16 * 8,
                                 piece + lane / 8 % 2),
                  true);
}

template <int KIND>
__device__ __forceinline__ void multiply(float c[MT][SIDE / 8][4],
                                         half_t *left, half_t *right)
{
    int row = (int)threadIdx.x / WARP * MT * 16;
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            if (KIND == GROUPED_DW) {
                load_left_transposed<SIDE>(a[m], left, k * 16,
                                       (row + m * 16) / PACK);
            } else {
                load_left<DEPTH>(a[m], left, row + m * 16, k * 2);
            }
        }
#pragma unroll
        for (int n = 0; n < SIDE / 16; n++) {
            unsigned b[4];
            if (KIND == GROUPED_PLAIN) {
                load_right<DEPTH>(b, right, n * 16, k * 2);
            } else {
                load_transposed<SIDE>(b, right, k * 16, n * 2);
            }
#pragma unroll
            for (int m = 0; m < MT; m++) {
                MMA(c[m][2 * n], a[m], b);
                MMA(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* All terms. */
template <int KIND>
__device__ __forceinline__ void sum_up(const grouped_t &g, const work_t &w,
                                       float c[MT][SIDE / 8][4], half_t *room)
{
    clear<MT, SIDE>(c);
    if (w.depth > 0) {
        fetch<KIND>(g, w, 0, room, room + PART);
    }
    COPIES_COMMIT();
    int turn = 0;
    for (int64_t l = 0; l < w.depth; l += DEPTH) {
        half_t *left = room + turn * 2 * PART;
        turn = 1 - turn;
        if (l + DEPTH < w.depth) {
            half_t *next = room + turn * 2 * PART;
            fetch<KIND>(g, w, l + DEPTH, next, next + PART);
        }
        COPIES_COMMIT();
        COPIES_WAIT(1);
        __syncthreads(); /* these terms are there */
        multiply<KIND>(c, left, left + PART);
        __syncthreads(); /* and were used */
    }
}

/* Sums in fp32 to rows of dw, of one expert. */
__device__ __forceinline__ void store_sums(const grouped_t &g, const work_t &w,
                                           int64_t base,
                                           const float c[MT][SIDE / 8][4])
{
    int lane = (int)threadIdx.x % WARP;
    int64_t first = w.row + threadIdx.x / WARP * MT * 16 + lane / 4;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int64_t row = first + m * 16 + i / 2 * 8;
                int64_t col = w.col + n * 8 + lane % 4 * 2 + i % 2;
                if (row < w.rows && col < g.c.cols) {
                    float *to = row_of<float>(g.c, base + row) + col;
                    *to = c[m][n][i] + (g.add ? *to : 0.0f);
                }
            }
        }
    }
}

template <int KIND>
__global__ void __launch_bounds__(THREADS) multiply_groups(grouped_t g)
{
    LOONG_SHARED_DYNAMIC(half_t, room);
    float c[MT][SIDE / 8][4];
    work_t w;
    if (!find_work<KIND, TEAM>(g, SIDE, &w)) {
        return;
    }
    sum_up<KIND>(g, w, c, room);
    if (KIND == GROUPED_DW) {
        store_sums(g, w, w.expert * w.rows, c);
        return;
    }
    int warp = (int)threadIdx.x / WARP;
    const float one[MT][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};
    slice_t y = {g.c, w.row, w.rows, w.col, least(SIDE, g.c.cols - w.col)};
    put_rows<SIDE, MT, SIDE>(room, warp * MT * 16, 0, c, one);
    __syncwarp();
    store_tile<MT * 16, SIDE, WARP>(y, room, (int)threadIdx.x % WARP,
                                    warp * MT * 16);
}

template <int KIND>
loong_status_t launch(const loong_kernel_call_t *call, const grouped_t &g,
                      dim3 grid)
{
    LOONG_TRY(allow_shared(call, multiply_groups<KIND>, SHARED));
    LOONG_LAUNCH((multiply_groups<KIND>), grid, dim3(THREADS), SHARED,
                 stream_of(call), g);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, SIDE);
    dim3 grid(tiles_in(g.c.cols, SIDE), (unsigned)g.count);
    return is_transposed(call->query)
               ? launch<GROUPED_TRANSPOSED>(call, g, grid)
               : launch<GROUPED_PLAIN>(call, g, grid);
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, SIDE);
    dim3 grid(tiles_in(g.c.cols, SIDE), tiles_in(g.a.cols, SIDE),
              (unsigned)g.experts);
    return launch<GROUPED_DW>(call, g, grid);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return grouped_support(query, LOONG_BF16, SIDE, reason);
}

CUDA_KERNEL_NAMED(grouped_linear, tiles, support, NULL, run);
CUDA_KERNEL_NAMED(grouped_linear_dw, tiles, support, NULL, run_dw);
