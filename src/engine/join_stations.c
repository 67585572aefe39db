/* SPDX-License-Identifier: Apache-2.0
 *
 * Stations of micro-batches, the ranks of each, and when the last component
 * computes there. Called by join_bubbles.c. Read join_stations.h before. */
#include "join_stations.h"

static const loong_cell_component_t *component_of(const filling_t *f, int c)
{
    return &f->join->cell->params.components[c];
}

/* ---- groups -------------------------------------------------------------- */

/* Is a rank one of a group's? */
static bool has_rank(const loong_cell_component_t *of, int group, int rank)
{
    int first = loongi_group_first(of, group) * of->params.ranks;
    int count = loongi_group_size(of) * of->params.ranks;
    for (int i = first; i < first + count; i++) {
        if (of->rank[i] == rank) {
            return true;
        }
    }
    return false;
}

int loongi_filling_group(const filling_t *filling, int component, int route)
{
    const loong_cell_component_t *widest =
        component_of(filling, filling->widest);
    const loong_cell_component_t *of = component_of(filling, component);
    int ranks = widest->params.ranks;
    int first = loongi_group_first(widest, route) * ranks;
    int count = loongi_group_size(widest) * ranks;
    int groups = loongi_groups(of);
    if (component == filling->widest) {
        return route;
    }
    for (int g = 0; g < groups; g++) {
        for (int i = first; i < first + count; i++) {
            if (has_rank(of, g, widest->rank[i])) {
                return g;
            }
        }
    }
    return route % groups;
}

static loong_status_t list_crew(const filling_t *f, int route, int station)
{
    const loong_cell_t *cell = f->join->cell;
    const station_t *s = &f->stations[station];
    const loong_cell_component_t *of = component_of(f, s->component);
    int group = loongi_filling_group(f, s->component, route);
    int first = loongi_group_first(of, group);
    int rank = loongi_schedule_rank(cell->schedules[s->component], s->stage);
    crew_t *crew = &f->crews[route * f->num_stations + station];
    crew->count = loongi_group_size(of);
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)crew->count * sizeof(*crew->rank), &crew->rank));
    for (int i = 0; i < crew->count; i++) {
        crew->rank[i] = of->rank[(first + i) * of->params.ranks + rank];
    }
    return LOONG_OK;
}

static loong_status_t list_routes(filling_t *f)
{
    loong_arena_t *arena = f->join->cell->arena;
    for (int c = 0; c <= f->head; c++) {
        int groups = loongi_groups(component_of(f, c));
        f->widest = groups >= f->num_routes ? c : f->widest;
        f->num_routes = LOONG_MAX(groups, f->num_routes);
    }
    size_t routes = (size_t)f->num_routes;
    LOONG_TRY(
        loongi_arena_alloc(arena, routes * sizeof(*f->routes), &f->routes));
    LOONG_TRY(loongi_arena_alloc(
        arena, routes * (size_t)f->num_stations * sizeof(*f->crews),
        &f->crews));
    for (int i = 0; i < f->num_routes; i++) {
        f->routes[i].hops = 0;
        for (int k = 0; k < f->num_stations; k++) {
            LOONG_TRY(list_crew(f, i, k));
            const crew_t *crew = &f->crews[i * f->num_stations + k];
            f->routes[i].hops += k > 0 && crew[0].rank[0] != crew[-1].rank[0];
        }
        f->hops = f->hops || f->routes[i].hops > 0;
    }
    return LOONG_OK;
}

/* ---- what is placed ------------------------------------------------------ */

/* When the last component computes on a rank of the cell. */
static loong_status_t list_busy(filling_t *f, int rank)
{
    const loong_cell_t *cell = f->join->cell;
    int last = cell->num_own - 1;
    const loong_schedule_t *s = cell->schedules[last];
    int p = loongi_cell_pipeline_rank(cell, last, rank);
    int64_t count = p >= 0 ? s->ranks[p].num_entries : 0;
    const loong_span_t *spans =
        f->join->spans + loongi_schedule_spans(s->ranks, LOONG_MAX(p, 0));
    timeline_t *line = &f->timelines[rank];
    size_t bytes = (size_t)LOONG_MAX(count, 1) * sizeof(interval_t);
    size_t room = 2 * (size_t)f->num_stations * (size_t)f->total;
    LOONG_TRY(loongi_arena_alloc(cell->arena, bytes, &f->own[rank]));
    LOONG_TRY(loongi_arena_alloc(cell->arena, bytes + room * sizeof(interval_t),
                                 &line->busy));
    line->own = line->end = 0;
    for (int64_t i = 0; i < count; i++) {
        if (loongi_entry_computes(&s->ranks[p].entries[i])) {
            line->end = (int64_t)spans[i].end;
            f->own[rank][line->own++] =
                (interval_t){(int64_t)spans[i].begin, line->end};
        }
    }
    f->length = LOONG_MAX(f->length, line->end);
    line->end = line->own > 0 ? line->end : INT64_MAX;
    return LOONG_OK;
}

