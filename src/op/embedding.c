/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops embedding, gather_rows and sum_by_id: checks, shapes, gradients,
 * costs. Called through the op's table. Read op_impl.h before, and
 * kernels/embedding/embedding_ref.c for the formulas. */
#include "op_impl.h"

/* The part of the vocabulary that the rows are. */
static loong_status_t want_part(const loong_op_call_t *call, int64_t rows)
{
    const loong_embedding_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx,
                a->rows == rows && a->begin >= 0 &&
                    (a->vocab == 0 ? a->begin == 0 : a->begin < a->vocab),
                LOONG_ERR_ARG,
                "%s: %lld rows from id %lld of %lld, the table has %lld",
                call->op, (long long)a->rows, (long long)a->begin,
                (long long)a->vocab, (long long)rows);
    return LOONG_OK;
}

static loong_status_t infer(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "ids", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "ids", LOONG_I32));
    LOONG_TRY(loongi_want_rank(call, 1, "table", 2));
    LOONG_TRY(loongi_want_float(call, 1, "table"));
    LOONG_TRY(want_part(call, call->in[1].shape.dim[0]));
    call->out[0].dtype = call->in[1].dtype;
    call->out[0].shape.rank = 2;
    call->out[0].shape.dim[0] = call->in[0].shape.dim[0];
    call->out[0].shape.dim[1] = call->in[1].shape.dim[1];
    return LOONG_OK;
}

static loong_status_t infer_grad(const loong_op_call_t *call)
{
    const loong_embedding_attr_t *attr = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "ids", 1));
    LOONG_TRY(loongi_want_dtype(call, 0, "ids", LOONG_I32));
    LOONG_TRY(loongi_want_rank(call, 1, "dy", 2));
    LOONG_TRY(loongi_want_float(call, 1, "dy"));
    LOONG_TRY(loongi_want_rows(call, 1, "dy", 0));
    LOONG_CHECK(call->ctx, attr->rows > 0, LOONG_ERR_ARG,
                "%s: a table of %lld rows, a positive number wanted",
                call->op, (long long)attr->rows);
    call->out[0].dtype = call->precision.wide;
    call->out[0].shape =
        loong_shape_2d(attr->rows, call->in[1].shape.dim[1]);
    return LOONG_OK;
}

static void cost(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *y = &q->arg[q->num_in];
    cost->bytes = 2.0 * (double)loong_karg_rows(y) *
                  (double)loong_karg_cols(y) *
                  (double)loong_dtype_size(y->dtype);
}

/* Rows in turn. */
static void example_ids(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_embedding_attr_t *a = q->attr;
    int32_t *ids = data;
    int64_t n = loong_karg_rows(&q->arg[i]) *
                loong_karg_cols(&q->arg[i]);
    for (int64_t k = 0; k < n; k++) {
        ids[k] = (int32_t)(a->begin + k % LOONG_MAX(a->rows, 1));
    }
}

static const loong_op_t embedding;

/* Each row gets what the sum that it is in gets. */
static loong_status_t grad_of_grad(const loong_grad_call_t *call)
{
    loong_dtype_t dtype = loong_value_dtype(call->graph, call->in[1]);
    loong_val_t in[2] = {call->in[0], call->out_grad[0]};
    loong_val_t dx;
    loong_graph_apply(call->graph, &embedding, call->attr, 2, in, 1, &dx);
    call->in_grad[1] = loong_cast(call->graph, dx, dtype);
    return LOONG_OK;
}

static const loong_op_t embedding_grad = {
    .name = "embedding_grad",
    .attr_size = sizeof(loong_embedding_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .accumulates = 1,
    .strided_in = true,
    .infer = infer_grad,
    .grad = grad_of_grad,
    .example = example_ids,
};
const loong_op_t *const loongi_op_embedding_grad = &embedding_grad;

static loong_status_t grad(const loong_grad_call_t *call)
{
    loong_val_t in[2] = {call->in[0], call->out_grad[0]};
    loong_val_t table = call->in[1];
    loong_val_t dx = LOONG_NONE;
    loong_graph_apply(call->graph, &embedding_grad, call->attr, 2, in, 1, &dx);
    call->in_grad[1] = dx;
    if (dx != LOONG_NONE && !loong_value_is_param(call->graph, table)) {
        call->in_grad[1] = loong_cast(call->graph, dx,
                                      loong_value_dtype(call->graph, table));
    }
    return LOONG_OK;
}

static const loong_op_t embedding = {
    .name = "embedding",
    .attr_size = sizeof(loong_embedding_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .strided_out = true,
    .infer = infer,
    .grad = grad,
    .example = example_ids,
    .cost = cost,
};
const loong_op_t *const loongi_op_embedding = &embedding;

loong_val_t loong_embedding_slice(loong_graph_t *g, loong_val_t ids,
                                  loong_val_t table, int64_t begin,
                                  int64_t vocab)
{
    loong_embedding_attr_t attr = {0, begin, vocab};
    loong_val_t in[2] = {ids, table};
    loong_val_t y;
    if (table != LOONG_NONE) {
        attr.rows = loong_value_shape(g, table).dim[0];
    }
    return loong_graph_apply(g, &embedding, &attr, 2, in, 1, &y);
}

loong_val_t loong_embedding(loong_graph_t *g, loong_val_t ids,
                            loong_val_t table)
{
    return loong_embedding_slice(g, ids, table, 0, 0);
}

loong_val_t loong_gather_rows(loong_graph_t *g, loong_val_t x,
                              loong_val_t index)
{
    return loong_embedding(g, index, x);
}

loong_val_t loong_sum_by_id(loong_graph_t *g, loong_val_t ids, loong_val_t x,
                            int64_t rows)
{
    loong_embedding_attr_t attr = {rows, 0, rows + 1};
    loong_val_t in[2] = {ids, x};
    loong_val_t y;
    return loong_graph_apply(g, &embedding_grad, &attr, 2, in, 1, &y);
}
