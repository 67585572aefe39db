/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of one pass over rows and columns, eight elements at a time: `map`
 * where all operands have one shape, `generate` where an element of the output
 * depends on its place. */
#ifndef LOONG_MAP_CUH
#define LOONG_MAP_CUH

#include "cuda.cuh"

namespace loong_cuda {

/* Elements 0 .. n - 1 from `col` of a row, of either type. */
static __device__ __forceinline__ pack_t load_at(const mat_t &m, int64_t row,
                                                 int64_t col, int n)
{
    bool packed = m.packed && col % PACK == 0;
    return m.half ? load(row_of<half_t>(m, row) + col, n, packed)
                  : load(row_of<float>(m, row) + col, n, packed);
}

static __device__ __forceinline__ float load_one(const mat_t &m, int64_t row,
                                                 int64_t col)
{
    return m.half ? widen(row_of<half_t>(m, row)[col])
                  : row_of<float>(m, row)[col];
}

static __device__ __forceinline__ void store_at(const mat_t &m, int64_t row,
                                                int64_t col, const pack_t &x,
                                                int n)
{
    bool packed = m.packed && col % PACK == 0;
    if (m.half) {
        store(row_of<half_t>(m, row) + col, x, n, packed);
    } else {
        store(row_of<float>(m, row) + col, x, n, packed);
    }
}

/* Eight elements as their storage holds them. */
static __device__ __forceinline__ pack_t stored_as(const mat_t &m, pack_t x)
{
    for (int i = 0; i < PACK && m.half; i++) {
        x.v[i] = stored<half_t>(x.v[i]);
    }
    return x;
}

template <int NUM> struct mats_t {
    mat_t arg[NUM];
};

/* Blocks for the packs of an operand. */
static inline dim3 grid_for(const mat_t &m)
{
    int64_t packs = m.rows * ((m.cols + PACK - 1) / PACK);
    return grid_of((packs + BLOCK - 1) / BLOCK);
}

/* ---- map: fn(in, out) ---------------------------------------------------- */

template <int IN, int OUT, class Fn>
__global__ void __launch_bounds__(BLOCK)
    map_kernel(Fn fn, mats_t<IN + OUT> m, const loong_frame_t *frame)
{
    const mat_t &y = m.arg[IN];
    int64_t cols = cols_of(y, frame);
    int64_t packs = (cols + PACK - 1) / PACK;
    int64_t units = rows_of(y, frame) * packs;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += step) {
        int64_t row = u / packs;
        int64_t col = u % packs * PACK;
        int n = least(PACK, cols - col);
        pack_t in[IN];
        pack_t out[OUT];
        for (int i = 0; i < IN; i++) {
            in[i] = load_at(m.arg[i], row, col, n);
        }
        fn(in, out);
        for (int o = 0; o < OUT; o++) {
            store_at(m.arg[IN + o], row, col, out[o], n);
        }
    }
}

/* arg: IN inputs, then OUT outputs; an output may be the memory of an input.
 * Dense operands are one long row. */
template <int IN, int OUT, class Fn>
loong_status_t map(const loong_kernel_call_t *call, Fn fn, const mat_t *arg)
{
    mats_t<IN + OUT> m;
    bool dense = true;
    for (int i = 0; i < IN + OUT; i++) {
        m.arg[i] = arg[i];
        dense = dense && arg[i].ld == arg[i].cols && arg[i].count < 0;
    }
    for (int i = 0; i < IN + OUT && dense; i++) {
        mat_t *a = &m.arg[i];
        a->packed = (uintptr_t)a->p % 16 == 0;
        a->cols *= a->rows;
        a->ld = a->cols;
        a->rows = 1;
    }
    LOONG_LAUNCH((map_kernel<IN, OUT, Fn>), grid_for(m.arg[IN]), dim3(BLOCK),
                 0, stream_of(call), fn, m, call->device_frame);
    return launched(call);
}

/* ---- generate: y = fn(row, col, n, frame) -------------------------------- */

template <class Fn>
__global__ void __launch_bounds__(BLOCK)
    generate_kernel(Fn fn, mat_t y, const loong_frame_t *frame)
{
    int64_t cols = cols_of(y, frame);
    int64_t packs = (cols + PACK - 1) / PACK;
    int64_t units = rows_of(y, frame) * packs;
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t u = (int64_t)blockIdx.x * BLOCK + threadIdx.x; u < units;
         u += step) {
        int64_t row = u / packs;
        int64_t col = u % packs * PACK;
        int n = least(PACK, cols - col);
        store_at(y, row, col, fn(row, col, n, frame), n);
    }
}

template <class Fn>
loong_status_t generate(const loong_kernel_call_t *call, Fn fn, mat_t y)
{
    LOONG_LAUNCH((generate_kernel<Fn>), grid_for(y), dim3(BLOCK), 0,
                 stream_of(call), fn, y, call->device_frame);
    return launched(call);
}

} // namespace loong_cuda

#endif
