/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the lists of all ranks at once, with a clock each. A program waits for
 * what it has received; who takes a slot waits for the sends from it. */
#include "schedule_impl.h"

typedef struct machine {
    const loong_schedule_t *s;
    const loong_stage_cost_t *costs; /* per stage; NULL: all zero */
    loong_span_t *spans;             /* of all entries; NULL: not wanted */
    int64_t *at;     /* per rank: next entry */
    double *clock;   /* per rank */
    double *out;     /* per rank: when the lane of copies out is free */
    /* Per (receiving stage, micro-batch), -1 while it has not happened: a
     * send, a receive has begun; forward and backward. */
    double *sent[2];
    double *received[2];
    double *offloaded; /* copy complete */
    /* Per (stage, slot or area): micro-batch that held it last, -1: none. */
    int32_t *holder[2];
    double busy;
} machine_t;

static double cost(const machine_t *m, loong_entry_kind_t kind, int stage)
{
    return m->costs != NULL ? m->costs[stage].seconds[kind] : 0.0;
}

static int64_t message(const machine_t *m, int stage, int32_t micro_batch)
{
    return (int64_t)stage * m->s->params.micro_batches + micro_batch;
}

/* Waits until the message that `stage` receives is there. */
static bool wait_message(machine_t *m, int rank, int backward, int stage,
                         int32_t micro_batch)
{
    int from = stage + (backward ? 1 : -1);
    if (from < 0 || from >= loongi_schedule_stages(m->s) || stage < 0 ||
        stage >= loongi_schedule_stages(m->s)) {
        return true;
    }
    loong_entry_kind_t kind =
        backward ? LOONG_ENTRY_SEND_BACKWARD : LOONG_ENTRY_SEND_FORWARD;
    int64_t k = message(m, stage, micro_batch);
    double sent = m->sent[backward][k];
    double received = m->received[backward][k];
    if (sent < 0.0 || received < 0.0) {
        return false;
    }
    double there = LOONG_MAX(sent, received) + cost(m, kind, from);
    m->clock[rank] = LOONG_MAX(m->clock[rank], there);
    return true;
}

/* Waits until the sends of this stage's micro-batch are complete. */
static bool wait_sends(machine_t *m, int rank, int stage, int32_t micro_batch)
{
    return wait_message(m, rank, 0, stage + 1, micro_batch) &&
           (m->s->kind->evaluate ||
            wait_message(m, rank, 1, stage - 1, micro_batch));
}

/* Takes the slot and away area of an entry over from who held them. */
static bool take_over(machine_t *m, int rank, int stage,
                      const loong_entry_t *e)
{
    int32_t *slot = &m->holder[0][message(m, stage, e->slot)];
    if (*slot != e->micro_batch) {
        if (*slot >= 0 && !wait_sends(m, rank, stage, *slot)) {
            return false;
        }
        *slot = e->micro_batch;
    }
    if (e->away >= 0) {
        int32_t *area = &m->holder[1][message(m, stage, e->away)];
        if (*area >= 0 && *area != e->micro_batch) {
            double done = m->offloaded[message(m, stage, *area)];
            m->clock[rank] = LOONG_MAX(m->clock[rank], done);
        }
        *area = e->micro_batch;
    }
    return true;
}

/* Runs one entry; false when it must wait for another rank. */
static bool run_entry(machine_t *m, int rank, const loong_entry_t *e,
                      loong_span_t *span)
{
    int stage = loongi_schedule_stage(m->s, rank, LOONG_MAX(e->chunk, 0));
    int64_t k = message(m, stage, LOONG_MAX(e->micro_batch, 0));
    double seconds = cost(m, e->kind, stage);
    if (e->slot >= 0 && !take_over(m, rank, stage, e)) {
        return false;
    }
    bool forward = e->kind == LOONG_ENTRY_F || e->kind == LOONG_ENTRY_E;
    bool backward = e->kind == LOONG_ENTRY_B;
    if ((forward || backward) &&
        !wait_message(m, rank, backward, stage, e->micro_batch)) {
        return false;
    }
    span->begin = m->clock[rank];
    switch (e->kind) {
    case LOONG_ENTRY_RECV_FORWARD:
        m->received[0][k] = m->clock[rank];
        break;
    case LOONG_ENTRY_RECV_BACKWARD:
        m->received[1][k] = m->clock[rank];
        break;
    case LOONG_ENTRY_SEND_FORWARD:
        m->sent[0][message(m, stage + 1, e->micro_batch)] = m->clock[rank];
        break;
    case LOONG_ENTRY_SEND_BACKWARD:
        m->sent[1][message(m, stage - 1, e->micro_batch)] = m->clock[rank];
        break;
    case LOONG_ENTRY_OFFLOAD:
        span->begin = LOONG_MAX(m->out[rank], m->clock[rank]);
        m->out[rank] = m->offloaded[k] = span->end = span->begin + seconds;
        return true;
    case LOONG_ENTRY_RELOAD:
        span->begin = LOONG_MAX(m->clock[rank], m->offloaded[k]);
        m->clock[rank] = span->begin + seconds;
        break;
    default:
        m->clock[rank] += seconds;
        m->busy += e->kind == LOONG_ENTRY_REDUCE ? 0.0 : seconds;
        break;
    }
    span->end = m->clock[rank];
    return true;
}

