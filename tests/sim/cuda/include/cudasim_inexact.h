/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that a GPU computes with an error. */
#ifndef CUDASIM_INEXACT_H
#define CUDASIM_INEXACT_H

#include "cuda_runtime.h"

/* Wrong by as many units of the last place as NVIDIA's documents allow at
 * most: by that many upwards, downwards or not at all, which hangs on x alone.
 * What they give exactly, zero, infinity and NaN, stays. */
inline int cudasim_off(uint64_t x, int units)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    return (int)((x >> 33) % 3 - 1) * units;
}
inline float cudasim_inexact(float x, float y, int units)
{
    int off = x == 0.0f || !std::isnormal(y)
                  ? 0
                  : cudasim_off(cudasim_bits<uint32_t>(x), units);
    return cudasim_bits<float>(cudasim_bits<int32_t>(y) + off);
}
inline double cudasim_inexact(double x, double y, int units)
{
    int off = x == 0.0 || !std::isnormal(y)
                  ? 0
                  : cudasim_off(cudasim_bits<uint64_t>(x), units);
    return cudasim_bits<double>(cudasim_bits<int64_t>(y) + off);
}

/* PTX: ex2.approx.ftz.f32 and rcp.approx.ftz.f32. */
inline float cudasim_flushed(float x)
{
    return std::fpclassify(x) == FP_SUBNORMAL ? copysignf(0.0f, x) : x;
}
inline float cudasim_ex2(float x)
{
    x = cudasim_flushed(x);
    return cudasim_flushed(cudasim_inexact(x, (float)exp2((double)x), 2));
}
inline float cudasim_rcp(float x)
{
    x = cudasim_flushed(x);
    return cudasim_flushed(cudasim_inexact(x, 1.0f / x, 1));
}

/* CUDA's own, without -use_fast_math: units by the table of its guide. */
#define CUDASIM_INEXACT(T_, name_, exact_, units_)                            \
    inline T_ cudasim_##name_(T_ x)                                           \
    {                                                                         \
        return cudasim_inexact(x, (T_)(exact_), units_);                      \
    }
CUDASIM_INEXACT(float, rsqrtf, 1.0 / sqrt((double)x), 2)
CUDASIM_INEXACT(float, expf, exp((double)x), 2)
CUDASIM_INEXACT(float, exp2f, exp2((double)x), 2)
CUDASIM_INEXACT(float, logf, log((double)x), 1)
CUDASIM_INEXACT(float, tanhf, tanh((double)x), 2)
CUDASIM_INEXACT(float, erfcf, erfc((double)x), 4)
CUDASIM_INEXACT(double, exp, exp(x), 1)
CUDASIM_INEXACT(double, log, log(x), 1)
CUDASIM_INEXACT(double, log1p, log1p(x), 1)
CUDASIM_INEXACT(double, sin, sin(x), 2)
CUDASIM_INEXACT(double, cos, cos(x), 2)
#define rsqrtf(x_) cudasim_rsqrtf(x_)
#define expf(x_) cudasim_expf(x_)
#define exp2f(x_) cudasim_exp2f(x_)
#define logf(x_) cudasim_logf(x_)
#define tanhf(x_) cudasim_tanhf(x_)
#define erfcf(x_) cudasim_erfcf(x_)
#define exp(x_) cudasim_exp(x_)
#define log(x_) cudasim_log(x_)
#define log1p(x_) cudasim_log1p(x_)
#define sin(x_) cudasim_sin(x_)
#define cos(x_) cudasim_cos(x_)

#endif
