/* SPDX-License-Identifier: Apache-2.0
 *
 * add, multiply, scale, cast, copy and accumulate; the formulas stand in
 * elementwise_ref.c. Bytes an element: those of its operands (map.cuh). */
#include "copy.cuh"

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

struct multiply_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = in[0].v[i] * in[1].v[i];
        }
    }
};

struct scale_fn {
    float factor, shift;
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = factor * in[0].v[i] + shift;
        }
    }
};

} // namespace

/* Two operands of one shape. */
template <class Fn>
static loong_status_t run_two(const loong_kernel_call_t *call, Fn fn)
{
    const mat_t arg[3] = {mat_arg(call, 0), mat_arg(call, 1), mat_out(call, 0)};
    return map<2, 1>(call, fn, arg);
}

static loong_status_t run_add(const loong_kernel_call_t *call)
{
    return run_two(call, add_fn());
}

static loong_status_t run_multiply(const loong_kernel_call_t *call)
{
    return run_two(call, multiply_fn());
}

static loong_status_t run_scale(const loong_kernel_call_t *call)
{
    const loong_scale_attr_t *a =
        static_cast<const loong_scale_attr_t *>(call->query->attr);
    const mat_t arg[2] = {mat_arg(call, 0), mat_out(call, 0)};
    scale_fn fn = {(float)a->factor, (float)a->shift};
    return map<1, 1>(call, fn, arg);
}

static loong_status_t run_copy(const loong_kernel_call_t *call)
{
    return copy(call, mat_arg(call, 0), mat_out(call, 0),
                (call->accumulate & 1u) != 0);
}

static bool support_same(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason) &&
           cuda_support_same(query, 0, reason);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason);
}

CUDA_KERNEL(add, support_same, NULL, run_add);
CUDA_KERNEL(multiply, support_same, NULL, run_multiply);
CUDA_KERNEL(scale, support_same, NULL, run_scale);
CUDA_KERNEL(cast, support, NULL, run_copy);
CUDA_KERNEL(copy, support, NULL, run_copy);
CUDA_KERNEL(accumulate, support, NULL, run_copy);
