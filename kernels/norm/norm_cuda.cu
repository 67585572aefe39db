/* SPDX-License-Identifier: Apache-2.0
 *
 * rmsnorm, layernorm, each with what is added before and their gradients; the
 * formulas stand in rmsnorm_ref.c and layernorm_ref.c. A team of threads, a
 * warp or a block, takes a group of d channels: it reads it from memory once,
 * and again from the first cache. */
#include "norm/norm.cuh"

using namespace loong_cuda;

namespace {

struct norm_t {
    mat_t x, more, w, b; /* more: added to x, or to dx */
    mat_t y, mean, rstd, sum, dy;
    float eps;
    int64_t groups;  /* of a row */
    column_sums_t sums; /* for dw and db */
};

/* ---- forward ------------------------------------------------------------- */

/* x (+ more), rounded to storage where it is stored. */
template <bool ADD>
__device__ __forceinline__ pack_t first_read(const norm_t &a, int64_t row,
                                             int64_t col, int n)
{
    pack_t x = load_at(a.x, row, col, n);
    if (ADD) {
        pack_t more = load_at(a.more, row, col, n);
        for (int i = 0; i < PACK; i++) {
            x.v[i] += more.v[i];
        }
        x = stored_as(a.sum, x);
        store_at(a.sum, row, col, x, n);
    }
    return x;
}

template <int TEAM, bool CENTER, bool ADD>
__global__ void __launch_bounds__(BLOCK, 3) /* blocks: else some spill */
    norm_forward(norm_t a, const loong_frame_t *frame)
{
    LOONG_SHARED(float, room, WARPS);
    int64_t d = a.w.cols;
    int64_t units = rows_of(a.y, frame) * a.groups;
    int64_t first = (int64_t)threadIdx.x % TEAM * PACK;
    const mat_t &x = ADD ? a.sum : a.x;
    for (int64_t u = (int64_t)blockIdx.x * (BLOCK / TEAM) +
                     threadIdx.x / TEAM;
         u < units; u += (int64_t)gridDim.x * (BLOCK / TEAM)) {
        int64_t row = u / a.groups;
        int64_t col = u % a.groups * d;
        float total = 0.0f;
        float mean = 0.0f;
        for (int64_t c = first; c < d; c += TEAM * PACK) {
            pack_t p = first_read<ADD>(a, row, col + c, least(PACK, d - c));
            for (int i = 0; i < PACK; i++) {
                total += CENTER ? p.v[i] : p.v[i] * p.v[i];
            }
        }
        total = team_sum<TEAM>(total, room);
        if (CENTER) {
            mean = total / (float)d;
            total = 0.0f;
            for (int64_t c = first; c < d; c += TEAM * PACK) {
                int n = least(PACK, d - c);
                pack_t p = load_at(x, row, col + c, n);
#pragma unroll
                for (int i = 0; i < PACK && i < n; i++) {
                    total += (p.v[i] - mean) * (p.v[i] - mean);
                }
            }
            total = team_sum<TEAM>(total, room);
        }
        float r = 1.0f / sqrtf(total / (float)d + a.eps);
        for (int64_t c = first; c < d; c += TEAM * PACK) {
            int n = least(PACK, d - c);
            pack_t p = load_at(x, row, col + c, n);
            pack_t w = load_at(a.w, 0, c, n);
            for (int i = 0; i < PACK; i++) {
                p.v[i] = (p.v[i] - mean) * r * w.v[i];
            }
            if (CENTER && a.b.p != NULL) {
                pack_t b = load_at(a.b, 0, c, n);
                for (int i = 0; i < PACK; i++) {
                    p.v[i] += b.v[i];
                }
            }
            store_at(a.y, row, col + c, p, n);
        }
        if (first == 0) {
            *statistic(a.rstd, row, u % a.groups) = r;
            if (CENTER) {
                *statistic(a.mean, row, 0) = mean;
            }
        }
    }
}

/* ---- backward ------------------------------------------------------------ */

/* A group of a row: its statistics, and means of g norm(x) and of g. */
struct group_t {
    int64_t row, col;
    float mean, rstd;
    float dot, sum;
};

template <int TEAM, bool CENTER, bool NEAR>
__device__ __forceinline__ void measure(const norm_t &a, const own_sums_t &s,
                                        group_t &g, float *room)
{
    int64_t d = a.w.cols;
    float dot = 0.0f;
    float sum = 0.0f;
    for (int64_t c = (int64_t)threadIdx.x % TEAM * PACK; c < d;
         c += TEAM * PACK) {
        int n = least(PACK, d - c);
        pack_t dy = load_at(a.dy, g.row, g.col + c, n);
        pack_t x = load_at(a.x, g.row, g.col + c, n);
        pack_t w = load_at(a.w, 0, c, n);
        pack_t dw;
        for (int i = 0; i < PACK; i++) { /* dy is 0 behind the n */
            float norm = (x.v[i] - g.mean) * g.rstd;
            dw.v[i] = dy.v[i] * norm;
            dot += dy.v[i] * w.v[i] * norm;
            sum += dy.v[i] * w.v[i];
        }
        if (s.of[0] != NULL) {
            add_columns<TEAM, NEAR>(s.of[0], c, dw, n, d % PACK == 0);
        }
        if (s.of[1] != NULL) {
            add_columns<TEAM, NEAR>(s.of[1], c, dy, n, d % PACK == 0);
        }
    }
    g.dot = team_sum<TEAM>(dot, room) / (float)d;
    g.sum = CENTER ? team_sum<TEAM>(sum, room) / (float)d : 0.0f;
}

template <int TEAM>
__device__ __forceinline__ void write_dx(const norm_t &a, const group_t &g)
{
    int64_t d = a.w.cols;
    for (int64_t c = (int64_t)threadIdx.x % TEAM * PACK; c < d;
         c += TEAM * PACK) {
        int n = least(PACK, d - c);
        pack_t dy = load_at(a.dy, g.row, g.col + c, n);
        pack_t x = load_at(a.x, g.row, g.col + c, n);
        pack_t w = load_at(a.w, 0, c, n);
        pack_t dx;
        for (int i = 0; i < PACK; i++) {
            float norm = (x.v[i] - g.mean) * g.rstd;
            dx.v[i] = g.rstd * (dy.v[i] * w.v[i] - g.sum - norm * g.dot);
        }
        if (a.more.p != NULL) {
            pack_t more = load_at(a.more, g.row, g.col + c, n);
            for (int i = 0; i < PACK; i++) {
                dx.v[i] += more.v[i];
            }
        }
        store_at(a.y, g.row, g.col + c, dx, n);
    }
}

/* dx of every unit, and the block's part of dw and db. */
template <int TEAM, bool CENTER, bool NEAR>
__global__ void __launch_bounds__(BLOCK)
    norm_backward(norm_t a, const loong_frame_t *frame)
{
    LOONG_SHARED(float, room, WARPS);
    LOONG_SHARED_DYNAMIC(float, sums);
    enum { TEAMS = BLOCK / TEAM };
    int64_t units = rows_of(a.x, frame) * a.groups;
    int team = (int)threadIdx.x / TEAM;
    own_sums_t own = clear_sums<TEAM, NEAR>(a.sums, sums);
    for (int64_t u = (int64_t)blockIdx.x * TEAMS + team; u < units;
         u += (int64_t)gridDim.x * TEAMS) {
        group_t g;
        g.row = u / a.groups;
        g.col = u % a.groups * a.w.cols;
        g.rstd = *statistic(a.rstd, g.row, u % a.groups);
        g.mean = CENTER ? *statistic(a.mean, g.row, 0) : 0.0f;
        measure<TEAM, CENTER, NEAR>(a, own, g, room);
        write_dx<TEAM>(a, g);
    }
    if (NEAR) {
        __syncthreads();
        add_teams<TEAM>(a.sums, sums);
    }
}

} // namespace

