/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation on the graph: gradient rules emit nodes, the
 * contributions to one value are collected and summed when its producer's turn
 * comes, and gradients of parameters end in `accumulate` nodes. Called by
 * src/pass/compile.c. Read graph_impl.h before. */
#include <string.h>

#include "graph_impl.h"
#include "loong/register.h"

enum { MAX_PARTS = 64 };

/* Contributions to the gradients of values: linked lists in the arena. */
typedef struct part {
    struct part *next;
    loong_val_t value;
} part_t;

typedef struct differentiation {
    loong_graph_t *g;
    bool *needed;     /* per forward value: its gradient leads somewhere */
    part_t **parts;   /* per forward value, in reverse order of arrival */
    loong_val_t *main_grad; /* per forward value: of a parameter */
    const loong_op_t *add;
    const loong_op_t *accumulate;
    int64_t num_values; /* forward values */
} differentiation_t;

static bool crosses(const loong_input_t *port)
{
    return port->boundary && !port->still;
}

static void mark_needed(differentiation_t *d)
{
    loong_graph_t *g = d->g;
    for (int64_t v = 0; v < d->num_values; v++) {
        const loong_value_t *value = &g->values[v];
        if (value->kind == LOONG_VALUE_PARAM) {
            d->needed[v] = !g->params[value->index].params.frozen;
        } else if (value->kind == LOONG_VALUE_INPUT) {
            d->needed[v] = crosses(&g->inputs[value->index]);
        }
    }
    for (int64_t n = 0; n < g->num_nodes; n++) {
        const loong_node_t *node = &g->nodes[n];
        bool needed = false;
        for (int i = 0; i < node->num_in && !node->dead; i++) {
            needed = needed || (node->in[i] >= 0 && d->needed[node->in[i]]);
        }
        for (int i = 0; i < node->num_out && !node->dead; i++) {
            if (node->out[i] >= 0) {
                d->needed[node->out[i]] = needed;
            }
        }
    }
}

static loong_status_t add_part(differentiation_t *d, loong_val_t to,
                               loong_val_t value)
{
    part_t *part = NULL;
    LOONG_TRY(loongi_arena_alloc(d->g->arena, sizeof(*part), &part));
    part->value = value;
    part->next = d->parts[to];
    d->parts[to] = part;
    return LOONG_OK;
}

/* All made by nodes of one op that knows how to sum: its sum. */
static loong_val_t sum_by_op(loong_graph_t *g, int n, const loong_val_t *in)
{
    const loong_node_t *first = loongi_producer(g, in[0]);
    if (first == NULL || first->op->sum == NULL) {
        return LOONG_NONE;
    }
    for (int i = 1; i < n; i++) {
        const loong_node_t *node = loongi_producer(g, in[i]);
        if (node == NULL || node->op != first->op) {
            return LOONG_NONE;
        }
    }
    return first->op->sum(g, n, in);
}

/* The sum of what has arrived for v, in order of arrival; LOONG_NONE when
 * nothing has. */
static loong_val_t sum_parts(differentiation_t *d, loong_val_t v)
{
    loong_val_t in[MAX_PARTS];
    int n = 0;
    for (part_t *part = d->parts[v]; part != NULL; part = part->next) {
        if (n == MAX_PARTS) {
            return loong_graph_fail(d->g, LOONG_ERR_UNSUPPORTED,
                                    "a value is read more than %d times",
                                    MAX_PARTS);
        }
        in[n++] = part->value;
    }
    for (int i = 0; i < n / 2; i++) {
        loong_val_t swap = in[i];
        in[i] = in[n - 1 - i];
        in[n - 1 - i] = swap;
    }
    if (n <= 1) {
        return n == 1 ? in[0] : LOONG_NONE;
    }
    loong_val_t sum = sum_by_op(d->g, n, in);
    if (sum != LOONG_NONE) {
        return sum;
    }
    sum = in[0];
    for (int i = 1; i < n; i++) {
        loong_val_t pair[2] = {sum, in[i]};
        sum = loong_graph_apply(d->g, d->add, NULL, 2, pair, 1, &sum);
    }
    return sum;
}

