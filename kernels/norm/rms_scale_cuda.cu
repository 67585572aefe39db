/* SPDX-License-Identifier: Apache-2.0
 *
 * mean_squares, rms_scale and their gradients; the formulas stand in
 * rms_scale_ref.c. */
#include "norm/norm.cuh"

using namespace loong_cuda;

namespace {

/* ---- mean_squares -------------------------------------------------------- */

template <int TEAM>
__global__ void __launch_bounds__(BLOCK)
    squares_kernel(mat_t x, mat_t m, float factor)
{
    LOONG_SHARED(float, room, WARPS);
    enum { TEAMS = BLOCK / TEAM };
    int64_t rows = x.rows;
    int64_t first = (int64_t)threadIdx.x % TEAM * PACK;
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
         row < rows; row += (int64_t)gridDim.x * TEAMS) {
        float sum = 0.0f;
        for (int64_t c = first; c < x.cols; c += TEAM * PACK) {
            pack_t p = load_at(x, row, c, least(PACK, x.cols - c));
            for (int i = 0; i < PACK; i++) {
                sum += p.v[i] * p.v[i];
            }
        }
        sum = team_sum<TEAM>(sum, room);
        if (first == 0) {
            *statistic(m, row, 0) = sum * factor;
        }
    }
}

template <class T> struct squares_grad_fn {
    mat_t x, dm;
    float factor;
    bool aligned() const
    {
        return x.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        float by = factor * *statistic(dm, row, 0);
        pack_t p = load_as<T, WHOLE>(x, row, col, n);
        for (int i = 0; i < PACK; i++) {
            p.v[i] *= by;
        }
        return p;
    }
};

/* ---- rms_scale ----------------------------------------------------------- */

__device__ __forceinline__ float inverse_root(const mat_t &m, int64_t row,
                                              float eps)
{
    return 1.0f / sqrtf(*statistic(m, row, 0) + eps);
}

template <class T> struct scale_fn {
    mat_t x, m, w;
    float eps;
    bool aligned() const
    {
        return x.packed && w.packed;
    }
    template <bool WHOLE>
    __device__ pack_t at(int64_t row, int64_t col, int n,
                         const loong_frame_t *) const
    {
        float r = inverse_root(m, row, eps);
        pack_t p = load_as<T, WHOLE>(x, row, col, n);
        pack_t by = load_as<float, WHOLE>(w, 0, col, n);
        for (int i = 0; i < PACK; i++) {
            p.v[i] = p.v[i] * r * by.v[i];
        }
        return p;
    }
};

struct scale_grad_t {
    mat_t dy, x, m, w, dx, dm;
    float eps;
    column_sums_t sums; /* for dw */
};

/* A row: dm, and its part of dw; then dx, which may be the memory of dy. */
template <int TEAM, bool NEAR>
__device__ __forceinline__ void scale_back(const scale_grad_t &a,
                                           const own_sums_t &s, int64_t row,
                                           float *room)
{
    int64_t d = a.sums.d;
    int64_t first = (int64_t)threadIdx.x % TEAM * PACK;
    float r = inverse_root(a.m, row, a.eps);
    float dot = 0.0f;
    for (int64_t c = first; c < d; c += TEAM * PACK) {
        int n = least(PACK, d - c);
        pack_t dy = load_at(a.dy, row, c, n);
        pack_t x = load_at(a.x, row, c, n);
        pack_t w = load_at(a.w, 0, c, n);
        pack_t dx;
        pack_t dw;
        for (int i = 0; i < PACK; i++) {
            dot += dy.v[i] * w.v[i] * x.v[i];
            dx.v[i] = dy.v[i] * w.v[i] * r;
            dw.v[i] = dy.v[i] * (x.v[i] * r);
        }
        if (s.of[0] != NULL) {
            add_columns<TEAM, NEAR>(s.of[0], c, dw, n, d % PACK == 0);
        }
        store_at(a.dx, row, c, dx, n); /* these channels were read */
    }
    dot = team_sum<TEAM>(dot, room);
    if (first == 0) {
        *statistic(a.dm, row, 0) = -0.5f * r * r * r * dot;
    }
}

