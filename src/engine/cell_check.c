/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a cell. Shares nothing with what made the lists but the meaning of an
 * entry and of a message. */
#include <stdio.h>

#include "cell_impl.h"

typedef struct cell_checker {
    const loong_cell_t *cell;
    int rank;
    const loong_rank_schedule_t *list;
    /* Positions, -1: not there. Per message: of the entry that sends it, that
     * receives it (both: that copies it). */
    int64_t *sent;
    int64_t *received;
    loong_entry_span_t *spans; /* per micro-batch */
} cell_checker_t;

#define FAIL_CELL(k_, position_, ...) \
    fail_at(k_, position_, __FILE__, __LINE__, __VA_ARGS__)

static loong_status_t fail_at(const cell_checker_t *k, int64_t position,
                              const char *file, int line, const char *fmt, ...)
    LOONG_PRINTF(5, 6);

static loong_status_t fail_at(const cell_checker_t *k, int64_t position,
                              const char *file, int line, const char *fmt, ...)
{
    char message[200];
    char where[160] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (position >= 0) {
        const loong_entry_t *e = &k->list->entries[position];
        snprintf(where, sizeof(where),
                 ", entry %lld (%s, component %d, chunk %d, micro-batch %d)",
                 (long long)position, loongi_entry_name(e->kind),
                 (int)e->component, (int)e->chunk, (int)e->micro_batch);
    }
    return loongi_fail_at(k->cell->ctx, LOONG_ERR_INTERNAL, file, line,
                          "cell, rank %d%s: %s", k->rank, where, message);
}

static const loong_message_t *message_of(const cell_checker_t *k,
                                         const loong_entry_t *e)
{
    return &k->cell->params.messages[e->message];
}

/* Fills sent[] and received[]; every entry is of a component of this rank. */
static loong_status_t read_list(cell_checker_t *k)
{
    const loong_cell_params_t *p = &k->cell->params;
    for (int64_t i = 0; i < p->num_messages; i++) {
        k->sent[i] = k->received[i] = -1;
    }
    for (int64_t i = 0; i < k->list->num_entries; i++) {
        const loong_entry_t *e = &k->list->entries[i];
        bool sends = e->kind == LOONG_ENTRY_SEND_EDGE;
        bool receives = e->kind == LOONG_ENTRY_RECV_EDGE;
        bool copies = e->kind == LOONG_ENTRY_COPY_EDGE;
        bool is_message = sends || receives || copies;
        if (e->component < (e->kind == LOONG_ENTRY_U ? -1 : 0) ||
            e->component >= p->num_components ||
            (e->component >= 0 &&
             loongi_cell_pipeline_rank(k->cell, e->component, k->rank) < 0)) {
            return FAIL_CELL(k, i, "the rank has no such component");
        }
        if ((e->message >= 0) != is_message || e->message >= p->num_messages ||
            (e->area >= 0) != (receives || copies)) {
            return FAIL_CELL(k, i, "message %d, area %d", (int)e->message,
                             (int)e->area);
        }
        if (((sends || copies) && k->sent[e->message] >= 0) ||
            ((receives || copies) && k->received[e->message] >= 0)) {
            return FAIL_CELL(k, i, "message %d stands there twice",
                             (int)e->message);
        }
        if (sends || copies) {
            k->sent[e->message] = i;
        }
        if (receives || copies) {
            k->received[e->message] = i;
        }
    }
    return LOONG_OK;
}

/* Positions of the first and last computation of a micro-batch of a chunk, in
 * the direction: F or E; B. */
static void find_work(const cell_checker_t *k, const loong_message_end_t *end,
                      bool backward, int64_t *first_p, int64_t *last_p)
{
    *first_p = *last_p = -1;
    for (int64_t i = 0; i < k->list->num_entries; i++) {
        const loong_entry_t *e = &k->list->entries[i];
        if (e->component == end->component && e->chunk == end->chunk &&
            e->micro_batch == end->micro_batch &&
            loongi_is_computation(e->kind)) {
            bool back = e->kind == LOONG_ENTRY_B || e->kind == LOONG_ENTRY_W;
            *first_p = *first_p < 0 && back == backward ? i : *first_p;
            *last_p = i;
        }
    }
}

