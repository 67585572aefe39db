/* SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy, token_logprob and its gradient; formulas in
 * kernels/cross_entropy/cross_entropy_ref.c. Called through the ops' tables and
 * by src/nn/ends.c. Read op_impl.h before. */
#include <string.h>

#include "op_impl.h"

/* A second pair h, u from operand i on, whose product is added to the logits;
 * with their gradients, from output o on where that is not negative. */
static loong_status_t want_second(const loong_op_call_t *call, int i, int o)
{
    if (!loongi_has(call, i)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, i, "h", 2));
    LOONG_TRY(loongi_want_rank(call, i + 1, "u", 2));
    LOONG_TRY(loongi_want_rows(call, i, "h", 0));
    LOONG_TRY(loongi_want_rows(call, i + 1, "u", 1));
    LOONG_TRY(loongi_want_dim(call, i + 1, "u", 1, call->in[i].shape.dim[1]));
    LOONG_TRY(loongi_want_dtype(call, i, "h", call->in[0].dtype));
    LOONG_TRY(loongi_want_dtype(call, i + 1, "u", call->in[0].dtype));
    if (o >= 0) {
        call->out[o] = call->in[i];
        call->out[o + 1].dtype = call->precision.wide;
        call->out[o + 1].shape = call->in[i + 1].shape;
    }
    return LOONG_OK;
}

/* x, w, labels, and the part of the vocabulary that w is. */
static loong_status_t want_head(const loong_op_call_t *call)
{
    const loong_cross_entropy_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 2));
    LOONG_TRY(loongi_want_dim(call, 1, "w", 1, call->in[0].shape.dim[1]));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    LOONG_TRY(loongi_want_rank(call, 2, "labels", 1));
    LOONG_TRY(loongi_want_rows(call, 2, "labels", 0));
    LOONG_TRY(loongi_want_dtype(call, 2, "labels", LOONG_I32));
    int64_t rows = call->in[1].shape.dim[0];
    bool whole = a->size <= 1;
    LOONG_CHECK(call->ctx,
                a->vocab >= 1 && a->begin >= 0 && a->begin < a->vocab &&
                    (!whole || (a->begin == 0 && a->vocab <= rows)),
                LOONG_ERR_ARG, "%s: vocab %lld, w has %lld rows from %lld on",
                call->op, (long long)a->vocab, (long long)rows,
                (long long)a->begin);
    return LOONG_OK;
}

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_cross_entropy_attr_t *a = call->attr;
    LOONG_TRY(want_head(call));
    LOONG_TRY(loongi_want_rank(call, 3, "loss_weight", 1));
    LOONG_TRY(loongi_want_rows(call, 3, "loss_weight", 0));
    LOONG_TRY(loongi_want_dtype(call, 3, "loss_weight", call->precision.wide));
    LOONG_CHECK(call->ctx, a->loss >= 0 && a->loss < LOONG_MAX_LOSSES,
                LOONG_ERR_ARG, "%s: loss %d, at most %d are allowed", call->op,
                a->loss, LOONG_MAX_LOSSES);
    call->out[0] = call->in[3];
    call->out[1] = call->in[0];
    call->out[2].dtype = call->precision.wide;
    call->out[2].shape = call->in[1].shape;
    return want_second(call, 4, 3);
}

/* The forward has made the gradients already. */
static loong_status_t grad(const loong_grad_call_t *call)
{
    LOONG_CHECK(loong_graph_context(call->graph),
                call->out_grad[0] == LOONG_NONE, LOONG_ERR_UNSUPPORTED,
                "cross_entropy: its loss must not be computed with: declare "
                "it with loong_graph_loss and scale it there");
    call->in_grad[0] = call->wanted[0] ? call->out[1] : LOONG_NONE;
    call->in_grad[1] = call->wanted[1] ? call->out[2] : LOONG_NONE;
    for (int i = 4; i < call->num_in; i++) {
        call->in_grad[i] = call->wanted[i] ? call->out[i - 1] : LOONG_NONE;
    }
    return LOONG_OK;
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[0];
    int products =
        1 + (q->arg[q->num_in + 1].rank > 0) + (q->arg[q->num_in + 2].rank > 0);
    cost->flops = 2.0 * products * (double)loong_karg_rows(x) *
                  (double)loong_karg_cols(x) *
                  (double)loong_karg_rows(&q->arg[1]);
    cost->bytes = loongi_cost_bytes(q);
}

/* The ranks that share the vocabulary have what is a token's of the whole. */
static uint32_t same(const void *attr, int o, uint32_t in)
{
    const loong_cross_entropy_attr_t *a = attr;
    return o == 0 && a->size > 1 ? in | loong_same_group(a->group) : in;
}

static const loong_op_t cross_entropy = {
    .name = "cross_entropy",
    .attr_size = sizeof(loong_cross_entropy_attr_t),
    .min_in = 4,
    .max_in = 6,
    .num_out = 5,
    .accumulates = 1u << 2 | 1u << 4,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
    .infer = infer,
    .same = same,
    .grad = grad,
    .cost = cost,
};
const loong_op_t *const loongi_op_cross_entropy = &cross_entropy;

/* Between whom the vocabulary is shared. */
static void share(const loong_graph_t *g, bool shared, loong_group_t group,
                  loong_cross_entropy_attr_t *attr)
{
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    attr->group = group;
    attr->size = shared ? loong_mesh_group_size(mesh, group) : 1;
    attr->rank = shared ? loong_mesh_group_rank(mesh, group) : 0;
}

