/* SPDX-License-Identifier: Apache-2.0
 *
 * softmax_cross_entropy and its gradient; the formulas stand in logits_ref.c. A
 * block takes a row of logits: they are read twice, the second time from a
 * cache. */
#include "map.cuh"

using namespace loong_cuda;

namespace
{

struct logits_t {
    mat_t x;
    const int32_t *labels;
    const float *weight;
    float *loss;
    float *lse;
    loong_device_error_t *error;
};

/* The class of a row; -1: none. One that is none is told. */
__device__ __forceinline__ int64_t class_of(const int32_t *labels, int64_t row,
                                            int64_t classes,
                                            loong_device_error_t *error)
{
    int32_t label = labels[row];
    bool there = label >= 0 && label < classes;
    if (!there && label != LOONG_IGNORE_LABEL &&
        atomicCAS(&error->kind, 0, (int)LOONG_DEVICE_ERROR_LABEL) == 0) {
        error->value = label;
        error->place = row;
        error->end = classes;
    }
    return there ? label : -1;
}

__global__ void __launch_bounds__(BLOCK) logits_kernel(logits_t a)
{
    LOONG_SHARED(float, room, WARPS);
    for (int64_t row = blockIdx.x; row < a.x.rows; row += gridDim.x) {
        float top = -INFINITY;
        float ones = 0.0f; /* apart: what is beside them is not rounded away */
        float rest = 0.0f;
        for (int64_t c = threadIdx.x; c < a.x.cols; c += BLOCK) {
            top = fmaxf(top, load_one(a.x, row, c));
        }
        top = block_max(top, room);
        for (int64_t c = threadIdx.x; c < a.x.cols; c += BLOCK) {
            float below = load_one(a.x, row, c) - top;
            ones += below == 0.0f ? 1.0f : 0.0f;
            rest += below == 0.0f ? 0.0f : expf(below);
        }
        ones = block_sum(ones, room);
        rest = block_sum(rest, room);
        if (threadIdx.x == 0) {
            int64_t label = class_of(a.labels, row, a.x.cols, a.error);
            float more = log1pf(ones - 1.0f + rest);
            a.lse[row] = top + more;
            a.loss[row] =
                label < 0
                    ? 0.0f
                    : a.weight[row] * (top - load_one(a.x, row, label) + more);
        }
    }
}

template <class T> struct logits_grad_fn {
    mat_t x;
    const int32_t *labels;
    const float *weight;
    const float *lse;
    const float *dloss;
    loong_device_error_t *error;
    bool aligned() const
    {
        return x.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        int64_t label = class_of(labels, row, x.cols, error);
        float by = label < 0 ? 0.0f : dloss[row] * weight[row];
        pack_t p = load_as<T, WHOLE>(x, row, col, n);
        for (int i = 0; i < PACK; i++) {
            float log_p = p.v[i] - lse[row];
            p.v[i] = by * (col + i == label ? expm1f(log_p) : expf(log_p));
        }
        return p;
    }
};

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    logits_t a = {mat_arg(call, 0),
                  static_cast<const int32_t *>(call->ptr[1]),
                  static_cast<const float *>(call->ptr[2]),
                  static_cast<float *>(call->ptr[3]),
                  static_cast<float *>(call->ptr[4]),
                  call->error};
    LOONG_LAUNCH((logits_kernel), grid_of(call, a.x.rows), dim3(BLOCK), 0,
                 stream_of(call), a);
    return launched(call);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    return generate<logits_grad_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                                    static_cast<const int32_t *>(call->ptr[1]),
                                    static_cast<const float *>(call->ptr[2]),
                                    static_cast<const float *>(call->ptr[3]),
                                    static_cast<const float *>(call->ptr[4]),
                                    call->error);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, ~1u, 1u << 1, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 2 | 1u << 3 | 1u << 4, 1u << 1, reason) &&
           cuda_support_same(query, ~(1u << 0 | 1u << 5), reason);
}

CUDA_KERNEL(softmax_cross_entropy, support, NULL, run);
CUDA_KERNEL(softmax_cross_entropy_grad, support_grad, NULL, run_grad);
