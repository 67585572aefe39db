/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <string.h>

#include "passes.h"

/* ---- planning ----------------------------------------------------------- */

/* Of the whole model: a glob that matches nothing is a slip. */
static loong_status_t check_globs(const loong_graph_t *g,
                                  const loong_compile_params_t *p)
{
    LOONG_TRY(loongi_pass_check_globs(g, "scopes in fp32", p->num_wide,
                                      p->wide));
    LOONG_TRY(loongi_pass_check_globs(g, "scopes to log", p->num_watch,
                                      p->watch));
    LOONG_TRY(loongi_pass_check_globs(g, "scopes to recompute",
                                      p->num_recompute, p->recompute));
    return loongi_pass_check_globs(g, "scopes to offload", p->num_offload,
                                   p->offload);
}

static loong_status_t build_chunk(loong_stage_t *s, loong_stage_chunk_t which)
{
    loong_graph_t *graph = NULL;
    loong_mesh_t mesh = s->params.mesh;
    loong_model_request_t request = s->params.request;
    request.train = which == LOONG_STAGE_TRAIN;
    request.head = LOONG_MODEL_LOSS;
    request.z_loss = request.train ? request.z_loss : 0.0;
    if (which == LOONG_STAGE_LOGITS) {
        request.head = LOONG_MODEL_LOGITS;
        request.tokens = request.max_seqlen = s->params.logits_tokens;
        mesh.size[LOONG_AXIS_CP] = 1; /* one rank has all of a prompt */
        mesh.coord[LOONG_AXIS_CP] = 0;
    }
    LOONG_TRY(loong_graph_create(s->ctx, s->params.precision, &graph));
    loong_graph_set_mesh(graph, &mesh);
    loong_status_t status =
        s->params.family->build(graph, s->params.config, &request);
    if (status == LOONG_OK) {
        status = loong_graph_status(graph);
    }
    if (status == LOONG_OK) {
        status = loongi_chunk_compile(graph, request.train,
                                      &s->params.compile, &s->chunk[which]);
    }
    loong_graph_destroy(&graph);
    return status;
}

/* The list of all parameters: that of the model on one rank. */
static loong_status_t keep_whole(loong_stage_t *s, const loong_graph_t *g)
{
    s->num_whole = g->num_params;
    LOONG_TRY(loongi_arena_alloc(
        s->arena, (size_t)g->num_params * sizeof(*s->whole), &s->whole));
    for (int64_t i = 0; i < g->num_params; i++) {
        const loong_param_params_t *p = &g->params[i].params;
        loong_whole_param_t *w = &s->whole[i];
        char *name = NULL;
        LOONG_TRY(loongi_arena_strdup(s->arena, p->name, &name));
        w->name = name;
        w->ndim = p->shape.rank;
        w->shape[0] = p->shape.dim[0] - p->padding;
        w->shape[1] = p->shape.rank > 1 ? p->shape.dim[1] : 1;
        w->frozen = p->frozen;
    }
    return LOONG_OK;
}

static loong_status_t list_whole(loong_stage_t *s)
{
    loong_graph_t *graph = NULL;
    loong_model_request_t request = s->params.request;
    request.train = request.sequence_parallel = false;
    request.tokens *= s->params.mesh.size[LOONG_AXIS_CP];
    request.head = LOONG_MODEL_LOSS;
    request.begins = request.ends = true;
    request.first_layer = 0;
    request.num_layers = s->facts.num_layers;
    LOONG_TRY(loong_graph_create(s->ctx, s->params.precision, &graph));
    loong_status_t status =
        s->params.family->build(graph, s->params.config, &request);
    if (status == LOONG_OK) {
        status = check_globs(graph, &s->params.compile);
    }
    if (status == LOONG_OK) {
        status = keep_whole(s, graph);
    }
    loong_graph_destroy(&graph);
    return status;
}

