/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles a graph to the programs of a model chunk: passes in their order,
 * kernels, memory, steps; touches no device. Called by src/component/stage.c;
 * read passes.h before. */
#include <string.h>

#include "loong/register.h"
#include "passes.h"

enum { BUFFER_ALIGN = 64, FLAT_ALIGN = 64 /* elements */ };

/* ---- parameters --------------------------------------------------------- */

static int flat_of(loong_model_chunk_t *c, const loong_param_params_t *p)
{
    for (int i = 0; i < c->num_flats; i++) {
        const loong_flat_t *f = &c->flats[i];
        bool sums = f->partial == p->place.partial &&
                    (!f->partial || f->sum_group == p->place.group);
        if (f->dtype == p->dtype && f->frozen == p->frozen && sums &&
            f->copy == p->place.copy && f->expert == p->place.expert &&
            f->tie == p->place.tie &&
            f->optimizer == p->optimizer &&
            f->weight_decay == p->weight_decay &&
            f->sign_rate == p->sign_rate) {
            return i;
        }
    }
    if (c->num_flats == LOONG_MAX_FLATS) {
        return -1;
    }
    loong_flat_t *flat = &c->flats[c->num_flats];
    flat->dtype = p->dtype;
    flat->frozen = p->frozen;
    flat->optimizer = p->optimizer;
    flat->weight_decay = p->weight_decay;
    flat->sign_rate = p->sign_rate;
    flat->copy = p->place.copy;
    flat->partial = p->place.partial;
    flat->expert = p->place.expert;
    flat->sum_group = p->place.group;
    flat->tie = p->place.tie;
    return c->num_flats++;
}

/* Places of all parameters: packs stay together, each pack begins at an
 * aligned element of its flat buffer. */
static loong_status_t place_params(const loong_graph_t *g,
                                   loong_model_chunk_t *c)
{
    c->num_params = g->num_params;
    LOONG_TRY(loongi_arena_alloc(
        c->arena, (size_t)g->num_params * sizeof(*c->params), &c->params));
    for (int64_t i = 0; i < g->num_params; i++) {
        const loong_param_t *source = &g->params[i];
        loong_chunk_param_t *place = &c->params[i];
        char *name = NULL;
        LOONG_TRY(loongi_arena_strdup(c->arena, source->params.name, &name));
        place->params = source->params;
        place->params.name = place->name = name;
        place->shape = loongi_param_shape(&source->params);
        place->elements = loongi_shape_elements(&place->shape);
        place->flat = flat_of(c, &source->params);
        LOONG_CHECK(c->ctx, place->flat >= 0, LOONG_ERR_UNSUPPORTED,
                    "more than %d kinds of parameters (types, frozen or not, "
                    "factors of weight decay)",
                    LOONG_MAX_FLATS);
        loong_flat_t *flat = &c->flats[place->flat];
        place->begins_pack = source->first == i;
        if (place->begins_pack) {
            flat->elements = loongi_round_up(flat->elements, FLAT_ALIGN);
        }
        place->flat_offset = flat->elements;
        flat->elements += place->elements;
    }
    for (int f = 0; f < c->num_flats; f++) {
        loong_flat_t *flat = &c->flats[f];
        flat->elements = loongi_round_up(flat->elements, FLAT_ALIGN);
        flat->param_offset = c->param_bytes;
        c->param_bytes +=
            flat->elements * (int64_t)loong_dtype_size(flat->dtype);
        flat->grad_offset = flat->frozen ? -1 : c->grad_bytes;
        c->grad_bytes += flat->frozen ? 0
                                      : flat->elements *
                                            (int64_t)loong_dtype_size(
                                                g->precision.wide);
    }
    return LOONG_OK;
}

/* ---- ports -------------------------------------------------------------- */

static loong_status_t make_port(loong_model_chunk_t *c, const loong_graph_t *g,
                                const char *name, loong_val_t v,
                                loong_operand_t operand, loong_port_t *port)
{
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(c->arena, name, &copy));
    port->name = copy;
    port->dtype = g->values[v].dtype;
    port->shape = g->values[v].shape;
    port->operand = operand;
    return LOONG_OK;
}

