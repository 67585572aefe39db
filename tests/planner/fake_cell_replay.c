/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the lists of all ranks of a cell on exactly the planned bytes, which are
 * spoilt as soon as the plan gives them up. */
#include <stdio.h>
#include <string.h>

#include "fake_cell_replay.h"
#include "passes.h"

static int index_of(const replay_t *r, const loong_entry_t *e)
{
    return fake_cell_of(r)->first_chunk[e->component] + e->chunk;
}

static loong_frame_t frame_of(replay_t *r, int rank, const loong_entry_t *e)
{
    loong_frame_t frame = fake_component_frame(
        r->fake, fake_own(r->fake, e->component),
        fake_replica(r->fake, e->component, rank),
        fake_stage_of(r, rank, e), r->step, e->micro_batch);
    if (fake_is(r, FAULT_FIRST_ON_HOLLOW)) {
        bool clears = frame.first && frame.hollow && e->kind == LOONG_ENTRY_B;
        r->planted += clears;
        frame.first = frame.first && !clears;
    }
    return frame;
}

/* ---- places -------------------------------------------------------------- */

static void spoil(replay_t *r, int rank, loong_base_t base, int index,
                  int64_t at, int64_t bytes)
{
    fake_region_poison(r->base[rank][base],
                       r->ranks[rank]->places[index].begin[base] + at * bytes,
                       bytes);
}

/* The area of an entry, and where that is: *begin_p. */
static fake_region_t *area_of(const replay_t *r, int rank,
                              const loong_entry_t *e, int back,
                              int64_t *begin_p)
{
    int index = index_of(r, e);
    const loong_memory_plan_t *plan = r->ranks[rank];
    loong_base_t base = LOONG_BASE_EDGE + back;
    if (plan->places[index].on_host[back]) {
        *begin_p = loongi_memory_plan_area(plan, 0, e, back);
        return r->host[rank][back];
    }
    *begin_p = plan->places[index].begin[base] +
               e->area[back] * r->chunks[rank][index]->edge_bytes[back];
    return r->base[rank][base];
}

/* A program reads its area in a window, which is spoilt behind it. */
static void move_window(replay_t *r, int rank, const loong_entry_t *e,
                        const loong_binding_t *run, bool fill)
{
    int index = index_of(r, e);
    for (int d = 0; d < 2; d++) {
        int64_t bytes = r->chunks[rank][index]->edge_bytes[d];
        int64_t begin = 0;
        if (e->area[d] < 0 || !r->ranks[rank]->places[index].on_host[d]) {
            continue;
        }
        char *window = run->base[LOONG_BASE_EDGE + d];
        if (!fill) {
            spoil(r, rank, LOONG_BASE_EDGE + d, index, e->window[d], bytes);
            continue;
        }
        const fake_region_t *area = area_of(r, rank, e, d, &begin);
        r->windows++;
        memcpy(window, area->data + begin, (size_t)bytes);
        fake_world_write(&r->world, window, bytes, "window");
    }
}

static int both(int a, int b)
{
    return LOONG_MIN(a, b);
}

static int take_slot(replay_t *r, int rank, const loong_entry_t *e)
{
    int index = index_of(r, e);
    int32_t *holder = &r->slot[rank][index][e->slot];
    int stage = fake_stage_of(r, rank, e);
    const loong_model_chunk_t *c = r->chunks[rank][index];
    if (*holder == e->micro_batch) {
        return MOVES;
    }
    if (*holder >= 0) {
        int state =
            both(fake_want_passed(r, rank, e, 0, stage + 1, *holder),
                 fake_cell_of(r)->schedules[e->component]->kind->evaluate
                     ? MOVES
                     : fake_want_passed(r, rank, e, 1, stage - 1, *holder));
        int sent = fake_want_edges(r, rank, e, *holder, false, false);
        if (sent == WAITS && fake_is(r, FAULT_SLOT_EARLY)) {
            r->planted++;
            sent = MOVES;
        }
        if (both(state, sent) != MOVES) {
            return both(state, sent);
        }
        r->reused++;
    }
    *holder = e->micro_batch;
    spoil(r, rank, LOONG_BASE_SLOT, index, e->slot, c->slot_bytes);
    spoil(r, rank, LOONG_BASE_INPUT, index, e->slot, c->input_bytes);
    return MOVES;
}

