/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the lists of all ranks of a cell at once, with a clock each, as devices
 * would: a program waits for what it receives, for its slot, and for the other
 * replicas of its stage, which must be at the same entry; the messages of an
 * edge and direction go one behind the other at each rank, in the order in
 * which it begins them. Called by the planner, by cell_lists.c and by the
 * checks. Read cell.h before. */
#include <string.h>

#include "cell_impl.h"

/* A stage of one replica of a component, and a micro-batch of it. */
typedef struct item {
    /* When the pipeline's message to the stage was begun at both ends, -1: not
     * yet; forward and backward. */
    double sent[2], received[2];
    /* Messages of edges to it (forward, backward) and from it: how many are
     * not complete, and when the last one was. */
    int32_t arriving[2], leaving;
    double arrived[2], left;
    /* The micro-batch that had the slot of this number last; -1: none. */
    int32_t slot;
} item_t;

/* Where a component is on a rank. */
typedef struct place {
    int32_t rank; /* of its pipeline; -1: it is not there */
    int32_t replica;
} place_t;

typedef struct passage {
    item_t *from, *to;
    double sent, received; /* begun by its ends; -1: not yet */
    double cost;
    bool complete;
} passage_t;

typedef struct machine {
    const loong_cell_t *cell;
    const loong_stage_cost_t *costs; /* NULL: all zero */
    loong_span_t *spans;             /* of all entries; NULL: not wanted */
    int64_t *at;                     /* per rank: next entry */
    double *clock;                   /* per rank */
    place_t *places;                 /* [component][rank] */
    item_t **items;      /* per component: [replica][stage][micro-batch] */
    passage_t *passages; /* per message */
    int32_t **queue;     /* per rank: messages in the order of their entries, */
    int64_t *queued;     /* so many, of which */
    int64_t *passed;     /* the first so many are complete */
    double busy;
} machine_t;

static const place_t *place_of(const machine_t *m, int component, int rank)
{
    return &m->places[component * m->cell->params.ranks + rank];
}

static double cost(const machine_t *m, loong_entry_kind_t kind, int component,
                   int stage)
{
    return m->costs == NULL
               ? 0.0
               : m->costs[loongi_cell_stage(m->cell, component, stage)]
                     .seconds[kind];
}

/* Has a rank's replica nothing to do in a micro-batch? Without costs, where all
 * that may run is proved, it has. */
static bool is_hollow(const machine_t *m, int rank, int component,
                      int micro_batch)
{
    return m->costs != NULL && component >= 0 && micro_batch >= 0 &&
           !loongi_cell_reads(m->cell, component,
                              place_of(m, component, rank)->replica,
                              micro_batch);
}

static item_t *item(const machine_t *m, int component, int replica, int stage,
                    int micro_batch)
{
    const loong_schedule_t *s = m->cell->schedules[component];
    int64_t stages = loongi_schedule_stages(s);
    return &m->items[component]
                    [(replica * stages + stage) * s->params.micro_batches +
                     micro_batch];
}

static int stage_of(const machine_t *m, int rank, const loong_entry_t *e)
{
    int component = loongi_cell_component(m->cell, rank, e);
    return loongi_schedule_stage(
        m->cell->schedules[component],
        LOONG_MAX(place_of(m, component, rank)->rank, 0),
        LOONG_MAX(e->chunk, 0));
}

static void wait_until(machine_t *m, int rank, double seconds)
{
    m->clock[rank] = LOONG_MAX(m->clock[rank], seconds);
}

/* ---- waiting ------------------------------------------------------------- */

/* Waits for the pipeline's message to a stage; there is none at its ends. */
static bool wait_message(machine_t *m, int rank, const loong_entry_t *e,
                         int backward, int stage, int micro_batch)
{
    int stages = loongi_schedule_stages(m->cell->schedules[e->component]);
    int from = stage + (backward ? 1 : -1);
    if (stage < 0 || stage >= stages || from < 0 || from >= stages) {
        return true;
    }
    const item_t *to =
        item(m, e->component, place_of(m, e->component, rank)->replica, stage,
             micro_batch);
    if (to->sent[backward] < 0.0 || to->received[backward] < 0.0) {
        return false;
    }
    wait_until(m, rank,
               LOONG_MAX(to->sent[backward], to->received[backward]) +
                   cost(m,
                        backward ? LOONG_ENTRY_SEND_BACKWARD
                                 : LOONG_ENTRY_SEND_FORWARD,
                        e->component, from));
    return true;
}

