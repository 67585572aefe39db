/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes that rewrite the graph: fused ops, accumulation into gradients,
 * assembling without copies. Called by compile.c. Read passes.h before. */
#include <string.h>

#include "loong/ops.h"
#include "loong/register.h"
#include "passes.h"

/* ---- fuse ------------------------------------------------------------- */

/* norm(add(a, b)) becomes add_norm(a, b); its last output is the sum, which
 * keeps its value number, so that other readers need no change. */
static loong_status_t fuse_add_norm(loong_graph_t *g, int64_t n,
                                    const loong_op_t *fused)
{
    loong_node_t *node = &g->nodes[n];
    loong_node_t *sum = loongi_producer(g, node->in[0]);
    int64_t sum_at = g->values[node->in[0]].node;
    for (int64_t k = sum_at + 1; k < n; k++) {
        for (int i = 0; i < g->nodes[k].num_in; i++) {
            if (!g->nodes[k].dead && g->nodes[k].in[i] == node->in[0]) {
                return LOONG_OK; /* read before the norm: cannot move */
            }
        }
    }
    int num_in = node->num_in + 1;
    int num_out = fused->num_out;
    loong_val_t *operands = NULL;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, sizeof(*operands) * (size_t)(num_in + num_out), &operands));
    operands[0] = sum->in[0];
    operands[1] = sum->in[1];
    memcpy(operands + 2, node->in + 1,
           sizeof(*operands) * (size_t)(node->num_in - 1));
    memcpy(operands + num_in, node->out,
           sizeof(*operands) * (size_t)node->num_out);
    operands[num_in + num_out - 1] = node->in[0];
    g->values[node->in[0]].node = (int32_t)n;
    g->values[node->in[0]].index = num_out - 1;
    sum->dead = true;
    node->op = fused;
    node->num_in = num_in;
    node->num_out = num_out;
    node->in = operands;
    node->out = operands + num_in;
    return LOONG_OK;
}

/* Is n a norm of a sum that is made in the same type, and in the same part when
 * n's part is run again? */
static bool can_fuse_add(const loong_graph_t *g, int64_t n,
                         const loong_fuse_scopes_t *scopes)
{
    const loong_node_t *node = &g->nodes[n];
    const loong_node_t *sum = loongi_producer(g, node->in[0]);
    if (node->dead || sum == NULL || sum->dead ||
        strcmp(sum->op->name, "add") != 0 ||
        g->values[node->in[0]].root != node->in[0]) {
        return false;
    }
    if (loongi_scope_any(scopes->num_wide, scopes->wide, node->scope) !=
        loongi_scope_any(scopes->num_wide, scopes->wide, sum->scope)) {
        return false;
    }
    uint64_t part = loongi_scope_instance(scopes->num_recompute,
                                          scopes->recompute, node->scope);
    return part == 0 || part == loongi_scope_instance(scopes->num_recompute,
                                                      scopes->recompute,
                                                      sum->scope);
}

loong_status_t loongi_pass_fuse(loong_graph_t *g,
                                const loong_fuse_scopes_t *scopes)
{
    static const char *const norms[][2] = {{"rmsnorm", "add_rmsnorm"},
                                           {"layernorm", "add_layernorm"}};
    for (int i = 0; i < LOONG_COUNT_OF(norms); i++) {
        const loong_op_t *plain = loong_find_op(g->ctx, norms[i][0]);
        const loong_op_t *fused = loong_find_op(g->ctx, norms[i][1]);
        for (int64_t n = 0; n < g->num_nodes && plain && fused; n++) {
            if (g->nodes[n].op == plain && can_fuse_add(g, n, scopes)) {
                LOONG_TRY(fuse_add_norm(g, n, fused));
            }
        }
    }
    return LOONG_OK;
}

/* ---- absorb ------------------------------------------------------------ */

/* Can the gradient of a norm, output 0 of its node, take in what is added to
 * it? That must be there before. */
static bool can_absorb(const loong_graph_t *g, loong_val_t dx,
                       loong_val_t other, const int32_t *uses)
{
    static const char *const grads[] = {"rmsnorm_grad", "layernorm_grad"};
    const loong_value_t *value = &g->values[dx];
    const loong_node_t *norm = loongi_producer(g, dx);
    bool is_norm = false;
    for (int i = 0; i < LOONG_COUNT_OF(grads) && norm != NULL; i++) {
        is_norm = is_norm || strcmp(norm->op->name, grads[i]) == 0;
    }
    return is_norm && !norm->dead && norm->num_in < norm->op->max_in &&
           value->index == 0 && value->root == dx && uses[dx] == 1 &&
           g->values[other].node < value->node;
}

/* The sum becomes the norm's output. */
static loong_status_t absorb(loong_graph_t *g, loong_node_t *sum,
                             loong_val_t dx, loong_val_t other)
{
    loong_node_t *norm = loongi_producer(g, dx);
    loong_val_t *in = NULL;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, sizeof(*in) * ((size_t)norm->num_in + 1), &in));
    memcpy(in, norm->in, sizeof(*in) * (size_t)norm->num_in);
    in[norm->num_in++] = other;
    norm->in = in;
    norm->out[0] = sum->out[0];
    g->values[sum->out[0]].node = g->values[dx].node;
    sum->out[0] = LOONG_NONE; /* passes that move nodes find one producer */
    sum->dead = true;
    return LOONG_OK;
}

loong_status_t loongi_pass_absorb(loong_graph_t *g)
{
    const loong_op_t *add = loong_find_op(g->ctx, "add");
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        loong_node_t *node = &g->nodes[n];
        for (int i = 0; i < 2 && node->op == add && !node->dead; i++) {
            loong_val_t dx = node->in[i];
            loong_val_t other = node->in[1 - i];
            if (can_absorb(g, dx, other, uses)) {
                status = absorb(g, node, dx, other);
            }
        }
    }
    loongi_free(g->ctx, uses);
    return status;
}

