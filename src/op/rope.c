/* SPDX-License-Identifier: Apache-2.0 */
#include "op_impl.h"

static loong_status_t infer_table(const loong_op_call_t *call)
{
    const loong_rope_table_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "positions", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "positions", LOONG_I32));
    LOONG_CHECK(call->ctx, a->rotary_dim > 0 && a->rotary_dim % 2 == 0,
                LOONG_ERR_ARG, "%s: rotary_dim is %d, an even number wanted",
                call->op, a->rotary_dim);
    LOONG_CHECK(call->ctx,
                a->base > 0.0 &&
                    (a->scaling == LOONG_ROPE_DEFAULT || a->factor > 0.0),
                LOONG_ERR_ARG, "%s: base is %g, factor is %g; both positive",
                call->op, a->base, a->factor);
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape =
        loong_shape_2d(call->in[0].shape.dim[0], a->rotary_dim);
    call->out[0].shape.count = call->in[0].shape.count;
    return LOONG_OK;
}

static const loong_op_t rope_table = {
    .name = "rope_table",
    .attr_size = sizeof(loong_rope_table_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_table,
};
const loong_op_t *const loongi_op_rope_table = &rope_table;

static loong_status_t infer(const loong_op_call_t *call)
{
    const loong_rope_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_rank(call, 1, "table", 2));
    LOONG_TRY(
        loongi_want_dim(call, 1, "table", 0, call->in[0].shape.dim[0]));
    int64_t cols = loongi_type_cols(&call->in[0]);
    int64_t rotary = loongi_type_cols(&call->in[1]);
    LOONG_CHECK(call->ctx,
                a->head_dim > 0 && cols % a->head_dim == 0 &&
                    rotary <= a->head_dim,
                LOONG_ERR_ARG,
                "%s: %lld channels, heads of %d, %lld rotated: heads must "
                "divide the channels and hold the rotated ones",
                call->op, (long long)cols, a->head_dim, (long long)rotary);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t grad(const loong_grad_call_t *call);

static const loong_op_t rope = {
    .name = "rope",
    .attr_size = sizeof(loong_rope_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
};
const loong_op_t *const loongi_op_rope = &rope;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_rope_attr_t attr = *(const loong_rope_attr_t *)call->attr;
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    attr.inverse = !attr.inverse;
    loong_graph_apply(call->graph, &rope, &attr, 2, in, 1, &call->in_grad[0]);
    return LOONG_OK;
}

loong_val_t loong_rope_table(loong_graph_t *g, loong_val_t positions,
                             const loong_rope_table_attr_t *attr)
{
    loong_val_t y;
    return loong_graph_apply(g, &rope_table, attr, 1, &positions, 1, &y);
}

loong_val_t loong_rope(loong_graph_t *g, loong_val_t x, loong_val_t table,
                       int head_dim, bool interleaved)
{
    loong_rope_attr_t attr = {head_dim, interleaved, false};
    loong_val_t in[2] = {x, table};
    loong_val_t y;
    return loong_graph_apply(g, &rope, &attr, 2, in, 1, &y);
}
