/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU of one element; the formulas stand in activation_ref.c. */
#ifndef LOONG_GELU_CUH
#define LOONG_GELU_CUH

#include <cuda_runtime.h>

#include "loong/ops.h"

namespace loong_cuda {

constexpr float ROOT_HALF = 0.70710678118654752440f;
constexpr float ROOT_2_PI = 0.79788456080286535588f; /* sqrt(2 / pi) */

/* (1 + tanh(u)) / 2 of the approximation, as 1 / (1 + exp(-2u)): where the
 * tangent is near -1 its own error would be all that is left of the sum. */
static __device__ __forceinline__ float tanh_part(float x)
{
    float u = ROOT_2_PI * (x + 0.044715f * x * x * x);
    return 1.0f / (1.0f + expf(-2.0f * u));
}

/* 1 / (1 + exp(-1.702 x)). */
static __device__ __forceinline__ float quick_part(float x)
{
    return 1.0f / (1.0f + expf(-1.702f * x));
}

static __device__ __forceinline__ float gelu_of(float x,
                                                loong_activation_t form)
{
    return form == LOONG_ACT_GELU_TANH    ? x * tanh_part(x)
           : form == LOONG_ACT_QUICK_GELU ? x * quick_part(x)
                                          : 0.5f * x * erfcf(-x * ROOT_HALF);
}

static __device__ __forceinline__ float gelu_slope(float x,
                                                   loong_activation_t form)
{
    if (form == LOONG_ACT_QUICK_GELU) {
        float s = quick_part(x);
        return s * (1.0f + 1.702f * x * (1.0f - s));
    }
    if (form == LOONG_ACT_GELU_TANH) {
        float s = tanh_part(x);
        return s + 2.0f * x * s * (1.0f - s) * ROOT_2_PI *
                       (1.0f + 3.0f * 0.044715f * x * x);
    }
    return 0.5f * erfcf(-x * ROOT_HALF) +
           x * 0.5f * ROOT_2_PI * expf(-0.5f * x * x);
}

} // namespace loong_cuda

#endif
