/* SPDX-License-Identifier: Apache-2.0
 *
 * head_linear and head_linear_dw; formulas in kernels/latent/head_ref.c. Called
 * through the ops' tables and by src/nn/latent.c. Read loong/latent.h and
 * op_impl.h before. */
#include "loong/latent.h"
#include "op_impl.h"

static loong_status_t want_attr(const loong_op_call_t *call)
{
    const loong_head_linear_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->heads > 0 && a->first >= 0 && a->count > 0 &&
                    a->first <= a->stride - a->count,
                LOONG_ERR_ARG,
                "%s: %d heads, rows %lld to %lld of %lld of each; at least "
                "one head and one row of its own wanted",
                call->op, a->heads, (long long)a->first,
                (long long)(a->first + a->count - 1), (long long)a->stride);
    return LOONG_OK;
}

/* Operand i is [T*heads, width]; width 0: whatever it has. */
static loong_status_t want_heads(const loong_op_call_t *call, int i,
                                 const char *name, int64_t width)
{
    const loong_head_linear_attr_t *a = call->attr;
    const loong_shape_t *shape = &call->in[i].shape;
    LOONG_TRY(loongi_want_rank(call, i, name, 2));
    LOONG_TRY(loongi_want_float(call, i, name));
    LOONG_CHECK(call->ctx, shape->dim[0] % a->heads == 0, LOONG_ERR_ARG,
                "%s: %s has %lld rows, a multiple of its %d heads wanted",
                call->op, name, (long long)shape->dim[0], a->heads);
    return width > 0 ? loongi_want_dim(call, i, name, 1, width) : LOONG_OK;
}

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_head_linear_attr_t *a = call->attr;
    LOONG_TRY(want_attr(call));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 2));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    LOONG_TRY(loongi_want_dim(call, 1, "w", 0, a->heads * a->stride));
    int64_t wide = call->in[1].shape.dim[1];
    LOONG_TRY(want_heads(call, 0, "x", a->transposed ? a->count : wide));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = a->transposed ? wide : a->count;
    return LOONG_OK;
}

static loong_status_t infer_dw(const loong_op_call_t *call)
{
    const loong_head_linear_attr_t *a = call->attr;
    LOONG_TRY(want_attr(call));
    LOONG_TRY(want_heads(call, 0, "dy", a->transposed ? 0 : a->count));
    LOONG_TRY(want_heads(call, 1, "x", a->transposed ? a->count : 0));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape =
        loong_shape_2d(a->heads * a->stride,
                       loongi_type_cols(&call->in[a->transposed ? 0 : 1]));
    return LOONG_OK;
}

/* Operand `of` has the columns of w. */
static void count(const loong_kernel_query_t *q, int of, loong_cost_t *cost)
{
    const loong_head_linear_attr_t *a = q->attr;
    cost->flops = 2.0 * (double)loong_karg_rows(&q->arg[0]) *
                  (double)a->count * (double)loong_karg_cols(&q->arg[of]);
    cost->bytes = loongi_cost_bytes(q);
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost_p)
{
    count(q, 1, cost_p);
}

static void cost_dw(const loong_kernel_query_t *q, loong_cost_t *cost_p)
{
    count(q, 2, cost_p);
}

static const loong_op_t head_linear_dw = {
    .name = "head_linear_dw",
    .attr_size = sizeof(loong_head_linear_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .accumulates = 1u << 0,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_dw,
    .cost = cost_dw,
};
const loong_op_t *const loongi_op_head_linear_dw = &head_linear_dw;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    const loong_head_linear_attr_t *attr = call->attr;
    if (call->wanted[0]) {
        loong_head_linear_attr_t turned = *attr;
        turned.transposed = !attr->transposed;
        call->in_grad[0] =
            loong_head_linear(g, call->out_grad[0], call->in[1], &turned);
    }
    if (call->wanted[1]) {
        loong_val_t in[2] = {call->out_grad[0], call->in[0]};
        loong_graph_apply(g, &head_linear_dw, attr, 2, in, 1,
                          &call->in_grad[1]);
    }
    return loong_graph_status(g);
}

static const loong_op_t head_linear = {
    .name = "head_linear",
    .attr_size = sizeof(loong_head_linear_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
    .cost = cost,
};
const loong_op_t *const loongi_op_head_linear = &head_linear;

loong_val_t loong_head_linear(loong_graph_t *g, loong_val_t x, loong_val_t w,
                              const loong_head_linear_attr_t *attr)
{
    loong_val_t in[2] = {x, w};
    loong_val_t y;
    return loong_graph_apply(g, &head_linear, attr, 2, in, 1, &y);
}
