/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to tokens between router and sum; formulas in
 * kernels/moe/moe_ref.c. Called through the ops' tables and by src/nn/moe.c and
 * dispatch.c. Read loong/moe.h and op_impl.h before. */
#include <string.h>

#include "loong/moe.h"
#include "op_impl.h"

static loong_status_t want_i32(const loong_op_call_t *call, int i,
                               const char *name, int rank)
{
    LOONG_TRY(loongi_want_rank(call, i, name, rank));
    return loongi_want_dtype(call, i, name, LOONG_I32);
}

/* ---- expert_order -------------------------------------------------------- */

static int64_t most_rows(const loong_expert_order_attr_t *a,
                         const loong_shape_t *indices)
{
    int64_t rows =
        indices->dim[0] * LOONG_MIN(indices->dim[1], (int64_t)a->count);
    return a->most > 0 ? LOONG_MIN(a->most, rows) : rows;
}

static loong_status_t infer_order(const loong_op_call_t *call)
{
    const loong_expert_order_attr_t *a = call->attr;
    LOONG_TRY(want_i32(call, 0, "indices", 2));
    const loong_shape_t *shape = &call->in[0].shape;
    LOONG_CHECK(call->ctx,
                a->begin >= 0 && a->count >= 1 &&
                    a->begin <= a->experts - a->count,
                LOONG_ERR_ARG, "%s: %d experts from %d on, there are %d",
                call->op, a->count, a->begin, a->experts);
    call->out[0].dtype = call->out[1].dtype = LOONG_I32;
    call->out[0].shape = loong_shape_1d(a->count + 1);
    call->out[1].shape = loong_shape_1d(most_rows(a, shape));
    call->out[2] = call->in[0];
    return LOONG_OK;
}

/* Experts in turn. */
static void example_choice(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_order_attr_t *a = q->attr;
    int32_t *index = data;
    int64_t n = loong_karg_rows(&q->arg[i]) * q->arg[i].dim[1];
    for (int64_t s = 0; i == 0 && s < n; s++) {
        index[s] = (int32_t)(s % a->experts);
    }
}

/* Each rank of EP orders the rows of its own experts. */
static uint32_t same_order(const void *attr, int o, uint32_t in)
{
    (void)attr;
    (void)o;
    return in & ~(uint32_t)LOONG_SAME_EP;
}

static const loong_op_t expert_order = {
    .name = "expert_order",
    .attr_size = sizeof(loong_expert_order_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 3,
    .infer = infer_order,
    .same = same_order,
    .example = example_choice,
};
const loong_op_t *const loongi_op_expert_order = &expert_order;

loong_expert_rows_t loong_expert_order(loong_graph_t *g, loong_val_t indices,
                                       const loong_expert_order_attr_t *attr)
{
    loong_val_t out[3] = {LOONG_NONE, LOONG_NONE, LOONG_NONE};
    loong_graph_apply(g, &expert_order, attr, 1, &indices, 3, out);
    loong_expert_rows_t rows = {out[0], out[1], out[2], 1.0};
    return rows;
}

/* ---- permute and unpermute ----------------------------------------------- */

/* Rows of the first expert of all tokens, of the second, ... */
static void example_rows(const loong_kernel_query_t *q, int i, void *data)
{
    int32_t *number = data;
    const loong_karg_t *dest = &q->arg[2];
    int64_t tokens = dest->dim[0];
    int64_t k = dest->dim[1];
    int64_t rows = q->arg[1].dim[0]; /* of source, or of what is summed */
    if (i == 4) {
        int64_t last = q->arg[4].dim[0] - 1;
        number[last] = (int32_t)LOONG_MIN(rows, tokens * k);
    } else if (i == 2) {
        for (int64_t s = 0; s < tokens * k; s++) {
            int64_t r = s / k + s % k * tokens;
            number[s] = r < rows ? (int32_t)r : -1;
        }
    } else {
        for (int64_t r = 0; i == 1 && r < rows; r++) {
            number[r] = r < tokens * k
                            ? (int32_t)(r % tokens * k + r / tokens)
                            : -1;
        }
    }
}

/* x, source [R], dest [T,k], weights [T,k] or none, offsets or none. */
static loong_status_t want_rows(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(want_i32(call, 1, "source", 1));
    LOONG_TRY(want_i32(call, 2, "dest", 2));
    if (loongi_has(call, 3)) {
        LOONG_TRY(loongi_want_like(call, 3, "weights", 2));
        LOONG_TRY(loongi_want_dtype(call, 3, "weights", call->precision.wide));
    }
    return loongi_has(call, 4) ? want_i32(call, 4, "offsets", 1) : LOONG_OK;
}

static loong_status_t infer_permute(const loong_op_call_t *call)
{
    LOONG_TRY(want_rows(call));
    LOONG_TRY(loongi_want_rows(call, 0, "x", 2));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[0] = call->in[1].shape.dim[0];
    return LOONG_OK;
}

static loong_status_t infer_unpermute(const loong_op_call_t *call)
{
    LOONG_TRY(want_rows(call));
    LOONG_TRY(loongi_want_rows(call, 0, "x", 1));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[0] = call->in[2].shape.dim[0];
    return LOONG_OK;
}

static loong_status_t infer_unpermute_dw(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "dy", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "x", 2));
    LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    LOONG_TRY(
        loongi_want_dim(call, 1, "x", 1, call->in[0].shape.dim[1]));
    LOONG_TRY(want_i32(call, 2, "dest", 2));
    LOONG_TRY(loongi_want_rows(call, 2, "dest", 0));
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape = call->in[2].shape;
    return LOONG_OK;
}

