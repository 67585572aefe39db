/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorts 64-bit keys by a bitonic network, whose steps within a segment are one
 * launch: log2(n)^2 / 2 passes over n keys in all, few of them through memory.
 * Keys that are all different have one order, whatever the device. */
#ifndef LOONG_SORT_CUH
#define LOONG_SORT_CUH

#include "cuda.cuh"

namespace loong_cuda {

#ifdef CUDASIM
enum { SORT_SEGMENT = 64 };
#else
enum { SORT_SEGMENT = 2048 }; /* keys that a block has in shared memory */
#endif

/* Keys that are sorted with `count` others: whole segments, a power of two. */
static inline int64_t sort_size(int64_t count)
{
    int64_t size = SORT_SEGMENT;
    while (size < count) {
        size *= 2;
    }
    return size;
}

/* The lower key comes first in blocks of `block` keys by turns, last in the
 * others. */
static __device__ __forceinline__ void order_pair(uint64_t *x, uint64_t *y,
                                                  int64_t place, int64_t block)
{
    uint64_t a = *x;
    uint64_t b = *y;
    bool up = (place & block) == 0;
    if ((a > b) == up) {
        *x = b;
        *y = a;
    }
}

/* One step between segments: keys `stride` apart. */
static __global__ void __launch_bounds__(BLOCK)
    sort_far(uint64_t *keys, int64_t size, int64_t block, int64_t stride)
{
    int64_t step = (int64_t)gridDim.x * BLOCK;
    for (int64_t p = (int64_t)blockIdx.x * BLOCK + threadIdx.x; p < size / 2;
         p += step) {
        int64_t i = 2 * p - (p & (stride - 1));
        order_pair(&keys[i], &keys[i + stride], i, block);
    }
}

/* All steps within segments, of blocks of `from` to `to` keys. */
static __global__ void __launch_bounds__(BLOCK)
    sort_near(uint64_t *keys, int64_t from, int64_t to)
{
    LOONG_SHARED(uint64_t, room, SORT_SEGMENT);
    int64_t first = (int64_t)blockIdx.x * SORT_SEGMENT;
    for (int i = (int)threadIdx.x; i < SORT_SEGMENT; i += BLOCK) {
        room[i] = keys[first + i];
    }
    for (int64_t block = from; block <= to; block *= 2) {
        for (int stride = least(block, SORT_SEGMENT) / 2; stride > 0;
             stride /= 2) {
            __syncthreads();
            for (int p = (int)threadIdx.x; p < SORT_SEGMENT / 2; p += BLOCK) {
                int i = 2 * p - (p & (stride - 1));
                order_pair(&room[i], &room[i + stride], first + i, block);
            }
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < SORT_SEGMENT; i += BLOCK) {
        keys[first + i] = room[i];
    }
}

/* Ascending; size: of sort_size. */
static inline loong_status_t sort_keys(const loong_kernel_call_t *call,
                                       uint64_t *keys, int64_t size)
{
    cudaStream_t stream = stream_of(call);
    dim3 segments((unsigned)(size / SORT_SEGMENT));
    dim3 pairs = grid_of(call, (size / 2 + BLOCK - 1) / BLOCK);
    LOONG_LAUNCH((sort_near), segments, dim3(BLOCK), 0, stream, keys,
                 (int64_t)2, (int64_t)SORT_SEGMENT);
    for (int64_t block = 2 * SORT_SEGMENT; block <= size; block *= 2) {
        for (int64_t stride = block / 2; stride >= SORT_SEGMENT;
             stride /= 2) {
            LOONG_LAUNCH((sort_far), pairs, dim3(BLOCK), 0, stream, keys, size,
                         block, stride);
        }
        LOONG_LAUNCH((sort_near), segments, dim3(BLOCK), 0, stream, keys,
                     block, block);
    }
    return launched(call);
}

} // namespace loong_cuda

#endif
