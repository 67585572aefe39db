/* SPDX-License-Identifier: Apache-2.0
 *
 * What norms share: a team of threads, a warp or a block, takes a group of
 * channels; gradients of weights are summed by columns, of teams in shared
 * memory and of blocks in the workspace. */
#ifndef LOONG_NORM_CUH
#define LOONG_NORM_CUH

#include "fold.cuh"
#include "map.cuh"

namespace loong_cuda {

enum {
    WARP_WIDTH = 1024, /* up to here a warp takes a group */
    SHARED_MOST = 227 * 1024
};

template <int TEAM>
static __device__ __forceinline__ float team_sum(float x, float *room)
{
    return TEAM == WARP ? warp_sum(x) : block_sum(x, room);
}

static __device__ __forceinline__ float *statistic(const mat_t &m, int64_t row,
                                                   int64_t group)
{
    return row_of<float>(m, row) + group;
}

/* ---- sums by columns ----------------------------------------------------- */

/* Up to two vectors of d sums over rows; partial[i] [FOLD_PARTS][d], NULL: not
 * wanted. */
struct column_sums_t {
    float *partial[2];
    int64_t d;
};

/* What a team adds, in shared memory [team][kind][d]; each column is one
 * thread's. NULL: not wanted. */
struct own_sums_t {
    float *of[2];
};

static __host__ __device__ __forceinline__ int kinds_of(const column_sums_t &s)
{
    return (s.partial[0] != NULL) + (s.partial[1] != NULL);
}

template <int TEAM>
static __device__ __forceinline__ own_sums_t
clear_sums(const column_sums_t &s, float *room)
{
    int kinds = kinds_of(s);
    float *own = room + (int)threadIdx.x / TEAM * kinds * s.d;
    own_sums_t to = {{s.partial[0] != NULL ? own : NULL,
                      s.partial[1] != NULL ? own + (kinds - 1) * s.d : NULL}};
    for (int64_t c = (int64_t)threadIdx.x % TEAM * PACK; c < s.d;
         c += TEAM * PACK) {
        for (int i = 0; i < least(PACK, s.d - c); i++) {
            for (int k = 0; k < 2; k++) {
                if (to.of[k] != NULL) {
                    to.of[k][c + i] = 0.0f;
                }
            }
        }
    }
    return to;
}

/* The sums of a block's teams, in order. */
template <int TEAM>
static __device__ __forceinline__ void add_teams(const column_sums_t &s,
                                                 const float *sums)
{
    int kinds = kinds_of(s);
    for (int64_t c = threadIdx.x; c < s.d * kinds; c += BLOCK) {
        float total = 0.0f;
        for (int t = 0; t < BLOCK / TEAM; t++) {
            total += sums[t * kinds * s.d + c];
        }
        float *to = c < s.d && s.partial[0] != NULL ? s.partial[0]
                                                    : s.partial[1];
        to[blockIdx.x * s.d + c % s.d] = total;
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

static inline size_t sums_bytes(const column_sums_t &s, int teams)
{
    return sizeof(float) * (size_t)(teams * kinds_of(s) * s.d);
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

/* Sums of a row's width lie in shared memory. */
static inline bool sums_fit(int64_t d, char reason[LOONG_REASON_SIZE])
{
    enum { MOST = SHARED_MOST / (2 * (int)sizeof(float)) };
    if (d > MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld channels, this kernel takes up to %d", (long long)d,
                 (int)MOST);
        return false;
    }
    return true;
}

} // namespace loong_cuda

#endif