int64_t loongi_filling_first(const filling_t *filling, int component,
                             int64_t micro_batch)
{
    return micro_batch * filling->total /
           component_of(filling, component)->params.micro_batches;
}

int64_t loongi_filling_last(const filling_t *filling, int component,
                            int64_t micro_batch)
{
    return ((micro_batch + 1) * filling->total - 1) /
           component_of(filling, component)->params.micro_batches;
}

/* When the last component reads a micro-batch, and has made its gradient. */
static void list_times(filling_t *f)
{
    const loong_cell_t *cell = f->join->cell;
    const loong_cell_params_t *p = &cell->params;
    int last = cell->num_own - 1;
    int total = component_of(f, last)->params.micro_batches;
    const loong_schedule_t *s = cell->schedules[last];
    for (int m = 0; m < f->total; m++) {
        f->wanted[m] = INT64_MAX;
        f->made[m] = 0;
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        const loong_cell_edge_t *e = &p->edges[m->edge];
        if (e->from > f->head || e->to != last) {
            continue;
        }
        int64_t *const *keys =
            m->backward ? f->join->backward : f->join->forward;
        int read = m->backward ? m->from_micro_batch : m->to_micro_batch;
        int64_t begin =
            keys[last][e->to_stage * total + read] / LOONG_JOIN_STEP;
        const loong_stage_work_t *w = &f->join->work[last][e->to_stage];
        int64_t end = begin + w->backward + (s->kind->split ? 0 : w->weights);
        int64_t *of =
            m->backward
                ? &f->made[loongi_filling_last(f, e->from, m->to_micro_batch)]
                : &f->wanted[loongi_filling_first(f, e->from,
                                                  m->from_micro_batch)];
        *of = m->backward ? LOONG_MAX(*of, end) : LOONG_MIN(*of, begin);
    }
    for (int m = f->total - 2; m >= 0; m--) {
        f->wanted[m] = LOONG_MIN(f->wanted[m], f->wanted[m + 1]);
    }
    for (int m = 1; m < f->total; m++) {
        f->made[m] = LOONG_MAX(f->made[m], f->made[m - 1]);
    }
}

/* Work of a micro-batch of the head's, of the component's as many. */
static loong_status_t list_stations(filling_t *f)
{
    const loong_cell_t *cell = f->join->cell;
    int count = loongi_cell_stage(cell, f->head + 1, 0);
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)count * sizeof(*f->stations), &f->stations));
    for (int c = 0; c <= f->head; c++) {
        const loong_schedule_t *s = cell->schedules[c];
        int64_t times = s->params.micro_batches;
        for (int i = 0; i < loongi_schedule_stages(s); i++) {
            const loong_stage_work_t *w = &f->join->work[c][i];
            int64_t back = s->kind->evaluate ? 0 : w->backward + w->weights;
            f->stations[f->num_stations++] = (station_t){
                .component = c,
                .stage = i,
                .work = {(w->forward * times + f->total - 1) / f->total,
                         (back * times + f->total - 1) / f->total}};
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_filling_begin(loong_join_t *join, int head,
                                    filling_t *filling_p)
{
    loong_join_t *j = join;
    filling_t *f = filling_p;
    const loong_cell_t *cell = j->cell;
    size_t total = (size_t)cell->params.components[head].params.micro_batches;
    size_t ranks = (size_t)cell->params.ranks;
    *f = (filling_t){.join = j, .head = head, .total = (int)total};
    LOONG_TRY(
        loongi_arena_alloc(cell->arena, total * sizeof(int64_t), &f->wanted));
    LOONG_TRY(
        loongi_arena_alloc(cell->arena, total * sizeof(int64_t), &f->made));
    LOONG_TRY(loongi_arena_alloc(cell->arena, ranks * sizeof(*f->timelines),
                                 &f->timelines));
    LOONG_TRY(
        loongi_arena_alloc(cell->arena, ranks * sizeof(*f->own), &f->own));
    LOONG_TRY(list_stations(f));
    LOONG_TRY(list_routes(f));
    list_times(f);
    for (int r = 0; r < cell->params.ranks; r++) {
        LOONG_TRY(list_busy(f, r));
    }
    for (int r = 0; r < cell->params.ranks; r++) { /* those of none */
        f->timelines[r].end = LOONG_MIN(f->timelines[r].end, f->length);
    }
    return LOONG_OK;
}
