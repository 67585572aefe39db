/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a cell. All computations and messages of all ranks stand in one
 * total order, which agrees with what they read; a rank's list is the part of
 * it that the rank takes part in. A message stands with what makes it, at both
 * ends: so no rank waits for one that waits for it. Called by cell.c. Read
 * cell_impl.h before. */
#include <stdlib.h>

#include "cell_impl.h"

/* Compared member by member, in this order. */
typedef struct place {
    int64_t key;
    int32_t component; /* negative: backward */
    int32_t micro_batch;
    int32_t stage; /* likewise */
    int32_t kind;
    int32_t message; /* behind what makes it; -1: the computation */
} place_t;

typedef struct item {
    place_t place;
    const loong_entry_t *work; /* of the component's schedule; or NULL */
    int32_t component;
} item_t;

typedef struct list_maker {
    loong_cell_t *cell;
    loong_join_t join;
    int64_t count;
    item_t *items;
} list_maker_t;

static int compare(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_place(const void *a, const void *b)
{
    const place_t *x = &((const item_t *)a)->place;
    const place_t *y = &((const item_t *)b)->place;
    const int order[] = {compare(x->key, y->key),
                         compare(x->component, y->component),
                         compare(x->micro_batch, y->micro_batch),
                         compare(x->stage, y->stage),
                         compare(x->kind, y->kind),
                         compare(x->message, y->message)};
    int i = 0;
    while (i < LOONG_COUNT_OF(order) - 1 && order[i] == 0) {
        i++;
    }
    return order[i];
}

/* ---- the one order ------------------------------------------------------- */

static place_t place_of(const list_maker_t *l, int component, int stage,
                        loong_entry_kind_t kind, int micro_batch)
{
    const loong_cell_t *cell = l->cell;
    bool last = component == cell->num_own - 1;
    int order = loongi_cell_order(cell, component);
    bool back = kind == LOONG_ENTRY_B || kind == LOONG_ENTRY_W;
    int total = cell->params.components[component].params.micro_batches;
    int64_t id = (int64_t)stage * total + micro_batch;
    const loong_join_t *j = &l->join;
    int64_t key = last && kind == LOONG_ENTRY_W ? j->weights[id]
                  : back                        ? j->backward[component][id]
                                                : j->forward[component][id];
    place_t place = {key,           back ? -order : order,
                     micro_batch,   back ? -stage : stage,
                     (int32_t)kind, -1};
    return place;
}

/* The work of all components, where that places them: so fine that the sum of
 * it all is a key. */
static loong_status_t scale_work(list_maker_t *l)
{
    static const double all = 1 << 27;
    const loong_cell_t *cell = l->cell;
    loong_stage_work_t **work = NULL;
    double sum = 0.0;
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)cell->params.num_components * sizeof(*work),
        &work));
    for (int c = 0; c < cell->params.num_components; c++) {
        const loong_cell_component_t *of = &cell->params.components[c];
        int stages = loongi_schedule_stages(cell->schedules[c]);
        LOONG_TRY(loongi_arena_alloc(
            cell->arena, (size_t)stages * sizeof(**work), &work[c]));
        for (int i = 0; i < stages; i++) {
            loong_stage_work_t *w = &work[c][i];
            *w = (loong_stage_work_t){1, 1, 1};
            *w = cell->join->apart && of->work != NULL ? of->work[i] : *w;
            sum +=
                (double)of->params.micro_batches *
                ((double)w->forward + (double)w->backward + (double)w->weights);
        }
    }
    for (int c = 0; c < cell->params.num_components && cell->join->apart; c++) {
        int stages = loongi_schedule_stages(cell->schedules[c]);
        for (int i = 0; i < stages; i++) {
            int64_t *w[] = {&work[c][i].forward, &work[c][i].backward,
                            &work[c][i].weights};
            for (int k = 0; k < LOONG_COUNT_OF(w); k++) {
                int64_t scaled = (int64_t)(all / sum * (double)*w[k]);
                *w[k] = LOONG_MAX(scaled, 1);
            }
        }
    }
    l->join.work = work;
    return LOONG_OK;
}

/* Of a program, where that of weights is in the backward or apart. */
static double work_of(const loong_stage_work_t *work, bool split,
                      loong_entry_kind_t kind)
{
    switch (kind) {
    case LOONG_ENTRY_F:
    case LOONG_ENTRY_E:
        return (double)work->forward;
    case LOONG_ENTRY_B:
        return (double)(work->backward + (split ? 0 : work->weights));
    case LOONG_ENTRY_W:
        return (double)work->weights;
    default:
        return 0.0;
    }
}

