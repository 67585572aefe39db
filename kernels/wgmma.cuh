/* SPDX-License-Identifier: Apache-2.0
 *
 * Products on tensor cores by a warpgroup, the four warps of 128 threads:
 * wgmma.mma_async m64n256k16 of bf16 with sums in fp32, of operands in shared
 * memory, which GPUs of compute capability 9.0 alone have; and under the
 * simulator its twin. The PTX manual, "Asynchronous Warpgroup Level Matrix
 * Instructions", has the layouts.
 *
 * Operands lie in panels of 64 columns: rows of 128 bytes in pieces of 16,
 * piece p of row r at place p ^ (r % 8), as tensor.cuh has its tiles of 64
 * columns; a panel begins at a multiple of 1024 bytes. Rows of a panel are rows
 * of the operand and its columns are summed over, or, turned, the other way
 * round.
 *
 * Lane l of warp w has of a product [64,256] the elements of rows 16 w + l / 4
 * (c[n][0], c[n][1]) and eight rows later (c[n][2], c[n][3]), columns
 * 8 n + 2 (l % 4) and one more: those of MMA, side by side. */
#ifndef LOONG_WGMMA_CUH
#define LOONG_WGMMA_CUH

#include <stdio.h>

#include "loong/kernel.h"
#include "pack.cuh"

namespace loong_cuda {

/* The current device has these products; none is of capability 0.0. */
static inline bool has_wgmma(char reason[LOONG_REASON_SIZE])
{
    int device = 0;
    int major = 0;
    int minor = 0;
    bool known = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&major,
                                        cudaDevAttrComputeCapabilityMajor,
                                        device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&minor,
                                        cudaDevAttrComputeCapabilityMinor,
                                        device) == cudaSuccess;
    if (known && major == 9 && minor == 0) {
        return true;
    }
    snprintf(reason, LOONG_REASON_SIZE,
             "products of warpgroups are there on compute capability 9.0, "
             "this is %d.%d", major, minor);
    return false;
}

/* The first multiple of ALIGN bytes. */
template <int ALIGN>
static __device__ __forceinline__ half_t *aligned_to(half_t *at)
{
    char *p = reinterpret_cast<char *>(at);
    return reinterpret_cast<half_t *>(p + (0 - (uintptr_t)p) % ALIGN);
}

enum {
    WG = 4 * WARP,
    WG_ROWS = 64,
    WG_COLS = 256,
    WG_DEPTH = 16,       /* of one instruction */
    PANEL = 64,          /* columns */
    PANEL_ALIGN = 1024,
    PANEL_ROWS = 8 * 128 /* bytes of eight rows, after which places repeat */
};

#ifdef CUDASIM
typedef cudasim_panels panels_t;
static inline panels_t panels_of(const half_t *at, int stride)
{
    panels_t p = {at, stride, false};
    return p;
}
#define WGMMA(c_, a_, b_, turned_a_, turned_b_, add_)                         \
    cudasim_wgmma(CUDASIM_HERE, &(c_)[0][0], cudasim_turn(a_, turned_a_),     \
                  cudasim_turn(b_, turned_b_), add_)
#define WGMMA_FENCE() ((void)0)
#define WGMMA_COMMIT() cudasim_wgmma_commit()
#define WGMMA_WAIT(left_) cudasim_wgmma_wait(left_)
#define SHARED_FENCE() cudasim_shared_fence()
#else
/* The matrix descriptor of panels that are `stride` bytes apart: the address,
 * the strides from panel to panel and from eight rows to the next, in units of
 * 16 bytes, and the swizzle of 128 bytes. */
typedef unsigned long long panels_t;
static __device__ __forceinline__ panels_t panels_of(const half_t *at,
                                                     int stride)
{
    unsigned long long start = __cvta_generic_to_shared(at) & 0x3ffff;
    return start >> 4 | (unsigned long long)(stride >> 4) << 16 |
           (unsigned long long)(PANEL_ROWS >> 4) << 32 | 1ull << 62;
}

/* c [64,256] = a [64,16] b [16,256], added where `add` is not 0: the sums are
 * there behind WGMMA_WAIT. a is `turned` where its panels have columns of 64
 * rows of it, b where they have rows of 64 columns of it. */
template <int TURNED_A, int TURNED_B>
static __device__ __forceinline__ void
wgmma(float (&c)[WG_COLS / 8][4], panels_t a, panels_t b, int add)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define C4(n_)                                                                \
    "+f"(c[n_][0]), "+f"(c[n_][1]), "+f"(c[n_][2]), "+f"(c[n_][3])
#define C16(n_) C4(n_), C4((n_) + 1), C4((n_) + 2), C4((n_) + 3)
    asm volatile(
        "{.reg .pred p;\n"
        "setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,"
        "%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,"
        "%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,"
        "%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,"
        "%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,"
        "%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,"
        "%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,"
        "%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,"
        "%120,%121,%122,%123,%124,%125,%126,%127}, "
        "%128, %129, p, 1, 1, %131, %132;}\n"
        : C16(0), C16(4), C16(8), C16(12), C16(16), C16(20), C16(24), C16(28)
        : "l"(a), "l"(b), "r"(add), "n"(TURNED_A), "n"(TURNED_B));
#undef C16
#undef C4
#endif
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA_ASM(...) asm volatile(__VA_ARGS__)
#else
#define WGMMA_ASM(...) ((void)0)
#endif
#define WGMMA(c_, a_, b_, turned_a_, turned_b_, add_)                         \
    wgmma<turned_a_, turned_b_>(c_, a_, b_, add_)
/* Before the first product on registers, and where others wrote to them. */
#define WGMMA_FENCE() WGMMA_ASM("wgmma.fence.sync.aligned;" : : : "memory")
/* All products since the last one are a group; all but the last `left` groups
 * are made. */
#define WGMMA_COMMIT()                                                        \
    WGMMA_ASM("wgmma.commit_group.sync.aligned;" : : : "memory")
#define WGMMA_WAIT(left_)                                                     \
    WGMMA_ASM("wgmma.wait_group.sync.aligned %0;" : : "n"(left_) : "memory")
/* What this thread wrote to shared memory is seen by products, behind a barrier
 * by those of others. */
#define SHARED_FENCE()                                                        \
    WGMMA_ASM("fence.proxy.async.shared::cta;" : : : "memory")
#endif

} // namespace loong_cuda

#endif