static const loong_op_t unpermute_dw = {
    .name = "unpermute_dw",
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .accumulates = 1u << 0,
    .strided_in = true,
    .infer = infer_unpermute_dw,
    .example = example_rows,
};
const loong_op_t *const loongi_op_unpermute_dw = &unpermute_dw;

static const loong_op_t permute;

/* The adjoint of one by the other. Weights have a gradient where rows are
 * summed; a permute with weights is only made as a gradient. */
static loong_status_t move_back(const loong_grad_call_t *call,
                                const loong_op_t *back)
{
    loong_val_t in[5] = {call->out_grad[0], call->in[1], call->in[2],
                         call->num_in > 3 ? call->in[3] : LOONG_NONE,
                         call->num_in > 4 ? call->in[4] : LOONG_NONE};
    if (call->wanted[0]) {
        loong_graph_apply(call->graph, back, NULL, call->num_in, in, 1,
                          &call->in_grad[0]);
    }
    return LOONG_OK;
}

static loong_status_t grad_unpermute(const loong_grad_call_t *call)
{
    if (call->num_in > 3 && call->in[3] >= 0 && call->wanted[3]) {
        loong_val_t in[3] = {call->out_grad[0], call->in[0], call->in[2]};
        loong_graph_apply(call->graph, &unpermute_dw, NULL, 3, in, 1,
                          &call->in_grad[3]);
    }
    return move_back(call, &permute);
}

static const loong_op_t unpermute = {
    .name = "unpermute",
    .min_in = 3,
    .max_in = 5,
    .num_out = 1,
    .accumulates = 1u << 0,
    .strided_in = true,
    .infer = infer_unpermute,
    .grad = grad_unpermute,
    .example = example_rows,
};
const loong_op_t *const loongi_op_unpermute = &unpermute;

static loong_status_t grad_permute(const loong_grad_call_t *call)
{
    LOONG_CHECK(loong_graph_context(call->graph),
                call->num_in < 4 || call->in[3] < 0 || !call->wanted[3],
                LOONG_ERR_UNSUPPORTED,
                "permute: its weights have no gradient; weigh where the rows "
                "are summed, in unpermute");
    return move_back(call, &unpermute);
}

static const loong_op_t permute = {
    .name = "permute",
    .min_in = 3,
    .max_in = 5,
    .num_out = 1,
    .counted_by = 4,
    .strided_in = true,
    .infer = infer_permute,
    .grad = grad_permute,
    .example = example_rows,
};
const loong_op_t *const loongi_op_permute = &permute;

