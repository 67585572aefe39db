/* SPDX-License-Identifier: Apache-2.0
 *
 * topk_router and its gradient; the formulas stand in router_ref.c. */
#include "moe/router.cuh"

using namespace loong_cuda;

namespace {

enum { MOST_GROUPS = WARP };

struct router_t {
    loong_router_attr_t attr;
    mat_t x, bias, w, dw, dx;
    indices_t index; /* given, or NULL */
    int32_t *chosen; /* [T, topk] */
    int64_t chosen_ld;
    sets_t sets;
    int experts; /* of the token's set */
};

/* ---- choice -------------------------------------------------------------- */

struct best_t {
    double key;
    int index; /* -1: none */
};

/* Numbers that are none lose against all others; the lower index wins where
 * keys are equal. */
__device__ __forceinline__ bool is_better(const best_t &a, const best_t &b)
{
    if (a.index < 0 || b.index < 0) {
        return b.index < 0 && a.index >= 0;
    }
    bool none = a.key != a.key;
    if (none != (b.key != b.key)) {
        return !none;
    }
    return a.key > b.key || (!(a.key < b.key) && a.index < b.index);
}

__device__ __forceinline__ best_t warp_best(best_t best)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        best_t other = {__shfl_xor_sync(EACH, best.key, lane),
                        __shfl_xor_sync(EACH, best.index, lane)};
        best = is_better(other, best) ? other : best;
    }
    return best;
}

/* The best of begin .. end - 1 that is not taken, which is taken then. */
__device__ best_t take_best(const double *key, double *taken, int begin,
                            int end)
{
    best_t best = {0.0, -1};
    for (int e = begin + lane_of(); e < end; e += WARP) {
        best_t one = {key[e], e};
        best = taken[e] == 0.0 && is_better(one, best) ? one : best;
    }
    best = warp_best(best);
    __syncwarp();
    if (lane_of() == 0 && best.index >= 0) {
        taken[best.index] = 1.0;
    }
    __syncwarp();
    return best;
}

/* Takes the experts of all groups but the best ones: a lane has the sum of a
 * group. */
__device__ void close_groups(const router_t &a, const double *key,
                             double *taken)
{
    int each = a.experts / a.attr.num_groups;
    int scores = a.attr.group_scores > 0 ? a.attr.group_scores
                                         : a.attr.topk / a.attr.group_topk;
    best_t own = {0.0, -1};
    unsigned open = 0;
    for (int g = 0; g < a.attr.num_groups; g++) {
        double sum = 0.0;
        for (int j = 0; j < scores; j++) {
            sum += take_best(key, taken, g * each, (g + 1) * each).key;
        }
        if (g == lane_of()) {
            own.key = sum;
            own.index = g;
        }
    }
    for (int j = 0; j < a.attr.group_topk; j++) {
        int g = warp_best(own).index;
        open |= 1u << g;
        own.index = g == own.index ? -1 : own.index;
    }
    for (int e = lane_of(); e < a.experts; e += WARP) {
        taken[e] = open >> (e / each) & 1u ? 0.0 : 1.0;
    }
    __syncwarp();
}

/* Expert number i of those given, which is of the set that begins at
 * `first`, counted from there. */
__device__ __forceinline__ int32_t given_at(const router_t &a, int64_t i,
                                            int first)
{
    indices_t own = a.index;
    own.low = first;
    own.end = first + a.experts;
    int32_t expert = index_at(own, i);
    return expert < 0 ? 0 : expert - first;
}

/* The k experts of a token, counted from the first of its set. */
__device__ void choose(const router_t &a, int64_t token, int first,
                       const double *key, double *taken, int32_t *index)
{
    int k = a.attr.topk;
    if (a.index.p != NULL || a.attr.forced) {
        for (int j = lane_of(); j < k; j += WARP) {
            int64_t turn = (a.attr.begin + token) * k + j;
            index[j] = a.index.p != NULL ? given_at(a, token * k + j, first)
                                         : (int32_t)(turn % a.experts);
        }
        __syncwarp();
        return;
    }
    for (int e = lane_of(); e < a.experts; e += WARP) {
        taken[e] = 0.0;
    }
    __syncwarp();
    if (a.attr.num_groups > 0) {
        close_groups(a, key, taken);
    }
    for (int j = 0; j < k; j++) {
        best_t best = take_best(key, taken, 0, a.experts);
        if (lane_of() == 0) {
            index[j] = best.index;
        }
    }
    __syncwarp();
}

