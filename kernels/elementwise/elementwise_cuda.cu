/* SPDX-License-Identifier: Apache-2.0
 *
 * add, scale, cast, copy and accumulate; the formulas stand in
 * elementwise_ref.c. */
#include "map.cuh"

using namespace loong_cuda;

namespace {

struct add_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = in[0].v[i] + in[1].v[i];
        }
    }
};

struct scale_fn {
    float factor;
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = factor * in[0].v[i];
        }
    }
};

struct copy_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        *out = in[0];
    }
};

} // namespace

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    const mat_t arg[3] = {mat_arg(call, 0), mat_arg(call, 1),
                          mat_out(call, 0)};
    return map<2, 1>(call, add_fn(), arg);
}

static loong_status_t run_scale(const loong_kernel_call_t *call)
{
    const loong_scale_attr_t *a =
        static_cast<const loong_scale_attr_t *>(call->query->attr);
    const mat_t arg[2] = {mat_arg(call, 0), mat_out(call, 0)};
    scale_fn fn = {(float)a->factor};
    return map<1, 1>(call, fn, arg);
}

/* y = x, or y = y + x. */
static loong_status_t run_copy(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    mat_t y = mat_out(call, 0);
    const mat_t copied[2] = {x, y};
    const mat_t added[3] = {y, x, y};
    return call->accumulate & 1 ? map<2, 1>(call, add_fn(), added)
                                : map<1, 1>(call, copy_fn(), copied);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason);
}

CUDA_KERNEL(add, support, NULL, run_add);
CUDA_KERNEL(scale, support, NULL, run_scale);
CUDA_KERNEL(cast, support, NULL, run_copy);
CUDA_KERNEL(copy, support, NULL, run_copy);
CUDA_KERNEL(accumulate, support, NULL, run_copy);