/* ---- launches ------------------------------------------------------------ */

template <bool CENTER, bool ADD>
static loong_status_t forward(const loong_kernel_call_t *call,
                              const norm_t &a)
{
    if (a.w.cols <= WARP_WIDTH) {
        dim3 grid = grid_of((a.y.rows * a.groups + WARPS - 1) / WARPS);
        LOONG_LAUNCH((norm_forward<WARP, CENTER, ADD>), grid, dim3(BLOCK), 0,
                     stream_of(call), a, call->device_frame);
    } else {
        LOONG_LAUNCH((norm_forward<BLOCK, CENTER, ADD>),
                     grid_of(a.y.rows * a.groups), dim3(BLOCK), 0,
                     stream_of(call), a, call->device_frame);
    }
    return launched(call);
}

static norm_t forward_args(const loong_kernel_call_t *call, bool center,
                           bool add)
{
    const loong_norm_attr_t *attr =
        static_cast<const loong_norm_attr_t *>(call->query->attr);
    int w = add ? 2 : 1;
    norm_t a;
    a.x = mat_arg(call, 0);
    a.more = add ? mat_arg(call, 1) : mat_none();
    a.w = mat_arg(call, w);
    bool bias = center && w + 1 < call->query->num_in;
    a.b = bias ? mat_arg(call, w + 1) : mat_none();
    a.y = mat_out(call, 0);
    a.mean = center ? mat_out(call, 1) : mat_none();
    a.rstd = mat_out(call, center ? 2 : 1);
    a.sum = add ? mat_out(call, center ? 3 : 2) : mat_none();
    a.dy = mat_none();
    a.eps = (float)attr->eps;
    a.groups = a.y.cols / a.w.cols;
    a.sums = no_sums(a.w.cols);
    return a;
}

