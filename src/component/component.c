/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and compiles a rank's stages of one component. Called by model.c.
 * Read stage.h and src/engine/pipeline_split.h before. */
#include "component.h"

#include <string.h>

#include "component_ties.h"
#include "passes.h"

/* ---- the whole model ----------------------------------------------------- */

/* Of the whole component: a glob that matches nothing is a slip, unless it is
 * another's, which is left out. */
static loong_status_t keep_globs(loong_component_t *c, const loong_graph_t *g)
{
    loong_compile_params_t *p = &c->params.compile;
    const struct {
        const char *what;
        int *count;
        const char *const **globs;
    } lists[LOONG_GLOBS_COUNT] = {
        {"scopes in fp32", &p->num_wide, &p->wide},
        {"scopes to log", &p->num_watch, &p->watch},
        {"scopes to recompute", &p->num_recompute, &p->recompute}};
    for (int i = 0; i < LOONG_GLOBS_COUNT; i++) {
        bool products = i == LOONG_GLOBS_WATCH;
        LOONG_TRY(c->params.shared_globs[i]
                      ? loongi_pass_keep_globs(g, products, c->arena,
                                               lists[i].count, lists[i].globs)
                      : loongi_pass_check_globs(g, lists[i].what, products,
                                                *lists[i].count,
                                                *lists[i].globs));
    }
    return LOONG_OK;
}

static loong_status_t keep_whole(loong_component_t *c, const loong_graph_t *g)
{
    c->num_whole = g->num_params;
    LOONG_TRY(loongi_arena_alloc(
        c->arena, (size_t)g->num_params * sizeof(*c->whole), &c->whole));
    for (int64_t i = 0; i < g->num_params; i++) {
        const loong_param_params_t *p = &g->params[i].params;
        loong_whole_param_t *w = &c->whole[i];
        char *name = NULL;
        LOONG_TRY(loongi_arena_strdup(c->arena, p->name, &name));
        w->name = name;
        loong_chunk_param_t place = {.params = *p, .shape = p->shape};
        loong_param_slice_t part = loongi_param_slice_of(&place);
        w->ndim = p->shape.rank > 1 ? 2 : 1;
        w->shape[0] = part.all_rows;
        w->shape[1] = part.all_cols;
        w->frozen = p->frozen;
        w->adapter = p->adapter;
        w->quant = p->quant;
        w->group = p->optimizer;
        w->optimizer = loongi_optimizer_of(&c->params.optimizer, p);
    }
    return LOONG_OK;
}

static loong_status_t keep_losses(loong_component_t *c, const loong_graph_t *g)
{
    for (int i = 0; i < g->num_losses; i++) {
        const loong_loss_params_t *p = &g->losses[i].params;
        char *name = NULL;
        char *normaliser = NULL;
        for (int k = 0; k < i; k++) {
            LOONG_CHECK(c->ctx, strcmp(c->losses[k].name, p->name) != 0,
                        LOONG_ERR_CONFIG, "the model declares two losses '%s'",
                        p->name);
        }
        LOONG_TRY(loongi_arena_strdup(c->arena, p->name, &name));
        LOONG_TRY(loongi_arena_strdup(c->arena, p->normaliser, &normaliser));
        c->losses[i] = *p;
        c->losses[i].name = name;
        c->losses[i].normaliser = normaliser;
    }
    c->num_losses = g->num_losses;
    return LOONG_OK;
}

static loong_status_t keep_port(loong_component_t *c, const loong_input_t *port,
                                bool send)
{
    char *name = NULL;
    if (!port->edge) {
        return LOONG_OK;
    }
    LOONG_CHECK(c->ctx, c->num_ports < LOONG_MAX_EDGE_PORTS,
                LOONG_ERR_UNSUPPORTED, "%s: more than %d ports of edges",
                c->params.name, LOONG_MAX_EDGE_PORTS);
    LOONG_TRY(loongi_arena_strdup(c->arena, port->name, &name));
    c->ports[c->num_ports++] = (loong_edge_port_t){name, send, true};
    return LOONG_OK;
}

static loong_status_t keep_ports(loong_component_t *c, const loong_graph_t *g)
{
    for (int i = 0; i < g->num_inputs; i++) {
        LOONG_TRY(keep_port(c, &g->inputs[i], false));
    }
    for (int i = 0; i < g->num_outputs; i++) {
        LOONG_TRY(keep_port(c, &g->outputs[i], true));
    }
    return LOONG_OK;
}

/* What one rank alone would build. */
static loong_model_request_t one_rank(const loong_component_t *c)
{
    loong_model_request_t request = c->params.request;
    request.train = true;
    request.sequence_parallel = false;
    request.rows *= c->params.mesh.size[LOONG_AXIS_CP];
    return request;
}

loong_status_t loongi_component_build(const loong_component_t *component,
                                      const loong_stage_split_t *cut,
                                      loong_graph_t **graph_p)
{
    const loong_component_t *c = component;
    loong_model_request_t request = one_rank(c);
    request.first_layer = cut->first_layer;
    request.num_layers = cut->num_layers;
    request.begins = cut->begins;
    request.ends = cut->ends;
    LOONG_TRY(loong_graph_create(c->ctx, c->params.precision, graph_p));
    loong_status_t status =
        c->params.family->build(*graph_p, c->params.config, &request);
    if (status != LOONG_OK) {
        loong_graph_destroy(graph_p);
    }
    return status;
}

