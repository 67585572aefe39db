/* SPDX-License-Identifier: Apache-2.0
 *
 * slice, concat, reshape, zigzag, repeat_heads, select_rows and the adjoint of
 * slice. Called through the ops' tables and by layers, families and other ops.
 * Read op_impl.h before. */
#include "loong/collective.h"
#include "op_impl.h"

/* ---- concat -------------------------------------------------------------- */

static loong_status_t infer_concat(const loong_op_call_t *call)
{
    call->out[0] = call->in[0];
    int64_t cols = 0;
    for (int i = 0; i < call->num_in; i++) {
        LOONG_TRY(loongi_want_rank(call, i, "a part", 2));
        LOONG_TRY(loongi_want_dtype(call, i, "a part", call->in[0].dtype));
        LOONG_TRY(loongi_want_rows(call, i, "a part", 0));
        cols += loongi_type_cols(&call->in[i]);
    }
    call->out[0].shape.dim[1] = cols;
    return LOONG_OK;
}

static loong_status_t grad_concat(const loong_grad_call_t *call)
{
    int64_t column = 0;
    for (int i = 0; i < call->num_in; i++) {
        int64_t cols = loong_value_shape(call->graph, call->in[i]).dim[1];
        if (call->wanted[i]) {
            call->in_grad[i] = loong_slice(call->graph, call->out_grad[0],
                                           column, cols);
        }
        column += cols;
    }
    return LOONG_OK;
}

static const loong_op_t concat = {
    .name = "concat",
    .min_in = 1,
    .max_in = 8,
    .num_out = 1,
    .assembles = true,
    .strided_in = true,
    .infer = infer_concat,
    .grad = grad_concat,
};
const loong_op_t *const loongi_op_concat = &concat;

loong_val_t loong_concat(loong_graph_t *g, int num_in, const loong_val_t *in)
{
    loong_val_t y;
    return loong_graph_apply(g, &concat, NULL, num_in, in, 1, &y);
}

/* ---- slice --------------------------------------------------------------- */

static loong_status_t infer_slice_grad(const loong_op_call_t *call)
{
    const loong_slice_grad_attr_t *a = call->attr;
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_CHECK(call->ctx,
                a->begin >= 0 && cols <= a->width &&
                    a->begin <= a->width - cols,
                LOONG_ERR_ARG, "%s: %lld columns at column %lld of %lld",
                call->op, (long long)cols, (long long)a->begin,
                (long long)a->width);
    call->out[0] = call->in[0];
    call->out[0].shape.dim[call->in[0].shape.rank - 1] = a->width;
    return LOONG_OK;
}

enum { MAX_SLICES = 8 };

/* Slices that cover all columns without overlap: their gradients side by
 * side. */
static loong_val_t sum_slice_grads(loong_graph_t *g, int n,
                                   const loong_val_t *in)
{
    loong_val_t parts[MAX_SLICES];
    int64_t column = 0;
    int placed = 0;
    int64_t width = 0;
    while (placed < n && n <= MAX_SLICES) {
        bool found = false;
        for (int i = 0; i < n; i++) {
            loong_producer_t p;
            if (!loong_value_producer(g, in[i], &p)) {
                return LOONG_NONE;
            }
            const loong_slice_grad_attr_t *a = p.attr;
            width = a->width;
            if (a->begin == column && !found) {
                loong_shape_t shape = loong_value_shape(g, p.in[0]);
                parts[placed++] = p.in[0];
                column += shape.dim[shape.rank - 1];
                found = true;
            }
        }
        if (!found) {
            return LOONG_NONE;
        }
    }
    return column == width && placed == n ? loong_concat(g, n, parts)
                                          : LOONG_NONE;
}