static loong_status_t run_rmsnorm(const loong_kernel_call_t *call)
{
    return forward<false, false>(call, forward_args(call, false, false));
}

static loong_status_t run_add_rmsnorm(const loong_kernel_call_t *call)
{
    return forward<false, true>(call, forward_args(call, false, true));
}

static loong_status_t run_layernorm(const loong_kernel_call_t *call)
{
    return forward<true, false>(call, forward_args(call, true, false));
}

static loong_status_t run_add_layernorm(const loong_kernel_call_t *call)
{
    return forward<true, true>(call, forward_args(call, true, true));
}

template <int TEAM, bool CENTER>
static loong_status_t backward_by(const loong_kernel_call_t *call,
                                  const norm_t &a)
{
    size_t shared = sums_bytes<TEAM>(a.sums);
    size_t room = 0;
    LOONG_TRY(sums_room(call, &room));
    if (TEAM == WARP || shared <= room) {
        LOONG_TRY(allow_shared(call, norm_backward<TEAM, CENTER, true>, room));
        LOONG_LAUNCH((norm_backward<TEAM, CENTER, true>), dim3(FOLD_PARTS),
                     dim3(BLOCK), shared, stream_of(call), a,
                     call->device_frame);
    } else {
        LOONG_LAUNCH((norm_backward<BLOCK, CENTER, false>), dim3(FOLD_PARTS),
                     dim3(BLOCK), 0, stream_of(call), a, call->device_frame);
    }
    return launched(call);
}

template <bool CENTER>
static loong_status_t backward(const loong_kernel_call_t *call)
{
    norm_t a;
    a.dy = mat_arg(call, 0);
    a.x = mat_arg(call, 1);
    a.w = mat_arg(call, 2);
    a.mean = CENTER ? mat_arg(call, 3) : mat_none();
    a.rstd = mat_arg(call, CENTER ? 4 : 3);
    int more = CENTER ? 5 : 4;
    a.more = more < call->query->num_in ? mat_arg(call, more) : mat_none();
    a.y = mat_out(call, 0);
    a.b = a.sum = mat_none();
    a.eps = 0.0f;
    a.groups = a.x.cols / a.w.cols;
    a.sums = sums_of(call, 1, a.w.cols);
    if (a.w.cols <= WARP_WIDTH) {
        LOONG_TRY((backward_by<WARP, CENTER>(call, a)));
    } else {
        LOONG_TRY((backward_by<BLOCK, CENTER>(call, a)));
    }
    return fold_sums(call, 1, a.sums);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return 2 * fold_bytes(loong_karg_cols(&query->arg[2], NULL));
}

/* ---- support ------------------------------------------------------------- */

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "layernorm") == 0;
    return cuda_support(query, center ? 0x36 : 0xa, 0, reason);
}

static bool support_add(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "add_layernorm") == 0;
    return cuda_support(query, center ? 0x6c : 0x14, 0, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "layernorm_grad") == 0;
    return cuda_support(query, center ? 0x1c : 0xc, 0, reason);
}

CUDA_KERNEL(rmsnorm, support, NULL, run_rmsnorm);
CUDA_KERNEL(add_rmsnorm, support_add, NULL, run_add_rmsnorm);
CUDA_KERNEL(rmsnorm_grad, support_grad, workspace, backward<false>);
CUDA_KERNEL(layernorm, support, NULL, run_layernorm);
CUDA_KERNEL(add_layernorm, support_add, NULL, run_add_layernorm);
CUDA_KERNEL(layernorm_grad, support_grad, workspace, backward<true>);
