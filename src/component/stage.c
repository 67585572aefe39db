/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and compiles the chunks of one stage, runs one program alone, sets
 * parameters. Called by component.c and by what loads checkpoints. Read
 * src/pass/program.h and src/optim/shards.h before. */
#include "stage.h"

#include <string.h>

#include "passes.h"

/* ---- planning ----------------------------------------------------------- */

/* What other stages hold too; the first holder speaks for it. */
static void mark_ties(const loong_stage_t *s, loong_graph_t *g)
{
    const loong_ties_t *ties = &s->params->ties;
    for (int64_t i = 0; i < g->num_params; i++) {
        loong_param_params_t *p = &g->params[i].params;
        p->place.tie = loongi_ties_number(ties, p->name);
        if (p->place.tie > 0 &&
            ties->list[p->place.tie - 1].holders[0] != s->number) {
            p->place.copy = true;
        }
    }
}

static loong_status_t build_chunk(loong_stage_t *s, loong_variant_t which)
{
    const loong_component_params_t *p = s->params;
    loong_graph_t *graph = NULL;
    loong_mesh_t mesh = p->mesh;
    loong_model_request_t request = p->request;
    request.train = which == LOONG_VARIANT_TRAIN;
    request.z_loss = request.train ? request.z_loss : 0.0;
    request.routing = request.train ? request.routing : LOONG_ROUTING_LIVE;
    request.first_layer = s->cut.first_layer;
    request.num_layers = s->cut.num_layers;
    request.begins = s->cut.begins;
    request.ends = s->cut.ends;
    if (which == LOONG_VARIANT_LOGITS) {
        request.head = LOONG_MODEL_LOGITS;
        request.rows = request.max_seqlen = p->logits_rows;
        request.seq_length = LOONG_MIN(request.seq_length, p->logits_rows);
        request.routing = p->logits_routing;
        mesh.size[LOONG_AXIS_CP] = 1; /* one rank has all of a prompt */
        mesh.coord[LOONG_AXIS_CP] = 0;
        mesh.cp_a2a = 1;
    }
    LOONG_TRY(loong_graph_create(s->ctx, p->precision, &graph));
    loong_graph_set_mesh(graph, &mesh);
    loong_status_t status = p->family->build(graph, p->config, &request);
    mark_ties(s, graph);
    for (int i = 0; i < p->num_still; i++) {
        loongi_graph_stop_gradient(graph, p->still[i]);
    }
    if (status == LOONG_OK) {
        status = loong_graph_status(graph);
    }
    if (status == LOONG_OK) {
        loong_compile_params_t compile = p->compile;
        const loong_model_chunk_t *train = s->chunk[LOONG_VARIANT_TRAIN];
        /* An evaluation finds the slot of a training empty. */
        compile.slot_room = train != NULL ? train->slot_bytes : 0;
        status = loongi_model_chunk_compile(graph, request.train, &compile,
                                            &s->chunk[which]);
    }
    loong_graph_destroy(&graph);
    return status;
}

/* Who keeps what of the parameters, and what that puts into programs. */
static loong_status_t share_out(loong_stage_t *s)
{
    const loong_component_params_t *p = s->params;
    const loong_model_chunk_t *first =
        s->chunk[p->train ? LOONG_VARIANT_TRAIN : LOONG_VARIANT_EVAL];
    LOONG_TRY(loongi_shards_create(first, &p->mesh, &p->shards, &s->shards));
    for (int i = 0; i < LOONG_VARIANT_COUNT; i++) {
        if (s->chunk[i] != NULL) {
            LOONG_TRY(loongi_shards_place(s->shards, s->chunk[i]));
        }
    }
    return p->train ? loongi_optimizer_create(first, s->shards,
                                              &p->optimizer, &s->optimizer)
                    : LOONG_OK;
}

/* All steps are in the programs. */
static void place_lanes(loong_stage_t *s)
{
    int64_t least = s->params->compile.lane_work;
    for (int i = 0; i < LOONG_VARIANT_COUNT; i++) {
        for (int p = 0; p < LOONG_PROGRAM_COUNT && s->chunk[i] != NULL; p++) {
            loongi_pass_lanes(&s->chunk[i]->programs[p], least);
        }
    }
    if (s->optimizer != NULL) {
        loongi_pass_lanes(&s->optimizer->update, least);
        loongi_pass_lanes(&s->optimizer->swap, least);
    }
}