/* Waits until what a micro-batch of this stage sent is sent. */
static bool wait_sends(machine_t *m, int rank, const loong_entry_t *e,
                       int stage, int micro_batch)
{
    const item_t *i =
        item(m, e->component, place_of(m, e->component, rank)->replica, stage,
             micro_batch);
    if (i->leaving > 0 ||
        !wait_message(m, rank, e, 0, stage + 1, micro_batch) ||
        (!m->cell->schedules[e->component]->kind->evaluate &&
         !wait_message(m, rank, e, 1, stage - 1, micro_batch))) {
        return false;
    }
    wait_until(m, rank, i->left);
    return true;
}

/* Takes the slot of an entry over from who held it. */
static bool take_over(machine_t *m, int rank, const loong_entry_t *e, int stage)
{
    int replica = place_of(m, e->component, rank)->replica;
    int32_t *slot = &item(m, e->component, replica, stage, e->slot)->slot;
    if (*slot != e->micro_batch) {
        if (*slot >= 0 && !wait_sends(m, rank, e, stage, *slot)) {
            return false;
        }
        *slot = e->micro_batch;
    }
    return true;
}

/* May the entry of a rank run, but for other replicas? */
static bool is_ready(machine_t *m, int rank, const loong_entry_t *e)
{
    int backward = e->kind == LOONG_ENTRY_B;
    int stage = stage_of(m, rank, e);
    if (e->slot >= 0 && !take_over(m, rank, e, stage)) {
        return false;
    }
    if (!loongi_entry_computes(e) || e->kind == LOONG_ENTRY_W) {
        return true;
    }
    const item_t *i =
        item(m, e->component, place_of(m, e->component, rank)->replica, stage,
             e->micro_batch);
    if (i->arriving[backward] > 0 ||
        !wait_message(m, rank, e, backward, stage, e->micro_batch)) {
        return false;
    }
    wait_until(m, rank, i->arrived[backward]);
    return true;
}

/* ---- messages of edges --------------------------------------------------- */

/* Is it the message's turn at a rank? */
static bool is_next(const machine_t *m, int rank, int32_t message)
{
    const loong_message_t *all = m->cell->params.messages;
    int edge = loongi_cell_edge(m->cell, all[message].edge);
    for (int64_t i = m->passed[rank]; i < m->queued[rank]; i++) {
        int32_t other = m->queue[rank][i];
        if (other == message) {
            return true;
        }
        if (!m->passages[other].complete &&
            loongi_cell_edge(m->cell, all[other].edge) == edge &&
            all[other].backward == all[message].backward) {
            return false;
        }
    }
    return false;
}

static void complete(machine_t *m, int32_t message)
{
    passage_t *p = &m->passages[message];
    int backward = m->cell->params.messages[message].backward;
    double end = LOONG_MAX(p->sent, p->received) + p->cost;
    p->complete = true;
    p->from->leaving--;
    p->from->left = LOONG_MAX(p->from->left, end);
    p->to->arriving[backward]--;
    p->to->arrived[backward] = LOONG_MAX(p->to->arrived[backward], end);
}

static bool complete_all(machine_t *m, int rank)
{
    const loong_message_t *all = m->cell->params.messages;
    bool any = false;
    for (int64_t i = m->passed[rank]; i < m->queued[rank]; i++) {
        int32_t k = m->queue[rank][i];
        const passage_t *p = &m->passages[k];
        if (!p->complete && p->sent >= 0.0 && p->received >= 0.0 &&
            is_next(m, all[k].from_rank, k) && is_next(m, all[k].to_rank, k)) {
            complete(m, k);
            any = true;
        }
        m->passed[rank] += p->complete && i == m->passed[rank];
    }
    return any;
}

/* ---- entries ------------------------------------------------------------- */

