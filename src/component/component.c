/* SPDX-License-Identifier: Apache-2.0 */
#include "component.h"

#include <string.h>

#include "component_memory.h"
#include "passes.h"
#include "steps.h"

/* ---- the whole model ----------------------------------------------------- */

/* Of the whole model: a glob that matches nothing is a slip. */
static loong_status_t check_globs(const loong_graph_t *g,
                                  const loong_compile_params_t *p)
{
    LOONG_TRY(loongi_pass_check_globs(g, "scopes in fp32", false, p->num_wide,
                                      p->wide));
    LOONG_TRY(loongi_pass_check_globs(g, "scopes to log", true, p->num_watch,
                                      p->watch));
    LOONG_TRY(loongi_pass_check_globs(g, "scopes to recompute", false,
                                      p->num_recompute, p->recompute));
    return loongi_pass_check_globs(g, "scopes to offload", false,
                                   p->num_offload, p->offload);
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
        loong_param_place_t place = {.params = *p, .shape = p->shape};
        loong_part_t part = loongi_part_of(&place);
        w->ndim = p->shape.rank > 1 ? 2 : 1;
        w->shape[0] = part.all_rows;
        w->shape[1] = part.all_cols;
        w->frozen = p->frozen;
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

/* All parameters and losses: those of the model on one rank. */
static loong_status_t list_whole(loong_component_t *c)
{
    loong_graph_t *graph = NULL;
    loong_model_request_t request = c->params.request;
    request.train = true;
    request.sequence_parallel = false;
    request.tokens *= c->params.mesh.size[LOONG_AXIS_CP];
    request.head = LOONG_MODEL_LOSS;
    request.begins = request.ends = true;
    request.first_layer = 0;
    request.num_layers = c->facts.num_layers;
    LOONG_TRY(loong_graph_create(c->ctx, c->params.precision, &graph));
    loong_status_t status =
        c->params.family->build(graph, c->params.config, &request);
    if (status == LOONG_OK) {
        status = check_globs(graph, &c->params.compile);
    }
    if (status == LOONG_OK) {
        status = keep_whole(c, graph);
    }
    if (status == LOONG_OK) {
        status = keep_losses(c, graph);
    }
    loong_graph_destroy(&graph);
    return status;
}

/* ---- stages -------------------------------------------------------------- */

static loong_status_t make_schedules(loong_component_t *c, int micro_batches)
{
    loong_schedule_params_t p = {.ranks = c->params.mesh.size[LOONG_AXIS_PP],
                                 .chunks = c->num_stages,
                                 .micro_batches = micro_batches,
                                 .pair = c->params.pair};
    const char *name =
        loongi_schedule_resolve(c->params.schedule, p.ranks, p.chunks);
    loongi_schedule_destroy(&c->schedule);
    if (c->params.train) {
        LOONG_TRY(loongi_schedule_create(c->ctx, name, &p, &c->schedule));
        p.folded = c->schedule->params.folded;
    }
    p.micro_batches = 1;
    p.pair = false;
    return c->evaluation == NULL
               ? loongi_schedule_create(c->ctx, "evaluate", &p,
                                        &c->evaluation)
               : LOONG_OK;
}

/* What the losses of a chunk are among those of the model. */
static loong_status_t number_losses(const loong_component_t *c,
                                    loong_chunk_t *chunk)
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
    size_t count = (size_t)c->num_stages;
    LOONG_TRY(loongi_calloc(c->ctx, count, sizeof(*c->stages), "stages",
                            &c->stages));
    for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
        LOONG_TRY(loongi_arena_alloc(
            c->arena, count * sizeof(*c->chunks[k]), &c->chunks[k]));
    }
    for (int i = 0; i < c->num_stages; i++) {
        int stage = loongi_component_stage(c, i);
        LOONG_TRY(loongi_stage_create(c->ctx, &c->params, &c->cuts[stage],
                                      &c->stages[i]));
        for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
            c->chunks[k][i] = c->stages[i]->chunk[k];
            LOONG_TRY(number_losses(c, c->chunks[k][i]));
        }
    }
    return LOONG_OK;
}

/* ---- tied ends on one rank ----------------------------------------------- */

