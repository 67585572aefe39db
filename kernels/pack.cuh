/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of device memory: fp32 and bf16, eight at a time. */
#ifndef LOONG_PACK_CUH
#define LOONG_PACK_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace loong_cuda {

typedef unsigned short half_t; /* bf16, as bits */

enum { WARP = 32, PACK = 8 };
constexpr unsigned EACH = 0xffffffffu; /* all lanes */

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

/* ---- eight elements at a time -------------------------------------------- */

struct pack_t {
    float v[PACK];
};

/* x[0 .. n - 1], n <= PACK; the rest is 0. */
static __device__ __forceinline__ pack_t load(const half_t *x, int n,
                                              bool packed)
{
    pack_t y;
    if (packed && n == PACK) {
        uint4 w = *reinterpret_cast<const uint4 *>(x);
        unsigned word[4] = {w.x, w.y, w.z, w.w};
        for (int i = 0; i < 4; i++) {
            y.v[2 * i] = __uint_as_float(word[i] << 16);
            y.v[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
        }
        return y;
    }
    for (int i = 0; i < PACK; i++) {
        y.v[i] = i < n ? widen(x[i]) : 0.0f;
    }
    return y;
}

static __device__ __forceinline__ pack_t load(const float *x, int n,
                                              bool packed)
{
    pack_t y;
    if (packed && n == PACK) {
        for (int i = 0; i < 2; i++) {
            float4 w = reinterpret_cast<const float4 *>(x)[i];
            y.v[4 * i] = w.x;
            y.v[4 * i + 1] = w.y;
            y.v[4 * i + 2] = w.z;
            y.v[4 * i + 3] = w.w;
        }
        return y;
    }
    for (int i = 0; i < PACK; i++) {
        y.v[i] = i < n ? x[i] : 0.0f;
    }
    return y;
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

static __device__ __forceinline__ void store(half_t *y, const pack_t &x,
                                             int n, bool packed)
{
    half_t h[PACK];
    for (int i = 0; i < PACK; i++) {
        narrow(x.v[i], &h[i]);
    }
    if (packed && n == PACK) {
        uint4 w = {h[0] | (unsigned)h[1] << 16, h[2] | (unsigned)h[3] << 16,
                   h[4] | (unsigned)h[5] << 16, h[6] | (unsigned)h[7] << 16};
        store_words(y, w);
        return;
    }
    for (int i = 0; i < PACK; i++) {
        if (i < n) {
            y[i] = h[i];
        }
    }
}

static __device__ __forceinline__ void store(float *y, const pack_t &x, int n,
                                             bool packed)
{
    if (packed && n == PACK) {
        for (int i = 0; i < 2; i++) {
            uint4 w = {__float_as_uint(x.v[4 * i]),
                       __float_as_uint(x.v[4 * i + 1]),
                       __float_as_uint(x.v[4 * i + 2]),
                       __float_as_uint(x.v[4 * i + 3])};
            store_words(y + 4 * i, w);
        }
        return;
    }
    for (int i = 0; i < PACK; i++) {
        if (i < n) {
            y[i] = x.v[i];
        }
    }
}

} // namespace loong_cuda

#endif
