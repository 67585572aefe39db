/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of one float that a compiler turns into vector code: no branch,
 * no table, no call. The errors stated are bounds from the series cut off and
 * the fit, not measurements over the whole range. */
#ifndef LOONG_KERNELS_FAST_MATH_H
#define LOONG_KERNELS_FAST_MATH_H

#include <stdint.h>
#include <string.h>

#include "port.h"

/* e^x, relative error below 2^-22. Below -87 and above 88 the value at that
 * end; NaN of NaN. The series has degree 7 on [-ln2/2, ln2/2]. */
LOONG_EVERYWHERE static inline float fast_exp(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693145752f; /* the top bits of ln 2, then the rest */
    r = r - n * 1.42860682e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (bits + 127u) << 23; /* the low bits of `shifted` hold n */
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

/* 1 / (1 + e^-x), relative error below 2^-21. */
static inline float fast_sigmoid(float x)
{
    return 1.0f / (1.0f + fast_exp(-x));
}

/* The normal distribution: *density_p = phi(x), returns Phi(x), absolute error
 * of both below 2^-22. The upper tail is phi times a polynomial in
 * t = 1 / (1 + 0.27 |x|), fitted to fp64 on [0, 14] (2.4e-8). */
LOONG_EVERYWHERE static inline float fast_normal(float x, float *density_p)
{
    float a = x < 0.0f ? -x : x;
    a = a > 14.0f ? 14.0f : a;
    float e = fast_exp(-0.5f * a * a);
    float t = 1.0f / (1.0f + 0.27f * a);
    float p = 0.0289154564f;
    p = p * t - 0.126256153f;
    p = p * t + 0.169293239f;
    p = p * t - 0.0686230652f;
    p = p * t + 0.107400859f;
    p = p * t + 0.0722396914f;
    p = p * t + 0.101759315f;
    p = p * t + 0.107550486f;
    p = p * t + 0.107720182f;
    float tail = e * t * p;
    *density_p = 0.398942280f * e;
    return x < 0.0f ? tail : 1.0f - tail;
}

#endif
