/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans what a device holds beside the arenas: graphs and communicators of the
 * entries that the rank will run. Called by describe.c and trainer_run.c. Read
 * src/run/replay.h before. */
#include "device_overhead.h"

#include <string.h>

#include "edges.h"
#include "rates.h"

/* ---- graphs -------------------------------------------------------------- */

/* A recording (replay.h): of a program, a slot, and the flags that its steps
 * ask for. */
typedef struct recorded {
    const loong_program_t *program;
    int32_t slot;
    uint32_t flags;
} recorded_t;

typedef struct records {
    loong_context_t *ctx;
    recorded_t *list;
    int64_t count, cap;
    double launches;
    uint32_t groups; /* bit g: collectives of that loong_group_t */
    int ranks;       /* of the job */
} records_t;

/* Groups of all ranks have one communicator. */
static uint32_t groups_of(const loong_program_t *program,
                          const loong_mesh_t *mesh, int ranks)
{
    uint32_t groups = 0;
    for (int64_t i = 0; i < program->num_steps; i++) {
        const loong_step_t *s = &program->steps[i];
        int size = loong_mesh_group_size(mesh, s->group);
        if (s->kernel->communicates && size > 1) {
            groups |= 1u << (size < ranks ? s->group : LOONG_GROUP_WORLD);
        }
    }
    return groups;
}

/* A program runs in a frame of the step, on a slot. */
static loong_status_t add(records_t *r, const loong_component_t *c,
                          const loong_program_t *program, int32_t slot,
                          bool first, bool last)
{
    loong_frame_t frame;
    memset(&frame, 0, sizeof(frame));
    frame.first = first;
    frame.last = last;
    double launches = loongi_rates_launches(program, &frame);
    recorded_t one = {program, slot, loongi_replay_flags(program, &frame)};
    r->groups |= groups_of(program, &c->params.mesh, r->ranks);
    if (launches == 0.0) {
        return LOONG_OK;
    }
    for (int64_t i = 0; i < r->count; i++) {
        const recorded_t *other = &r->list[i];
        if (other->program == program && other->slot == slot &&
            other->flags == one.flags) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(r->ctx, &r->list, &r->cap, r->count + 1,
                          sizeof(*r->list), "planned graphs"));
    r->list[r->count++] = one;
    r->launches += launches;
    return LOONG_OK;
}

/* Two that run as a pair are counted one by one. */
static loong_status_t add_entry(const loong_component_t *c,
                                const loong_entry_t *e, records_t *r)
{
    int last = c->schedule->params.micro_batches - 1;
    const loong_model_t *m = c->model;
    return (int)e->kind < (int)LOONG_PROGRAM_COUNT
               ? add(r, c,
                     loongi_memory_plan_program(
                         m->memory_plan, m->use[LOONG_VARIANT_TRAIN], e),
                     e->slot, e->micro_batch == 0, e->micro_batch == last)
               : LOONG_OK;
}

/* What runs once a step. */
static loong_status_t add_update(const loong_component_t *c, records_t *r)
{
    for (int i = 0; i < c->num_stages; i++) {
        const loong_optimizer_t *o = c->stages[i]->optimizer;
        if (o != NULL) {
            LOONG_TRY(add(r, c, &o->norm, 0, false, false));
            LOONG_TRY(add(r, c, &o->update, 0, false, false));
        }
    }
    return add(r, c, &c->tie, 0, false, false);
}

static loong_status_t add_step(const loong_model_t *m, records_t *r)
{
    const loong_rank_schedule_t *list =
        loongi_model_entries(m, LOONG_VARIANT_TRAIN);
    for (int64_t i = 0; i < list->num_entries; i++) {
        const loong_entry_t *e = &list->entries[i];
        if (e->component >= 0) {
            LOONG_TRY(add_entry(loongi_model_component(m, e), e, r));
        }
    }
    for (int i = 0; i < m->num_components; i++) {
        LOONG_TRY(add_update(m->components[i], r));
    }
    return LOONG_OK;
}

/* Programs that run between two steps are captured behind the second one. */
static loong_status_t add_evaluations(const loong_plan_t *plan, records_t *r)
{
    const loong_component_t *c = plan->component;
    int64_t interval = plan->set->eval_interval;
    bool validates =
        loong_recipe_count(plan->recipe, "data.validation") > 0 ||
        plan->set->validation_split > 0;
    if (interval == 0 || interval >= plan->set->train_iters) {
        return LOONG_OK;
    }
    for (int k = LOONG_VARIANT_EVAL; k < LOONG_VARIANT_COUNT; k++) {
        if (c->model->use[k] < 0 || (k == LOONG_VARIANT_EVAL && !validates)) {
            continue;
        }
        const loong_rank_schedule_t *list =
            loongi_model_entries(c->model, (loong_variant_t)k);
        for (int64_t i = 0; i < list->num_entries; i++) {
            const loong_entry_t *e = &list->entries[i];
            const loong_component_t *of =
                e->component >= 0 ? loongi_model_component(c->model, e) : NULL;
            if (e->kind == LOONG_ENTRY_E &&
                of->stages[e->chunk]->chunk[k] != NULL) {
                LOONG_TRY(add(
                    r, of,
                    &of->stages[e->chunk]->chunk[k]->programs[LOONG_PROGRAM_E],
                    e->slot, false, false));
            }
        }
    }
    return LOONG_OK;
}

