/* SPDX-License-Identifier: Apache-2.0
 *
 * rmsnorm, layernorm, each with what is added before and their gradients; the
 * formulas stand in rmsnorm_ref.c and layernorm_ref.c. A team of threads, a
 * warp or a block, takes a group of d channels: it reads it from memory once
 * and keeps the words in registers (norm.cuh) up to 8192 channels of bf16.
 *
 * Bytes an element of bf16: norm 4, with an addition 8, gradient 6, with an
 * addition 8; some 10 and 20 FLOP: bound by memory. A thread has all of its
 * part of the row under way before it uses any: at d = 4096 on a multiprocessor
 * 4 blocks x 256 threads x 32 bytes an input forward, 2 blocks backward. Up to
 * twice WARP_WIDTH a warp keeps twice as much: a block would have less under
 * way than its barriers take (d = 1600: a third of a copy's rate, H200). */
#include "norm/norm.cuh"

using namespace loong_cuda;

namespace {

struct norm_t {
    mat_t x, more, w, b; /* more: added to x, or to dx */
    mat_t y, mean, rstd, sum, dy;
    float eps;
    int packed;      /* all of them, and groups begin packs */
    int64_t groups;  /* of a row */
    column_sums_t sums; /* for dw and db */
};

/* Number `at` of a walk over the groups: a row and a column of it. */
template <class T>
__device__ __forceinline__ T *group_at(const mat_t &m, const walk_t &at,
                                       int64_t d)
{
    return row_of<T>(m, at.row) + at.col * d;
}

template <int TEAM>
__device__ __forceinline__ walk_t walk_groups(const norm_t &a)
{
    enum { TEAMS = BLOCK / TEAM };
    return walk_of((int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM,
                   (int64_t)gridDim.x * TEAMS, a.groups);
}

/* ---- forward ------------------------------------------------------------- */

/* sum = x + more, rounded to storage. */
template <class C, class T>
__device__ __forceinline__ void add_rows(const C &c, const T *x, const T *more,
                                         T *sum, raw_t<T> *kept)
{
    raw_t<T> other[C::KEEP];
    auto both = [](pack_t p, const pack_t &q) {
        for (int i = 0; i < PACK; i++) {
            p.v[i] += q.v[i];
        }
        return packed_as<T>(p);
    };
    fetch_kept(c, x, kept);
    fetch_kept(c, more, other);
    each_kept(c, [&](int k, int64_t col) {
        kept[k] = both(unpack(kept[k]), unpack(other[k]));
        put(sum + col, kept[k]);
    });
    each_other(c, [&](int64_t col, int n) {
        bool packed = c.kept > 0;
        raw_t<T> w =
            both(load(x + col, n, packed), load(more + col, n, packed));
        store_raw(sum + col, w, n, packed);
    });
}

template <class T, int TEAM, int TIMES, bool CENTER, bool ADD>
__global__ void __launch_bounds__(BLOCK, TIMES == 2 ? 2 : 4 - ADD - CENTER)
    norm_forward(norm_t a)
{
    LOONG_SHARED(float, room, WARPS);
    typedef columns_t<T, TEAM, TIMES> columns;
    const int64_t d = a.w.cols;
    const columns c = columns_of<columns>(d, a.packed);
    const float *w = row_of<float>(a.w, 0);
    const float *b = CENTER ? row_of<float>(a.b, 0) : NULL;
    int64_t units = a.y.rows * a.groups;
    for (walk_t u = walk_groups<TEAM>(a); u.at < units; advance(&u)) {
        raw_t<T> kept[columns::KEEP];
        const T *x = group_at<T>(ADD ? a.sum : a.x, u, d);
        T *y = group_at<T>(a.y, u, d);
        float total = 0.0f;
        float mean = 0.0f;
        if (ADD) {
            add_rows(c, group_at<T>(a.x, u, d), group_at<T>(a.more, u, d),
                     group_at<T>(a.sum, u, d), kept);
        } else {
            fetch_kept(c, x, kept);
        }
        each_pack(c, kept, x, [&](const pack_t &p, int) {
            for (int i = 0; i < PACK; i++) {
                total += CENTER ? p.v[i] : p.v[i] * p.v[i];
            }
        });
        total = team_sum<TEAM>(total, room);
        if (CENTER) {
            mean = total / (float)d;
            total = 0.0f;
            each_pack(c, kept, x, [&](const pack_t &p, int n) {
#pragma unroll
                for (int i = 0; i < PACK && i < n; i++) {
                    total += (p.v[i] - mean) * (p.v[i] - mean);
                }
            });
            total = team_sum<TEAM>(total, room);
        }
        float r = 1.0f / sqrtf(total / (float)d + a.eps);
        auto normed = [&](pack_t p, int64_t col, int n) {
            pack_t by = load(w + col, n, c.kept > 0);
            for (int i = 0; i < PACK; i++) {
                p.v[i] = (p.v[i] - mean) * r * by.v[i];
            }
            if (CENTER && b != NULL) {
                pack_t plus = load(b + col, n, c.kept > 0);
                for (int i = 0; i < PACK; i++) {
                    p.v[i] += plus.v[i];
                }
            }
            store(y + col, p, n, c.kept > 0);
        };
        each_kept(c, [&](int k, int64_t col) {
            normed(unpack(kept[k]), col, PACK);
        });
        each_other(c, [&](int64_t col, int n) {
            normed(load(x + col, n, c.kept > 0), col, n);
        });
        if (c.first == 0) {
            *statistic(a.rstd, u.row, u.col) = r;
            if (CENTER) {
                *statistic(a.mean, u.row, 0) = mean;
            }
        }
    }
}

/* ---- backward ------------------------------------------------------------ */

/* A group of a row: its statistics, and means of g norm(x) and of g. */
struct group_t {
    float mean, rstd;
    float dot, sum;
};

/* What a pack adds to the means and to the sums by columns. */
template <int TEAM, bool NEAR>
__device__ __forceinline__ void measure(const own_sums_t &s, group_t *g,
                                        int64_t col, int n, bool packed,
                                        const pack_t of[3])
{
    pack_t dw;
    for (int i = 0; i < PACK; i++) { /* dy is 0 behind the n */
        float norm = (of[1].v[i] - g->mean) * g->rstd;
        dw.v[i] = of[0].v[i] * norm;
        g->dot += of[0].v[i] * of[2].v[i] * norm;
        g->sum += of[0].v[i] * of[2].v[i];
    }
    if (s.of[0] != NULL) {
        add_columns<TEAM, NEAR>(s.of[0], col, dw, n, packed);
    }
    if (s.of[1] != NULL) {
        add_columns<TEAM, NEAR>(s.of[1], col, of[0], n, packed);
    }
}

/* The means, from what the threads of a team have of their sums. */
template <int TEAM, bool CENTER>
__device__ __forceinline__ void take_means(group_t *g, float d, float *room)
{
    if (CENTER) {
        team_sums<TEAM>(&g->dot, &g->sum, room);
        g->sum /= d;
    } else {
        g->dot = team_sum<TEAM>(g->dot, room);
        g->sum = 0.0f;
    }
    g->dot /= d;
}

/* dx of dy, x, w. */
__device__ __forceinline__ pack_t input_gradient(const group_t &g,
                                                 const pack_t of[3])
{
    pack_t dx;
    for (int i = 0; i < PACK; i++) {
        float norm = (of[1].v[i] - g.mean) * g.rstd;
        dx.v[i] = g.rstd * (of[0].v[i] * of[2].v[i] - g.sum - norm * g.dot);
    }
    return dx;
}

/* dx of every unit, and the block's part of dw and db. */
template <class T, int TEAM, int TIMES, bool CENTER, bool NEAR>
__global__ void __launch_bounds__(BLOCK, TIMES == 2 ? 1 : 2)
    norm_backward(norm_t a)
{
    LOONG_SHARED(float, room, 2 * WARPS);
    LOONG_SHARED_DYNAMIC(float, sums);
    typedef columns_t<T, TEAM, TIMES> columns;
    const int64_t d = a.w.cols;
    const columns c = columns_of<columns>(d, a.packed);
    const bool packed = c.kept > 0;
    const float *w = row_of<float>(a.w, 0);
    int64_t units = a.x.rows * a.groups;
    own_sums_t own = clear_sums<TEAM, NEAR>(a.sums, sums);
    for (walk_t u = walk_groups<TEAM>(a); u.at < units; advance(&u)) {
        const T *from[3] = {group_at<T>(a.dy, u, d), group_at<T>(a.x, u, d),
                            group_at<T>(a.more, u, d)};
        T *to = group_at<T>(a.y, u, d);
        raw_t<T> kept[3][columns::KEEP];
        group_t g = {0.0f, 0.0f, 0.0f, 0.0f};
        fetch_kept(c, from[0], kept[0]);
        fetch_kept(c, from[1], kept[1]);
        if (a.more.p != NULL) {
            fetch_kept(c, from[2], kept[2]);
        }
        g.rstd = *statistic(a.rstd, u.row, u.col);
        g.mean = CENTER ? *statistic(a.mean, u.row, 0) : 0.0f;
        each_kept(c, [&](int k, int64_t col) {
            pack_t of[3] = {unpack(kept[0][k]), unpack(kept[1][k]),
                            load(w + col, PACK, true)};
            measure<TEAM, NEAR>(own, &g, col, PACK, true, of);
        });
        each_other(c, [&](int64_t col, int n) {
            pack_t of[3] = {load(from[0] + col, n, packed),
                            load(from[1] + col, n, packed),
                            load(w + col, n, packed)};
            measure<TEAM, NEAR>(own, &g, col, n, packed, of);
        });
        take_means<TEAM, CENTER>(&g, (float)d, room);
        auto write = [&](const pack_t of[3], pack_t more, int64_t col, int n) {
            pack_t dx = input_gradient(g, of);
            for (int i = 0; i < PACK && a.more.p != NULL; i++) {
                dx.v[i] += more.v[i];
            }
            store(to + col, dx, n, packed);
        };
        each_kept(c, [&](int k, int64_t col) {
            pack_t of[3] = {unpack(kept[0][k]), unpack(kept[1][k]),
                            load(w + col, PACK, true)};
            write(of, unpack(kept[2][k]), col, PACK);
        });
        each_other(c, [&](int64_t col, int n) {
            pack_t of[3] = {load(from[0] + col, n, packed),
                            load(from[1] + col, n, packed),
                            load(w + col, n, packed)};
            pack_t more = of[0];
            if (a.more.p != NULL) {
                more = load(from[2] + col, n, packed);
            }
            write(of, more, col, n);
        });
    }
    if (NEAR) {
        __syncthreads();
        add_teams<TEAM>(a.sums, sums);
    }
}

} // namespace

/* ---- launches ------------------------------------------------------------ */

/* Whether rows of every operand begin at multiples of 16 bytes, and groups of
 * them whole packs. */
static bool is_packed(const norm_t &a)
{
    const mat_t *all[] = {&a.x, &a.more, &a.w, &a.b, &a.y, &a.sum, &a.dy};
    bool packed = a.w.cols % PACK == 0;
    for (int i = 0; i < LOONG_COUNT_OF(all); i++) {
        packed = packed && all[i]->packed;
    }
    return packed;
}

template <class T, int TEAM, int TIMES, bool CENTER, bool ADD>
static loong_status_t forward_by(const loong_kernel_call_t *call,
                                 const norm_t &a)
{
    enum { TEAMS = BLOCK / TEAM };
    dim3 grid = grid_of(call, (a.y.rows * a.groups + TEAMS - 1) / TEAMS);
    LOONG_LAUNCH((norm_forward<T, TEAM, TIMES, CENTER, ADD>), grid, dim3(BLOCK),
                 0, stream_of(call), a);
    return launched(call);
}

template <class T, bool CENTER, bool ADD>
static loong_status_t forward_as(const loong_kernel_call_t *call,
                                 const norm_t &a)
{
    return a.w.cols <= WARP_WIDTH
               ? forward_by<T, WARP, 1, CENTER, ADD>(call, a)
           : a.w.cols <= 2 * WARP_WIDTH
               ? forward_by<T, WARP, 2, CENTER, ADD>(call, a)
               : forward_by<T, BLOCK, 1, CENTER, ADD>(call, a);
}

template <bool CENTER, bool ADD>
static loong_status_t forward(const loong_kernel_call_t *call,
                              const norm_t &a)
{
    return a.x.half ? forward_as<half_t, CENTER, ADD>(call, a)
                    : forward_as<float, CENTER, ADD>(call, a);
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
    a.packed = is_packed(a);
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

template <class T, int TEAM, int TIMES, bool CENTER, bool NEAR>
static loong_status_t backward_by(const loong_kernel_call_t *call,
                                  const norm_t &a)
{
    size_t shared = NEAR ? sums_bytes<TEAM>(a.sums) : 0;
    if (NEAR) {
        LOONG_TRY(allow_shared(call,
                               norm_backward<T, TEAM, TIMES, CENTER, NEAR>,
                               sums_room(call)));
    }
    LOONG_LAUNCH((norm_backward<T, TEAM, TIMES, CENTER, NEAR>),
                 dim3(FOLD_PARTS), dim3(BLOCK), shared, stream_of(call), a);
    return launched(call);
}

template <class T, bool CENTER>
static loong_status_t backward_as(const loong_kernel_call_t *call,
                                  const norm_t &a)
{
    if (a.w.cols <= WARP_WIDTH) {
        return backward_by<T, WARP, 1, CENTER, true>(call, a);
    }
    size_t room = sums_room(call);
    return a.w.cols <= 2 * WARP_WIDTH && sums_bytes<WARP>(a.sums) <= room
               ? backward_by<T, WARP, 2, CENTER, true>(call, a)
           : sums_bytes<BLOCK>(a.sums) <= room
               ? backward_by<T, BLOCK, 1, CENTER, true>(call, a)
               : backward_by<T, BLOCK, 1, CENTER, false>(call, a);
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
    a.packed = is_packed(a);
    LOONG_TRY((a.x.half ? backward_as<half_t, CENTER>(call, a)
                        : backward_as<float, CENTER>(call, a)));
    return fold_sums(call, 1, a.sums);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    return 2 * fold_bytes(loong_karg_cols(&query->arg[2]));
}

/* ---- support ------------------------------------------------------------- */

/* Vectors and statistics, `wide`, are fp32; all others are of one type, but for
 * the outputs in the bits of `sums`. */
static bool supported(const loong_kernel_query_t *query, uint32_t wide,
                      uint32_t sums, char reason[LOONG_REASON_SIZE])
{
    return cuda_support(query, wide, 0, reason) &&
           cuda_support_same(query, wide | sums << query->num_in, reason);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "layernorm") == 0;
    return supported(query, center ? 0x36 : 0xa, 0, reason);
}

static bool support_add(const loong_kernel_query_t *query,
                        char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "add_layernorm") == 0;
    return supported(query, center ? 0x6c : 0x14, 0, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    bool center = strcmp(query->op, "layernorm_grad") == 0;
    return supported(query, center ? 0x1c : 0xc, 3 << 1, reason);
}

CUDA_KERNEL(rmsnorm, support, NULL, run_rmsnorm);
CUDA_KERNEL(add_rmsnorm, support_add, NULL, run_add_rmsnorm);
CUDA_KERNEL(rmsnorm_grad, support_grad, workspace, backward<false>);
CUDA_KERNEL(layernorm, support, NULL, run_layernorm);
CUDA_KERNEL(add_layernorm, support_add, NULL, run_add_layernorm);
CUDA_KERNEL(layernorm_grad, support_grad, workspace, backward<true>);
