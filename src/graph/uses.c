/* SPDX-License-Identifier: Apache-2.0
 *
 * Who reads a value of a graph, nodes that nobody reads. Called by passes; read
 * graph_impl.h before. */
#include <string.h>

#include "graph_impl.h"

const char *loongi_program_name(loong_program_kind_t kind)
{
    static const char *const names[] = {
#define LOONG_PROGRAM_NAME(name_, text_) text_,
        LOONG_PROGRAM_LIST(LOONG_PROGRAM_NAME)
#undef LOONG_PROGRAM_NAME
    };
    return (unsigned)kind < LOONG_PROGRAM_COUNT ? names[kind] : "?";
}

loong_status_t loongi_graph_count_uses(const loong_graph_t *g,
                                       int32_t **uses_p)
{
    int32_t *uses = NULL;
    LOONG_TRY(loongi_calloc(g->ctx, (size_t)g->num_values, sizeof(*uses),
                            "graph uses", &uses));
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            if (node->in[i] >= 0) {
                uses[node->in[i]]++;
            }
        }
    }
    for (int i = 0; i < g->num_losses; i++) {
        uses[g->losses[i].value]++;
    }
    for (int i = 0; i < g->num_outputs; i++) {
        uses[g->outputs[i].value]++;
    }
    for (int64_t i = 0; i < g->num_repeats; i++) {
        uses[g->rounds[i]]++;
    }
    *uses_p = uses;
    return LOONG_OK;
}

/* A node that writes a state has an effect beyond its outputs, one that makes
 * another's again in its place. */
static bool has_effect(const loong_graph_t *g, const loong_node_t *node)
{
    if (node->num_out == 0 || node->again) {
        return true;
    }
    for (int i = 0; i < node->num_out; i++) {
        if (node->out[i] >= 0 && g->values[node->out[i]].into >= 0) {
            return true;
        }
    }
    return false;
}

loong_status_t loongi_graph_remove_dead(loong_graph_t *g)
{
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    for (int64_t n = g->num_nodes - 1; n >= 0; n--) {
        loong_node_t *node = &g->nodes[n];
        bool used = node->dead || has_effect(g, node);
        for (int i = 0; i < node->num_out && !used; i++) {
            used = node->out[i] >= 0 && uses[node->out[i]] > 0;
        }
        if (used) {
            continue;
        }
        node->dead = true;
        for (int i = 0; i < node->num_in; i++) {
            if (node->in[i] >= 0) {
                uses[node->in[i]]--;
            }
        }
    }
    loongi_free(g->ctx, uses);
    return LOONG_OK;
}
