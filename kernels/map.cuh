/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise kernels on a device: operands of one shape, a function of eight
 * elements. */
#ifndef LOONG_MAP_CUH
#define LOONG_MAP_CUH

#include "cuda.cuh"

namespace loong_cuda {

/* Elements 0 .. n - 1 from `col` of a row, of either type. */
static __device__ __forceinline__ pack_t load_at(const mat_t &m, int64_t row,
                                                 int64_t col, int n)
{
    return m.half ? load(row_of<half_t>(m, row) + col, n, m.packed)
                  : load(row_of<float>(m, row) + col, n, m.packed);
}

static __device__ __forceinline__ void store_at(const mat_t &m, int64_t row,
                                                int64_t col, const pack_t &x,
                                                int n)
{
    if (m.half) {
        store(row_of<half_t>(m, row) + col, x, n, m.packed);
    } else {
        store(row_of<float>(m, row) + col, x, n, m.packed);
    }
}

template <int NUM> struct mats_t {
    mat_t arg[NUM];
};

template <int IN, class Fn>
__global__ void __launch_bounds__(BLOCK)
    map_kernel(Fn fn, mats_t<IN + 1> m, const loong_frame_t *frame)
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
        pack_t out;
        for (int i = 0; i < IN; i++) {
            in[i] = load_at(m.arg[i], row, col, n);
        }
        fn(in, &out);
        store_at(y, row, col, out, n);
    }
}

/* arg: IN inputs, then the output, which may be the memory of one. Dense
 * operands are one long row. */
template <int IN, class Fn>
loong_status_t map(const loong_kernel_call_t *call, Fn fn, const mat_t *arg)
{
    mats_t<IN + 1> m;
    bool dense = true;
    for (int i = 0; i <= IN; i++) {
        m.arg[i] = arg[i];
        dense = dense && arg[i].ld == arg[i].cols && arg[i].count < 0;
    }
    for (int i = 0; i <= IN && dense; i++) {
        mat_t *a = &m.arg[i];
        a->packed = (uintptr_t)a->p % 16 == 0;
        a->cols *= a->rows;
        a->ld = a->cols;
        a->rows = 1;
    }
    const mat_t &y = m.arg[IN];
    int64_t packs = (y.cols + PACK - 1) / PACK;
    dim3 grid = grid_of((y.rows * packs + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((map_kernel<IN, Fn>), grid, dim3(BLOCK), 0, stream_of(call),
                 fn, m, call->device_frame);
    return launched(call);
}

} // namespace loong_cuda

#endif