static loong_val_t move(loong_graph_t *g, const loong_op_t *op, loong_val_t x,
                        const loong_expert_rows_t *rows, loong_val_t weights)
{
    loong_val_t in[5] = {x, rows->source, rows->dest, weights, rows->offsets};
    loong_val_t y;
    int num_in = rows->offsets != LOONG_NONE ? 5
                 : weights != LOONG_NONE     ? 4
                                             : 3;
    return loong_graph_apply(g, op, NULL, num_in, in, 1, &y);
}

loong_val_t loong_permute(loong_graph_t *g, loong_val_t x,
                          const loong_expert_rows_t *rows, loong_val_t weights)
{
    return move(g, &permute, x, rows, weights);
}

loong_val_t loong_unpermute(loong_graph_t *g, loong_val_t x,
                            const loong_expert_rows_t *rows,
                            loong_val_t weights)
{
    return move(g, &unpermute, x, rows, weights);
}

/* ---- grouped_linear ------------------------------------------------------ */

static loong_status_t infer_grouped(const loong_op_call_t *call)
{
    const loong_grouped_linear_attr_t *attr = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "w", 3));
    LOONG_TRY(loongi_want_dtype(call, 1, "w", call->in[0].dtype));
    int out = attr->transposed ? 2 : 1;
    LOONG_TRY(
        loongi_want_dim(call, 1, "w", 3 - out, call->in[0].shape.dim[1]));
    LOONG_TRY(want_i32(call, 2, "offsets", 1));
    LOONG_TRY(loongi_want_dim(call, 2, "offsets", 0,
                              call->in[1].shape.dim[0] + 1));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = call->in[1].shape.dim[out];
    return LOONG_OK;
}

static loong_status_t infer_grouped_dw(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "dy", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "x", 2));
    LOONG_TRY(loongi_want_rows(call, 1, "x", 0));
    LOONG_TRY(loongi_want_dtype(call, 1, "x", call->in[0].dtype));
    LOONG_TRY(want_i32(call, 2, "offsets", 1));
    call->out[0].dtype = call->precision.wide;
    loong_shape_t *shape = &call->out[0].shape;
    shape->rank = 3;
    shape->dim[0] = call->in[2].shape.dim[0] - 1;
    shape->dim[1] = call->in[0].shape.dim[1];
    shape->dim[2] = call->in[1].shape.dim[1];
    return LOONG_OK;
}

static void cost_grouped(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_grouped_linear_attr_t *attr = q->attr;
    const loong_karg_t *x = &q->arg[0];
    const loong_karg_t *y = &q->arg[strcmp(q->op, "grouped_linear") == 0
                                        ? q->num_in
                                        : 1];
    cost->flops = 2.0 * attr->share * (double)loong_karg_rows(x) *
                  (double)loong_karg_cols(x) *
                  (double)loong_karg_cols(y);
    cost->bytes = loongi_cost_bytes(q);
}

void loongi_even_offsets(const loong_kernel_query_t *q, int i, double share,
                         int32_t *offset)
{
    int64_t last = q->arg[i].dim[0] - 1;
    double rows = share * (double)q->arg[0].dim[0];
    for (int64_t e = 0; e <= last; e++) {
        offset[e] = (int32_t)(rows * (double)e / (double)last);
    }
}

static void example_offsets(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_grouped_linear_attr_t *attr = q->attr;
    loongi_even_offsets(q, i, attr->share, data);
}

