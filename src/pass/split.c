/* SPDX-License-Identifier: Apache-2.0
 *
 * The two halves of the backward (zero bubble): B keeps what the gradients of
 * the chunk's boundary inputs need, for the stage before waits for them; the
 * rest becomes W. What W reads of B lives in the slot. A chunk without boundary
 * inputs stays whole: nobody waits for it. Called by compile.c. Read passes.h
 * before. */
#include "loong/register.h"
#include "passes.h"

/* Marks the nodes of program B that declared outputs need. */
static bool mark_needed(const loong_graph_t *g, bool *needed)
{
    bool any = false;
    for (int i = 0; i < g->num_outputs; i++) {
        int32_t node = g->values[g->outputs[i].value].node;
        if (node >= 0 && g->nodes[node].program == LOONG_PROGRAM_B) {
            needed[node] = any = true;
        }
    }
    for (int64_t n = g->num_nodes - 1; n >= 0; n--) {
        const loong_node_t *node = &g->nodes[n];
        for (int i = 0; i < node->num_in && needed[n]; i++) {
            int32_t from = node->in[i] >= 0 ? g->values[node->in[i]].node : -1;
            if (from >= 0 && g->nodes[from].program == LOONG_PROGRAM_B) {
                needed[from] = true;
            }
        }
    }
    return any;
}

/* A gradient that a node of B makes by the way is accumulated there. */
static bool stays(const loong_graph_t *g, const loong_node_t *node, int64_t n,
                  const loong_op_t *accumulate, const bool *needed)
{
    if (node->op != accumulate) {
        return needed[n];
    }
    int32_t from = g->values[node->in[1]].node;
    return from >= 0 && needed[from];
}

loong_status_t loongi_pass_split(loong_graph_t *g)
{
    const loong_op_t *accumulate = loong_find_op(g->ctx, "accumulate");
    bool *needed = NULL;
    LOONG_TRY(loongi_calloc(g->ctx, (size_t)g->num_nodes, sizeof(*needed),
                            "split", &needed));
    bool split = mark_needed(g, needed);
    for (int64_t n = 0; n < g->num_nodes && split; n++) {
        loong_node_t *node = &g->nodes[n];
        if (node->program == LOONG_PROGRAM_B && !node->dead &&
            !stays(g, node, n, accumulate, needed)) {
            node->program = LOONG_PROGRAM_W;
        }
    }
    loongi_free(g->ctx, needed);
    return LOONG_OK;
}
