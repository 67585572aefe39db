/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens an expert takes, and how they come to its rank and back;
 * formulas in kernels/moe/router_ref.c and kernels/moe/dispatch_comm.c. Called
 * through the ops' tables and by src/nn/moe.c. Read loong/moe.h and op_impl.h
 * before. */
#include "loong/moe.h"
#include "op_impl.h"

/* ---- expert_capacity ----------------------------------------------------- */

static loong_status_t infer_capacity(const loong_op_call_t *call)
{
    const loong_expert_capacity_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "indices", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "indices", LOONG_I32));
    LOONG_TRY(loongi_want_like(call, 1, "weights", 0));
    LOONG_TRY(loongi_want_dtype(call, 1, "weights", call->precision.wide));
    LOONG_CHECK(call->ctx, a->experts >= 1 && a->capacity >= 1, LOONG_ERR_ARG,
                "%s: %d experts of %lld tokens, positive numbers wanted",
                call->op, a->experts, (long long)a->capacity);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

/* Experts in turn. */
static void example_choices(int experts, const loong_kernel_query_t *q, int i,
                            int32_t *index)
{
    int64_t n = loong_karg_rows(&q->arg[0]) * q->arg[0].dim[1];
    for (int64_t s = 0; i == 0 && s < n; s++) {
        index[s] = (int32_t)(s % experts);
    }
}

static void example_capacity(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_capacity_attr_t *a = q->attr;
    example_choices(a->experts, q, i, data);
}

static const loong_op_t expert_capacity = {
    .name = "expert_capacity",
    .attr_size = sizeof(loong_expert_capacity_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .infer = infer_capacity,
    .example = example_capacity,
};
const loong_op_t *const loongi_op_expert_capacity = &expert_capacity;

loong_val_t loong_expert_capacity(loong_graph_t *g, loong_val_t indices,
                                  loong_val_t weights,
                                  const loong_expert_capacity_attr_t *attr)
{
    loong_val_t in[2] = {indices, weights};
    loong_val_t y;
    return loong_graph_apply(g, &expert_capacity, attr, 2, in, 1, &y);
}

/* ---- expert_rounds and expert_window ------------------------------------- */

static loong_status_t infer_window(const loong_op_call_t *call)
{
    const loong_expert_window_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "indices", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "indices", LOONG_I32));
    LOONG_CHECK(call->ctx,
                a->ranks >= 1 && a->sets >= 0 && a->slots >= 1 &&
                    a->experts % (a->ranks * LOONG_MAX(a->sets, 1)) == 0,
                LOONG_ERR_ARG,
                "%s: %d experts in %d sets on %d ranks, %lld rows a round",
                call->op, a->experts, a->sets, a->ranks, (long long)a->slots);
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_status_t infer_rounds(const loong_op_call_t *call)
{
    LOONG_TRY(infer_window(call));
    call->out[0].shape = call->out[1].shape = loong_shape_1d(1);
    call->out[1].dtype = call->precision.wide;
    return LOONG_OK;
}

static void example_window(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_window_attr_t *a = q->attr;
    example_choices(a->experts, q, i, data);
}

