/* SPDX-License-Identifier: Apache-2.0
 *
 * loss: where ordinary nodes end in a declared loss. */
#include "graph_impl.h"
#include "loong/ops.h"
#include "op_impl.h"

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_loss_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "x", call->precision.wide));
    LOONG_CHECK(call->ctx, a->loss >= 0 && a->loss < LOONG_MAX_LOSSES,
                LOONG_ERR_ARG, "%s: loss %d, at most %d are allowed", call->op,
                a->loss, LOONG_MAX_LOSSES);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static const loong_op_t loss_scale = {
    .name = "loss_scale",
    .attr_size = sizeof(loong_loss_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer,
};
const loong_op_t *const loongi_op_loss_scale = &loss_scale;

static loong_status_t grad(const loong_grad_call_t *call)
{
    LOONG_CHECK(loong_graph_context(call->graph),
                call->out_grad[0] == LOONG_NONE, LOONG_ERR_UNSUPPORTED,
                "loss: a declared loss must not be computed with");
    loong_graph_apply(call->graph, &loss_scale, call->attr, 1, call->in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t loss = {
    .name = "loss",
    .attr_size = sizeof(loong_loss_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .view = true,
    .infer = infer,
    .grad = grad,
};
const loong_op_t *const loongi_op_loss = &loss;

loong_val_t loong_loss(loong_graph_t *g, loong_val_t x,
                       const loong_loss_params_t *params)
{
    loong_loss_attr_t attr = {g->num_losses};
    loong_val_t y = LOONG_NONE;
    loong_graph_apply(g, &loss, &attr, 1, &x, 1, &y);
    loong_graph_loss(g, y, params);
    return y;
}
