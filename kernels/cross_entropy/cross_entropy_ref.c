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
 */
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
    return loongi_ref_workspace(query) + logits_bytes(query) + 128 +
           loongi_cross_entropy_room(query, rows);
}

/* One launch. */
typedef struct launch {
    const loong_kernel_call_t *call;
    const loong_cross_entropy_attr_t *attr;
    int64_t rows;
    int64_t columns;
    double *logits; /* then g */
    const double *weight;
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

/* Turns the logits of one token into g; returns its loss. */
static double finish(const launch_t *l, int64_t t,
                     const loong_softmax_stats_t *s)
{
    double *a = l->logits + t * l->columns;
    double weight = l->weight[t];
    double z = l->attr->z_loss;
    int32_t label = ((const int32_t *)l->call->ptr[2])[t];
    int64_t column = loongi_cross_entropy_column(l->attr, l->columns, label);
    if (label == LOONG_IGNORE_LABEL) {
        memset(a, 0, sizeof(*a) * (size_t)l->columns);
        return 0.0;
    }
    double lse = s->top + log(s->sum);
    for (int64_t v = 0; v < l->columns; v++) {
        a[v] = l->scale * weight * (1.0 + 2.0 * z * lse) * exp(a[v] - lse);
    }
    if (column >= 0) {
        a[column] -= l->scale * weight;
    }
    return weight * (lse - s->logit + z * lse * lse);
}

static loong_status_t turn(const launch_t *l, void *room, double *loss)
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
        loss[t] = finish(l, t, &all[t]);
    }
    return LOONG_OK;
}

static loong_status_t run(const loong_kernel_call_t *call)
{
    const loong_kernel_query_t *q = call->query;
    const loong_cross_entropy_attr_t *attr = q->attr;
    char *cursor = call->workspace;
    LOONG_TRY(loongi_cross_entropy_labels(call));
    double *x = loongi_ref_load(call, 0, &cursor);
    double *w = loongi_ref_load(call, 1, &cursor);
    double *weight = loongi_ref_load(call, 3, &cursor);
    double *loss = loongi_ref_output(call, 0, &cursor);
    double *dx = loongi_ref_output(call, 1, &cursor);
    double *dw = loongi_ref_output(call, 2, &cursor);
    double *a = loongi_ref_take(&cursor, logits_bytes(q));
    int64_t rows = loong_karg_rows(&q->arg[0]);
    int64_t h = loong_karg_cols(&q->arg[0]);
    int64_t v = loongi_cross_entropy_columns(q);
    void *room = loongi_ref_take(&cursor, loongi_cross_entropy_room(q, rows));
    loong_ref_matmul_t forward = {rows, v, h, x, h, 1, w, 1, h, a, q->threads};
    loongi_ref_matmul(&forward);
    launch_t l = {call, attr, rows, v, a, weight,
                  call->frame->loss_scale[attr->loss]};
    LOONG_TRY(turn(&l, room, loss));
    if (dx != NULL) {
        loong_ref_matmul_t product = {rows, h, v, a,  v,         1,
                                      w,    h, 1, dx, q->threads};
        loongi_ref_matmul(&product);
    }
    if (dw != NULL) {
        loong_ref_matmul_t product = {v, h, rows, a,  1,         v,
                                      x, h, 1,    dw, q->threads};
        loongi_ref_matmul(&product);
    }
    loongi_ref_store(call, 0, loss);
    loongi_ref_store(call, 1, dx);
    loongi_ref_store(call, 2, dw);
    return LOONG_OK;
}

const loong_kernel_t loongi_cross_entropy_ref = {
    .name = "cross_entropy_ref",
    .op = "cross_entropy",
    .device = "cpu",
    .workspace = workspace,
    .run = run,
    .joins = true,
};
