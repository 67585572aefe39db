/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_linear and its gradient of weights in bf16 on the tensor cores of
 * compute capability 9.0 (wgmma.cuh); the formulas stand in moe_ref.c. A block
 * makes ROWS x COLS of the result, a warpgroup 64 rows of it. Operands come in
 * stages of DEPTH terms: while the products of one stage are made, those of the
 * stage before end, and the copies of the next ones are on their way. */
#include "moe/grouped.cuh"
#include "tensor.cuh"
#include "wgmma.cuh"

using namespace loong_cuda;

namespace {

enum {
    ROWS = 128,
    COLS = WG_COLS,
    DEPTH = PANEL,
    TEAM = ROWS / WG_ROWS * 4, /* warps */
    THREADS = TEAM * WARP,
    STAGES = 4,
    AHEAD = STAGES - 2, /* a stage is read until the next one is multiplied */
    LEFT = ROWS * DEPTH, /* elements of a stage's operands */
    RIGHT = COLS * DEPTH,
    STAGE = LEFT + RIGHT,
    STRIDE = PANEL * DEPTH * (int)sizeof(half_t), /* of turned panels */
    SHARED = STAGES * STAGE * (int)sizeof(half_t) + PANEL_ALIGN
};

/* N rows of a slice into a panel, as load_tile does it: a thread has one place
 * of the rows, so that little is left to compute for a copy. */
template <int N>
__device__ __forceinline__ void fetch_panel(half_t *to, const slice_t &x)
{
    enum { PIECES = PANEL / PACK, STEP = THREADS / PIECES };
    if (!is_packed(x)) {
        load_tile<N, PANEL, THREADS>(to, x);
        return;
    }
    int row = (int)threadIdx.x / PIECES;
    int piece = (int)threadIdx.x % PIECES;
    int rows = piece * PACK < x.cols ? least(N, x.end - x.first) - row : 0;
    const half_t *from = row_of<half_t>(x.m, x.first + row) + x.col +
                         piece * PACK;
    half_t *at = piece_of<PANEL>(to, row, piece);
#pragma unroll
    for (int i = 0; i < N; i += STEP) {
        COPY_ASYNC(at + i * PANEL, from, i < rows ? 16 : 0);
        from += STEP * x.m.ld;
    }
}

/* DEPTH rows of N columns in panels; the slice has as many or fewer. */
template <int N>
__device__ __forceinline__ void fetch_turned(half_t *to, slice_t x)
{
    int64_t end = x.col + x.cols;
#pragma unroll
    for (int n = 0; n < N; n += PANEL) {
        x.cols = least(PANEL, end - x.col);
        fetch_panel<DEPTH>(to + n * DEPTH, x);
        x.col += PANEL;
    }
}

/* Operands of terms l .. l + DEPTH - 1. */
template <int KIND>
__device__ __forceinline__ void fetch(const grouped_t &g, const work_t &w,
                                      int64_t l, half_t *stage)
{
    int rest = least(DEPTH, w.depth - l);
    if (KIND == GROUPED_DW) {
        slice_t a = {g.a, w.a_row + l, w.a_row + w.depth, w.row,
                     least(ROWS, w.rows - w.row)};
        fetch_turned<ROWS>(stage, a);
    } else {
        slice_t a = {g.a, w.row, w.rows, l, rest};
        fetch_panel<ROWS>(stage, a);
    }
    if (KIND == GROUPED_PLAIN) {
        slice_t b = {g.b, w.b_row + w.col, w.b_row + g.c.cols, l, rest};
        fetch_panel<COLS>(stage + LEFT, b);
    } else {
        slice_t b = {g.b, w.b_row + l, w.b_row + w.depth, w.col,
                     least(COLS, g.c.cols - w.col)};
        fetch_turned<COLS>(stage + LEFT, b);
    }
}

/* The products of a stage, on their way; `add` 0: they are the first. */
template <int KIND>
__device__ __forceinline__ void multiply(float (&c)[COLS / 8][4],
                                         const half_t *stage, int add)
{
    constexpr int TURNED_A = KIND == GROUPED_DW;
    constexpr int TURNED_B = KIND != GROUPED_PLAIN;
    int part = (int)threadIdx.x / WG * WG_ROWS * DEPTH;
    const half_t *left = stage + part;
    const half_t *right = stage + LEFT;
    WGMMA_FENCE();
#pragma unroll
    for (int k = 0; k < DEPTH; k += WG_DEPTH) {
        panels_t a = panels_of(left + k * (TURNED_A ? PANEL : 1), STRIDE);
        panels_t b = panels_of(right + k * (TURNED_B ? PANEL : 1), STRIDE);
        WGMMA(c, a, b, TURNED_A, TURNED_B, k > 0 || add);
    }
    WGMMA_COMMIT();
}

/* All terms; none: zeros. */
template <int KIND>
__device__ __forceinline__ void sum_up(const grouped_t &g, const work_t &w,
                                       float (&c)[COLS / 8][4], half_t *room)
{
    for (int n = 0; n < COLS / 8; n++) {
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0.0f;
    }
    for (int s = 0; s < AHEAD; s++) {
        if (s * DEPTH < w.depth) {
            fetch<KIND>(g, w, s * DEPTH, room + s * STAGE);
        }
        COPIES_COMMIT();
    }
    int turn = 0;
    for (int64_t l = 0; l < w.depth; l += DEPTH) {
        int64_t next = l + AHEAD * DEPTH;
        half_t *free = room + (turn + AHEAD) % STAGES * STAGE;
        COPIES_WAIT(AHEAD - 1);
        SHARED_FENCE();
        __syncthreads(); /* these terms are there, those of `free` were used */
        multiply<KIND>(c, room + turn * STAGE, l > 0);
        if (next < w.depth) {
            fetch<KIND>(g, w, next, free);
        }
        COPIES_COMMIT();
        WGMMA_WAIT(1);
        turn = (turn + 1) % STAGES;
    }
    WGMMA_WAIT(0);
    __syncthreads(); /* nobody reads `room` */
}

/* Sums in fp32 to rows of dw, of one expert. */
__device__ __forceinline__ void store_sums(const grouped_t &g, const work_t &w,
                                           int64_t base,
                                           const float (&c)[COLS / 8][4])
{
    int lane = (int)threadIdx.x % WARP;
    int64_t first = w.row + threadIdx.x / WARP * 16 + lane / 4;
    bool pairs = g.c.packed; /* rows begin at multiples of 16 bytes */
#pragma unroll
    for (int n = 0; n < COLS / 8; n++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t row = first + h * 8;
            int64_t col = w.col + n * 8 + lane % 4 * 2;
            if (row >= w.rows || col >= g.c.cols) {
                continue;
            }
            float *to = row_of<float>(g.c, base + row) + col;
            if (pairs && col + 1 < g.c.cols) {
                float2 *pair = reinterpret_cast<float2 *>(to);
                float2 sum = {c[n][2 * h], c[n][2 * h + 1]};
                if (g.add) {
                    float2 old = *pair;
                    sum.x += old.x;
                    sum.y += old.y;
                }
                *pair = sum;
                continue;
            }
            for (int i = 0; i < 2 && col + i < g.c.cols; i++) {
                to[i] = c[n][2 * h + i] + (g.add ? to[i] : 0.0f);
            }
        }
    }
}

