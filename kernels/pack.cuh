/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of device memory: fp32 and bf16, eight at a time (a pack). A pack
 * is read as words of 16 bytes (fetch) and widened behind the last read of a
 * thread: so all its reads are under way before the first is waited for. */
#ifndef LOONG_PACK_CUH
#define LOONG_PACK_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace loong_cuda {

typedef unsigned short half_t; /* bf16, as bits */

enum { WARP = 32, PACK = 8 };
constexpr unsigned EACH = 0xffffffffu; /* all lanes */
constexpr float LOG2_E = 1.4426950408889634f;

static __device__ __forceinline__ float widen(half_t x)
{
    return __uint_as_float((unsigned)x << 16);
}
static __device__ __forceinline__ float widen(float x)
{
    return x;
}

static __device__ __forceinline__ void narrow(float x, half_t *y)
{
    *y = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
static __device__ __forceinline__ void narrow(float x, float *y)
{
    *y = x;
}

/* The value as its storage holds it. */
template <class T> static __device__ __forceinline__ float stored(float x)
{
    T y;
    narrow(x, &y);
    return widen(y);
}

/* Two values as bf16, the first one below. */
static __device__ __forceinline__ unsigned both(float first, float second)
{
#ifdef CUDASIM
    half_t low;
    half_t high;
    narrow(first, &low);
    narrow(second, &high);
    return low | (unsigned)high << 16;
#else
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(second), "f"(first));
    return y;
#endif
}

/* 2^x and 1 / x of the units for that: wrong by at most 2 units of the last
 * place and by one, 0 where the result is no normal number. */
#ifdef CUDASIM
static inline float exp2_of(float x)
{
    return cudasim_ex2(x);
}
static inline float inverse_of(float x)
{
    return cudasim_rcp(x);
}
#else
static __device__ __forceinline__ float exp2_of(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float inverse_of(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif

/* ---- eight elements at a time -------------------------------------------- */

struct pack_t {
    float v[PACK];
};

/* The words of a pack as they stand in memory: 16 bytes of bf16, 32 of fp32. */
template <class T> struct raw_t {
    enum { WORDS = PACK * sizeof(T) / sizeof(unsigned) };
    unsigned word[WORDS];
};

/* A whole pack, from a multiple of 16 bytes. */
template <class T>
static __device__ __forceinline__ raw_t<T> fetch(const T *x)
{
    raw_t<T> y;
#pragma unroll
    for (int i = 0; i < raw_t<T>::WORDS; i += 4) {
        uint4 w = *reinterpret_cast<const uint4 *>(x + i * PACK /
                                                           raw_t<T>::WORDS);
        y.word[i] = w.x;
        y.word[i + 1] = w.y;
        y.word[i + 2] = w.z;
        y.word[i + 3] = w.w;
    }
    return y;
}

/* x[0 .. n - 1], n <= PACK, one by one; the rest is 0. */
static __device__ __forceinline__ raw_t<half_t> gather(const half_t *x, int n)
{
    raw_t<half_t> y;
#pragma unroll
    for (int i = 0; i < PACK; i += 2) {
        y.word[i / 2] = (i < n ? (unsigned)x[i] : 0u) |
                        (i + 1 < n ? (unsigned)x[i + 1] << 16 : 0u);
    }
    return y;
}

static __device__ __forceinline__ raw_t<float> gather(const float *x, int n)
{
    raw_t<float> y;
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        y.word[i] = i < n ? __float_as_uint(x[i]) : 0u;
    }
    return y;
}

static __device__ __forceinline__ pack_t unpack(const raw_t<half_t> &x)
{
    pack_t y;
#pragma unroll
    for (int i = 0; i < PACK; i += 2) {
        y.v[i] = __uint_as_float(x.word[i / 2] << 16);
        y.v[i + 1] = __uint_as_float(x.word[i / 2] & 0xffff0000u);
    }
    return y;
}

static __device__ __forceinline__ pack_t unpack(const raw_t<float> &x)
{
    pack_t y;
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        y.v[i] = __uint_as_float(x.word[i]);
    }
    return y;
}

/* The words that hold a pack, rounded to T. */
template <class T>
static __device__ __forceinline__ raw_t<T> packed_as(const pack_t &x);

template <>
__device__ __forceinline__ raw_t<half_t> packed_as<half_t>(const pack_t &x)
{
    raw_t<half_t> y;
#pragma unroll
    for (int i = 0; i < PACK; i += 2) {
        y.word[i / 2] = both(x.v[i], x.v[i + 1]);
    }
    return y;
}

template <>
__device__ __forceinline__ raw_t<float> packed_as<float>(const pack_t &x)
{
    raw_t<float> y;
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        y.word[i] = __float_as_uint(x.v[i]);
    }
    return y;
}

/* x[0 .. n - 1], n <= PACK; the rest is 0. */
template <class T>
static __device__ __forceinline__ pack_t load(const T *x, int n, bool packed)
{
    return unpack(packed && n == PACK ? fetch(x) : gather(x, n));
}

/* 16 bytes to device memory, not to shared memory, at once. In the machine's
 * words: the compiler takes together what the stores of two branches have in
 * common, and so this one apart. */
static __device__ __forceinline__ void store_words(void *y, const uint4 &w)
{
#ifdef CUDASIM
    cudasim_global(y);
    *static_cast<uint4 *>(y) = w;
#else
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(y), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
                 : "memory");
#endif
}

/* A whole pack, to a multiple of 16 bytes. */
template <class T>
static __device__ __forceinline__ void put(T *y, const raw_t<T> &x)
{
#pragma unroll
    for (int i = 0; i < raw_t<T>::WORDS; i += 4) {
        uint4 w = {x.word[i], x.word[i + 1], x.word[i + 2], x.word[i + 3]};
        store_words(y + i * PACK / raw_t<T>::WORDS, w);
    }
}

/* The first n elements of a pack, one by one. */
static __device__ __forceinline__ void scatter(half_t *y,
                                               const raw_t<half_t> &x, int n)
{
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        if (i < n) {
            y[i] = (half_t)(x.word[i / 2] >> i % 2 * 16);
        }
    }
}

static __device__ __forceinline__ void scatter(float *y,
                                               const raw_t<float> &x, int n)
{
#pragma unroll
    for (int i = 0; i < PACK; i++) {
        if (i < n) {
            y[i] = __uint_as_float(x.word[i]);
        }
    }
}

template <class T>
static __device__ __forceinline__ void store_raw(T *y, const raw_t<T> &x,
                                                 int n, bool packed)
{
    if (packed && n == PACK) {
        put(y, x);
    } else {
        scatter(y, x, n);
    }
}

template <class T>
static __device__ __forceinline__ void store(T *y, const pack_t &x, int n,
                                             bool packed)
{
    store_raw(y, packed_as<T>(x), n, packed);
}

} // namespace loong_cuda

#endif
