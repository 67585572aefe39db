/* SPDX-License-Identifier: Apache-2.0
 *
 * The router. With x the logits of a token, s the scores, C the k chosen
 * experts, f the scaling factor:
 *
 *   softmax, pre_softmax  s = softmax(x) over all,  w_j = f s_j
 *     dx_e = s_e (f dw_e [e in C] - sum over j in C of f dw_j s_j)
 *   softmax               p = softmax(x) over C,    w_j = f p_j
 *     dx_j = f p_j (dw_j - sum over i in C of p_i dw_i)
 *   sigmoid, sqrtsoftplus s = 1 / (1 + e^-x), sqrt(ln(1 + e^x))
 *     w_j = f s_j / S, S = sum over C of s (+ 1e-20)
 *     dx_j = f s'_j (dw_j - sum over i in C of dw_i s_i / S) / S
 *     or, not divided, w_j = f s_j, dx_j = f s'_j dw_j
 *     s' = s (1 - s),  sigmoid(x) / (2 s)
 *
 * Loss of a token, with the counts c of its span and p the softmax of x, or
 * s / (sum of all s + 1e-20):
 *
 *   l = aux sum over e of c_e p_e + z lse(x)^2
 *   softmax  dx_e = dl (aux p_e (c_e - sum of c p) + 2 z lse softmax(x)_e)
 *   others   dx_e = dl (aux s'_e (c_e - sum of c p) / S + 2 z lse softmax_e)
 *
 * Every token is one thread's, in double: the bits do not depend on threads.
 * These kernels serve all types; a layer's products take a hundred times as
 * long.
 *
 * With sets of experts x, s, c are those of the token's set, and instead of aux
 * and z stand aux q^2 and z q, q = choices / (sum of the set's c). Listed as
 * references in kernels/list.h; read loong/moe.h and ref.h before. */
#include <omp.h>
#include <string.h>

#include "list.h"
#include "moe.h"
#include "ref.h"

enum { ROWS = 5 }; /* rows of E numbers that a thread works in */

static const double TINY = 1e-20;

static size_t room(const loong_kernel_query_t *q, int logits)
{
    return (size_t)q->threads * ROWS * sizeof(double) *
           (size_t)loong_karg_cols(&q->arg[logits]);
}

static double *own_room(const loong_kernel_call_t *call, int64_t experts)
{
    return (double *)call->workspace +
           (int64_t)omp_get_thread_num() * ROWS * experts;
}

static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

static double sigmoid(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double score_of(loong_score_function_t score, double x)
{
    return score == LOONG_SCORE_SIGMOID ? sigmoid(x) : sqrt(softplus(x));
}

static double slope_of(loong_score_function_t score, double x, double s)
{
    if (score == LOONG_SCORE_SIGMOID) {
        return s * (1.0 - s);
    }
    return s > 0.0 ? sigmoid(x) / (2.0 * s) : 0.0;
}

/* n numbers of a row, from column `begin` on. */
static void load(const ref_mat_t *m, int64_t row, int64_t begin, int64_t n,
                 double *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = ref_at(m, row, begin + i);
    }
}

/* ---- sets of experts ----------------------------------------------------- */

typedef struct sets {
    const int32_t *types; /* of the tokens; NULL: one set */
    int64_t size;         /* experts of each */
} sets_t;

/* Token types are input i. */
static loong_status_t read_sets(const loong_kernel_call_t *call, int i,
                                int sets, int64_t experts, sets_t *s)
{
    bool typed = i < call->query->num_in && call->ptr[i] != NULL;
    s->types = typed ? call->ptr[i] : NULL;
    s->size = experts / LOONG_MAX(sets, 1);
    return typed ? loongi_moe_check(call, i, 0, sets - 1) : LOONG_OK;
}

/* The first expert that a token can have. */
static int64_t first_of(const sets_t *s, int64_t token)
{
    return s->types != NULL ? s->types[token] * s->size : 0;
}