/* What no message brings is zero. */
static void take_area(replay_t *r, int rank, const loong_entry_t *e,
                      bool backward)
{
    int index = index_of(r, e);
    const loong_model_chunk_t *c = r->chunks[rank][index];
    int64_t bytes = c->edge_bytes[backward];
    int64_t begin = 0;
    bool *cleared = &r->cleared[rank][index][backward][e->micro_batch];
    fake_region_t *area = area_of(r, rank, e, backward, &begin);
    if (*cleared) {
        return;
    }
    *cleared = true;
    r->areas++;
    if (fake_is(r, FAULT_NOT_CLEARED)) {
        r->planted++;
        return;
    }
    fake_region_poison(area, begin, bytes);
    memset(area->data + begin, 0, (size_t)bytes);
    fake_world_write(&r->world, area->data + begin, bytes, "area");
}

/* Spoils the areas that no later entry of the list reads. */
static void give_areas_back(replay_t *r, int rank, int64_t at)
{
    const loong_rank_schedule_t *list = &fake_cell_of(r)->ranks[rank];
    const loong_entry_t *e = &list->entries[at];
    for (int d = 0; d < 2; d++) {
        bool last = e->area[d] >= 0 && !loongi_entry_receives_edge(e);
        for (int64_t k = at + 1; k < list->num_entries && last; k++) {
            const loong_entry_t *other = &list->entries[k];
            last = other->component != e->component ||
                   other->chunk != e->chunk || other->area[d] != e->area[d] ||
                   other->micro_batch != e->micro_batch;
        }
        if (last) {
            int64_t begin = 0;
            fake_region_t *area = area_of(r, rank, e, d, &begin);
            fake_region_poison(area, begin,
                               r->chunks[rank][index_of(r, e)]->edge_bytes[d]);
        }
    }
}

/* ---- entries ------------------------------------------------------------- */

/* Blocks until all replicas came to the same collective of the same program. */
static int meet(replay_t *r, int rank, const loong_entry_t *e,
                const loong_frame_t *frame)
{
    int stage = fake_stage_of(r, rank, e);
    int count = fake_collectives(r->fake, e, stage, frame);
    int replicas = fake_cell_of(r)->params.components[e->component].replicas;
    int replica = fake_replica(r->fake, e->component, rank);
    if (frame->hollow && count > 0 && replicas > 1 && replica == 0) {
        bool less = fake_is(r, FAULT_HOLLOW_MEETS_LESS);
        bool none = fake_is(r, FAULT_HOLLOW_LEFT_OUT);
        r->planted += less || none;
        count = none ? 0 : count - less;
    }
    while (e->micro_batch >= 0 && r->met[rank] < count) {
        uint8_t *come = &r->come[e->component][stage][e->kind][e->micro_batch]
                                [r->met[rank]];
        *come += !r->waits[rank];
        r->waits[rank] = true;
        if (*come < replicas) {
            return WAITS;
        }
        r->waits[rank] = false;
        r->met[rank]++;
        r->met_in_all++;
    }
    r->met[rank] = 0;
    return MOVES;
}

static int run_program(replay_t *r, int rank, const loong_entry_t *e)
{
    loong_frame_t frame = frame_of(r, rank, e);
    loong_binding_t run =
        loongi_memory_plan_bind(r->ranks[rank], 0, &r->run[rank], e);
    const loong_model_chunk_t *c = r->chunks[rank][index_of(r, e)];
    bool forward = e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E;
    const loong_port_t *ids = loongi_model_chunk_input(c, "ids");
    const loong_frame_t *frames[2] = {&frame, NULL};
    fake_region_t *scratch = r->base[rank][LOONG_BASE_SCRATCH];
    int state = meet(r, rank, e, &frame);
    if (state != MOVES) {
        return state;
    }
    r->hollow += frame.hollow;
    if (frame.hollow && fake_is(r, FAULT_HOLLOW_RUNS)) {
        r->planted++;
        frame.hollow = false;
    }
    fake_region_poison(scratch, 0, scratch->bytes);
    if (forward && ids != NULL && !frame.hollow) {
        char *data = fake_port_data(&run, ids);
        if (!fake_world_write(&r->world, data, fake_port_bytes(ids), "ids")) {
            return WRONG;
        }
        fake_fill(data, (size_t)fake_port_bytes(ids), fake_ids_key(&frame));
    }
    move_window(r, rank, e, &run, true);
    loong_status_t status = loongi_memory_plan_run(
        r->ranks[rank], 0, &r->run[rank], r->at[rank], frames);
    move_window(r, rank, e, &run, false);
    return status == LOONG_OK ? MOVES : WRONG;
}

