/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between any two types, and sums of them: 2 to 8 bytes an element, no
 * arithmetic. */
#ifndef LOONG_COPY_CUH
#define LOONG_COPY_CUH

#include "map.cuh"

namespace loong_cuda {

struct copy_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        *out = in[0];
    }
};

template <class In, class Out>
loong_status_t copy_as(const loong_kernel_call_t *call, const mat_t *arg,
                       bool add)
{
    return add ? map_as<In, Out, true, 1, 1>(call, copy_fn(), arg)
               : map_as<In, Out, false, 1, 1>(call, copy_fn(), arg);
}

/* y = x, or y += x, of any types. */
static inline loong_status_t copy(const loong_kernel_call_t *call, mat_t x,
                                  mat_t y, bool add)
{
    const mat_t arg[2] = {x, y};
    if (x.half) {
        return y.half ? copy_as<half_t, half_t>(call, arg, add)
                      : copy_as<half_t, float>(call, arg, add);
    }
    return y.half ? copy_as<float, half_t>(call, arg, add)
                  : copy_as<float, float>(call, arg, add);
}

} // namespace loong_cuda

#endif