/* The next bucket from *at_p on of what both ends hold; NULL: no more. */
static const loong_bucket_t *next_tied(const loong_stage_t *s, int64_t *at_p)
{
    while (*at_p < s->shards->num_buckets) {
        const loong_bucket_t *b = &s->shards->buckets[(*at_p)++];
        const loong_flat_t *flat = &s->shards->flats[b->flat];
        if (flat->partial && flat->sum_group == LOONG_GROUP_ENDS &&
            !flat->frozen && b->update_end > b->update_begin) {
            return b;
        }
    }
    return NULL;
}

static loong_operand_t tied_grad(const loong_component_t *c, int stage,
                                 const loong_bucket_t *b)
{
    return loongi_at(LOONG_BASE_GRAD,
                     c->rank->places[stage].begin[LOONG_BASE_GRAD] +
                         loongi_shards_grad(c->stages[stage]->shards, b,
                                            b->update_begin));
}

/* first += last, last = first. */
static loong_status_t tie_bucket(loong_component_t *c, loong_operand_t first,
                                 loong_operand_t last, int64_t n)
{
    loong_dtype_t wide = c->params.precision.wide;
    for (int k = 0; k < 2; k++) {
        loong_step_t step;
        loongi_step_begin(&step, k == 0 ? "add" : "copy", "tied ends",
                          &c->params.shards);
        step.query.num_in = 2 - k;
        step.query.num_out = 1;
        for (int i = 0; i < 3 - k; i++) {
            step.query.arg[i] = loongi_flat_arg(wide, n);
            step.operand[i] = i == 1 ? last : first;
        }
        LOONG_TRY(loongi_program_append(c->ctx, &c->tie,
                                        c->params.compile.device, &step,
                                        c->arena));
    }
    return LOONG_OK;
}

/* A table that two chunks of this rank hold: its gradients are summed, first
 * and last stage, as ranks that are both ends do. */
static loong_status_t plan_tie(loong_component_t *c)
{
    int last = c->num_stages - 1;
    int64_t at[2] = {0, 0};
    const loong_bucket_t *b[2];
    if (!c->params.mesh.ends_together || !c->params.train) {
        return LOONG_OK;
    }
    c->tie.kind = LOONG_PROGRAM_U;
    while ((b[0] = next_tied(c->stages[0], &at[0])) != NULL) {
        b[1] = next_tied(c->stages[last], &at[1]);
        int64_t n = b[0]->update_end - b[0]->update_begin;
        LOONG_CHECK(c->ctx,
                    b[1] != NULL &&
                        b[1]->update_begin == b[0]->update_begin &&
                        b[1]->update_end == b[0]->update_end,
                    LOONG_ERR_INTERNAL,
                    "the ends hold different parts of what is tied");
        LOONG_TRY(tie_bucket(c, tied_grad(c, 0, b[0]),
                             tied_grad(c, last, b[1]), n));
    }
    return LOONG_OK;
}

/* ---- memory -------------------------------------------------------------- */

static loong_status_t plan_rank(loong_component_t *c)
{
    loong_rank_use_t uses[LOONG_STAGE_CHUNKS];
    int count = 0;
    for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
        c->use[k] = -1;
        if (c->chunks[k][0] != NULL) {
            const loong_schedule_t *s =
                k == LOONG_STAGE_TRAIN ? c->schedule : c->evaluation;
            uses[count].list = &s->ranks[c->params.mesh.coord[LOONG_AXIS_PP]];
            uses[count].chunks = c->chunks[k];
            c->use[k] = count++;
        }
    }
    const int32_t first_chunk[] = {0, c->num_stages};
    const loong_rank_params_t params = {1, first_chunk, count, uses};
    loongi_rank_destroy(&c->rank);
    return loongi_rank_create(c->ctx, &params, &c->rank);
}

