/* SPDX-License-Identifier: Apache-2.0
 *
 * Products on tensor cores by a warp: mma.sync m16n8k16 of bf16 with sums in
 * fp32, which every GPU from sm_80 on has; the instructions, and under the
 * simulator their twins.
 *
 * Lane l has of a product c [16,8] the elements of rows l / 4 (c[0], c[1]) and
 * l / 4 + 8 (c[2], c[3]), columns 2 (l % 4) and one more. Two such products
 * side by side, rounded, are the left operand [16,16] of another one. */
#ifndef LOONG_MMA_CUH
#define LOONG_MMA_CUH

#include "pack.cuh"

namespace loong_cuda {

#ifdef CUDASIM
#define MMA(c_, a_, b_) cudasim_mma(CUDASIM_HERE, c_, a_, b_)
#define LOAD_MATRICES(to_, row_, transposed_) \
    cudasim_ldmatrix(CUDASIM_HERE, to_, row_, transposed_)
#define COPY_ASYNC(to_, from_, bytes_) cudasim_copy_async(to_, from_, bytes_)
#define COPIES_COMMIT() cudasim_copies_commit()
#define COPIES_WAIT(left_) cudasim_copies_wait(left_)
#else
/* c [16,8] += a [16,16] b [16,8] */
#define MMA(c_, a_, b_)                                                       \
    asm volatile(                                                             \
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "                \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
        : "+f"((c_)[0]), "+f"((c_)[1]), "+f"((c_)[2]), "+f"((c_)[3])          \
        : "r"((a_)[0]), "r"((a_)[1]), "r"((a_)[2]), "r"((a_)[3]),             \
          "r"((b_)[0]), "r"((b_)[1]))

/* Four 8 x 8 matrices, of rows that lanes 0-7, 8-15, 16-23 and 24-31 name. */
static __device__ __forceinline__ void
load_matrices(unsigned to[4], const half_t *row, bool transposed)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    if (transposed) {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
            "{%0,%1,%2,%3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
            : "r"(at)
            : "memory");
    } else {
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
            : "r"(at)
            : "memory");
    }
}
#define LOAD_MATRICES(to_, row_, transposed_) \
    load_matrices(to_, row_, transposed_)

/* 16 bytes, of which the first `bytes` are read and the others zero. */
static __device__ __forceinline__ void
copy_async(half_t *to, const half_t *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                   "r"(bytes)
                 : "memory");
}
#define COPY_ASYNC(to_, from_, bytes_) copy_async(to_, from_, bytes_)
#define COPIES_COMMIT() asm volatile("cp.async.commit_group;" : : : "memory")
#define COPIES_WAIT(left_)                                                    \
    asm volatile("cp.async.wait_group %0;" : : "n"(left_) : "memory")
#endif

} // namespace loong_cuda

#endif
