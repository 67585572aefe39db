/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 on the simulated device: the conversions that kernels use. */
#ifndef CUDASIM_BF16_H
#define CUDASIM_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
};

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

/* To nearest even; a NaN stays one. */
inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    unsigned w = __float_as_uint(x);
    unsigned even = (w + 0x7fffu + (w >> 16 & 1u)) >> 16;
    bool nan = (w & 0x7fffffffu) > 0x7f800000u;
    __nv_bfloat16 y = {(unsigned short)(nan ? 0x7fffu : even)};
    return y;
}

#endif
