/* SPDX-License-Identifier: Apache-2.0
 *
 * Components become the lists of a rank, its memory and what is bound to it.
 * Called by the trainer, forward.c and the planner. Read model.h and
 * src/engine/cell.h before. */
#include "model.h"

#include <string.h>

#include "component_ties.h"
#include "edges.h"
#include "model_memory.h"
#include "model_messages.h"
#include "planned.h"
#include "stage_work.h"
#include "steps.h"

/* ---- lists --------------------------------------------------------------- */

int loongi_model_micro_batches(const loong_model_t *model, int component,
                               int of_last)
{
    const loong_model_t *m = model;
    const loong_component_t *last = m->components[m->num_components - 1];
    int64_t own =
        LOONG_MAX(m->components[component]->params.micro_batch_size, 1);
    int64_t samples = of_last * LOONG_MAX(last->params.micro_batch_size, 1);
    return (int)((samples + own - 1) / own);
}

static loong_status_t count_work(loong_model_t *m)
{
    for (int i = 0; i < m->num_components; i++) {
        const loong_component_t *c = m->components[i];
        size_t stages = (size_t)c->params.mesh.size[LOONG_AXIS_PP] *
                        (size_t)c->num_chunks;
        LOONG_TRY(loongi_arena_alloc(m->components[0]->arena,
                                     stages * sizeof(*m->work[i]),
                                     &m->work[i]));
        loongi_stage_work(c, m->work[i]);
    }
    return LOONG_OK;
}

static loong_status_t make_cell(loong_model_t *m, int micro_batches, bool train,
                                loong_cell_t **cell_p)
{
    loong_cell_component_t of[LOONG_MAX_COMPONENTS];
    memset(of, 0, sizeof(of));
    for (int i = 0; i < m->num_components; i++) {
        const loong_component_t *c = m->components[i];
        loong_schedule_params_t *p = &of[i].params;
        p->ranks = c->params.mesh.size[LOONG_AXIS_PP];
        p->chunks = c->num_chunks;
        p->micro_batches = loongi_model_micro_batches(m, i, micro_batches);
        p->pair = train && c->params.pair;
        p->folded = !train && c->schedule != NULL && c->schedule->params.folded;
        of[i].schedule = train && c->params.train
                             ? loongi_schedule_resolve(c->params.schedule,
                                                       p->ranks, p->chunks)
                             : "evaluate";
        of[i].replicas = m->ranks.component[i].pipelines;
        of[i].rank = m->ranks.component[i].rank;
        of[i].turn = c->params.turn * loongi_replica_ranks(&c->params);
        of[i].work = m->work[i];
    }
    loong_cell_edge_t edges[LOONG_MAX_EDGES];
    loong_message_t *messages = NULL;
    const char *join = m->components[m->num_components - 1]->params.join;
    loong_cell_params_t params = {.join = train && join != NULL ? join
                                                                : "coupled",
                                  .ranks = m->ranks.count,
                                  .num_components = m->num_components,
                                  .components = of,
                                  .num_edges = m->num_edges,
                                  .edges = edges};
    loong_status_t status = loongi_edges_messages(
        m, micro_batches, train, edges, &messages, &params.num_messages);
    params.messages = messages;
    loongi_cell_destroy(cell_p);
    if (status == LOONG_OK) {
        status = loongi_cell_create(m->ctx, &params, cell_p);
    }
    loongi_free(m->ctx, messages);
    return status;
}

/* Has another model of the plan the same pipelines on its cell's ranks, of
 * which all else follows, and lists of the largest step? */
static bool has_cells_of(const loong_model_t *m, const loong_model_t *other)
{
    const loong_component_t *own = m->components[m->num_components - 1];
    const loong_component_t *last = other->components[m->num_components - 1];
    bool same = m->ranks.count == other->ranks.count &&
                own->params.micro_batches == last->params.micro_batches &&
                (!last->params.train ||
                 last->schedule->params.micro_batches ==
                     last->params.micro_batches);
    for (int i = 0; i < m->num_components && same; i++) {
        const loong_component_place_t *a = &m->ranks.component[i];
        const loong_component_place_t *b = &other->ranks.component[i];
        int stages = m->components[i]->params.mesh.size[LOONG_AXIS_PP];
        same = a->pipelines == b->pipelines &&
               memcmp(a->rank, b->rank,
                      (size_t)(a->pipelines * stages) * sizeof(*a->rank)) == 0;
    }
    return same;
}

