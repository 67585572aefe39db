/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a cell: what is asked for is checked, each component gets the schedule
 * of its own pipeline, then the lists. Called by src/component/model.c. Read
 * cell.h before. */
#include "cell.h"

#include <stdlib.h>
#include <string.h>

#include "cell_impl.h"

int loongi_cell_pipeline_rank(const loong_cell_t *cell, int component, int rank)
{
    const loong_cell_component_t *c = &cell->params.components[component];
    int ranks = c->params.ranks;
    int i = 0;
    while (i < c->replicas * ranks && c->rank[i] != rank) {
        i++;
    }
    return i < c->replicas * ranks ? i % ranks : -1;
}

int loongi_cell_component(const loong_cell_t *cell, int rank,
                          const loong_entry_t *entry)
{
    int c = entry->component;
    if (c < 0) {
        c = cell->num_own - 1;
        while (c > 0 && loongi_cell_pipeline_rank(cell, c, rank) < 0) {
            c--;
        }
    }
    return c;
}

/* The chunk of a rank that is a stage; -1 where it is not. */
static loong_message_end_t end_of(const loong_cell_t *cell, int32_t component,
                                  int32_t stage, int32_t rank,
                                  int32_t micro_batch)
{
    const loong_schedule_t *s = cell->schedules[component];
    loong_message_end_t end = {rank, component, stage, -1, micro_batch};
    int pipeline_rank = loongi_cell_pipeline_rank(cell, component, rank);
    if (pipeline_rank >= 0 && pipeline_rank == loongi_schedule_rank(s, stage)) {
        end.chunk = stage / s->params.ranks;
    }
    return end;
}

loong_message_end_t loongi_message_from(const loong_cell_t *cell,
                                        const loong_message_t *message)
{
    const loong_cell_edge_t *e = &cell->params.edges[message->edge];
    return end_of(cell, message->backward ? e->to : e->from,
                  message->backward ? e->to_stage : e->from_stage,
                  message->from_rank, message->from_micro_batch);
}

loong_message_end_t loongi_message_to(const loong_cell_t *cell,
                                      const loong_message_t *message)
{
    const loong_cell_edge_t *e = &cell->params.edges[message->edge];
    return end_of(cell, message->backward ? e->from : e->to,
                  message->backward ? e->from_stage : e->to_stage,
                  message->to_rank, message->to_micro_batch);
}

/* ---- what is asked for --------------------------------------------------- */

static loong_status_t check_component(const loong_cell_t *cell, int c)
{
    const loong_cell_component_t *component = &cell->params.components[c];
    const loong_schedule_params_t *p = &component->params;
    int count = component->replicas * p->ranks;
    LOONG_CHECK(cell->ctx, component->replicas >= 1, LOONG_ERR_ARG,
                "component %d: %d replicas, at least 1 is wanted", c,
                component->replicas);
    LOONG_CHECK(
        cell->ctx, cell->params.num_components == 1 || !p->pair, LOONG_ERR_ARG,
        "component %d: pairs are there without other components only", c);
    LOONG_CHECK(
        cell->ctx,
        c == cell->num_own - 1 ||
            strcmp(component->schedule, "evaluate") == 0 ||
            !cell->schedules[cell->num_own - 1]->kind->evaluate,
        LOONG_ERR_ARG, "component %d is trained, the last one is evaluated", c);
    bool before = c != cell->num_own - 1;
    LOONG_CHECK(cell->ctx,
                component->turn >= 0 && (component->turn == 0 || before ||
                                         !cell->join->apart),
                LOONG_ERR_ARG,
                "component %d: %d replicas read a micro-batch; with join %s "
                "that is there before the last component",
                c, component->turn, cell->join->name);
    for (int i = 0; i < count; i++) {
        int32_t rank = component->rank[i];
        LOONG_CHECK(cell->ctx, rank >= 0 && rank < cell->params.ranks,
                    LOONG_ERR_ARG, "component %d: rank %d, 0 to %d are there",
                    c, (int)rank, cell->params.ranks - 1);
        for (int k = 0; k < i; k++) {
            LOONG_CHECK(cell->ctx, component->rank[k] != rank, LOONG_ERR_ARG,
                        "component %d has rank %d twice", c, (int)rank);
        }
    }
    return LOONG_OK;
}