loong_val_t loongi_graph_grad_value(loong_graph_t *g, loong_val_t param)
{
    const loong_value_t source = g->values[param];
    loong_val_t v = loongi_graph_add_value(g, LOONG_VALUE_GRAD,
                                           g->precision.wide, &source.shape);
    if (v != LOONG_NONE) {
        g->values[v].index = source.index;
        g->values[v].members = source.members;
        g->values[v].name = source.name;
    }
    return v;
}

/* A gradient of a parameter goes to its main gradient at once. The node runs
 * where the value is made, so that a loss can fill gradients in the forward. */
static loong_status_t accumulate(differentiation_t *d, loong_val_t param,
                                 loong_val_t value)
{
    loong_graph_t *g = d->g;
    if (d->main_grad[param] == LOONG_NONE) {
        d->main_grad[param] = loongi_graph_grad_value(g, param);
    }
    const loong_node_t *producer = loongi_producer(g, value);
    g->program = producer != NULL ? producer->program : LOONG_PROGRAM_B;
    loong_val_t in[2] = {d->main_grad[param], value};
    loong_graph_apply(g, d->accumulate, NULL, 2, in, 0, NULL);
    g->program = LOONG_PROGRAM_B;
    return g->status;
}

static bool is_loss(const loong_graph_t *g, loong_val_t v)
{
    for (int i = 0; i < g->num_losses; i++) {
        if (g->losses[i].value == v) {
            return true;
        }
    }
    return false;
}

/* Runs the gradient rule of forward node n. */
static loong_status_t differentiate_node(differentiation_t *d, int64_t n)
{
    loong_graph_t *g = d->g;
    loong_node_t node = g->nodes[n]; /* a copy: the array may move */
    loong_val_t out_grad[LOONG_MAX_OPERANDS];
    loong_val_t in_grad[LOONG_MAX_OPERANDS];
    bool wanted[LOONG_MAX_OPERANDS] = {false};
    bool reached = false;
    bool any = false;
    if (node.dead) {
        return LOONG_OK;
    }
    for (int i = 0; i < node.num_in; i++) {
        in_grad[i] = LOONG_NONE;
        wanted[i] = node.in[i] >= 0 && d->needed[node.in[i]];
        any = any || wanted[i];
    }
    g->scope_copy = node.scope;
    g->repeat = node.repeat;
    for (int i = 0; i < node.num_out && any; i++) {
        out_grad[i] = LOONG_NONE;
        if (node.out[i] >= 0) {
            out_grad[i] = sum_parts(d, node.out[i]);
            g->values[node.out[i]].grad = out_grad[i];
        }
        reached = reached || out_grad[i] >= 0 || is_loss(g, node.out[i]);
    }
    if (!reached) {
        return g->status;
    }
    LOONG_CHECK(g->ctx, node.op->grad != NULL, LOONG_ERR_UNSUPPORTED,
                "%s has no gradient (in scope '%s')", node.op->name,
                node.scope);
    loong_grad_call_t call = {g,       node.attr, node.num_in, node.num_out,
                              node.in, node.out,  out_grad,    wanted,
                              in_grad};
    LOONG_TRY(node.op->grad(&call));
    LOONG_TRY(g->status);
    for (int i = 0; i < node.num_in; i++) {
        if (!wanted[i] || in_grad[i] == LOONG_NONE) {
            continue;
        }
        if (g->values[node.in[i]].kind == LOONG_VALUE_PARAM) {
            LOONG_TRY(accumulate(d, node.in[i], in_grad[i]));
        } else {
            LOONG_TRY(add_part(d, node.in[i], in_grad[i]));
        }
    }
    return LOONG_OK;
}

/* ---- borders ------------------------------------------------------------- */

