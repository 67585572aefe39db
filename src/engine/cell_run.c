/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the lists of all ranks of a cell without times, as devices would: a
 * program waits for what it receives, for its slot, and for the other replicas
 * of its stage, which must be at the same entry; the messages of an edge and
 * direction go one behind the other at each rank, in the order in which it
 * begins them. */
#include <string.h>

#include "cell_impl.h"

typedef struct runner {
    const loong_cell_t *cell;
    int64_t *at; /* per rank: next entry */
    /* Per component, replica, stage and micro-batch, of the receiver's: begun
     * by its sender (1) and receiver (2), forward and backward. */
    uint8_t **passed[2];
    uint8_t *edge;    /* per message: begun by its sender (1), receiver (2), by
                         both and complete (4) */
    int32_t **queue;  /* per rank: messages in the order of their entries */
    int64_t *queued;  /* per rank: how many */
    int32_t **holder; /* per rank, component: [chunk][slot] micro-batch, -1 */
} runner_t;

/* Which replica of a component a rank belongs to. */
static int replica_of(const loong_cell_t *cell, int component, int rank)
{
    const loong_cell_component_t *c = &cell->params.components[component];
    int i = 0;
    while (c->rank[i] != rank) {
        i++;
    }
    return i / c->params.ranks;
}

static uint8_t *passed(const runner_t *r, int backward, int component,
                       int replica, int stage, int micro_batch)
{
    const loong_schedule_t *s = r->cell->schedules[component];
    int64_t stages = loongi_schedule_stages(s);
    return &r->passed[backward][component]
                     [(replica * stages + stage) * s->params.micro_batches +
                      micro_batch];
}

/* Whether the pipeline's message to a stage is there; also where there is
 * none. */
static bool came(const runner_t *r, int backward, int component, int replica,
                 int stage, int micro_batch)
{
    int stages = loongi_schedule_stages(r->cell->schedules[component]);
    int from = stage + (backward ? 1 : -1);
    return stage < 0 || stage >= stages || from < 0 || from >= stages ||
           *passed(r, backward, component, replica, stage, micro_batch) == 3;
}

/* Is it the message's turn at a rank? */
static bool is_next(const runner_t *r, int rank, int32_t message)
{
    const loong_message_t *all = r->cell->params.messages;
    const loong_message_t *m = &all[message];
    for (int64_t i = 0; i < r->queued[rank]; i++) {
        int32_t other = r->queue[rank][i];
        if (other == message) {
            return true;
        }
        if (r->edge[other] != 7 && all[other].edge == m->edge &&
            all[other].backward == m->backward) {
            return false;
        }
    }
    return false;
}

static bool complete(runner_t *r, int rank)
{
    const loong_message_t *all = r->cell->params.messages;
    bool any = false;
    for (int64_t i = 0; i < r->queued[rank]; i++) {
        int32_t m = r->queue[rank][i];
        if (r->edge[m] == 3 && is_next(r, all[m].from_rank, m) &&
            is_next(r, all[m].to_rank, m)) {
            r->edge[m] = 7;
            any = true;
        }
    }
    return any;
}

/* Are all messages of an end complete? */
static bool edges_done(const runner_t *r, int rank, const loong_entry_t *e,
                       int micro_batch, bool receives, bool backward)
{
    const loong_cell_t *cell = r->cell;
    for (int64_t i = 0; i < cell->params.num_messages; i++) {
        const loong_message_t *m = &cell->params.messages[i];
        if (r->edge[i] == 7 || (receives ? m->to_rank : m->from_rank) != rank ||
            (receives && m->backward != backward)) {
            continue;
        }
        loong_message_end_t end = receives ? loongi_message_to(cell, m)
                                           : loongi_message_from(cell, m);
        if (end.component == e->component && end.chunk == e->chunk &&
            end.micro_batch == micro_batch) {
            return false;
        }
    }
    return true;
}

static int stage_of(const runner_t *r, int rank, const loong_entry_t *e)
{
    return loongi_schedule_stage(
        r->cell->schedules[e->component],
        loongi_cell_pipeline_rank(r->cell, e->component, rank), e->chunk);
}