/* Begins what does not compute. */
static void begin(machine_t *m, int rank, const loong_entry_t *e)
{
    int stage = stage_of(m, rank, e);
    int replica = place_of(m, e->component, rank)->replica;
    item_t *own = item(m, e->component, replica, stage, e->micro_batch);
    const double *clock = &m->clock[rank];
    switch (e->kind) {
    case LOONG_ENTRY_RECV_FORWARD:
        own->received[0] = *clock;
        break;
    case LOONG_ENTRY_RECV_BACKWARD:
        own->received[1] = *clock;
        break;
    case LOONG_ENTRY_SEND_FORWARD:
        item(m, e->component, replica, stage + 1, e->micro_batch)->sent[0] =
            *clock;
        break;
    case LOONG_ENTRY_SEND_BACKWARD:
        item(m, e->component, replica, stage - 1, e->micro_batch)->sent[1] =
            *clock;
        break;
    default: /* an edge's */
        if (m->passages[e->message].complete) {
            break; /* nothing is sent */
        }
        *(loongi_entry_sends_edge(e) ? &m->passages[e->message].sent
                                     : &m->passages[e->message].received) =
            *clock;
        m->queue[rank][m->queued[rank]++] = e->message;
        break;
    }
}

static void pass(machine_t *m, int rank, loong_span_t span)
{
    if (m->spans != NULL) {
        m->spans[loongi_schedule_spans(m->cell->ranks, rank) + m->at[rank]] =
            span;
    }
    m->at[rank]++;
}

/* The entry at which a rank stands, if it is this one and of this stage. */
static bool stands_at(const machine_t *m, int rank, const loong_entry_t *e)
{
    const loong_rank_schedule_t *list = &m->cell->ranks[rank];
    const loong_entry_t *own = &list->entries[m->at[rank]];
    return m->at[rank] < list->num_entries && own->kind == e->kind &&
           own->component == e->component && own->chunk == e->chunk &&
           own->micro_batch == e->micro_batch;
}

/* Does a rank run it with others, who are at this rank of its pipeline? All of
 * them run U. */
static bool takes_part(const machine_t *m, int rank, const loong_entry_t *e,
                       int pipeline_rank)
{
    const loong_rank_schedule_t *list = &m->cell->ranks[rank];
    return e->component >= 0
               ? place_of(m, e->component, rank)->rank == pipeline_rank &&
                     !is_hollow(m, rank, e->component, e->micro_batch)
               : list->num_entries > 0 &&
                     list->entries[list->num_entries - 1].kind == e->kind;
}

/* A program runs when it is ready on all replicas; its entry is passed by each
 * of them at one time. */
static bool run_together(machine_t *m, int rank, const loong_entry_t *e)
{
    int ranks = m->cell->params.ranks;
    int own = e->component < 0 ? -1 : place_of(m, e->component, rank)->rank;
    double start = 0.0;
    for (int k = 0; k < ranks; k++) {
        if (takes_part(m, k, e, own) && !stands_at(m, k, e)) {
            return false;
        }
    }
    for (int k = 0; k < ranks; k++) {
        if (!takes_part(m, k, e, own)) {
            continue;
        }
        if (!is_ready(m, k, &m->cell->ranks[k].entries[m->at[k]])) {
            return false;
        }
        start = LOONG_MAX(start, m->clock[k]);
    }
    for (int k = 0; k < ranks; k++) {
        if (takes_part(m, k, e, own)) {
            int component = loongi_cell_component(m->cell, k, e);
            double seconds = cost(m, e->kind, component, stage_of(m, k, e));
            m->clock[k] = start + seconds;
            m->busy += e->kind == LOONG_ENTRY_REDUCE ? 0.0 : seconds;
            pass(m, k, (loong_span_t){start, m->clock[k]});
        }
    }
    return true;
}

static bool run_entry(machine_t *m, int rank)
{
    const loong_entry_t *e = &m->cell->ranks[rank].entries[m->at[rank]];
    bool skips = loongi_entry_computes(e) || (e->slot < 0 && e->message < 0);
    if (skips && is_hollow(m, rank, e->component, e->micro_batch)) {
        pass(m, rank, (loong_span_t){m->clock[rank], m->clock[rank]});
        return true;
    }
    if (loongi_entry_computes(e) || e->micro_batch < 0) {
        return run_together(m, rank, e);
    }
    if (!is_ready(m, rank, e)) {
        return false;
    }
    begin(m, rank, e);
    pass(m, rank, (loong_span_t){m->clock[rank], m->clock[rank]});
    return true;
}

