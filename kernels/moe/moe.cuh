/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CUDA kernels of mixtures of experts share: integers that they index
 * with are checked where they are read; a wrong one is told and counts as
 * absent. */
#ifndef LOONG_MOE_CUH
#define LOONG_MOE_CUH

#include "loong/moe.h"
#include "map.cuh"

namespace loong_cuda {

static __device__ void tell_integer(loong_device_error_t *error,
                                    const loong_device_error_t &f)
{
    if (atomicCAS(&error->kind, 0, f.kind) == 0) {
        error->operand = f.operand;
        error->value = f.value;
        error->place = f.place;
        error->before = f.before;
        error->end = f.end;
        error->op = f.op;
    }
}

/* An operand of indices, each from `low` to end - 1. */
struct indices_t {
    const int32_t *p;
    int64_t low, end;
    const char *op;
    int operand;
    loong_device_error_t *error;
};

static inline indices_t indices_of(const loong_kernel_call_t *call,
                                   int operand, int64_t low, int64_t end)
{
    indices_t x = {static_cast<const int32_t *>(call->ptr[operand]),
                   low,
                   end,
                   call->query->op,
                   operand,
                   call->error};
    return x;
}

/* Index number i, or -1. */
static __device__ __forceinline__ int32_t index_at(const indices_t &x,
                                                   int64_t i)
{
    int32_t value = x.p[i];
    if (value >= x.low && value < x.end) {
        return value;
    }
    loong_device_error_t f = {
        LOONG_DEVICE_ERROR_INDEX, x.operand, value, i, x.low, x.end, x.op};
    tell_integer(x.error, f);
    return -1;
}

/* The sum over the threads of a block before this one, *all: over all of them.
 * room [TEAM] is shared, an element for each of the block's warps. */
template <int TEAM = WARPS>
static __device__ __forceinline__ int sum_before(int x, int *room, int *all)
{
    int warp = (int)threadIdx.x / WARP;
    int lane = (int)threadIdx.x % WARP;
    int sum = x;
    for (int by = 1; by < WARP; by *= 2) {
        int other = __shfl_up_sync(EACH, sum, by);
        sum += lane >= by ? other : 0;
    }
    __syncthreads(); /* the sums before were read */
    if (lane == WARP - 1) {
        room[warp] = sum;
    }
    __syncthreads();
    int before = 0;
    *all = 0;
    for (int w = 0; w < TEAM; w++) {
        before += w < warp ? room[w] : 0;
        *all += room[w];
    }
    return before + sum - x;
}

} // namespace loong_cuda

/* A kernel that shows the host what it made (loong_device_mirror). */
#define CUDA_KERNEL_SHOWS(op_, support_, workspace_, run_)                    \
    extern "C" const loong_kernel_t loongi_##op_##_cuda = {                   \
        #op_ "_cuda", #op_, "cuda", support_, workspace_, NULL,               \
        NULL,         run_, false,  false,    true,       NULL}

#endif