static int run_message(replay_t *r, int rank, const loong_entry_t *e)
{
    int message = e->message;
    bool send = loongi_entry_sends_edge(e);
    loong_binding_t run =
        loongi_memory_plan_bind(r->ranks[rank], 0, &r->run[rank], e);
    if (!send) {
        bool back = e->kind == LOONG_ENTRY_RECV_EDGE_BACKWARD;
        int64_t begin = 0;
        take_area(r, rank, e, back);
        const fake_region_t *area = area_of(r, rank, e, back, &begin);
        run.base[LOONG_BASE_EDGE + back] = area->data + begin;
    }
    return fake_post(r, message, &run, send) ? MOVES : WRONG;
}

static void run_transfer(replay_t *r, int rank, const loong_entry_t *e)
{
    bool send = e->kind == LOONG_ENTRY_SEND_FORWARD ||
                e->kind == LOONG_ENTRY_SEND_BACKWARD;
    bool back = e->kind == LOONG_ENTRY_SEND_BACKWARD ||
                e->kind == LOONG_ENTRY_RECV_BACKWARD;
    int to = fake_stage_of(r, rank, e) + (!send ? 0 : back ? -1 : 1);
    passed_t *m = &r->passed[back][e->component][fake_replica(
        r->fake, e->component, rank)][to][e->micro_batch];
    *(send ? &m->from : &m->to) = e;
    *(send ? &m->from_rank : &m->to_rank) = rank;
}

static int run_entry(replay_t *r, int rank)
{
    const loong_entry_t *e = &fake_cell_of(r)->ranks[rank].entries[r->at[rank]];
    int state = MOVES;
    if (e->kind == LOONG_ENTRY_REDUCE || e->kind == LOONG_ENTRY_U) {
        return MOVES; /* by finish_step, when all are done */
    }
    bool transfer = e->message < 0 &&
                    e->kind >= (loong_entry_kind_t)LOONG_PROGRAM_COUNT;
    loong_frame_t frame = frame_of(r, rank, e);
    if (transfer && frame.hollow) {
        return MOVES; /* all stages of the pipeline know it */
    }
    if (e->slot >= 0) {
        state = take_slot(r, rank, e);
    }
    bool backward = e->kind == LOONG_ENTRY_B;
    if (backward || e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E) {
        state = both(state, fake_want_passed(r, rank, e, backward,
                                             fake_stage_of(r, rank, e),
                                             e->micro_batch));
        state = both(
            state, fake_want_edges(r, rank, e, e->micro_batch, true, backward));
    }
    if (state != MOVES) {
        return state;
    }
    if (e->message >= 0) {
        return run_message(r, rank, e);
    }
    if (transfer) {
        run_transfer(r, rank, e);
        return MOVES;
    }
    state = run_program(r, rank, e);
    if (state == MOVES) {
        give_areas_back(r, rank, r->at[rank]);
    }
    return state;
}

/* ---- steps --------------------------------------------------------------- */

/* No rank waits for ever: else says in which entries. */
static bool all_through(replay_t *r)
{
    char text[300] = "";
    for (int rank = 0; rank < fake_cell_of(r)->params.ranks; rank++) {
        const loong_rank_schedule_t *list = &fake_cell_of(r)->ranks[rank];
        const loong_entry_t *e = &list->entries[r->at[rank]];
        size_t used = strlen(text);
        if (r->at[rank] < list->num_entries) {
            snprintf(text + used, sizeof(text) - used,
                     "%srank %d waits in %s %d.%d", used > 0 ? ", " : "", rank,
                     loongi_entry_name(e->kind), (int)e->component,
                     (int)e->micro_batch);
        }
    }
    if (text[0] != '\0') {
        fake_world_fail(&r->world, "%s", text);
    }
    return text[0] == '\0';
}

/* Ranks advance in random order, some entries at a time. */
static bool run_lists(replay_t *r)
{
    int ranks = fake_cell_of(r)->params.ranks;
    int most = (2 + FAKE_COLLECTIVES) * ranks;
    int waiting = 0;
    for (int rank = fake_replay_draw(r, ranks); waiting < most;
         rank = (rank + 1) % ranks) {
        bool moved = false;
        int state = MOVES;
        for (int n = fake_replay_draw(r, 6);
             n >= 0 && state == MOVES &&
             r->at[rank] < fake_cell_of(r)->ranks[rank].num_entries;
             n--) {
            state = run_entry(r, rank);
            r->at[rank] += state == MOVES;
            moved = moved || state == MOVES;
        }
        if (state == WRONG) {
            return false;
        }
        waiting = moved ? 0 : waiting + 1;
    }
    return all_through(r) && fake_match(r);
}

/* What several stages of a replica hold is summed when all are through, holder
 * by holder as the library lists them. */
