/* SPDX-License-Identifier: Apache-2.0
 *
 * muon_momentum, muon_normalize, muon_polynomial, muon_step; the formulas stand
 * in loong/update.h. A thread takes an element after the other: the products
 * between them take most of the time. */
#include "map.cuh"
#include "muon.h"

using namespace loong_cuda;

namespace
{

__device__ __forceinline__ int64_t first_element()
{
    return (int64_t)blockIdx.x * BLOCK + threadIdx.x;
}

__device__ __forceinline__ int64_t all_threads()
{
    return (int64_t)gridDim.x * BLOCK;
}

__device__ __forceinline__ float *at(const mat_t &m, int64_t row, int64_t col)
{
    return row_of<float>(m, row) + col;
}

__global__ void __launch_bounds__(BLOCK)
    momentum_kernel(mat_t g, mat_t b, mat_t u, loong_muon_attr_t a,
                    const loong_frame_t *frame)
{
    float scale = (float)frame->grad_scale;
    float mu = (float)a.momentum;
    float rest = (float)(1.0 - a.momentum);
    for (int64_t e = first_element(); e < u.rows * u.cols; e += all_threads()) {
        int64_t i = e / u.cols;
        int64_t k = loongi_muon_part_row(&a, g.rows, i);
        int64_t l = e % u.cols - a.col;
        float step = 0.0f;
        if (k >= 0 && l >= 0 && l < g.cols) {
            float own = rest * (*at(g, k, l) * scale);
            float m = mu * *at(b, k, l) + own;
            *at(b, k, l) = m;
            step = a.nesterov ? mu * m + own : m;
        }
        *at(u, i, e % u.cols) = step;
    }
}

__global__ void __launch_bounds__(BLOCK)
    normalize_kernel(mat_t u, const double *stats, mat_t x)
{
    float norm = (float)fmax(sqrt(stats[0]), 1e-7);
    for (int64_t e = first_element(); e < u.rows * u.cols; e += all_threads()) {
        *at(x, e / u.cols, e % u.cols) = *at(u, e / u.cols, e % u.cols) / norm;
    }
}

__global__ void __launch_bounds__(BLOCK)
    polynomial_kernel(mat_t a, mat_t p, mat_t b)
{
    for (int64_t e = first_element(); e < a.rows * a.cols; e += all_threads()) {
        int64_t i = e / a.cols;
        int64_t j = e % a.cols;
        *at(b, i, j) = (i == j ? 3.4445f : 0.0f) - 4.7750f * *at(a, i, j) +
                       2.0315f * *at(p, i, j);
    }
}

__global__ void __launch_bounds__(BLOCK)
    step_kernel(mat_t o, mat_t p, mat_t low, loong_muon_attr_t a,
                const loong_frame_t *frame)
{
    float lr = (float)frame->lr[a.group];
    float scale = (float)a.scale;
    float decay = (float)a.weight_decay;
    for (int64_t e = first_element(); e < p.rows * p.cols; e += all_threads()) {
        int64_t k = e / p.cols;
        int64_t l = e % p.cols;
        float change = scale * *at(o, loongi_muon_whole_row(&a, k), a.col + l);
        if (!p.half) {
            float w = *at(p, k, l);
            *at(p, k, l) = w - lr * (change + decay * w);
            continue;
        }
        unsigned short *high = static_cast<unsigned short *>(p.p) + e;
        unsigned short *rest = static_cast<unsigned short *>(low.p) + e;
        unsigned bits = ((unsigned)*high - (*rest >> 15)) << 16 | *rest;
        float w = __uint_as_float(bits);
        bits = __float_as_uint(w - lr * (change + decay * w));
        *rest = (unsigned short)bits;
        *high = (unsigned short)((bits >> 16) + (bits >> 15 & 1u));
    }
}

dim3 grid_of_elements(const loong_kernel_call_t *call, const mat_t &m)
{
    return grid_of(call, (m.rows * m.cols + BLOCK - 1) / BLOCK);
}

} // namespace

static loong_status_t run_momentum(const loong_kernel_call_t *call)
{
    mat_t u = mat_out(call, 1);
    LOONG_LAUNCH((momentum_kernel), grid_of_elements(call, u), dim3(BLOCK), 0,
                 stream_of(call), mat_arg(call, 0), mat_out(call, 0), u,
                 *static_cast<const loong_muon_attr_t *>(call->query->attr),
                 call->device_frame);
    return launched(call);
}

static loong_status_t run_normalize(const loong_kernel_call_t *call)
{
    mat_t u = mat_arg(call, 0);
    LOONG_LAUNCH((normalize_kernel), grid_of_elements(call, u), dim3(BLOCK), 0,
                 stream_of(call), u, static_cast<double *>(call->ptr[1]),
                 mat_out(call, 0));
    return launched(call);
}

static loong_status_t run_polynomial(const loong_kernel_call_t *call)
{
    mat_t a = mat_arg(call, 0);
    LOONG_LAUNCH((polynomial_kernel), grid_of_elements(call, a), dim3(BLOCK), 0,
                 stream_of(call), a, mat_arg(call, 1), mat_out(call, 0));
    return launched(call);
}

static loong_status_t run_step(const loong_kernel_call_t *call)
{
    mat_t p = mat_out(call, 0);
    LOONG_LAUNCH((step_kernel), grid_of_elements(call, p), dim3(BLOCK), 0,
                 stream_of(call), mat_arg(call, 0), p, mat_out(call, 1),
                 *static_cast<const loong_muon_attr_t *>(call->query->attr),
                 call->device_frame);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 0, 0, reason);
}

static bool support_stats(const loong_kernel_query_t *query,
                          char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 0, 1u << 1, reason);
}

static bool support_low(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 0, 1u << 2, reason);
}

CUDA_KERNEL(muon_momentum, support, NULL, run_momentum);
CUDA_KERNEL(muon_normalize, support_stats, NULL, run_normalize);
CUDA_KERNEL(muon_polynomial, support, NULL, run_polynomial);
CUDA_KERNEL(muon_step, support_low, NULL, run_step);
