/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu, gelu and their gradients; the formulas stand in activation_ref.c.
 *
 * Bytes an element of bf16: swiglu 6, its gradient 10, gelu 4, its gradient 6;
 * about 10, 16, 30 and 45 instructions: bound by memory (map.cuh), but the two
 * of gelu in fp32. */
#include "gelu.cuh"
#include "map.cuh"

using namespace loong_cuda;

namespace {

/* 1 / (1 + e^-x), for results of type T. To bf16, which rounds by 2^-9, by the
 * units for powers and quotients: wrong by at most 2^-16 of the result, which
 * is mostly the rounding of -x log2(e) for |x| up to 88. */
template <class T> __device__ __forceinline__ float sigmoid(float x);

template <> __device__ __forceinline__ float sigmoid<float>(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <> __device__ __forceinline__ float sigmoid<half_t>(float x)
{
    return inverse_of(1.0f + exp2_of(-LOG2_E * x));
}

template <class T> struct swiglu_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            float a = in[0].v[i];
            out->v[i] = a * sigmoid<T>(a) * in[1].v[i];
        }
    }
};

/* dy, a, b -> da, db. */
template <class T> struct swiglu_grad_fn {
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            float d = in[0].v[i];
            float a = in[1].v[i];
            float s = sigmoid<T>(a);
            out[0].v[i] = d * in[2].v[i] * s * (1.0f + a * (1.0f - s));
            out[1].v[i] = d * a * s;
        }
    }
};

struct gelu_fn {
    loong_activation_t form;
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = gelu_of(in[0].v[i], form);
        }
    }
};

struct gelu_grad_fn {
    loong_activation_t form;
    __device__ void operator()(const pack_t *in, pack_t *out) const
    {
        for (int i = 0; i < PACK; i++) {
            out->v[i] = in[0].v[i] * gelu_slope(in[1].v[i], form);
        }
    }
};

} // namespace

static loong_status_t run_swiglu(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    mat_t y = mat_out(call, 0);
    const mat_t arg[3] = {mat_columns(x, 0, y.cols),
                          mat_columns(x, y.cols, y.cols), y};
    return x.half ? map_as<half_t, half_t, false, 2, 1>(
                        call, swiglu_fn<half_t>(), arg, rows_by(call, 1))
                  : map_as<float, float, false, 2, 1>(
                        call, swiglu_fn<float>(), arg, rows_by(call, 1));
}

static loong_status_t run_swiglu_grad(const loong_kernel_call_t *call)
{
    mat_t dy = mat_arg(call, 0);
    mat_t x = mat_arg(call, 1);
    mat_t dx = mat_out(call, 0);
    const mat_t arg[5] = {dy, mat_columns(x, 0, dy.cols),
                          mat_columns(x, dy.cols, dy.cols),
                          mat_columns(dx, 0, dy.cols),
                          mat_columns(dx, dy.cols, dy.cols)};
    return x.half ? map_as<half_t, half_t, false, 3, 2>(
                        call, swiglu_grad_fn<half_t>(), arg, rows_by(call, 2))
                  : map_as<float, float, false, 3, 2>(
                        call, swiglu_grad_fn<float>(), arg, rows_by(call, 2));
}

static loong_status_t run_gelu(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a =
        static_cast<const loong_gelu_attr_t *>(call->query->attr);
    const mat_t arg[2] = {mat_arg(call, 0), mat_out(call, 0)};
    gelu_fn fn = {a->form};
    return map<1, 1>(call, fn, arg);
}

static loong_status_t run_gelu_grad(const loong_kernel_call_t *call)
{
    const loong_gelu_attr_t *a =
        static_cast<const loong_gelu_attr_t *>(call->query->attr);
    const mat_t arg[3] = {mat_arg(call, 0), mat_arg(call, 1),
                          mat_out(call, 0)};
    gelu_grad_fn fn = {a->form};
    return map<2, 1>(call, fn, arg);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason) &&
           cuda_support_same(query, 0, reason);
}

/* Offsets are integers; `from` operands stand before them. */
static bool support_counted(const loong_kernel_query_t *query, int from,
                            char reason[LOONG_REASON_SIZE])
{
    uint32_t offsets = query->num_in > from ? 1u << from : 0;
    return cuda_support(query, 0, offsets, reason) &&
           cuda_support_same(query, offsets, reason);
}

static bool support_swiglu(const loong_kernel_query_t *query,
                           char reason[LOONG_REASON_SIZE])
{
    return support_counted(query, 1, reason);
}

static bool support_swiglu_grad(const loong_kernel_query_t *query,
                                char reason[LOONG_REASON_SIZE])
{
    return support_counted(query, 2, reason);
}

CUDA_KERNEL(swiglu, support_swiglu, NULL, run_swiglu);
CUDA_KERNEL(swiglu_grad, support_swiglu_grad, NULL, run_swiglu_grad);
CUDA_KERNEL(gelu, support, NULL, run_gelu);
CUDA_KERNEL(gelu_grad, support, NULL, run_gelu_grad);
