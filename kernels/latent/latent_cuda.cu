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
template <class T> struct halves_fn {
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
    bool aligned() const
    {
        return x.packed && y.packed &&
               (inner | width | x_width | x_begin | y_width | y_begin) % PACK ==
                   0;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        int64_t i = col % width;
        int64_t end = i < inner ? inner : width;
        int64_t from = 0;
        pack_t out = {{0}};
        bool within = WHOLE || i + n <= end; /* one part */
        if (within) {
            const mat_t &m = find(col, &from);
            return load_as<T, WHOLE>(m, row, from, n);
        }
#pragma unroll
        for (int j = 0; j < PACK && j < n; j++) {
            const mat_t &m = find(col + j, &from);
            out.v[j] = widen(row_of<T>(m, row)[from]);
        }
        return out;
    }
};

/* The sum over heads of channels begin .. of a head. */
template <class T> struct sum_fn {
    mat_t x;
    int64_t heads, width, begin;
    bool aligned() const
    {
        return x.packed && (width | begin) % PACK == 0;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t sum = {{0}};
        for (int64_t h = 0; h < heads; h++) {
            pack_t p =
                load_as<T, WHOLE>(x, row, h * width + begin + col, n);
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
    const int64_t nope = a->nope;
    const int64_t none = 0;
    LOONG_TRY(generate<halves_fn>(call, mat_out(call, 0), kv, mat_arg(call, 1),
                                  nope, nope + a->rope, nope + a->v, none, none,
                                  none));
    return generate<halves_fn>(call, mat_out(call, 1), kv, kv, (int64_t)a->v,
                               (int64_t)a->v, nope + a->v, nope, none, none);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    const loong_latent_attr_t *a = attr_of(call);
    mat_t k = mat_arg(call, 0);
    const int64_t nope = a->nope;
    const int64_t none = 0;
    LOONG_TRY(generate<halves_fn>(call, mat_out(call, 0), k, mat_arg(call, 1),
                                  nope, nope + a->v, nope + a->rope, none,
                                  (int64_t)a->v, none));
    return generate<sum_fn>(call, mat_out(call, 1), k, (int64_t)a->heads,
                            nope + a->rope, nope);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 0, reason) &&
           cuda_support_same(query, 0, reason);
}

CUDA_KERNEL(latent_keys, support, NULL, run);
CUDA_KERNEL(latent_keys_grad, support, NULL, run_grad);
