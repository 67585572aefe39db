/* SPDX-License-Identifier: Apache-2.0
 *
 * The router of a mixture of experts and its losses; formulas in
 * kernels/moe/router_ref.c. Called through the ops' tables and by src/nn/moe.c.
 * Read loong/moe.h and op_impl.h before. */
#include <string.h>

#include "loong/moe.h"
#include "op_impl.h"

static loong_status_t want_logits(const loong_op_call_t *call, int i)
{
    LOONG_TRY(loongi_want_rank(call, i, "logits", 2));
    return loongi_want_dtype(call, i, "logits", call->precision.wide);
}

static loong_status_t want_score(const loong_op_call_t *call,
                                 loong_score_function_t score)
{
    LOONG_CHECK(call->ctx,
                score >= LOONG_SCORE_SOFTMAX &&
                    score <= LOONG_SCORE_SQRTSOFTPLUS,
                LOONG_ERR_ARG, "%s: score function %d, 0 to %d allowed",
                call->op, (int)score, (int)LOONG_SCORE_SQRTSOFTPLUS);
    return LOONG_OK;
}

static loong_status_t want_sets(const loong_op_call_t *call, int sets,
                                int64_t experts)
{
    LOONG_CHECK(call->ctx, sets >= 0 && experts % LOONG_MAX(sets, 1) == 0,
                LOONG_ERR_ARG, "%s: %lld experts in %d sets of equal size",
                call->op, (long long)experts, sets);
    return LOONG_OK;
}

/* Token types are there with sets, and only then. */
static loong_status_t want_types(const loong_op_call_t *call, int i, int sets,
                                 int logits)
{
    LOONG_CHECK(call->ctx, loongi_has(call, i) == (sets > 0), LOONG_ERR_ARG,
                "%s: %d sets of experts and %s token types", call->op, sets,
                loongi_has(call, i) ? "" : "no");
    if (sets == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, i, "types", 1));
    LOONG_TRY(loongi_want_dtype(call, i, "types", LOONG_I32));
    return loongi_want_rows(call, i, "types", logits);
}

/* Set 0 of all tokens. */
static void example_types(const loong_kernel_query_t *q, int i, void *data)
{
    memset(data, 0, sizeof(int32_t) * (size_t)q->arg[i].dim[0]);
}

/* ---- topk_router --------------------------------------------------------- */

static loong_status_t want_groups(const loong_op_call_t *call, int64_t experts)
{
    const loong_router_attr_t *a = call->attr;
    if (a->num_groups == 0) {
        return LOONG_OK;
    }
    int64_t each = a->num_groups > 0 ? experts / a->num_groups : 0;
    bool even = a->group_scores > 0
                    ? a->group_scores <= each
                    : a->group_topk > 0 && a->topk % a->group_topk == 0;
    LOONG_CHECK(call->ctx,
                a->num_groups > 0 && experts % a->num_groups == 0 &&
                    a->group_topk >= 1 && a->group_topk <= a->num_groups &&
                    a->group_scores >= 0 && even &&
                    a->topk <= a->group_topk * each,
                LOONG_ERR_ARG,
                "%s: %d experts of %d of %d groups of %lld: the groups must "
                "have the same size, and the experts be shared out evenly "
                "over the chosen groups, unless group_scores is given",
                call->op, a->topk, a->group_topk, a->num_groups,
                (long long)each);
    return LOONG_OK;
}

static loong_status_t want_router(const loong_op_call_t *call, int64_t experts)
{
    const loong_router_attr_t *a = call->attr;
    LOONG_TRY(want_score(call, a->score));
    LOONG_TRY(want_sets(call, a->sets, experts));
    experts /= LOONG_MAX(a->sets, 1);
    LOONG_CHECK(call->ctx, a->topk >= 1 && a->topk <= experts, LOONG_ERR_ARG,
                "%s: %d experts a token, 1 to %lld allowed", call->op, a->topk,
                (long long)experts);
    LOONG_CHECK(call->ctx, a->scaling_factor > 0.0, LOONG_ERR_ARG,
                "%s: scaling factor %g, a positive number wanted", call->op,
                a->scaling_factor);
    return want_groups(call, experts);
}