/* Of the cells that are made so far. */
static void keep_schedules(loong_model_t *m)
{
    for (int i = 0; i < m->num_components; i++) {
        if (m->training != NULL) {
            m->components[i]->schedule = m->training->schedules[i];
        }
        if (m->evaluation != NULL) {
            m->components[i]->evaluation = m->evaluation->schedules[i];
        }
    }
}

/* The evaluation's is made once, and its chunks lie as the training's do. */
static loong_status_t make_cells(loong_model_t *m, int micro_batches)
{
    const loong_component_t *last = m->components[m->num_components - 1];
    if (last->params.train) {
        LOONG_TRY(make_cell(m, micro_batches, true, &m->training));
        keep_schedules(m);
    }
    if (m->evaluation == NULL) {
        LOONG_TRY(make_cell(m, 1, false, &m->evaluation));
    }
    keep_schedules(m);
    return LOONG_OK;
}

static void share_cells(loong_model_t *m, const loong_model_t *other)
{
    m->evaluation = loongi_cell_retain(other->evaluation);
    m->training =
        other->training != NULL ? loongi_cell_retain(other->training) : NULL;
    keep_schedules(m);
}

/* ---- memory -------------------------------------------------------------- */

/* What a component that is not trained runs in a step, it runs in an
 * evaluation. */
static loong_status_t gather_stages(loong_model_t *m)
{
    loong_arena_t *arena = m->components[0]->arena;
    const loong_cell_t *most =
        m->training != NULL ? m->training : m->evaluation;
    m->num_chunks = most->first_chunk[most->params.num_components];
    size_t bytes = (size_t)m->num_chunks * sizeof(void *);
    LOONG_TRY(loongi_arena_alloc(arena, bytes, &m->stages));
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        LOONG_TRY(loongi_arena_alloc(arena, bytes, &m->chunks[k]));
    }
    for (int i = 0; i < m->num_components; i++) {
        const loong_component_t *c = m->components[i];
        for (int s = 0; s < c->num_stages; s++) {
            int at = loongi_model_first(c) + s;
            m->stages[m->num_stages++] = c->stages[s];
            for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
                m->chunks[k][at] = c->stages[s]->chunk[k];
            }
            if (m->training != NULL && !c->params.train) {
                m->chunks[LOONG_VARIANT_TRAIN][at] =
                    m->chunks[LOONG_VARIANT_EVAL][at];
            }
        }
    }
    for (int i = m->num_components; i < most->params.num_components; i++) {
        const loong_component_t *c = m->components[loongi_model_number(m, i)];
        for (int s = 0; s < c->num_stages; s++) {
            m->chunks[LOONG_VARIANT_TRAIN][most->first_chunk[i] + s] =
                c->stages[s]->chunk[LOONG_VARIANT_TRAIN];
        }
    }
    return LOONG_OK;
}

static bool has_variant(const loong_model_t *m, int variant)
{
    int i = 0;
    while (i < m->num_chunks && m->chunks[variant][i] == NULL) {
        i++;
    }
    return i < m->num_chunks;
}

/* With memory of its own. */
static bool has_device(const loong_model_t *m)
{
    return !loongi_device_kind_is_host(m->ctx,
                                       m->components[0]->params.compile.device);
}

static loong_status_t plan_rank(loong_model_t *m)
{
    loong_memory_plan_use_t uses[LOONG_VARIANT_COUNT];
    int count = 0;
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        m->use[k] = -1;
        if (has_variant(m, k)) {
            const loong_cell_t *cell =
                k == LOONG_VARIANT_TRAIN ? m->training : m->evaluation;
            uses[count].list = &cell->ranks[m->ranks.cell_rank];
            uses[count].chunks = m->chunks[k];
            m->use[k] = count++;
        }
    }
    const loong_cell_t *most =
        m->training != NULL ? m->training : m->evaluation;
    bool on_host[2 * LOONG_MAX_COMPONENTS][2] = {{false}};
    for (int i = 0; i < most->params.num_components; i++) {
        for (int d = 0; d < 2 && has_device(m); d++) {
            on_host[i][d] = m->on_host[loongi_model_number(m, i)][d];
        }
    }
    const loong_memory_plan_params_t params = {
        most->params.num_components, most->first_chunk, most->forward_of,
        on_host, count, uses};
    loongi_memory_plan_destroy(&m->memory_plan);
    return loongi_memory_plan_create(m->ctx, &params, &m->memory_plan);
}

