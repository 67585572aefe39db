/* SPDX-License-Identifier: Apache-2.0
 *
 * Building: values, parameters, inputs, states, scopes, application of ops.
 * Called by src/nn/, src/op/ and model families. Read loong/graph.h and
 * graph_impl.h before. */
#include <stdio.h>
#include <string.h>

#include "graph_impl.h"

loong_status_t loong_graph_create(loong_context_t *ctx,
                                  loong_precision_t precision,
                                  loong_graph_t **graph_p)
{
    loong_graph_t *g = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*g), "graph", &g));
    loong_status_t status = loongi_arena_create(ctx, "graph", &g->arena);
    if (status != LOONG_OK) {
        loongi_free(ctx, g);
        return status;
    }
    g->ctx = ctx;
    g->precision = precision;
    g->program = LOONG_PROGRAM_F;
    g->mesh = loong_mesh_single();
    *graph_p = g;
    return LOONG_OK;
}

void loong_graph_destroy(loong_graph_t **graph_p)
{
    loong_graph_t *g = *graph_p;
    if (g == NULL) {
        return;
    }
    loongi_free(g->ctx, g->values);
    loongi_free(g->ctx, g->nodes);
    loongi_free(g->ctx, g->params);
    loongi_free(g->ctx, g->states);
    loongi_free(g->ctx, g->rounds);
    loongi_arena_destroy(&g->arena);
    loongi_free(g->ctx, g);
    *graph_p = NULL;
}

loong_status_t loong_graph_status(const loong_graph_t *graph)
{
    return graph->status;
}

loong_context_t *loong_graph_context(const loong_graph_t *graph)
{
    return graph->ctx;
}

const char *loong_graph_scope(const loong_graph_t *graph)
{
    return graph->scope;
}

int loong_graph_losses(const loong_graph_t *graph)
{
    return graph->num_losses;
}

bool loong_value_is_param(const loong_graph_t *graph, loong_val_t value)
{
    return value >= 0 && graph->values[value].kind == LOONG_VALUE_PARAM;
}

void loong_value_set_grad(loong_graph_t *g, loong_val_t v, loong_val_t grad)
{
    g->values[v].grad = grad;
}

loong_precision_t loong_graph_precision(const loong_graph_t *graph)
{
    return graph->precision;
}

void loong_graph_set_mesh(loong_graph_t *graph, const loong_mesh_t *mesh)
{
    graph->mesh = *mesh;
}

const loong_mesh_t *loong_graph_mesh(const loong_graph_t *graph)
{
    return &graph->mesh;
}

/* Records a failure whose message is in the trail already. */
static loong_val_t broken(loong_graph_t *g, loong_status_t status)
{
    if (g->status == LOONG_OK) {
        g->status = status;
        if (g->scope[0] != '\0') {
            loongi_error_note(g->ctx, "while building %s", g->scope);
        }
    }
    return LOONG_NONE;
}

loong_val_t loong_graph_fail(loong_graph_t *graph, loong_status_t status,
                             const char *fmt, ...)
{
    if (graph->status == LOONG_OK) {
        char text[512];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        broken(graph, LOONG_FAIL(graph->ctx, status, "%s", text));
    }
    return LOONG_NONE;
}

loong_val_t loongi_graph_add_value(loong_graph_t *g, loong_value_kind_t kind,
                                   loong_dtype_t dtype,
                                   const loong_shape_t *shape)
{
    loong_status_t status =
        loongi_grow(g->ctx, &g->values, &g->cap_values, g->num_values + 1,
                    sizeof(*g->values), "graph values");
    if (status != LOONG_OK) {
        return broken(g, status);
    }
    loong_val_t v = (loong_val_t)g->num_values++;
    loong_value_t *value = &g->values[v];
    memset(value, 0, sizeof(*value));
    value->kind = kind;
    value->dtype = dtype;
    value->shape = *shape;
    value->node = -1;
    value->index = -1;
    value->root = v;
    value->ld = shape->rank > 0 ? shape->dim[shape->rank - 1] : 0;
    value->into = LOONG_NONE;
    value->grad = LOONG_NONE;
    return v;
}