static loong_status_t plan(loong_stage_t *s)
{
    const loong_component_params_t *p = s->params;
    if (p->train) {
        LOONG_TRY(build_chunk(s, LOONG_VARIANT_TRAIN));
    }
    LOONG_TRY(build_chunk(s, LOONG_VARIANT_EVAL));
    if (p->logits_rows > 0) {
        LOONG_TRY(build_chunk(s, LOONG_VARIANT_LOGITS));
    }
    s->layout = s->chunk[LOONG_VARIANT_EVAL];
    LOONG_TRY(share_out(s));
    if (p->compile.lanes) {
        place_lanes(s);
    }
    return LOONG_OK;
}

loong_status_t loongi_stage_create(loong_context_t *ctx,
                                   const loong_component_params_t *params,
                                   const loong_stage_split_t *cuts, int number,
                                   loong_stage_t **stage_p)
{
    loong_stage_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "stage", &s));
    s->ctx = ctx;
    s->params = params;
    s->number = number;
    s->cut = cuts[number];
    loong_status_t status = plan(s);
    if (status != LOONG_OK) {
        loongi_stage_destroy(&s);
        return status;
    }
    *stage_p = s;
    return LOONG_OK;
}

void loongi_stage_destroy(loong_stage_t **stage_p)
{
    loong_stage_t *s = *stage_p;
    if (s == NULL) {
        return;
    }
    loongi_optimizer_destroy(&s->optimizer);
    loongi_transfer_destroy(&s->transfer[LOONG_VARIANT_COUNT]);
    for (int i = 0; i < LOONG_VARIANT_COUNT; i++) {
        loongi_transfer_destroy(&s->transfer[i]);
        loongi_model_chunk_destroy(&s->chunk[i]);
    }
    loongi_shards_destroy(&s->shards);
    loongi_free(s->ctx, s);
    *stage_p = NULL;
}

/* ---- running ------------------------------------------------------------- */

loong_status_t loongi_stage_prepare(loong_stage_t *stage)
{
    loong_stage_t *s = stage;
    for (int i = 0; i < LOONG_VARIANT_COUNT; i++) {
        if (s->chunk[i] != NULL) {
            LOONG_TRY(loongi_model_chunk_prepare(s->chunk[i]));
        }
    }
    if (s->optimizer != NULL) {
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->norm));
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->update));
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->swap));
    }
    return LOONG_OK;
}

loong_status_t loongi_stage_load(const loong_stage_t *stage)
{
    const loong_optimizer_t *o = stage->optimizer;
    if (o == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_program_load(&stage->run, &o->norm, false));
    LOONG_TRY(loongi_program_load(&stage->run, &o->update, false));
    return loongi_program_load(&stage->run, &o->swap, false);
}

void *loongi_stage_port(const loong_stage_t *stage, const loong_port_t *port)
{
    return stage->run.base[port->operand.base] + port->operand.offset;
}

loong_status_t loongi_stage_execute(loong_stage_t *stage,
                                    loong_variant_t variant,
                                    loong_program_kind_t kind,
                                    const loong_frame_t *frame)
{
    return loongi_program_run(&stage->run,
                              &stage->chunk[variant]->programs[kind], frame);
}

/* ---- parameters ---------------------------------------------------------- */

loong_status_t loongi_stage_set_param(loong_stage_t *stage,
                                      const loong_chunk_param_t *place,
                                      int64_t at, int64_t count,
                                      const double *values)
{
    return loongi_shards_set(stage->shards, stage->upload, place, at, count,
                             values);
}

loong_status_t loongi_stage_upload(loong_stage_t *stage)
{
    int64_t elements = 0;
    for (int64_t i = 0; i < stage->layout->num_params; i++) {
        elements += loongi_shape_elements(&stage->layout->params[i].shape);
    }
    return loongi_upload_create(&stage->run,
                                (size_t)elements * sizeof(double),
                                &stage->upload);
}

loong_status_t loongi_stage_uploaded(loong_stage_t *stage,
                                     loong_status_t status)
{
    loong_status_t finished = loongi_upload_finish(&stage->upload);
    return status != LOONG_OK ? status : finished;
}