static void add_up(loong_component_t *c)
{
    memcpy(c->bytes, c->rank->bytes, sizeof(c->bytes));
    for (int i = 0; i < c->num_stages; i++) {
        const loong_optimizer_t *o = c->stages[i]->optimizer;
        if (o == NULL) {
            continue;
        }
        int64_t scratch = LOONG_MAX(o->norm.scratch_bytes,
                                    o->update.scratch_bytes);
        c->bytes[LOONG_BASE_OPTIM] += o->optim_bytes;
        c->bytes[LOONG_BASE_SCRATCH] =
            LOONG_MAX(c->bytes[LOONG_BASE_SCRATCH], scratch);
    }
}

/* Every stage its part of the bases. */
static void bind_stages(loong_component_t *c)
{
    int64_t optim = 0;
    for (int i = 0; i < c->num_stages; i++) {
        loong_stage_t *s = c->stages[i];
        s->run = loongi_rank_chunk(c->rank, &c->run, i);
        if (s->optimizer != NULL) {
            s->run.base[LOONG_BASE_OPTIM] += optim;
            optim += s->optimizer->optim_bytes;
        }
    }
}

/* The messages of a stage to the stages before and behind it. */
static loong_status_t create_transfers(loong_component_t *c, int index)
{
    loong_stage_t *s = c->stages[index];
    for (int k = 0; k < LOONG_STAGE_CHUNKS; k++) {
        if (s->chunk[k] == NULL) {
            continue;
        }
        const loong_rank_schedule_t *list = c->rank->use[c->use[k]].list;
        loong_transfer_params_t p = {
            s->chunk[k], c->run.group[LOONG_GROUP_PP], c->comms.links,
            loongi_component_stage(c, index), list->chunks[index].slots};
        LOONG_TRY(loongi_transfer_create(&p, &s->transfer[k]));
    }
    return LOONG_OK;
}

/* ---- allocation ---------------------------------------------------------- */

/* Of a run that failed: none was left otherwise. */
static void cancel_messages(loong_component_t *c)
{
    for (int i = 0; i < c->num_stages && c->stages != NULL; i++) {
        for (int k = 0; k < LOONG_STAGE_CHUNKS && c->stages[i] != NULL; k++) {
            bool done = loongi_transfer_cancel(c->stages[i]->transfer[k]);
            c->busy = c->busy || !done;
        }
    }
}

void loongi_component_disconnect(loong_component_t *component)
{
    loong_component_t *c = component;
    if (c != NULL) {
        cancel_messages(c);
        loongi_resources_disconnect(c->comms.resources);
        loongi_component_comms_disconnect(&c->comms);
        c->run.group = c->comms.host.comm;
    }
}

/* So that no step of training loads a kernel, or takes memory of the host. */
static loong_status_t load(loong_component_t *c)
{
    if (loong_device_is_host(c->run.device)) {
        return LOONG_OK;
    }
    for (int i = 0; i < c->num_stages; i++) {
        LOONG_TRY(loongi_stage_load(c->stages[i]));
    }
    LOONG_TRY(loongi_program_load(&c->run, &c->tie, false));
    return loongi_rank_load(c->rank, &c->run, false);
}