/* ---- topk_router --------------------------------------------------------- */

/* Scores of all experts; those that have none of their own are compared by
 * their logits. */
__device__ void score_all(const router_t &a, int64_t token, int first,
                          double *score)
{
    bool own = a.attr.score != LOONG_SCORE_SOFTMAX;
    for (int e = lane_of(); e < a.experts; e += WARP) {
        double x = (double)load_one(a.x, token, first + e);
        score[e] = own ? score_of(a.attr.score, x) : x;
    }
    __syncwarp();
    if (!own && a.attr.pre_softmax) {
        softmax_of(score, a.experts, score);
        __syncwarp();
    }
}

__device__ bool divides(const router_t &a)
{
    return a.attr.score != LOONG_SCORE_SOFTMAX &&
           (a.attr.weights == LOONG_WEIGHTS_DIVIDED ||
            (a.attr.weights == LOONG_WEIGHTS_AUTO && a.attr.topk > 1));
}

/* What the chosen scores are divided by. */
__device__ double divisor(const router_t &a, const double *score,
                          const int32_t *index)
{
    double sum = TINY;
    if (!divides(a)) {
        return 1.0;
    }
    for (int j = 0; j < a.attr.topk; j++) {
        sum += score[index[j]];
    }
    return sum;
}

/* Weights of the chosen, without the factor. */
__device__ void weigh(const router_t &a, const double *score,
                      const int32_t *index, double *weight)
{
    double sum = divisor(a, score, index);
    for (int j = lane_of(); j < a.attr.topk; j += WARP) {
        weight[j] = score[index[j]] / sum;
    }
    __syncwarp();
    if (a.attr.score == LOONG_SCORE_SOFTMAX && !a.attr.pre_softmax) {
        softmax_of(weight, a.attr.topk, weight);
        __syncwarp();
    }
}

/* What experts are compared by. */
__device__ void make_keys(const router_t &a, int first, const double *score,
                          double *key)
{
    bool none = a.bias.p != NULL && a.attr.score == LOONG_SCORE_SOFTMAX &&
                !a.attr.pre_softmax;
    if (none) { /* logits and a bias do not compare */
        softmax_of(score, a.experts, key);
    }
    for (int e = lane_of(); e < a.experts; e += WARP) {
        double bias =
            a.bias.p != NULL ? (double)load_one(a.bias, 0, first + e) : 0.0;
        key[e] = (none ? key[e] : score[e]) + bias;
    }
    __syncwarp();
}

__global__ void __launch_bounds__(THREADS, BLOCKS)
    route(router_t a)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    double *score = row_at(room, a.experts, 0);
    double *key = row_at(room, a.experts, 1);
    double *taken = row_at(room, a.experts, 2);
    int32_t *index =
        reinterpret_cast<int32_t *>(row_at(room, a.experts, ROWS));
    int64_t tokens = a.x.rows;
    for (int64_t t = first_token(); t < tokens; t += token_step()) {
        int first = first_of(a.sets, t);
        score_all(a, t, first, score);
        make_keys(a, first, score, key);
        choose(a, t, first, key, taken, index);
        weigh(a, score, index, key);
        for (int j = lane_of(); j < a.attr.topk; j += WARP) {
            row_of<float>(a.w, t)[j] =
                (float)(a.attr.scaling_factor * key[j]);
            a.chosen[t * a.chosen_ld + j] = first + index[j];
        }
        __syncwarp();
    }
}