template <int KIND>
__global__ void __launch_bounds__(THREADS) multiply_groups_wg(grouped_t g)
{
    LOONG_SHARED_DYNAMIC(half_t, dynamic);
    half_t *room = aligned_to<PANEL_ALIGN>(dynamic);
    float c[COLS / 8][4];
    work_t w;
    if (!find_work<KIND, TEAM>(g, COLS, &w)) {
        return;
    }
    sum_up<KIND>(g, w, c, room);
    if (KIND == GROUPED_DW) {
        store_sums(g, w, w.expert * w.rows, c);
        return;
    }
    int row = (int)threadIdx.x / WARP * 16;
    const float one[1][2] = {{1.0f, 1.0f}};
    slice_t y = {g.c, w.row, w.rows, w.col, least(COLS, g.c.cols - w.col)};
    put_rows<COLS, 1, COLS>(
        room, row, 0, reinterpret_cast<float(*)[COLS / 8][4]>(&c), one);
    __syncwarp();
    store_tile<16, COLS, WARP>(y, room, (int)threadIdx.x % WARP, row);
}

template <int KIND>
loong_status_t launch(const loong_kernel_call_t *call, const grouped_t &g,
                      dim3 grid)
{
    LOONG_TRY(allow_shared(call, multiply_groups_wg<KIND>, SHARED));
    LOONG_LAUNCH((multiply_groups_wg<KIND>), grid, dim3(THREADS), SHARED,
                 stream_of(call), g);
    return launched(call);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, ROWS);
    dim3 grid(tiles_in(g.c.cols, COLS), (unsigned)g.count);
    return is_transposed(call->query)
               ? launch<GROUPED_TRANSPOSED>(call, g, grid)
               : launch<GROUPED_PLAIN>(call, g, grid);
}

static loong_status_t run_dw(const loong_kernel_call_t *call)
{
    grouped_t g = grouped_of(call, ROWS);
    dim3 grid(tiles_in(g.c.cols, COLS), tiles_in(g.a.cols, ROWS),
              (unsigned)g.experts);
    return launch<GROUPED_DW>(call, g, grid);
}

/* A tile that is half empty costs more than two of half its width. */
static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    int64_t cols = loong_karg_cols(&query->arg[3]);
    if (cols <= COLS / 2) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld columns, this kernel's tiles have %d", (long long)cols,
                 (int)COLS);
        return false;
    }
    return has_wgmma(reason) &&
           grouped_support(query, LOONG_BF16, ROWS, reason);
}

CUDA_KERNEL_NAMED(grouped_linear, wgmma, support, NULL, run);
CUDA_KERNEL_NAMED(grouped_linear_dw, wgmma, support, NULL, run_dw);