static loong_status_t check_edge(const loong_cell_t *cell, int index)
{
    const loong_cell_edge_t *e = &cell->params.edges[index];
    LOONG_CHECK(cell->ctx,
                e->from >= 0 && e->to >= 0 &&
                    e->from < cell->params.num_components &&
                    e->to < cell->params.num_components &&
                    loongi_cell_order(cell, e->from) <
                        loongi_cell_order(cell, e->to),
                LOONG_ERR_ARG,
                "edge %d goes from component %d to %d; of %d, to a later one "
                "is allowed",
                index, (int)e->from, (int)e->to, cell->num_own);
    const loong_schedule_t *from = cell->schedules[e->from];
    const loong_schedule_t *to = cell->schedules[e->to];
    LOONG_CHECK(
        cell->ctx,
        e->from_stage >= 0 && e->from_stage < loongi_schedule_stages(from) &&
            e->to_stage >= 0 && e->to_stage < loongi_schedule_stages(to),
        LOONG_ERR_ARG, "edge %d goes from stage %d of %d to stage %d of %d",
        index, (int)e->from_stage, loongi_schedule_stages(from),
        (int)e->to_stage, loongi_schedule_stages(to));
    LOONG_CHECK(cell->ctx,
                !e->gradient || (!from->kind->evaluate && !to->kind->evaluate),
                LOONG_ERR_ARG,
                "edge %d has gradients, component %d is not trained", index,
                (int)(from->kind->evaluate ? e->from : e->to));
    return LOONG_OK;
}

static loong_status_t check_message(const loong_cell_t *cell, int64_t index)
{
    const loong_cell_params_t *p = &cell->params;
    const loong_message_t *m = &p->messages[index];
    LOONG_CHECK(cell->ctx, m->edge >= 0 && m->edge < p->num_edges,
                LOONG_ERR_ARG, "message %lld of edge %d, there are %d",
                (long long)index, (int)m->edge, p->num_edges);
    LOONG_CHECK(cell->ctx, !m->backward || p->edges[m->edge].gradient,
                LOONG_ERR_ARG,
                "message %lld goes back on edge %d, which has no gradients",
                (long long)index, (int)m->edge);
    const loong_message_end_t ends[] = {loongi_message_from(cell, m),
                                        loongi_message_to(cell, m)};
    for (int i = 0; i < 2; i++) {
        const loong_message_end_t *end = &ends[i];
        int total = p->components[end->component].params.micro_batches;
        LOONG_CHECK(cell->ctx,
                    end->chunk >= 0 && end->micro_batch >= 0 &&
                        end->micro_batch < total,
                    LOONG_ERR_ARG,
                    "message %lld %s rank %d, micro-batch %d of %d: not where "
                    "stage %d of component %d is",
                    (long long)index, i == 0 ? "leaves" : "reaches",
                    (int)end->rank, (int)end->micro_batch, total,
                    (int)end->stage, (int)end->component);
    }
    return LOONG_OK;
}

static int by_content(const void *a, const void *b)
{
    const loong_message_t *x = *(const loong_message_t *const *)a;
    const loong_message_t *y = *(const loong_message_t *const *)b;
    const int32_t order[][2] = {{x->edge, y->edge},
                                {x->backward, y->backward},
                                {x->from_rank, y->from_rank},
                                {x->from_micro_batch, y->from_micro_batch},
                                {x->to_rank, y->to_rank},
                                {x->to_micro_batch, y->to_micro_batch}};
    int i = 0;
    while (i < LOONG_COUNT_OF(order) - 1 && order[i][0] == order[i][1]) {
        i++;
    }
    return order[i][0] < order[i][1] ? -1 : order[i][0] > order[i][1];
}