static void add_up(loong_stage_t *s)
{
    int64_t *bytes = s->bytes;
    for (int i = 0; i < LOONG_STAGE_CHUNKS; i++) {
        const loong_chunk_t *c = s->chunk[i];
        if (c == NULL) {
            continue;
        }
        int64_t slots = i == LOONG_STAGE_TRAIN ? s->num_slots : 1;
        bytes[LOONG_BASE_PARAM] = c->param_bytes;
        bytes[LOONG_BASE_STATE] =
            LOONG_MAX(bytes[LOONG_BASE_STATE], c->state_bytes);
        bytes[LOONG_BASE_SCRATCH] =
            LOONG_MAX(bytes[LOONG_BASE_SCRATCH], c->scratch_bytes);
        bytes[LOONG_BASE_SLOT] =
            LOONG_MAX(bytes[LOONG_BASE_SLOT], slots * c->slot_bytes);
        bytes[LOONG_BASE_INPUT] =
            LOONG_MAX(bytes[LOONG_BASE_INPUT], slots * c->input_bytes);
        for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
            bytes[LOONG_BASE_COMM] = LOONG_MAX(bytes[LOONG_BASE_COMM],
                                               c->programs[p].comm_bytes);
        }
    }
    if (s->optimizer != NULL) {
        const loong_optimizer_t *o = s->optimizer;
        bytes[LOONG_BASE_GRAD] = s->chunk[LOONG_STAGE_TRAIN]->grad_bytes;
        bytes[LOONG_BASE_OPTIM] = o->optim_bytes;
        int64_t scratch = LOONG_MAX(o->norm.scratch_bytes,
                                    o->update.scratch_bytes);
        bytes[LOONG_BASE_SCRATCH] =
            LOONG_MAX(bytes[LOONG_BASE_SCRATCH], scratch);
    }
}

/* Who keeps what of the parameters, and what that puts into programs. */
static loong_status_t share_out(loong_stage_t *s)
{
    const loong_stage_params_t *p = &s->params;
    const loong_chunk_t *first =
        s->chunk[p->train ? LOONG_STAGE_TRAIN : LOONG_STAGE_EVAL];
    LOONG_TRY(loongi_shards_create(first, &p->mesh, &p->shards, &s->shards));
    for (int i = 0; i < LOONG_STAGE_CHUNKS; i++) {
        if (s->chunk[i] != NULL) {
            LOONG_TRY(loongi_shards_place(s->shards, s->chunk[i]));
        }
    }
    return p->train ? loongi_optimizer_create(s->shards, &p->optimizer,
                                              &s->optimizer)
                    : LOONG_OK;
}

static loong_status_t plan(loong_stage_t *s)
{
    const loong_stage_params_t *p = &s->params;
    LOONG_TRY(loongi_arena_create(s->ctx, "stage", &s->arena));
    LOONG_TRY(list_whole(s));
    if (p->train) {
        LOONG_TRY(build_chunk(s, LOONG_STAGE_TRAIN));
    }
    LOONG_TRY(build_chunk(s, LOONG_STAGE_EVAL));
    if (p->logits_tokens > 0) {
        LOONG_TRY(build_chunk(s, LOONG_STAGE_LOGITS));
    }
    LOONG_TRY(share_out(s));
    s->layout = s->chunk[LOONG_STAGE_EVAL];
    add_up(s);
    return LOONG_OK;
}

loong_status_t loongi_stage_create(loong_context_t *ctx,
                                   const loong_stage_params_t *params,
                                   int64_t num_slots, loong_stage_t **stage_p)
{
    loong_stage_t *s = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*s), "stage", &s));
    s->ctx = ctx;
    s->params = *params;
    s->num_slots = num_slots;
    s->run.ctx = ctx;
    params->family->facts(params->config, &s->facts);
    if (!params->cut) {
        s->params.request.begins = s->params.request.ends = true;
        s->params.request.first_layer = 0;
        s->params.request.num_layers = s->facts.num_layers;
    }
    loong_status_t status = plan(s);
    if (status != LOONG_OK) {
        loongi_stage_destroy(&s);
        return status;
    }
    *stage_p = s;
    return LOONG_OK;
}

/* ---- memory -------------------------------------------------------------- */