static char *grad_name(loong_graph_t *g, const char *name)
{
    char *text = NULL;
    loong_status_t status =
        loongi_arena_printf(g->arena, &text, "%s.grad", name);
    if (status != LOONG_OK) {
        loong_graph_fail(g, status, "name of the gradient of %s", name);
    }
    return text;
}

/* The gradients of boundary outputs come as inputs. */
static loong_status_t seed(differentiation_t *d)
{
    loong_graph_t *g = d->g;
    for (int i = 0; i < g->num_outputs; i++) {
        const loong_input_t output = g->outputs[i];
        if (!crosses(&output)) {
            continue;
        }
        const char *name = grad_name(g, output.name);
        LOONG_TRY(g->status);
        const loong_value_t value = g->values[output.value];
        loong_val_t grad =
            loong_graph_input(g, name, value.dtype, value.shape);
        LOONG_TRY(g->status);
        g->inputs[g->values[grad].index].gradient = true;
        g->inputs[g->values[grad].index].edge = output.edge;
        LOONG_TRY(add_part(d, output.value, grad));
    }
    return LOONG_OK;
}

/* The gradients of boundary inputs leave as outputs. */
static loong_status_t deliver(differentiation_t *d)
{
    loong_graph_t *g = d->g;
    for (int i = 0; i < g->num_inputs; i++) {
        const loong_input_t input = g->inputs[i];
        if (!crosses(&input)) {
            continue;
        }
        loong_val_t grad = sum_parts(d, input.value);
        LOONG_TRY(g->status);
        LOONG_CHECK(g->ctx, grad != LOONG_NONE, LOONG_ERR_ARG,
                    "boundary input %s leads to no loss and no boundary "
                    "output: it has no gradient",
                    input.name);
        const char *name = grad_name(g, input.name);
        LOONG_TRY(g->status);
        loong_graph_output(g, name, grad);
        LOONG_TRY(g->status);
        g->outputs[g->num_outputs - 1].gradient = true;
        g->outputs[g->num_outputs - 1].edge = input.edge;
    }
    return g->status;
}

static bool has_seed(const loong_graph_t *g)
{
    bool any = g->num_losses > 0;
    for (int i = 0; i < g->num_outputs; i++) {
        any = any || crosses(&g->outputs[i]);
    }
    return any;
}

static loong_status_t differentiate(differentiation_t *d)
{
    loong_graph_t *g = d->g;
    d->add = loong_find_op(g->ctx, "add");
    d->accumulate = loong_find_op(g->ctx, "accumulate");
    LOONG_CHECK(g->ctx, d->add != NULL && d->accumulate != NULL,
                LOONG_ERR_INTERNAL,
                "ops add and accumulate are not registered");
    LOONG_TRY(loongi_arena_alloc(g->arena, (size_t)d->num_values, &d->needed));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)d->num_values * sizeof(*d->parts), &d->parts));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)d->num_values * sizeof(*d->main_grad),
        &d->main_grad));
    for (int64_t v = 0; v < d->num_values; v++) {
        d->main_grad[v] = LOONG_NONE;
    }
    mark_needed(d);
    g->program = LOONG_PROGRAM_B;
    LOONG_TRY(seed(d));
    for (int64_t n = g->num_nodes - 1; n >= 0; n--) {
        LOONG_TRY(differentiate_node(d, n));
    }
    g->scope_copy = NULL;
    g->repeat = 0;
    return deliver(d);
}

loong_status_t loongi_graph_differentiate(loong_graph_t *g)
{
    LOONG_TRY(g->status);
    LOONG_CHECK(g->ctx, has_seed(g), LOONG_ERR_ARG,
                "the graph declares no loss and no boundary output");
    differentiation_t d = {0};
    d.g = g;
    d.num_values = g->num_values;
    loong_status_t status = differentiate(&d);
    loongi_graph_like(g, NULL);
    return status;
}
