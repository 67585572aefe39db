/* SPDX-License-Identifier: Apache-2.0
 *
 * Of what new nodes are: program, scope, and the part that runs in rounds.
 * Builders and passes call it; graph_impl.h says what such a part is. */
#include "graph_impl.h"

void loongi_graph_like(loong_graph_t *g, const loong_node_t *node)
{
    g->program = node != NULL ? node->program : LOONG_PROGRAM_F;
    g->scope_copy = node != NULL ? node->scope : NULL;
    g->repeat = node != NULL ? node->repeat : 0;
}

void loong_graph_repeat_begin(loong_graph_t *graph, loong_val_t rounds)
{
    loong_graph_t *g = graph;
    loong_status_t status =
        loongi_grow(g->ctx, &g->rounds, &g->cap_repeats, g->num_repeats + 1,
                    sizeof(*g->rounds), "parts run in rounds");
    if (status != LOONG_OK) {
        loong_graph_fail(g, status, "a part run in rounds");
        return;
    }
    g->rounds[g->num_repeats++] = rounds;
    g->repeat = (int32_t)g->num_repeats;
}

int loong_graph_repeat_set(loong_graph_t *graph, int part)
{
    int before = graph->repeat;
    graph->repeat = part;
    return before;
}