/* ---- accumulate ------------------------------------------------------- */

/* The last of the programs that accumulate into a gradient: what the others
 * would have added is kept until then. */
loong_status_t loongi_pass_gather(loong_graph_t *g)
{
    const loong_op_t *accumulate = loong_find_op(g->ctx, "accumulate");
    loong_program_kind_t *last = NULL;
    LOONG_TRY(loongi_calloc(g->ctx, (size_t)g->num_values, sizeof(*last),
                            "programs of gradients", &last));
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t n = 0; n < g->num_nodes; n++) {
            loong_node_t *node = &g->nodes[n];
            if (node->op != accumulate || node->dead ||
                g->values[node->in[0]].kind != LOONG_VALUE_GRAD) {
                continue;
            }
            loong_program_kind_t *at = &last[node->in[0]];
            *at = LOONG_MAX(*at, node->program);
            node->program = pass == 0 ? node->program : *at;
        }
    }
    loongi_free(g->ctx, last);
    return LOONG_OK;
}

/* Writers of one gradient in the order of the programs: the first begins the
 * step. A state goes on from the step before. */
static void order_writers(loong_graph_t *g)
{
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        for (int64_t n = 0; n < g->num_nodes; n++) {
            loong_node_t *node = &g->nodes[n];
            if (node->dead || node->program != (loong_program_kind_t)p) {
                continue;
            }
            for (int o = 0; o < node->num_out; o++) {
                loong_value_t *out =
                    node->out[o] >= 0 ? &g->values[node->out[o]] : NULL;
                if (out != NULL && out->into >= 0) {
                    loong_value_t *grad = &g->values[out->into];
                    bool begins = grad->kind == LOONG_VALUE_GRAD &&
                                  grad->write == LOONG_WRITE_OWN;
                    out->write = begins ? LOONG_WRITE_FIRST : LOONG_WRITE_ADD;
                    grad->write = LOONG_WRITE_ADD; /* seen */
                }
            }
        }
    }
}

/* Turns `accumulate(grad, x)` into an output of x's producer when that can
 * add, else into a copy whose output is the gradient. */
static loong_status_t write_into(loong_graph_t *g, int64_t n,
                                 const int32_t *uses, bool direct)
{
    loong_node_t *node = &g->nodes[n];
    loong_val_t grad = node->in[0];
    loong_val_t x = node->in[1];
    const loong_node_t *producer = loongi_producer(g, x);
    loong_value_t *value = &g->values[x];
    if (direct && producer != NULL && uses[x] == 1 && value->root == x &&
        value->into < 0 && value->kind == LOONG_VALUE_NODE &&
        value->dtype == g->values[grad].dtype &&
        producer->program == node->program &&
        (producer->op->accumulates & (1u << value->index))) {
        value->into = grad;
        node->dead = true;
        return LOONG_OK;
    }
    loong_shape_t shape = g->values[grad].shape;
    loong_val_t out = loongi_graph_add_value(g, LOONG_VALUE_NODE,
                                             g->values[grad].dtype, &shape);
    LOONG_TRY(g->status);
    g->values[out].node = (int32_t)n;
    g->values[out].index = 0;
    g->values[out].into = grad;
    loong_val_t *operands = NULL;
    LOONG_TRY(
        loongi_arena_alloc(g->arena, sizeof(*operands) * 2, &operands));
    operands[0] = x;
    operands[1] = out;
    node->num_in = 1;
    node->num_out = 1;
    node->in = operands;
    node->out = operands + 1;
    return LOONG_OK;
}

loong_status_t loongi_pass_accumulate(loong_graph_t *g, bool direct)
{
    const loong_op_t *accumulate = loong_find_op(g->ctx, "accumulate");
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; n < g->num_nodes && status == LOONG_OK; n++) {
        if (g->nodes[n].op == accumulate && !g->nodes[n].dead) {
            status = write_into(g, n, uses, direct);
        }
    }
    loongi_free(g->ctx, uses);
    order_writers(g);
    return status;
}

/* ---- assemble ----------------------------------------------------------- */

static bool can_write_there(const loong_graph_t *g, loong_val_t v,
                            const int32_t *uses)
{
    const loong_value_t *value = &g->values[v];
    const loong_node_t *producer = loongi_producer(g, v);
    return value->kind == LOONG_VALUE_NODE && value->root == v &&
           value->into < 0 && uses[v] == 1 && producer != NULL &&
           producer->op->strided_out && !producer->op->assembles;
}

loong_status_t loongi_pass_assemble(loong_graph_t *g)
{
    int32_t *uses = NULL;
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    for (int64_t n = 0; n < g->num_nodes; n++) {
        loong_node_t *node = &g->nodes[n];
        bool possible = node->op->assembles && !node->dead &&
                        g->values[node->out[0]].root == node->out[0];
        for (int i = 0; i < node->num_in && possible; i++) {
            possible = can_write_there(g, node->in[i], uses);
            for (int j = 0; j < i && possible; j++) {
                possible = node->in[i] != node->in[j];
            }
        }
        int64_t column = 0;
        for (int i = 0; i < node->num_in && possible; i++) {
            loong_value_t *part = &g->values[node->in[i]];
            part->root = node->out[0];
            part->column = column;
            part->ld = g->values[node->out[0]].ld;
            column += part->shape.dim[part->shape.rank - 1];
        }
        node->dead = node->dead || possible;
    }
    loongi_free(g->ctx, uses);
    return LOONG_OK;
}
