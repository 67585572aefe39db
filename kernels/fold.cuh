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

/* Twice the multiprocessors, of a large device and of the simulated one. */
#ifdef CUDASIM
enum { FOLD_PARTS = 8 };
#else
enum { FOLD_PARTS = 264 };
#endif

/* Workspace for sums of so many columns. */
static inline size_t fold_bytes(int64_t cols)
{
    return sizeof(float) * FOLD_PARTS * (size_t)cols;
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
    pack_t sum;
    for (int i = 0; i < PACK; i++) {
        sum.v[i] = 0.0f;
    }
    for (int64_t part = 0; part < FOLD_PARTS; part++) {
        pack_t p = load(partial + part * y.cols + col, n, packed);
        for (int i = 0; i < PACK; i++) {
            sum.v[i] += p.v[i];
        }
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

} // namespace loong_cuda

#endif