static loong_status_t place_inputs(const loong_graph_t *g,
                                   loong_model_chunk_t *c)
{
    for (int i = 0; i < g->num_inputs; i++) {
        loong_val_t v = g->inputs[i].value;
        bool back = g->inputs[i].gradient;
        bool edge = g->inputs[i].edge;
        int64_t *room = edge ? &c->edge_bytes[back] : &c->input_bytes;
        loong_operand_t at = {edge ? LOONG_BASE_EDGE + back : LOONG_BASE_INPUT,
                              *room};
        LOONG_TRY(make_port(c, g, g->inputs[i].name, v, at, &c->inputs[i]));
        c->inputs[i].boundary = g->inputs[i].boundary;
        c->inputs[i].gradient = back;
        c->inputs[i].edge = edge;
        c->num_inputs++;
        *room +=
            loongi_round_up((int64_t)loongi_value_bytes(g, v), BUFFER_ALIGN);
    }
    return LOONG_OK;
}

/* ---- operands ----------------------------------------------------------- */

typedef struct compiler {
    loong_graph_t *g;
    loong_model_chunk_t *c;
    const loong_compile_params_t *params;
    int64_t num_order;
    int32_t *order; /* live nodes with a kernel, as they run */
    loong_step_t *steps; /* per entry of order */
    int64_t *workspace;  /* per node */
    bool *comm;          /* per node: a collective that runs on its lane */
    int32_t *range;      /* per entry of order: the part run in rounds */
    bool *leaves;        /* per value: such a part */
    int64_t *state_offset; /* per state */
    loong_layout_t layout;
} compiler_t;

static int64_t column_bytes(const loong_value_t *value)
{
    return value->column * (int64_t)loong_dtype_size(value->dtype);
}

static loong_operand_t operand_of(const compiler_t *k, loong_val_t v)
{
    const loong_graph_t *g = k->g;
    const loong_model_chunk_t *c = k->c;
    const loong_value_t *value = &g->values[v];
    const loong_value_t *root = &g->values[value->root];
    loong_operand_t at = {LOONG_BASE_NONE, 0};
    if (value->into >= 0) {
        return operand_of(k, value->into);
    }
    if (root->kind == LOONG_VALUE_NODE) {
        at = k->layout.place[value->root];
    } else if (root->kind == LOONG_VALUE_INPUT) {
        at = c->inputs[root->index].operand;
    } else if (root->kind == LOONG_VALUE_STATE) {
        at.base = LOONG_BASE_STATE;
        at.offset = k->state_offset[root->index];
    } else {
        const loong_chunk_param_t *place = &c->params[root->index];
        const loong_flat_t *flat = &c->flats[place->flat];
        bool grad = root->kind == LOONG_VALUE_GRAD;
        at.base = grad ? LOONG_BASE_GRAD : LOONG_BASE_PARAM;
        at.offset = (grad ? flat->grad_offset : flat->param_offset) +
                    place->flat_offset *
                        (int64_t)loong_dtype_size(value->dtype);
    }
    at.offset += column_bytes(value);
    return at;
}

static loong_karg_t karg_of(const loong_graph_t *g, loong_val_t v)
{
    loong_karg_t arg = {LOONG_F64, 0, {0, 0, 0, 0}, 0};
    if (v < 0) {
        return arg;
    }
    const loong_value_t *value = &g->values[v];
    arg.dtype = value->dtype;
    arg.rank = value->shape.rank;
    memcpy(arg.dim, value->shape.dim, sizeof(arg.dim));
    arg.ld = arg.rank > 1 ? value->ld : arg.dim[0];
    return arg;
}

/* An output that nobody reads may be left out when the op allows it. */
static bool left_out(const compiler_t *k, const loong_node_t *node, int o,
                     const int32_t *uses)
{
    loong_val_t v = node->out[o];
    return v < 0 || ((node->op->optional_out & (1u << o)) && uses[v] == 0 &&
                     k->g->values[v].into < 0);
}

