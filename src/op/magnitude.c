/* SPDX-License-Identifier: Apache-2.0
 *
 * magnitude: columns over the norms of rows of a matrix, times numbers of their
 * own (DoRA, Liu et al. 2024); formulas in kernels/linear/magnitude_ref.c.
 * Called by src/nn/adapters.c. Read op_impl.h before. */
#include "op_impl.h"

static loong_status_t infer(const loong_op_call_t *call)
{
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_rank(call, 1, "squares", 2));
    LOONG_TRY(loongi_want_dim(call, 1, "squares", 0, cols));
    LOONG_TRY(loongi_want_dim(call, 1, "squares", 1, 1));
    LOONG_TRY(loongi_want_dtype(call, 1, "squares", call->precision.wide));
    if (loongi_has(call, 2)) {
        LOONG_TRY(loongi_want_vector(call, 2, "magnitude", cols));
    }
    if (loongi_has(call, 3)) {
        LOONG_TRY(loongi_want_vector(call, 3, "bias", cols));
    }
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static const loong_op_t magnitude;

static loong_val_t apply(loong_graph_t *g, loong_val_t x, loong_val_t squares,
                         loong_val_t magnitudes)
{
    loong_val_t in[3] = {x, squares, magnitudes};
    loong_val_t y = LOONG_NONE;
    return loong_graph_apply(g, &magnitude, NULL,
                             magnitudes != LOONG_NONE ? 3 : 2, in, 1, &y);
}

/* The norms are constants, as in section 4.3 of the paper. m's gradient is
 * summed before it is divided by them: as one row. */
static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    loong_val_t dy = call->out_grad[0];
    loong_val_t own = call->num_in > 2 ? call->in[2] : LOONG_NONE;
    if (dy == LOONG_NONE) {
        return LOONG_OK;
    }
    if (call->wanted[0]) {
        call->in_grad[0] = apply(g, dy, call->in[1], own);
    }
    if (own != LOONG_NONE && call->wanted[2]) {
        loong_shape_t shape = loong_value_shape(g, own);
        loong_val_t sums =
            loong_sum_rows(g, loong_multiply(g, dy, call->in[0]));
        sums = loong_reshape(g, sums, loong_shape_2d(1, shape.dim[0]));
        call->in_grad[2] =
            loong_reshape(g, apply(g, sums, call->in[1], LOONG_NONE), shape);
    }
    if (call->num_in > 3 && call->in[3] != LOONG_NONE && call->wanted[3]) {
        call->in_grad[3] = loong_sum_rows(g, dy);
    }
    return loong_graph_status(g);
}

static const loong_op_t magnitude = {
    .name = "magnitude",
    .min_in = 2,
    .max_in = 4,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
};
const loong_op_t *const loongi_op_magnitude = &magnitude;
