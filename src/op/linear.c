/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_gelu_grad, linear_dw and linear_dw_db; formulas in
 * kernels/linear/linear_ref.c. Called through the ops' tables and by layers and
 * families. Read op_impl.h before. */
#include "loong/register.h"
#include "op_impl.h"

/* Operand `wide` has the wide type beside one of the compute type. */
static bool is_mixed(const loong_op_call_t *call, int wide)
{
    return call->in[0].dtype != call->in[1].dtype &&
           call->in[wide].dtype == call->precision.wide &&
           call->in[1 - wide].dtype == call->precision.compute;
}

static loong_status_t check_bias(const loong_op_call_t *call, int64_t n)
{
    const loong_linear_attr_t *attr = call->attr;
    LOONG_CHECK(call->ctx,
                !is_mixed(call, 1) || (attr->activation == LOONG_ACT_NONE &&
                                    !loongi_has(call, 2)),
                LOONG_ERR_ARG,
                "%s: x is %s and w is %s, with a bias or an activation both "
                "have one type", call->op,
                loong_dtype_name(call->in[0].dtype),
                loong_dtype_name(call->in[1].dtype));
    if (!loongi_has(call, 2)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_want_rank(call, 2, "bias", 1));
    LOONG_TRY(loongi_want_dim(call, 2, "bias", 0, n));
    return loongi_want_dtype(call, 2, "bias", call->precision.wide);
}

/* x, w -> y = x w', of w's type. */
static loong_status_t infer_product(const loong_op_call_t *call)
{
    const loong_linear_attr_t *attr = call->attr;
    LOONG_CHECK(call->ctx, attr->activation != LOONG_ACT_QUICK_GELU,
                LOONG_ERR_ARG, "%s: the quick form of GELU is of op gelu alone",
                call->op);
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 2));
    if (!is_mixed(call, 1)) {
        LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    }
    int out = attr->transposed ? 1 : 0;
    LOONG_TRY(loongi_want_dim(call, 1, "w", 1 - out, call->in[0].shape.dim[1]));
    call->out[0] = call->in[0];
    call->out[0].dtype = call->in[1].dtype;
    call->out[0].shape.dim[1] = call->in[1].shape.dim[out];
    return LOONG_OK;
}

static loong_status_t linear_infer(const loong_op_call_t *call)
{
    const loong_linear_attr_t *attr = call->attr;
    LOONG_TRY(infer_product(call));
    LOONG_TRY(check_bias(call, call->out[0].shape.dim[1]));
    if (attr->activation != LOONG_ACT_NONE) {
        call->out[1] = call->out[0];
    }
    return LOONG_OK;
}

static void linear_cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[0];
    const loong_karg_t *y = &q->arg[q->num_in];
    cost->flops = 2.0 * (double)loong_karg_rows(y) *
                  (double)loong_karg_cols(x) *
                  (double)loong_karg_cols(y);
    cost->bytes = loongi_cost_bytes(q);
}

static void linear_dw_cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *dy = &q->arg[0];
    cost->flops = 2.0 * (double)loong_karg_rows(dy) *
                  (double)loong_karg_cols(dy) *
                  (double)loong_karg_cols(&q->arg[1]);
    cost->bytes = loongi_cost_bytes(q);
}

static loong_status_t linear_dw_infer(const loong_op_call_t *call)
{
    const loong_linear_attr_t *attr = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "dy", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "x", 2));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    if (!is_mixed(call, 0)) {
        LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    }
    int64_t n = call->in[0].shape.dim[1];
    int64_t k = call->in[1].shape.dim[1];
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape =
        attr->transposed ? loong_shape_2d(k, n) : loong_shape_2d(n, k);
    return LOONG_OK;
}

static loong_status_t linear_gelu_grad_infer(const loong_op_call_t *call)
{
    const loong_linear_attr_t *attr = call->attr;
    LOONG_TRY(infer_product(call));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    LOONG_CHECK(call->ctx, attr->activation != LOONG_ACT_NONE, LOONG_ERR_ARG,
                "%s: no activation, a form of GELU wanted", call->op);
    LOONG_TRY(loongi_want_rank(call, 2, "before", 2));
    LOONG_TRY(loongi_want_rows(call, 2, "before", 0));
    LOONG_TRY(loongi_want_dim(call, 2, "before", 1,
                              call->out[0].shape.dim[1]));
    return loongi_want_dtype(call, 2, "before", call->in[0].dtype);
}

