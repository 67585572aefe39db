/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles in shared memory, which cp.async fills, and products of them by warps
 * (mma.cuh). A tile has rows of COLS elements (a multiple of 64) in pieces of
 * 16 bytes, piece p of row r at place p ^ (r % 8): so the eight rows that an
 * 8 x 8 matrix is read from lie in different banks, as do eight pieces of one
 * row. */
#ifndef LOONG_TENSOR_CUH
#define LOONG_TENSOR_CUH

#include "map.cuh"
#include "mma.cuh"

namespace loong_cuda {

/* ---- tiles --------------------------------------------------------------- */

template <int COLS>
__device__ __forceinline__ half_t *piece_of(half_t *tile, int row, int piece)
{
    return tile + row * COLS + (piece ^ (row & 7)) * PACK;
}

/* Rows first .. end - 1 of a matrix of bf16, columns col .. col + cols - 1. */
struct slice_t {
    mat_t m;
    int64_t first, end;
    int64_t col;
    int cols;
};

/* True when its pieces of 16 bytes are. */
static __device__ __forceinline__ bool is_packed(const slice_t &x)
{
    return x.m.packed && x.cols % PACK == 0 && x.col % PACK == 0;
}

/* The first ROWS rows of a slice into a tile, zeros behind its end and behind
 * its columns. THREADS threads come; the copies are the caller's to commit. */
template <int ROWS, int COLS, int THREADS>
__device__ __forceinline__ void load_tile(half_t *tile, const slice_t &x)
{
    bool packed = is_packed(x);
    for (int i = (int)threadIdx.x; i < ROWS * COLS / PACK; i += THREADS) {
        int row = i / (COLS / PACK);
        int piece = i % (COLS / PACK);
        half_t *to = piece_of<COLS>(tile, row, piece);
        int n = x.first + row < x.end ? x.cols - piece * PACK : 0;
        const half_t *from =
            row_of<half_t>(x.m, x.first + row) + x.col + piece * PACK;
        if (packed) {
            COPY_ASYNC(to, n > 0 ? from : static_cast<const half_t *>(x.m.p),
                       n > 0 ? 16 : 0);
            continue;
        }
        for (int j = 0; j < PACK; j++) {
            to[j] = j < n ? from[j] : (half_t)0;
        }
    }
}

/* Left operand: rows row .. row + 15, columns of pieces `piece` and the next
 * one. */
template <int COLS>
__device__ __forceinline__ void load_left(unsigned a[4], half_t *tile, int row,
                                          int piece)
{
    int lane = (int)threadIdx.x % WARP;
    LOAD_MATRICES(a, piece_of<COLS>(tile, row + lane % 16, piece + lane / 16),
                  false);
}

/* Two right operands b[0..1] and b[2..3], of a tile whose rows are the columns
 * of the product: row .. row + 7 and row + 8 .. row + 15. */
template <int COLS>
__device__ __forceinline__ void load_right(unsigned b[4], half_t *tile,
                                           int row, int piece)
{
    int lane = (int)threadIdx.x % WARP;
    LOAD_MATRICES(b,
                  piece_of<COLS>(tile, row + lane % 8 + lane / 16 * 8,
                                 piece + lane / 8 % 2),
                  false);
}

/* The same of a tile whose rows are summed over: columns of pieces `piece` and
 * the next one, rows row .. row + 15. */
template <int COLS>
__device__ __forceinline__ void load_transposed(unsigned b[4], half_t *tile,
                                                int row, int piece)
{
    int lane = (int)threadIdx.x % WARP;
    LOAD_MATRICES(b, piece_of<COLS>(tile, row + lane % 16, piece + lane / 16),
                  true);
}

/* ---- products ------------------------------------------------------------ */

/* Products side by side as a left operand: [16, 8 * 2]. */
static __device__ __forceinline__ void as_left(unsigned a[4],
                                               const float first[4],
                                               const float second[4])
{
    a[0] = both(first[0], first[1]);
    a[1] = both(first[2], first[3]);
    a[2] = both(second[0], second[1]);
    a[3] = both(second[2], second[3]);
}

/* c [MT * 16, N] += rows of `left` (from row) times rows of `right`, over COLS
 * columns of both. */
template <int COLS, int MT, int N>
__device__ __forceinline__ void multiply_rows(float c[MT][N / 8][4],
                                              half_t *left, int row,
                                              half_t *right)
{
#pragma unroll
    for (int k = 0; k < COLS / 16; k++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            load_left<COLS>(a[m], left, row + m * 16, k * 2);
        }
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            unsigned b[4];
            load_right<COLS>(b, right, n * 16, k * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                MMA(c[m][2 * n], a[m], b);
                MMA(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

/* c [MT * 16, N] += w [MT * 16, K], which are products, times N columns of a
 * tile of K rows, from piece `piece` on. */
template <int COLS, int MT, int K, int N>
__device__ __forceinline__ void multiply_on(float c[MT][N / 8][4],
                                            float w[MT][K / 8][4],
                                            half_t *tile, int piece)
{
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        unsigned a[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            as_left(a[m], w[m][2 * k], w[m][2 * k + 1]);
        }
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            unsigned b[4];
            load_transposed<COLS>(b, tile, k * 16, piece + n * 2);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                MMA(c[m][2 * n], a[m], b);
                MMA(c[m][2 * n + 1], a[m], b + 2);
            }
        }
    }
}

template <int MT, int N>
__device__ __forceinline__ void clear(float c[MT][N / 8][4])
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0.0f;
        }
    }
}

/* Products [MT * 16, N] times `factor[m][row of two]`, rounded, into rows of a
 * tile of COLS columns, from piece `piece` on. */
template <int COLS, int MT, int N>
__device__ __forceinline__ void put_rows(half_t *tile, int row, int piece,
                                         float c[MT][N / 8][4],
                                         const float factor[MT][2])
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                half_t *to = piece_of<COLS>(
                    tile, row + m * 16 + h * 8 + lane / 4, piece + n);
                reinterpret_cast<unsigned *>(to)[lane % 4] =
                    both(c[m][n][2 * h] * factor[m][h],
                         c[m][n][2 * h + 1] * factor[m][h]);
            }
        }
    }
}

/* Rows row .. row + ROWS - 1 of a tile to the same ones of a slice, as far as
 * it goes; by THREADS threads that call themselves `thread`. */
template <int ROWS, int COLS, int THREADS>
__device__ __forceinline__ void store_tile(const slice_t &x, half_t *tile,
                                           int thread, int row)
{
    bool packed = is_packed(x);
    for (int i = thread; i < ROWS * COLS / PACK; i += THREADS) {
        int r = row + i / (COLS / PACK);
        int piece = i % (COLS / PACK);
        int n = x.cols - piece * PACK;
        const half_t *from = piece_of<COLS>(tile, r, piece);
        if (x.first + r >= x.end || n <= 0) {
            continue;
        }
        half_t *to = row_of<half_t>(x.m, x.first + r) + x.col + piece * PACK;
        if (packed) {
            *reinterpret_cast<uint4 *>(to) =
                *reinterpret_cast<const uint4 *>(from);
            continue;
        }
        for (int j = 0; j < PACK && j < n; j++) {
            to[j] = from[j];
        }
    }
}

} // namespace loong_cuda

#endif