static loong_status_t check_messages(const loong_cell_t *cell)
{
    int64_t count = cell->params.num_messages;
    const loong_message_t **sorted = NULL;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)LOONG_MAX(count, 1) * sizeof(*sorted), &sorted));
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(check_message(cell, i));
        sorted[i] = &cell->params.messages[i];
    }
    qsort(sorted, (size_t)count, sizeof(const loong_message_t *), by_content);
    for (int64_t i = 1; i < count; i++) {
        LOONG_CHECK(cell->ctx, by_content(&sorted[i - 1], &sorted[i]) != 0,
                    LOONG_ERR_ARG, "message %lld is that of %lld",
                    (long long)(sorted[i] - cell->params.messages),
                    (long long)(sorted[i - 1] - cell->params.messages));
    }
    return LOONG_OK;
}

/* ---- doubles ------------------------------------------------------------- */

/* The component that stands for one in the first pass. */
static int32_t first_pass(const loong_cell_t *cell, int32_t component)
{
    int32_t c = cell->num_own;
    while (c < cell->params.num_components &&
           cell->forward_of[c] != component) {
        c++;
    }
    return c < cell->params.num_components ? c : component;
}

static loong_status_t double_components(loong_cell_t *cell)
{
    loong_cell_params_t *p = &cell->params;
    size_t most = 2 * (size_t)p->num_components;
    loong_cell_component_t *components = NULL;
    LOONG_TRY(loongi_arena_alloc(cell->arena, most * sizeof(*components),
                                 &components));
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, most * sizeof(*cell->forward_of), &cell->forward_of));
    cell->num_own = p->num_components;
    memcpy(components, p->components,
           (size_t)p->num_components * sizeof(*components));
    for (int c = 0; c < cell->num_own; c++) {
        cell->forward_of[c] = c;
        if (!cell->join->twice || c == cell->num_own - 1 ||
            strcmp(components[c].schedule, "evaluate") == 0) {
            continue;
        }
        loong_cell_component_t *twin = &components[p->num_components];
        *twin = components[c];
        twin->schedule = "evaluate";
        twin->params.folded =
            loongi_schedule_folded(components[c].schedule, &twin->params);
        cell->forward_of[p->num_components++] = c;
    }
    p->components = components;
    return LOONG_OK;
}

/* Edges from a component or to it, also of its double. */
static loong_status_t double_edges(loong_cell_t *cell)
{
    loong_cell_params_t *p = &cell->params;
    loong_cell_edge_t *edges = NULL;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, 2 * (size_t)p->num_edges * sizeof(*edges), &edges));
    for (int e = 0; e < p->num_edges; e++) {
        edges[e] = edges[p->num_edges + e] = p->edges[e];
        edges[p->num_edges + e].gradient = false;
        edges[p->num_edges + e].from = first_pass(cell, p->edges[e].from);
        edges[p->num_edges + e].to = first_pass(cell, p->edges[e].to);
    }
    p->edges = edges;
    p->num_edges *= 2;
    return LOONG_OK;
}

/* Forward they go to doubles, or from these to who has none; between two that
 * run once more a second time, from a frozen component to one such as well. */
static loong_status_t double_messages(loong_cell_t *cell)
{
    loong_cell_params_t *p = &cell->params;
    int own = p->num_edges / 2;
    int64_t count = p->num_messages;
    loong_message_t *messages = NULL;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, 2 * (size_t)LOONG_MAX(count, 1) * sizeof(*messages),
        &messages));
    for (int64_t i = 0; i < count; i++) {
        messages[i] = p->messages[i];
        if (messages[i].backward || messages[i].edge < 0 ||
            messages[i].edge >= own) { /* the latter is told later */
            continue;
        }
        const loong_cell_edge_t *first = &p->edges[own + messages[i].edge];
        if (cell->forward_of[first->to] != first->to) {
            messages[p->num_messages] = messages[i];
            messages[p->num_messages++].edge += own;
        } else if (cell->forward_of[first->from] != first->from) {
            messages[i].edge += own;
        }
    }
    p->messages = messages;
    return LOONG_OK;
}

