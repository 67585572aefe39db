/* SPDX-License-Identifier: Apache-2.0
 *
 * What the values of a model are logged as, in every layout the same: products
 * of one parameter by its name, others by scope and op, as one rank builds
 * them, before anything is fused. What a layout puts
 * between has no name of its own: a sum over ranks takes that of its parts,
 * and what is only moved is not logged. With it goes among which ranks a value
 * is equal, so that each element is counted once. Called by compile.c. Read
 * passes.h before. */
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "passes.h"

static bool matches(const loong_graph_t *g, int num_globs,
                    const char *const *globs, const loong_node_t *node)
{
    for (int i = 0; i < num_globs; i++) {
        if (loongi_scope_match(globs[i], node->scope) ||
            loongi_product_match(g, globs[i], node)) {
            return true;
        }
    }
    return false;
}

/* ---- names --------------------------------------------------------------- */

/* Nodes that every layout has. */
static bool counts(const loong_graph_t *g, const loong_node_t *node)
{
    if (node->op->view || node->num_out == 0 || node->out[0] < 0) {
        return false;
    }
    const loong_logged_t *first = &g->values[node->out[0]].logged;
    return !first->moved && first->instead == 0 && !first->continues;
}

/* A product that is logged by the name of its parameter: the only one, in every
 * layout, and not that of queries, which goes on with keys and values. */
static bool has_own_name(const loong_graph_t *g, int64_t n)
{
    const loong_node_t *node = &g->nodes[n];
    bool own = loongi_product_members(g, node) == 1;
    for (int64_t k = n + 1; k < g->num_nodes && own; k++) {
        const loong_node_t *next = &g->nodes[k];
        if (next->op == node->op && strcmp(next->scope, node->scope) == 0) {
            return !g->values[next->out[0]].logged.continues;
        }
    }
    return own;
}

/* "layers.0.mlp.down_proj", or "layers.0.mlp.add.2": op, and a number from the
 * second such node of its scope on; and the output when it is not the first. */
static loong_status_t name_of(const loong_graph_t *g, int64_t n, int output,
                              const char **name_p)
{
    const loong_node_t *node = &g->nodes[n];
    int number = counts(g, node);
    char nth[32] = "";
    char out[32] = "";
    char own[LOONG_MAX_SCOPE + 64];
    char *name = NULL;
    if (output == 0 && has_own_name(g, n)) {
        loongi_product_name(g, node, 0, own, sizeof(own));
        LOONG_TRY(loongi_arena_strdup(g->arena, own, &name));
        *name_p = name;
        return LOONG_OK;
    }
    for (int64_t k = 0; k < n; k++) {
        number += g->nodes[k].op == node->op && counts(g, &g->nodes[k]) &&
                  strcmp(g->nodes[k].scope, node->scope) == 0 &&
                  !has_own_name(g, k);
    }
    if (number > 1) {
        snprintf(nth, sizeof(nth), ".%d", number);
    }
    if (output > 0) {
        snprintf(out, sizeof(out), ".out%d", output);
    }
    LOONG_TRY(loongi_arena_printf(g->arena, &name, "%s%s%s%s%s", node->scope,
                                  node->scope[0] != '\0' ? "." : "",
                                  node->op->name, nth, out));
    *name_p = name;
    return LOONG_OK;
}

static loong_status_t name_output(loong_graph_t *g, int64_t n, int output,
                                  bool wanted)
{
    const loong_node_t *node = &g->nodes[n];
    loong_value_t *value = &g->values[node->out[output]];
    if (value->logged.instead > 0) {
        loong_logged_t *part = &g->values[value->logged.instead - 1].logged;
        value->logged.label = part->label;
        part->label = NULL;
        return LOONG_OK;
    }
    if (!wanted || value->logged.moved || node->op->view ||
        !loongi_dtype_is_float(value->dtype)) {
        return LOONG_OK;
    }
    value->logged.saved = output > 0;
    return name_of(g, n, output, &value->logged.label);
}

/* ---- equal values -------------------------------------------------------- */

static uint32_t same_param(const loong_graph_t *g, const loong_value_t *value)
{
    const loong_placement_t *p = &g->params[value->index].params.place;
    if (p->expert) {
        return p->inner_parts > 0 ? 0 : LOONG_SAME_ETP;
    }
    if (p->partial && p->group == LOONG_GROUP_KV) {
        return LOONG_SAME_KV | LOONG_SAME_CP;
    }
    return p->cut ? LOONG_SAME_CP : LOONG_SAME_ALL;
}

/* Inputs are equal on tensor parallel ranks, but for what a layer cuts. */
static void same_inputs(loong_graph_t *g)
{
    for (int64_t v = 0; v < g->num_values; v++) {
        loong_value_t *value = &g->values[v];
        if (value->kind == LOONG_VALUE_PARAM) {
            value->logged.same = same_param(g, value);
        } else if (value->kind == LOONG_VALUE_STATE) {
            value->logged.same = LOONG_SAME_ALL;
        } else if (value->kind == LOONG_VALUE_INPUT) {
            value->logged.same =
                loong_same_group(LOONG_GROUP_TP) & ~value->logged.apart;
        }
    }
}

static void same_outputs(loong_graph_t *g, const loong_node_t *node)
{
    const loong_mesh_t *mesh = &g->mesh;
    uint32_t in = LOONG_SAME_ALL;
    for (int i = 0; i < node->num_in; i++) {
        in &= node->in[i] >= 0 ? g->values[node->in[i]].logged.same
                               : LOONG_SAME_ALL;
    }
    for (int o = 0; o < node->num_out; o++) {
        loong_logged_t *logged = &g->values[node->out[o]].logged;
        if (node->out[o] < 0) {
            continue;
        }
        logged->same = node->op->same != NULL
                           ? node->op->same(node->attr, o, in)
                           : in;
        bool key = (logged->same & LOONG_SAME_KV) != 0 &&
                   (logged->same & LOONG_SAME_TP) == 0;
        bool expert = (logged->same & LOONG_SAME_ETP) != 0;
        logged->sums = (key && mesh->kv_ranks > 1) ||
                       (expert && mesh->size[LOONG_AXIS_ETP] > 1);
    }
}

/* The two products that make queries, keys and values are one on one rank: so
 * are their names, and neither gradient without the other. */
static void join(loong_graph_t *g)
{
    for (int64_t v = 0; v < g->num_values; v++) {
        const loong_logged_t *second = &g->values[v].logged;
        for (int64_t u = v - 1; u >= 0 && second->continues; u--) {
            loong_logged_t *first = &g->values[u].logged;
            if (first->label != NULL && second->label != NULL &&
                strcmp(first->label, second->label) == 0) {
                first->sums = first->sums || second->sums;
                break;
            }
        }
    }
}

loong_status_t loongi_pass_label(loong_graph_t *g, int num_globs,
                                 const char *const *globs)
{
    if (num_globs == 0) {
        return LOONG_OK;
    }
    same_inputs(g);
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        bool wanted = matches(g, num_globs, globs, node);
        same_outputs(g, node);
        for (int o = 0; o < node->num_out; o++) {
            if (node->out[o] >= 0) {
                LOONG_TRY(name_output(g, n, o, wanted));
            }
        }
    }
    join(g);
    return LOONG_OK;
}
