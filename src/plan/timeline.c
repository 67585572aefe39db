/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the entries of a step over time, by their costs or as they ran. Called
 * by predict.c, predict_rates.c, train_step.c and profile.c. Read
 * src/engine/schedule_plot.h before. */
#include "timeline.h"

#include <stdio.h>
#include <string.h>

#include "file.h"
#include "schedule_plot.h"

/* Of the coming step; NULL: no training. */
static const loong_cell_t *cell_of(const loong_plan_t *plan)
{
    return plan->component->model->training;
}

/* ---- measuring ----------------------------------------------------------- */

loong_status_t loongi_timeline_measure(loong_plan_t *plan)
{
    loong_timeline_t *l = &plan->timeline;
    const loong_cell_t *cell = cell_of(plan);
    if (cell == NULL || l->own != NULL) {
        return LOONG_OK;
    }
    for (int r = 0; r < cell->params.ranks; r++) {
        l->room = LOONG_MAX(l->room, cell->ranks[r].num_entries);
    }
    return loongi_calloc(plan->ctx, (size_t)l->room, sizeof(*l->own),
                         "times of entries", &l->own);
}

void loongi_timeline_destroy(loong_plan_t *plan)
{
    loongi_free(plan->ctx, plan->timeline.own);
    loongi_free(plan->ctx, plan->timeline.costs);
    memset(&plan->timeline, 0, sizeof(plan->timeline));
}

void loongi_timeline_begin(loong_plan_t *plan)
{
    loong_timeline_t *l = &plan->timeline;
    if (l->own != NULL) {
        memset(l->own, 0, (size_t)l->room * sizeof(*l->own));
        l->start = loongi_now();
    }
}

void loongi_timeline_mark(loong_plan_t *plan, int64_t index, double begin)
{
    loong_timeline_t *l = &plan->timeline;
    if (l->own != NULL && index < l->room) {
        l->own[index].begin = begin - l->start;
        l->own[index].end = loongi_now() - l->start;
    }
}

/* ---- costs from what was measured ---------------------------------------- */

int loongi_timeline_stage(const loong_plan_t *plan,
                          const loong_component_t *component, int chunk)
{
    return loongi_cell_stage(cell_of(plan), component->index,
                             loongi_component_stage(component, chunk));
}

loong_status_t loongi_timeline_costs(loong_plan_t *plan)
{
    loong_timeline_t *l = &plan->timeline;
    const loong_cell_t *cell = cell_of(plan);
    loongi_free(plan->ctx, l->costs);
    l->costs = NULL;
    return loongi_calloc(
        plan->ctx,
        (size_t)loongi_cell_stage(cell, cell->params.num_components, 0),
        sizeof(*l->costs), "costs of stages", &l->costs);
}

/* Means over micro-batches and replicas. */
static void add_cost(loong_plan_t *plan, int rank, const loong_entry_t *e,
                     double seconds)
{
    const loong_cell_t *cell = cell_of(plan);
    int component = loongi_cell_component(cell, rank, e);
    const loong_cell_component_t *c = &cell->params.components[component];
    int stage = loongi_cell_stage(
        cell, component,
        loongi_schedule_stage(cell->schedules[component],
                              loongi_cell_pipeline_rank(cell, component, rank),
                              LOONG_MAX(e->chunk, 0)));
    int times = e->micro_batch >= 0 ? c->params.micro_batches : 1;
    int each = e->micro_batch >= 0 && cell->reader[component] != NULL
                   ? c->turn
                   : c->replicas; /* that compute it */
    plan->timeline.costs[stage].seconds[e->kind] += seconds / times / each;
}

/* The times of this cell's other ranks, on its first one. */
static loong_status_t collect(loong_plan_t *plan, loong_span_t *all)
{
    enum { TAG = 0 };
    const loong_model_t *m = plan->component->model;
    loong_timeline_t *l = &plan->timeline;
    size_t bytes = (size_t)l->room * sizeof(*l->own);
    loong_comm_request_t request;
    if (m->ranks.cell_rank > 0) {
        LOONG_TRY(loong_comm_isend(plan->comm, l->own, bytes,
                                   loongi_model_job_rank(m, 0), TAG, &request));
        return loong_comm_wait(plan->comm, &request);
    }
    memcpy(all, l->own, bytes);
    for (int r = 1; r < m->training->params.ranks; r++) {
        LOONG_TRY(loong_comm_irecv(plan->comm, all + r * l->room, bytes,
                                   loongi_model_job_rank(m, r), TAG, &request));
        LOONG_TRY(loong_comm_wait(plan->comm, &request));
    }
    return LOONG_OK;
}