static loong_status_t add_doubles(loong_cell_t *cell)
{
    LOONG_TRY(double_components(cell));
    if (!cell->join->twice) {
        return LOONG_OK;
    }
    for (int e = 0; e < cell->params.num_edges; e++) {
        const loong_cell_edge_t *edge = &cell->params.edges[e];
        LOONG_CHECK(cell->ctx,
                    edge->from >= 0 && edge->from < cell->num_own &&
                        edge->to >= 0 && edge->to < cell->num_own,
                    LOONG_ERR_ARG, "edge %d goes from component %d to %d of %d",
                    e, (int)edge->from, (int)edge->to, cell->num_own);
    }
    LOONG_TRY(double_edges(cell));
    return double_messages(cell);
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t copy(loong_arena_t *arena, const void *what, size_t bytes,
                           void *copy_p)
{
    void *made = NULL;
    LOONG_TRY(loongi_arena_alloc(arena, LOONG_MAX(bytes, 1), &made));
    memcpy(made, what, bytes);
    memcpy(copy_p, &made, sizeof(made));
    return LOONG_OK;
}

/* Names of schedules are the caller's texts; the kinds' own are kept. */
static loong_status_t copy_params(loong_cell_t *cell)
{
    loong_cell_params_t *p = &cell->params;
    loong_cell_component_t *components = NULL;
    LOONG_TRY(copy(cell->arena, p->components,
                   (size_t)p->num_components * sizeof(*p->components),
                   &components));
    p->components = components;
    p->join = cell->join->name;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)p->num_components * sizeof(*cell->reader),
        &cell->reader));
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)p->num_components * sizeof(*cell->hollow),
        &cell->hollow));
    for (int c = 0; c < p->num_components; c++) {
        cell->reader[c] = NULL;
        cell->hollow[c] = NULL;
    }
    LOONG_TRY(copy(cell->arena, p->edges,
                   (size_t)p->num_edges * sizeof(*p->edges), &p->edges));
    LOONG_TRY(copy(cell->arena, p->messages,
                   (size_t)p->num_messages * sizeof(*p->messages),
                   &p->messages));
    for (int c = 0; c < p->num_components; c++) {
        size_t ranks = (size_t)LOONG_MAX(components[c].replicas, 0) *
                       (size_t)components[c].params.ranks;
        components[c].schedule = cell->schedules[c]->kind->name;
        if (components[c].work != NULL) {
            size_t stages = (size_t)loongi_schedule_stages(cell->schedules[c]);
            LOONG_TRY(copy(cell->arena, components[c].work,
                           stages * sizeof(*components[c].work),
                           &components[c].work));
        }
        LOONG_TRY(copy(cell->arena, components[c].rank,
                       ranks * sizeof(*components[c].rank),
                       &components[c].rank));
    }
    return LOONG_OK;
}

static loong_status_t make_schedules(loong_cell_t *cell)
{
    const loong_cell_params_t *p = &cell->params;
    size_t count = (size_t)p->num_components;
    LOONG_TRY(loongi_calloc(cell->ctx, count + 1, sizeof(void *),
                            "schedules of a cell", &cell->schedules));
    LOONG_TRY(loongi_arena_alloc(cell->arena,
                                 (count + 1) * sizeof(*cell->first_chunk),
                                 &cell->first_chunk));
    cell->first_chunk[0] = 0;
    for (int c = 0; c < p->num_components; c++) {
        const loong_cell_component_t *component = &p->components[c];
        loong_status_t status =
            loongi_schedule_create(cell->ctx, component->schedule,
                                   &component->params, &cell->schedules[c]);
        if (status != LOONG_OK) {
            loongi_error_note(cell->ctx, "of component %d", c);
            return status;
        }
        cell->first_chunk[c + 1] =
            cell->first_chunk[c] + component->params.chunks;
    }
    return LOONG_OK;
}