/* Of the ordinary case: what is made again is not there. */
static void tell_cost(const loong_node_t *node, loong_step_t *step)
{
    const loong_kernel_query_t *q = &step->query;
    if (node->again) {
        return;
    }
    if (node->op->cost != NULL) {
        node->op->cost(q, &step->cost);
    } else {
        for (int i = 0; i < q->num_in + q->num_out; i++) {
            const loong_karg_t *a = &q->arg[i];
            step->cost.bytes += (double)loong_karg_rows(a) *
                                (double)loong_karg_cols(a) *
                                (double)loong_dtype_size(a->dtype) *
                                (a->rank > 0);
        }
    }
}

static loong_status_t query_node(compiler_t *k, const loong_node_t *node,
                                 const int32_t *uses, loong_step_t *step)
{
    loong_graph_t *g = k->g;
    loong_kernel_query_t *q = &step->query;
    step->op = node->op;
    step->recomputed = node->recomputed;
    step->when = node->logged  ? LOONG_WHEN_LOGGED
                 : node->again ? LOONG_WHEN_AGAIN
                               : LOONG_WHEN_ALWAYS;
    step->repeat = node->repeat != 0 ? LOONG_REPEAT_REPEATS : 0;
    q->op = node->op->name;
    q->num_in = node->num_in;
    q->num_out = node->num_out;
    q->threads = k->params->threads;
    q->policy = k->params->policy;
    if (node->op->attr_size > 0) {
        void *attr = NULL;
        LOONG_TRY(
            loongi_arena_alloc(k->c->arena, node->op->attr_size, &attr));
        memcpy(attr, node->attr, node->op->attr_size);
        q->attr = attr;
    }
    char *scope = NULL;
    LOONG_TRY(loongi_arena_strdup(k->c->arena, node->scope, &scope));
    step->scope = scope;
    for (int i = 0; i < node->num_in; i++) {
        q->arg[i] = karg_of(g, node->in[i]);
    }
    for (int o = 0; o < node->num_out; o++) {
        if (left_out(k, node, o, uses)) {
            node->out[o] = LOONG_NONE;
            continue;
        }
        const loong_value_t *value = &g->values[node->out[o]];
        q->arg[node->num_in + o] = karg_of(g, node->out[o]);
        if (value->into >= 0) {
            q->accumulate |= 1u << o;
            step->add |= value->write == LOONG_WRITE_ADD ? 1u << o : 0;
            step->add_later |= value->write == LOONG_WRITE_FIRST ? 1u << o : 0;
        }
        if (node->repeat != 0 &&
            (value->into >= 0 || k->leaves[node->out[o]])) {
            q->accumulate |= 1u << o;
            step->add_rounds |= 1u << o;
        }
    }
    tell_cost(node, step);
    return LOONG_OK;
}

/* ---- kernels ------------------------------------------------------------ */

static loong_status_t find_group(loong_context_t *ctx, loong_step_t *step)
{
    LOONG_CHECK(ctx, step->op != NULL && step->op->group != NULL,
                LOONG_ERR_UNSUPPORTED,
                "kernel %s communicates, but op %s does not tell the group",
                step->kernel->name, step->query.op);
    step->group = step->op->group(step->query.attr);
    return LOONG_OK;
}

