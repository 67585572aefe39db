/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision: the ops of chosen scopes, forward and gradient alike, work in the
 * wide type; casts stand where types meet. A value keeps its number and gets
 * the wide type when its op does; who reads it from elsewhere reads a cast. A
 * cast serves one program: what lives on from the forward to the backward is
 * the narrow value.
 *
 * What crosses the border of a chunk has the wide type wherever any scope has
 * it: neither side knows what type the other's op works in, and a narrow number
 * comes through unchanged. So a cut rounds nothing. Edges between components of
 * different types have the wide one as well. Called by compile.c. Read passes.h
 * before. */
#include <string.h>

#include "loong/ops.h"
#include "passes.h"

typedef struct precision {
    loong_graph_t *g;
    int num_globs;
    const char *const *globs;
    loong_node_t *nodes; /* the graph before */
    int64_t num_nodes;
    int64_t num_values;
    loong_dtype_t *dtype; /* per value: before */
    loong_val_t (*cast)[LOONG_PROGRAM_COUNT]; /* per value: the other type */
} precision_t;

static bool crosses(const precision_t *p, const loong_input_t *port)
{
    return port->edge ||
           (p->num_globs > 0 && (port->boundary || port->gradient));
}

/* v in another type, for the program of a reader; made on first use, in
 * `scope`, and of a part run in rounds when both its ends are. */
static loong_status_t cast_to(precision_t *p, loong_val_t v,
                              loong_dtype_t dtype, const loong_node_t *reader,
                              const char *scope, loong_val_t *out_p)
{
    loong_graph_t *g = p->g;
    loong_val_t *made = &p->cast[v][reader->program];
    if (*made == LOONG_NONE) {
        const loong_node_t *from = loongi_producer(g, v);
        loong_node_t like = *reader;
        like.scope = scope;
        if (from == NULL || from->repeat != reader->repeat) {
            like.repeat = 0;
        }
        loongi_graph_like(g, &like);
        *made = loong_cast(g, v, dtype);
        loongi_graph_like(g, NULL);
    }
    *out_p = *made;
    return g->status;
}

static const char *scope_of(const precision_t *p, loong_val_t v,
                            const char *otherwise)
{
    const loong_node_t *producer = loongi_producer(p->g, v);
    return producer != NULL ? producer->scope : otherwise;
}

/* Gives a node inputs of the types it works in. */
static loong_status_t cast_inputs(precision_t *p, loong_node_t *node,
                                  bool wide)
{
    loong_graph_t *g = p->g;
    for (int i = 0; i < node->num_in; i++) {
        loong_val_t v = node->in[i];
        if (v < 0) {
            continue;
        }
        if (wide && g->values[v].dtype == g->precision.compute) {
            LOONG_TRY(cast_to(p, v, g->precision.wide, node, node->scope,
                              &node->in[i]));
        } else if (!wide && g->values[v].dtype != p->dtype[v]) {
            LOONG_TRY(cast_to(p, v, p->dtype[v], node,
                              scope_of(p, v, node->scope), &node->in[i]));
        }
    }
    return LOONG_OK;
}

/* A cast to the compute type rounds nothing where ops work in the wide one. */
static loong_status_t widen_cast(precision_t *p, loong_node_t *node)
{
    loong_graph_t *g = p->g;
    const loong_cast_attr_t *narrow = node->attr;
    loong_cast_attr_t *attr = NULL;
    if (strcmp(node->op->name, "cast") != 0 ||
        narrow->dtype != g->precision.compute) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(g->arena, sizeof(*attr), &attr));
    attr->dtype = g->precision.wide;
    node->attr = attr;
    return LOONG_OK;
}

static loong_status_t retype_outputs(precision_t *p, const loong_node_t *node)
{
    loong_graph_t *g = p->g;
    loong_tensor_type_t out[LOONG_MAX_OPERANDS] = {{0}};
    LOONG_TRY(loongi_graph_infer(g, node->op, node->attr, node->num_in,
                                 node->in, out));
    for (int o = 0; o < node->num_out; o++) {
        if (node->out[o] >= 0) {
            g->values[node->out[o]].dtype = out[o].dtype;
        }
    }
    return LOONG_OK;
}

/* Others see what leaves the graph in the type that they expect. */
static loong_status_t cast_outputs(precision_t *p)
{
    loong_graph_t *g = p->g;
    for (int i = 0; i < g->num_outputs; i++) {
        loong_input_t *port = &g->outputs[i];
        loong_dtype_t dtype = p->dtype[port->value];
        const loong_node_t *node = loongi_producer(g, port->value);
        if (crosses(p, port) && dtype == g->precision.compute) {
            dtype = g->precision.wide;
        }
        if (node != NULL && g->values[port->value].dtype != dtype) {
            LOONG_TRY(cast_to(p, port->value, dtype, node, node->scope,
                              &port->value));
        }
    }
    return LOONG_OK;
}

static loong_status_t rewrite(precision_t *p)
{
    loong_graph_t *g = p->g;
    g->num_nodes = 0;
    for (int i = 0; i < g->num_inputs; i++) {
        loong_value_t *value = &g->values[g->inputs[i].value];
        if (crosses(p, &g->inputs[i]) && value->dtype == g->precision.compute) {
            value->dtype = g->precision.wide;
        }
    }
    for (int64_t n = 0; n < p->num_nodes; n++) {
        loong_node_t *node = &p->nodes[n];
        /* `accumulate` takes any type. */
        bool wide = loongi_scope_any(p->num_globs, p->globs, node->scope);
        if (!node->dead && node->num_out > 0) {
            LOONG_TRY(cast_inputs(p, node, wide));
        }
        if (!node->dead && wide) {
            LOONG_TRY(widen_cast(p, node));
        }
        LOONG_TRY(loongi_graph_append_node(g, node));
        if (!node->dead && wide) {
            LOONG_TRY(retype_outputs(p, node));
        }
        if (!node->dead && node->op->view) {
            loongi_graph_make_view(g, node);
        }
    }
    return cast_outputs(p);
}

static loong_status_t run(precision_t *p)
{
    loong_graph_t *g = p->g;
    size_t values = (size_t)p->num_values;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)p->num_nodes * sizeof(*p->nodes), &p->nodes));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, values * sizeof(*p->dtype), &p->dtype));
    for (int64_t n = 0; n < p->num_nodes; n++) {
        p->nodes[n] = g->nodes[n];
    }
    for (int64_t v = 0; v < p->num_values; v++) {
        p->dtype[v] = g->values[v].dtype;
        for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
            p->cast[v][k] = LOONG_NONE;
        }
    }
    return rewrite(p);
}

loong_status_t loongi_pass_precision(loong_graph_t *g,
                                     const loong_compile_params_t *params)
{
    if ((params->num_wide == 0 && !params->wide_edges) ||
        g->precision.compute == g->precision.wide) {
        return LOONG_OK;
    }
    precision_t p = {.g = g,
                     .num_globs = params->num_wide,
                     .globs = params->wide,
                     .num_nodes = g->num_nodes,
                     .num_values = g->num_values};
    LOONG_TRY(loongi_calloc(g->ctx, (size_t)p.num_values, sizeof(*p.cast),
                            "casts of values", &p.cast));
    loong_status_t status = run(&p);
    loongi_free(g->ctx, p.cast);
    return status;
}