void loong_graph_push(loong_graph_t *graph, const char *fmt, ...)
{
    char part[LOONG_MAX_SCOPE];
    va_list args;
    va_start(args, fmt);
    vsnprintf(part, sizeof(part), fmt, args);
    va_end(args);
    size_t used = strlen(graph->scope);
    if (used + strlen(part) + 2 > sizeof(graph->scope)) {
        loong_graph_fail(graph, LOONG_ERR_ARG, "scope %s.%s is too long",
                         graph->scope, part);
        return;
    }
    snprintf(graph->scope + used, sizeof(graph->scope) - used, "%s%s",
             used > 0 ? "." : "", part);
    graph->scope_copy = NULL;
}

void loong_graph_pop(loong_graph_t *graph)
{
    char *dot = strrchr(graph->scope, '.');
    *(dot != NULL ? dot : graph->scope) = '\0';
    graph->scope_copy = NULL;
}

static const char *scope_string(loong_graph_t *g)
{
    if (g->scope_copy == NULL) {
        char *copy = NULL;
        if (loongi_arena_strdup(g->arena, g->scope, &copy) != LOONG_OK) {
            broken(g, LOONG_ERR_MEMORY);
            return "";
        }
        g->scope_copy = copy;
    }
    return g->scope_copy;
}

static const char *name_copy(loong_graph_t *g, const char *name)
{
    char *copy = NULL;
    loong_status_t status = loongi_arena_strdup(g->arena, name, &copy);
    if (status != LOONG_OK) {
        broken(g, status);
    }
    return copy;
}

loong_val_t loong_graph_input(loong_graph_t *graph, const char *name,
                              loong_dtype_t dtype, loong_shape_t shape)
{
    loong_graph_t *g = graph;
    if (g->status != LOONG_OK) {
        return LOONG_NONE;
    }
    for (int i = 0; i < g->num_inputs; i++) {
        if (strcmp(g->inputs[i].name, name) == 0) {
            const loong_value_t *v = loongi_value(g, g->inputs[i].value);
            if (v->dtype != dtype || !loongi_shape_equal(&v->shape, &shape)) {
                return loong_graph_fail(g, LOONG_ERR_ARG,
                                        "input %s is asked for with two types",
                                        name);
            }
            return g->inputs[i].value;
        }
    }
    if (g->num_inputs == LOONG_MAX_INPUTS) {
        return loong_graph_fail(g, LOONG_ERR_ARG, "more than %d inputs",
                                LOONG_MAX_INPUTS);
    }
    loong_val_t v =
        loongi_graph_add_value(g, LOONG_VALUE_INPUT, dtype, &shape);
    if (v != LOONG_NONE) {
        g->values[v].index = g->num_inputs;
        g->values[v].name = name_copy(g, name);
        g->inputs[g->num_inputs].name = g->values[v].name;
        g->inputs[g->num_inputs++].value = v;
    }
    return v;
}