/* ---- communicators ------------------------------------------------------- */

/* Each boundary of stages has a link for each direction. */
static int links_of(const loong_component_t *c)
{
    const loong_schedule_t *s = c->schedule;
    int rank = c->params.mesh.coord[LOONG_AXIS_PP];
    int links = 0;
    for (int i = 0; i < c->num_stages; i++) {
        int stage = loongi_schedule_stage(s, rank, i);
        for (int to = stage - 1; to <= stage + 1; to += 2) {
            bool there = to >= 0 && to < loongi_schedule_stages(s);
            links += there && loongi_schedule_rank(s, to) != rank ? 2 : 0;
        }
    }
    return links;
}

/* So has each edge that goes from device to device. */
static int edges_of(const loong_model_t *m)
{
    int links = 0;
    for (int e = 0; e < m->num_edges; e++) {
        links += loongi_edges_has_link(m, e, false) +
                 loongi_edges_has_link(m, e, true);
    }
    return links;
}

loong_status_t loongi_overhead_plan(const loong_plan_t *plan,
                                    loong_overhead_plan_t *overhead_p)
{
    const loong_component_t *c = plan->component;
    static const loong_device_overhead_t nothing = {0, 0, 0};
    const loong_device_overhead_t *known =
        loong_device_get_overhead(plan->device);
    loong_device_overhead_t each = known != NULL ? *known : nothing;
    records_t r = {plan->ctx, NULL, 0, 0, 0.0, 0, plan->parallel.ranks};
    loong_status_t status = LOONG_OK;
    loong_overhead_plan_t b;
    memset(&b, 0, sizeof(b));
    if (c->schedule != NULL) {
        status = add_step(c->model, &r);
        if (status == LOONG_OK) {
            status = add_evaluations(plan, &r);
        }
        b.communicators = links_of(c) + edges_of(c->model);
    }
    for (int g = 0; g < LOONG_GROUP_COUNT; g++) {
        b.communicators += (int)(r.groups >> g & 1u);
    }
    if (c->params.resources.graphs) {
        b.graphs = r.count;
        b.pieces = (int64_t)r.launches;
    }
    b.bytes[0] = (double)each.context;
    b.bytes[1] = (double)b.pieces * (double)each.graph_piece;
    b.bytes[2] = (double)b.communicators * (double)each.communicator;
    loongi_free(plan->ctx, r.list);
    LOONG_TRY(status);
    *overhead_p = b;
    return LOONG_OK;
}

/* ---- what is told -------------------------------------------------------- */

loong_status_t loongi_overhead_describe(const loong_plan_t *plan,
                                        loong_text_t *text)
{
    char a[LOONG_HUMAN_SIZE];
    loong_overhead_plan_t b;
    double sum = (double)plan->memory.rank;
    if (loong_device_is_host(plan->device)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_overhead_plan(plan, &b));
    for (int i = 0; i < 3; i++) {
        sum += b.bytes[i];
    }
    loongi_text_printf(text,
                       "beside these a process holds, estimated:\n"
                       "  %-14s %s\n",
                       "context, code", loongi_human_bytes(b.bytes[0], a));
    if (b.graphs > 0) {
        loongi_text_printf(text,
                           "  %-14s %s (%lld, of about %lld kernels and "
                           "copies)\n",
                           "graphs", loongi_human_bytes(b.bytes[1], a),
                           (long long)b.graphs, (long long)b.pieces);
    }
    if (b.communicators > 0) {
        loongi_text_printf(text, "  %-14s %s (of %d communicators)\n",
                           "buffers", loongi_human_bytes(b.bytes[2], a),
                           b.communicators);
    }
    loongi_text_printf(text, "  %-14s %s\n", "on the device",
                       loongi_human_bytes(sum, a));
    return LOONG_OK;
}

loong_status_t loongi_overhead_report(const loong_plan_t *plan,
                                      size_t pool_most)
{
    char a[4][LOONG_HUMAN_SIZE];
    loong_device_usage_t u;
    loong_overhead_plan_t b;
    if (loong_device_get_overhead(plan->device) == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_usage(plan->device, &u));
    LOONG_TRY(loongi_overhead_plan(plan, &b));
    double beside = (double)u.total - (double)u.available - (double)u.pool;
    loongi_log(
        plan->ctx, LOONG_LOG_INFO,
        "device memory: %s allocated, of them %s planned; beside that "
        "%s is taken, all programs together, planned %s",
        loongi_human_bytes((double)LOONG_MAX(pool_most, u.pool_most), a[0]),
        loongi_human_bytes((double)plan->memory.rank, a[1]),
        loongi_human_bytes(beside, a[2]),
        loongi_human_bytes(b.bytes[0] + b.bytes[1] + b.bytes[2], a[3]));
    return LOONG_OK;
}