/* When the last component computes; if work does not count, each program takes
 * one unit. */
static loong_status_t simulate_last(list_maker_t *l)
{
    const loong_cell_t *cell = l->cell;
    int c = cell->num_own - 1;
    const loong_schedule_t *s = cell->schedules[c];
    int stages = loongi_schedule_stages(s);
    loong_stage_cost_t *costs = NULL;
    loong_span_t *spans = NULL;
    loong_simulation_t simulation;
    LOONG_TRY(loongi_arena_alloc(cell->arena, (size_t)stages * sizeof(*costs),
                                 &costs));
    LOONG_TRY(loongi_arena_alloc(
        cell->arena,
        (size_t)loongi_schedule_spans(s->ranks, s->params.ranks) *
            sizeof(*spans),
        &spans));
    for (int i = 0; i < stages; i++) {
        bool split = !cell->join->apart || s->kind->split;
        for (int kind = 0; kind < LOONG_ENTRY_COUNT; kind++) {
            costs[i].seconds[kind] =
                work_of(&l->join.work[c][i], split, (loong_entry_kind_t)kind);
        }
    }
    LOONG_TRY(loongi_schedule_simulate(s, costs, spans, &simulation));
    l->join.spans = spans;
    for (int r = 0; r < s->params.ranks; r++) {
        for (int64_t k = 0; k < s->ranks[r].num_entries; k++, spans++) {
            const loong_entry_t *e = &s->ranks[r].entries[k];
            if (loongi_entry_computes(e)) {
                int64_t *keys = e->kind == LOONG_ENTRY_W   ? l->join.weights
                                : e->kind == LOONG_ENTRY_B ? l->join.backward[c]
                                                           : l->join.forward[c];
                int stage = loongi_schedule_stage(s, r, e->chunk);
                keys[stage * s->params.micro_batches + e->micro_batch] =
                    LOONG_JOIN_STEP * (int64_t)spans->begin + 1;
            }
        }
    }
    return LOONG_OK;
}

/* The replicas that read micro-batches in turn. */
static loong_status_t take_turns(loong_cell_t *cell)
{
    const loong_cell_params_t *p = &cell->params;
    for (int c = 0; c < p->num_components; c++) {
        const loong_cell_component_t *of = &p->components[c];
        if (!loongi_has_groups(of)) {
            continue;
        }
        size_t total = (size_t)of->params.micro_batches;
        LOONG_TRY(loongi_arena_alloc(
            cell->arena, total * sizeof(**cell->reader), &cell->reader[c]));
        for (int m = 0; m < of->params.micro_batches; m++) {
            cell->reader[c][m] = loongi_group_first(of, m % loongi_groups(of));
        }
    }
    return LOONG_OK;
}

/* ---- hollow entries ------------------------------------------------------ */

const bool *loongi_cell_hollow(const loong_cell_t *cell, int component,
                               int rank)
{
    const loong_cell_component_t *of = &cell->params.components[component];
    const bool *hollow = cell->hollow[component];
    int i = 0;
    while (hollow != NULL && i < of->replicas * of->params.ranks &&
           of->rank[i] != rank) {
        i++;
    }
    return hollow != NULL
               ? &hollow[i / of->params.ranks * of->params.micro_batches]
               : NULL;
}

static loong_status_t mark_hollow(loong_cell_t *cell)
{
    for (int c = 0; c < cell->params.num_components && cell->join->apart; c++) {
        const loong_cell_component_t *of = &cell->params.components[c];
        int total = of->params.micro_batches;
        if (cell->reader[c] == NULL) {
            continue;
        }
        LOONG_TRY(loongi_arena_alloc(
            cell->arena,
            (size_t)of->replicas * (size_t)total * sizeof(**cell->hollow),
            &cell->hollow[c]));
        for (int i = 0; i < of->replicas * total; i++) {
            cell->hollow[c][i] =
                !loongi_cell_reads(cell, c, i / total, i % total);
        }
    }
    return LOONG_OK;
}

static bool is_hollow(const loong_cell_t *cell, loong_message_end_t end)
{
    const bool *hollow = loongi_cell_hollow(cell, end.component, end.rank);
    return hollow != NULL && hollow[end.micro_batch];
}

