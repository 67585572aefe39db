/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as ops. Inside a layer they come in adjoint pairs, whose
 * builders leave a value alone in a group of one rank; the flat ones are
 * steps of the optimizer, in place.
 *
 * The adjoints hold with this convention: the gradient of a value that is
 * equal on all ranks of a group is complete and equal on all of them, the
 * gradient of any other value is the rank's own. Called through the ops' tables
 * and by layers, families and other ops. Read loong/collective.h before. */
#include "loong/collective.h"
#include "op_impl.h"

static const loong_op_t all_reduce;
static const loong_op_t reduce_scatter;
static const loong_op_t all_gather;

static loong_val_t apply(loong_graph_t *g, const loong_op_t *op, loong_val_t x,
                         const loong_collective_attr_t *attr)
{
    loong_val_t y;
    return loong_graph_apply(g, op, attr, 1, &x, 1, &y);
}

static loong_val_t build(loong_graph_t *g, const loong_op_t *op, loong_val_t x,
                         loong_group_t group)
{
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    loong_collective_attr_t attr = {group, loong_mesh_group_size(mesh, group),
                                    loong_mesh_group_rank(mesh, group), NULL,
                                    op->name, 1};
    if (attr.size == 1) {
        return x;
    }
    loong_val_t y = apply(g, op, x, &attr);
    return op == &all_reduce || op == &reduce_scatter
               ? loong_value_instead(g, y, x)
               : loong_value_moved(g, y);
}

static loong_group_t group_of(const void *attr)
{
    return ((const loong_collective_attr_t *)attr)->group;
}

static uint32_t same_after(const void *attr, int o, uint32_t in)
{
    (void)o;
    return in | loong_same_group(group_of(attr));
}

static uint32_t apart_after(const void *attr, int o, uint32_t in)
{
    (void)o;
    return in & ~loong_same_group(group_of(attr));
}

static loong_status_t infer_rows(const loong_op_call_t *call, bool more)
{
    const loong_collective_attr_t *a = call->attr;
    const loong_shape_t *shape = &call->in[0].shape;
    call->out[0] = call->in[0];
    int64_t rows = shape->dim[0];
    if (more) {
        call->out[0].shape.dim[0] = rows * a->size;
        return LOONG_OK;
    }
    LOONG_CHECK(call->ctx, rows % a->size == 0, LOONG_ERR_ARG,
                "%s: %lld rows cannot be shared by %d ranks of group %s",
                call->op, (long long)rows, a->size,
                loong_group_name(a->group));
    call->out[0].shape.dim[0] = rows / a->size;
    return LOONG_OK;
}

static loong_status_t infer_fewer(const loong_op_call_t *call)
{
    return infer_rows(call, false);
}

static loong_status_t infer_more(const loong_op_call_t *call)
{
    return infer_rows(call, true);
}

/* The sum of collectives of a group is the collective of the sum. */
static loong_val_t sum_before(loong_graph_t *g, int n, const loong_val_t *in,
                              const loong_op_t *op)
{
    loong_producer_t first = {NULL, NULL, 0, NULL};
    loong_val_t sum = LOONG_NONE;
    for (int i = 0; i < n; i++) {
        loong_producer_t p;
        if (!loong_value_producer(g, in[i], &p)) {
            return LOONG_NONE;
        }
        const loong_collective_attr_t *a = p.attr;
        first = i == 0 ? p : first;
        if (a->group !=
            ((const loong_collective_attr_t *)first.attr)->group) {
            return LOONG_NONE;
        }
    }
    loong_collective_attr_t attr =
        *(const loong_collective_attr_t *)first.attr;
    for (int i = 0; i < n; i++) {
        loong_producer_t p;
        if (loong_value_producer(g, in[i], &p)) {
            loong_val_t x = p.in[0];
            sum = i == 0 ? x : loong_add(g, sum, x);
        }
    }
    return apply(g, op, sum, &attr);
}