static bool is_shared(int base)
{
    return base == LOONG_BASE_PARAM || base == LOONG_BASE_GRAD ||
           base == LOONG_BASE_COMM;
}

void loongi_stage_destroy(loong_stage_t **stage_p)
{
    loong_stage_t *s = *stage_p;
    if (s == NULL) {
        return;
    }
    for (int b = 0; b < LOONG_BASE_COUNT && s->device != NULL; b++) {
        if (s->run.base[b] == NULL) {
            continue;
        }
        if (is_shared(b)) {
            loong_comm_free_shared(s->groups->comm[LOONG_GROUP_WORLD],
                                   &s->run.base[b]);
        } else {
            loong_device_free(s->device, s->run.base[b], (size_t)s->bytes[b]);
        }
    }
    loongi_optimizer_destroy(&s->optimizer);
    for (int i = 0; i < LOONG_STAGE_CHUNKS; i++) {
        loongi_chunk_destroy(&s->chunk[i]);
    }
    loongi_shards_destroy(&s->shards);
    loongi_arena_destroy(&s->arena);
    loongi_free(s->ctx, s);
    *stage_p = NULL;
}

static loong_status_t prepare(loong_stage_t *s)
{
    for (int i = 0; i < LOONG_STAGE_CHUNKS; i++) {
        if (s->chunk[i] != NULL) {
            LOONG_TRY(loongi_chunk_prepare(s->chunk[i]));
        }
    }
    if (s->optimizer != NULL) {
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->norm));
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->update));
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->gather));
        LOONG_TRY(loongi_program_prepare(s->ctx, &s->optimizer->late));
    }
    return LOONG_OK;
}

loong_status_t loongi_stage_allocate(loong_stage_t *stage,
                                     loong_device_t *device,
                                     const loong_groups_t *groups)
{
    loong_stage_t *s = stage;
    loong_comm_t *world = groups->comm[LOONG_GROUP_WORLD];
    s->device = device;
    s->groups = groups;
    s->run.group = groups->comm;
    s->run.stream = loong_device_stream(device);
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        void *memory = NULL;
        if (s->bytes[b] == 0) {
            continue;
        }
        const char *what = loongi_base_name((loong_base_t)b);
        if (is_shared(b)) {
            LOONG_TRY(loong_comm_alloc_shared(world, (size_t)s->bytes[b],
                                              what, &memory));
        } else {
            LOONG_TRY(loong_device_alloc(device, (size_t)s->bytes[b], what,
                                         &memory));
        }
        s->run.base[b] = memory;
    }
    return prepare(s);
}

/* ---- parameters ---------------------------------------------------------- */

void loongi_stage_set_param(loong_stage_t *stage,
                            const loong_param_place_t *place, int64_t at,
                            int64_t count, const double *values)
{
    loongi_shards_set(stage->shards, stage->run.base, place, at, count,
                      values);
}

/* ---- running ------------------------------------------------------------- */

void *loongi_stage_port(const loong_stage_t *stage, const loong_port_t *port)
{
    return stage->run.base[port->operand.base] + port->operand.offset;
}

loong_run_t loongi_stage_bind(const loong_stage_t *stage,
                              loong_stage_chunk_t chunk, int64_t slot)
{
    const loong_chunk_t *c = stage->chunk[chunk];
    loong_run_t run = stage->run;
    run.base[LOONG_BASE_SLOT] += slot * c->slot_bytes;
    run.base[LOONG_BASE_INPUT] += slot * c->input_bytes;
    return run;
}

void *loongi_run_port(const loong_run_t *run, const loong_port_t *port)
{
    return run->base[port->operand.base] + port->operand.offset;
}

loong_status_t loongi_stage_execute(loong_stage_t *stage,
                                    loong_stage_chunk_t chunk,
                                    loong_program_kind_t kind, int64_t slot,
                                    const loong_frame_t *frame)
{
    loong_run_t run = loongi_stage_bind(stage, chunk, slot);
    return loongi_program_run(&run, &stage->chunk[chunk]->programs[kind],
                              frame);
}