static void add_up(loong_model_t *m)
{
    memcpy(m->bytes, m->memory_plan->bytes, sizeof(m->bytes));
    memcpy(m->area_bytes, m->memory_plan->host_bytes, sizeof(m->area_bytes));
    for (int i = 0; i < m->num_stages; i++) {
        const loong_optimizer_t *o = m->stages[i]->optimizer;
        if (o == NULL) {
            continue;
        }
        int64_t scratch =
            LOONG_MAX(LOONG_MAX(o->norm.scratch_bytes, o->swap.scratch_bytes),
                      o->update.scratch_bytes);
        m->bytes[LOONG_BASE_OPTIM] += o->optim_bytes;
        m->bytes[LOONG_BASE_SCRATCH] =
            LOONG_MAX(m->bytes[LOONG_BASE_SCRATCH], scratch);
    }
}

static loong_status_t plan_ties(loong_model_t *m)
{
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(loongi_component_plan_ties(
            m->components[i],
            &m->memory_plan->places[m->evaluation->first_chunk[i]]));
    }
    return LOONG_OK;
}

/* Every stage its part of the bases. */
static void bind_stages(loong_model_t *m)
{
    int64_t optim = 0;
    for (int i = 0; i < m->num_components; i++) {
        loong_component_t *c = m->components[i];
        for (int s = 0; s < c->num_stages; s++) {
            loong_stage_t *stage = c->stages[s];
            stage->run = loongi_memory_plan_chunk(m->memory_plan, &c->run,
                                                  loongi_model_first(c) + s);
            if (stage->optimizer != NULL) {
                stage->run.base[LOONG_BASE_OPTIM] += optim;
                optim += stage->optimizer->optim_bytes;
            }
        }
    }
}

/* ---- the end ------------------------------------------------------------- */

void loongi_model_disconnect(loong_model_t *model)
{
    loong_model_t *m = model;
    if (m == NULL) {
        return;
    }
    loongi_model_cancel_messages(m);
    loongi_resources_disconnect(m->resources);
    if (m->resources != NULL) {
        loongi_links_destroy(&m->resources->edges);
    }
    for (int i = 0; i < m->num_components; i++) {
        loong_component_t *c = m->components[i];
        loongi_component_comms_disconnect(&c->comms);
        c->run.group = c->comms.host.comm;
        m->run.group = c->params.absent ? m->run.group : c->run.group;
    }
}

/* ---- allocation ---------------------------------------------------------- */

/* So that no step of training loads a kernel, or takes memory of the host. */
static loong_status_t load(loong_model_t *m, bool again)
{
    for (int i = 0; i < m->num_components; i++) {
        const loong_component_t *c = m->components[i];
        for (int s = 0; s < c->num_stages && !again; s++) {
            LOONG_TRY(loongi_stage_load(c->stages[s]));
        }
        if (!again) {
            LOONG_TRY(loongi_program_load(&c->run, &c->tie, false));
        }
    }
    const loong_binding_t *runs[LOONG_MAX_COMPONENTS];
    for (int i = 0; i < m->num_components; i++) {
        runs[i] = &m->components[i]->run;
    }
    return loongi_memory_plan_load(m->memory_plan, runs, again);
}

static loong_status_t open_components(loong_model_t *m)
{
    for (int i = 0; i < m->num_components; i++) {
        loong_component_t *c = m->components[i];
        LOONG_TRY(loongi_component_comms_open(&c->comms, m->resources,
                                              &c->params, c->evaluation));
        c->run = loongi_resources_run(m->resources);
        c->run.group = loongi_component_comms_groups(&c->comms);
        m->run = c->params.absent ? m->run : c->run;
    }
    /* Kernels that are measured take memory meanwhile: before all else does. */
    for (int i = 0; i < m->num_stages; i++) {
        LOONG_TRY(loongi_stage_prepare(m->stages[i]));
    }
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(loongi_program_prepare(m->ctx, &m->components[i]->tie));
    }
    return LOONG_OK;
}