loong_status_t loongi_step_choose(loong_context_t *ctx, loong_arena_t *arena,
                                  const char *device, loong_step_t *step)
{
    loong_text_t why = loongi_text_begin(ctx);
    const loong_kernel_t *kernel = NULL;
    for (int i = 0; step->kernel == NULL; i++) {
        char reason[LOONG_REASON_SIZE] = "";
        kernel = loong_find_kernel(ctx, step->query.op, device, i);
        if (kernel == NULL) {
            break;
        }
        if (kernel->support == NULL || kernel->support(&step->query, reason)) {
            step->kernel = kernel;
        } else {
            loongi_text_printf(&why, "%s%s: %s", why.length > 0 ? "; " : "",
                               kernel->name, reason);
        }
    }
    char *copy = NULL;
    loong_status_t status =
        loongi_arena_strdup(arena, loongi_text_get(&why), &copy);
    step->refusals = copy;
    if (status == LOONG_OK && step->kernel == NULL) {
        const char *more = why.length > 0 ? ": " : "; see train.host_ops";
        status = LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                            "no kernel of device %s for %s%s%s", device,
                            step->query.op, more, loongi_text_get(&why));
    }
    if (status == LOONG_OK && step->kernel->communicates) {
        status = find_group(ctx, step);
    }
    step->workspace_bytes =
        status == LOONG_OK && step->kernel->workspace != NULL
            ? (int64_t)step->kernel->workspace(&step->query)
            : 0;
    loongi_text_free(&why);
    return status;
}

/* ---- order and steps ---------------------------------------------------- */

static loong_status_t order_nodes(compiler_t *k)
{
    loong_graph_t *g = k->g;
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)g->num_nodes * sizeof(*k->order), &k->order));
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        for (int64_t n = 0; n < g->num_nodes; n++) {
            const loong_node_t *node = &g->nodes[n];
            if (!node->dead && !node->op->view &&
                node->program == (loong_program_kind_t)p) {
                k->order[k->num_order++] = (int32_t)n;
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t choose_kernels(compiler_t *k)
{
    loong_graph_t *g = k->g;
    int32_t *uses = NULL;
    LOONG_TRY(loongi_check_kernels(g, k->order, k->num_order,
                                   k->params->device));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)k->num_order * sizeof(*k->steps), &k->steps));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)g->num_nodes * sizeof(*k->workspace),
        &k->workspace));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)g->num_nodes * sizeof(*k->comm), &k->comm));
    LOONG_TRY(loongi_repeat_leaves(g, &k->leaves));
    LOONG_TRY(loongi_graph_count_uses(g, &uses));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < k->num_order && status == LOONG_OK; i++) {
        loong_step_t *step = &k->steps[i];
        const loong_node_t *node = &g->nodes[k->order[i]];
        status = query_node(k, node, uses, step);
        if (status == LOONG_OK) {
            status = loongi_step_choose(g->ctx, k->c->arena,
                                        k->params->device, step);
        }
        k->workspace[k->order[i]] = step->workspace_bytes;
        if (status != LOONG_OK) {
            loongi_error_note(g->ctx, "in scope '%s'", node->scope);
        } else {
            k->comm[k->order[i]] =
                k->params->lanes && step->kernel->communicates;
        }
    }
    loongi_free(g->ctx, uses);
    return status;
}

static loong_status_t place_states(compiler_t *k)
{
    loong_graph_t *g = k->g;
    LOONG_TRY(loongi_arena_alloc(
        g->arena,
        (size_t)LOONG_MAX(g->num_states, 1) * sizeof(*k->state_offset),
        &k->state_offset));
    for (int64_t s = 0; s < g->num_states; s++) {
        k->state_offset[s] = k->c->state_bytes;
        k->c->state_bytes += loongi_round_up(
            (int64_t)loongi_value_bytes(g, g->states[s]), BUFFER_ALIGN);
    }
    return LOONG_OK;
}

/* The watches outlive the graph. */
static loong_status_t copy_watches(compiler_t *k)
{
    loong_model_chunk_t *c = k->c;
    const loong_watch_t *from = c->watches;
    LOONG_TRY(loongi_arena_alloc(
        c->arena,
        (size_t)LOONG_MAX(c->num_watches, 1) * sizeof(*c->watches),
        &c->watches));
    for (int64_t i = 0; i < c->num_watches; i++) {
        char *name = NULL;
        c->watches[i] = from[i];
        LOONG_TRY(loongi_arena_strdup(c->arena, from[i].name, &name));
        c->watches[i].name = name;
        c->watches[i].offset =
            k->state_offset[k->g->values[from[i].state].index];
    }
    return LOONG_OK;
}