/* A slot is taken over when what its micro-batch sent is sent. */
static bool slot_is_free(runner_t *r, int rank, const loong_entry_t *e)
{
    const loong_schedule_t *s = r->cell->schedules[e->component];
    int c = e->component * r->cell->params.ranks + rank;
    int32_t *held = &r->holder[c][e->chunk * s->params.micro_batches + e->slot];
    if (*held >= 0 && *held != e->micro_batch) {
        int replica = replica_of(r->cell, e->component, rank);
        int stage = stage_of(r, rank, e);
        if (!came(r, 0, e->component, replica, stage + 1, *held) ||
            (!s->kind->evaluate &&
             !came(r, 1, e->component, replica, stage - 1, *held)) ||
            !edges_done(r, rank, e, *held, false, false)) {
            return false;
        }
    }
    *held = e->micro_batch;
    return true;
}

/* Do other replicas stand at the entry? U is run by all ranks together. */
static bool all_there(const runner_t *r, const loong_entry_t *e, int stage)
{
    const loong_cell_params_t *p = &r->cell->params;
    for (int k = 0; k < p->ranks; k++) {
        const loong_rank_schedule_t *list = &r->cell->ranks[k];
        bool belongs =
            e->component < 0
                ? list->num_entries > 0 &&
                      list->entries[list->num_entries - 1].kind == e->kind
                : loongi_cell_pipeline_rank(r->cell, e->component, k) ==
                      loongi_schedule_rank(r->cell->schedules[e->component],
                                           stage);
        const loong_entry_t *other =
            r->at[k] < list->num_entries ? &list->entries[r->at[k]] : NULL;
        if (belongs &&
            (other == NULL || other->kind != e->kind ||
             other->component != e->component || other->chunk != e->chunk ||
             other->micro_batch != e->micro_batch)) {
            return false;
        }
    }
    return true;
}

/* May the entry of a rank run, but for other replicas? */
static bool is_ready(runner_t *r, int rank, const loong_entry_t *e)
{
    bool backward = e->kind == LOONG_ENTRY_B;
    bool reads =
        backward || e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E;
    if (e->slot >= 0 && !slot_is_free(r, rank, e)) {
        return false;
    }
    return !reads || (came(r, backward, e->component,
                           replica_of(r->cell, e->component, rank),
                           stage_of(r, rank, e), e->micro_batch) &&
                      edges_done(r, rank, e, e->micro_batch, true, backward));
}

/* Begins what does not compute. */
static void begin(runner_t *r, int rank, const loong_entry_t *e)
{
    bool sends = e->kind == LOONG_ENTRY_SEND_FORWARD ||
                 e->kind == LOONG_ENTRY_SEND_BACKWARD;
    int backward = e->kind == LOONG_ENTRY_SEND_BACKWARD ||
                   e->kind == LOONG_ENTRY_RECV_BACKWARD;
    if (e->message >= 0) {
        r->edge[e->message] |= loongi_entry_sends_edge(e) ? 1 : 2;
        r->queue[rank][r->queued[rank]++] = e->message;
    } else if (sends || e->kind == LOONG_ENTRY_RECV_FORWARD ||
               e->kind == LOONG_ENTRY_RECV_BACKWARD) {
        int to = stage_of(r, rank, e) + (!sends ? 0 : backward ? -1 : 1);
        *passed(r, backward, e->component,
                replica_of(r->cell, e->component, rank), to, e->micro_batch) |=
            sends ? 1 : 2;
    }
}

/* A program runs when it is ready on all replicas; its entry is passed by each
 * of them at one time. */
static bool run_together(runner_t *r, const loong_entry_t *e, int stage)
{
    const loong_cell_params_t *p = &r->cell->params;
    if (!all_there(r, e, stage)) {
        return false;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int k = 0; k < p->ranks; k++) {
            const loong_rank_schedule_t *list = &r->cell->ranks[k];
            const loong_entry_t *other = &list->entries[r->at[k]];
            bool same =
                r->at[k] < list->num_entries && other->kind == e->kind &&
                other->component == e->component && other->chunk == e->chunk &&
                other->micro_batch == e->micro_batch &&
                (e->component < 0 || stage_of(r, k, other) == stage);
            if (same && pass == 0 && !is_ready(r, k, other)) {
                return false;
            }
            r->at[k] += same && pass == 1;
        }
    }
    return true;
}