/* Who reads nothing sends and receives nothing. */
static loong_status_t drop_messages(loong_cell_t *cell)
{
    loong_cell_params_t *p = &cell->params;
    loong_message_t *kept = NULL;
    int64_t count = 0;
    if (!cell->join->apart) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(
        cell->arena, (size_t)(p->num_messages + 1) * sizeof(*kept), &kept));
    for (int64_t i = 0; i < p->num_messages; i++) {
        const loong_message_t *m = &p->messages[i];
        if (!is_hollow(cell, loongi_message_from(cell, m)) &&
            !is_hollow(cell, loongi_message_to(cell, m))) {
            kept[count++] = *m;
        }
    }
    p->messages = kept;
    p->num_messages = count;
    return LOONG_OK;
}

static loong_status_t make_keys(list_maker_t *l)
{
    const loong_cell_params_t *p = &l->cell->params;
    loong_join_t *j = &l->join;
    j->cell = l->cell;
    LOONG_TRY(loongi_arena_alloc(
        l->cell->arena, (size_t)p->num_components * sizeof(*j->forward),
        &j->forward));
    LOONG_TRY(loongi_arena_alloc(
        l->cell->arena, (size_t)p->num_components * sizeof(*j->backward),
        &j->backward));
    for (int c = 0; c < p->num_components; c++) {
        const loong_schedule_params_t *sizes = &p->components[c].params;
        size_t stages = (size_t)sizes->ranks * (size_t)sizes->chunks;
        size_t bytes = stages * (size_t)sizes->micro_batches * sizeof(int64_t);
        LOONG_TRY(loongi_arena_alloc(l->cell->arena, bytes, &j->forward[c]));
        LOONG_TRY(loongi_arena_alloc(l->cell->arena, bytes, &j->backward[c]));
        if (c == l->cell->num_own - 1) {
            LOONG_TRY(loongi_arena_alloc(l->cell->arena, bytes, &j->weights));
        }
    }
    LOONG_TRY(scale_work(l));
    LOONG_TRY(simulate_last(l));
    LOONG_TRY(take_turns(l->cell));
    return l->cell->join->place(j);
}

/* ---- the list of a rank -------------------------------------------------- */

/* Where stages of a frozen component compute apart, the one behind receives as
 * soon as a micro-batch is made: who makes it needs its slot again. */
static bool receives_early(const loong_cell_t *cell, int component,
                           const loong_entry_t *e)
{
    return cell->join->apart && component < cell->num_own - 1 &&
           e->kind == LOONG_ENTRY_E;
}

static void add_work(list_maker_t *l, int component, int pipeline_rank)
{
    const loong_schedule_t *s = l->cell->schedules[component];
    const loong_rank_schedule_t *list = &s->ranks[pipeline_rank];
    for (int64_t k = 0; k < list->num_entries; k++) {
        const loong_entry_t *e = &list->entries[k];
        if (!loongi_entry_computes(e)) {
            continue;
        }
        item_t *item = &l->items[l->count++];
        int stage = loongi_schedule_stage(s, pipeline_rank, e->chunk);
        item->place = place_of(l, component, stage, e->kind, e->micro_batch);
        item->work = e;
        item->component = component;
        if (stage > 0 && receives_early(l->cell, component, e)) {
            l->items[l->count] = *item;
            item = &l->items[l->count++];
            item->place =
                place_of(l, component, stage - 1, e->kind, e->micro_batch);
            item->place.message = 0;
        }
    }
}

static void add_messages(list_maker_t *l, int rank)
{
    const loong_cell_t *cell = l->cell;
    for (int64_t i = 0; i < cell->params.num_messages; i++) {
        const loong_message_t *m = &cell->params.messages[i];
        if (m->from_rank != rank && m->to_rank != rank) {
            continue;
        }
        loong_message_end_t from = loongi_message_from(cell, m);
        bool frozen = cell->schedules[from.component]->kind->evaluate;
        loong_entry_kind_t kind = m->backward ? LOONG_ENTRY_B
                                  : frozen    ? LOONG_ENTRY_E
                                              : LOONG_ENTRY_F;
        item_t *item = &l->items[l->count++];
        item->place =
            place_of(l, from.component, from.stage, kind, from.micro_batch);
        item->place.message = (int32_t)i;
        item->work = NULL;
        item->component = from.component;
    }
}

static loong_entry_writer_t writer_of(const loong_cell_t *cell, int component,
                                      int rank)
{
    loong_entry_writer_t w = {cell->schedules[component],
                              loongi_cell_pipeline_rank(cell, component, rank),
                              component, &cell->ranks[rank],
                              loongi_cell_hollow(cell, component, rank)};
    return w;
}