static loong_status_t infer_router(const loong_op_call_t *call)
{
    const loong_router_attr_t *a = call->attr;
    LOONG_TRY(want_logits(call, 0));
    int64_t experts = call->in[0].shape.dim[1];
    LOONG_TRY(want_router(call, experts));
    if (loongi_has(call, 1)) {
        LOONG_TRY(loongi_want_vector(call, 1, "bias", experts));
    }
    if (loongi_has(call, 2)) {
        LOONG_TRY(loongi_want_rank(call, 2, "replayed", 2));
        LOONG_TRY(loongi_want_dtype(call, 2, "replayed", LOONG_I32));
        LOONG_TRY(loongi_want_rows(call, 2, "replayed", 0));
        LOONG_TRY(loongi_want_dim(call, 2, "replayed", 1, a->topk));
    }
    LOONG_TRY(want_types(call, 3, a->sets, 0));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = a->topk;
    call->out[1] = call->out[0];
    call->out[1].dtype = LOONG_I32;
    return LOONG_OK;
}

static loong_status_t infer_router_grad(const loong_op_call_t *call)
{
    const loong_router_attr_t *a = call->attr;
    LOONG_TRY(want_logits(call, 1));
    LOONG_TRY(want_router(call, call->in[1].shape.dim[1]));
    LOONG_TRY(loongi_want_rank(call, 0, "dweights", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "dweights", call->precision.wide));
    LOONG_TRY(loongi_want_rows(call, 0, "dweights", 1));
    LOONG_TRY(loongi_want_dim(call, 0, "dweights", 1, a->topk));
    LOONG_TRY(loongi_want_like(call, 2, "indices", 0));
    LOONG_TRY(loongi_want_dtype(call, 2, "indices", LOONG_I32));
    call->out[0] = call->in[1];
    return LOONG_OK;
}

/* Experts in turn. */
static void example_choice(const loong_kernel_query_t *q, int i, void *data)
{
    int32_t *index = data;
    int64_t experts = q->arg[1].dim[1];
    int64_t n = loong_karg_rows(&q->arg[i]) * q->arg[i].dim[1];
    for (int64_t s = 0; i == 2 && s < n; s++) {
        index[s] = (int32_t)(s % experts);
    }
}

