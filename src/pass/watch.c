/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor logging: right after the node that makes a value with a label
 * (label.c), or its gradient, a node that puts its statistics into a state of
 * three numbers. These nodes run only in steps that are logged; micro-batches
 * are added up, and rounds: what these complete is watched behind them. Called
 * by compile.c. Read passes.h before. */
#include <string.h>

#include "loong/register.h"
#include "passes.h"

typedef struct watch_pass {
    loong_graph_t *g;
    const loong_op_t *stats;
    loong_watch_t *watches;
    int64_t num_watches, cap_watches;
    bool *leaves; /* per value: a part run in rounds */
} watch_pass_t;

static loong_status_t add_watch(watch_pass_t *w, loong_val_t of,
                                loong_val_t value, bool gradient)
{
    loong_graph_t *g = w->g;
    const loong_logged_t *logged = &g->values[of].logged;
    const loong_node_t *producer = loongi_producer(g, value);
    if (producer != NULL ? producer->dead
                         : g->values[value].kind != LOONG_VALUE_INPUT) {
        return LOONG_OK; /* nobody needs it: it is not made */
    }
    LOONG_TRY(loongi_grow(g->ctx, &w->watches, &w->cap_watches,
                          w->num_watches + 1, sizeof(*w->watches),
                          "logged tensors"));
    loong_watch_t *watch = &w->watches[w->num_watches];
    watch->name = logged->label;
    watch->same = logged->same;
    watch->value = value;
    watch->gradient = gradient;
    watch->state =
        loong_graph_state(g, logged->label, LOONG_F64, loong_shape_1d(3));
    w->num_watches += g->status == LOONG_OK;
    return g->status;
}

/* Values that carry the model on: the first of a node, and those with a
 * gradient, not what a norm or an attention saves for its backward. */
static loong_status_t watch_value(watch_pass_t *w, loong_val_t v)
{
    const loong_value_t *value = &w->g->values[v];
    loong_val_t grad = value->grad;
    if (value->logged.label == NULL || value->kind != LOONG_VALUE_NODE ||
        (value->logged.saved && grad < 0)) {
        return LOONG_OK;
    }
    bool sums = value->logged.sums;
    LOONG_TRY(add_watch(w, v, v, false));
    return grad >= 0 && !sums ? add_watch(w, v, grad, true) : LOONG_OK;
}

/* What counts the rows of a value, LOONG_NONE: it has all. A sum has the rows
 * of what it adds to. */
static loong_val_t counted_by(const loong_graph_t *g, loong_val_t value)
{
    const loong_node_t *node = loongi_producer(g, value);
    int i = node != NULL && value == node->out[0] ? node->op->counted_by : 0;
    if (node != NULL && i == 0 && value == node->out[0] &&
        (node->op->in_place & 1u) != 0) {
        return counted_by(g, node->in[node->op->overwrites]);
    }
    return i > 0 && i < node->num_in ? node->in[i] : LOONG_NONE;
}

/* The node that watches, with an output that goes to the state. */
static loong_status_t insert(watch_pass_t *w, const loong_watch_t *watch,
                             loong_program_kind_t program,
                             const loong_node_t *after)
{
    loong_graph_t *g = w->g;
    loong_val_t out = LOONG_NONE;
    loong_val_t in[2] = {watch->value, counted_by(g, watch->value)};
    loongi_graph_like(g, after);
    g->program = program;
    g->scope_copy = after != NULL ? after->scope : "";
    g->repeat = w->leaves[watch->value] ? 0 : g->repeat;
    loong_graph_apply(g, w->stats, NULL, in[1] == LOONG_NONE ? 1 : 2, in, 1,
                      &out);
    loongi_graph_like(g, NULL);
    LOONG_TRY(g->status);
    g->values[out].into = watch->state;
    g->values[out].write = LOONG_WRITE_FIRST;
    g->nodes[g->num_nodes - 1].logged = true;
    return LOONG_OK;
}

