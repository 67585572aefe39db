/* SPDX-License-Identifier: Apache-2.0
 *
 * What a kernel sees of the simulated device: its indices, barriers, warp
 * operations, atomics, shared memory, and how it is launched. A .cu file is
 * compiled as C++ with this file in front of CUDA's. */
#ifndef CUDASIM_RUNTIME_H
#define CUDASIM_RUNTIME_H

#include <cmath>
#include <cstring>
#include <type_traits>

#include "cuda_runtime_api.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n_) __attribute__((aligned(n_)))

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

extern "C" void cudasim_vector(const void *at, size_t size);

/* Vectors are moved in one access: their address is checked, which single
 * elements would hide. */
#define CUDASIM_VECTOR2(name_, type_)                                         \
    struct alignas(8) name_ {                                                 \
        type_ x, y;                                                           \
        name_() = default;                                                    \
        name_(type_ x_, type_ y_) : x(x_), y(y_) {}                           \
        name_(const name_ &o) { *this = o; }                                  \
        name_ &operator=(const name_ &o)                                      \
        {                                                                     \
            cudasim_vector(&o, 8);                                            \
            cudasim_vector(this, 8);                                          \
            x = o.x, y = o.y;                                                 \
            return *this;                                                     \
        }                                                                     \
    }
#define CUDASIM_VECTOR4(name_, type_)                                         \
    struct alignas(16) name_ {                                                \
        type_ x, y, z, w;                                                     \
        name_() = default;                                                    \
        name_(type_ x_, type_ y_, type_ z_, type_ w_)                         \
            : x(x_), y(y_), z(z_), w(w_)                                      \
        {                                                                     \
        }                                                                     \
        name_(const name_ &o) { *this = o; }                                  \
        name_ &operator=(const name_ &o)                                      \
        {                                                                     \
            cudasim_vector(&o, 16);                                           \
            cudasim_vector(this, 16);                                         \
            x = o.x, y = o.y, z = o.z, w = o.w;                               \
            return *this;                                                     \
        }                                                                     \
    }
CUDASIM_VECTOR2(uint2, unsigned);
CUDASIM_VECTOR2(float2, float);
CUDASIM_VECTOR4(uint4, unsigned);
CUDASIM_VECTOR4(float4, float);

/* The running thread's. */
struct cudasim_ids {
    dim3 thread, block, block_dim, grid_dim;
};
extern "C" cudasim_ids cudasim_now;
#define threadIdx cudasim_now.thread
#define blockIdx cudasim_now.block
#define blockDim cudasim_now.block_dim
#define gridDim cudasim_now.grid_dim
#define warpSize 32

enum cudasim_warp_op {
    CUDASIM_SYNC,
    CUDASIM_SHFL,
    CUDASIM_SHFL_UP,
    CUDASIM_SHFL_DOWN,
    CUDASIM_SHFL_XOR,
    CUDASIM_BALLOT,
    CUDASIM_TOGETHER
};

struct cudasim_launch {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void (*run)(const void *arguments);
};

struct cudasim_place {
    const char *file;
    int line;
};

/* An operand of a product of a warpgroup: kernels/wgmma.cuh. */
struct cudasim_panels {
    const unsigned short *at;
    int stride;
    bool turned;
};
inline cudasim_panels cudasim_turn(cudasim_panels p, bool turned)
{
    p.turned = turned;
    return p;
}

extern "C" {
void cudasim_barrier(cudasim_place place);
uint64_t cudasim_warp(int op, cudasim_place place, unsigned mask,
                      uint64_t value, int arg, int width);
/* All lanes of the warp come; the last one calls run with what each gave. */
void cudasim_together(cudasim_place place, void *mine,
                      void (*run)(void *const *lane));
/* tensor.cc */
void cudasim_mma(cudasim_place place, float *c, const unsigned *a,
                 const unsigned *b);
void cudasim_ldmatrix(cudasim_place place, unsigned *to, const void *row,
                      bool turned);
void cudasim_copy_async(void *to, const void *from, size_t there);
void cudasim_copies_commit(void);
void cudasim_copies_wait(int left);
void cudasim_shared_fence(void);
void cudasim_wgmma(cudasim_place place, float *c, cudasim_panels a,
                   cudasim_panels b, bool add);
void cudasim_wgmma_commit(void);
void cudasim_wgmma_wait(int left);
void *cudasim_shared(const void *key, size_t size);
/* Ends the kernel where this is shared memory: for instructions of the other
 * kind. */
void cudasim_global(const void *at);
void *cudasim_dynamic(void);
void cudasim_yield(void);
void cudasim_enqueue(const cudasim_launch *launch, const void *arguments,
                     size_t size);
}

/* ---- launches and shared memory ------------------------------------------ */

template <class Call> void cudasim_run(const void *arguments)
{
    (*static_cast<const Call *>(arguments))();
}

template <class... P, class... A>
void cudasim_start(cudasim_launch launch, void (*kernel)(P...), A... args)
{
    auto call = [=] { kernel(static_cast<P>(args)...); };
    static_assert(std::is_trivially_copyable<decltype(call)>::value,
                  "arguments of kernels are plain data");
    launch.kernel = reinterpret_cast<const void *>(kernel);
    launch.run = cudasim_run<decltype(call)>;
    cudasim_enqueue(&launch, &call, sizeof(call));
}