loong_status_t loongi_model_allocate(loong_model_t *model,
                                     loong_resources_t *resources)
{
    loong_model_t *m = model;
    m->resources = resources;
    LOONG_TRY(open_components(m));
    LOONG_TRY(loongi_edges_open(m));
    LOONG_TRY(loongi_model_take_memory(m));
    for (int i = 0; i < m->num_components; i++) {
        memcpy(m->components[i]->run.base, m->run.base, sizeof(m->run.base));
    }
    bind_stages(m);
    if (!loong_device_is_host(m->run.device)) {
        LOONG_TRY(load(m, false));
    }
    LOONG_TRY(loongi_model_create_transfers(m));
    return loongi_model_create_edges(m);
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t plan(loong_model_t *m, int num_components,
                           const loong_component_params_t *params,
                           const loong_model_t *other)
{
    LOONG_CHECK(m->ctx, num_components <= LOONG_MAX_COMPONENTS,
                LOONG_ERR_UNSUPPORTED, "%d components, %d at most",
                num_components, LOONG_MAX_COMPONENTS);
    LOONG_TRY(loongi_calloc(m->ctx, (size_t)num_components,
                            sizeof(*m->components), "components",
                            &m->components));
    for (int i = 0; i < num_components; i++) {
        LOONG_TRY(
            loongi_component_create(m->ctx, &params[i], &m->components[i]));
        m->components[i]->model = m;
        m->components[i]->index = i;
        m->num_components++;
        /* Experts stand on several replicas, who meet in the programs: they
         * run padding. */
        m->components[i]->params.shards.hollow =
            i + 1 < num_components && m->components[i]->facts.num_experts == 0;
    }
    LOONG_TRY(loongi_cell_ranks_find(m->ctx, m->components[0]->arena,
                                    num_components, params, &m->ranks));
    LOONG_TRY(loongi_edges_find(m));
    LOONG_TRY(count_work(m));
    loong_status_t status = LOONG_OK;
    if (other != NULL && has_cells_of(m, other)) {
        share_cells(m, other);
    } else {
        status = make_cells(m, params[num_components - 1].micro_batches);
    }
    LOONG_TRY(status == LOONG_ERR_ARG ? LOONG_ERR_CONFIG : status);
    LOONG_TRY(loongi_edges_settle(m));
    for (int i = 0; i < num_components; i++) {
        LOONG_TRY(loongi_component_compile(m->components[i]));
    }
    LOONG_TRY(gather_stages(m));
    LOONG_TRY(plan_rank(m));
    add_up(m);
    return plan_ties(m);
}

static loong_status_t create(loong_context_t *ctx, int num_components,
                             const loong_component_params_t *params,
                             const loong_model_t *other,
                             loong_model_t **model_p)
{
    loong_model_t *m = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*m), "model", &m));
    m->ctx = m->run.ctx = ctx;
    loong_status_t status = plan(m, num_components, params, other);
    if (status != LOONG_OK) {
        loongi_model_destroy(&m);
        return status;
    }
    *model_p = m;
    return LOONG_OK;
}

loong_status_t loongi_model_create(loong_context_t *ctx, int num_components,
                                   const loong_component_params_t *params,
                                   loong_model_t **model_p)
{
    return create(ctx, num_components, params, NULL, model_p);
}

loong_status_t loongi_model_create_rank(const loong_model_t *other,
                                        const loong_component_params_t *params,
                                        loong_model_t **model_p)
{
    return create(other->ctx, other->num_components, params, other, model_p);
}

void loongi_model_destroy(loong_model_t **model_p)
{
    loong_model_t *m = *model_p;
    if (m == NULL) {
        return;
    }
    loongi_model_disconnect(m);
    loongi_resources_stop(m->resources);
    if (!m->busy) {
        loongi_model_give_memory_back(m);
    }
    loongi_memory_plan_destroy(&m->memory_plan);
    for (int k = 0; k < LOONG_VARIANT_COUNT; k++) {
        loongi_edges_destroy(&m->under_way[k]);
    }
    for (int i = 0; i < m->num_components; i++) {
        loongi_component_destroy(&m->components[i]);
    }
    loongi_free(m->ctx, m->components);
    loongi_cell_destroy(&m->training);
    loongi_cell_destroy(&m->evaluation);
    loongi_free(m->ctx, m);
    *model_p = NULL;
}