/* Softmax of n numbers, in place allowed; returns their log-sum-exp. */
static double softmax(const double *x, int64_t n, double *p)
{
    double top = x[0];
    double sum = 0.0;
    for (int64_t i = 1; i < n; i++) {
        top = fmax(top, x[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] = exp(x[i] - top);
        sum += p[i];
    }
    for (int64_t i = 0; i < n; i++) {
        p[i] /= sum;
    }
    return top + log(sum);
}

/* ---- choice -------------------------------------------------------------- */

/* The largest key of begin .. end - 1 that is not taken; numbers that are none
 * lose against all others, so there is always one. */
static int64_t best_of(const double *key, const double *taken, int64_t begin,
                       int64_t end)
{
    int64_t best = -1;
    for (int64_t e = begin; e < end; e++) {
        if (taken[e] == 0.0 &&
            (best < 0 || key[e] > key[best] ||
             (isnan(key[best]) && !isnan(key[e])))) {
            best = e;
        }
    }
    return best;
}

/* Takes the experts of all groups but the best ones; taken[] is all 0. Two
 * rows of work. */
static void close_groups(const loong_router_attr_t *a, const double *key,
                         int64_t experts, double *taken, double *work)
{
    int64_t each = experts / a->num_groups;
    int scores = a->group_scores > 0 ? a->group_scores
                                     : a->topk / a->group_topk;
    double *sum = work;
    double *open = work + experts;
    for (int g = 0; g < a->num_groups; g++) {
        sum[g] = open[g] = 0.0;
        for (int j = 0; j < scores; j++) {
            int64_t e = best_of(key, taken, g * each, (g + 1) * each);
            sum[g] += key[e];
            taken[e] = 1.0;
        }
    }
    for (int j = 0; j < a->group_topk; j++) {
        open[best_of(sum, open, 0, a->num_groups)] = 1.0;
    }
    for (int64_t e = 0; e < experts; e++) {
        taken[e] = 1.0 - open[e / each];
    }
}

/* The k experts with the largest keys, counted from 0 in their set. Three rows
 * of work. */
static void choose(const loong_router_attr_t *a, const double *key,
                   int64_t experts, int64_t token, double *work,
                   int32_t *index)
{
    double *taken = work;
    for (int j = 0; a->forced && j < a->topk; j++) {
        index[j] = (int32_t)(((a->begin + token) * a->topk + j) % experts);
    }
    if (a->forced) {
        return;
    }
    memset(taken, 0, sizeof(*taken) * (size_t)experts);
    if (a->num_groups > 0) {
        close_groups(a, key, experts, taken, work + experts);
    }
    for (int j = 0; j < a->topk; j++) {
        index[j] = (int32_t)best_of(key, taken, 0, experts);
        taken[index[j]] = 1.0;
    }
}

/* ---- topk_router --------------------------------------------------------- */

/* Scores of all experts; those that have none of their own are compared by
 * their logits. */
static void score_all(const loong_router_attr_t *a, const double *x,
                      int64_t experts, double *score)
{
    if (a->score == LOONG_SCORE_SOFTMAX && a->pre_softmax) {
        softmax(x, experts, score);
        return;
    }
    for (int64_t e = 0; e < experts; e++) {
        score[e] = a->score == LOONG_SCORE_SOFTMAX ? x[e]
                                                   : score_of(a->score, x[e]);
    }
}

static bool divides(const loong_router_attr_t *a)
{
    return a->score != LOONG_SCORE_SOFTMAX &&
           (a->weights == LOONG_WEIGHTS_DIVIDED ||
            (a->weights == LOONG_WEIGHTS_AUTO && a->topk > 1));
}

/* What the chosen scores are divided by. */
static double divisor(const loong_router_attr_t *a, const double *score,
                      const int32_t *index)
{
    double sum = TINY;
    if (!divides(a)) {
        return 1.0;
    }
    for (int j = 0; j < a->topk; j++) {
        sum += score[index[j]];
    }
    return sum;
}

/* Weights of the chosen, without the factor. */
static void weigh(const loong_router_attr_t *a, const double *score,
                  const int32_t *index, double *weight)
{
    double sum = divisor(a, score, index);
    for (int j = 0; j < a->topk; j++) {
        weight[j] = score[index[j]] / sum;
    }
    if (a->score == LOONG_SCORE_SOFTMAX && !a->pre_softmax) {
        softmax(weight, a->topk, weight);
    }
}

static size_t router_room(const loong_kernel_query_t *q)
{
    return room(q, 0);
}

/* Recorded experts are those of the tokens' sets. */
static loong_status_t check_replayed(const loong_kernel_call_t *call,
                                     const sets_t *s, int64_t experts)
{
    const loong_karg_t *arg = &call->query->arg[2];
    const int32_t *given = call->ptr[2];
    int64_t k = arg->dim[1];
    LOONG_TRY(loongi_moe_check(call, 2, 0, experts - 1));
    for (int64_t i = 0; s->types != NULL && i < arg->dim[0] * k; i++) {
        int64_t first = first_of(s, i / k);
        int32_t expert = given[i / k * arg->ld + i % k];
        LOONG_CHECK(call->ctx,
                    expert >= first && expert < first + s->size,
                    LOONG_ERR_ARG,
                    "%s: expert %d for token %lld of type %d, which has %lld "
                    "to %lld",
                    call->query->op, expert, (long long)(i / k),
                    s->types[i / k], (long long)first,
                    (long long)(first + s->size - 1));
    }
    return LOONG_OK;
}

static loong_status_t router(const loong_kernel_call_t *call)
{
    const loong_router_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t bias = ref_arg(call, 1);
    ref_mat_t w = ref_out(call, 0);
    ref_mat_t index = ref_out(call, 1);
    ref_mat_t given = ref_arg(call, 2);
    bool biased = call->query->num_in > 1 && call->ptr[1] != NULL;
    const int32_t *replayed = call->query->num_in > 2 ? call->ptr[2] : NULL;
    sets_t sets;
    LOONG_TRY(read_sets(call, 3, a->sets, x.cols, &sets));
    int64_t n = sets.size;
    if (replayed != NULL) {
        LOONG_TRY(check_replayed(call, &sets, x.cols));
    }
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double *all = own_room(call, x.cols);
        int64_t first = first_of(&sets, t);
        double *score = all + first;
        double *key = score + x.cols;
        int32_t *chosen = (int32_t *)index.p + t * index.ld;
        load(&x, t, first, n, key);
        score_all(a, key, n, score);
        if (biased && a->score == LOONG_SCORE_SOFTMAX && !a->pre_softmax) {
            softmax(score, n, key); /* logits and a bias do not compare */
        } else {
            memcpy(key, score, sizeof(*key) * (size_t)n);
        }
        for (int64_t e = 0; e < n && biased; e++) {
            key[e] += ref_at(&bias, 0, first + e);
        }
        if (replayed != NULL) {
            memcpy(chosen, replayed + t * given.ld,
                   sizeof(*chosen) * (size_t)a->topk);
        } else {
            choose(a, key, n, t, all + 2 * x.cols, chosen);
        }
        for (int j = 0; j < a->topk && replayed == NULL; j++) {
            chosen[j] += (int32_t)first;
        }
        weigh(a, all, chosen, key);
        for (int j = 0; j < a->topk; j++) {
            ref_put(&w, t, j, a->scaling_factor * key[j]);
        }
    }
    return LOONG_OK;
}