static const loong_op_t grouped_linear_dw = {
    .name = "grouped_linear_dw",
    .attr_size = sizeof(loong_grouped_linear_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .accumulates = 1u << 0,
    .strided_in = true,
    .infer = infer_grouped_dw,
    .example = example_offsets,
    .cost = cost_grouped,
};
const loong_op_t *const loongi_op_grouped_linear_dw = &grouped_linear_dw;

static const loong_op_t grouped_linear;

static loong_status_t grad_grouped(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    loong_grouped_linear_attr_t attr =
        *(const loong_grouped_linear_attr_t *)call->attr;
    loong_val_t dy = call->out_grad[0];
    LOONG_CHECK(loong_graph_context(g), !attr.transposed,
                LOONG_ERR_UNSUPPORTED,
                "grouped_linear: no gradient with transposed weights");
    if (call->wanted[1]) {
        loong_val_t in[3] = {dy, call->in[0], call->in[2]};
        loong_graph_apply(g, &grouped_linear_dw, &attr, 3, in, 1,
                          &call->in_grad[1]);
    }
    if (call->wanted[0]) {
        loong_val_t in[3] = {dy, call->in[1], call->in[2]};
        attr.transposed = true;
        loong_graph_apply(g, &grouped_linear, &attr, 3, in, 1,
                          &call->in_grad[0]);
    }
    return LOONG_OK;
}

static const loong_op_t grouped_linear = {
    .name = "grouped_linear",
    .attr_size = sizeof(loong_grouped_linear_attr_t),
    .min_in = 3,
    .max_in = 3,
    .num_out = 1,
    .counted_by = 2,
    .strided_in = true,
    .infer = infer_grouped,
    .grad = grad_grouped,
    .example = example_offsets,
    .cost = cost_grouped,
};
const loong_op_t *const loongi_op_grouped_linear = &grouped_linear;

loong_val_t loong_grouped_linear(loong_graph_t *g, loong_val_t x,
                                 loong_val_t w,
                                 const loong_expert_rows_t *rows)
{
    loong_grouped_linear_attr_t attr = {false, rows->share};
    loong_val_t in[3] = {x, w, rows->offsets};
    loong_val_t y;
    return loong_graph_apply(g, &grouped_linear, &attr, 3, in, 1, &y);
}

/* ---- sigmoid_gate -------------------------------------------------------- */

static loong_status_t want_gate(const loong_op_call_t *call, int x, int gate)
{
    LOONG_TRY(loongi_want_rank(call, x, "x", 2));
    LOONG_TRY(loongi_want_float(call, x, "x"));
    LOONG_TRY(loongi_want_rank(call, gate, "gate", 2));
    LOONG_TRY(loongi_want_dtype(call, gate, "gate", call->in[x].dtype));
    LOONG_TRY(loongi_want_rows(call, gate, "gate", x));
    return loongi_want_dim(call, gate, "gate", 1, 1);
}

static loong_status_t infer_gate(const loong_op_call_t *call)
{
    LOONG_TRY(want_gate(call, 0, 1));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t infer_gate_grad(const loong_op_call_t *call)
{
    LOONG_TRY(want_gate(call, 1, 2));
    LOONG_TRY(loongi_want_like(call, 0, "dy", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "dy", call->in[1].dtype));
    call->out[0] = call->in[1];
    call->out[1] = call->in[2];
    return LOONG_OK;
}

static const loong_op_t sigmoid_gate_grad = {
    .name = "sigmoid_gate_grad",
    .min_in = 3,
    .max_in = 3,
    .num_out = 2,
    .strided_in = true,
    .infer = infer_gate_grad,
};
const loong_op_t *const loongi_op_sigmoid_gate_grad = &sigmoid_gate_grad;

static loong_status_t grad_gate(const loong_grad_call_t *call)
{
    loong_val_t in[3] = {call->out_grad[0], call->in[0], call->in[1]};
    loong_graph_apply(call->graph, &sigmoid_gate_grad, NULL, 3, in, 2,
                      call->in_grad);
    return LOONG_OK;
}

static const loong_op_t sigmoid_gate = {
    .name = "sigmoid_gate",
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .strided_in = true,
    .infer = infer_gate,
    .grad = grad_gate,
};
const loong_op_t *const loongi_op_sigmoid_gate = &sigmoid_gate;

loong_val_t loong_sigmoid_gate(loong_graph_t *g, loong_val_t x,
                               loong_val_t gate)
{
    loong_val_t in[2] = {x, gate};
    loong_val_t y;
    return loong_graph_apply(g, &sigmoid_gate, NULL, 2, in, 1, &y);
}
