/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies views whose rows have gaps for ops whose kernels want dense rows. */
#include <string.h>

#include "loong/register.h"
#include "passes.h"

static bool has_gaps(const loong_graph_t *g, loong_val_t v)
{
    const loong_value_t *value = &g->values[v];
    const loong_value_t *root = &g->values[value->root];
    return value->root != v && value->shape.rank > 1 &&
           value->shape.rank == root->shape.rank &&
           value->shape.dim[value->shape.rank - 1] !=
               root->shape.dim[root->shape.rank - 1];
}

/* Inserts a copy of v before position n; the array has room. */
static loong_status_t insert_copy(loong_graph_t *g, int64_t n, int input,
                                  const loong_op_t *copy)
{
    loong_val_t v = g->nodes[n].in[input];
    loong_val_t out = LOONG_NONE;
    g->program = g->nodes[n].program;
    g->scope_copy = g->nodes[n].scope;
    loong_graph_apply(g, copy, NULL, 1, &v, 1, &out);
    g->program = LOONG_PROGRAM_F;
    g->scope_copy = NULL;
    LOONG_TRY(g->status);
    loong_node_t node = g->nodes[g->num_nodes - 1];
    memmove(&g->nodes[n + 1], &g->nodes[n],
            sizeof(node) * (size_t)(g->num_nodes - 1 - n));
    g->nodes[n] = node;
    g->nodes[n + 1].in[input] = out;
    return LOONG_OK;
}

loong_status_t loongi_pass_dense(loong_graph_t *g)
{
    const loong_op_t *copy = loong_find_op(g->ctx, "copy");
    bool changed = false;
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        if (node->dead || node->op->strided_in ||
            (node->op->view && node->op->view_column != NULL)) {
            continue;
        }
        for (int i = 0; i < node->num_in; i++) {
            if (node->in[i] >= 0 && has_gaps(g, node->in[i])) {
                LOONG_CHECK(g->ctx, copy != NULL, LOONG_ERR_INTERNAL,
                            "op copy is not registered");
                LOONG_TRY(insert_copy(g, n, i, copy));
                n++;
                node = &g->nodes[n];
                changed = true;
            }
        }
    }
    for (int64_t n = 0; n < g->num_nodes && changed; n++) {
        for (int i = 0; i < g->nodes[n].num_out; i++) {
            if (g->nodes[n].out[i] >= 0) {
                g->values[g->nodes[n].out[i]].node = (int32_t)n;
            }
        }
    }
    return LOONG_OK;
}