static void sum_tie(replay_t *r, int component, int replica)
{
    const loong_cell_t *cell = fake_cell_of(r);
    const loong_cell_component_t *c = &cell->params.components[component];
    const loong_schedule_t *s = cell->schedules[component];
    const loong_ties_t *ties = &r->fake->ties[component];
    fake_param_t holders[FAKE_HOLDERS];
    int count = 0;
    while (ties->count > 0 && count < ties->list[0].num_holders) {
        int stage = ties->list[0].holders[count];
        const loong_model_chunk_t *chunk = r->fake->chunks[component][stage];
        int at = loongi_schedule_rank(s, stage);
        int rank = c->rank[replica * c->params.ranks + at];
        loong_binding_t run = loongi_memory_plan_chunk(
            r->ranks[rank], &r->run[rank],
            cell->first_chunk[component] + stage / c->params.ranks);
        holders[count] = fake_param_of(chunk, &run, fake_find_tied(chunk));
        holders[count++].rank = at;
    }
    bool missing = fake_is(r, FAULT_TIE_HOLDER) && count > 0;
    r->planted += missing;
    r->tied += count > 2;
    fake_sum_tie(count - missing, holders);
}

/* No message is left over; gradients are the reference's. */
static bool finish_rank(replay_t *r, int rank)
{
    const loong_cell_t *cell = fake_cell_of(r);
    for (int c = 0; c < cell->params.num_components; c++) {
        const loong_schedule_t *s = cell->schedules[c];
        int pipeline_rank = loongi_cell_pipeline_rank(cell, c, rank);
        for (int k = 0;
             k < s->params.chunks && pipeline_rank >= 0 && !s->kind->evaluate;
             k++) {
            loong_entry_t e = {.component = c, .chunk = k, .micro_batch = -1};
            const loong_model_chunk_t *chunk = r->chunks[rank][index_of(r, &e)];
            loong_frame_t frame = frame_of(r, rank, &e);
            loong_binding_t run = loongi_memory_plan_chunk(
                r->ranks[rank], &r->run[rank], index_of(r, &e));
            for (int64_t i = 0; i < chunk->num_params; i++) {
                uint64_t want = 0;
                fake_param_t p = fake_param_of(chunk, &run, i);
                fake_table_get(&r->grads, fake_grad_key(&frame, i), &want);
                if (fake_digest(p.grad, 1, p.elements, 4, 0) != want) {
                    fake_world_fail(&r->world,
                                    "rank %d, component %d, chunk %d: another "
                                    "gradient of %s",
                                    rank, c, k, chunk->params[i].name);
                    return false;
                }
                fake_update(p.param, 4, p.grad, 4, p.elements);
            }
        }
    }
    return true;
}

static bool run_step(replay_t *r)
{
    memcpy(r->stale, r->fake->segments, sizeof(r->stale));
    fake_components_plan(r->fake, r->step);
    memset(r->at, 0, sizeof(r->at));
    memset(r->slot, -1, sizeof(r->slot));
    memset(r->cleared, 0, sizeof(r->cleared));
    memset(r->passed, 0, sizeof(r->passed));
    memset(r->begun, 0, sizeof(r->begun));
    memset(r->come, 0, sizeof(r->come));
    r->num_sent = r->num_received = 0;
    for (int rank = 0; rank < fake_cell_of(r)->params.ranks; rank++) {
        fake_region_t *grad = r->base[rank][LOONG_BASE_GRAD];
        fake_region_poison(grad, 0, grad->bytes);
    }
    if (!run_lists(r)) {
        return false;
    }
    for (int i = 0; i < r->num_sent + r->num_received; i++) {
        if (!(i < r->num_sent ? &r->sent[i] : &r->received[i - r->num_sent])
                 ->done) {
            fake_world_fail(&r->world, "a message is left over");
            return false;
        }
    }
    for (int c = 0; c < fake_cell_of(r)->num_own; c++) {
        int replicas = fake_cell_of(r)->params.components[c].replicas;
        for (int k = 0; k < replicas; k++) {
            sum_tie(r, c, k);
        }
    }
    for (int rank = 0; rank < fake_cell_of(r)->params.ranks; rank++) {
        if (!finish_rank(r, rank)) {
            return false;
        }
    }
    return true;
}

/* ---- planning ------------------------------------------------------------ */

static void fill_params(replay_t *r, int rank, int index,
                        const loong_entry_t *e)
{
    const loong_model_chunk_t *c = r->chunks[rank][index];
    loong_frame_t frame = frame_of(r, rank, e);
    loong_binding_t run =
        loongi_memory_plan_chunk(r->ranks[rank], &r->run[rank], index);
    for (int64_t i = 0; i < c->num_params; i++) {
        fake_param_t p = fake_param_of(c, &run, i);
        fake_fill(p.param, (size_t)p.elements * 4,
                  fake_param_key(c, &frame, i));
        fake_world_write(&r->world, p.param, p.elements * 4, "parameters");
    }
}

