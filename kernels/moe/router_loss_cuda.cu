/* SPDX-License-Identifier: Apache-2.0
 *
 * router_loss and its gradient; the formulas stand in router_ref.c. */
#include "moe/router.cuh"

using namespace loong_cuda;

namespace {

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
    double aux;  /* the factor of its set */
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
    token_t k = {0.0, 0.0, 1.0, a.attr.aux, 0,
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
    if (a.attr.sets > 0 && a.counts.p != NULL) {
        double less = (double)a.attr.choices / warp_add(all);
        k.aux *= less * less;
    }
    return k;
}

template <bool GRADIENT>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    lose(loss_t a)
{
    LOONG_SHARED_DYNAMIC(unsigned char, room);
    double *p = row_at(room, a.experts, 0);
    double *soft = row_at(room, a.experts, 1);
    int64_t tokens = a.x.rows;
    for (int64_t t = first_token(); t < tokens; t += token_step()) {
        token_t k = weigh_token(a, t, p, soft);
        if (!GRADIENT && lane_of() == 0) {
            static_cast<float *>(a.y.p)[t] =
                (float)(k.aux * k.mean + a.attr.z * k.lse * k.lse);
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
                             2.0 * a.attr.z * k.lse * soft[e]));
        }
        __syncwarp();
    }
}

} // namespace

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
    LOONG_LAUNCH((lose<GRADIENT>), grid_of_tokens(call, a.x.rows, teams),
                 dim3(teams * WARP), teams * room_of(a.experts),
                 stream_of(call), a);
    return launched(call);
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

CUDA_KERNEL(router_loss, support_loss, NULL, run_loss<false>);
CUDA_KERNEL(router_loss_grad, support_loss_grad, NULL, run_loss<true>);
