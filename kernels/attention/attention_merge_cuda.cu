/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_merge; the formula stands in attention_merge_ref.c. A thread has up
 * to eight channels of a head; the first of a head also has its lse. */
#include "map.cuh"

using namespace loong_cuda;

namespace {

struct merge_t {
    mat_t a, lse_a, b, lse_b, o, lse;
    int64_t width; /* of a head */
};

/* Weights of a and b, and the lse of both. */
__device__ __forceinline__ float weigh(float la, float lb, float *wa,
                                       float *wb)
{
    float top = fmaxf(la, lb);
    if (top == -INFINITY) {
        *wa = *wb = 0.0f;
        return top;
    }
    float ea = expf(la - top);
    float eb = expf(lb - top);
    *wa = ea / (ea + eb);
    *wb = eb / (ea + eb);
    return top + logf(ea + eb);
}

/* o may be the memory of a, lse is read before it is written: a head is one
 * warp's. */
__global__ void __launch_bounds__(BLOCK)
    merge_heads(merge_t m)
{
    int lane = (int)threadIdx.x % WARP;
    int64_t heads = m.lse.cols;
    int64_t units = m.o.rows * heads;
    for (int64_t u = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
         u < units; u += (int64_t)gridDim.x * WARPS) {
        int64_t t = u / heads;
        int64_t head = u % heads;
        float wa = 0.0f;
        float wb = 0.0f;
        float lse = weigh(row_of<float>(m.lse_a, t)[head],
                          row_of<float>(m.lse_b, t)[head], &wa, &wb);
        for (int64_t c = lane * PACK; c < m.width; c += WARP * PACK) {
            int n = least(PACK, m.width - c);
            pack_t x = load_at(m.a, t, head * m.width + c, n);
            pack_t y = load_at(m.b, t, head * m.width + c, n);
            for (int i = 0; i < PACK; i++) {
                x.v[i] = wa * x.v[i] + wb * y.v[i];
            }
            store_at(m.o, t, head * m.width + c, x, n);
        }
        __syncwarp();
        if (lane == 0) {
            row_of<float>(m.lse, t)[head] = lse;
        }
    }
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    merge_t m = {mat_arg(call, 0), mat_arg(call, 1), mat_arg(call, 2),
                 mat_arg(call, 3), mat_out(call, 0), mat_out(call, 1), 0};
    m.width = m.o.cols / m.lse.cols;
    LOONG_LAUNCH((merge_heads),
                 grid_of(call, (m.o.rows * m.lse.cols + WARPS - 1) / WARPS),
                 dim3(BLOCK), 0, stream_of(call), m);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1 | 1u << 3 | 1u << 5, 0, reason);
}

CUDA_KERNEL(attention_merge, support, NULL, run);