static bool run_rank(runner_t *r, int rank)
{
    const loong_rank_schedule_t *list = &r->cell->ranks[rank];
    int64_t begun = r->at[rank];
    bool moves = true;
    while (moves && r->at[rank] < list->num_entries) {
        const loong_entry_t *e = &list->entries[r->at[rank]];
        bool alone = !loongi_entry_computes(e) && e->slot < 0 && e->message < 0;
        bool together = loongi_entry_computes(e) || alone;
        if (together) {
            int stage = e->component < 0 ? -1 : stage_of(r, rank, e);
            moves = run_together(r, e, stage);
            continue;
        }
        moves = is_ready(r, rank, e);
        if (moves) {
            begin(r, rank, e);
            r->at[rank]++;
        }
    }
    return r->at[rank] > begun;
}

static loong_status_t deadlock(const runner_t *r)
{
    loong_text_t text = loongi_text_begin(r->cell->ctx);
    for (int k = 0; k < r->cell->params.ranks; k++) {
        const loong_rank_schedule_t *list = &r->cell->ranks[k];
        if (r->at[k] < list->num_entries) {
            const loong_entry_t *e = &list->entries[r->at[k]];
            loongi_text_printf(
                &text,
                "; rank %d waits in entry %lld, %s of component %d, "
                "chunk %d, micro-batch %d",
                k, (long long)r->at[k], loongi_entry_name(e->kind),
                (int)e->component, (int)e->chunk, (int)e->micro_batch);
        }
    }
    loong_status_t status =
        LOONG_FAIL(r->cell->ctx, LOONG_ERR_INTERNAL, "cell: deadlock%s",
                   loongi_text_get(&text));
    loongi_text_free(&text);
    return status;
}

static loong_status_t run(runner_t *r)
{
    int ranks = r->cell->params.ranks;
    bool moved = true, done = false;
    while (moved && !done) {
        moved = false;
        done = true;
        for (int k = 0; k < ranks; k++) {
            moved = run_rank(r, k) || moved;
            moved = complete(r, k) || moved;
        }
        for (int k = 0; k < ranks; k++) {
            done = done && r->at[k] == r->cell->ranks[k].num_entries;
        }
    }
    return done ? LOONG_OK : deadlock(r);
}

static loong_status_t prepare(runner_t *r, loong_arena_t *arena)
{
    const loong_cell_params_t *p = &r->cell->params;
    size_t ranks = (size_t)p->ranks, count = (size_t)p->num_components;
    LOONG_TRY(loongi_arena_alloc(arena, ranks * sizeof(*r->at), &r->at));
    LOONG_TRY(
        loongi_arena_alloc(arena, ranks * sizeof(*r->queued), &r->queued));
    LOONG_TRY(loongi_arena_alloc(arena, ranks * sizeof(*r->queue), &r->queue));
    LOONG_TRY(loongi_arena_alloc(arena, (size_t)p->num_messages + 1, &r->edge));
    LOONG_TRY(loongi_arena_alloc(arena, count * ranks * sizeof(*r->holder),
                                 &r->holder));
    for (size_t k = 0; k < ranks; k++) {
        size_t bytes = (2 * (size_t)p->num_messages + 1) * sizeof(**r->queue);
        LOONG_TRY(loongi_arena_alloc(arena, bytes, &r->queue[k]));
        r->at[k] = r->queued[k] = 0;
    }
    memset(r->edge, 0, (size_t)p->num_messages + 1);
    for (int d = 0; d < 2; d++) {
        LOONG_TRY(loongi_arena_alloc(arena, count * sizeof(*r->passed[d]),
                                     &r->passed[d]));
    }
    for (size_t c = 0; c < count; c++) {
        const loong_schedule_t *s = r->cell->schedules[c];
        size_t slots =
            (size_t)s->params.chunks * (size_t)s->params.micro_batches;
        size_t size =
            slots * (size_t)s->params.ranks * (size_t)p->components[c].replicas;
        for (int d = 0; d < 2; d++) {
            LOONG_TRY(loongi_arena_alloc(arena, size, &r->passed[d][c]));
            memset(r->passed[d][c], 0, size);
        }
        for (size_t k = 0; k < ranks; k++) {
            int32_t **held = &r->holder[c * ranks + k];
            LOONG_TRY(loongi_arena_alloc(arena, slots * sizeof(**held), held));
            memset(*held, -1, slots * sizeof(**held));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_cell_run(const loong_cell_t *cell)
{
    loong_arena_t *arena = NULL;
    runner_t r = {.cell = cell};
    LOONG_TRY(loongi_arena_create(cell->ctx, "run of a cell", &arena));
    loong_status_t status = prepare(&r, arena);
    if (status == LOONG_OK) {
        status = run(&r);
    }
    loongi_arena_destroy(&arena);
    return status;
}
