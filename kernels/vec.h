/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of fp32 as wide as the instruction set level allows, for kernels
 * that are compiled per level (isa.h). Arithmetic is the compiler's own; what
 * it has no operator for stands here.
 */
#ifndef LOONG_VEC_H
#define LOONG_VEC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VEC_SIZE = 16 };
#elif defined(__AVX2__)
enum { VEC_SIZE = 8 };
#else
enum { VEC_SIZE = 4 };
#endif
typedef float vec_t __attribute__((vector_size(VEC_SIZE * 4)));
typedef int32_t ivec_t __attribute__((vector_size(VEC_SIZE * 4)));
typedef float uvec_t
    __attribute__((vector_size(VEC_SIZE * 4), aligned(4), may_alias));

typedef uint32_t word_t __attribute__((may_alias));

#define VEC_INLINE static inline __attribute__((always_inline))

VEC_INLINE vec_t vec_load(const float *p)
{
    return *(const uvec_t *)p;
}

VEC_INLINE void vec_store(float *p, vec_t v)
{
    *(uvec_t *)p = v;
}

VEC_INLINE vec_t vec_set(float x)
{
    return x - (vec_t){0};
}

/* b where either is NaN. */
VEC_INLINE vec_t vec_max(vec_t a, vec_t b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    ivec_t greater = a > b;
    return (vec_t)((greater & (ivec_t)a) | (~greater & (ivec_t)b));
#endif
}

/* v where x >= low or x is NaN, else 0. */
VEC_INLINE vec_t vec_where_at_least(vec_t x, vec_t low, vec_t v)
{
#if defined(__AVX512F__)
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), v);
#else
    return (vec_t)(~(x < low) & (ivec_t)v);
#endif
}

/* 2^x, relative error below 2^-22; 0 below 2^-126; x at most 127; NaN of NaN.
 * The fraction lies in [-1/2, 1/2], where the series of degree 7 is exact to
 * 2^-27. */
VEC_INLINE vec_t vec_exp2(vec_t x)
{
    const vec_t magic = vec_set(12582912.0f); /* 1.5 * 2^23: rounds */
    const vec_t low = vec_set(-126.0f);
    vec_t y = vec_max(low, x);
    vec_t shifted = y + magic;
    vec_t f = y - (shifted - magic);
    vec_t r = vec_set(1.5252734e-5f); /* ln(2)^7 / 7!, ^6 / 6! ... */
    r = r * f + 1.5403530e-4f;
    r = r * f + 1.3333558e-3f;
    r = r * f + 9.6181291e-3f;
    r = r * f + 5.5504109e-2f;
    r = r * f + 2.4022651e-1f;
    r = r * f + 6.9314718e-1f;
    r = r * f + 1.0f;
    /* The low bits of `shifted` hold the whole part. */
    r = (vec_t)((ivec_t)r + ((ivec_t)shifted << 23));
    return vec_where_at_least(x, low, r);
}

/* Sum over the lanes, in order. */
VEC_INLINE float vec_sum(vec_t v)
{
    float sum = 0.0f;
    for (int i = 0; i < VEC_SIZE; i++) {
        sum += v[i];
    }
    return sum;
}

/* The largest lane. */
VEC_INLINE float vec_top(vec_t v)
{
    float top = v[0];
    for (int i = 1; i < VEC_SIZE; i++) {
        top = v[i] > top ? v[i] : top;
    }
    return top;
}

/* Rounds to bf16 (to nearest even). */
VEC_INLINE void vec_store_bf16(uint16_t *p, vec_t v)
{
#if defined(__AVX512BF16__)
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(v));
#else
    for (int i = 0; i < VEC_SIZE; i++) {
        float f = v[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof(bits));
        uint32_t even = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
        p[i] = (uint16_t)(nan ? bits >> 16 | 0x40u : even);
    }
#endif
}

#endif
