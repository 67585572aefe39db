/* SPDX-License-Identifier: Apache-2.0
 *
 * attention_merge and ring_attention. Forward: n times attention over the keys
 * of one rank, merged as they come; while a rank computes, they go on to the
 * next one. Backward: keys and values go around again, and behind them the sums
 * of their gradients, to which each rank adds its own; they are home after one
 * step more. Called through the ops' tables and by src/nn/context_attention.c.
 * Read loong/collective.h before. */
#include <string.h>

#include "loong/collective.h"
#include "op_impl.h"

/* ---- attention_merge ----------------------------------------------------- */

static loong_status_t merge_infer(const loong_op_call_t *call)
{
    for (int i = 0; i < 4; i += 2) {
        LOONG_TRY(loongi_want_float(call, i, "o"));
        LOONG_TRY(loongi_want_like(call, i, "o", 0));
        LOONG_TRY(loongi_want_rank(call, i + 1, "lse", 2));
        LOONG_TRY(loongi_want_like(call, i + 1, "lse", 1));
        LOONG_TRY(loongi_want_rows(call, i + 1, "lse", 0));
        LOONG_TRY(
            loongi_want_dtype(call, i + 1, "lse", call->precision.wide));
    }
    int64_t heads = loongi_type_cols(&call->in[1]);
    LOONG_CHECK(call->ctx, loongi_type_cols(&call->in[0]) % heads == 0,
                LOONG_ERR_ARG, "%s: %lld channels of %lld heads", call->op,
                (long long)loongi_type_cols(&call->in[0]), (long long)heads);
    call->out[0] = call->in[0];
    call->out[1] = call->in[1];
    return LOONG_OK;
}

static const loong_op_t attention_merge = {
    .name = "attention_merge",
    .min_in = 4,
    .max_in = 4,
    .num_out = 2,
    .in_place = 1,
    .strided_in = true,
    .strided_out = true,
    .infer = merge_infer,
};
const loong_op_t *const loongi_op_attention_merge = &attention_merge;

/* ---- ring_attention ------------------------------------------------------ */

typedef struct ring_attr {
    loong_attention_attr_t attention;
    loong_collective_attr_t group;
    bool within; /* the values are channels of the keys */
} ring_attr_t;

/* Operands of the op: what was merged, its lse, then these; KV is k and v side
 * by side, or k alone. */
enum { RING_Q = 2, RING_KV, RING_CU, RING_PLACES, RING_KEY, RING_ALL };

/* The rank whose keys are here after `step` steps. */
static int source(const ring_attr_t *a, int step)
{
    return (a->group.rank - step + a->group.size) % a->group.size;
}

static loong_val_t places_of(loong_graph_t *g, loong_val_t places,
                             const ring_attr_t *a, int rank)
{
    int64_t count = loong_value_shape(g, places).dim[0] / a->group.size;
    return loong_slice(g, places, rank * count, count);
}

static loong_status_t ring_infer(const loong_op_call_t *call)
{
    const ring_attr_t *a = call->attr;
    int64_t queries = call->in[RING_Q].shape.dim[0];
    LOONG_TRY(loongi_want_rows(call, 0, "o", RING_Q));
    LOONG_TRY(loongi_want_rows(call, RING_KV, "k", RING_Q));
    LOONG_TRY(loongi_want_rank(call, RING_PLACES, "places", 1));
    LOONG_TRY(loongi_want_dtype(call, RING_PLACES, "places", LOONG_I32));
    LOONG_TRY(loongi_want_dim(call, RING_PLACES, "places", 0,
                              queries * a->group.size));
    call->out[0] = call->in[0];
    return LOONG_OK;
}

static loong_val_t shift(loong_graph_t *g, loong_val_t x, const ring_attr_t *a)
{
    return loong_ring_shift(g, x, a->group.group);
}

/* The keys and values of the step behind `step`. Stands in front of what this
 * one computes: they are under way meanwhile. */
static loong_val_t next(loong_graph_t *g, loong_val_t both, int step,
                        const ring_attr_t *a)
{
    return step + 1 < a->group.size ? shift(g, both, a) : LOONG_NONE;
}

/* Keys, then values. */
static loong_val_t half(loong_graph_t *g, loong_val_t both, int which,
                        const ring_attr_t *a)
{
    int64_t keys = (int64_t)a->attention.kv_heads * a->attention.head_dim;
    int64_t rest = loong_value_shape(g, both).dim[1] - keys;
    if (a->within) {
        return which == 0 ? both
                          : loong_slice(g, both, 0, a->attention.v_head_dim);
    }
    return which == 0 ? loong_slice(g, both, 0, keys)
                      : loong_slice(g, both, keys, rest);
}