/* Where parts that run in rounds begin and end. */
static void mark_rounds(compiler_t *k, int64_t i)
{
    const loong_graph_t *g = k->g;
    loong_program_kind_t program = g->nodes[k->order[i]].program;
    bool first = i == 0 || k->range[i - 1] != k->range[i] ||
                 g->nodes[k->order[i - 1]].program != program;
    bool last = i + 1 == k->num_order || k->range[i + 1] != k->range[i] ||
                g->nodes[k->order[i + 1]].program != program;
    if (k->range[i] != 0 && first) {
        k->steps[i].repeat |= LOONG_REPEAT_BEGINS;
        k->steps[i].rounds = operand_of(k, g->rounds[k->range[i] - 1]);
    }
    if (k->range[i] != 0 && last) {
        k->steps[i].repeat |= LOONG_REPEAT_ENDS;
    }
}

static loong_status_t emit_steps(compiler_t *k)
{
    loong_model_chunk_t *c = k->c;
    for (int64_t i = 0; i < k->num_order; i++) {
        const loong_node_t *node = &k->g->nodes[k->order[i]];
        loong_step_t *step = &k->steps[i];
        loong_program_t *p = &c->programs[node->program];
        mark_rounds(k, i);
        for (int a = 0; a < node->num_in + node->num_out; a++) {
            loong_val_t v =
                a < node->num_in ? node->in[a] : node->out[a - node->num_in];
            if (v >= 0) {
                step->operand[a] = operand_of(k, v);
                p->bases |= 1U << step->operand[a].base;
            }
        }
        if (step->workspace_bytes > 0) {
            step->workspace = k->layout.workspace[k->order[i]];
        }
        LOONG_TRY(loongi_grow(c->ctx, &p->steps, &p->cap_steps,
                              p->num_steps + 1, sizeof(*p->steps), "program"));
        p->steps[p->num_steps++] = *step;
    }
    c->slot_bytes = k->layout.slot_bytes;
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        c->programs[p].kind = (loong_program_kind_t)p;
        c->programs[p].scratch_bytes = k->layout.scratch_bytes[p];
        c->scratch_bytes =
            LOONG_MAX(c->scratch_bytes, k->layout.scratch_bytes[p]);
    }
    return LOONG_OK;
}

static loong_status_t make_results(compiler_t *k)
{
    const loong_graph_t *g = k->g;
    loong_model_chunk_t *c = k->c;
    for (int i = 0; i < g->num_outputs; i++) {
        loong_val_t v = g->outputs[i].value;
        LOONG_TRY(make_port(c, g, g->outputs[i].name, v, operand_of(k, v),
                            &c->outputs[i]));
        c->outputs[i].boundary = g->outputs[i].boundary;
        c->outputs[i].gradient = g->outputs[i].gradient;
        c->outputs[i].edge = g->outputs[i].edge;
        c->num_outputs++;
    }
    for (int i = 0; i < g->num_losses; i++) {
        const loong_loss_t *from = &g->losses[i];
        loong_loss_port_t *to = &c->losses[c->num_losses++];
        char *normaliser = NULL;
        LOONG_TRY(make_port(c, g, from->params.name, from->value,
                            operand_of(k, from->value), &to->port));
        LOONG_TRY(loongi_arena_strdup(c->arena, from->params.normaliser,
                                      &normaliser));
        to->params = from->params;
        to->params.name = to->port.name;
        to->params.normaliser = normaliser;
    }
    return LOONG_OK;
}

/* ---- the whole ---------------------------------------------------------- */