/* ---- the whole ----------------------------------------------------------- */

static loong_status_t deadlock(const machine_t *m)
{
    loong_text_t text = loongi_text_begin(m->cell->ctx);
    for (int r = 0; r < m->cell->params.ranks; r++) {
        const loong_rank_schedule_t *list = &m->cell->ranks[r];
        if (m->at[r] < list->num_entries) {
            const loong_entry_t *e = &list->entries[m->at[r]];
            loongi_text_printf(&text,
                               "; rank %d waits in entry %lld, %s of "
                               "component %d, chunk %d, micro-batch %d",
                               r, (long long)m->at[r],
                               loongi_entry_name(e->kind), (int)e->component,
                               (int)e->chunk, (int)e->micro_batch);
        }
    }
    loong_status_t status = LOONG_FAIL(m->cell->ctx, LOONG_ERR_INTERNAL,
                                       "deadlock%s", loongi_text_get(&text));
    loongi_text_free(&text);
    return status;
}

static loong_status_t run(machine_t *m)
{
    int ranks = m->cell->params.ranks;
    bool moved = true, done = false;
    while (moved && !done) {
        moved = false;
        done = true;
        for (int r = 0; r < ranks; r++) {
            int64_t at = m->at[r];
            while (m->at[r] < m->cell->ranks[r].num_entries &&
                   run_entry(m, r)) {
            }
            moved = m->at[r] > at || moved;
            moved = complete_all(m, r) || moved;
        }
        for (int r = 0; r < ranks; r++) {
            done = done && m->at[r] == m->cell->ranks[r].num_entries;
        }
    }
    return done ? LOONG_OK : deadlock(m);
}

static loong_status_t prepare_component(machine_t *m, loong_arena_t *arena,
                                        int component)
{
    const loong_cell_params_t *p = &m->cell->params;
    const loong_schedule_t *s = m->cell->schedules[component];
    const loong_cell_component_t *c = &p->components[component];
    static const item_t nothing = {
        .sent = {-1.0, -1.0}, .received = {-1.0, -1.0}, .slot = -1};
    for (int r = 0; r < p->ranks; r++) {
        m->places[component * p->ranks + r] = (place_t){-1, -1};
    }
    for (int i = 0; i < c->replicas * c->params.ranks; i++) {
        m->places[component * p->ranks + c->rank[i]] =
            (place_t){i % c->params.ranks, i / c->params.ranks};
    }
    size_t count = (size_t)c->replicas * (size_t)loongi_schedule_stages(s) *
                   (size_t)s->params.micro_batches;
    LOONG_TRY(loongi_arena_alloc(arena, count * sizeof(item_t),
                                 &m->items[component]));
    for (size_t i = 0; i < count; i++) {
        m->items[component][i] = nothing;
    }
    return LOONG_OK;
}

static item_t *item_of(const machine_t *m, loong_message_end_t end)
{
    return item(m, end.component, place_of(m, end.component, end.rank)->replica,
                end.stage, end.micro_batch);
}

static loong_status_t prepare_messages(machine_t *m, loong_arena_t *arena)
{
    const loong_cell_params_t *p = &m->cell->params;
    size_t count = (size_t)p->num_messages;
    LOONG_TRY(loongi_arena_alloc(arena, (count + 1) * sizeof(*m->passages),
                                 &m->passages));
    for (size_t i = 0; i < count; i++) {
        const loong_message_t *message = &p->messages[i];
        loong_message_end_t from = loongi_message_from(m->cell, message);
        loong_message_end_t to = loongi_message_to(m->cell, message);
        passage_t *passage = &m->passages[i];
        *passage = (passage_t){
            item_of(m, from),
            item_of(m, to),
            -1.0,
            -1.0,
            cost(m,
                 message->backward ? LOONG_ENTRY_SEND_EDGE_BACKWARD
                                   : LOONG_ENTRY_SEND_EDGE_FORWARD,
                 from.component, from.stage),
            is_hollow(m, from.rank, from.component, from.micro_batch) ||
                is_hollow(m, to.rank, to.component, to.micro_batch)};
        passage->from->leaving += !passage->complete;
        passage->to->arriving[message->backward] += !passage->complete;
    }
    for (int r = 0; r < p->ranks; r++) {
        LOONG_TRY(loongi_arena_alloc(
            arena, (2 * count + 1) * sizeof(**m->queue), &m->queue[r]));
    }
    return LOONG_OK;
}