/* The gradient of what goes around from those of keys and values. */
static loong_val_t joined(loong_graph_t *g, loong_val_t dk, loong_val_t dv,
                          const ring_attr_t *a)
{
    loong_val_t halves[2] = {dk, dv};
    if (a->within) {
        loong_slice_grad_attr_t attr = {0, a->attention.head_dim};
        loong_val_t wide;
        loong_graph_apply(g, loongi_op_slice_grad, &attr, 1, &dv, 1, &wide);
        return loong_add(g, dk, wide);
    }
    return loong_concat(g, 2, halves);
}

static loong_status_t ring_grad(const loong_grad_call_t *call)
{
    loong_graph_t *g = call->graph;
    const ring_attr_t a = *(const ring_attr_t *)call->attr;
    const loong_val_t *x = call->in;
    loong_val_t later = x[RING_KV];
    loong_val_t sum = LOONG_NONE; /* gradient of `both` */
    loong_val_t dq = LOONG_NONE;
    for (int s = 0; s < a.group.size; s++) {
        loong_val_t both = later;
        loong_val_t d[3];
        loong_val_t places[2] = {
            places_of(g, x[RING_PLACES], &a, a.group.rank),
            places_of(g, x[RING_PLACES], &a, source(&a, s))};
        later = next(g, both, s, &a);
        sum = s > 0 ? shift(g, sum, &a) : LOONG_NONE;
        loong_val_t in[10] = {call->out_grad[0], x[RING_Q],
                              half(g, both, 0, &a), half(g, both, 1, &a),
                              x[0],                 x[1],
                              x[RING_CU],           x[RING_KEY],
                              places[0],            places[1]};
        loong_graph_apply(g, loongi_op_attention_grad, &a.attention, 10, in, 3,
                          d);
        loong_val_t own = joined(g, d[1], d[2], &a);
        dq = s > 0 ? loong_add(g, dq, d[0]) : d[0];
        sum = s > 0 ? loong_add(g, sum, own) : own;
    }
    call->in_grad[RING_KV] = shift(g, sum, &a);
    call->in_grad[RING_Q] = dq;
    return loong_graph_status(g);
}

static const loong_op_t ring_attention = {
    .name = "ring_attention",
    .attr_size = sizeof(ring_attr_t),
    .min_in = RING_KEY,
    .max_in = RING_ALL,
    .num_out = 1,
    .view = true,
    .strided_in = true,
    .infer = ring_infer,
    .grad = ring_grad,
};
const loong_op_t *const loongi_op_ring_attention = &ring_attention;

/* One part after the other, merged into out[]: o and lse. */
static void forward(loong_graph_t *g,
                    const loong_attention_operands_t *operands,
                    loong_val_t both, loong_val_t places, const ring_attr_t *a,
                    loong_val_t out[2])
{
    loong_attention_operands_t x = *operands;
    x.rows = places_of(g, places, a, a->group.rank);
    for (int s = 0; s < a->group.size; s++) {
        loong_val_t in[4] = {out[0], out[1], LOONG_NONE, LOONG_NONE};
        loong_val_t later = next(g, both, s, a);
        x.k = half(g, both, 0, a);
        x.v = half(g, both, 1, a);
        x.key_rows = places_of(g, places, a, source(a, s));
        loongi_attention(g, &x, &a->attention, s > 0 ? in + 2 : out);
        if (s > 0) {
            loong_value_moved(g, in[2]); /* a part of the sum */
            loong_value_instead(
                g, loong_graph_apply(g, &attention_merge, NULL, 4, in, 2, out),
                in[0]);
        }
        both = later;
    }
}

loong_val_t
loong_ring_attention(loong_graph_t *g,
                     const loong_attention_operands_t *operands,
                     loong_val_t places, loong_group_t group,
                     const loong_attention_attr_t *attr)
{
    const loong_mesh_t *mesh = loong_graph_mesh(g);
    const loong_attention_operands_t *x = operands;
    ring_attr_t a;
    memset(&a, 0, sizeof(a));
    a.attention = *attr;
    a.group.group = group;
    a.group.size = loong_mesh_group_size(mesh, group);
    a.group.rank = loong_mesh_group_rank(mesh, group);
    a.group.label = "ring_attention";
    a.within = x->v == LOONG_NONE;
    loong_val_t out[2] = {LOONG_NONE, LOONG_NONE};
    loong_val_t halves[2] = {x->k, x->v};
    loong_val_t both =
        a.within ? x->k : loong_value_moved(g, loong_concat(g, 2, halves));
    forward(g, x, both, places, &a, out);
    loong_val_t in[RING_ALL] = {out[0],        out[1],       x->q,  both,
                                x->cu_seqlens, places, x->token_key};
    loong_val_t o;
    return loong_value_instead(
        g, loong_graph_apply(g, &ring_attention, &a, RING_ALL, in, 1, &o),
        out[0]);
}