/* dx of one token: rows x, score, weight, dweight, dx of work. The choice tells
 * the set. */
static void router_back(const loong_router_attr_t *a, int64_t n,
                        const int32_t *index, double *work)
{
    double *x = work, *score = work + n, *weight = work + 2 * n;
    double *dw = work + 3 * n, *dx = work + 4 * n;
    double mean = 0.0;
    int64_t set = n / LOONG_MAX(a->sets, 1);
    int64_t first = index[0] / set * set;
    score_all(a, x + first, set, score + first);
    weigh(a, score, index, weight);
    for (int j = 0; j < a->topk; j++) {
        dw[j] *= a->scaling_factor;
        mean += weight[j] * dw[j];
    }
    bool all = a->score == LOONG_SCORE_SOFTMAX && a->pre_softmax;
    for (int64_t e = 0; e < n; e++) {
        bool own = e >= first && e < first + set;
        dx[e] = all && own ? -mean * score[e] : 0.0;
    }
    double sum = divisor(a, score, index);
    for (int j = 0; j < a->topk; j++) {
        int32_t e = index[j];
        if (a->score != LOONG_SCORE_SOFTMAX) {
            double less = divides(a) ? mean : 0.0;
            dx[e] = slope_of(a->score, x[e], score[e]) * (dw[j] - less) / sum;
        } else if (all) {
            dx[e] += dw[j] * score[e];
        } else {
            dx[e] = weight[j] * (dw[j] - mean);
        }
    }
}

static size_t router_grad_room(const loong_kernel_query_t *q)
{
    return room(q, 1);
}

static loong_status_t router_grad(const loong_kernel_call_t *call)
{
    const loong_router_attr_t *a = call->query->attr;
    ref_mat_t dw = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t index = ref_arg(call, 2);
    ref_mat_t dx = ref_out(call, 0);
    int64_t n = x.cols;
    LOONG_TRY(loongi_moe_check(call, 2, 0, n - 1));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double *work = own_room(call, n);
        load(&x, t, 0, n, work);
        load(&dw, t, 0, a->topk, work + 3 * n);
        router_back(a, n, (const int32_t *)index.p + t * index.ld, work);
        for (int64_t e = 0; e < n; e++) {
            ref_put(&dx, t, e, work[4 * n + e]);
        }
    }
    return LOONG_OK;
}

/* ---- router_loss --------------------------------------------------------- */

/* One token: its logits in work; p in the row behind, softmax behind that. */
typedef struct token {
    double lse;
    double mean; /* sum of c p */
    double sum;  /* what scores are divided by; 1 with softmax */
    double aux;  /* the factor of its set */
} token_t;