static loong_status_t put_work(const loong_cell_t *cell,
                               const loong_entry_writer_t *w,
                               const item_t *item)
{
    loong_entry_t work[2] = {*item[0].work, *item[0].work};
    int count = item[0].work->pair >= 0 ? 2 : 1;
    work[1] = count == 2 ? *item[1].work : work[0];
    if (item->place.message >= 0) {
        return loongi_entry_put_receive(w, work);
    }
    return loongi_entry_put_unit(w, count, work,
                                 receives_early(cell, item->component, work));
}

static loong_status_t put_message(const loong_cell_t *cell, int rank,
                                  int32_t message)
{
    const loong_message_t *m = &cell->params.messages[message];
    const loong_message_end_t ends[] = {loongi_message_from(cell, m),
                                        loongi_message_to(cell, m)};
    static const loong_entry_kind_t kinds[2][2] = {
        {LOONG_ENTRY_SEND_EDGE_FORWARD, LOONG_ENTRY_RECV_EDGE_FORWARD},
        {LOONG_ENTRY_SEND_EDGE_BACKWARD, LOONG_ENTRY_RECV_EDGE_BACKWARD}};
    for (int i = 0; i < 2; i++) {
        if (ends[i].rank == rank) {
            loong_entry_writer_t w = writer_of(cell, ends[i].component, rank);
            loong_entry_t entry = loongi_entry(
                kinds[m->backward][i], ends[i].chunk, ends[i].micro_batch);
            entry.message = message;
            LOONG_TRY(loongi_entry_put(&w, entry));
        }
    }
    return LOONG_OK;
}

/* REDUCE of each trained component. */
static loong_status_t put_reduce(const loong_cell_t *cell, int rank,
                                 bool *trains_p)
{
    for (int c = 0; c < cell->params.num_components; c++) {
        loong_entry_writer_t w = writer_of(cell, c, rank);
        if (w.rank >= 0 && !w.schedule->kind->evaluate) {
            LOONG_TRY(loongi_entry_put_reduce(&w));
            *trains_p = true;
        }
    }
    return LOONG_OK;
}

static loong_status_t fill_rank(list_maker_t *l, int rank)
{
    loong_cell_t *cell = l->cell;
    bool trains = false;
    l->count = 0;
    for (int c = 0; c < cell->params.num_components; c++) {
        int pipeline_rank = loongi_cell_pipeline_rank(cell, c, rank);
        if (pipeline_rank >= 0) {
            add_work(l, c, pipeline_rank);
        }
    }
    add_messages(l, rank);
    qsort(l->items, (size_t)l->count, sizeof(*l->items), by_place);
    for (int64_t i = 0; i < l->count; i++) {
        const item_t *item = &l->items[i];
        if (item->work == NULL) {
            LOONG_TRY(put_message(cell, rank, item->place.message));
            continue;
        }
        loong_entry_writer_t w = writer_of(cell, item->component, rank);
        LOONG_TRY(put_work(cell, &w, item));
        i += item->work->pair >= 0 ? 1 : 0;
    }
    LOONG_TRY(put_reduce(cell, rank, &trains));
    if (trains) {
        loong_entry_writer_t w = {cell->schedules[0], 0, 0, &cell->ranks[rank],
                                  NULL};
        LOONG_TRY(loongi_entry_put(&w, loongi_entry(LOONG_ENTRY_U, -1, -1)));
    }
    for (int c = 0; c < cell->params.num_components; c++) {
        loong_entry_writer_t w = writer_of(cell, c, rank);
        if (w.rank >= 0) {
            LOONG_TRY(loongi_schedule_colour(
                &w, &w.list->chunks[cell->first_chunk[c]]));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_cell_fill(loong_cell_t *cell)
{
    list_maker_t l = {.cell = cell};
    int64_t room = cell->params.num_messages;
    for (int c = 0; c < cell->params.num_components; c++) {
        const loong_schedule_params_t *p = &cell->schedules[c]->params;
        room += (int64_t)p->chunks * p->micro_batches * 3;
    }
    LOONG_TRY(make_keys(&l));
    LOONG_TRY(mark_hollow(cell));
    LOONG_TRY(drop_messages(cell));
    LOONG_TRY(loongi_calloc(cell->ctx, (size_t)room, sizeof(*l.items),
                            "lists of a cell", &l.items));
    loong_status_t status = LOONG_OK;
    for (int r = 0; r < cell->params.ranks && status == LOONG_OK; r++) {
        status = fill_rank(&l, r);
    }
    loongi_free(cell->ctx, l.items);
    return status;
}