/* Memory was planned for the largest step: fewer micro-batches need less. */
loong_status_t loongi_model_plan_step(loong_model_t *model, int micro_batches)
{
    loong_model_t *m = model;
    const loong_component_t *last = m->components[m->num_components - 1];
    if (last->schedule->params.micro_batches == micro_batches) {
        return LOONG_OK;
    }
    LOONG_TRY(make_cells(m, micro_batches));
    LOONG_TRY(plan_rank(m));
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        LOONG_CHECK(m->ctx, m->memory_plan->bytes[b] <= m->bytes[b],
                    LOONG_ERR_INTERNAL,
                    "a step of %d micro-batches needs %lld bytes of %s, %lld "
                    "are planned",
                    micro_batches, (long long)m->memory_plan->bytes[b],
                    loongi_base_name((loong_base_t)b), (long long)m->bytes[b]);
    }
    for (int d = 0; d < 2; d++) {
        LOONG_CHECK(m->ctx, m->memory_plan->host_bytes[d] <= m->area_bytes[d],
                    LOONG_ERR_INTERNAL,
                    "a step of %d micro-batches needs %lld bytes of areas of "
                    "edges, %lld are planned",
                    micro_batches, (long long)m->memory_plan->host_bytes[d],
                    (long long)m->area_bytes[d]);
    }
    bind_stages(m);
    LOONG_TRY(loongi_model_create_edges(m));
    return loong_device_is_host(m->run.device) ? LOONG_OK : load(m, true);
}

loong_status_t loongi_model_accepts(const loong_model_t *model,
                                    int micro_batches)
{
    const loong_model_t *m = model;
    for (int i = 0; i < m->num_components; i++) {
        const loong_schedule_t *s = m->components[i]->schedule;
        loong_schedule_params_t p = s->params;
        p.micro_batches = loongi_model_micro_batches(m, i, micro_batches);
        if (loongi_schedule_accept(m->ctx, s->kind->name, &p) != LOONG_OK) {
            return LOONG_ERR_CONFIG;
        }
    }
    return LOONG_OK;
}

const loong_rank_schedule_t *loongi_model_entries(const loong_model_t *model,
                                                  loong_variant_t variant)
{
    return model->memory_plan->use[model->use[variant]].list;
}

loong_binding_t loongi_model_bind(const loong_model_t *model,
                                  loong_variant_t variant,
                                  const loong_entry_t *entry)
{
    return loongi_memory_plan_bind(model->memory_plan, model->use[variant],
                                   &loongi_model_component(model, entry)->run,
                                   entry);
}

loong_status_t loongi_model_run(const loong_model_t *model,
                                loong_variant_t variant, int64_t index,
                                const loong_frame_t *const frame[2])
{
    const loong_entry_t *e =
        &loongi_model_entries(model, variant)->entries[index];
    return loongi_memory_plan_run(model->memory_plan, model->use[variant],
                                  &loongi_model_component(model, e)->run, index,
                                  frame);
}

/* Holders may be any stages of this rank: the last of them is through. */
loong_status_t loongi_model_reduce(const loong_model_t *model,
                                   const loong_entry_t *entry,
                                   const loong_frame_t *frame)
{
    const loong_component_t *c = loongi_model_component(model, entry);
    return entry->chunk + 1 == c->num_stages
               ? loongi_program_run(&c->run, &c->tie, frame)
               : LOONG_OK;
}

loong_status_t loongi_model_frame(const loong_model_t *model,
                                  const loong_entry_t *entry,
                                  loong_frame_t *frame)
{
    const loong_component_t *c = loongi_model_component(model, entry);
    bool hollow = false;
    if (entry->micro_batch >= 0 && c->params.shards.hollow &&
        model->rows->hollow != NULL) {
        LOONG_TRY(model->rows->hollow(model->rows->user, c->index,
                                      entry->micro_batch, &hollow));
    }
    frame->hollow = hollow;
    return LOONG_OK;
}

void loongi_model_set_rows(loong_model_t *model, const loong_edge_rows_t *rows)
{
    model->rows = rows;
}

loong_status_t loongi_model_initialize(loong_model_t *model, uint64_t seed)
{
    for (int i = 0; i < model->num_stages; i++) {
        LOONG_TRY(loongi_stage_initialize(model->stages[i], seed));
    }
    return LOONG_OK;
}
