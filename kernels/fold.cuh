/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows (gradients of weights): each of FOLD_PARTS blocks sums every
 * FOLD_PARTS-th row into a row of its own, and these are added in order. The
 * number of blocks is fixed: with it the result, whatever bound a count has.
 */
#ifndef LOONG_FOLD_CUH
#define LOONG_FOLD_CUH

#include "map.cuh"

namespace loong_cuda {

/* Of every device alike, so that sums have the same bits on all: two blocks for
 * each of 132 multiprocessors (H100, H200), some more for each of fewer. */
#ifdef CUDASIM
enum { FOLD_PARTS = 8 };
#else
enum { FOLD_PARTS = 264 };
#endif

enum { FOLD_EACH = 4 }; /* rows that a thread reads at a time */

/* Workspace for sums of so many columns. */
static inline size_t fold_bytes(int64_t cols)
{
    return sizeof(float) * FOLD_PARTS * (size_t)cols;
}

/* Rows first, first + step, ... below `rows`. */
struct stride_t {
    int64_t first, step, rows;
};

/* *sum: and FOLD_EACH packs of x, a matrix, in order. All are read before the
 * first is used. */
template <class T>
static __device__ __forceinline__ void add_rows(const T *x, int64_t ld,
                                                const stride_t &s, int n,
                                                bool whole, pack_t *sum)
{
    raw_t<T> in[FOLD_EACH];
#pragma unroll
    for (int k = 0; whole && k < FOLD_EACH; k++) {
        int64_t row = s.first + k * s.step;
        in[k] = fetch(x + (row < s.rows ? row : s.first) * ld);
    }
#pragma unroll
    for (int k = 0; !whole && k < FOLD_EACH; k++) {
        int64_t row = s.first + k * s.step;
        in[k] = gather(x + (row < s.rows ? row : s.first) * ld, n);
    }
#pragma unroll
    for (int k = 0; k < FOLD_EACH; k++) {
        pack_t p = unpack(in[k]);
        for (int i = 0; s.first + k * s.step < s.rows && i < PACK; i++) {
            sum->v[i] += p.v[i];
        }
    }
}

static __global__ void __launch_bounds__(BLOCK)
    fold_kernel(const float *partial, mat_t y, bool add)
{
    int64_t col = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * PACK;
    if (col >= y.cols) {
        return;
    }
    int n = least(PACK, y.cols - col);
    bool packed = y.cols % PACK == 0;
    pack_t sum = {{0}};
    for (int64_t part = 0; part < FOLD_PARTS; part += FOLD_EACH) {
        stride_t s = {part, 1, FOLD_PARTS};
        add_rows(partial + col, y.cols, s, n, packed, &sum);
    }
    if (add) {
        pack_t p = load_at(y, 0, col, n);
        for (int i = 0; i < PACK; i++) {
            sum.v[i] += p.v[i];
        }
    }
    store_at(y, 0, col, sum, n);
}

/* Output o (+)= the sum of the parts, each `cols` floats. */
static inline loong_status_t fold(const loong_kernel_call_t *call, int o,
                                  const float *partial, int64_t cols)
{
    mat_t y = mat_out(call, o);
    int64_t packs = (cols + PACK - 1) / PACK;
    if (y.p != NULL) {
        dim3 grid((unsigned)((packs + BLOCK - 1) / BLOCK));
        LOONG_LAUNCH((fold_kernel), grid, dim3(BLOCK), 0, stream_of(call),
                     partial, y, (call->accumulate >> o & 1u) != 0);
    }
    return launched(call);
}

/* Block (column, part): sums of every FOLD_PARTS-th row. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    sum_rows_kernel(mat_t x, float *partial)
{
    int64_t rows = x.rows;
    int64_t col = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * PACK;
    if (col >= x.cols) {
        return;
    }
    int n = least(PACK, x.cols - col);
    pack_t sum = {{0}};
    for (int64_t t = blockIdx.y; t < rows; t += FOLD_EACH * gridDim.y) {
        stride_t s = {t, gridDim.y, rows};
        add_rows(row_of<T>(x, 0) + col, x.ld, s, n, x.packed && n == PACK,
                 &sum);
    }
    store(partial + (int64_t)blockIdx.y * x.cols + col, sum, n,
          x.cols % PACK == 0);
}

/* Output o (+)= the sum of the rows of operand i; partial: fold_bytes. */
static inline loong_status_t sum_rows(const loong_kernel_call_t *call, int i,
                                      int o, float *partial)
{
    mat_t x = mat_arg(call, i);
    int64_t packs = (x.cols + PACK - 1) / PACK;
    dim3 grid((unsigned)((packs + BLOCK - 1) / BLOCK), FOLD_PARTS);
    if (x.half) {
        LOONG_LAUNCH((sum_rows_kernel<half_t>), grid, dim3(BLOCK), 0,
                     stream_of(call), x, partial);
    } else {
        LOONG_LAUNCH((sum_rows_kernel<float>), grid, dim3(BLOCK), 0,
                     stream_of(call), x, partial);
    }
    return fold(call, o, partial, x.cols);
}

} // namespace loong_cuda

#endif
