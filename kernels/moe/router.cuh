/* SPDX-License-Identifier: Apache-2.0
 *
 * What the router and its losses share. A warp takes a token and keeps rows of
 * one number for each expert of its set in shared memory, in double: so a
 * choice is the processor's, and there is little to do beside a layer's
 * products. Blocks have as many warps as fit into the shared memory that every
 * device has. */
#ifndef LOONG_ROUTER_CUH
#define LOONG_ROUTER_CUH

#include "moe/moe.cuh"

namespace loong_cuda {

enum {
    ROWS = 3,
    TEAMS = 4, /* of a block, at most */
    THREADS = TEAMS * WARP,
    BLOCKS = 4, /* of a multiprocessor: so that registers suffice */
    ROOM = 48 * 1024, /* of a block */
    EACH_EXPERT = ROWS * sizeof(double) + sizeof(int32_t)
};
constexpr double TINY = 1e-20;

/* Sets of experts, and the one of a token. */
struct sets_t {
    indices_t types; /* p NULL: one set */
    int experts;     /* of a set */
};

/* The first expert that a token can have. */
static __device__ __forceinline__ int first_of(const sets_t &s, int64_t token)
{
    int type = s.types.p != NULL ? index_at(s.types, token) : 0;
    return type > 0 ? type * s.experts : 0;
}

static __host__ __device__ __forceinline__ size_t room_of(int experts)
{
    return ((size_t)experts * EACH_EXPERT + 15) / 16 * 16;
}

/* Tokens of this warp: the first, and from one to the next. */
static __device__ __forceinline__ int64_t first_token(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

static __device__ __forceinline__ int64_t token_step(void)
{
    return (int64_t)gridDim.x * blockDim.x / WARP;
}

/* Row i of the warp; row ROWS holds integers. */
static __device__ __forceinline__ double *row_at(unsigned char *room,
                                                 int experts, int i)
{
    size_t team = threadIdx.x / WARP;
    return reinterpret_cast<double *>(room + team * room_of(experts)) +
           i * experts;
}

static __device__ __forceinline__ int lane_of(void)
{
    return (int)threadIdx.x % WARP;
}

static __device__ __forceinline__ double warp_add(double x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(EACH, x, lane);
    }
    return x;
}

static __device__ __forceinline__ double warp_most(double x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x = fmax(x, __shfl_xor_sync(EACH, x, lane));
    }
    return x;
}

/* ---- scores -------------------------------------------------------------- */

static __device__ __forceinline__ double sigmoid_of(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static __device__ __forceinline__ double
score_of(loong_score_function_t score, double x)
{
    return score == LOONG_SCORE_SIGMOID
               ? sigmoid_of(x)
               : sqrt(fmax(x, 0.0) + log1p(exp(-fabs(x))));
}

static __device__ __forceinline__ double
slope_of(loong_score_function_t score, double x, double s)
{
    if (score == LOONG_SCORE_SIGMOID) {
        return s * (1.0 - s);
    }
    return s > 0.0 ? sigmoid_of(x) / (2.0 * s) : 0.0;
}

/* Softmax of n numbers, in place allowed; returns their log-sum-exp. */
static __device__ double softmax_of(const double *x, int n, double *p)
{
    double top = -INFINITY;
    double sum = 0.0;
    for (int e = lane_of(); e < n; e += WARP) {
        top = fmax(top, x[e]);
    }
    top = warp_most(top);
    for (int e = lane_of(); e < n; e += WARP) {
        p[e] = exp(x[e] - top);
        sum += p[e];
    }
    sum = warp_add(sum);
    for (int e = lane_of(); e < n; e += WARP) {
        p[e] /= sum;
    }
    return top + log(sum);
}

/* ---- the host's side ----------------------------------------------------- */

/* Warps of a block, of which each has room for a set. */
static inline int teams_of(int experts)
{
    int fit = (int)(ROOM / room_of(experts));
    return fit < TEAMS ? fit : (int)TEAMS;
}

static inline dim3 grid_of_tokens(const loong_kernel_call_t *call,
                                  int64_t tokens, int teams)
{
    return grid_of(call, (tokens + teams - 1) / teams);
}

/* Token types are operand i. */
static inline sets_t sets_of(const loong_kernel_call_t *call, int i, int sets,
                             int64_t experts)
{
    sets_t s;
    memset(&s, 0, sizeof(s));
    s.experts = (int)(experts / LOONG_MAX(sets, 1));
    if (i < call->query->num_in && call->ptr[i] != NULL) {
        s.types = indices_of(call, i, 0, sets);
    }
    return s;
}

/* Bit i where input i is there. */
static inline uint32_t types_from(const loong_kernel_query_t *query, int i)
{
    return i < query->num_in ? 1u << i : 0;
}

/* typed: integers. */
static inline bool support_experts(const loong_kernel_query_t *query,
                                   int logits, uint32_t typed, int sets,
                                   char reason[LOONG_REASON_SIZE])
{
    enum { MOST = ROOM / EACH_EXPERT / 64 * 64 };
    int64_t experts = loong_karg_cols(&query->arg[logits]) /
                      LOONG_MAX(sets, 1);
    if (experts > MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld experts, this kernel takes up to %d",
                 (long long)experts, (int)MOST);
        return false;
    }
    return cuda_support(query, ~0u, typed, reason);
}

} // namespace loong_cuda

#endif