loong_status_t loongi_component_allocate(loong_component_t *component,
                                         loong_resources_t *resources)
{
    loong_component_t *c = component;
    LOONG_TRY(loongi_component_comms_open(&c->comms, resources, &c->params.mesh,
                                          c->evaluation));
    c->run = loongi_resources_run(resources);
    c->run.group = loongi_component_comms_groups(&c->comms);
    /* Kernels that are measured take memory meanwhile: before all else does. */
    for (int i = 0; i < c->num_stages; i++) {
        LOONG_TRY(loongi_stage_prepare(c->stages[i]));
    }
    LOONG_TRY(loongi_program_prepare(c->ctx, &c->tie));
    LOONG_TRY(loongi_component_take_memory(c));
    bind_stages(c);
    LOONG_TRY(load(c));
    for (int i = 0; i < c->num_stages; i++) {
        LOONG_TRY(create_transfers(c, i));
    }
    return LOONG_OK;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t plan(loong_component_t *c)
{
    loong_cut_params_t cut = {0, c->params.mesh.size[LOONG_AXIS_PP],
                              c->params.layers_per_chunk, c->params.layout};
    c->params.family->facts(c->params.config, &c->facts);
    cut.num_layers = c->facts.num_layers;
    LOONG_TRY(loongi_arena_create(c->ctx, "component", &c->arena));
    LOONG_TRY(loongi_pipeline_cut(c->ctx, &cut, c->arena, &c->cuts,
                                  &c->num_stages));
    loong_status_t status = make_schedules(c, c->params.micro_batches);
    LOONG_TRY(status == LOONG_ERR_ARG ? LOONG_ERR_CONFIG : status);
    if (c->params.train) {
        c->params.compile.split = c->schedule->kind->split;
        c->params.compile.ahead = loongi_schedule_ahead(c->schedule);
    }
    c->params.mesh.ends_together =
        c->num_stages > 1 &&
        (c->evaluation->params.folded || cut.ranks == 1);
    LOONG_TRY(list_whole(c));
    LOONG_TRY(create_stages(c));
    LOONG_TRY(plan_rank(c));
    add_up(c);
    return plan_tie(c);
}

loong_status_t loongi_component_create(loong_context_t *ctx,
                                       const loong_component_params_t *params,
                                       loong_component_t **component_p)
{
    loong_component_t *c = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*c), "component", &c));
    c->ctx = c->run.ctx = ctx;
    c->params = *params;
    loong_status_t status = plan(c);
    if (status != LOONG_OK) {
        loongi_component_destroy(&c);
        return status;
    }
    *component_p = c;
    return LOONG_OK;
}

void loongi_component_destroy(loong_component_t **component_p)
{
    loong_component_t *c = *component_p;
    if (c == NULL) {
        return;
    }
    loongi_component_disconnect(c);
    loongi_resources_stop(c->comms.resources);
    if (!c->busy) {
        loongi_component_give_memory_back(c);
    }
    loongi_component_comms_close(&c->comms);
    loongi_program_clear(c->ctx, &c->tie);
    loongi_rank_destroy(&c->rank);
    for (int i = 0; i < c->num_stages && c->stages != NULL; i++) {
        loongi_stage_destroy(&c->stages[i]);
    }
    loongi_free(c->ctx, c->stages);
    loongi_schedule_destroy(&c->schedule);
    loongi_schedule_destroy(&c->evaluation);
    loongi_arena_destroy(&c->arena);
    loongi_free(c->ctx, c);
    *component_p = NULL;
}

/* Memory was planned for the largest step: fewer micro-batches need less. */
loong_status_t loongi_component_plan_step(loong_component_t *component,
                                          int micro_batches)
{
    loong_component_t *c = component;
    if (c->schedule->params.micro_batches == micro_batches) {
        return LOONG_OK;
    }
    LOONG_TRY(make_schedules(c, micro_batches));
    LOONG_TRY(plan_rank(c));
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        LOONG_CHECK(c->ctx, c->rank->bytes[b] <= c->bytes[b],
                    LOONG_ERR_INTERNAL,
                    "a step of %d micro-batches needs %lld bytes of %s, %lld "
                    "are planned", micro_batches, (long long)c->rank->bytes[b],
                    loongi_base_name((loong_base_t)b), (long long)c->bytes[b]);
    }
    bind_stages(c);
    return loong_device_is_host(c->run.device)
               ? LOONG_OK
               : loongi_rank_load(c->rank, &c->run, true);
}

loong_status_t loongi_component_accepts(const loong_component_t *component,
                                        int micro_batches)
{
    const loong_component_t *c = component;
    loong_schedule_params_t p = c->schedule->params;
    p.micro_batches = micro_batches;
    return loongi_schedule_accept(c->ctx, c->schedule->kind->name, &p) ==
                   LOONG_OK
               ? LOONG_OK
               : LOONG_ERR_CONFIG;
}

const loong_rank_schedule_t *
loongi_component_entries(const loong_component_t *component,
                         loong_stage_chunk_t chunk)
{
    const loong_component_t *c = component;
    return c->rank->use[c->use[chunk]].list;
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

loong_status_t loongi_component_initialize(loong_component_t *component,
                                           uint64_t seed)
{
    for (int i = 0; i < component->num_stages; i++) {
        LOONG_TRY(loongi_stage_initialize(component->stages[i], seed));
    }
    return LOONG_OK;
}