/* For each chunk of a rank: finds it, or fills its parameters. */
static void each_chunk(replay_t *r, int rank, bool fill)
{
    const loong_cell_t *cell = fake_cell_of(r);
    for (int c = 0; c < cell->params.num_components; c++) {
        bool there = loongi_cell_pipeline_rank(cell, c, rank) >= 0;
        for (int k = 0; k < cell->schedules[c]->params.chunks && there; k++) {
            loong_entry_t e = {.component = c, .chunk = k, .micro_batch = -1};
            int index = index_of(r, &e);
            if (fill && fake_own(r->fake, c) == c) {
                fill_params(r, rank, index, &e);
            } else if (!fill) {
                r->chunks[rank][index] =
                    r->fake->chunks[fake_own(r->fake, c)]
                                   [fake_stage_of(r, rank, &e)];
            }
        }
    }
}

loong_status_t fake_replay_plan(replay_t *r, int rank)
{
    const loong_cell_t *cell = fake_cell_of(r);
    loong_memory_plan_use_t use = {&cell->ranks[rank], r->chunks[rank]};
    bool on_host[2 * FAKE_COMPONENTS][2];
    const loong_memory_plan_params_t params = {cell->params.num_components,
                                               cell->first_chunk,
                                               cell->forward_of, on_host, 1,
                                               &use};
    for (int i = 0; i < 2 * cell->params.num_components; i++) {
        on_host[i / 2][i % 2] =
            ((int)r->fake->seed + fake_own(r->fake, i / 2) + i) % 3 == 0;
    }
    each_chunk(r, rank, false);
    LOONG_TRY(
        loongi_memory_plan_create(r->fake->ctx, &params, &r->ranks[rank]));
    r->run[rank].ctx = r->fake->ctx;
    r->run[rank].stream = &r->world;
    for (int b = 1; b < LOONG_BASE_COUNT; b++) {
        r->base[rank][b] =
            fake_world_add(&r->world, loongi_base_name((loong_base_t)b),
                           r->ranks[rank]->bytes[b]);
        r->run[rank].base[b] = r->base[rank][b]->data;
    }
    for (int d = 0; d < 2; d++) {
        r->host[rank][d] = fake_world_add(&r->world, "areas on the host",
                                          r->ranks[rank]->host_bytes[d]);
    }
    return LOONG_OK;
}

/* Planned = touched, where no entry was hollow; doubles do not touch what
 * backwards alone do. */
static bool is_exact(replay_t *r)
{
    static const loong_base_t bases[] = {LOONG_BASE_SLOT, LOONG_BASE_INPUT,
                                         LOONG_BASE_EDGE, LOONG_BASE_EDGE_GRAD};
    const loong_cell_t *cell = fake_cell_of(r);
    bool all = cell->num_own == cell->params.num_components;
    for (int rank = 0;
         rank < fake_cell_of(r)->params.ranks && r->hollow == 0 && all;
         rank++) {
        for (int b = 0; b < LOONG_COUNT_OF(bases); b++) {
            const fake_region_t *region = r->base[rank][bases[b]];
            int64_t align =
                bases[b] == LOONG_BASE_SLOT ? LOONG_PLACE_ALIGN : 64;
            if (loongi_round_up(region->touched, align) != region->bytes) {
                fake_world_fail(&r->world,
                                "rank %d: %lld bytes of %s are planned, %lld "
                                "touched",
                                rank, (long long)region->bytes, region->name,
                                (long long)region->touched);
                return false;
            }
        }
        for (int d = 0; d < 2; d++) {
            const fake_region_t *host = r->host[rank][d];
            if (loongi_round_up(host->touched, 64) != host->bytes) {
                fake_world_fail(&r->world,
                                "rank %d: %lld bytes of areas are planned on "
                                "the host, %lld touched",
                                rank, (long long)host->bytes,
                                (long long)host->touched);
                return false;
            }
        }
    }
    return true;
}

bool fake_replay_cell(replay_t *r)
{
    bool good = true;
    for (int rank = 0; rank < fake_cell_of(r)->params.ranks; rank++) {
        each_chunk(r, rank, true);
    }
    for (r->step = 0; good && r->step < FAKE_STEPS; r->step++) {
        good = run_step(r);
    }
    return good && is_exact(r);
}