static const loong_op_t linear_gelu_grad = {
    .name = "linear_gelu_grad",
    .attr_size = sizeof(loong_linear_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = linear_gelu_grad_infer,
    .cost = linear_cost,
};

const loong_op_t *const loongi_op_linear_gelu_grad = &linear_gelu_grad;

static loong_status_t linear_dw_db_infer(const loong_op_call_t *call)
{
    LOONG_TRY(linear_dw_infer(call));
    LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    call->out[1].dtype = call->precision.wide;
    call->out[1].shape = loong_shape_1d(call->in[0].shape.dim[1]);
    return LOONG_OK;
}

static const loong_op_t linear_dw_db = {
    .name = "linear_dw_db",
    .attr_size = sizeof(loong_linear_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 2,
    .accumulates = 1u << 0 | 1u << 1,
    .strided_in = true,
    .strided_out = true,
    .infer = linear_dw_db_infer,
    .cost = linear_dw_cost,
};

const loong_op_t *const loongi_op_linear_dw_db = &linear_dw_db;

static const loong_op_t linear_dw = {
    .name = "linear_dw",
    .attr_size = sizeof(loong_linear_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .accumulates = 1u << 0,
    .strided_in = true,
    .strided_out = true,
    .infer = linear_dw_infer,
    .cost = linear_dw_cost,
};

const loong_op_t *const loongi_op_linear_dw = &linear_dw;

static const loong_op_t *find(const loong_graph_t *g, const char *name)
{
    return loong_find_op(loong_graph_context(g), name);
}

static loong_val_t cast_to(loong_graph_t *g, loong_val_t v,
                           loong_dtype_t dtype)
{
    return loong_value_dtype(g, v) == dtype ? v : loong_cast(g, v, dtype);
}

/* dx has the type of x, and so has what it is made of; dw takes dy as it is. */
static loong_status_t linear_grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    loong_linear_attr_t attr = *(const loong_linear_attr_t *)call->attr;
    loong_val_t dy = call->out_grad[0];
    if (dy == LOONG_NONE) {
        return LOONG_OK;
    }
    if (attr.activation != LOONG_ACT_NONE) {
        loong_gelu_attr_t gelu = {attr.activation};
        loong_val_t in[2] = {dy, call->out[1]};
        dy = loong_graph_apply(g, find(g, "gelu_grad"), &gelu, 2, in, 1, &dy);
    }
    attr.activation = LOONG_ACT_NONE;
    if (call->wanted[0]) { /* first: other ranks may wait for it */
        loong_linear_attr_t flipped = attr;
        loong_dtype_t dtype = loong_value_dtype(g, call->in[0]);
        loong_val_t in[2] = {cast_to(g, dy, dtype),
                             cast_to(g, call->in[1], dtype)};
        flipped.transposed = !attr.transposed;
        loong_graph_apply(g, find(g, "linear"), &flipped, 2, in, 1,
                          &call->in_grad[0]);
    }
    if (call->wanted[1]) {
        loong_val_t in[2] = {dy, call->in[0]};
        loong_graph_apply(g, &linear_dw, &attr, 2, in, 1, &call->in_grad[1]);
    }
    if (call->num_in > 2 && call->wanted[2]) {
        call->in_grad[2] = loong_sum_rows(g, dy);
    }
    return loong_graph_status(g);
}

static const loong_op_t linear = {
    .name = "linear",
    .attr_size = sizeof(loong_linear_attr_t),
    .min_in = 2,
    .max_in = 3,
    .num_out = 2,
    .strided_in = true,
    .strided_out = true,
    .optional_out = 1u << 1,
    .infer = linear_infer,
    .grad = linear_grad,
    .cost = linear_cost,
};

const loong_op_t *const loongi_op_linear = &linear;

loong_val_t loong_linear(loong_graph_t *g, loong_val_t x, loong_val_t w,
                         loong_val_t bias)
{
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    loong_val_t in[3] = {x, w, bias};
    loong_val_t y = LOONG_NONE;
    return loong_graph_apply(g, &linear, &attr, bias == LOONG_NONE ? 2 : 3, in,
                             1, &y);
}

loong_val_t loong_linear_transposed(loong_graph_t *g, loong_val_t x,
                                    loong_val_t w)
{
    loong_linear_attr_t attr = {true, LOONG_ACT_NONE};
    loong_val_t in[2] = {x, w};
    loong_val_t y[2];
    return loong_graph_apply(g, &linear, &attr, 2, in, 2, y);
}
