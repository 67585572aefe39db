/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies views whose rows have gaps for those that want dense rows: ops that
 * say so, reshapes, declared outputs. Called by compile.c. Read passes.h
 * before. */
#include <string.h>

#include "loong/register.h"
#include "passes.h"

/* Inserts a copy of v before position n; the array has room. */
static loong_status_t insert_copy(loong_graph_t *g, int64_t n, int input,
                                  const loong_op_t *copy)
{
    loong_val_t v = g->nodes[n].in[input];
    loong_val_t out = LOONG_NONE;
    loongi_graph_like(g, &g->nodes[n]);
    loong_graph_apply(g, copy, NULL, 1, &v, 1, &out);
    loongi_graph_like(g, NULL);
    LOONG_TRY(g->status);
    loong_node_t node = g->nodes[g->num_nodes - 1];
    memmove(&g->nodes[n + 1], &g->nodes[n],
            sizeof(node) * (size_t)(g->num_nodes - 1 - n));
    g->nodes[n] = node;
    g->nodes[n + 1].in[input] = out;
    return LOONG_OK;
}

/* Copies the inputs of node n that have gaps; *n_p is where it stands then. */
static loong_status_t fill_gaps(loong_graph_t *g, const loong_op_t *copy,
                                int64_t *n_p)
{
    for (int i = 0; i < g->nodes[*n_p].num_in; i++) {
        loong_val_t v = g->nodes[*n_p].in[i];
        if (v >= 0 && loongi_value_has_gaps(g, v)) {
            LOONG_CHECK(g->ctx, copy != NULL, LOONG_ERR_INTERNAL,
                        "op copy is not registered");
            LOONG_TRY(insert_copy(g, *n_p, i, copy));
            (*n_p)++;
        }
    }
    return LOONG_OK;
}

/* Declared outputs are read from outside, without gaps too. */
static loong_status_t fill_outputs(loong_graph_t *g, const loong_op_t *copy)
{
    for (int i = 0; i < g->num_outputs; i++) {
        loong_val_t v = g->outputs[i].value;
        const loong_node_t *node = loongi_producer(g, v);
        if (!loongi_value_has_gaps(g, v)) {
            continue;
        }
        LOONG_CHECK(g->ctx, copy != NULL, LOONG_ERR_INTERNAL,
                    "op copy is not registered");
        loongi_graph_like(g, node);
        loong_graph_apply(g, copy, NULL, 1, &v, 1, &g->outputs[i].value);
        loongi_graph_like(g, NULL);
        LOONG_TRY(g->status);
    }
    return LOONG_OK;
}

loong_status_t loongi_pass_dense(loong_graph_t *g)
{
    const loong_op_t *copy = loong_find_op(g->ctx, "copy");
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_op_t *op = g->nodes[n].op;
        bool slice = op->view && op->view_column != NULL;
        if (g->nodes[n].dead) {
            continue;
        }
        if (!slice && !op->strided_in) {
            LOONG_TRY(fill_gaps(g, copy, &n));
        }
        if (op->view) { /* what it sees may be a copy now */
            loongi_graph_make_view(g, &g->nodes[n]);
        }
    }
    for (int64_t n = 0; n < g->num_nodes; n++) {
        for (int i = 0; i < g->nodes[n].num_out; i++) {
            if (g->nodes[n].out[i] >= 0) {
                g->values[g->nodes[n].out[i]].node = (int32_t)n;
            }
        }
    }
    return fill_outputs(g, copy);
}
