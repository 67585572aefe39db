/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy: linear and loss in one. For token t with label y, weight w_t,
 * logits a_v = x_t . w_v over v < vocab, and z the coefficient of the z-loss
 * (Chowdhery et al. 2022, section 5):
 *
 *     lse = ln sum_v exp(a_v)
 *     loss_t = w_t (lse - a_y + z lse^2)
 *
 * With S the scale of this loss in the frame and p_v = exp(a_v - lse), the
 * gradient of S sum_t loss_t is
 *
 *     g_v = S w_t ((1 + 2 z lse) p_v - [v = y])
 *     dx_t = sum_v g_v w_v,  dw_v = sum_t g_v x_t
 *
 * A token without label has loss 0 and g = 0; rows of w at and after vocab
 * have no logit and get gradient 0. When ranks share the vocabulary, v runs
 * over all of them in the sums above, and over the rank's own rows in dx_t.
 *
 * token_logprob: logp_t = a_y - lse, and lse; both 0 without label. Its
 * gradient, given d_t = d sum / d logp_t, has g_v = d_t ([v = y] - p_v).
 *
 * With a second pair of x and w their product is added to the logits, and each
 * has a gradient of its own, by the same g.
 *
 * Listed as references in kernels/list.h; read cross_entropy.h and ref_dense.h
 * before. */
#include "cross_entropy.h"

#include <math.h>
#include <string.h>

#include "ref_dense.h"

static size_t logits_bytes(const loong_kernel_query_t *query)
{
    return (size_t)loong_karg_rows(&query->arg[0]) *
           (size_t)loongi_cross_entropy_columns(query) * sizeof(double);
}

static size_t workspace(const loong_kernel_query_t *query)
{
    int64_t rows = loong_karg_rows(&query->arg[0]);
    size_t products = (size_t)loongi_cross_entropy_roles(query)->num_pairs;
    return loongi_ref_workspace(query) + products * (logits_bytes(query) + 64) +
           64 + loongi_cross_entropy_room(query, rows);
}

/* One launch. */
typedef struct launch {
    const loong_kernel_call_t *call;
    const loong_cross_entropy_attr_t *attr;
    const loong_head_roles_t *roles;
    int64_t rows;
    int64_t columns;
    double *logits; /* then g */
    const double *weight;
    double *value, *lse;
    double scale;
} launch_t;

static loong_softmax_stats_t measure(const launch_t *l, int64_t t)
{
    const double *a = l->logits + t * l->columns;
    int32_t label = ((const int32_t *)l->call->ptr[2])[t];
    int64_t column = loongi_cross_entropy_column(l->attr, l->columns, label);
    loong_softmax_stats_t s = {-INFINITY, 0.0, column >= 0 ? a[column] : 0.0};
    for (int64_t v = 0; v < l->columns; v++) {
        s.top = fmax(s.top, a[v]);
    }
    for (int64_t v = 0; v < l->columns; v++) {
        s.sum += exp(a[v] - s.top);
    }
    return s;
}

/* Turns the logits of one token into g, and tells what is not known. */
static void finish(const launch_t *l, int64_t t, const loong_softmax_stats_t *s)
{
    double *a = l->logits + t * l->columns;
    double weight = l->roles->sign * (l->weight != NULL ? l->weight[t] : 1.0);
    double z = l->attr->z_loss;
    int32_t label = ((const int32_t *)l->call->ptr[2])[t];
    int64_t column = loongi_cross_entropy_column(l->attr, l->columns, label);
    if (label == LOONG_IGNORE_LABEL) {
        memset(a, 0, sizeof(*a) * (size_t)l->columns);
        return;
    }
    double lse = s->top + log(s->sum);
    double slope = 1.0 + 2.0 * z * lse;
    for (int64_t v = 0; v < l->columns; v++) {
        a[v] = l->scale * weight * slope * exp(a[v] - lse);
    }
    if (column >= 0) { /* by what is known of it, if it is */
        a[column] = l->scale * weight * (slope * exp(s->logit - lse) - 1.0);
    }
    if (!l->roles->known) {
        l->value[t] = weight * (lse - s->logit + z * lse * lse);
    }
    if (!l->roles->known && l->lse != NULL) {
        l->lse[t] = lse;
    }
}

static void turn_known(const launch_t *l)
{
#pragma omp parallel for schedule(static) num_threads(l->call->query->threads)
    for (int64_t t = 0; t < l->rows; t++) {
        loong_softmax_stats_t s = loongi_softmax_known(l->value[t], l->lse[t]);
        finish(l, t, &s);
    }
}

static loong_status_t turn(const launch_t *l, void *room)
{
    const loong_kernel_query_t *q = l->call->query;
    loong_softmax_stats_t *own = loongi_cross_entropy_own(q, room, l->rows);
    const loong_softmax_stats_t *all =
        loongi_cross_entropy_all(q, room, l->rows);
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t t = 0; t < l->rows; t++) {
        own[t] = measure(l, t);
    }
    LOONG_TRY(loongi_cross_entropy_exchange(l->call, room, l->rows));
