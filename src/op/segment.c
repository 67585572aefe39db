/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows and the segments that they belong to: segment_sum and segment_repeat,
 * each the gradient of the other. Called through the ops' tables; no built-in
 * family builds them. Read op_impl.h before. */
#include "op_impl.h"

static loong_status_t want_offsets(const loong_op_call_t *call)
{
    const loong_segment_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 1, "cu_seqlens", 1));
    LOONG_TRY(loongi_want_dtype(call, 1, "cu_seqlens", LOONG_I32));
    LOONG_CHECK(call->ctx, a->rows > 0 && a->rows <= INT32_MAX, LOONG_ERR_ARG,
                "%s: %lld rows, 1 to %d wanted", call->op, (long long)a->rows,
                INT32_MAX);
    LOONG_CHECK(call->ctx, call->in[1].shape.dim[0] > 1, LOONG_ERR_ARG,
                "%s: cu_seqlens has %lld entries, 2 or more wanted", call->op,
                (long long)call->in[1].shape.dim[0]);
    return LOONG_OK;
}

static loong_status_t infer_sum(const loong_op_call_t *call)
{
    const loong_segment_attr_t *a = call->attr;
    LOONG_TRY(want_offsets(call));
    LOONG_TRY(loongi_want_vector(call, 0, "x", a->rows));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[0] = call->in[1].shape.dim[0] - 1;
    return LOONG_OK;
}

static loong_status_t infer_repeat(const loong_op_call_t *call)
{
    const loong_segment_attr_t *a = call->attr;
    LOONG_TRY(want_offsets(call));
    LOONG_TRY(loongi_want_vector(call, 0, "x", call->in[1].shape.dim[0] - 1));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[0] = a->rows;
    return LOONG_OK;
}

/* Segments of about equal length. */
static void example(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_segment_attr_t *a = q->attr;
    int64_t segments = loong_karg_cols(&q->arg[i]) - 1;
    int32_t *offsets = data;
    for (int64_t s = 0; s <= segments; s++) {
        offsets[s] = (int32_t)(a->rows * s / segments);
    }
}

static const loong_op_t segment_sum;
static const loong_op_t segment_repeat;

static loong_status_t apply_to_grad(const loong_grad_call_t *call,
                                    const loong_op_t *op)
{
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    loong_graph_apply(call->graph, op, call->attr, 2, in, 1, call->in_grad);
    return LOONG_OK;
}

static loong_status_t grad_sum(const loong_grad_call_t *call)
{
    return apply_to_grad(call, &segment_repeat);
}

static loong_status_t grad_repeat(const loong_grad_call_t *call)
{
    return apply_to_grad(call, &segment_sum);
}

static const loong_op_t segment_sum = {
    .name = "segment_sum",
    .attr_size = sizeof(loong_segment_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .infer = infer_sum,
    .grad = grad_sum,
    .example = example,
};
const loong_op_t *const loongi_op_segment_sum = &segment_sum;

static const loong_op_t segment_repeat = {
    .name = "segment_repeat",
    .attr_size = sizeof(loong_segment_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .infer = infer_repeat,
    .grad = grad_repeat,
    .example = example,
};
const loong_op_t *const loongi_op_segment_repeat = &segment_repeat;

loong_val_t loong_segment_sum(loong_graph_t *g, loong_val_t x,
                              loong_val_t cu_seqlens)
{
    loong_segment_attr_t attr = {0};
    loong_val_t in[2] = {x, cu_seqlens};
    loong_val_t y;
    if (x != LOONG_NONE) {
        attr.rows = loong_value_shape(g, x).dim[0];
    }
    return loong_graph_apply(g, &segment_sum, &attr, 2, in, 1, &y);
}

loong_val_t loong_segment_repeat(loong_graph_t *g, loong_val_t x,
                                 loong_val_t cu_seqlens, int64_t rows)
{
    loong_segment_attr_t attr = {rows};
    loong_val_t in[2] = {x, cu_seqlens};
    loong_val_t y;
    return loong_graph_apply(g, &segment_repeat, &attr, 2, in, 1, &y);
}
