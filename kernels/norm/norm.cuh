/* SPDX-License-Identifier: Apache-2.0
 *
 * What norms share: a team of threads, a warp or a block, takes a group of
 * channels; gradients of weights are summed by columns, of teams in shared
 * memory and of blocks in the workspace. Where a device has too little shared
 * memory a block sums in its part of the workspace at once: the same bits. */
#ifndef LOONG_NORM_CUH
#define LOONG_NORM_CUH

#include "fold.cuh"
#include "map.cuh"

namespace loong_cuda {

enum { WARP_WIDTH = 1024 }; /* up to here a warp takes a group */

template <int TEAM>
static __device__ __forceinline__ float team_sum(float x, float *room)
{
    return TEAM == WARP ? warp_sum(x) : block_sum(x, room);
}

/* Two sums with the barriers of one; room [2 WARPS]. */
template <int TEAM>
static __device__ __forceinline__ void team_sums(float *x, float *y,
                                                 float *room)
{
    int lane = (int)threadIdx.x % WARP;
    *x = warp_sum(*x);
    *y = warp_sum(*y);
    if (TEAM == WARP) {
        return;
    }
    __syncthreads(); /* the sums before were read */
    if (lane == 0) {
        room[threadIdx.x / WARP] = *x;
        room[WARPS + threadIdx.x / WARP] = *y;
    }
    __syncthreads();
    *x = warp_sum(lane < WARPS ? room[lane] : 0.0f);
    *y = warp_sum(lane < WARPS ? room[WARPS + lane] : 0.0f);
}

static __device__ __forceinline__ float *statistic(const mat_t &m, int64_t row,
                                                   int64_t group)
{
    return row_of<float>(m, row) + group;
}

/* ---- columns of a thread ------------------------------------------------- */

/* Where a thread of a team begins, and how far it keeps a row of d columns in
 * registers, as the words that it read: KEEP packs, TIMES 64 bytes. Behind
 * them, and where rows are not packed, it reads again. */
template <class T, int TEAM_, int TIMES> struct columns_t {
    typedef T type;
    enum { TEAM = TEAM_, KEEP = TIMES * 8 / sizeof(T), STEP = TEAM * PACK };
    int64_t first, kept, d;
};

template <class C>
static __device__ __forceinline__ C columns_of(int64_t d, bool packed)
{
    C c;
    int64_t most = C::KEEP * C::STEP;
    c.first = (int64_t)threadIdx.x % C::TEAM * PACK;
    c.kept = !packed ? 0 : d < most ? d : most;
    c.d = d;
    return c;
}

/* The packs that are kept, of a row of any type; all reads are under way. */
template <class C, class From>
static __device__ __forceinline__ void fetch_kept(const C &c, const From *row,
                                                  raw_t<From> *kept)
{
#pragma unroll
    for (int k = 0; k < C::KEEP; k++) {
        int64_t col = c.first + k * C::STEP;
        if (col < c.kept) {
            kept[k] = fetch(row + col);
        }
    }
}

/* fn(k, column) for the packs that are kept. */
template <class C, class Fn>
static __device__ __forceinline__ void each_kept(const C &c, Fn fn)
{
#pragma unroll
    for (int k = 0; k < C::KEEP; k++) {
        int64_t col = c.first + k * C::STEP;
        if (col < c.kept) {
            fn(k, col);
        }
    }
}

/* fn(column, n) for the n columns of the packs that are not. */
template <class C, class Fn>
static __device__ __forceinline__ void each_other(const C &c, Fn fn)
{
    const int64_t step = C::STEP;
    int64_t from = c.kept > 0 ? C::KEEP * step : 0;
    for (int64_t col = c.first + from; col < c.d; col += step) {
        fn(col, least(PACK, c.d - col));
    }
}

/* fn(pack, n) for all packs of a row, n columns each. */
template <class C, class Fn>
static __device__ __forceinline__ void
each_pack(const C &c, const raw_t<typename C::type> *kept,
          const typename C::type *row, Fn fn)
{
    each_kept(c, [&](int k, int64_t) { fn(unpack(kept[k]), (int)PACK); });
    each_other(c, [&](int64_t col, int n) {
        fn(load(row + col, n, c.kept > 0), n);
    });
}

/* ---- sums by columns ----------------------------------------------------- */

/* Up to two vectors of d sums over rows; partial[i] [FOLD_PARTS][d], NULL: not
 * wanted. */
struct column_sums_t {
    float *partial[2];
    int64_t d;
};

/* What a team adds, each column one thread's; NULL: not wanted. NEAR: in shared
 * memory, the first elements of the threads' packs side by side, then the
 * second ones, so that a warp's lie in different banks. */
struct own_sums_t {
    float *of[2];
};

static __host__ __device__ __forceinline__ int kinds_of(const column_sums_t &s)
{
    return (s.partial[0] != NULL) + (s.partial[1] != NULL);
}

/* Floats of one kind that a team has in shared memory. */
template <int TEAM>
static __host__ __device__ __forceinline__ int64_t near_width(int64_t d)
{
    return (d + TEAM * PACK - 1) / (TEAM * PACK) * (TEAM * PACK);
}

/* Adds n columns from c on, which begin a pack of this thread. */
template <int TEAM, bool NEAR>
static __device__ __forceinline__ void add_columns(float *own, int64_t c,
                                                   const pack_t &x, int n,
                                                   bool packed)
{
    if (!NEAR) {
        pack_t sum = load(own + c, n, packed);
        for (int i = 0; i < PACK; i++) {
            sum.v[i] += x.v[i];
        }
        store(own + c, sum, n, packed);
        return;
    }
    int thread = (int)threadIdx.x % TEAM;
    float *first = own + c - thread * (PACK - 1);
    for (int i = 0; i < PACK; i++) {
        first[i * TEAM] += x.v[i];
    }
}

template <int TEAM, bool NEAR>
static __device__ __forceinline__ own_sums_t
clear_sums(const column_sums_t &s, float *room)
{
    int64_t width = near_width<TEAM>(s.d);
    int64_t at = (int)threadIdx.x / TEAM * kinds_of(s) * width;
    own_sums_t to = {{NULL, NULL}};
    for (int k = 0; k < 2; k++) {
        if (s.partial[k] == NULL) {
            continue;
        }
        to.of[k] = NEAR ? room + at : s.partial[k] + blockIdx.x * s.d;
        at += width;
        for (int64_t c = (int64_t)threadIdx.x % TEAM; c < (NEAR ? width : s.d);
             c += TEAM) {
            to.of[k][c] = 0.0f;
        }
    }
    if (!NEAR) { /* otherwise a thread cleared what it adds to */
        __syncthreads();
    }
    return to;
}

/* The sums of a block's teams, in order. */
template <int TEAM>
static __device__ __forceinline__ void add_teams(const column_sums_t &s,
                                                 const float *sums)
{
    int kinds = kinds_of(s);
    int64_t width = near_width<TEAM>(s.d);
    for (int64_t i = threadIdx.x; i < s.d * kinds; i += BLOCK) {
        int64_t c = i % s.d;
        int64_t in = c % (TEAM * PACK);
        int64_t at = i / s.d * width + c - in + in % PACK * TEAM + in / PACK;
        float total = 0.0f;
        for (int t = 0; t < BLOCK / TEAM; t++) {
            total += sums[t * kinds * width + at];
        }
        float *to = i < s.d && s.partial[0] != NULL ? s.partial[0]
                                                    : s.partial[1];
        to[blockIdx.x * s.d + c] = total;
    }
}

static inline column_sums_t no_sums(int64_t d)
{
    column_sums_t s = {{NULL, NULL}, d};
    return s;
}

/* For outputs `first` and the next one, as far as they are there. */
static inline column_sums_t sums_of(const loong_kernel_call_t *call, int first,
                                    int64_t d)
{
    float *room = static_cast<float *>(call->workspace);
    column_sums_t s = no_sums(d);
    for (int k = 0; k < 2; k++) {
        if (first + k < call->query->num_out &&
            mat_out(call, first + k).p != NULL) {
            s.partial[k] = room + FOLD_PARTS * k * d;
        }
    }
    return s;
}

template <int TEAM>
static inline size_t sums_bytes(const column_sums_t &s)
{
    return sizeof(float) * (size_t)(BLOCK / TEAM * kinds_of(s)) *
           (size_t)near_width<TEAM>(s.d);
}

/* The shared memory there is for sums, beside what a block has anyway. Those of
 * warps fit up to WARP_WIDTH. */
static inline size_t sums_room(const loong_kernel_call_t *call)
{
    enum { ELSE = 1024 };
    return shared_limit(call) - ELSE;
}

/* The outputs from the parts of all blocks. */
static inline loong_status_t fold_sums(const loong_kernel_call_t *call,
                                       int first, const column_sums_t &s)
{
    for (int k = 0; k < 2; k++) {
        if (s.partial[k] != NULL) {
            LOONG_TRY(fold(call, first + k, s.partial[k], s.d));
        }
    }
    return LOONG_OK;
}

} // namespace loong_cuda

#endif