static const loong_op_t topk_router_grad = {
    .name = "topk_router_grad",
    .attr_size = sizeof(loong_router_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .infer = infer_router_grad,
    .example = example_choice,
};
const loong_op_t *const loongi_op_topk_router_grad = &topk_router_grad;

static const loong_op_t expert_excess;

static loong_status_t grad_router(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    loong_val_t in[3] = {call->out_grad[0], call->in[0], call->out[1]};
    if (call->wanted[0]) {
        loong_graph_apply(g, &topk_router_grad, call->attr, 3, in, 1,
                          &call->in_grad[0]);
    }
    if (call->num_in > 1 && call->wanted[1]) {
        loong_expert_excess_attr_t attr = {
            (int)loong_value_shape(g, call->in[0]).dim[1],
            ((const loong_router_attr_t *)call->attr)->sets};
        loong_graph_apply(g, &expert_excess, &attr, 1, &in[2], 1,
                          &call->in_grad[1]);
    }
    return LOONG_OK;
}

/* Experts of a set in turn, all tokens of its type. */
static void example_router(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_router_attr_t *a = q->attr;
    int32_t *index = data;
    int64_t experts = q->arg[0].dim[1] / LOONG_MAX(a->sets, 1);
    int64_t n = loong_karg_rows(&q->arg[i]) * q->arg[i].dim[1];
    for (int64_t s = 0; i == 2 && s < n; s++) {
        index[s] = (int32_t)(s % experts);
    }
    if (i == 3) {
        example_types(q, i, data);
    }
}

static const loong_op_t topk_router = {
    .name = "topk_router",
    .attr_size = sizeof(loong_router_attr_t),
    .min_in = 1,
    .max_in = 4,
    .num_out = 2,
    .infer = infer_router,
    .grad = grad_router,
    .example = example_router,
};
const loong_op_t *const loongi_op_topk_router = &topk_router;

loong_val_t loong_topk_router(loong_graph_t *g, loong_val_t logits,
                              const loong_router_inputs_t *inputs,
                              const loong_router_attr_t *attr,
                              loong_val_t *indices_p)
{
    loong_val_t in[4] = {logits, inputs->bias, inputs->replayed,
                         inputs->types};
    loong_val_t out[2] = {LOONG_NONE, LOONG_NONE};
    int num_in = 4;
    while (in[num_in - 1] == LOONG_NONE && num_in > 1) {
        num_in--;
    }
    loong_graph_apply(g, &topk_router, attr, num_in, in, 2, out);
    *indices_p = out[1];
    return out[0];
}

/* ---- expert_counts ------------------------------------------------------- */

static loong_status_t want_span(const loong_op_call_t *call, int i,
                                int64_t spans, int64_t span, int64_t begin)
{
    int64_t tokens = call->in[i].shape.dim[0];
    LOONG_CHECK(call->ctx,
                span >= 1 && begin >= 0 && spans >= 1 &&
                    begin + tokens <= spans * span,
                LOONG_ERR_ARG,
                "%s: tokens %lld to %lld, there are %lld spans of %lld",
                call->op, (long long)begin, (long long)(begin + tokens - 1),
                (long long)spans, (long long)span);
    return LOONG_OK;
}

static loong_status_t infer_counts(const loong_op_call_t *call)
{
    const loong_expert_counts_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "indices", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "indices", LOONG_I32));
    LOONG_CHECK(call->ctx, a->experts >= 1, LOONG_ERR_ARG,
                "%s: %d experts, a positive number wanted", call->op,
                a->experts);
    LOONG_TRY(want_span(call, 0, a->spans, a->span, a->begin));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = loong_shape_2d(a->spans, a->experts);
    return LOONG_OK;
}

static void example_counts(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_counts_attr_t *a = q->attr;
    int32_t *index = data;
    int64_t n = loong_karg_rows(&q->arg[0]) * q->arg[0].dim[1];
    for (int64_t s = 0; i == 0 && s < n; s++) {
        index[s] = (int32_t)(s % a->experts);
    }
}

static const loong_op_t expert_counts = {
    .name = "expert_counts",
    .attr_size = sizeof(loong_expert_counts_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_counts,
    .example = example_counts,
};
const loong_op_t *const loongi_op_expert_counts = &expert_counts;

loong_val_t loong_expert_counts(loong_graph_t *g, loong_val_t indices,
                                const loong_expert_counts_attr_t *attr)
{
    loong_val_t y;
    return loong_graph_apply(g, &expert_counts, attr, 1, &indices, 1, &y);
}

/* ---- expert_excess ------------------------------------------------------- */

static loong_status_t infer_excess(const loong_op_call_t *call)
{
    const loong_expert_excess_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "indices", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "indices", LOONG_I32));
    LOONG_CHECK(call->ctx, a->experts >= 1, LOONG_ERR_ARG,
                "%s: %d experts, a positive number wanted", call->op,
                a->experts);
    LOONG_TRY(want_sets(call, a->sets, a->experts));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = loong_shape_1d(a->experts);
    return LOONG_OK;
}

static void example_excess(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_excess_attr_t *a = q->attr;
    int32_t *index = data;
    int64_t n = loong_karg_rows(&q->arg[0]) * q->arg[0].dim[1];
    for (int64_t s = 0; i == 0 && s < n; s++) {
        index[s] = (int32_t)(s % a->experts);
    }
}

