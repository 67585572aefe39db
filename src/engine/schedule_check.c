/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a schedule. Shares nothing with the generators and the colouring but
 * the meaning of an entry. Called by tests of the planner and by cell_check.c.
 * Read schedule.h before. */
#include <stdio.h>
#include <stdlib.h>

#include "schedule_impl.h"

typedef struct checker {
    const loong_schedule_t *s;
    int rank;
    int component;
    const loong_rank_schedule_t *list;
    const loong_chunk_slots_t *chunks;
    const bool *hollow;
    bool alone;
    int64_t ids;   /* chunks * micro-batches */
    int64_t *at;   /* per (kind, id): position, -1: not there */
    int64_t *time; /* per entry: the two of a pair have the same */
    /* Per id, or -1: where an edge reads its slot last; where edges arrive
     * first, forward and backward. */
    int64_t *sent;
    int64_t *arrived[2];
    loong_entry_span_t *span; /* room for two per id */
} checker_t;

#define FAIL_AT(k_, position_, ...)                                           \
    fail_at(k_, position_, __FILE__, __LINE__, __VA_ARGS__)

static loong_status_t fail_at(const checker_t *k, int64_t position,
                              const char *file, int line, const char *fmt, ...)
    LOONG_PRINTF(5, 6);

static loong_status_t fail_at(const checker_t *k, int64_t position,
                              const char *file, int line, const char *fmt, ...)
{
    loong_text_t text = loongi_text_begin(k->s->ctx);
    char message[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (position >= 0) {
        const loong_entry_t *e = &k->list->entries[position];
        loongi_text_printf(&text,
                           "entry %lld (%s, chunk %d, micro-batch %d): ",
                           (long long)position, loongi_entry_name(e->kind),
                           (int)e->chunk, (int)e->micro_batch);
    }
    loong_status_t status = loongi_fail_at(
        k->s->ctx, LOONG_ERR_INTERNAL, file, line, "schedule %s, rank %d: %s%s",
        k->s->kind->name, k->rank, loongi_text_get(&text), message);
    loongi_text_free(&text);
    return status;
}

static int64_t *place(const checker_t *k, loong_entry_kind_t kind, int64_t id)
{
    return &k->at[(int64_t)kind * k->ids + id];
}

/* Entries once a step are kept with micro-batch 0, U with chunk 0. */
static int64_t id_of(const checker_t *k, const loong_entry_t *e)
{
    return (int64_t)LOONG_MAX(e->chunk, 0) * k->s->params.micro_batches +
           LOONG_MAX(e->micro_batch, 0);
}

static bool once_a_step(loong_entry_kind_t kind)
{
    return kind == LOONG_ENTRY_REDUCE || kind == LOONG_ENTRY_U;
}

/* ---- each entry by itself ----------------------------------------------- */

/* The rank that an entry must name, or -1. */
static int peer_of(const checker_t *k, const loong_entry_t *e)
{
    int stage = loongi_schedule_stage(k->s, k->rank, LOONG_MAX(e->chunk, 0));
    int stages = loongi_schedule_stages(k->s);
    switch (e->kind) {
    case LOONG_ENTRY_SEND_FORWARD:
    case LOONG_ENTRY_RECV_BACKWARD:
        return loongi_schedule_rank(k->s, (stage + 1) % stages);
    case LOONG_ENTRY_RECV_FORWARD:
    case LOONG_ENTRY_SEND_BACKWARD:
        return loongi_schedule_rank(k->s, (stage - 1 + stages) % stages);
    default:
        return -1;
    }
}

static loong_status_t check_numbers(const checker_t *k, int64_t i)
{
    const loong_entry_t *e = &k->list->entries[i];
    const loong_schedule_params_t *p = &k->s->params;
    bool step = once_a_step(e->kind);
    bool sized = (unsigned)e->kind < LOONG_ENTRY_COUNT &&
                 e->chunk >= (e->kind == LOONG_ENTRY_U ? -1 : 0) &&
                 e->chunk < p->chunks && e->micro_batch >= (step ? -1 : 0) &&
                 e->micro_batch < (step ? 0 : p->micro_batches);
    if (!sized) {
        return FAIL_AT(k, i, "no such chunk or micro-batch");
    }
    if (e->peer != peer_of(k, e)) {
        return FAIL_AT(k, i, "names rank %d, rank %d is its peer",
                       (int)e->peer, peer_of(k, e));
    }
    bool hollow = !step && k->hollow != NULL && k->hollow[e->micro_batch];
    if (step || hollow || loongi_entry_receives_edge(e)) {
        return e->slot == -1 ? LOONG_OK : FAIL_AT(k, i, "has a slot");
    }
    int32_t slots = k->chunks[e->chunk].slots;
    return e->slot >= 0 && e->slot < slots
               ? LOONG_OK
               : FAIL_AT(k, i, "slot %d of %d", (int)e->slot, (int)slots);
}

static loong_status_t check_pair(const checker_t *k, int64_t i)
{
    const loong_entry_t *e = &k->list->entries[i];
    if (e->pair < 0) {
        return LOONG_OK;
    }
    if ((e->pair != i + 1 && e->pair != i - 1) ||
        e->pair >= k->list->num_entries) {
        return FAIL_AT(k, i, "its pair, entry %d, does not stand beside it",
                       (int)e->pair);
    }
    const loong_entry_t *other = &k->list->entries[e->pair];
    bool kinds = (e->kind == LOONG_ENTRY_F && other->kind == LOONG_ENTRY_B) ||
                 (e->kind == LOONG_ENTRY_B && other->kind == LOONG_ENTRY_F);
    if (other->pair != i || !kinds || id_of(k, e) == id_of(k, other)) {
        return FAIL_AT(k, i, "does not go with entry %d", (int)e->pair);
    }
    return LOONG_OK;
}

/* A rank updates once, whatever of it is trained. */
static bool belongs(const checker_t *k, const loong_entry_t *e)
{
    return e->kind == LOONG_ENTRY_U ? k->alone || !k->s->kind->evaluate
                                    : e->component == k->component;
}

static bool is_edge(const loong_entry_t *e)
{
    return loongi_entry_sends_edge(e) || loongi_entry_receives_edge(e);
}

/* Of an edge several messages may reach and leave one micro-batch. */
static void read_edge(checker_t *k, int64_t i)
{
    const loong_entry_t *e = &k->list->entries[i];
    if (loongi_entry_sends_edge(e)) {
        k->sent[id_of(k, e)] = i;
        return;
    }
    int64_t *first =
        &k->arrived[e->kind == LOONG_ENTRY_RECV_EDGE_BACKWARD][id_of(k, e)];
    *first = *first < 0 ? i : *first;
}

/* Fills at[], time[], sent[] and arrived[]. */
static loong_status_t read_list(checker_t *k)
{
    for (int64_t i = 0; i < k->ids * LOONG_ENTRY_COUNT; i++) {
        k->at[i] = -1;
    }
    for (int64_t i = 0; i < k->ids; i++) {
        k->sent[i] = k->arrived[0][i] = k->arrived[1][i] = -1;
    }
    for (int64_t i = 0; i < k->list->num_entries; i++) {
        const loong_entry_t *e = &k->list->entries[i];
        if (!belongs(k, e)) {
            continue;
        }
        LOONG_TRY(check_numbers(k, i));
        LOONG_TRY(check_pair(k, i));
        k->time[i] = e->pair >= 0 && e->pair < i ? e->pair : i;
        if (is_edge(e)) {
            read_edge(k, i);
            continue;
        }
        int64_t *at = place(k, e->kind, id_of(k, e));
        if (*at >= 0) {
            return FAIL_AT(k, i, "stands there twice");
        }
        *at = i;
    }
    return LOONG_OK;
}

/* ---- complete ----------------------------------------------------------- */

/* 1: must be there, 0: must not, -1: may. */
static int wanted(const checker_t *k, loong_entry_kind_t kind, int stage)
{
    bool train = !k->s->kind->evaluate;
    int last = loongi_schedule_stages(k->s) - 1;
    switch (kind) {
    case LOONG_ENTRY_E:
        return !train;
    case LOONG_ENTRY_W:
        return k->s->kind->split;
    case LOONG_ENTRY_SEND_FORWARD:
        return stage < last;
    case LOONG_ENTRY_RECV_FORWARD:
        return stage > 0;
    case LOONG_ENTRY_SEND_BACKWARD:
        return train && stage > 0;
    case LOONG_ENTRY_RECV_BACKWARD:
        return train && stage < last;
    case LOONG_ENTRY_SEND_EDGE_FORWARD:
    case LOONG_ENTRY_RECV_EDGE_FORWARD:
    case LOONG_ENTRY_SEND_EDGE_BACKWARD:
    case LOONG_ENTRY_RECV_EDGE_BACKWARD:
        return -1; /* read_list puts them apart */
    default:
        return train;
    }
}

static loong_status_t check_complete(const checker_t *k)
{
    const loong_schedule_params_t *p = &k->s->params;
    for (int kind = 0; kind < LOONG_ENTRY_COUNT; kind++) {
        bool step = once_a_step((loong_entry_kind_t)kind);
        int chunks = kind == LOONG_ENTRY_U ? 1 : p->chunks;
        for (int c = 0; c < chunks; c++) {
            int want = wanted(k, (loong_entry_kind_t)kind,
                              loongi_schedule_stage(k->s, k->rank, c));
            for (int i = 0; i < (step ? 1 : p->micro_batches); i++) {
                int64_t id = (int64_t)c * p->micro_batches + i;
                int64_t at = *place(k, (loong_entry_kind_t)kind, id);
                if (want >= 0 && (at >= 0) != (want == 1)) {
                    return FAIL_AT(k, -1, "%s of chunk %d, micro-batch %d %s",
                                   loongi_entry_name((loong_entry_kind_t)kind),
                                   c, i, want ? "is missing" : "is too much");
                }
            }
        }
    }
    return LOONG_OK;
}

/* ---- ordered ------------------------------------------------------------ */

static loong_status_t check_before(const checker_t *k, int64_t a, int64_t b)
{
    if (a >= 0 && b >= 0 && k->time[a] >= k->time[b]) {
        return FAIL_AT(k, a, "must come before entry %lld", (long long)b);
    }
    return LOONG_OK;
}

static loong_status_t check_order(const checker_t *k)
{
    static const loong_entry_kind_t before[][2] = {
        {LOONG_ENTRY_RECV_FORWARD, LOONG_ENTRY_F},
        {LOONG_ENTRY_RECV_FORWARD, LOONG_ENTRY_E},
        {LOONG_ENTRY_F, LOONG_ENTRY_SEND_FORWARD},
        {LOONG_ENTRY_E, LOONG_ENTRY_SEND_FORWARD},
        {LOONG_ENTRY_F, LOONG_ENTRY_B},
        {LOONG_ENTRY_RECV_BACKWARD, LOONG_ENTRY_B},
        {LOONG_ENTRY_B, LOONG_ENTRY_SEND_BACKWARD},
        {LOONG_ENTRY_B, LOONG_ENTRY_W},
    };
    for (int64_t id = 0; id < k->ids; id++) {
        for (int r = 0; r < LOONG_COUNT_OF(before); r++) {
            LOONG_TRY(check_before(k, *place(k, before[r][0], id),
                                   *place(k, before[r][1], id)));
        }
    }
    return LOONG_OK;
}

/* What stands once a step, and micro-batches in ascending order: sums of
 * gradients then do not depend on the schedule. */
static loong_status_t check_chunk_order(const checker_t *k, int chunk)
{
    int total = k->s->params.micro_batches;
    int64_t first = (int64_t)chunk * total;
    int64_t update = *place(k, LOONG_ENTRY_U, 0);
    int64_t reduce = *place(k, LOONG_ENTRY_REDUCE, first);
    LOONG_TRY(check_before(k, reduce, update));
    for (int kind = 0; kind < LOONG_ENTRY_COUNT; kind++) {
        if (once_a_step((loong_entry_kind_t)kind)) {
            continue;
        }
        for (int i = 0; i < total; i++) {
            int64_t at = *place(k, (loong_entry_kind_t)kind, first + i);
            LOONG_TRY(check_before(k, at, reduce));
            if (i > 0) {
                LOONG_TRY(check_before(
                    k, *place(k, (loong_entry_kind_t)kind, first + i - 1),
                    at));
            }
        }
    }
    return LOONG_OK;
}

/* ---- slots -------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const loong_entry_span_t *x = a;
    const loong_entry_span_t *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

int64_t loongi_spans_alive(int64_t count, loong_entry_span_t *spans,
                           int64_t *clash_p)
{
    int64_t most = 0;
    *clash_p = -1;
    qsort(spans, (size_t)count, sizeof(*spans), by_begin);
    for (int64_t i = 0; i < count; i++) {
        int64_t alive = 1;
        for (int64_t j = 0; j < i; j++) {
            bool lives = spans[j].end >= spans[i].begin;
            alive += lives;
            if (lives && spans[j].index == spans[i].index && *clash_p < 0) {
                *clash_p = i;
            }
        }
        most = LOONG_MAX(most, alive);
    }
    return most;
}

/* Spans of one index apart from each other; as many indices as live at one
 * time. */
static loong_status_t check_spans(const checker_t *k, int64_t count,
                                  loong_entry_span_t *spans, int32_t indices,
                                  const char *what)
{
    int64_t clash = -1;
    int64_t most = loongi_spans_alive(count, spans, &clash);
    if (clash >= 0) {
        return FAIL_AT(k, spans[clash].begin, "%s %d is taken already", what,
                       (int)spans[clash].index);
    }
    return most == indices
               ? LOONG_OK
               : FAIL_AT(k, -1, "%d times %s, at most %lld live at one time",
                         (int)indices, what, (long long)most);
}

/* The span of entries first..last (by mask of kinds) of an id. */
static bool find_span(const checker_t *k, int64_t id, uint32_t kinds,
                      loong_entry_span_t *span_p)
{
    loong_entry_span_t span = {INT64_MAX, -1, -1};
    for (int kind = 0; kind < LOONG_ENTRY_COUNT; kind++) {
        int64_t at = *place(k, (loong_entry_kind_t)kind, id);
        if (at >= 0 && (kinds >> kind & 1)) {
            span.begin = LOONG_MIN(span.begin, k->time[at]);
            span.end = LOONG_MAX(span.end, k->time[at]);
        }
    }
    *span_p = span;
    return span.end >= 0;
}

#define BIT(kind_) (1u << LOONG_ENTRY_##kind_)
static const uint32_t step_kinds = BIT(REDUCE) | BIT(U);
static const uint32_t work_kinds = BIT(F) | BIT(B) | BIT(W);

static loong_status_t check_slots(const checker_t *k, int chunk)
{
    int total = k->s->params.micro_batches;
    loong_entry_span_t *spans = k->span;
    int64_t n = 0;
    for (int i = 0; i < total; i++) {
        int64_t id = (int64_t)chunk * total + i;
        int32_t slot = -1;
        if (k->hollow != NULL && k->hollow[i]) {
            continue;
        }
        for (int kind = 0; kind < LOONG_ENTRY_COUNT; kind++) {
            int64_t at = *place(k, (loong_entry_kind_t)kind, id);
            if (at < 0 || (step_kinds >> kind & 1)) {
                continue;
            }
            if (slot >= 0 && k->list->entries[at].slot != slot) {
                return FAIL_AT(k, at, "slot %d, before it was %d",
                               (int)k->list->entries[at].slot, (int)slot);
            }
            slot = k->list->entries[at].slot;
        }
        find_span(k, id, ~step_kinds, &spans[n]);
        spans[n].end = LOONG_MAX(spans[n].end, k->sent[id]);
        spans[n++].index = slot;
    }
    return check_spans(k, n, spans, k->chunks[chunk].slots, "slot");
}

/* Whoever computes behind a receive has its area. */
static loong_status_t check_areas(const checker_t *k, int chunk, int backward)
{
    int total = k->s->params.micro_batches;
    int32_t areas = k->chunks[chunk].areas[backward];
    int64_t n = 0;
    for (int64_t p = 0; p < k->list->num_entries; p++) {
        const loong_entry_t *e = &k->list->entries[p];
        if (e->component != k->component || e->chunk != chunk ||
            e->micro_batch < 0) {
            continue;
        }
        int64_t first =
            k->arrived[backward][(int64_t)chunk * total + e->micro_batch];
        bool back = e->kind != LOONG_ENTRY_F && e->kind != LOONG_ENTRY_E;
        bool has =
            first >= 0 && (loongi_entry_computes(e)
                               ? back || !backward
                               : e->kind == k->list->entries[first].kind);
        int32_t want = has ? k->list->entries[first].area[backward] : -1;
        if (e->area[backward] != want || (has && want < 0) || want >= areas) {
            return FAIL_AT(k, p, "area %d of %d, %d is that of its messages",
                           (int)e->area[backward], (int)areas, (int)want);
        }
    }
    for (int i = 0; i < total; i++) {
        int64_t id = (int64_t)chunk * total + i;
        int64_t first = k->arrived[backward][id];
        if (first >= 0) {
            find_span(k, id, work_kinds | BIT(E), &k->span[n]);
            k->span[n].begin = first;
            k->span[n++].index = k->list->entries[first].area[backward];
        }
    }
    return check_spans(k, n, k->span, areas, "area");
}

/* Computations with areas of two micro-batches, one after the other, read these
 * in two windows; of one micro-batch in one. */
static loong_status_t check_windows(const checker_t *k, int chunk, int backward)
{
    int32_t areas = k->chunks[chunk].areas[backward];
    int32_t count = LOONG_MIN(areas, LOONG_EDGE_WINDOWS);
    const loong_entry_t *before = NULL;
    for (int64_t p = 0; p < k->list->num_entries; p++) {
        const loong_entry_t *e = &k->list->entries[p];
        if (e->component != k->component || e->chunk != chunk ||
            !loongi_entry_computes(e) || e->area[backward] < 0) {
            continue;
        }
        int32_t at = e->window[backward];
        bool same = before != NULL && before->micro_batch == e->micro_batch;
        bool last = before != NULL && before->window[backward] == at;
        if (at < 0 || at >= count ||
            (before != NULL && count > 1 && same != last)) {
            return FAIL_AT(k, p, "window %d of %d, the one before is %d",
                           (int)at, (int)count,
                           before != NULL ? (int)before->window[backward] : -1);
        }
        before = e;
    }
    return LOONG_OK;
}

/* The generator's promise: micro-batches of all chunks alive at one time. */
static loong_status_t check_promise(const checker_t *k)
{
    loong_entry_span_t *spans = k->span;
    for (int64_t id = 0; id < k->ids; id++) {
        find_span(k, id, ~step_kinds, &spans[id]);
        spans[id].index = -1;
    }
    int64_t clash = -1;
    int64_t alive = loongi_spans_alive(k->ids, spans, &clash);
    int64_t promised = k->s->kind->alive(&k->s->params, k->rank);
    return alive <= promised
               ? LOONG_OK
               : FAIL_AT(k, -1, "%lld micro-batches live, %lld were promised",
                         (long long)alive, (long long)promised);
}

/* ---- the whole ---------------------------------------------------------- */

static loong_status_t check_rank(checker_t *k)
{
    LOONG_TRY(read_list(k));
    LOONG_TRY(check_complete(k));
    LOONG_TRY(check_order(k));
    for (int c = 0; c < k->s->params.chunks; c++) {
        LOONG_TRY(check_chunk_order(k, c));
        LOONG_TRY(check_slots(k, c));
        LOONG_TRY(check_areas(k, c, 0));
        LOONG_TRY(check_areas(k, c, 1));
        LOONG_TRY(check_windows(k, c, 0));
        LOONG_TRY(check_windows(k, c, 1));
    }
    return k->alone ? check_promise(k) : LOONG_OK;
}

loong_status_t loongi_schedule_check_part(const loong_entry_writer_t *w,
                                          const loong_chunk_slots_t *chunks,
                                          bool alone)
{
    const loong_schedule_t *s = w->schedule;
    checker_t k = {.s = s,
                   .rank = w->rank,
                   .component = w->component,
                   .list = w->list,
                   .chunks = chunks,
                   .hollow = w->hollow,
                   .alone = alone};
    k.ids = (int64_t)s->params.chunks * s->params.micro_batches;
    int64_t at = k.ids * LOONG_ENTRY_COUNT;
    int64_t spans = 2 * k.ids * (int64_t)(sizeof(*k.span) / sizeof(int64_t));
    LOONG_TRY(loongi_calloc(
        s->ctx, (size_t)(at + k.list->num_entries + 3 * k.ids + spans),
        sizeof(int64_t), "check of a schedule", &k.at));
    k.time = k.at + at;
    k.sent = k.time + k.list->num_entries;
    k.arrived[0] = k.sent + k.ids;
    k.arrived[1] = k.arrived[0] + k.ids;
    k.span = (loong_entry_span_t *)(k.arrived[1] + k.ids);
    loong_status_t status = check_rank(&k);
    loongi_free(s->ctx, k.at);
    return status;
}

loong_status_t loongi_schedule_check(const loong_schedule_t *schedule)
{
    loong_simulation_t simulation;
    for (int r = 0; r < schedule->params.ranks; r++) {
        loong_entry_writer_t w = {schedule, r, 0, &schedule->ranks[r],
                                  NULL};
        LOONG_TRY(loongi_schedule_check_part(&w, w.list->chunks, true));
    }
    return loongi_schedule_simulate(schedule, NULL, NULL, &simulation);
}
