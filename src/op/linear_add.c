/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_add: a product that is added to some columns of another tensor, as the
 * adapters of a linear layer are; formulas in kernels/linear/linear_add_ref.c.
 * Called by src/nn/adapters.c. Read op_impl.h before. */
#include "loong/register.h"
#include "op_impl.h"

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_linear_add_attr_t *a = call->attr;
    int out = a->transposed ? 1 : 0;
    LOONG_TRY(loongi_want_float(call, 0, "y"));
    LOONG_TRY(loongi_want_rank(call, 0, "y", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 2, "w", 2));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    LOONG_TRY(loongi_want_dtype(call, 2, "w", call->in[0].dtype));
    LOONG_TRY(loongi_want_dim(call, 2, "w", 1 - out, call->in[1].shape.dim[1]));
    int64_t count = call->in[2].shape.dim[out];
    LOONG_CHECK(call->ctx,
                a->begin >= 0 && a->begin + count <= call->in[0].shape.dim[1],
                LOONG_ERR_ARG, "%s: columns %lld to %lld of y, which has %lld",
                call->op, (long long)a->begin,
                (long long)(a->begin + count - 1),
                (long long)call->in[0].shape.dim[1]);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

/* y's gradient is the sum's; x and w see its columns. */
static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    const loong_linear_add_attr_t *a = call->attr;
    loong_linear_attr_t same = {a->transposed, LOONG_ACT_NONE};
    loong_linear_attr_t flipped = {!a->transposed, LOONG_ACT_NONE};
    loong_shape_t w = loong_value_shape(g, call->in[2]);
    if (call->out_grad[0] == LOONG_NONE) {
        return LOONG_OK;
    }
    loong_val_t dy = loong_slice(g, call->out_grad[0], a->begin,
                                 w.dim[a->transposed ? 1 : 0]);
    call->in_grad[0] = call->out_grad[0];
    if (call->wanted[1]) {
        loong_val_t in[2] = {dy, call->in[2]};
        loong_graph_apply(g, loong_find_op(loong_graph_context(g), "linear"),
                          &flipped, 2, in, 1, &call->in_grad[1]);
    }
    if (call->wanted[2]) {
        loong_val_t in[2] = {dy, call->in[1]};
        loong_graph_apply(g, loong_find_op(loong_graph_context(g), "linear_dw"),
                          &same, 2, in, 1, &call->in_grad[2]);
    }
    return loong_graph_status(g);
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[1];
    const loong_karg_t *w = &q->arg[2];
    cost->flops = 2.0 * (double)loong_karg_rows(x) *
                  (double)loong_karg_rows(w) * (double)loong_karg_cols(w);
    cost->bytes = loongi_cost_bytes(q);
}

static const loong_op_t linear_add = {
    .name = "linear_add",
    .attr_size = sizeof(loong_linear_add_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
    .cost = cost,
};

const loong_op_t *const loongi_op_linear_add = &linear_add;

loong_val_t loong_linear_add(loong_graph_t *g, loong_val_t y, loong_val_t x,
                             loong_val_t w, int64_t begin)
{
    loong_linear_add_attr_t attr = {begin, false};
    loong_val_t in[3] = {y, x, w};
    loong_val_t sum = LOONG_NONE;
    return loong_graph_apply(g, &linear_add, &attr, 3, in, 1, &sum);
}