#pragma omp parallel for schedule(static) num_threads(q->threads)
    for (int64_t t = 0; t < l->rows; t++) {
        finish(l, t, &all[t]);
    }
    return LOONG_OK;
}

/* An operand as the op has it: read, or (zeros) to be written. */
static double *operand(const loong_kernel_call_t *call, int role, char **cursor)
{
    int num_in = call->query->num_in;
    return role == 0       ? NULL
           : role < num_in ? loongi_ref_load(call, role, cursor)
                           : loongi_ref_output(call, role - num_in, cursor);
}

static void store(const loong_kernel_call_t *call, int role, const double *from)
{
    if (role >= call->query->num_in) {
        loongi_ref_store(call, role - call->query->num_in, from);
    }
}

/* One pair. */
typedef struct pair {
    const loong_head_pair_t *roles;
    int64_t hidden;
    double *x, *w, *dx, *dw;
} pair_t;

/* The first product overwrites, the other one is added, by way of `more`. */
static void multiply(const launch_t *l, const pair_t *p, bool add, double *more)
{
    int64_t h = p->hidden;
    double *to = add ? more : l->logits;
    loong_ref_matmul_t product = {l->rows,
                                  l->columns,
                                  h,
                                  p->x,
                                  h,
                                  1,
                                  p->w,
                                  1,
                                  h,
                                  to,
                                  l->call->query->threads};
    loongi_ref_matmul(&product);
    for (int64_t i = 0; i < l->rows * l->columns && add; i++) {
        l->logits[i] += more[i];
    }
}

static void multiply_back(const launch_t *l, const pair_t *p)
{
    const loong_kernel_query_t *q = l->call->query;
    const double *a = l->logits;
    int64_t rows = l->rows;
    int64_t v = l->columns;
    int64_t h = p->hidden;
    if (p->dx != NULL) {
        loong_ref_matmul_t product = {rows, h, v, a,     v,         1,
                                      p->w, h, 1, p->dx, q->threads};
        loongi_ref_matmul(&product);
    }
    if (p->dw != NULL) {
        loong_ref_matmul_t product = {v,    h, rows, a,     1,         v,
                                      p->x, h, 1,    p->dw, q->threads};
        loongi_ref_matmul(&product);
    }
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_cross_entropy_attr_t *attr = q->attr;
    const loong_head_roles_t *roles = loongi_cross_entropy_roles(q);
    char *cursor = call->workspace;
    LOONG_TRY(loongi_cross_entropy_labels(call));
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t v = loongi_cross_entropy_columns(q);
    pair_t pair[LOONG_HEAD_PAIRS];
    for (int i = 0; i < roles->num_pairs; i++) {
        const loong_head_pair_t *own = &roles->pair[i];
        pair[i] = (pair_t){own,
                           loong_karg_cols(&q->arg[own->x]),
                           loongi_ref_load(call, own->x, &cursor),
                           loongi_ref_load(call, own->w, &cursor),
                           operand(call, own->dx, &cursor),
                           operand(call, own->dw, &cursor)};
    }
    double *weight = operand(call, roles->weight, &cursor);
    double *value = operand(call, roles->value, &cursor);
    double *lse = operand(call, roles->lse, &cursor);
    double *a = loongi_ref_take(&cursor, logits_bytes(q));
    double *more =
        roles->num_pairs > 1 ? loongi_ref_take(&cursor, logits_bytes(q)) : NULL;
    void *room = loongi_ref_take(&cursor, loongi_cross_entropy_room(q, rows));
    launch_t l = {call,   attr,
                  roles,  rows,
                  v,      a,
                  weight, value,
                  lse,    loongi_cross_entropy_scale(attr, call->frame)};
    for (int i = 0; i < roles->num_pairs; i++) {
        multiply(&l, &pair[i], i > 0, more);
    }
    if (roles->known) {
        turn_known(&l);
    } else {
        LOONG_TRY(turn(&l, room));
    }
    for (int i = 0; i < roles->num_pairs; i++) {
        multiply_back(&l, &pair[i]);
        store(call, pair[i].roles->dx, pair[i].dx);
        store(call, pair[i].roles->dw, pair[i].dw);
    }
    store(call, roles->value, value);
    store(call, roles->lse, lse);
    return LOONG_OK;
}

/* The gradient of token_logprob knows all that ranks exchange. */
#define HEAD_REF(op_, joins_)                   \
    const loong_kernel_t loongi_##op_##_ref = { \
        .name = #op_ "_ref",                    \
        .op = #op_,                             \
        .device = "cpu",                        \
        .workspace = workspace,                 \
        .run = run,                             \
        .joins = joins_,                        \
    }

HEAD_REF(cross_entropy, true);
HEAD_REF(token_logprob, true);
HEAD_REF(token_logprob_grad, false);
