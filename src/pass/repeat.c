/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts that run in rounds through the same memory (loong_graph_repeat_begin):
 * the experts of a layer, whose rows are laid out for somewhat more than an
 * even share. What is made and read inside is of one round. What is read
 * outside is overwritten in the first round and added to in the others. A later
 * program that reads values of the part finds those of the only round in the
 * slot; where there were more it makes them again, round by round, by copies of
 * the nodes that made them. The copies write where the values lie; what only
 * they read is of the later program alone. Called by compile.c. Read passes.h
 * before. */
#include <string.h>

#include "passes.h"

typedef struct repeat {
    loong_graph_t *g;
    loong_node_t *nodes; /* the graph before */
    int64_t num_nodes;
    int64_t num_values;
    int32_t *producer; /* per value: old node, or -1 */
    uint8_t *readers;  /* per value: programs whose part of the same rounds
                          reads it, one bit each */
    bool *leaves;      /* per value */
    loong_val_t (*made)[LOONG_PROGRAM_COUNT]; /* per value: again in one */
} repeat_t;

/* The node of the same part of an earlier program that made v; NULL: none. */
static const loong_node_t *earlier_maker(const repeat_t *r, loong_val_t v,
                                         const loong_node_t *reader,
                                         loong_program_kind_t program)
{
    if (v < 0 || v >= r->num_values || r->producer[v] < 0) {
        return NULL;
    }
    const loong_node_t *node = &r->nodes[r->producer[v]];
    return node->repeat != 0 && node->repeat == reader->repeat &&
                   node->program != program
               ? node
               : NULL;
}

static loong_status_t copy_outputs(repeat_t *r, const loong_node_t *node,
                                   loong_node_t *copy)
{
    loong_graph_t *g = r->g;
    for (int o = 0; o < node->num_out; o++) {
        loong_val_t v = node->out[o];
        copy->out[o] = LOONG_NONE;
        if (v < 0) {
            continue;
        }
        LOONG_CHECK(g->ctx, !r->leaves[v], LOONG_ERR_UNSUPPORTED,
                    "%s of scope '%s' adds over rounds and is read by the "
                    "same rounds of a later program",
                    node->op->name, node->scope);
        const loong_value_t old = g->values[v];
        loong_val_t again = loongi_graph_add_value(g, LOONG_VALUE_NODE,
                                                   old.dtype, &old.shape);
        LOONG_TRY(g->status);
        g->values[again].index = o;
        if (r->readers[v] & 1u << copy->program) {
            g->values[again].root = old.root;
            g->values[again].column = old.column;
            g->values[again].ld = old.ld;
        }
        copy->out[o] = r->made[v][copy->program] = again;
    }
    if (copy->op->view) {
        loongi_graph_make_view(g, copy);
    }
    return LOONG_OK;
}

/* Makes v again in a program, behind what that takes. The depth of the
 * recursion is that of the part. */
static loong_status_t make_again(repeat_t *r, const loong_node_t *node,
                                 loong_program_kind_t program)
{
    loong_graph_t *g = r->g;
    loong_node_t copy = *node;
    LOONG_TRY(loongi_arena_alloc(
        g->arena,
        sizeof(loong_val_t) * (size_t)(node->num_in + node->num_out),
        &copy.in));
    copy.out = copy.in + node->num_in;
    copy.program = program;
    copy.again = true;
    for (int i = 0; i < node->num_in; i++) {
        loong_val_t v = node->in[i];
        const loong_node_t *from = earlier_maker(r, v, node, program);
        if (from != NULL && r->made[v][program] == LOONG_NONE) {
            LOONG_TRY(make_again(r, from, program));
        }
        copy.in[i] = from != NULL ? r->made[v][program] : v;
    }
    LOONG_TRY(copy_outputs(r, node, &copy));
    return loongi_graph_append_node(g, &copy);
}

static loong_status_t rebuild(repeat_t *r)
{
    r->g->num_nodes = 0;
    for (int64_t n = 0; n < r->num_nodes; n++) {
        const loong_node_t *node = &r->nodes[n];
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            loong_val_t v = node->in[i];
            const loong_node_t *from =
                earlier_maker(r, v, node, node->program);
            if (from != NULL && r->made[v][node->program] == LOONG_NONE) {
                LOONG_TRY(make_again(r, from, node->program));
            }
        }
        LOONG_TRY(loongi_graph_append_node(r->g, node));
    }
    return LOONG_OK;
}

static void find_readers(repeat_t *r)
{
    for (int64_t n = 0; n < r->num_nodes; n++) {
        const loong_node_t *node = &r->nodes[n];
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            if (earlier_maker(r, node->in[i], node, node->program) != NULL) {
                r->readers[node->in[i]] |= (uint8_t)(1u << node->program);
            }
        }
    }
}