/* Gradients that come from the stage behind are there when B begins. */
static loong_status_t insert_inputs(watch_pass_t *w)
{
    for (int64_t i = 0; i < w->num_watches; i++) {
        if (w->g->values[w->watches[i].value].node < 0) {
            LOONG_TRY(insert(w, &w->watches[i], LOONG_PROGRAM_B, NULL));
        }
    }
    return LOONG_OK;
}

/* The node behind which a value is complete; -1: it is an input. */
static int32_t completes(const watch_pass_t *w, loong_val_t v)
{
    const loong_graph_t *g = w->g;
    int32_t last = g->values[v].node;
    for (int64_t n = last; n < g->num_nodes && w->leaves[v]; n++) {
        const loong_node_t *from = &g->nodes[g->values[v].node];
        if (!g->nodes[n].dead && g->nodes[n].repeat == from->repeat &&
            g->nodes[n].program == from->program) {
            last = (int32_t)n;
        }
    }
    return last;
}

static loong_status_t rebuild(watch_pass_t *w)
{
    loong_graph_t *g = w->g;
    loong_node_t *nodes = NULL;
    int32_t *next = NULL; /* per watch: the next of its node; then the heads */
    int64_t num_nodes = g->num_nodes;
    bool begun = false;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)num_nodes * sizeof(*nodes), &nodes));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)(w->num_watches + num_nodes) * sizeof(*next),
        &next));
    int32_t *head = next + w->num_watches; /* 1 + index; 0: none */
    memcpy(nodes, g->nodes, (size_t)num_nodes * sizeof(*nodes));
    for (int64_t i = w->num_watches - 1; i >= 0; i--) {
        int32_t node = completes(w, w->watches[i].value);
        if (node >= 0) {
            next[i] = head[node];
            head[node] = (int32_t)(i + 1);
        }
    }
    g->num_nodes = 0;
    for (int64_t n = 0; n < num_nodes; n++) {
        if (nodes[n].program == LOONG_PROGRAM_B && !begun) {
            begun = true;
            LOONG_TRY(insert_inputs(w));
        }
        LOONG_TRY(loongi_graph_append_node(g, &nodes[n]));
        for (int32_t i = head[n]; i > 0; i = next[i - 1]) {
            LOONG_TRY(insert(w, &w->watches[i - 1], nodes[n].program,
                             &nodes[n]));
        }
    }
    return LOONG_OK;
}

static loong_status_t watch_all(watch_pass_t *w)
{
    loong_graph_t *g = w->g;
    w->stats = loong_find_op(g->ctx, "tensor_stats");
    LOONG_CHECK(g->ctx, w->stats != NULL, LOONG_ERR_INTERNAL,
                "op tensor_stats is not registered");
    int64_t num_values = g->num_values;
    LOONG_TRY(loongi_repeat_leaves(g, &w->leaves));
    for (loong_val_t v = 0; v < num_values; v++) {
        LOONG_TRY(watch_value(w, v));
    }
    return rebuild(w);
}

loong_status_t loongi_pass_watch(loong_graph_t *g, bool any,
                                 int64_t *num_watches_p,
                                 loong_watch_t **watches_p)
{
    watch_pass_t w = {g, NULL, NULL, 0, 0, NULL};
    *num_watches_p = 0;
    *watches_p = NULL;
    if (!any) {
        return LOONG_OK;
    }
    loong_status_t status = watch_all(&w);
    if (status == LOONG_OK) {
        *num_watches_p = w.num_watches;
        status = loongi_arena_alloc(
            g->arena, (size_t)LOONG_MAX(w.num_watches, 1) * sizeof(*w.watches),
            watches_p);
    }
    if (status == LOONG_OK && w.num_watches > 0) {
        memcpy(*watches_p, w.watches,
               (size_t)w.num_watches * sizeof(*w.watches));
    }
    loongi_free(g->ctx, w.watches);
    return status;
}