static loong_status_t prepare(machine_t *m, loong_arena_t *arena)
{
    const loong_cell_params_t *p = &m->cell->params;
    size_t ranks = (size_t)p->ranks;
    size_t components = (size_t)p->num_components;
    LOONG_TRY(loongi_arena_alloc(arena, 3 * ranks * sizeof(int64_t), &m->at));
    memset(m->at, 0, 3 * ranks * sizeof(int64_t));
    m->queued = m->at + ranks;
    m->passed = m->queued + ranks;
    LOONG_TRY(loongi_arena_alloc(arena, ranks * sizeof(double), &m->clock));
    memset(m->clock, 0, ranks * sizeof(double));
    LOONG_TRY(loongi_arena_alloc(arena, components * ranks * sizeof(place_t),
                                 &m->places));
    LOONG_TRY(
        loongi_arena_alloc(arena, components * sizeof(item_t *), &m->items));
    LOONG_TRY(loongi_arena_alloc(arena, ranks * sizeof(int32_t *), &m->queue));
    for (int c = 0; c < p->num_components; c++) {
        LOONG_TRY(prepare_component(m, arena, c));
    }
    return prepare_messages(m, arena);
}

static loong_simulation_t total(const machine_t *m)
{
    int ranks = m->cell->params.ranks;
    loong_simulation_t result = {0.0, m->busy, 0.0};
    for (int r = 0; r < ranks; r++) {
        result.seconds = LOONG_MAX(result.seconds, m->clock[r]);
    }
    if (result.seconds > 0.0) {
        result.bubble = 1.0 - result.busy / (ranks * result.seconds);
    }
    return result;
}

loong_status_t loongi_cell_simulate(const loong_cell_t *cell,
                                    const loong_stage_cost_t *costs,
                                    loong_span_t *spans,
                                    loong_simulation_t *simulation_p)
{
    loong_arena_t *arena = NULL;
    machine_t m = {.cell = cell, .costs = costs, .spans = spans};
    LOONG_TRY(loongi_arena_create(cell->ctx, "simulation", &arena));
    loong_status_t status = prepare(&m, arena);
    if (status == LOONG_OK) {
        status = run(&m);
    }
    if (status == LOONG_OK) {
        *simulation_p = total(&m);
    }
    loongi_arena_destroy(&arena);
    return status;
}

/* The schedule alone is a cell of one component. */
loong_status_t loongi_schedule_simulate(const loong_schedule_t *schedule,
                                        const loong_stage_cost_t *costs,
                                        loong_span_t *spans,
                                        loong_simulation_t *simulation_p)
{
    int ranks = schedule->params.ranks;
    int32_t *rank = NULL;
    LOONG_TRY(loongi_calloc(schedule->ctx, (size_t)ranks, sizeof(*rank),
                            "simulation", &rank));
    for (int r = 0; r < ranks; r++) {
        rank[r] = r;
    }
    loong_schedule_t *of[] = {(loong_schedule_t *)schedule};
    loong_cell_component_t component = {
        .params = schedule->params, .replicas = 1, .rank = rank};
    int32_t itself = 0;
    int32_t *all = NULL;
    loong_cell_t cell = {.ctx = schedule->ctx,
                         .num_own = 1,
                         .forward_of = &itself,
                         .reader = &all,
                         .params = {.ranks = ranks,
                                    .num_components = 1,
                                    .components = &component},
                         .schedules = of,
                         .ranks = schedule->ranks};
    loong_status_t status =
        loongi_cell_simulate(&cell, costs, spans, simulation_p);
    loongi_free(schedule->ctx, rank);
    return status;
}