static loong_status_t make_ranks(loong_cell_t *cell)
{
    const loong_cell_params_t *p = &cell->params;
    size_t chunks = (size_t)cell->first_chunk[p->num_components];
    LOONG_TRY(loongi_calloc(cell->ctx, (size_t)p->ranks, sizeof(*cell->ranks),
                            "lists of a cell", &cell->ranks));
    for (int r = 0; r < p->ranks; r++) {
        loong_rank_schedule_t *list = &cell->ranks[r];
        LOONG_TRY(loongi_calloc(cell->ctx, chunks, sizeof(*list->chunks),
                                "slots of a cell", &list->chunks));
    }
    return LOONG_OK;
}

static loong_status_t make(loong_cell_t *cell)
{
    LOONG_TRY(loongi_arena_create(cell->ctx, "cell", &cell->arena));
    LOONG_TRY(add_doubles(cell));
    LOONG_TRY(make_schedules(cell));
    LOONG_TRY(copy_params(cell));
    for (int c = 0; c < cell->params.num_components; c++) {
        LOONG_TRY(check_component(cell, c));
    }
    for (int i = 0; i < cell->params.num_edges; i++) {
        LOONG_TRY(check_edge(cell, i));
    }
    LOONG_TRY(check_messages(cell));
    LOONG_TRY(make_ranks(cell));
    return loongi_cell_fill(cell);
}

const loong_join_kind_t *loongi_join_kind(const char *name)
{
    int i = 0;
    while (loongi_join_kinds[i] != NULL &&
           strcmp(loongi_join_kinds[i]->name, name) != 0) {
        i++;
    }
    return loongi_join_kinds[i];
}

static loong_status_t find_join(loong_context_t *ctx, const char *name,
                                const loong_join_kind_t **join_p)
{
    loong_text_t names = loongi_text_begin(ctx);
    for (int i = 0; loongi_join_kinds[i] != NULL; i++) {
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                           loongi_join_kinds[i]->name);
    }
    *join_p = loongi_join_kind(name);
    loong_status_t status =
        *join_p != NULL ? LOONG_OK
                        : LOONG_FAIL(ctx, LOONG_ERR_ARG,
                                     "there is no join %s; there are %s", name,
                                     loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

loong_status_t loongi_cell_create(loong_context_t *ctx,
                                  const loong_cell_params_t *params,
                                  loong_cell_t **cell_p)
{
    loong_cell_t *cell = NULL;
    const loong_join_kind_t *join = NULL;
    LOONG_CHECK(ctx, params->ranks >= 1 && params->num_components >= 1,
                LOONG_ERR_ARG,
                "a cell of %d ranks and %d components; at least 1 of each is "
                "wanted",
                params->ranks, params->num_components);
    LOONG_TRY(find_join(ctx, params->join, &join));
    LOONG_TRY(loongi_calloc(ctx, 1, sizeof(*cell), "cell", &cell));
    cell->ctx = ctx;
    cell->users = 1;
    cell->join = join;
    cell->params = *params;
    loong_status_t status = make(cell);
    if (status != LOONG_OK) {
        loongi_cell_destroy(&cell);
        return status;
    }
    *cell_p = cell;
    return LOONG_OK;
}

loong_cell_t *loongi_cell_retain(loong_cell_t *cell)
{
    cell->users++;
    return cell;
}

void loongi_cell_destroy(loong_cell_t **cell_p)
{
    loong_cell_t *cell = *cell_p;
    *cell_p = NULL;
    if (cell == NULL || --cell->users > 0) {
        return;
    }
    for (int r = 0; r < cell->params.ranks && cell->ranks != NULL; r++) {
        loongi_free(cell->ctx, cell->ranks[r].entries);
        loongi_free(cell->ctx, cell->ranks[r].chunks);
    }
    for (int c = 0; cell->schedules != NULL && cell->schedules[c] != NULL;
         c++) {
        loongi_schedule_destroy(&cell->schedules[c]);
    }
    loongi_free(cell->ctx, cell->ranks);
    loongi_free(cell->ctx, cell->schedules);
    loongi_arena_destroy(&cell->arena);
    loongi_free(cell->ctx, cell);
}