static loong_status_t run_passes(compiler_t *k, bool train)
{
    loong_graph_t *g = k->g;
    const loong_compile_params_t *params = k->params;
    loong_fuse_scopes_t scopes = {
        params->num_wide, params->wide, train ? params->num_recompute : 0,
        params->recompute};
    /* What is cut into rows, or logged, is left as it was built. */
    bool more = params->fuse && !params->overlap && params->num_watch == 0 &&
                loongi_fuses_products(g->ctx, params->device);
    LOONG_TRY(loong_graph_status(g));
    if (train) {
        LOONG_TRY(loongi_pass_label(g, params->num_watch, params->watch));
    }
    if (params->fuse) {
        LOONG_TRY(loongi_pass_fuse(g, &scopes));
    }
    if (more) {
        LOONG_TRY(loongi_pass_fuse_gelu(g, &scopes));
    }
    if (train) {
        LOONG_TRY(loongi_graph_differentiate(g));
        LOONG_TRY(loongi_graph_remove_dead(g));
        if (params->fuse) {
            LOONG_TRY(loongi_pass_absorb(g));
            LOONG_TRY(loongi_pass_fuse_sums(g, params->device, &scopes));
        }
        LOONG_TRY(more ? loongi_pass_fuse_gradients(g, &scopes) : LOONG_OK);
        LOONG_TRY(loongi_pass_precision(g, params));
        LOONG_TRY(loongi_pass_recompute(g, params->num_recompute,
                                        params->recompute));
        if (params->split) {
            LOONG_TRY(loongi_pass_split(g));
        }
        if (params->ahead || params->split) {
            LOONG_TRY(loongi_pass_gather(g));
        }
        LOONG_TRY(loongi_pass_repeat(g));
        LOONG_TRY(loongi_pass_accumulate(g, !params->no_direct));
        LOONG_TRY(loongi_graph_remove_dead(g));
        LOONG_TRY(loongi_pass_watch(g, params->num_watch > 0,
                                    &k->c->num_watches, &k->c->watches));
    } else {
        LOONG_TRY(loongi_pass_precision(g, params));
        for (int64_t n = 0; n < g->num_nodes; n++) {
            g->nodes[n].program = LOONG_PROGRAM_E;
        }
    }
    LOONG_TRY(loongi_graph_remove_dead(g));
    LOONG_TRY(loongi_pass_dense(g));
    if (!params->no_assemble) {
        LOONG_TRY(loongi_pass_assemble(g));
    }
    return params->overlap && params->lanes ? loongi_pass_overlap(g) : LOONG_OK;
}

static loong_status_t compile(loong_graph_t *g, bool train,
                              const loong_compile_params_t *params,
                              loong_model_chunk_t *c)
{
    compiler_t k;
    memset(&k, 0, sizeof(k));
    k.g = g;
    k.c = c;
    k.params = params;
    LOONG_TRY(run_passes(&k, train));
    LOONG_TRY(place_params(g, c));
    LOONG_TRY(place_inputs(g, c));
    LOONG_TRY(place_states(&k));
    LOONG_TRY(copy_watches(&k));
    LOONG_TRY(order_nodes(&k));
    LOONG_TRY(choose_kernels(&k));
    LOONG_TRY(loongi_arena_alloc(
        g->arena, (size_t)LOONG_MAX(k.num_order, 1) * sizeof(*k.range),
        &k.range));
    LOONG_TRY(loongi_repeat_ranges(g, k.num_order, k.order, k.range));
    loongi_pass_hoist(g, k.num_order, k.order, k.steps, k.comm, k.range);
    loong_layout_params_t layout = {
        k.num_order, k.order, k.workspace, params->in_place, k.comm, k.range,
        params->slot_room, params->least_in_slot};
    LOONG_TRY(loongi_pass_memory(g, &layout, &k.layout));
    LOONG_TRY(emit_steps(&k));
    return make_results(&k);
}

loong_status_t loongi_model_chunk_compile(loong_graph_t *graph, bool train,
                                          const loong_compile_params_t *params,
                                          loong_model_chunk_t **chunk_p)
{
    loong_context_t *ctx = graph->ctx;
    loong_model_chunk_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "chunk", &c));
    c->ctx = ctx;
    c->precision = graph->precision;
    loong_status_t status = loongi_arena_create(ctx, "chunk", &c->arena);
    if (status == LOONG_OK) {
        status = compile(graph, train, params, c);
    }
    if (status != LOONG_OK) {
        loongi_model_chunk_destroy(&c);
        return status;
    }
    *chunk_p = c;
    return LOONG_OK;
}