/* ---- the whole ---------------------------------------------------------- */

/* Runs entries of a rank until one must wait; false when the first must. */
static bool run_rank(machine_t *m, int rank)
{
    const loong_rank_schedule_t *list = &m->s->ranks[rank];
    loong_span_t *spans =
        m->spans != NULL ? m->spans + loongi_schedule_spans(m->s, rank) : NULL;
    int64_t begin = m->at[rank];
    loong_span_t span;
    while (m->at[rank] < list->num_entries &&
           run_entry(m, rank, &list->entries[m->at[rank]], &span)) {
        if (spans != NULL) {
            spans[m->at[rank]] = span;
        }
        m->at[rank]++;
    }
    return m->at[rank] > begin;
}

static loong_status_t deadlock(const machine_t *m)
{
    loong_text_t text = loongi_text_begin(m->s->ctx);
    for (int r = 0; r < m->s->params.ranks; r++) {
        const loong_rank_schedule_t *list = &m->s->ranks[r];
        if (m->at[r] < list->num_entries) {
            const loong_entry_t *e = &list->entries[m->at[r]];
            loongi_text_printf(
                &text, "; rank %d waits in entry %lld, %s of chunk %d, "
                "micro-batch %d", r, (long long)m->at[r],
                loongi_entry_name(e->kind), (int)e->chunk,
                (int)e->micro_batch);
        }
    }
    loong_status_t status =
        LOONG_FAIL(m->s->ctx, LOONG_ERR_INTERNAL, "schedule %s: deadlock%s",
                   m->s->kind->name, loongi_text_get(&text));
    loongi_text_free(&text);
    return status;
}

static loong_status_t run(machine_t *m)
{
    int ranks = m->s->params.ranks;
    bool moved = true;
    bool done = false;
    while (moved && !done) {
        moved = false;
        done = true;
        for (int r = 0; r < ranks; r++) {
            moved = run_rank(m, r) || moved;
            done = done && m->at[r] == m->s->ranks[r].num_entries;
        }
    }
    return done ? LOONG_OK : deadlock(m);
}

static loong_status_t simulate(machine_t *m, loong_simulation_t *simulation_p)
{
    const loong_schedule_params_t *p = &m->s->params;
    int64_t messages =
        (int64_t)loongi_schedule_stages(m->s) * p->micro_batches;
    for (int64_t i = 0; i < messages; i++) {
        m->sent[0][i] = m->sent[1][i] = -1.0;
        m->received[0][i] = m->received[1][i] = -1.0;
        m->holder[0][i] = m->holder[1][i] = -1;
    }
    LOONG_TRY(run(m));
    loong_simulation_t result = {0.0, m->busy, 0.0};
    for (int r = 0; r < p->ranks; r++) {
        result.seconds = LOONG_MAX(result.seconds, m->clock[r]);
    }
    if (result.seconds > 0.0) {
        result.bubble = 1.0 - result.busy / (p->ranks * result.seconds);
    }
    *simulation_p = result;
    return LOONG_OK;
}

loong_status_t loongi_schedule_simulate(const loong_schedule_t *schedule,
                                        const loong_stage_cost_t *costs,
                                        loong_span_t *spans,
                                        loong_simulation_t *simulation_p)
{
    machine_t m = {schedule, costs, spans, NULL, NULL, NULL, {NULL, NULL},
                   {NULL, NULL}, NULL, {NULL, NULL}, 0.0};
    size_t ranks = (size_t)schedule->params.ranks;
    size_t messages = (size_t)loongi_schedule_stages(schedule) *
                      (size_t)schedule->params.micro_batches;
    LOONG_TRY(loongi_calloc(schedule->ctx, 3 * ranks + 6 * messages,
                            sizeof(double), "simulation", &m.clock));
    m.out = m.clock + ranks;
    m.at = (int64_t *)(m.out + ranks);
    m.sent[0] = m.out + 2 * ranks;
    m.sent[1] = m.sent[0] + messages;
    m.received[0] = m.sent[1] + messages;
    m.received[1] = m.received[0] + messages;
    m.offloaded = m.received[1] + messages;
    m.holder[0] = (int32_t *)(m.offloaded + messages);
    m.holder[1] = m.holder[0] + messages;
    loong_status_t status = simulate(&m, simulation_p);
    loongi_free(schedule->ctx, m.clock);
    return status;
}