static const loong_op_t expert_rounds = {
    .name = "expert_rounds",
    .attr_size = sizeof(loong_expert_window_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 2,
    .optional_out = 1u << 1,
    .infer = infer_rounds,
    .example = example_window,
};
const loong_op_t *const loongi_op_expert_rounds = &expert_rounds;

static const loong_op_t expert_window = {
    .name = "expert_window",
    .attr_size = sizeof(loong_expert_window_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 1,
    .infer = infer_window,
    .example = example_window,
};
const loong_op_t *const loongi_op_expert_window = &expert_window;

loong_val_t loong_expert_rounds(loong_graph_t *g, loong_val_t indices,
                                const loong_expert_window_attr_t *attr,
                                loong_val_t *more_p)
{
    loong_val_t out[2] = {LOONG_NONE, LOONG_NONE};
    loong_graph_apply(g, &expert_rounds, attr, 1, &indices, 2, out);
    if (more_p != NULL) {
        *more_p = out[1];
    }
    return out[0];
}

loong_val_t loong_expert_window(loong_graph_t *g, loong_val_t indices,
                                const loong_expert_window_attr_t *attr)
{
    loong_val_t y;
    return loong_graph_apply(g, &expert_window, attr, 1, &indices, 1, &y);
}

/* ---- expert_routes ------------------------------------------------------- */

static loong_status_t infer_routes(const loong_op_call_t *call)
{
    const loong_expert_routes_attr_t *a = call->attr;
    int64_t n = a->size;
    LOONG_TRY(loongi_want_rank(call, 0, "indices", 2));
    LOONG_TRY(loongi_want_dtype(call, 0, "indices", LOONG_I32));
    const loong_shape_t *shape = &call->in[0].shape;
    LOONG_CHECK(call->ctx,
                a->copies >= 1 && n % a->copies == 0 && a->sets >= 0 &&
                    a->experts % (n / a->copies * LOONG_MAX(a->sets, 1)) == 0,
                LOONG_ERR_ARG,
                "%s: %d experts in %d sets on %lld ranks, %d of which hold "
                "the same", call->op, a->experts, a->sets, (long long)n,
                a->copies);
    int64_t tokens = shape->dim[0] / n;
    LOONG_CHECK(call->ctx, tokens * n == shape->dim[0], LOONG_ERR_ARG,
                "%s: %lld tokens of %lld ranks", call->op,
                (long long)shape->dim[0], (long long)n);
    LOONG_CHECK(call->ctx, tokens * n <= INT32_MAX, LOONG_ERR_UNSUPPORTED,
                "%s: %lld tokens on each of %lld ranks", call->op,
                (long long)tokens, (long long)n);
    for (int o = 0; o < call->num_out; o++) {
        call->out[o].dtype = LOONG_I32;
    }
    call->out[0].shape =
        loong_shape_1d(tokens * LOONG_MIN(n, shape->dim[1] * a->copies));
    call->out[1].shape = loong_shape_2d(tokens, n);
    call->out[2].shape = loong_shape_2d(2, n);
    call->out[3].shape = loong_shape_2d(
        a->rows > 0 ? LOONG_MIN(a->rows, shape->dim[0]) : shape->dim[0],
        shape->dim[1]);
    return LOONG_OK;
}

/* All ranks that hold an expert get the tokens that chose it. */
static uint32_t same_routes(const void *attr, int o, uint32_t in)
{
    (void)attr;
    return o == 3 ? in | LOONG_SAME_ETP : in;
}

static void example_routes(const loong_kernel_query_t *q, int i, void *data)
{
    const loong_expert_routes_attr_t *a = q->attr;
    example_choices(a->experts, q, i, data);
}

static const loong_op_t expert_routes = {
    .name = "expert_routes",
    .attr_size = sizeof(loong_expert_routes_attr_t),
    .min_in = 1,
    .max_in = 1,
    .num_out = 4,
    .infer = infer_routes,
    .same = same_routes,
    .example = example_routes,
};
const loong_op_t *const loongi_op_expert_routes = &expert_routes;

loong_expert_routes_t
loong_expert_routes(loong_graph_t *g, loong_val_t indices, loong_group_t group,
                    const loong_expert_routes_attr_t *attr)
{
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    loong_expert_routes_attr_t own = *attr;
    own.size = loong_mesh_group_size(mesh, group);
    own.rank = loong_mesh_group_rank(mesh, group);
    loong_val_t out[4] = {LOONG_NONE, LOONG_NONE, LOONG_NONE, LOONG_NONE};
    loong_graph_apply(g, &expert_routes, &own, 1, &indices, 4, out);
    loong_expert_routes_t routes = {
        out[3], {LOONG_NONE, out[0], out[1], 1.0}, out[2], group};
    return routes;
}

/* ---- exchange_rows ------------------------------------------------------- */

static loong_status_t infer_exchange(const loong_op_call_t *call)
{
    const loong_exchange_rows_attr_t *a = call->attr;
    LOONG_TRY(loongi_want_rank(call, 0, "x", 2));
    LOONG_TRY(loongi_want_float(call, 0, "x"));
    LOONG_TRY(loongi_want_dim(call, 0, "x", 0, a->back_rows));
    LOONG_TRY(loongi_want_rank(call, 1, "counts", 2));
    LOONG_TRY(loongi_want_dtype(call, 1, "counts", LOONG_I32));
    LOONG_TRY(loongi_want_dim(call, 1, "counts", 0, 2));
    LOONG_TRY(loongi_want_dim(call, 1, "counts", 1, a->at.size));
    call->out[0] = call->in[0];
    call->out[0].shape.dim[0] = a->rows;
    return LOONG_OK;
}

static uint32_t same_rows(const void *attr, int o, uint32_t in)
{
    const loong_exchange_rows_attr_t *a = attr;
    (void)o;
    return a->back ? in & ~(uint32_t)(LOONG_SAME_ETP | LOONG_SAME_EP)
                   : in | LOONG_SAME_ETP;
}

static loong_group_t group_of(const void *attr)
{
    return ((const loong_exchange_rows_attr_t *)attr)->at.group;
}

static const loong_op_t exchange_rows;

static loong_status_t grad_exchange(const loong_grad_call_t *call)
{
    loong_exchange_rows_attr_t attr =
        *(const loong_exchange_rows_attr_t *)call->attr;
    loong_val_t in[2] = {call->out_grad[0], call->in[1]};
    attr.back = !attr.back;
    attr.rows = attr.back_rows;
    attr.back_rows =
        ((const loong_exchange_rows_attr_t *)call->attr)->rows;
    loong_graph_apply(call->graph, &exchange_rows, &attr, 2, in, 1,
                      &call->in_grad[0]);
    return LOONG_OK;
}

static const loong_op_t exchange_rows = {
    .name = "exchange_rows",
    .attr_size = sizeof(loong_exchange_rows_attr_t),
    .min_in = 2,
    .max_in = 2,
    .num_out = 1,
    .infer = infer_exchange,
    .group = group_of,
    .same = same_rows,
    .grad = grad_exchange,
};
const loong_op_t *const loongi_op_exchange_rows = &exchange_rows;

static loong_collective_attr_t over(loong_graph_t *g, loong_group_t group,
                                    const loong_op_t *op)
{
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    loong_collective_attr_t at = {group, loong_mesh_group_size(mesh, group),
                                  loong_mesh_group_rank(mesh, group), NULL,
                                  op->name, 0};
    return at;
}

static loong_val_t exchange(loong_graph_t *g, loong_val_t x,
                            const loong_expert_routes_t *r, bool back)
{
    int64_t there = loong_value_shape(g, r->arrived).dim[0];
    int64_t here = loong_value_shape(g, r->sent.source).dim[0];
    loong_exchange_rows_attr_t attr = {over(g, r->group, &exchange_rows),
                                       back ? here : there,
                                       back ? there : here, back};
    loong_val_t in[2] = {x, r->counts};
    loong_val_t y;
    return loong_graph_apply(g, &exchange_rows, &attr, 2, in, 1, &y);
}

loong_val_t loong_expert_dispatch(loong_graph_t *g, loong_val_t x,
                                  const loong_expert_routes_t *routes)
{
    x = loong_value_moved(g, loong_permute(g, x, &routes->sent, LOONG_NONE));
    return loong_value_moved(g, exchange(g, x, routes, false));
}

loong_val_t loong_expert_combine(loong_graph_t *g, loong_val_t y,
                                 const loong_expert_routes_t *routes)
{
    loong_val_t back = loong_value_moved(g, exchange(g, y, routes, true));
    return loong_value_instead(
        g, loong_unpermute(g, back, &routes->sent, LOONG_NONE), y);
}