loong_status_t loongi_repeat_leaves(const loong_graph_t *g, bool **leaves_p)
{
    bool *leaves = NULL;
    LOONG_TRY(loongi_arena_alloc(g->arena, (size_t)g->num_values, &leaves));
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            const loong_node_t *from =
                node->in[i] >= 0 ? loongi_producer(g, node->in[i]) : NULL;
            if (from != NULL && from->repeat != 0 &&
                from->repeat != node->repeat) {
                leaves[node->in[i]] = true;
            }
        }
    }
    for (int i = 0; i < g->num_outputs + g->num_losses; i++) {
        loong_val_t v = i < g->num_outputs
                            ? g->outputs[i].value
                            : g->losses[i - g->num_outputs].value;
        const loong_node_t *from = loongi_producer(g, v);
        leaves[v] = leaves[v] || (from != NULL && from->repeat != 0);
    }
    *leaves_p = leaves;
    return LOONG_OK;
}

/* What leaves a part is added up by the op that makes it. */
static loong_status_t check_leaves(const loong_graph_t *g, const bool *leaves)
{
    for (int64_t v = 0; v < g->num_values; v++) {
        const loong_node_t *node =
            leaves[v] ? loongi_producer(g, (loong_val_t)v) : NULL;
        LOONG_CHECK(g->ctx,
                    node == NULL ||
                        (node->op->accumulates & 1u << g->values[v].index),
                    LOONG_ERR_UNSUPPORTED,
                    "%s of scope '%s' runs in rounds and cannot add what they "
                    "make, which is read outside of them",
                    node->op->name, node->scope);
    }
    return LOONG_OK;
}

loong_status_t loongi_pass_repeat(loong_graph_t *g)
{
    repeat_t r = {g, NULL, g->num_nodes, g->num_values, NULL, NULL, NULL,
                  NULL};
    size_t nodes = (size_t)g->num_nodes;
    size_t values = (size_t)g->num_values;
    if (g->num_repeats == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_repeat_leaves(g, &r.leaves));
    LOONG_TRY(check_leaves(g, r.leaves));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, nodes * sizeof(*r.nodes), &r.nodes));
    LOONG_TRY(loongi_arena_alloc(g->arena, values * sizeof(*r.producer),
                                 &r.producer));
    LOONG_TRY(loongi_arena_alloc(g->arena, values, &r.readers));
    LOONG_TRY(
        loongi_arena_alloc(g->arena, values * sizeof(*r.made), &r.made));
    memcpy(r.nodes, g->nodes, nodes * sizeof(*r.nodes));
    for (int64_t v = 0; v < g->num_values; v++) {
        r.producer[v] = g->values[v].node;
        for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
            r.made[v][p] = LOONG_NONE;
        }
    }
    find_readers(&r);
    return rebuild(&r);
}

/* ---- where they lie ------------------------------------------------------ */

static int64_t last_of(const loong_graph_t *g, int64_t num_order,
                       const int32_t *order, int64_t first)
{
    const loong_node_t *begin = &g->nodes[order[first]];
    int64_t last = first;
    for (int64_t i = first; i < num_order; i++) {
        const loong_node_t *node = &g->nodes[order[i]];
        if (node->program != begin->program) {
            break;
        }
        last = node->repeat == begin->repeat ? i : last;
    }
    return last;
}

/* A node between that is not of the part reads nothing of it. */
static loong_status_t check_between(const loong_graph_t *g,
                                    const loong_node_t *node, int32_t part,
                                    loong_program_kind_t program)
{
    LOONG_CHECK(g->ctx, node->repeat == 0 || node->repeat == part,
                LOONG_ERR_UNSUPPORTED,
                "%s of scope '%s' stands between nodes that run in other "
                "rounds", node->op->name, node->scope);
    for (int i = 0; i < node->num_in && node->repeat == 0; i++) {
        const loong_node_t *from =
            node->in[i] >= 0 ? loongi_producer(g, node->in[i]) : NULL;
        LOONG_CHECK(g->ctx,
                    from == NULL || from->repeat != part ||
                        from->program != program,
                    LOONG_ERR_UNSUPPORTED,
                    "%s of scope '%s' reads what %s of scope '%s' makes in "
                    "rounds, before the last one", node->op->name,
                    node->scope, from->op->name, from->scope);
    }
    return LOONG_OK;
}

loong_status_t loongi_repeat_ranges(const loong_graph_t *g, int64_t num_order,
                                    const int32_t *order, int32_t *range)
{
    for (int64_t i = 0; i < num_order; i++) {
        const loong_node_t *begin = &g->nodes[order[i]];
        range[i] = 0;
        if (begin->repeat == 0) {
            continue;
        }
        int64_t last = last_of(g, num_order, order, i);
        for (; i <= last; i++) {
            LOONG_TRY(check_between(g, &g->nodes[order[i]], begin->repeat,
                                    begin->program));
            range[i] = begin->repeat;
        }
        i = last;
    }
    return LOONG_OK;
}