static const loong_op_t expert_excess = {
    .name = "expert_excess",
    .attr_size = sizeof(loong_expert_excess_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_excess,
    .example = example_excess,
};
const loong_op_t *const loongi_op_expert_excess = &expert_excess;

/* ---- router_loss --------------------------------------------------------- */

static loong_status_t want_loss(const loong_op_call_t *call, int logits,
                                int counts)
{
    const loong_router_loss_attr_t *a = call->attr;
    LOONG_TRY(want_logits(call, logits));
    LOONG_TRY(want_score(call, a->score));
    bool counted = a->aux != 0.0;
    LOONG_CHECK(call->ctx, loongi_has(call, counts) == counted, LOONG_ERR_ARG,
                "%s: %s counts, with a factor %g of their loss", call->op,
                loongi_has(call, counts) ? "" : "no", a->aux);
    LOONG_TRY(want_sets(call, a->sets, call->in[logits].shape.dim[1]));
    LOONG_TRY(want_types(call, counts + 1, a->sets, logits));
    if (!loongi_has(call, counts)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, counts, "counts", 2));
    LOONG_TRY(loongi_want_dtype(call, counts, "counts", call->precision.wide));
    LOONG_TRY(loongi_want_dim(call, counts, "counts", 1,
                              call->in[logits].shape.dim[1]));
    return want_span(call, logits, call->in[counts].shape.dim[0], a->span,
                     a->begin);
}

static loong_status_t infer_loss(const loong_op_call_t *call)
{
    LOONG_TRY(want_loss(call, 0, 1));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = call->in[0].shape;
    call->out[0].shape.rank = 1;
    return LOONG_OK;
}

static loong_status_t infer_loss_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_loss(call, 1, 2));
    LOONG_TRY(loongi_want_rank(call, 0, "dloss", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "dloss", call->precision.wide));
    LOONG_TRY(loongi_want_rows(call, 0, "dloss", 1));
    call->out[0] = call->in[1];
    return LOONG_OK;
}

static void example_loss(const loong_kernel_query_t *q, int i, void *data)
{
    if (i == q->num_in - 1 && q->arg[i].dtype == LOONG_I32) {
        example_types(q, i, data);
    }
}

static const loong_op_t router_loss_grad = {
    .name = "router_loss_grad",
    .attr_size = sizeof(loong_router_loss_attr_t),
    .min_in = 2,
    .max_in = 4,
    .num_out = 1,
    .infer = infer_loss_grad,
    .example = example_loss,
};
const loong_op_t *const loongi_op_router_loss_grad = &router_loss_grad;

static loong_status_t grad_loss(const loong_grad_call_t *call)
{
    loong_val_t in[4] = {call->out_grad[0], call->in[0],
                         call->num_in > 1 ? call->in[1] : LOONG_NONE,
                         call->num_in > 2 ? call->in[2] : LOONG_NONE};
    loong_graph_apply(call->graph, &router_loss_grad, call->attr,
                      1 + call->num_in, in, 1, &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t router_loss = {
    .name = "router_loss",
    .attr_size = sizeof(loong_router_loss_attr_t),
    .min_in = 1,
    .max_in = 3,
    .num_out = 1,
    .infer = infer_loss,
    .grad = grad_loss,
    .example = example_loss,
};
const loong_op_t *const loongi_op_router_loss = &router_loss;

loong_val_t loong_router_loss(loong_graph_t *g, loong_val_t logits,
                              loong_val_t counts, loong_val_t types,
                              const loong_router_loss_attr_t *attr)
{
    loong_val_t in[3] = {logits, counts, types};
    loong_val_t y;
    int num_in = types != LOONG_NONE ? 3 : counts != LOONG_NONE ? 2 : 1;
    return loong_graph_apply(g, &router_loss, attr, num_in, in, 1, &y);
}