/* Ports that the first of several stages does not have are the last one's. */
static loong_status_t place_ports(loong_component_t *c)
{
    loong_graph_t *graph = NULL;
    int stages = c->params.mesh.size[LOONG_AXIS_PP] * c->num_chunks;
    if (c->num_ports == 0 || stages == 1) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_component_build(c, &c->cuts[0], &graph));
    for (int i = 0; i < c->num_ports; i++) {
        loong_edge_port_t *port = &c->ports[i];
        port->first = false;
        for (int k = 0; k < graph->num_inputs; k++) {
            port->first =
                port->first || strcmp(graph->inputs[k].name, port->name) == 0;
        }
    }
    loong_graph_destroy(&graph);
    return LOONG_OK;
}

/* All parameters and losses: those of the model on one rank. */
static loong_status_t list_whole(loong_component_t *c)
{
    const loong_stage_split_t all = {.num_layers = c->facts.num_layers,
                                   .begins = true,
                                   .ends = true};
    loong_graph_t *graph = NULL;
    LOONG_TRY(loongi_component_build(c, &all, &graph));
    loong_status_t status = keep_globs(c, graph);
    if (status == LOONG_OK) {
        status = keep_whole(c, graph);
    }
    if (status == LOONG_OK) {
        status = keep_losses(c, graph);
    }
    if (status == LOONG_OK) {
        status = keep_ports(c, graph);
    }
    loong_graph_destroy(&graph);
    return status;
}

/* ---- stages -------------------------------------------------------------- */

/* What the losses of a chunk are among those of the model. */
static loong_status_t number_losses(const loong_component_t *c,
                                    loong_model_chunk_t *chunk)
{
    for (int i = 0; chunk != NULL && i < chunk->num_losses; i++) {
        loong_loss_port_t *loss = &chunk->losses[i];
        loss->number = c->num_losses - 1;
        while (loss->number >= 0 &&
               strcmp(c->losses[loss->number].name, loss->params.name) != 0) {
            loss->number--;
        }
        LOONG_CHECK(c->ctx, loss->number >= 0, LOONG_ERR_CONFIG,
                    "a part of the model declares a loss '%s', the whole "
                    "model does not",
                    loss->params.name);
    }
    return LOONG_OK;
}

static loong_status_t create_stages(loong_component_t *c)
{
    size_t count = (size_t)c->num_chunks;
    LOONG_TRY(loongi_calloc(c->ctx, count, sizeof(*c->stages), "stages",
                            &c->stages));
    for (int i = 0; i < c->num_stages; i++) {
        int stage = loongi_component_stage(c, i);
        LOONG_TRY(loongi_stage_create(c->ctx, &c->params, c->cuts, stage,
                                      &c->stages[i]));
        for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
            LOONG_TRY(number_losses(c, c->stages[i]->chunk[k]));
        }
    }
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t plan(loong_component_t *c)
{
    loong_split_params_t cut = {0, c->params.mesh.size[LOONG_AXIS_PP],
                                c->params.layers_per_chunk, c->params.layout};
    c->params.family->facts(c->params.config, &c->facts);
    cut.num_layers = c->facts.num_layers;
    LOONG_TRY(loongi_arena_create(c->ctx, "component", &c->arena));
    loong_status_t status = loongi_pipeline_split(c->ctx, &cut, c->arena,
                                                  &c->cuts, &c->num_chunks);
    if (status != LOONG_OK && c->params.name != NULL) {
        loongi_error_note(c->ctx, "wanted of %s", c->params.name);
    }
    LOONG_TRY(status);
    c->num_stages = c->params.absent ? 0 : c->num_chunks;
    LOONG_TRY(list_whole(c));
    return place_ports(c);
}

loong_status_t loongi_component_create(loong_context_t *ctx,
                                       const loong_component_params_t *params,
                                       loong_component_t **component_p)
{
    loong_component_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "component", &c));
    c->ctx = c->run.ctx = ctx;
    c->params = *params;
    c->params.num_still = 0;
    loong_status_t status = plan(c);
    if (status != LOONG_OK) {
        loongi_component_destroy(&c);
        return status;
    }
    *component_p = c;
    return LOONG_OK;
}

loong_status_t loongi_component_compile(loong_component_t *component)
{
    loong_component_t *c = component;
    if (c->params.train) {
        c->params.compile.split = c->schedule->kind->split;
        c->params.compile.ahead = loongi_schedule_ahead(c->schedule);
    }
    LOONG_TRY(loongi_component_find_ties(c));
    return create_stages(c);
}

void loongi_component_destroy(loong_component_t **component_p)
{
    loong_component_t *c = *component_p;
    if (c == NULL) {
        return;
    }
    loongi_component_comms_close(&c->comms);
    loongi_program_clear(c->ctx, &c->tie);
    for (int i = 0; i < c->num_stages && c->stages != NULL; i++) {
        loongi_stage_destroy(&c->stages[i]);
    }
    loongi_free(c->ctx, c->stages);
    loongi_arena_destroy(&c->arena);
    loongi_free(c->ctx, c);
    *component_p = NULL;
}

loong_stage_t *loongi_component_head(const loong_component_t *component)
{
    for (int i = 0; i < component->num_stages; i++) {
        if (component->stages[i]->cut.ends) {
            return component->stages[i];
        }
    }
    return NULL;
}

int loongi_component_head_rank(const loong_component_t *component)
{
    const loong_schedule_t *s = component->evaluation;
    return loongi_schedule_rank(s, loongi_schedule_stages(s) - 1);
}
