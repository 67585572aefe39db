/* SPDX-License-Identifier: Apache-2.0
 *
 * sign_step; the formula stands in loong/moe.h. */
#include "loong/moe.h"
#include "map.cuh"

using namespace loong_cuda;

namespace {

template <class T> struct sign_fn {
    mat_t grad, param;
    float rate;
    bool aligned() const
    {
        return grad.packed && param.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t g = load_as<T, WHOLE>(grad, row, col, n);
        pack_t p = load_as<T, WHOLE>(param, row, col, n);
        for (int i = 0; i < PACK; i++) {
            float step = g.v[i] > 0.0f ? -rate : g.v[i] < 0.0f ? rate : 0.0f;
            p.v[i] += step;
        }
        return p;
    }
};

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_sign_step_attr_t *a =
        static_cast<const loong_sign_step_attr_t *>(call->query->attr);
    mat_t p = mat_out(call, 0);
    return generate<sign_fn>(call, p, mat_arg(call, 0), p, (float)a->rate);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, ~0u, 0, reason);
}

CUDA_KERNEL(sign_step, support, NULL, run);