/* dx of one token, whose experts begin at `first`. */
__device__ void route_back(const router_t &a, int64_t t, int first,
                           double *score, double *weight, const int32_t *index)
{
    double f = a.attr.scaling_factor;
    double mean = 0.0;
    bool soft = a.attr.score == LOONG_SCORE_SOFTMAX;
    bool all = soft && a.attr.pre_softmax;
    score_all(a, t, first, score);
    weigh(a, score, index, weight);
    double sum = divisor(a, score, index);
    for (int j = 0; j < a.attr.topk; j++) {
        mean += weight[j] * f * (double)load_one(a.dw, t, j);
    }
    for (int e = lane_of(); e < a.x.cols; e += WARP) {
        bool own = e >= first && e < first + a.experts;
        row_of<float>(a.dx, t)[e] =
            all && own ? (float)(-mean * score[e - first]) : 0.0f;
    }
    __syncwarp();
    for (int j = lane_of(); j < a.attr.topk; j += WARP) {
        int32_t e = index[j];
        double dw = f * (double)load_one(a.dw, t, j);
        double less = soft || divides(a) ? mean : 0.0;
        double dx = weight[j] * (dw - less);
        if (all) {
            dx = (dw - mean) * score[e];
        } else if (!soft) {
            double x = (double)load_one(a.x, t, first + e);
            dx = slope_of(a.attr.score, x, score[e]) * (dw - less) / sum;
        }
        row_of<float>(a.dx, t)[first + e] = (float)dx;
    }
    __syncwarp();
}

__global__ void __launch_bounds__(THREADS, BLOCKS)
    route_grad(router_t a)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    int32_t *index =
        reinterpret_cast<int32_t *>(row_at(room, a.experts, ROWS));
    int64_t tokens = a.x.rows;
    for (int64_t t = first_token(); t < tokens; t += token_step()) {
        /* The choice tells the set. */
        int32_t one = index_at(a.index, t * a.attr.topk);
        int first = one > 0 ? one / a.experts * a.experts : 0;
        for (int j = lane_of(); j < a.attr.topk; j += WARP) {
            index[j] = given_at(a, t * a.attr.topk + j, first);
        }
        __syncwarp();
        route_back(a, t, first, row_at(room, a.experts, 0),
                   row_at(room, a.experts, 1), index);
    }
}

router_t router_of(const loong_kernel_call_t *call, int logits, int types)
{
    router_t a;
    memset(&a, 0, sizeof(a));
    a.attr = *static_cast<const loong_router_attr_t *>(call->query->attr);
    a.x = mat_arg(call, logits);
    a.bias = mat_none();
    a.sets = sets_of(call, types, a.attr.sets, a.x.cols);
    a.experts = a.sets.experts;
    return a;
}

} // namespace

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    router_t a = router_of(call, 0, 3);
    int teams = teams_of(a.experts);
    a.bias = q->num_in > 1 ? mat_arg(call, 1) : mat_none();
    if (q->num_in > 2 && call->ptr[2] != NULL) {
        a.index = indices_of(call, 2, 0, a.x.cols);
    }
    a.w = mat_out(call, 0);
    a.chosen = static_cast<int32_t *>(call->ptr[q->num_in + 1]);
    a.chosen_ld = q->arg[q->num_in + 1].ld;
    LOONG_LAUNCH((route), grid_of_tokens(call, a.x.rows, teams),
                 dim3(teams * WARP), teams * room_of(a.experts),
                 stream_of(call), a);
    return launched(call);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    router_t a = router_of(call, 1, call->query->num_in);
    int teams = teams_of(a.experts);
    a.dw = mat_arg(call, 0);
    a.index = indices_of(call, 2, 0, a.x.cols);
    a.dx = mat_out(call, 0);
    LOONG_LAUNCH((route_grad), grid_of_tokens(call, a.x.rows, teams),
                 dim3(teams * WARP), teams * room_of(a.experts),
                 stream_of(call), a);
    return launched(call);
}

static bool support(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE])
{
    const loong_router_attr_t *attr =
        static_cast<const loong_router_attr_t *>(query->attr);
    if (attr->num_groups > MOST_GROUPS) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%d groups of experts, this kernel takes up to %d",
                 attr->num_groups, (int)MOST_GROUPS);
        return false;
    }
    return support_experts(query, 0,
                           1u << 2 | types_from(query, 3) |
                               1u << (query->num_in + 1),
                           attr->sets, reason);
}

static bool support_grad(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    const loong_router_attr_t *attr =
        static_cast<const loong_router_attr_t *>(query->attr);
    return support_experts(query, 1, 1u << 2, attr->sets, reason);
}

CUDA_KERNEL(topk_router, support, NULL, run);
CUDA_KERNEL(topk_router_grad, support_grad, NULL, run_grad);
