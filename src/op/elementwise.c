/* SPDX-License-Identifier: Apache-2.0
 *
 * add, multiply, scale, dropout, cast, copy, accumulate, sum_rows. Called
 * through the ops' tables and by layers, families, other ops and passes. Read
 * op_impl.h before. */
#include "op_impl.h"

/* ---- add, multiply ------------------------------------------------------- */

static loong_status_t infer_two(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_float(call, 0, "a"));
    LOONG_TRY(loongi_want_dtype(call, 1, "b", call->in[0].dtype));
    LOONG_TRY(loongi_want_like(call, 1, "b", 0));
    LOONG_TRY(loongi_want_rows(call, 1, "b", 0));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t grad_add(const loong_grad_call_t *call)
{
    call->in_grad[0] = call->out_grad[0];
    call->in_grad[1] = call->out_grad[0];
    return LOONG_OK;
}

static const loong_op_t add = {
    .name = "add",
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_two,
    .grad = grad_add,
};
const loong_op_t *const loongi_op_add = &add;

static loong_status_t grad_multiply(const loong_grad_call_t *call)
{
    for (int i = 0; i < 2; i++) {
        if (call->wanted[i]) {
            call->in_grad[i] =
                loong_multiply(call->graph, call->out_grad[0], call->in[1 - i]);
        }
    }
    return LOONG_OK;
}

static const loong_op_t multiply = {
    .name = "multiply",
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_two,
    .grad = grad_multiply,
};
const loong_op_t *const loongi_op_multiply = &multiply;

loong_val_t loong_add(loong_graph_t *g, loong_val_t a, loong_val_t b)
{
    loong_val_t in[2] = {a, b};
    loong_val_t y;
    return loong_graph_apply(g, &add, NULL, 2, in, 1, &y);
}

loong_val_t loong_multiply(loong_graph_t *g, loong_val_t a, loong_val_t b)
{
    loong_val_t in[2] = {a, b};
    loong_val_t y;
    return loong_graph_apply(g, &multiply, NULL, 2, in, 1, &y);
}

/* ---- scale, dropout ------------------------------------------------------ */

static loong_status_t infer_dropout(const loong_op_call_t *call)
{
    const loong_dropout_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx, a->p >= 0.0 && a->p < 1.0, LOONG_ERR_ARG,
                "%s: probability %g, from 0 up to but not 1 wanted", call->op,
                a->p);
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_dtype(call, 1, "token_key", LOONG_I64));
    LOONG_TRY(loongi_want_rank(call, 1, "token_key", 1));
    LOONG_TRY(loongi_want_rows(call, 1, "token_key", 0));
    return loongi_infer_same(call);
}

static loong_status_t grad_scale(const loong_grad_call_t *call);
static loong_status_t grad_dropout(const loong_grad_call_t *call);

