/* SPDX-License-Identifier: Apache-2.0
 *
 * magnitude; the formula stands in magnitude_ref.c. */
#include "map.cuh"

using namespace loong_cuda;

namespace {

template <class T> struct magnitude_fn {
    mat_t x, s, m, b;
    bool times, plus;
    bool aligned() const
    {
        return x.packed && (!times || m.packed) && (!plus || b.packed);
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        pack_t p = load_as<T, WHOLE>(x, row, col, n);
        pack_t by = {};
        pack_t off = {};
        if (times) {
            by = load_as<float, WHOLE>(m, 0, col, n);
        }
        if (plus) {
            off = load_as<float, WHOLE>(b, 0, col, n);
        }
        for (int i = 0; i < n; i++) {
            float v = p.v[i] / sqrtf(row_of<float>(s, col + i)[0]);
            p.v[i] = v * (times ? by.v[i] : 1.0f) + (plus ? off.v[i] : 0.0f);
        }
        return p;
    }
};

bool has(const loong_kernel_query_t *q, int i)
{
    return q->num_in > i && q->arg[i].rank > 0;
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    mat_t x = mat_arg(call, 0);
    bool times = has(q, 2);
    bool plus = has(q, 3);
    return generate<magnitude_fn>(call, mat_out(call, 0), x, mat_arg(call, 1),
                                  times ? mat_arg(call, 2) : x,
                                  plus ? mat_arg(call, 3) : x, times, plus);
}

/* Vectors and statistics are fp32. */
static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    uint32_t wide = 1u << 1 | (has(query, 2) ? 1u << 2 : 0u) |
                    (has(query, 3) ? 1u << 3 : 0u);
    return cuda_support(query, wide, 0, reason) &&
           cuda_support_same(query, wide, reason);
}

CUDA_KERNEL(magnitude, support, NULL, run);
