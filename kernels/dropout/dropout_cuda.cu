/* SPDX-License-Identifier: Apache-2.0
 *
 * dropout; the mask stands in dropout_ref.c. Eight channels are two Philox
 * blocks, or parts of three. */
#include "dropout.h"
#include "map.cuh"

using namespace loong_cuda;

namespace {

template <class T> struct dropout_fn {
    mat_t x;
    const int64_t *keys;
    uint64_t stream;
    int64_t first;
    uint32_t limit;
    float factor;
    bool aligned() const
    {
        return x.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *frame) const
    {
        uint64_t key = loongi_dropout_key(frame->seed, stream);
        pack_t y = load_as<T, WHOLE>(x, row, col, n);
        uint32_t words[4];
        for (int i = 0; i < PACK; i++) {
            int64_t channel = first + col + i;
            if (i == 0 || channel % 4 == 0) {
                loongi_dropout_words(key, frame->step, keys[row],
                                     (uint32_t)(channel / 4), words);
            }
            bool keep = words[channel % 4] >> 8 >= limit;
            y.v[i] = keep ? y.v[i] * factor : 0.0f;
        }
        return y;
    }
};

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_dropout_attr_t *a =
        static_cast<const loong_dropout_attr_t *>(call->query->attr);
    return generate<dropout_fn>(
        call, mat_out(call, 0), mat_arg(call, 0),
        static_cast<const int64_t *>(call->ptr[1]), a->stream,
        a->first, loongi_dropout_limit(a->p), (float)(1.0 / (1.0 - a->p)));
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 0, 1u << 1, reason) &&
           cuda_support_same(query, 1u << 1, reason);
}

CUDA_KERNEL(dropout, support, NULL, run);
