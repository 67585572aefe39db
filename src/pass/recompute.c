/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation (Chen et al. 2016): what a backward node reads from the
 * forward of its own chosen scope is made again, right before it is needed,
 * from what enters the scope. A glob like `layers.*` stands for each layer on
 * its own: values that cross from one matched path to another are kept. Called
 * by compile.c. Read passes.h before. */
#include <string.h>

#include "passes.h"

typedef struct recompute {
    loong_graph_t *g;
    /* The graph before the rewrite. */
    loong_node_t *nodes;
    int64_t num_nodes;
    int64_t num_values;
    int32_t *producer;  /* per value: old node, or -1 */
    uint64_t *instance; /* per node: which matched path, 0: none */
    bool *pinned;       /* per node: fills a gradient, never cloned */
    loong_val_t *clone; /* per value: its clone, or LOONG_NONE */
} recompute_t;

/* The shortest prefix of scope, at a dot, that the glob matches whole. */
static size_t matched_length(const char *pattern, const char *scope)
{
    char prefix[LOONG_MAX_SCOPE];
    size_t length = strlen(scope);
    for (size_t i = 1; i <= length; i++) {
        if (scope[i] != '.' && scope[i] != '\0') {
            continue;
        }
        memcpy(prefix, scope, i);
        prefix[i] = '\0';
        if (loongi_scope_match(pattern, prefix)) {
            return i;
        }
    }
    return 0;
}

uint64_t loongi_scope_instance(int num_globs, const char *const *globs,
                               const char *scope)
{
    for (int i = 0; i < num_globs; i++) {
        size_t length = matched_length(globs[i], scope);
        uint64_t hash = 1469598103934665603u; /* FNV-1a of the path */
        for (size_t k = 0; k < length; k++) {
            hash = (hash ^ (unsigned char)scope[k]) * 1099511628211u;
        }
        if (length > 0) {
            return hash | 1;
        }
    }
    return 0;
}

/* The old node to run again for v when a node of `instance` reads it. */
static int32_t cloneable(const recompute_t *r, loong_val_t v,
                         uint64_t instance)
{
    if (v < 0 || v >= r->num_values || instance == 0 || r->producer[v] < 0) {
        return -1;
    }
    int32_t n = r->producer[v];
    bool yes = r->nodes[n].program == LOONG_PROGRAM_F && !r->pinned[n] &&
               r->instance[n] == instance;
    return yes ? n : -1;
}

static loong_status_t clone_outputs(recompute_t *r, loong_node_t *copy,
                                    const loong_val_t *old_out)
{
    loong_graph_t *g = r->g;
    for (int i = 0; i < copy->num_out; i++) {
        copy->out[i] = LOONG_NONE;
        if (old_out[i] < 0) {
            continue;
        }
        loong_value_t old = g->values[old_out[i]];
        loong_val_t v = loongi_graph_add_value(g, LOONG_VALUE_NODE, old.dtype,
                                               &old.shape);
        LOONG_TRY(g->status);
        g->values[v].index = i;
        copy->out[i] = v;
        r->clone[old_out[i]] = v;
    }
    if (copy->op->view) {
        loongi_graph_make_view(g, copy);
    }
    return LOONG_OK;
}

/* Clones old node n after what it reads within its instance. The depth of the
 * recursion is that of one scope. */
static loong_status_t clone_node(recompute_t *r, int32_t n)
{
    loong_graph_t *g = r->g;
    const loong_node_t *old = &r->nodes[n];
    loong_node_t copy = *old;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, sizeof(loong_val_t) * (size_t)(old->num_in + old->num_out),
        &copy.in));
    copy.out = copy.in + old->num_in;
    copy.program = LOONG_PROGRAM_B;
    copy.recomputed = true;
    for (int i = 0; i < old->num_in; i++) {
        loong_val_t v = old->in[i];
        int32_t from = cloneable(r, v, r->instance[n]);
        if (from >= 0 && r->clone[v] == LOONG_NONE) {
            LOONG_TRY(clone_node(r, from));
        }
        copy.in[i] = from >= 0 ? r->clone[v] : v;
    }
    LOONG_TRY(clone_outputs(r, &copy, old->out));
    return loongi_graph_append_node(g, &copy);
}

/* Rebuilds the node array with the clones in place. */
static loong_status_t rebuild(recompute_t *r)
{
    loong_graph_t *g = r->g;
    for (int64_t n = 0; n < r->num_nodes; n++) {
        loong_node_t *node = &r->nodes[n];
        bool reads = node->program == LOONG_PROGRAM_B && !node->dead;
        for (int i = 0; i < node->num_in && reads; i++) {
            int32_t from = cloneable(r, node->in[i], r->instance[n]);
            if (from < 0) {
                continue;
            }
            if (r->clone[node->in[i]] == LOONG_NONE) {
                LOONG_TRY(clone_node(r, from));
            }
            node->in[i] = r->clone[node->in[i]];
        }
        LOONG_TRY(loongi_graph_append_node(g, node));
    }
    return LOONG_OK;
}

/* A forward node whose output goes to a gradient (the fused loss) must not
 * run twice. */
static void find_pinned(recompute_t *r)
{
    for (int64_t n = 0; n < r->num_nodes; n++) {
        const loong_node_t *node = &r->nodes[n];
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            bool write = node->num_out == 0 && node->in[i] >= 0;
            if (write && r->producer[node->in[i]] >= 0) {
                r->pinned[r->producer[node->in[i]]] = true;
            }
        }
    }
}

loong_status_t loongi_pass_recompute(loong_graph_t *g, int num_globs,
                                     const char *const *globs)
{
    if (num_globs == 0) {
        return LOONG_OK;
    }
    recompute_t r = {g,    NULL, g->num_nodes, g->num_values,
                     NULL, NULL, NULL,         NULL};
    size_t nodes = (size_t)g->num_nodes;
    size_t values = (size_t)g->num_values;
    LOONG_TRY(
        loongi_arena_alloc(g->arena, nodes * sizeof(*r.nodes), &r.nodes));
    LOONG_TRY(loongi_arena_alloc(g->arena, nodes * sizeof(*r.instance),
                                 &r.instance));
    LOONG_TRY(loongi_arena_alloc(g->arena, nodes, &r.pinned));
    LOONG_TRY(loongi_arena_alloc(g->arena, values * sizeof(*r.producer),
                                 &r.producer));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, values * sizeof(*r.clone), &r.clone));
    memcpy(r.nodes, g->nodes, nodes * sizeof(*r.nodes));
    for (int64_t v = 0; v < g->num_values; v++) {
        r.producer[v] = g->values[v].node;
        r.clone[v] = LOONG_NONE;
    }
    for (int64_t n = 0; n < g->num_nodes; n++) {
        r.instance[n] = loongi_scope_instance(num_globs, globs,
                                              g->nodes[n].scope);
    }
    find_pinned(&r);
    g->num_nodes = 0;
    return rebuild(&r);
}