static token_t weigh_token(const loong_router_loss_attr_t *a, int64_t n,
                           const ref_mat_t *counts, int64_t span, int64_t first,
                           double *work)
{
    double *p = work + n;
    double *soft = work + 2 * n;
    double all = 0.0;
    token_t t = {softmax(work, n, soft), 0.0, 1.0, a->aux};
    memcpy(p, soft, sizeof(*p) * (size_t)n);
    if (a->score != LOONG_SCORE_SOFTMAX) {
        t.sum = TINY;
        for (int64_t e = 0; e < n; e++) {
            p[e] = score_of(a->score, work[e]);
            t.sum += p[e];
        }
    }
    for (int64_t e = 0; e < n; e++) {
        p[e] /= t.sum;
        double c = counts != NULL ? ref_at(counts, span, first + e) : 0.0;
        t.mean += c * p[e];
        all += c;
    }
    if (a->sets > 0 && counts != NULL) {
        double less = (double)a->choices / all;
        t.aux *= less * less;
    }
    return t;
}

/* Counts are input `i`; NULL when there are none. */
static const ref_mat_t *counts_of(const loong_kernel_call_t *call, int i,
                                  ref_mat_t *m)
{
    if (i >= call->query->num_in || call->ptr[i] == NULL) {
        return NULL;
    }
    *m = ref_arg(call, i);
    return m;
}

static loong_status_t loss(const loong_kernel_call_t *call)
{
    const loong_router_loss_attr_t *a = call->query->attr;
    ref_mat_t x = ref_arg(call, 0);
    ref_mat_t memory;
    const ref_mat_t *c = counts_of(call, 1, &memory);
    ref_mat_t y = ref_out(call, 0);
    sets_t sets;
    LOONG_TRY(read_sets(call, 2, a->sets, x.cols, &sets));
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double *work = own_room(call, x.cols);
        int64_t first = first_of(&sets, t);
        load(&x, t, first, sets.size, work);
        token_t k = weigh_token(a, sets.size, c,
                                c != NULL ? (a->begin + t) / a->span : 0,
                                first, work);
        ref_put(&y, 0, t, k.aux * k.mean + a->z * k.lse * k.lse);
    }
    return LOONG_OK;
}

static loong_status_t loss_grad(const loong_kernel_call_t *call)
{
    const loong_router_loss_attr_t *a = call->query->attr;
    ref_mat_t dl = ref_arg(call, 0);
    ref_mat_t x = ref_arg(call, 1);
    ref_mat_t memory;
    const ref_mat_t *c = counts_of(call, 2, &memory);
    ref_mat_t dx = ref_out(call, 0);
    sets_t sets;
    LOONG_TRY(read_sets(call, 3, a->sets, x.cols, &sets));
    int64_t n = sets.size;
#pragma omp parallel for schedule(static) num_threads(call->query->threads)
    for (int64_t t = 0; t < x.rows; t++) {
        double *work = own_room(call, x.cols);
        int64_t span = c != NULL ? (a->begin + t) / a->span : 0;
        int64_t first = first_of(&sets, t);
        double d = ref_at(&dl, 0, t);
        load(&x, t, first, n, work);
        token_t k = weigh_token(a, n, c, span, first, work);
        for (int64_t e = 0; e < x.cols; e++) {
            ref_put(&dx, t, e, 0.0); /* of the other sets */
        }
        for (int64_t e = 0; e < n; e++) {
            double p = work[n + e];
            double more = c != NULL ? ref_at(c, span, first + e) - k.mean : 0.0;
            double slope =
                a->score == LOONG_SCORE_SOFTMAX
                    ? p
                    : slope_of(a->score, work[e], p * k.sum) / k.sum;
            ref_put(&dx, t, first + e,
                    d * (k.aux * slope * more +
                         2.0 * a->z * k.lse * work[2 * n + e]));
        }
    }
    return LOONG_OK;
}

#define ROUTER_KERNEL(symbol_, op_, workspace_, run_) \
    const loong_kernel_t loongi_##symbol_##_ref = {   \
        .name = op_ "_ref",                           \
        .op = op_,                                    \
        .device = "cpu",                              \
        .workspace = workspace_,                      \
        .run = run_,                                  \
    }

ROUTER_KERNEL(topk_router, "topk_router", router_room, router);
ROUTER_KERNEL(topk_router_grad, "topk_router_grad", router_grad_room,
              router_grad);
ROUTER_KERNEL(router_loss, "router_loss", router_room, loss);
ROUTER_KERNEL(router_loss_grad, "router_loss_grad", router_grad_room,
              loss_grad);