/* And what the entries cost. */
static loong_status_t gather(loong_plan_t *plan, loong_span_t *all,
                             loong_span_t *spans)
{
    const loong_cell_t *cell = cell_of(plan);
    loong_timeline_t *l = &plan->timeline;
    LOONG_TRY(collect(plan, all));
    LOONG_TRY(loongi_timeline_costs(plan));
    for (int r = 0; r < cell->params.ranks; r++) {
        const loong_rank_schedule_t *list = &cell->ranks[r];
        for (int64_t i = 0; i < list->num_entries; i++) {
            *spans = all[r * l->room + i];
            add_cost(plan, r, &list->entries[i], spans->end - spans->begin);
            spans++;
        }
    }
    return LOONG_OK;
}

/* ---- the picture --------------------------------------------------------- */

static loong_status_t write_plot(loong_plan_t *plan, const char *path,
                                 int num_panels,
                                 const loong_plot_panel_t *panels)
{
    char title[256];
    const loong_cell_t *cell = cell_of(plan);
    const loong_model_t *m = plan->component->model;
    const loong_schedule_t *s = plan->component->schedule;
    const char *names[LOONG_MAX_COMPONENTS];
    for (int i = 0; i < m->num_components; i++) {
        names[i] = m->components[i]->params.name;
    }
    snprintf(title, sizeof(title),
             "%.120s: %s, %d ranks of a pipeline, %d micro-batches",
             loong_recipe_text(plan->recipe, "name"), s->kind->name,
             s->params.ranks, s->params.micro_batches);
    if (m->num_components > 1) {
        size_t length = strlen(title);
        snprintf(title + length, sizeof(title) - length,
                 ", %d components (%s), %d ranks", m->num_components,
                 cell->join->name, cell->params.ranks);
    }
    loong_schedule_plot_t plot = {cell, names, title, num_panels, panels};
    loong_text_t svg = loongi_text_begin(plan->ctx);
    loongi_schedule_plot(&plot, &svg);
    loong_status_t status = svg.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(plan->ctx, path, loongi_text_get(&svg),
                                   svg.length);
    }
    loongi_text_free(&svg);
    return status;
}

static void tell(loong_plan_t *plan, const loong_plot_panel_t *panel)
{
    loong_simulation_t total = loongi_spans_total(cell_of(plan), panel->spans);
    loongi_text_printf(&plan->text, "  %s: %.2f ms, idle %.1f %%\n",
                       panel->title, 1e3 * total.seconds, 100.0 * total.bubble);
}

static loong_status_t plot(loong_plan_t *plan, const char *path,
                           loong_span_t *simulated, loong_span_t *measured)
{
    loong_simulation_t total;
    bool told = loong_comm_rank(plan->comm) == 0;
    LOONG_TRY(loongi_cell_simulate(cell_of(plan), plan->timeline.costs,
                                   simulated, &total));
    loong_plot_panel_t panels[2] = {
        {measured != NULL ? "simulated with the measured programs"
                          : "simulated",
         simulated},
        {"measured, last step", measured}};
    int count = measured != NULL ? 2 : 1;
    if (!told) {
        return LOONG_OK;
    }
    LOONG_TRY(write_plot(plan, path, count, panels));
    loongi_text_printf(&plan->text, "timeline of a step: %s\n", path);
    for (int i = 0; i < count; i++) {
        tell(plan, &panels[i]);
    }
    return plan->text.status;
}

loong_status_t loongi_timeline_plot(loong_plan_t *plan, const char *path,
                                    const char **text_p)
{
    const loong_cell_t *cell = cell_of(plan);
    loong_timeline_t *l = &plan->timeline;
    loong_span_t *spans = NULL;
    LOONG_CHECK(plan->ctx, cell != NULL && (l->own != NULL || l->costs != NULL),
                LOONG_ERR_ARG,
                "a timeline needs loong_trainer_predict or a training that "
                "was measured");
    size_t count =
        (size_t)loongi_schedule_spans(cell->ranks, cell->params.ranks);
    size_t padded = (size_t)(l->room * cell->params.ranks);
    bool first = plan->component->model->ranks.cell_rank == 0;
    LOONG_TRY(loongi_calloc(plan->ctx, 2 * count + padded, sizeof(*spans),
                            "timeline", &spans));
    loongi_text_free(&plan->text);
    plan->text = loongi_text_begin(plan->ctx);
    loong_status_t status = l->own != NULL
                                ? gather(plan, spans + 2 * count, spans + count)
                                : LOONG_OK;
    if (status == LOONG_OK && (first || l->own == NULL)) {
        status = plot(plan, path, spans, l->own != NULL ? spans + count : NULL);
    }
    loongi_free(plan->ctx, spans);
    LOONG_TRY(status);
    *text_p = loongi_text_get(&plan->text);
    return LOONG_OK;
}