static const loong_op_t scale = {
    .name = "scale",
    .attr_size = sizeof(loong_scale_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = loongi_infer_same,
    .grad = grad_scale,
};
const loong_op_t *const loongi_op_scale = &scale;

static const loong_op_t dropout = {
    .name = "dropout",
    .attr_size = sizeof(loong_dropout_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_dropout,
    .grad = grad_dropout,
};
const loong_op_t *const loongi_op_dropout = &dropout;

static loong_status_t grad_scale(const loong_grad_call_t *call)
{
    const loong_scale_attr_t *a = call->attr;
    call->in_grad[0] =
        a->factor == 1.0
            ? call->out_grad[0]
            : loong_scale(call->graph, call->out_grad[0], a->factor);
    return LOONG_OK;
}

static loong_status_t grad_dropout(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    loong_graph_apply(call->graph, &dropout, call->attr, 2, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

loong_val_t loong_scale(loong_graph_t *g, loong_val_t x, double factor)
{
    loong_scale_attr_t attr = {factor, 0.0};
    loong_val_t y;
    return loong_graph_apply(g, &scale, &attr, 1, &x, 1, &y);
}

loong_val_t loong_shift(loong_graph_t *g, loong_val_t x, double shift)
{
    loong_scale_attr_t attr = {1.0, shift};
    loong_val_t y;
    return loong_graph_apply(g, &scale, &attr, 1, &x, 1, &y);
}

loong_val_t loong_dropout(loong_graph_t *g, loong_val_t x,
                          loong_val_t token_key, double p, uint64_t stream)
{
    return loong_dropout_slice(g, x, token_key, p, stream, 0);
}

loong_val_t loong_dropout_slice(loong_graph_t *g, loong_val_t x,
                                loong_val_t token_key, double p,
                                uint64_t stream, int64_t first)
{
    loong_dropout_attr_t attr = {p, stream, first};
    loong_val_t in[2] = {x, token_key};
    loong_val_t y;
    return loong_graph_apply(g, &dropout, &attr, 2, in, 1, &y);
}

/* ---- cast, copy, accumulate ---------------------------------------------- */

static loong_status_t infer_cast(const loong_op_call_t *call)
{
    const loong_cast_attr_t *a = call->attr;
    LOONG_TRY(loongi_infer_same(call));
    LOONG_CHECK(call->ctx,
                a->dtype == LOONG_F64 || a->dtype == LOONG_F32 ||
                    a->dtype == LOONG_BF16,
                LOONG_ERR_ARG, "%s: to %s; fp64, fp32 or bf16 wanted",
                call->op, loong_dtype_name(a->dtype));
    call->out[0].dtype = a->dtype;
    return LOONG_OK;
}

static loong_status_t grad_cast(const loong_grad_call_t *call)
{
    call->in_grad[0] =
        loong_cast(call->graph, call->out_grad[0],
                   loong_value_dtype(call->graph, call->in[0]));
    return LOONG_OK;
}

static loong_status_t grad_copy(const loong_grad_call_t *call)
{
    call->in_grad[0] = call->out_grad[0];
    return LOONG_OK;
}

static const loong_op_t cast = {
    .name = "cast",
    .attr_size = sizeof(loong_cast_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_cast,
    .grad = grad_cast,
};
const loong_op_t *const loongi_op_cast = &cast;

static const loong_op_t copy = {
    .name = "copy",
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = loongi_infer_same,
    .grad = grad_copy,
};
const loong_op_t *const loongi_op_copy = &copy;

/* accumulate(gradient, x): no output of its own; the pass `accumulate` gives
 * it one that is the gradient. */
static loong_status_t infer_accumulate(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_float(call, 1, "x"));
    LOONG_CHECK(call->ctx,
                loongi_type_rows(&call->in[0]) ==
                        loongi_type_rows(&call->in[1]) &&
                    loongi_type_cols(&call->in[0]) ==
                        loongi_type_cols(&call->in[1]),
                LOONG_ERR_ARG,
                "%s: a gradient of %lld x %lld for a parameter of %lld x %lld",
                call->op, (long long)loongi_type_rows(&call->in[1]),
                (long long)loongi_type_cols(&call->in[1]),
                (long long)loongi_type_rows(&call->in[0]),
                (long long)loongi_type_cols(&call->in[0]));
    return LOONG_OK;
}

static const loong_op_t accumulate = {
    .name = "accumulate",
    .min_in = 2,
    .max_in = 2,
    .num_out = 0,
    .strided_in = true,
    .infer = infer_accumulate,
};
const loong_op_t *const loongi_op_accumulate = &accumulate;

loong_val_t loong_cast(loong_graph_t *g, loong_val_t x, loong_dtype_t dtype)
{
    loong_cast_attr_t attr = {dtype};
    loong_val_t y;
    if (loong_value_dtype(g, x) == dtype) {
        return x;
    }
    return loong_graph_apply(g, &cast, &attr, 1, &x, 1, &y);
}

/* ---- sum_rows ------------------------------------------------------------ */

static loong_status_t infer_sum_rows(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = loong_shape_1d(loongi_type_cols(&call->in[0]));
    return LOONG_OK;
}

static const loong_op_t sum_rows = {
    .name = "sum_rows",
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .accumulates = 1,
    .strided_in = true,
    .infer = infer_sum_rows,
};
const loong_op_t *const loongi_op_sum_rows = &sum_rows;

/* ---- tensor_stats -------------------------------------------------------- */

static loong_status_t infer_tensor_stats(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    if (loongi_has(call, 1)) {
        LOONG_TRY(loongi_want_dtype(call, 1, "offsets", LOONG_I32));
    }
    call->out[0].dtype = LOONG_F64;
    call->out[0].shape = loong_shape_1d(3);
    return LOONG_OK;
}

static const loong_op_t tensor_stats = {
    .name = "tensor_stats",
    .min_in = 1,
    .max_in = 2,
    .num_out = 1,
    .accumulates = 1,
    .strided_in = true,
    .infer = infer_tensor_stats,
};
const loong_op_t *const loongi_op_tensor_stats = &tensor_stats;

loong_val_t loong_sum_rows(loong_graph_t *g, loong_val_t x)
{
    loong_val_t y;
    return loong_graph_apply(g, &sum_rows, NULL, 1, &x, 1, &y);
}
