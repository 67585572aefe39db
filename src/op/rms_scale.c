/* SPDX-License-Identifier: Apache-2.0
 *
 * An RMS norm over channels that several ranks have, in two steps: mean_squares
 * makes a rank's part of the statistic, rms_scale uses the sum over the ranks.
 * Formulas in kernels/norm/rms_scale_ref.c. Called through the ops' tables and
 * by src/nn/nn.c and loss.c. Read op_impl.h before. */
#include "op_impl.h"

static loong_status_t want_matrix(const loong_op_call_t *call, int i,
                                  const char *name)
{
    LOONG_TRY(loongi_want_rank(call, i, name, 2));
    return loongi_want_float(call, i, name);
}

/* Operand i is [T,1] in the wide type, T the rows of operand j. */
static loong_status_t want_statistic(const loong_op_call_t *call, int i,
                                     const char *name, int j)
{
    LOONG_TRY(loongi_want_rank(call, i, name, 2));
    LOONG_TRY(loongi_want_dim(call, i, name, 1, 1));
    LOONG_TRY(loongi_want_rows(call, i, name, j));
    return loongi_want_dtype(call, i, name, call->precision.wide);
}

static loong_tensor_type_t statistic(const loong_op_call_t *call)
{
    loong_tensor_type_t type = call->in[0];
    type.dtype = call->precision.wide;
    type.shape.dim[1] = 1;
    return type;
}

/* ---- mean_squares -------------------------------------------------------- */

static loong_status_t want_factor(const loong_op_call_t *call)
{
    const loong_mean_squares_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx, a->factor > 0.0 && a->factor <= 1.0, LOONG_ERR_ARG,
                "%s: factor is %g, a number above 0 up to 1 wanted", call->op,
                a->factor);
    return LOONG_OK;
}

static loong_status_t infer_squares(const loong_op_call_t *call)
{
    LOONG_TRY(want_matrix(call, 0, "x"));
    LOONG_TRY(want_factor(call));
    call->out[0] = statistic(call);
    return LOONG_OK;
}

static loong_status_t infer_squares_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_factor(call));
    LOONG_TRY(want_matrix(call, 0, "x"));
    LOONG_TRY(want_statistic(call, 1, "dm", 0));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static const loong_op_t mean_squares_grad = {
    .name = "mean_squares_grad",
    .attr_size = sizeof(loong_mean_squares_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_squares_grad,
};
const loong_op_t *const loongi_op_mean_squares_grad = &mean_squares_grad;

static loong_status_t grad_squares(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->in[0], call->out_grad[0]};
    loong_graph_apply(call->graph, &mean_squares_grad, call->attr, 2, in, 1,
                      call->in_grad);
    return LOONG_OK;
}

static const loong_op_t mean_squares = {
    .name = "mean_squares",
    .attr_size = sizeof(loong_mean_squares_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_squares,
    .grad = grad_squares,
};
const loong_op_t *const loongi_op_mean_squares = &mean_squares;

loong_val_t loong_mean_squares(loong_graph_t *g, loong_val_t x, double factor)
{
    loong_mean_squares_attr_t attr = {factor};
    loong_val_t y;
    return loong_graph_apply(g, &mean_squares, &attr, 1, &x, 1, &y);
}

/* ---- rms_scale ----------------------------------------------------------- */

static loong_status_t infer_scale(const loong_op_call_t *call)
{
    const loong_norm_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx, a->eps >= 0.0 && a->eps < 1e300, LOONG_ERR_ARG,
                "%s: eps is %g, a number not below 0 wanted", call->op,
                a->eps);
    LOONG_TRY(want_matrix(call, 0, "x"));
    LOONG_TRY(want_statistic(call, 1, "m", 0));
    LOONG_TRY(
        loongi_want_vector(call, 2, "w", loongi_type_cols(&call->in[0])));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

/* dy, x, m, w -> dx, dm, dw. */
static loong_status_t infer_scale_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_matrix(call, 0, "dy"));
    LOONG_TRY(loongi_want_like(call, 1, "x", 0));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    LOONG_TRY(want_statistic(call, 2, "m", 0));
    call->out[0] = call->in[1];
    call->out[1] = call->in[2];
    call->out[2] = call->in[3];
    return LOONG_OK;
}

static const loong_op_t rms_scale_grad = {
    .name = "rms_scale_grad",
    .attr_size = sizeof(loong_norm_attr_t),
    .min_in = 4,
    .max_in = 4,
    .num_out = 3,
    .accumulates = 1u << 2,
    .optional_out = 1u << 2,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_scale_grad,
};
const loong_op_t *const loongi_op_rms_scale_grad = &rms_scale_grad;

static loong_status_t grad_scale(const loong_grad_call_t *call)
{
    loong_val_t in[4] = {call->out_grad[0], call->in[0], call->in[1],
                         call->in[2]};
    loong_graph_apply(call->graph, &rms_scale_grad, call->attr, 4, in, 3,
                      call->in_grad);
    return LOONG_OK;
}

static const loong_op_t rms_scale = {
    .name = "rms_scale",
    .attr_size = sizeof(loong_norm_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_scale,
    .grad = grad_scale,
};
const loong_op_t *const loongi_op_rms_scale = &rms_scale;

loong_val_t loong_rms_scale(loong_graph_t *g, loong_val_t x, loong_val_t m,
                            loong_val_t w, double eps)
{
    loong_norm_attr_t attr = {eps};
    loong_val_t in[3] = {x, m, w};
    loong_val_t y;
    return loong_graph_apply(g, &rms_scale, &attr, 3, in, 1, &y);
}
