/* SPDX-License-Identifier: Apache-2.0
 *
 * loss: where ordinary nodes end in a declared loss; kl_estimate and
 * squared_error, rows that may. Called through the ops' tables and by
 * src/nn/ends.c and families. Read loong/loss_ops.h and op_impl.h before. */
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
    loong_loss_attr_t attr = {loong_graph_losses(g)};
    loong_val_t y = LOONG_NONE;
    loong_graph_apply(g, &loss, &attr, 1, &x, 1, &y);
    loong_graph_loss(g, y, params);
    return y;
}

/* ---- kl_estimate --------------------------------------------------------- */

/* Operands are wide, of one length; the last is `reference`. */
static loong_status_t want_logprobs(const loong_op_call_t *call)
{
    static const char *const names[] = {"dy", "policy", "reference"};
    LOONG_TRY(loongi_want_rank(call, 0, "policy", 1));
    for (int i = 0; i < call->num_in; i++) {
        LOONG_TRY(loongi_want_vector(call, i, names[3 - call->num_in + i],
                                     call->in[0].shape.dim[0]));
    }
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static const loong_op_t kl_estimate_grad = {
    .name = "kl_estimate_grad",
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .in_place = 1,
    .infer = want_logprobs,
};
const loong_op_t *const loongi_op_kl_estimate_grad = &kl_estimate_grad;

/* The reference's gradient is that of the policy, the other way. */
static loong_status_t grad_kl(const loong_grad_call_t *call)
{
    loong_val_t in[3] = {call->out_grad[0], call->in[0], call->in[1]};
    loong_val_t dpolicy = LOONG_NONE;
    loong_graph_apply(call->graph, &kl_estimate_grad, NULL, 3, in, 1, &dpolicy);
    call->in_grad[0] = dpolicy;
    if (call->wanted[1]) {
        call->in_grad[1] = loong_scale(call->graph, dpolicy, -1.0);
    }
    return LOONG_OK;
}

static const loong_op_t kl_estimate = {
    .name = "kl_estimate",
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .infer = want_logprobs,
    .grad = grad_kl,
};
const loong_op_t *const loongi_op_kl_estimate = &kl_estimate;

loong_val_t loong_kl_estimate(loong_graph_t *g, loong_val_t policy,
                              loong_val_t reference)
{
    loong_val_t in[2] = {policy, reference};
    loong_val_t y;
    return loong_graph_apply(g, &kl_estimate, NULL, 2, in, 1, &y);
}

/* ---- squared_error ------------------------------------------------------- */

loong_val_t loong_squared_error(loong_graph_t *g, loong_val_t x,
                                loong_val_t target)
{
    loong_dtype_t wide = loong_graph_precision(g).wide;
    loong_shape_t shape = loong_value_shape(g, x);
    x = loong_cast(g, x, wide);
    target = loong_scale(g, loong_cast(g, target, wide), -1.0);
    x = loong_add(g, x, target);
    x = loong_mean_squares(g, x, 1.0 / (double)shape.dim[1]);
    return loong_reshape(g, x, loong_shape_1d(shape.dim[0]));
}
