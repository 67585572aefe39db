/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor logging: right after the node that makes a value, or its gradient, a
 * node that puts its statistics into a state of three numbers. These nodes run
 * only in steps that are logged; micro-batches are added up. */
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "loong/register.h"
#include "passes.h"

typedef struct watch_pass {
    loong_graph_t *g;
    const loong_op_t *stats;
    loong_watch_t *watches;
    int64_t num_watches, cap_watches;
} watch_pass_t;

static bool matches(int num_globs, const char *const *globs, const char *scope)
{
    for (int i = 0; i < num_globs; i++) {
        if (loongi_scope_match(globs[i], scope)) {
            return true;
        }
    }
    return false;
}

/* "layers.0.mlp.linear.2": op, a number from the second such node of its scope
 * on, and the output when it is not the first. */
static loong_status_t name_of(const watch_pass_t *w, int64_t n, int output,
                              char **name_p)
{
    const loong_graph_t *g = w->g;
    const loong_node_t *node = &g->nodes[n];
    int number = 1;
    char nth[32] = "";
    char out[32] = "";
    for (int64_t k = 0; k < n; k++) {
        number += g->nodes[k].op == node->op && !g->nodes[k].dead &&
                  g->nodes[k].program == node->program &&
                  strcmp(g->nodes[k].scope, node->scope) == 0;
    }
    if (number > 1) {
        snprintf(nth, sizeof(nth), ".%d", number);
    }
    if (output > 0) {
        snprintf(out, sizeof(out), ".out%d", output);
    }
    return loongi_arena_printf(g->arena, name_p, "%s%s%s%s%s", node->scope,
                               node->scope[0] != '\0' ? "." : "",
                               node->op->name, nth, out);
}

static loong_status_t add_watch(watch_pass_t *w, const char *name,
                                loong_val_t value, bool gradient)
{
    loong_graph_t *g = w->g;
    const loong_node_t *producer = loongi_producer(g, value);
    if (producer == NULL || producer->dead) {
        return LOONG_OK; /* nobody needs it: it is not made */
    }
    LOONG_TRY(loongi_grow(g->ctx, &w->watches, &w->cap_watches,
                          w->num_watches + 1, sizeof(*w->watches),
                          "logged tensors"));
    loong_watch_t *watch = &w->watches[w->num_watches];
    watch->name = name;
    watch->value = value;
    watch->gradient = gradient;
    watch->state =
        loong_graph_state(g, name, LOONG_F64, loong_shape_1d(3));
    w->num_watches += g->status == LOONG_OK;
    return g->status;
}

/* Outputs that carry the model on: the first, and those with a gradient, not
 * what a norm or an attention saves for its backward. */
static loong_status_t watch_node(watch_pass_t *w, int64_t n)
{
    loong_graph_t *g = w->g;
    for (int o = 0; o < g->nodes[n].num_out; o++) {
        loong_val_t v = g->nodes[n].out[o];
        loong_val_t grad = v >= 0 ? g->values[v].grad : LOONG_NONE;
        char *name = NULL;
        if (v < 0 || (o > 0 && grad < 0) ||
            !loongi_dtype_is_float(g->values[v].dtype)) {
            continue;
        }
        LOONG_TRY(name_of(w, n, o, &name));
        LOONG_TRY(add_watch(w, name, v, false));
        if (grad >= 0) {
            LOONG_TRY(add_watch(w, name, grad, true));
        }
    }
    return LOONG_OK;
}

/* The node that watches, with an output that goes to the state. */
static loong_status_t insert(watch_pass_t *w, const loong_watch_t *watch,
                             const loong_node_t *after)
{
    loong_graph_t *g = w->g;
    loong_val_t out = LOONG_NONE;
    g->program = after->program;
    g->scope_copy = after->scope;
    loong_graph_apply(g, w->stats, NULL, 1, &watch->value, 1, &out);
    g->program = LOONG_PROGRAM_F;
    g->scope_copy = NULL;
    LOONG_TRY(g->status);
    g->values[out].into = watch->state;
    g->values[out].write = LOONG_WRITE_FIRST;
    g->nodes[g->num_nodes - 1].logged = true;
    return LOONG_OK;
}

static loong_status_t rebuild(watch_pass_t *w)
{
    loong_graph_t *g = w->g;
    loong_node_t *nodes = NULL;
    int32_t *next = NULL; /* per watch: the next of its node; then the heads */
    int64_t num_nodes = g->num_nodes;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)num_nodes * sizeof(*nodes), &nodes));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)(w->num_watches + num_nodes) * sizeof(*next),
        &next));
    int32_t *head = next + w->num_watches; /* 1 + index; 0: none */
    memcpy(nodes, g->nodes, (size_t)num_nodes * sizeof(*nodes));
    for (int64_t i = w->num_watches - 1; i >= 0; i--) {
        int32_t node = g->values[w->watches[i].value].node;
        next[i] = head[node];
        head[node] = (int32_t)(i + 1);
    }
    g->num_nodes = 0;
    for (int64_t n = 0; n < num_nodes; n++) {
        LOONG_TRY(loongi_graph_append_node(g, &nodes[n]));
        for (int32_t i = head[n]; i > 0; i = next[i - 1]) {
            LOONG_TRY(insert(w, &w->watches[i - 1], &nodes[n]));
        }
    }
    return LOONG_OK;
}

static loong_status_t watch_all(watch_pass_t *w, int num_globs,
                                const char *const *globs)
{
    loong_graph_t *g = w->g;
    w->stats = loong_find_op(g->ctx, "tensor_stats");
    LOONG_CHECK(g->ctx, w->stats != NULL, LOONG_ERR_INTERNAL,
                "op tensor_stats is not registered");
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        if (!node->dead && !node->op->view && !node->recomputed &&
            node->program == LOONG_PROGRAM_F &&
            matches(num_globs, globs, node->scope)) {
            LOONG_TRY(watch_node(w, n));
        }
    }
    return rebuild(w);
}

loong_status_t loongi_pass_watch(loong_graph_t *g, int num_globs,
                                 const char *const *globs,
                                 int64_t *num_watches_p,
                                 loong_watch_t **watches_p)
{
    watch_pass_t w = {g, NULL, NULL, 0, 0};
    *num_watches_p = 0;
    *watches_p = NULL;
    if (num_globs == 0) {
        return LOONG_OK;
    }
    loong_status_t status = watch_all(&w, num_globs, globs);
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
