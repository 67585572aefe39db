/* SPDX-License-Identifier: Apache-2.0
 *
 * topk_router, router_loss and their gradients; the formulas stand in
 * router_ref.c. A warp takes a token and keeps rows of one number for each
 * expert of its set in shared memory, in double: so a choice is the
 * processor's, and there is little to do beside a layer's products. Blocks have
 * as many warps as fit into the shared memory that every device has. */
#include "moe/moe.cuh"

using namespace loong_cuda;

namespace {

enum {
    ROWS = 3,
    MOST_GROUPS = WARP,
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

struct router_t {
    loong_router_attr_t attr;
    mat_t x, bias, w, dw, dx;
    indices_t index; /* given, or NULL */
    int32_t *chosen; /* [T, topk] */
    int64_t chosen_ld;
    sets_t sets;
    int experts; /* of the token's set */
};

/* The first expert that a token can have. */
__device__ __forceinline__ int first_of(const sets_t &s, int64_t token)
{
    int type = s.types.p != NULL ? index_at(s.types, token) : 0;
    return type > 0 ? type * s.experts : 0;
}

__host__ __device__ size_t room_of(int experts)
{
    return ((size_t)experts * EACH_EXPERT + 15) / 16 * 16;
}

/* Tokens of this warp: the first, and from one to the next. */
__device__ __forceinline__ int64_t first_token(void)
{
    return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

__device__ __forceinline__ int64_t token_step(void)
{
    return (int64_t)gridDim.x * blockDim.x / WARP;
}

/* Row i of the warp; row ROWS holds integers. */
__device__ __forceinline__ double *row_at(unsigned char *room, int experts,
                                          int i)
{
    size_t team = threadIdx.x / WARP;
    return reinterpret_cast<double *>(room + team * room_of(experts)) +
           i * experts;
}

__device__ __forceinline__ int lane_of(void)
{
    return (int)threadIdx.x % WARP;
}

__device__ __forceinline__ double warp_add(double x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x += __shfl_xor_sync(EACH, x, lane);
    }
    return x;
}

__device__ __forceinline__ double warp_most(double x)
{
    for (int lane = WARP / 2; lane > 0; lane /= 2) {
        x = fmax(x, __shfl_xor_sync(EACH, x, lane));
    }
    return x;
}

/* ---- scores -------------------------------------------------------------- */

__device__ __forceinline__ double sigmoid_of(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

__device__ __forceinline__ double score_of(loong_score_function_t score,
                                           double x)
{
    return score == LOONG_SCORE_SIGMOID
               ? sigmoid_of(x)
               : sqrt(fmax(x, 0.0) + log1p(exp(-fabs(x))));
}

__device__ __forceinline__ double slope_of(loong_score_function_t score,
                                           double x, double s)
{
    if (score == LOONG_SCORE_SIGMOID) {
        return s * (1.0 - s);
    }
    return s > 0.0 ? sigmoid_of(x) / (2.0 * s) : 0.0;
}

/* Softmax of n numbers, in place allowed; returns their log-sum-exp. */
__device__ double softmax_of(const double *x, int n, double *p)
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

/* What the chosen scores are divided by. */
__device__ double divisor(const router_t &a, const double *score,
                          const int32_t *index)
{
    double sum = TINY;
    if (a.attr.score == LOONG_SCORE_SOFTMAX || a.attr.topk == 1) {
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
    route(router_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    double *score = row_at(room, a.experts, 0);
    double *key = row_at(room, a.experts, 1);
    double *taken = row_at(room, a.experts, 2);
    int32_t *index =
        reinterpret_cast<int32_t *>(row_at(room, a.experts, ROWS));
    int64_t tokens = rows_of(a.x, frame);
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
        double less = soft || a.attr.topk > 1 ? mean : 0.0;
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
    route_grad(router_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    int32_t *index =
        reinterpret_cast<int32_t *>(row_at(room, a.experts, ROWS));
    int64_t tokens = rows_of(a.x, frame);
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

/* ---- router_loss --------------------------------------------------------- */

struct loss_t {
    loong_router_loss_attr_t attr;
    mat_t x, counts, y, dy;
    sets_t sets;
    int experts; /* of the token's set */
};

struct token_t {
    double lse;
    double mean; /* sum of c p */
    double sum;  /* what scores are divided by; 1 with softmax */
    double aux;  /* factors of its set */
    double z;
    int64_t span;
    int first; /* expert of its set */
};

__device__ __forceinline__ double count_of(const loss_t &a, const token_t &k,
                                           int e)
{
    return a.counts.p != NULL
               ? (double)load_one(a.counts, k.span, k.first + e)
               : 0.0;
}

/* p into its row, the softmax into the other. */
__device__ token_t weigh_token(const loss_t &a, int64_t t, double *p,
                               double *soft)
{
    bool own = a.attr.score != LOONG_SCORE_SOFTMAX;
    token_t k = {0.0, 0.0, 1.0, a.attr.aux, a.attr.z, 0,
                 first_of(a.sets, t)};
    for (int e = lane_of(); e < a.experts; e += WARP) {
        soft[e] = (double)load_one(a.x, t, k.first + e);
    }
    k.lse = softmax_of(soft, a.experts, soft);
    double sum = 0.0;
    for (int e = lane_of(); e < a.experts; e += WARP) {
        double x = (double)load_one(a.x, t, k.first + e);
        p[e] = own ? score_of(a.attr.score, x) : soft[e];
        sum += p[e];
    }
    k.sum = own ? warp_add(sum) + TINY : 1.0;
    k.span = a.counts.p != NULL ? (a.attr.begin + t) / a.attr.span : 0;
    double mean = 0.0;
    double all = 0.0;
    for (int e = lane_of(); e < a.experts; e += WARP) {
        double c = count_of(a, k, e);
        p[e] /= k.sum;
        mean += c * p[e];
        all += c;
    }
    k.mean = warp_add(mean);
    if (a.attr.sets > 0) {
        double less = (double)a.attr.choices / warp_add(all);
        k.aux *= less * less;
        k.z *= less;
    }
    return k;
}

template <bool GRADIENT>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    lose(loss_t a, const loong_frame_t *frame)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    double *p = row_at(room, a.experts, 0);
    double *soft = row_at(room, a.experts, 1);
    int64_t tokens = rows_of(a.x, frame);
    for (int64_t t = first_token(); t < tokens; t += token_step()) {
        token_t k = weigh_token(a, t, p, soft);
        if (!GRADIENT && lane_of() == 0) {
            static_cast<float *>(a.y.p)[t] =
                (float)(k.aux * k.mean + k.z * k.lse * k.lse);
        }
        for (int e = lane_of(); GRADIENT && a.attr.sets > 0 && e < a.y.cols;
             e += WARP) {
            if (e < k.first || e >= k.first + a.experts) {
                row_of<float>(a.y, t)[e] = 0.0f; /* of the other sets */
            }
        }
        for (int e = lane_of(); GRADIENT && e < a.experts; e += WARP) {
            double d = (double)static_cast<const float *>(a.dy.p)[t];
            double x = (double)load_one(a.x, t, k.first + e);
            double more =
                a.counts.p != NULL ? count_of(a, k, e) - k.mean : 0.0;
            double slope =
                a.attr.score == LOONG_SCORE_SOFTMAX
                    ? p[e]
                    : slope_of(a.attr.score, x, p[e] * k.sum) / k.sum;
            row_of<float>(a.y, t)[k.first + e] =
                (float)(d * (k.aux * slope * more +
                             2.0 * k.z * k.lse * soft[e]));
        }
        __syncwarp();
    }
}

/* Warps of a block, of which each has room for a set. */
int teams_of(int experts)
{
    int fit = (int)(ROOM / room_of(experts));
    return fit < TEAMS ? fit : (int)TEAMS;
}

dim3 grid_of_tokens(int64_t tokens, int teams)
{
    return grid_of((tokens + teams - 1) / teams);
}

/* Token types are operand i. */
sets_t sets_of(const loong_kernel_call_t *call, int i, int sets,
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
    LOONG_LAUNCH((route), grid_of_tokens(a.x.rows, teams), dim3(teams * WARP),
                 teams * room_of(a.experts), stream_of(call), a,
                 call->device_frame);
    return launched(call);
}

static loong_status_t run_grad(const loong_kernel_call_t *call)
{
    router_t a = router_of(call, 1, call->query->num_in);
    int teams = teams_of(a.experts);
    a.dw = mat_arg(call, 0);
    a.index = indices_of(call, 2, 0, a.x.cols);
    a.dx = mat_out(call, 0);
    LOONG_LAUNCH((route_grad), grid_of_tokens(a.x.rows, teams),
                 dim3(teams * WARP), teams * room_of(a.experts),
                 stream_of(call), a, call->device_frame);
    return launched(call);
}

template <bool GRADIENT>
static loong_status_t run_loss(const loong_kernel_call_t *call)
{
    loss_t a;
    int x = GRADIENT ? 1 : 0;
    a.attr =
        *static_cast<const loong_router_loss_attr_t *>(call->query->attr);
    a.x = mat_arg(call, x);
    a.counts = x + 1 < call->query->num_in ? mat_arg(call, x + 1) : mat_none();
    a.dy = GRADIENT ? mat_arg(call, 0) : mat_none();
    a.y = mat_out(call, 0);
    a.sets = sets_of(call, x + 2, a.attr.sets, a.x.cols);
    a.experts = a.sets.experts;
    int teams = teams_of(a.experts);
    LOONG_LAUNCH((lose<GRADIENT>), grid_of_tokens(a.x.rows, teams),
                 dim3(teams * WARP), teams * room_of(a.experts),
                 stream_of(call), a, call->device_frame);
    return launched(call);
}

/* Bit i where input i is there. */
static uint32_t types_from(const loong_kernel_query_t *query, int i)
{
    return i < query->num_in ? 1u << i : 0;
}

/* typed: integers. */
static bool support_experts(const loong_kernel_query_t *query, int logits,
                            uint32_t typed, int sets,
                            char reason[LOONG_REASON_SIZE])
{
    enum { MOST = ROOM / EACH_EXPERT / 64 * 64 };
    int64_t experts = loong_karg_cols(&query->arg[logits], NULL) /
                      LOONG_MAX(sets, 1);
    if (experts > MOST) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%lld experts, this kernel takes up to %d",
                 (long long)experts, (int)MOST);
        return false;
    }
    return cuda_support(query, ~0u, typed, reason);
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

static int loss_sets(const loong_kernel_query_t *query)
{
    return static_cast<const loong_router_loss_attr_t *>(query->attr)->sets;
}

static bool support_loss(const loong_kernel_query_t *query,
                         char reason[LOONG_REASON_SIZE])
{
    return support_experts(query, 0, types_from(query, 2), loss_sets(query),
                           reason);
}

static bool support_loss_grad(const loong_kernel_query_t *query,
                              char reason[LOONG_REASON_SIZE])
{
    return support_experts(query, 1, types_from(query, 3), loss_sets(query),
                           reason);
}

CUDA_KERNEL(topk_router, support, NULL, run);
CUDA_KERNEL(topk_router_grad, support_grad, NULL, run_grad);
CUDA_KERNEL(router_loss, support_loss, NULL, run_loss<false>);
CUDA_KERNEL(router_loss_grad, support_loss_grad, NULL, run_loss<true>);