static const loong_op_t slice_grad = {
    .name = "slice_grad",
    .attr_size = sizeof(loong_slice_grad_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .infer = infer_slice_grad,
    .sum = sum_slice_grads,
};
const loong_op_t *const loongi_op_slice_grad = &slice_grad;

static loong_status_t infer_slice(const loong_op_call_t *call)
{
    const loong_slice_attr_t *a = call->attr;
    int64_t cols = loongi_type_cols(&call->in[0]);
    LOONG_CHECK(call->ctx,
                a->begin >= 0 && a->count > 0 && a->begin < cols &&
                    a->count <= cols - a->begin,
                LOONG_ERR_ARG, "%s: %lld columns from column %lld of %lld",
                call->op, (long long)a->count, (long long)a->begin,
                (long long)cols);
    call->out[0] = call->in[0];
    call->out[0].shape.dim[call->in[0].shape.rank - 1] = a->count;
    return LOONG_OK;
}

static int64_t slice_column(const void *attr)
{
    return ((const loong_slice_attr_t *)attr)->begin;
}

static loong_status_t grad_slice(const loong_grad_call_t *call)
{
    const loong_slice_attr_t *a = call->attr;
    loong_shape_t shape = loong_value_shape(call->graph, call->in[0]);
    loong_slice_grad_attr_t attr = {a->begin, shape.dim[shape.rank - 1]};
    loong_graph_apply(call->graph, &slice_grad, &attr, 1, call->out_grad, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t slice = {
    .name = "slice",
    .attr_size = sizeof(loong_slice_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .view = true,
    .view_column = slice_column,
    .strided_in = true,
    .infer = infer_slice,
    .grad = grad_slice,
};
const loong_op_t *const loongi_op_slice = &slice;

loong_val_t loong_slice(loong_graph_t *g, loong_val_t x, int64_t begin,
                        int64_t count)
{
    loong_slice_attr_t attr = {begin, count};
    loong_val_t y;
    return loong_graph_apply(g, &slice, &attr, 1, &x, 1, &y);
}

/* ---- reshape ------------------------------------------------------------- */

static loong_status_t infer_reshape(const loong_op_call_t *call)
{
    const loong_reshape_attr_t *a = call->attr;
    int64_t have = loongi_type_rows(&call->in[0]) *
                   loongi_type_cols(&call->in[0]);
    int64_t rest = have; /* elements for the dimensions to come */
    LOONG_CHECK(call->ctx,
                a->shape.rank > 0 && a->shape.rank <= LOONG_MAX_DIMS,
                LOONG_ERR_ARG, "%s: to %d dimensions, 1 to %d wanted",
                call->op, a->shape.rank, LOONG_MAX_DIMS);
    for (int d = 0; d < a->shape.rank; d++) {
        int64_t dim = a->shape.dim[d];
        LOONG_CHECK(call->ctx, dim > 0 && rest % dim == 0, LOONG_ERR_ARG,
                    "%s: dimension %d is %lld, which does not divide %lld "
                    "(of %lld elements)",
                    call->op, d, (long long)dim, (long long)rest,
                    (long long)have);
        rest /= dim;
    }
    LOONG_CHECK(call->ctx, rest == 1, LOONG_ERR_ARG,
                "%s: %lld elements for each of the new shape's (of %lld)",
                call->op, (long long)rest, (long long)have);
    call->out[0].dtype = call->in[0].dtype;
    call->out[0].shape = a->shape;
    return LOONG_OK;
}

static loong_status_t grad_reshape(const loong_grad_call_t *call)
{
    call->in_grad[0] =
        loong_reshape(call->graph, call->out_grad[0],
                      loong_value_shape(call->graph, call->in[0]));
    return LOONG_OK;
}

static const loong_op_t reshape = {
    .name = "reshape",
    .attr_size = sizeof(loong_reshape_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .view = true,
    .infer = infer_reshape,
    .grad = grad_reshape,
};
const loong_op_t *const loongi_op_reshape = &reshape;

loong_val_t loong_reshape(loong_graph_t *g, loong_val_t x, loong_shape_t shape)
{
    loong_reshape_attr_t attr = {shape};
    loong_val_t y;
    return loong_graph_apply(g, &reshape, &attr, 1, &x, 1, &y);
}

/* ---- zigzag -------------------------------------------------------------- */

static loong_status_t infer_zigzag(const loong_op_call_t *call)
{
    const loong_zigzag_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    int64_t rows = call->in[0].shape.dim[0];
    LOONG_CHECK(call->ctx,
                a->ranks > 0 && a->length > 0 &&
                    a->length % (2 * (int64_t)a->ranks) == 0 &&
                    rows % a->length == 0,
                LOONG_ERR_ARG,
                "%s: %lld rows of samples of %lld over %d ranks; whole samples "
                "of a multiple of twice the ranks wanted",
                call->op, (long long)rows, (long long)a->length, a->ranks);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t grad_zigzag(const loong_grad_call_t *call)
{
    const loong_zigzag_attr_t *a = call->attr;
    call->in_grad[0] = loong_zigzag(call->graph, call->out_grad[0], a->ranks,
                                    a->length, !a->inverse);
    return LOONG_OK;
}

static const loong_op_t zigzag = {
    .name = "zigzag",
    .attr_size = sizeof(loong_zigzag_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_zigzag,
    .grad = grad_zigzag,
};
const loong_op_t *const loongi_op_zigzag = &zigzag;

loong_val_t loong_zigzag(loong_graph_t *g, loong_val_t x, int ranks,
                         int64_t length, bool inverse)
{
    loong_zigzag_attr_t attr = {ranks, length, inverse};
    loong_val_t y;
    return loong_value_moved(
        g, loong_graph_apply(g, &zigzag, &attr, 1, &x, 1, &y));
}

/* ---- repeat_heads and sum_heads ------------------------------------------ */

static loong_status_t infer_heads(const loong_op_call_t *call, bool more)
{
    const loong_repeat_heads_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    int64_t cols = call->in[0].shape.dim[1];
    int64_t unit = (int64_t)a->head_dim * (more ? 1 : a->times);
    LOONG_CHECK(call->ctx,
                a->head_dim > 0 && a->times > 0 && cols % unit == 0,
                LOONG_ERR_ARG,
                "%s: %lld channels, heads of %d, %d times; whole heads wanted",
                call->op, (long long)cols, a->head_dim, a->times);
    call->out[0] = call->in[0];
    call->out[0].shape.dim[1] = more ? cols * a->times : cols / a->times;
    return LOONG_OK;
}

static loong_status_t infer_repeat_heads(const loong_op_call_t *call)
{
    return infer_heads(call, true);
}

static loong_status_t infer_sum_heads(const loong_op_call_t *call)
{
    return infer_heads(call, false);
}

static const loong_op_t repeat_heads;
static const loong_op_t sum_heads;

static loong_status_t grad_repeat_heads(const loong_grad_call_t *call)
{
    loong_graph_apply(call->graph, &sum_heads, call->attr, 1, call->out_grad,
                      1, call->in_grad);
    return LOONG_OK;
}

static loong_status_t grad_sum_heads(const loong_grad_call_t *call)
{
    loong_graph_apply(call->graph, &repeat_heads, call->attr, 1,
                      call->out_grad, 1, call->in_grad);
    return LOONG_OK;
}

#define HEADS_OP(name_)                                                       \
    static const loong_op_t name_ = {                                         \
        .name = #name_,                                                       \
        .attr_size = sizeof(loong_repeat_heads_attr_t),                       \
        .min_in = 1,                                                          \
        .max_in = 1,                                                          \
        .num_out = 1,                                                         \
        .strided_in = true,                                                   \
        .strided_out = true,                                                  \
        .infer = infer_##name_,                                               \
        .grad = grad_##name_,                                                 \
    };                                                                        \
    const loong_op_t *const loongi_op_##name_ = &name_
HEADS_OP(repeat_heads);
HEADS_OP(sum_heads);
#undef HEADS_OP

loong_val_t loong_repeat_heads(loong_graph_t *g, loong_val_t x, int head_dim,
                               int times)
{
    loong_repeat_heads_attr_t attr = {head_dim, times};
    loong_val_t y = x;
    if (times == 1) {
        return x;
    }
    return loong_value_moved(
        g, loong_graph_apply(g, &repeat_heads, &attr, 1, &x, 1, &y));
}

/* ---- select_rows --------------------------------------------------------- */

static loong_status_t infer_select_rows(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_rank(call, 1, "is_feature", 1));
    LOONG_TRY(loongi_want_dtype(call, 1, "is_feature", LOONG_I32));
    LOONG_TRY(loongi_want_rows(call, 1, "is_feature", 0));
    if (loongi_has(call, 2)) {
        LOONG_TRY(loongi_want_dtype(call, 2, "features", call->in[0].dtype));
        LOONG_TRY(loongi_want_like(call, 2, "features", 0));
    }
    return loongi_infer_same(call);
}

static const loong_op_t select_rows;

static loong_status_t grad_select_rows(const loong_grad_call_t *call)
{
    const loong_select_rows_attr_t *a = call->attr;
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    for (int i = 0; i < call->num_in; i += 2) {
        loong_select_rows_attr_t attr = {i == 0 ? a->inverse : !a->inverse};
        if (call->wanted[i]) {
            loong_graph_apply(call->graph, &select_rows, &attr, 2, in, 1,
                              &call->in_grad[i]);
        }
    }
    return LOONG_OK;
}

/* Each row is read once, from one of the two. */
static void cost_select_rows(const loong_kernel_query_t *q, loong_cost_t *cost)
{
    const loong_karg_t *x = &q->arg[0];
    cost->bytes =
        (double)loong_karg_rows(x) *
        (2.0 * (double)loong_karg_cols(x) * (double)loong_dtype_size(x->dtype) +
         (double)sizeof(int32_t));
}

static const loong_op_t select_rows = {
    .name = "select_rows",
    .attr_size = sizeof(loong_select_rows_attr_t),
    .min_in = 2,
    .max_in = 3,
    .num_out = 1,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = infer_select_rows,
    .grad = grad_select_rows,
    .cost = cost_select_rows,
};
const loong_op_t *const loongi_op_select_rows = &select_rows;

loong_val_t loong_select_rows(loong_graph_t *g, loong_val_t x,
                              loong_val_t features, loong_val_t is_feature)
{
    loong_select_rows_attr_t attr = {false};
    loong_val_t in[3] = {x, is_feature, features};
    loong_val_t y;
    return loong_graph_apply(g, &select_rows, &attr,
                             features == LOONG_NONE ? 2 : 3, in, 1, &y);
}