static loong_val_t sum_all_reduces(loong_graph_t *g, int n,
                                   const loong_val_t *in)
{
    return sum_before(g, n, in, &all_reduce);
}

static loong_val_t sum_reduce_scatters(loong_graph_t *g, int n,
                                       const loong_val_t *in)
{
    return sum_before(g, n, in, &reduce_scatter);
}

/* ---- all_reduce and replicate ------------------------------------------- */

static loong_status_t grad_all_reduce(const loong_grad_call_t *call)
{
    call->in_grad[0] = call->out_grad[0];
    return LOONG_OK;
}

static const loong_op_t all_reduce = {
    .name = "all_reduce",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .in_place = 1,
    .infer = loongi_infer_same,
    .group = group_of,
    .same = same_after,
    .grad = grad_all_reduce,
    .sum = sum_all_reduces,
};
const loong_op_t *const loongi_op_all_reduce = &all_reduce;

static loong_status_t grad_replicate(const loong_grad_call_t *call)
{
    call->in_grad[0] =
        apply(call->graph, &all_reduce, call->out_grad[0], call->attr);
    return LOONG_OK;
}

static const loong_op_t replicate = {
    .name = "replicate",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .view = true,
    .strided_in = true,
    .infer = loongi_infer_same,
    .same = same_after,
    .grad = grad_replicate,
};
const loong_op_t *const loongi_op_replicate = &replicate;

loong_val_t loong_all_reduce(loong_graph_t *g, loong_val_t x,
                             loong_group_t group)
{
    return build(g, &all_reduce, x, group);
}

loong_val_t loong_replicate(loong_graph_t *g, loong_val_t x,
                            loong_group_t group)
{
    return build(g, &replicate, x, group);
}

/* ---- all_gather and reduce_scatter -------------------------------------- */

static loong_status_t grad_all_gather(const loong_grad_call_t *call)
{
    call->in_grad[0] =
        apply(call->graph, &reduce_scatter, call->out_grad[0], call->attr);
    return LOONG_OK;
}

static loong_status_t grad_reduce_scatter(const loong_grad_call_t *call)
{
    call->in_grad[0] =
        apply(call->graph, &all_gather, call->out_grad[0], call->attr);
    return LOONG_OK;
}

static const loong_op_t all_gather = {
    .name = "all_gather",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_more,
    .group = group_of,
    .same = same_after,
    .grad = grad_all_gather,
};
const loong_op_t *const loongi_op_all_gather = &all_gather;

static const loong_op_t reduce_scatter = {
    .name = "reduce_scatter",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_fewer,
    .group = group_of,
    .same = apart_after,
    .grad = grad_reduce_scatter,
    .sum = sum_reduce_scatters,
};
const loong_op_t *const loongi_op_reduce_scatter = &reduce_scatter;

loong_val_t loong_all_gather(loong_graph_t *g, loong_val_t x,
                             loong_group_t group)
{
    return build(g, &all_gather, x, group);
}

loong_val_t loong_reduce_scatter(loong_graph_t *g, loong_val_t x,
                                 loong_group_t group)
{
    return build(g, &reduce_scatter, x, group);
}

/* ---- own_rows ----------------------------------------------------------- */

static const loong_op_t own_rows = {
    .name = "own_rows",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_fewer,
    .group = group_of,
    .same = apart_after,
    .grad = grad_reduce_scatter, /* an all_gather */
};
const loong_op_t *const loongi_op_own_rows = &own_rows;

loong_val_t loong_own_rows(loong_graph_t *g, loong_val_t x,
                           loong_group_t group)
{
    return build(g, &own_rows, x, group);
}

/* ---- all_to_all_rows and all_to_all_columns ------------------------------ */