#define LOONG_KERNEL(...) __VA_ARGS__
#define LOONG_START(kernel_, grid_, block_, shared_, stream_, ...)            \
    cudasim_start({#kernel_, nullptr, grid_, block_, shared_, stream_,        \
                   nullptr},                                                  \
                  LOONG_KERNEL kernel_, __VA_ARGS__)

#define LOONG_SHARED(type_, name_, count_)                                    \
    static const char name_##_key = 0;                                        \
    type_ *const name_ = static_cast<type_ *>(                                \
        cudasim_shared(&name_##_key, sizeof(type_) * (count_)))
#define LOONG_SHARED_DYNAMIC(type_, name_)                                    \
    type_ *const name_ = static_cast<type_ *>(cudasim_dynamic())

/* ---- barriers and warps -------------------------------------------------- */

#define CUDASIM_HERE (cudasim_place{__FILE__, __LINE__})
#define __syncthreads() cudasim_barrier(CUDASIM_HERE)
#define __threadfence() ((void)0)
#define __syncwarp(...) cudasim_sync_warp(CUDASIM_HERE, ##__VA_ARGS__)
#define __ballot_sync(...) cudasim_ballot(CUDASIM_HERE, __VA_ARGS__)
#define __any_sync(...) (cudasim_ballot(CUDASIM_HERE, __VA_ARGS__) != 0)
#define __all_sync(mask_, x_)                                                 \
    (cudasim_ballot(CUDASIM_HERE, mask_, !(x_)) == 0)
#define CUDASIM_SHUFFLE(op_, ...)                                             \
    cudasim_shuffle(op_, CUDASIM_HERE, __VA_ARGS__)
#define __shfl_sync(...) CUDASIM_SHUFFLE(CUDASIM_SHFL, __VA_ARGS__)
#define __shfl_up_sync(...) CUDASIM_SHUFFLE(CUDASIM_SHFL_UP, __VA_ARGS__)
#define __shfl_down_sync(...) CUDASIM_SHUFFLE(CUDASIM_SHFL_DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...) CUDASIM_SHUFFLE(CUDASIM_SHFL_XOR, __VA_ARGS__)

inline void cudasim_sync_warp(cudasim_place place,
                              unsigned mask = 0xffffffffu)
{
    cudasim_warp(CUDASIM_SYNC, place, mask, 0, 0, 32);
}

inline unsigned cudasim_ballot(cudasim_place place, unsigned mask, bool x)
{
    return (unsigned)cudasim_warp(CUDASIM_BALLOT, place, mask, x, 0, 32);
}

template <class T>
inline T cudasim_shuffle(int op, cudasim_place place, unsigned mask, T value,
                         int arg, int width = 32)
{
    static_assert(sizeof(T) <= 8, "shuffles move up to 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = cudasim_warp(op, place, mask, bits, arg, width);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

/* ---- atomics: other threads run before and after, never between ---------- */

template <class T, class Make> inline T cudasim_atomic(T *at, Make make)
{
    cudasim_yield();
    T old = *at;
    *at = make(old);
    return old;
}
#define CUDASIM_ATOMICS(T)                                                    \
    inline T atomicAdd(T *at, T x)                                            \
    {                                                                         \
        return cudasim_atomic(at, [=](T old) { return (T)(old + x); });       \
    }                                                                         \
    inline T atomicExch(T *at, T x)                                           \
    {                                                                         \
        return cudasim_atomic(at, [=](T) { return x; });                      \
    }
#define CUDASIM_INTEGER_ATOMICS(T)                                            \
    inline T atomicMax(T *at, T x)                                            \
    {                                                                         \
        return cudasim_atomic(at, [=](T old) { return old > x ? old : x; });  \
    }                                                                         \
    inline T atomicMin(T *at, T x)                                            \
    {                                                                         \
        return cudasim_atomic(at, [=](T old) { return old < x ? old : x; });  \
    }                                                                         \
    inline T atomicCAS(T *at, T expected, T x)                                \
    {                                                                         \
        return cudasim_atomic(                                                \
            at, [=](T old) { return old == expected ? x : old; });            \
    }
CUDASIM_ATOMICS(int)
CUDASIM_ATOMICS(unsigned)
CUDASIM_ATOMICS(unsigned long long)
CUDASIM_ATOMICS(float)
CUDASIM_ATOMICS(double)
CUDASIM_INTEGER_ATOMICS(int)
CUDASIM_INTEGER_ATOMICS(unsigned)
CUDASIM_INTEGER_ATOMICS(unsigned long long)

/* ---- arithmetic ---------------------------------------------------------- */

template <class To, class From> inline To cudasim_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __float_as_uint(float x) { return cudasim_bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return cudasim_bits<float>(x); }
inline long long __double_as_longlong(double x)
{
    return cudasim_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return cudasim_bits<double>(x);
}
/* Each rounded by itself: no fused multiply-add is made of them. */
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

#include "cudasim_inexact.h"

#endif
