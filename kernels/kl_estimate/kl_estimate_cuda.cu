/* SPDX-License-Identifier: Apache-2.0
 *
 * kl_estimate and its gradient; the formulas stand in kl_estimate_ref.c. In
 * fp64: in fp32 the rounding of exp(d) - 1 is as large as the estimate where d
 * is small. */
#include "map.cuh"

using namespace loong_cuda;

namespace
{

struct kl_estimate_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            double d = (double)in[1].v[i] - (double)in[0].v[i];
            out->v[i] = (float)(expm1(d) - d);
        }
    }
};

/* dy, policy, reference -> dpolicy. */
struct kl_estimate_grad_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            double d = (double)in[2].v[i] - (double)in[1].v[i];
            out->v[i] = (float)(-(double)in[0].v[i] * expm1(d));
        }
    }
};

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const mat_t arg[3] = {mat_arg(call, 0), mat_arg(call, 1), mat_out(call, 0)};
    return map<2, 1>(call, kl_estimate_fn(), arg);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    const mat_t arg[4] = {mat_arg(call, 0), mat_arg(call, 1), mat_arg(call, 2),
                          mat_out(call, 0)};
    return map<3, 1>(call, kl_estimate_grad_fn(), arg);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, ~0u, 0, reason);
}

CUDA_KERNEL(kl_estimate, support, NULL, run);
CUDA_KERNEL(kl_estimate_grad, support, NULL, run_grad);