static int64_t find_param(const loong_graph_t *g, const char *name)
{
    for (int64_t i = 0; i < g->num_params; i++) {
        if (strcmp(g->params[i].params.name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* As a recipe can have it otherwise. */
static bool same_rules(const loong_param_params_t *a,
                       const loong_param_params_t *b)
{
    return a->frozen == b->frozen && a->optimizer == b->optimizer &&
           a->weight_decay == b->weight_decay;
}

static bool can_pack(const loong_param_params_t *a,
                     const loong_param_params_t *b)
{
    loong_shape_t here = loongi_param_shape(a);
    loong_shape_t there = loongi_param_shape(b);
    bool same = a->dtype == b->dtype && here.rank == there.rank &&
                a->sign_rate == b->sign_rate &&
                a->place.partial == b->place.partial &&
                (!a->place.partial || a->place.group == b->place.group);
    for (int i = 1; same && i < here.rank; i++) {
        same = here.dim[i] == there.dim[i];
    }
    return same;
}

/* A name asked for again must be asked for in the same way. */
static loong_val_t found_param(loong_graph_t *g, int64_t at, int num_params,
                               const loong_param_params_t *params)
{
    loong_val_t v = g->params[at].value;
    bool same = g->values[v].members == num_params && g->params[at].first == at;
    for (int i = 0; same && i < num_params; i++) {
        const loong_param_params_t *p = &g->params[at + i].params;
        same = strcmp(p->name, params[i].name) == 0 &&
               loongi_shape_equal(&p->shape, &params[i].shape) &&
               p->dtype == params[i].dtype;
    }
    if (!same) {
        return loong_graph_fail(g, LOONG_ERR_ARG,
                                "parameter %s is asked for in two ways",
                                params[0].name);
    }
    return v;
}

loong_val_t loong_graph_pack(loong_graph_t *graph, int num_params,
                             const loong_param_params_t *params)
{
    loong_graph_t *g = graph;
    if (g->status != LOONG_OK) {
        return LOONG_NONE;
    }
    int64_t at = find_param(g, params[0].name);
    if (at >= 0) {
        return found_param(g, at, num_params, params);
    }
    loong_status_t status =
        loongi_grow(g->ctx, &g->params, &g->cap_params,
                    g->num_params + num_params, sizeof(*g->params),
                    "graph parameters");
    if (status != LOONG_OK) {
        return broken(g, status);
    }
    loong_shape_t shape = loongi_param_shape(&params[0]);
    loong_val_t v = loongi_graph_add_value(g, LOONG_VALUE_PARAM,
                                           params[0].dtype, &shape);
    shape.dim[0] = 0;
    for (int i = 0; i < num_params && v != LOONG_NONE; i++) {
        if (!same_rules(&params[0], &params[i])) {
            return loong_graph_fail(g, LOONG_ERR_CONFIG,
                                    "%s and %s are rows of one matrix: globs "
                                    "of model.freeze, target_modules where "
                                    "finetune.bias is lora_only, and scopes of "
                                    "optimizer.groups and optimizer."
                                    "weight_decay_rules must match both of "
                                    "them or neither",
                                    params[0].name, params[i].name);
        }
        if (!can_pack(&params[0], &params[i]) ||
            find_param(g, params[i].name) >= 0) {
            return loong_graph_fail(g, LOONG_ERR_ARG,
                                    "parameter %s cannot be packed with %s: "
                                    "type and columns must be the same",
                                    params[i].name, params[0].name);
        }
        loong_param_t *p = &g->params[g->num_params];
        p->params = params[i];
        p->params.name = name_copy(g, params[i].name);
        p->value = v;
        p->first = (int32_t)(g->num_params - i);
        p->row = shape.dim[0];
        shape.dim[0] += loongi_param_shape(&params[i]).dim[0];
        g->num_params++;
    }
    if (v != LOONG_NONE) {
        g->values[v].shape = shape;
        g->values[v].index = (int32_t)(g->num_params - num_params);
        g->values[v].members = num_params;
        g->values[v].name = g->params[g->values[v].index].params.name;
    }
    return g->status == LOONG_OK ? v : LOONG_NONE;
}

loong_val_t loong_graph_param(loong_graph_t *graph,
                              const loong_param_params_t *params)
{
    return loong_graph_pack(graph, 1, params);
}

loong_val_t loong_graph_state(loong_graph_t *graph, const char *name,
                              loong_dtype_t dtype, loong_shape_t shape)
{
    loong_graph_t *g = graph;
    if (g->status != LOONG_OK) {
        return LOONG_NONE;
    }
    loong_status_t status =
        loongi_grow(g->ctx, &g->states, &g->cap_states, g->num_states + 1,
                    sizeof(*g->states), "graph states");
    if (status != LOONG_OK) {
        return broken(g, status);
    }
    loong_val_t v = loongi_graph_add_value(g, LOONG_VALUE_STATE, dtype, &shape);
    if (v != LOONG_NONE) {
        g->values[v].index = (int32_t)g->num_states;
        g->values[v].name = name_copy(g, name);
        g->states[g->num_states++] = v;
    }
    return v;
}

loong_status_t loongi_graph_infer(loong_graph_t *g, const loong_op_t *op,
                                  const void *attr, int num_in,
                                  const loong_val_t *in,
                                  loong_tensor_type_t *out)
{
    loong_tensor_type_t types[LOONG_MAX_OPERANDS];
    memset(types, 0, sizeof(types));
    LOONG_CHECK(g->ctx,
                num_in >= op->min_in && num_in <= op->max_in &&
                    num_in + op->num_out <= LOONG_MAX_OPERANDS,
                LOONG_ERR_ARG, "%s: %d inputs given, %d to %d allowed",
                op->name, num_in, op->min_in, op->max_in);
    LOONG_CHECK(g->ctx, op->attr_size == 0 || attr != NULL, LOONG_ERR_ARG,
                "%s: attributes are missing", op->name);
    for (int i = 0; i < num_in; i++) {
        if (in[i] == LOONG_NONE) {
            LOONG_CHECK(g->ctx, i >= op->min_in, LOONG_ERR_ARG,
                        "%s: input %d is missing", op->name, i);
            continue;
        }
        LOONG_CHECK(g->ctx, in[i] >= 0 && in[i] < g->num_values, LOONG_ERR_ARG,
                    "%s: input %d is no value of this graph", op->name, i);
        types[i].dtype = g->values[in[i]].dtype;
        types[i].shape = g->values[in[i]].shape;
    }
    loong_op_call_t call = {g->ctx, op->name, g->precision, attr,
                            num_in, op->num_out, types, out};
    return op->infer(&call);
}

bool loongi_value_has_gaps(const loong_graph_t *g, loong_val_t v)
{
    const loong_value_t *value = &g->values[v];
    return value->shape.rank > 1 &&
           value->ld != value->shape.dim[value->shape.rank - 1];
}

/* Only slices move the first column and keep the distance of rows. */
void loongi_graph_make_view(loong_graph_t *g, const loong_node_t *node)
{
    loong_value_t *out = &g->values[node->out[0]];
    const loong_value_t *in = &g->values[node->in[0]];
    out->root = in->root;
    out->column = in->column;
    if (node->op->view_column != NULL) {
        out->column += node->op->view_column(node->attr);
    }
    if (node->op->strided_in) {
        out->ld = in->ld;
    }
}

static loong_status_t add_node(loong_graph_t *g, const loong_op_t *op,
                               const void *attr, int num_in,
                               const loong_val_t *in)
{
    LOONG_TRY(loongi_grow(g->ctx, &g->nodes, &g->cap_nodes, g->num_nodes + 1,
                          sizeof(*g->nodes), "graph nodes"));
    loong_node_t *node = &g->nodes[g->num_nodes];
    memset(node, 0, sizeof(*node));
    node->op = op;
    node->num_in = num_in;
    node->num_out = op->num_out;
    node->program = g->program;
    node->repeat = g->repeat;
    node->scope = scope_string(g);
    LOONG_TRY(loongi_arena_alloc(
        g->arena, sizeof(loong_val_t) * (size_t)(num_in + op->num_out),
        &node->in));
    node->out = node->in + num_in;
    memcpy(node->in, in, sizeof(*in) * (size_t)num_in);
    void *copy = NULL;
    if (op->attr_size > 0) {
        LOONG_TRY(loongi_arena_alloc(g->arena, op->attr_size, &copy));
        memcpy(copy, attr, op->attr_size);
    }
    node->attr = copy;
    g->num_nodes++;
    return LOONG_OK;
}

loong_status_t loongi_graph_append_node(loong_graph_t *g,
                                        const loong_node_t *node)
{
    LOONG_TRY(loongi_grow(g->ctx, &g->nodes, &g->cap_nodes, g->num_nodes + 1,
                          sizeof(*g->nodes), "graph nodes"));
    g->nodes[g->num_nodes] = *node;
    for (int i = 0; i < node->num_out; i++) {
        if (node->out[i] >= 0) {
            g->values[node->out[i]].node = (int32_t)g->num_nodes;
        }
    }
    g->num_nodes++;
    return LOONG_OK;
}

loong_val_t loong_graph_apply(loong_graph_t *graph, const loong_op_t *op,
                              const void *attr, int num_in,
                              const loong_val_t *in, int num_out,
                              loong_val_t *out)
{
    loong_graph_t *g = graph;
    loong_tensor_type_t types[LOONG_MAX_OPERANDS];
    memset(types, 0, sizeof(types));
    for (int i = 0; i < num_out; i++) {
        out[i] = LOONG_NONE;
    }
    if (g->status != LOONG_OK) {
        return LOONG_NONE;
    }
    loong_status_t status =
        loongi_graph_infer(g, op, attr, num_in, in, types);
    if (status == LOONG_OK) {
        status = add_node(g, op, attr, num_in, in);
    }
    if (status != LOONG_OK) {
        return broken(g, status);
    }
    int32_t at = (int32_t)(g->num_nodes - 1);
    for (int i = 0; i < op->num_out; i++) {
        loong_val_t v = LOONG_NONE;
        if (types[i].shape.rank > 0) {
            v = loongi_graph_add_value(g, LOONG_VALUE_NODE, types[i].dtype,
                                       &types[i].shape);
            if (v == LOONG_NONE) {
                return LOONG_NONE;
            }
            g->values[v].node = at;
            g->values[v].index = i;
        }
        g->nodes[at].out[i] = v;
        if (i < num_out) {
            out[i] = v;
        }
    }
    if (op->view) {
        loongi_graph_make_view(g, &g->nodes[at]);
    }
    return op->num_out > 0 ? g->nodes[at].out[0] : LOONG_NONE;
}

int loong_graph_loss(loong_graph_t *graph, loong_val_t rows,
                     const loong_loss_params_t *params)
{
    loong_graph_t *g = graph;
    if (g->status != LOONG_OK) {
        return 0;
    }
    if (g->num_losses == LOONG_MAX_LOSSES) {
        loong_graph_fail(g, LOONG_ERR_ARG, "more than %d losses",
                         LOONG_MAX_LOSSES);
        return 0;
    }
    loong_loss_t *loss = &g->losses[g->num_losses];
    loss->params = *params;
    loss->params.name = name_copy(g, params->name);
    loss->params.normaliser = name_copy(g, params->normaliser);
    loss->value = rows;
    return g->num_losses++;
}

void loong_graph_output(loong_graph_t *graph, const char *name,
                        loong_val_t value)
{
    loong_graph_t *g = graph;
    if (g->status != LOONG_OK) {
        return;
    }
    if (g->num_outputs == LOONG_MAX_OUTPUTS) {
        loong_graph_fail(g, LOONG_ERR_ARG, "more than %d outputs",
                         LOONG_MAX_OUTPUTS);
        return;
    }
    g->outputs[g->num_outputs].name = name_copy(g, name);
    g->outputs[g->num_outputs++].value = value;
}

loong_dtype_t loong_value_dtype(const loong_graph_t *graph, loong_val_t value)
{
    return value >= 0 && value < graph->num_values ? graph->values[value].dtype
                                                   : LOONG_DTYPE_COUNT;
}

loong_shape_t loong_value_shape(const loong_graph_t *graph, loong_val_t value)
{
    loong_shape_t none = {0, {0, 0, 0, 0}};
    return value >= 0 && value < graph->num_values ? graph->values[value].shape
                                                   : none;
}

bool loong_value_producer(const loong_graph_t *graph, loong_val_t value,
                          loong_producer_t *producer_p)
{
    if (value < 0 || value >= graph->num_values ||
        graph->values[value].node < 0) {
        return false;
    }
    const loong_node_t *node = &graph->nodes[graph->values[value].node];
    producer_p->op = node->op;
    producer_p->attr = node->attr;
    producer_p->num_in = node->num_in;
    producer_p->in = node->in;
    return true;
}