template <int TEAM, bool NEAR>
__global__ void __launch_bounds__(BLOCK)
    scale_grad_kernel(scale_grad_t a)
{
    LOONG_SHARED(float, room, WARPS);
    LOONG_SHARED_DYNAMIC(float, sums);
    enum { TEAMS = BLOCK / TEAM };
    int64_t rows = a.x.rows;
    own_sums_t own = clear_sums<TEAM, NEAR>(a.sums, sums);
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
         row < rows; row += (int64_t)gridDim.x * TEAMS) {
        scale_back<TEAM, NEAR>(a, own, row, room);
    }
    if (NEAR) {
        __syncthreads();
        add_teams<TEAM>(a.sums, sums);
    }
}

float eps_of(const loong_kernel_call_t *call)
{
    return (float)static_cast<const loong_norm_attr_t *>(call->query->attr)
        ->eps;
}

double factor_of(const loong_kernel_call_t *call)
{
    return static_cast<const loong_mean_squares_attr_t *>(call->query->attr)
        ->factor;
}

template <int TEAM>
loong_status_t scale_grad_by(const loong_kernel_call_t *call,
                             const scale_grad_t &a)
{
    size_t shared = sums_bytes<TEAM>(a.sums);
    size_t room = sums_room(call);
    if (TEAM == WARP || shared <= room) {
        LOONG_TRY(allow_shared(call, scale_grad_kernel<TEAM, true>, room));
        LOONG_LAUNCH((scale_grad_kernel<TEAM, true>), dim3(FOLD_PARTS),
                     dim3(BLOCK), shared, stream_of(call), a);
    } else {
        LOONG_LAUNCH((scale_grad_kernel<BLOCK, false>), dim3(FOLD_PARTS),
                     dim3(BLOCK), 0, stream_of(call), a);
    }
    return launched(call);
}

} // namespace

static loong_status_t run_squares(const loong_kernel_call_t *call)
{
    mat_t x = mat_arg(call, 0);
    float factor = (float)factor_of(call);
    if (x.cols <= WARP_WIDTH) {
        LOONG_LAUNCH((squares_kernel<WARP>),
                     grid_of(call, (x.rows + WARPS - 1) / WARPS), dim3(BLOCK),
                     0, stream_of(call), x, mat_out(call, 0), factor);
    } else {
        LOONG_LAUNCH((squares_kernel<BLOCK>), grid_of(call, x.rows),
                     dim3(BLOCK), 0, stream_of(call), x, mat_out(call, 0),
                     factor);
    }
    return launched(call);
}

static loong_status_t run_squares_grad(const loong_kernel_call_t *call)
{
    return generate<squares_grad_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                                     mat_arg(call, 1),
                                     (float)(2.0 * factor_of(call)));
}

static loong_status_t run_scale(const loong_kernel_call_t *call)
{
    return generate<scale_fn>(call, mat_out(call, 0), mat_arg(call, 0),
                              mat_arg(call, 1), mat_arg(call, 2),
                              eps_of(call));
}

static loong_status_t run_scale_grad(const loong_kernel_call_t *call)
{
    scale_grad_t a;
    a.dy = mat_arg(call, 0);
    a.x = mat_arg(call, 1);
    a.m = mat_arg(call, 2);
    a.w = mat_arg(call, 3);
    a.dx = mat_out(call, 0);
    a.dm = mat_out(call, 1);
    a.eps = eps_of(call);
    a.sums = sums_of(call, 2, a.x.cols);
    if (a.x.cols <= WARP_WIDTH) {
        LOONG_TRY(scale_grad_by<WARP>(call, a));
    } else {
        LOONG_TRY(scale_grad_by<BLOCK>(call, a));
    }
    return fold_sums(call, 2, a.sums);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return fold_bytes(loong_karg_cols(&query->arg[1]));
}

static bool support_squares(const loong_kernel_query_t *query,
                            char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1, 0, reason) &&
           cuda_support_same(query, 1u << 1, reason);
}

static bool support_scale(const loong_kernel_query_t *query,
                          char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 1 | 1u << 2, 0, reason) &&
           cuda_support_same(query, 1u << 1 | 1u << 2, reason);
}

static bool support_scale_grad(const loong_kernel_query_t *query,
                               char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, 1u << 2 | 1u << 3 | 1u << 5 | 1u << 6, 0,
                        reason);
}

CUDA_KERNEL(mean_squares, support_squares, NULL, run_squares);
CUDA_KERNEL(mean_squares_grad, support_squares, NULL, run_squares_grad);
CUDA_KERNEL(rms_scale, support_scale, NULL, run_scale);
CUDA_KERNEL(rms_scale_grad, support_scale_grad, workspace, run_scale_grad);