static loong_status_t check_end(const cell_checker_t *k, int64_t message,
                                bool from)
{
    const loong_message_t *m = &k->cell->params.messages[message];
    loong_message_end_t end =
        from ? loongi_message_from(k->cell, m) : loongi_message_to(k->cell, m);
    int64_t at = from ? k->sent[message] : k->received[message];
    int64_t first = -1, last = -1;
    if ((at >= 0) != (end.rank == k->rank)) {
        return FAIL_CELL(k, at, "message %lld is %s rank %d",
                         (long long)message, from ? "sent by" : "received by",
                         (int)end.rank);
    }
    if (at < 0) {
        return LOONG_OK;
    }
    const loong_entry_t *e = &k->list->entries[at];
    bool named = e->component == end.component && e->chunk == end.chunk &&
                 e->micro_batch == end.micro_batch;
    if ((from || e->kind == LOONG_ENTRY_RECV_EDGE) && !named) {
        return FAIL_CELL(k, at,
                         "message %lld is of component %d, chunk %d, "
                         "micro-batch %d",
                         (long long)message, (int)end.component, (int)end.chunk,
                         (int)end.micro_batch);
    }
    find_work(k, &end, m->backward, &first, &last);
    if (from ? at < first : at > first) {
        return FAIL_CELL(k, at, "stands %s entry %lld, which %s message %lld",
                         from ? "before" : "behind", (long long)first,
                         from ? "makes" : "reads", (long long)message);
    }
    return LOONG_OK;
}

/* The areas of one edge and direction. */
static loong_status_t check_areas(const cell_checker_t *k, int edge,
                                  bool backward)
{
    const loong_cell_params_t *p = &k->cell->params;
    loong_message_t any = {edge, backward, k->rank, 0, k->rank, 0};
    loong_message_end_t end = loongi_message_to(k->cell, &any);
    int total = p->components[end.component].params.micro_batches;
    int32_t areas = k->cell->ranks[k->rank].areas[2 * edge + backward];
    int64_t n = 0, clash = -1;
    for (end.micro_batch = 0; end.micro_batch < total; end.micro_batch++) {
        loong_entry_span_t span = {INT64_MAX, -1, -1};
        int64_t first = -1;
        for (int64_t i = 0; i < k->list->num_entries; i++) {
            const loong_entry_t *e = &k->list->entries[i];
            if (e->area < 0 || message_of(k, e)->edge != edge ||
                message_of(k, e)->backward != backward ||
                message_of(k, e)->to_micro_batch != end.micro_batch) {
                continue;
            }
            if (e->area >= areas ||
                (span.index >= 0 && e->area != span.index)) {
                return FAIL_CELL(k, i, "area %d of %d, before it was %d",
                                 (int)e->area, (int)areas, (int)span.index);
            }
            span.index = e->area;
            span.begin = LOONG_MIN(span.begin, i);
        }
        if (span.index >= 0) {
            find_work(k, &end, backward, &first, &span.end);
            k->spans[n++] = span;
        }
    }
    int64_t most = loongi_spans_alive(n, k->spans, &clash);
    if (clash >= 0) {
        return FAIL_CELL(k, k->spans[clash].begin, "area %d is taken already",
                         (int)k->spans[clash].index);
    }
    return most == areas
               ? LOONG_OK
               : FAIL_CELL(k, -1,
                           "edge %d has %d areas, at most %lld live at "
                           "one time",
                           edge, (int)areas, (long long)most);
}

static loong_status_t check_rank(cell_checker_t *k)
{
    const loong_cell_t *cell = k->cell;
    const loong_cell_params_t *p = &cell->params;
    LOONG_TRY(read_list(k));
    for (int c = 0; c < p->num_components; c++) {
        loong_entry_writer_t w = {cell->schedules[c],
                                  loongi_cell_pipeline_rank(cell, c, k->rank),
                                  c, &cell->ranks[k->rank].list};
        if (w.rank >= 0) {
            LOONG_TRY(loongi_schedule_check_part(
                &w, &w.list->chunks[cell->first_chunk[c]],
                p->num_components == 1));
        }
    }
    for (int64_t i = 0; i < p->num_messages; i++) {
        LOONG_TRY(check_end(k, i, true));
        LOONG_TRY(check_end(k, i, false));
    }
    for (int i = 0; i < 2 * p->num_edges; i++) {
        LOONG_TRY(check_areas(k, i / 2, i % 2 == 1));
    }
    return LOONG_OK;
}

loong_status_t loongi_cell_check(const loong_cell_t *cell)
{
    const loong_cell_params_t *p = &cell->params;
    size_t messages = (size_t)p->num_messages, most = 1;
    cell_checker_t k = {.cell = cell};
    for (int c = 0; c < p->num_components; c++) {
        most = LOONG_MAX(most, (size_t)p->components[c].params.micro_batches);
    }
    LOONG_TRY(loongi_calloc(
        cell->ctx, 2 * messages * sizeof(int64_t) + most * sizeof(*k.spans), 1,
        "check of a cell", &k.spans));
    k.sent = (int64_t *)(k.spans + most);
    k.received = k.sent + messages;
    loong_status_t status = LOONG_OK;
    for (int r = 0; r < p->ranks && status == LOONG_OK; r++) {
        k.rank = r;
        k.list = &cell->ranks[r].list;
        status = check_rank(&k);
    }
    loongi_free(cell->ctx, k.spans);
    return status == LOONG_OK ? loongi_cell_run(cell) : status;
}