loong_val_t loong_cross_entropy(loong_graph_t *g, loong_val_t x, loong_val_t w,
                                loong_val_t labels, loong_val_t loss_weight,
                                const loong_cross_entropy_params_t *params)
{
    const loong_cross_entropy_params_t *p = params;
    loong_cross_entropy_attr_t attr = {.loss = loong_graph_losses(g),
                                       .vocab = p->vocab,
                                       .z_loss = p->z_loss,
                                       .begin = p->begin};
    bool second = p->second != NULL;
    loong_val_t in[6] = {x,
                         w,
                         labels,
                         loss_weight,
                         second ? p->second[0] : LOONG_NONE,
                         second ? p->second[1] : LOONG_NONE};
    loong_val_t rows = LOONG_NONE;
    loong_loss_params_t loss = p->loss;
    if (p->shared) {
        loss.same |= loong_same_group(p->group);
    }
    share(g, p->shared, p->group, &attr);
    loong_graph_apply(g, &cross_entropy, &attr, second ? 6 : 4, in, 1, &rows);
    loong_graph_loss(g, rows, &loss);
    return rows;
}

/* ---- token_logprob ------------------------------------------------------- */

static loong_status_t infer_logprob(const loong_op_call_t *call)
{
    LOONG_TRY(want_head(call));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = call->in[2].shape;
    call->out[1] = call->out[0];
    return want_second(call, 3, -1);
}

static loong_status_t infer_logprob_grad(const loong_op_call_t *call)
{
    static const char *const names[] = {"logp", "lse", "dlogp"};
    LOONG_TRY(want_head(call));
    for (int i = 0; i < 3; i++) {
        LOONG_TRY(loongi_want_vector(call, 3 + i, names[i],
                                     call->in[0].shape.dim[0]));
    }
    call->out[0] = call->in[0];
    call->out[1].dtype = call->precision.wide;
    call->out[1].shape = call->in[1].shape;
    return want_second(call, 6, 2);
}

static void cost_logprob(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    cost->flops = 2.0 * (double)loong_karg_rows(&q->arg[0]) *
                  (double)loong_karg_cols(&q->arg[0]) *
                  (double)loong_karg_rows(&q->arg[1]);
    cost->bytes = loongi_cost_bytes(q);
}

static void cost_logprob_grad(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    cost_logprob(q, cost);
    cost->flops *=
        1 + (q->arg[q->num_in].rank > 0) + (q->arg[q->num_in + 1].rank > 0);
}

static uint32_t same_logprob(const void *attr, int o, uint32_t in)
{
    (void)o;
    return same(attr, 0, in);
}

static const loong_op_t token_logprob_grad = {
    .name = "token_logprob_grad",
    .attr_size = sizeof(loong_cross_entropy_attr_t),
    .min_in = 6,
    .max_in = 8,
    .num_out = 4,
    .accumulates = 1u << 1 | 1u << 3,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3,
    .infer = infer_logprob_grad,
    .cost = cost_logprob_grad,
};
const loong_op_t *const loongi_op_token_logprob_grad = &token_logprob_grad;

static loong_status_t grad_logprob(const loong_grad_call_t *call)
{
    bool second = call->num_in > 3;
    loong_val_t in[8] = {call->in[0],
                         call->in[1],
                         call->in[2],
                         call->out[0],
                         call->out[1],
                         call->out_grad[0],
                         second ? call->in[3] : LOONG_NONE,
                         second ? call->in[4] : LOONG_NONE};
    loong_val_t grads[4];
    LOONG_CHECK(loong_graph_context(call->graph),
                call->out_grad[0] != LOONG_NONE &&
                    call->out_grad[1] == LOONG_NONE,
                LOONG_ERR_UNSUPPORTED,
                "token_logprob: a gradient of lse, only that of logp is taken");
    loong_graph_apply(call->graph, &token_logprob_grad, call->attr,
                      second ? 8 : 6, in, 4, grads);
    memcpy(call->in_grad, grads, 2 * sizeof(*grads));
    if (second) {
        memcpy(call->in_grad + 3, grads + 2, 2 * sizeof(*grads));
    }
    return LOONG_OK;
}

static const loong_op_t token_logprob = {
    .name = "token_logprob",
    .attr_size = sizeof(loong_cross_entropy_attr_t),
    .min_in = 3,
    .max_in = 5,
    .num_out = 2,
    .strided_in = true,
    .infer = infer_logprob,
    .same = same_logprob,
    .grad = grad_logprob,
    .cost = cost_logprob,
};
const loong_op_t *const loongi_op_token_logprob = &token_logprob;

loong_val_t loong_token_logprob(loong_graph_t *g, loong_val_t x, loong_val_t w,
                                loong_val_t labels,
                                const loong_token_logprob_params_t *params)
{
    const loong_token_logprob_params_t *p = params;
    loong_cross_entropy_attr_t attr = {
        .loss = -1, .vocab = p->vocab, .begin = p->begin};
    bool second = p->second != NULL;
    loong_val_t in[5] = {x, w, labels, second ? p->second[0] : LOONG_NONE,
                         second ? p->second[1] : LOONG_NONE};
    loong_val_t logp = LOONG_NONE;
    share(g, p->shared, p->group, &attr);
    return loong_graph_apply(g, &token_logprob, &attr, second ? 5 : 3, in, 1,
                             &logp);
}
