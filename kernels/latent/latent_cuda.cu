/* SPDX-License-Identifier: Apache-2.0
 *
 * latent_keys and its gradient; the formulas stand in latent_ref.c. A piece of
 * eight channels of an output that lies in one part of a head is copied as it
 * is; one that crosses parts goes element by element. */
#include "loong/latent.h"
#include "map.cuh"

using namespace loong_cuda;

namespace {

/* Outputs whose heads have two parts: the first `inner` of `width` channels
 * come from columns head * from_width + from of x; the others from columns
 * head * rest_width + rest of y. */
struct halves_fn {
    mat_t x, y;
    int64_t inner, width;
    int64_t x_width, x_begin;
    int64_t y_width, y_begin;

    /* Column of an output -> matrix and column that it comes from. */
    __device__ const mat_t &find(int64_t col, int64_t *at) const
    {
        int64_t head = col / width;
        int64_t i = col % width;
        bool first = i < inner;
        *at = first ? head * x_width + x_begin + i
                    : head * y_width + y_begin + i - inner;
        return first ? x : y;
    }
    __device__ pack_t operator()(int64_t row, int64_t col, int n,
                                 const loong_frame_t *) const
    {
        int64_t i = col % width;
        int64_t end = i < inner ? inner : width;
        int64_t at = 0;
        pack_t out = {{0}};
        if (i + n <= end) {
            const mat_t &m = find(col, &at);
            return load_at(m, row, at, n);
        }
#pragma unroll
        for (int j = 0; j < PACK && j < n; j++) {
            const mat_t &m = find(col + j, &at);
            out.v[j] = load_one(m, row, at);
        }
        return out;
    }
};

/* The sum over heads of channels begin .. of a head. */
struct sum_fn {
    mat_t x;
    int64_t heads, width, begin;
    __device__ pack_t operator()(int64_t row, int64_t col, int n,
                                 const loong_frame_t *) const
    {
        pack_t sum = {{0}};
        for (int64_t h = 0; h < heads; h++) {
            pack_t p = load_at(x, row, h * width + begin + col, n);
            for (int i = 0; i < PACK; i++) {
                sum.v[i] += p.v[i];
            }
        }
        return sum;
    }
};

const loong_latent_attr_t *attr_of(const loong_kernel_call_t *call)
{
    return static_cast<const loong_latent_attr_t *>(call->query->attr);
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = attr_of(call);
    mat_t kv = mat_arg(call, 0);
    halves_fn keys = {kv, mat_arg(call, 1), a->nope, a->nope + a->rope,
                      a->nope + a->v, 0, 0, 0};
    halves_fn values = {kv, kv, a->v, a->v, a->nope + a->v, a->nope, 0, 0};
    LOONG_TRY(generate(call, keys, mat_out(call, 0)));
    return generate(call, values, mat_out(call, 1));
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = attr_of(call);
    mat_t k = mat_arg(call, 0);
    halves_fn kv = {k, mat_arg(call, 1), a->nope, a->nope + a->v,
                    a->nope + a->rope, 0, a->v, 0};
    sum_fn shared = {k, a->heads, a->nope + a->rope, a->nope};
    LOONG_TRY(generate(call, kv, mat_out(call, 0)));
    return generate(call, shared, mat_out(call, 1));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason);
}

CUDA_KERNEL(latent_keys, support, NULL, run);
CUDA_KERNEL(latent_keys_grad, support, NULL, run_grad);
