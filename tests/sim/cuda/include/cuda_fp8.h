/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8 on the simulated device: the conversion that kernels use. It counts the
 * type's steps from zero, by the exponent that a number has. */
#ifndef CUDASIM_FP8_H
#define CUDASIM_FP8_H

#include <math.h>

#include "cuda_runtime.h"

typedef unsigned short __nv_fp8x2_storage_t;
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };

inline unsigned cudasim_fp8(float x, bool e5m2)
{
    int mantissa = e5m2 ? 2 : 3;
    int smallest = e5m2 ? -14 : -6; /* exponent of normal numbers */
    float most = e5m2 ? 57344.0f : 448.0f;
    float a = fabsf(x);
    int exponent = 0;
    unsigned sign = signbit(x) ? 0x80 : 0;
    if (x != x) {
        return 0x7f;
    }
    a = a > most ? most : a;
    frexpf(a, &exponent); /* a < 2^exponent */
    exponent = a == 0.0f || exponent <= smallest ? smallest : exponent - 1;
    unsigned steps = (unsigned)nearbyintf(ldexpf(a, mantissa - exponent));
    return sign | (((unsigned)(exponent - smallest) << mantissa) + steps);
}

inline __nv_fp8x2_storage_t
__nv_cvt_float2_to_fp8x2(float2 x, __nv_saturation_t saturation,
                         __nv_fp8_interpretation_t type)
{
    (void)saturation; /* no other is asked for */
    return (__nv_fp8x2_storage_t)(cudasim_fp8(x.x, type == __NV_E5M2) |
                                  cudasim_fp8(x.y, type == __NV_E5M2) << 8);
}

#endif