/* More rows of fewer columns, or the other way round. */
static loong_status_t infer_exchange(const loong_op_call_t *call, bool more)
{
    const loong_collective_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(infer_rows(call, more));
    int64_t cols = call->in[0].shape.dim[1];
    LOONG_CHECK(call->ctx, !more || cols % a->size == 0, LOONG_ERR_ARG,
                "%s: %lld columns cannot be shared by %d ranks of group %s",
                call->op, (long long)cols, a->size,
                loong_group_name(a->group));
    call->out[0].shape.dim[1] = more ? cols / a->size : cols * a->size;
    return LOONG_OK;
}

static loong_status_t infer_to_rows(const loong_op_call_t *call)
{
    return infer_exchange(call, true);
}

static loong_status_t infer_to_columns(const loong_op_call_t *call)
{
    return infer_exchange(call, false);
}

static const loong_op_t all_to_all_columns;

static loong_status_t grad_to_rows(const loong_grad_call_t *call)
{
    call->in_grad[0] = apply(call->graph, &all_to_all_columns,
                             call->out_grad[0], call->attr);
    return LOONG_OK;
}

static const loong_op_t all_to_all_rows = {
    .name = "all_to_all_rows",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_in = true,
    .infer = infer_to_rows,
    .group = group_of,
    .same = apart_after,
    .grad = grad_to_rows,
};
const loong_op_t *const loongi_op_all_to_all_rows = &all_to_all_rows;

static loong_status_t grad_to_columns(const loong_grad_call_t *call)
{
    call->in_grad[0] = apply(call->graph, &all_to_all_rows, call->out_grad[0],
                             call->attr);
    return LOONG_OK;
}

static const loong_op_t all_to_all_columns = {
    .name = "all_to_all_columns",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .strided_out = true,
    .infer = infer_to_columns,
    .group = group_of,
    .same = apart_after,
    .grad = grad_to_columns,
};
const loong_op_t *const loongi_op_all_to_all_columns = &all_to_all_columns;

loong_val_t loong_all_to_all_rows(loong_graph_t *g, loong_val_t x,
                                  loong_group_t group)
{
    return build(g, &all_to_all_rows, x, group);
}

loong_val_t loong_all_to_all_columns(loong_graph_t *g, loong_val_t x,
                                     loong_group_t group)
{
    return build(g, &all_to_all_columns, x, group);
}

/* ---- ring_shift --------------------------------------------------------- */

static loong_status_t infer_shift(const loong_op_call_t *call)
{
    const loong_collective_attr_t *a = call->attr;
    LOONG_CHECK(call->ctx, a->distance > 0 && a->distance < a->size,
                LOONG_ERR_ARG, "%s: distance %d among %d ranks; 1 to %d wanted",
                call->op, a->distance, a->size, a->size - 1);
    return loongi_infer_same(call);
}

static const loong_op_t ring_shift = {
    .name = "ring_shift",
    .attr_size = sizeof(loong_collective_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_shift,
    .group = group_of,
};
const loong_op_t *const loongi_op_ring_shift = &ring_shift;

loong_val_t loong_ring_shift(loong_graph_t *g, loong_val_t x,
                             loong_group_t group)
{
    return build(g, &ring_shift, x, group);
}

/* ---- flat --------------------------------------------------------------- */

static loong_status_t infer_flat(const loong_op_call_t *call)
{
    LOONG_TRY(loongi_want_rank(call, 0, "x", 1));
    return loongi_infer_same(call);
}

#define FLAT(name_)                                   \
    static const loong_op_t name_ = {                 \
        .name = #name_,                               \
        .attr_size = sizeof(loong_collective_attr_t), \
        .min_in = 1,                                  \
        .max_in = 1,                                  \
        .num_out = 1,                                 \
        .infer = infer_flat,                          \
        .group = group_of,                            \
    };                                                \
    const loong_op_t *const loongi_op_##name_ = &name_

FLAT(flat_all_reduce);
FLAT(flat_reduce_scatter);
FLAT(flat_all_gather);
