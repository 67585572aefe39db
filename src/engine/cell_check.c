/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a cell. Shares nothing with what made the lists but the meaning of an
 * entry and of a message. Called by tests of the planner. Read cell.h
 * before. */
#include <stdio.h>

#include "cell_impl.h"

typedef struct cell_checker {
    const loong_cell_t *cell;
    int rank;
    const loong_rank_schedule_t *list;
    /* Per message: position of the entry that sends it, that receives it; -1:
     * not there. */
    int64_t *sent;
    int64_t *received;
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

/* Fills sent[] and received[]; every entry is of a component of this rank. */
static loong_status_t read_list(cell_checker_t *k)
{
    const loong_cell_params_t *p = &k->cell->params;
    for (int64_t i = 0; i < p->num_messages; i++) {
        k->sent[i] = k->received[i] = -1;
    }
    for (int64_t i = 0; i < k->list->num_entries; i++) {
        const loong_entry_t *e = &k->list->entries[i];
        bool sends = loongi_entry_sends_edge(e);
        bool receives = loongi_entry_receives_edge(e);
        if (e->component < (e->kind == LOONG_ENTRY_U ? -1 : 0) ||
            e->component >= p->num_components ||
            (e->component >= 0 &&
             loongi_cell_pipeline_rank(k->cell, e->component, k->rank) < 0)) {
            return FAIL_CELL(k, i, "the rank has no such component");
        }
        if ((e->message >= 0) != (sends || receives) ||
            e->message >= p->num_messages) {
            return FAIL_CELL(k, i, "message %d of %lld", (int)e->message,
                             (long long)p->num_messages);
        }
        if (sends || receives) {
            int64_t *at =
                sends ? &k->sent[e->message] : &k->received[e->message];
            if (*at >= 0) {
                return FAIL_CELL(k, i, "message %d stands there twice",
                                 (int)e->message);
            }
            *at = i;
        }
    }
    return LOONG_OK;
}

/* Position of the first computation of a micro-batch of a chunk in the
 * direction: F or E; B. */
static int64_t find_work(const cell_checker_t *k,
                         const loong_message_end_t *end, bool backward)
{
    for (int64_t i = 0; i < k->list->num_entries; i++) {
        const loong_entry_t *e = &k->list->entries[i];
        bool back = e->kind == LOONG_ENTRY_B || e->kind == LOONG_ENTRY_W;
        if (e->component == end->component && e->chunk == end->chunk &&
            e->micro_batch == end->micro_batch && loongi_entry_computes(e) &&
            back == backward) {
            return i;
        }
    }
    return -1;
}

static loong_status_t check_end(const cell_checker_t *k, int64_t message,
                                bool from)
{
    const loong_message_t *m = &k->cell->params.messages[message];
    loong_message_end_t end =
        from ? loongi_message_from(k->cell, m) : loongi_message_to(k->cell, m);
    int64_t at = from ? k->sent[message] : k->received[message];
    if ((at >= 0) != (end.rank == k->rank)) {
        return FAIL_CELL(k, at, "message %lld is %s rank %d",
                         (long long)message, from ? "sent by" : "received by",
                         (int)end.rank);
    }
    if (at < 0) {
        return LOONG_OK;
    }
    const loong_entry_t *e = &k->list->entries[at];
    bool back = e->kind == LOONG_ENTRY_SEND_EDGE_BACKWARD ||
                e->kind == LOONG_ENTRY_RECV_EDGE_BACKWARD;
    if (e->component != end.component || e->chunk != end.chunk ||
        e->micro_batch != end.micro_batch || back != m->backward) {
        return FAIL_CELL(k, at,
                         "message %lld is of component %d, chunk %d, "
                         "micro-batch %d, %s",
                         (long long)message, (int)end.component, (int)end.chunk,
                         (int)end.micro_batch,
                         m->backward ? "backward" : "forward");
    }
    int64_t work = find_work(k, &end, m->backward);
    if (from ? at < work : at > work) {
        return FAIL_CELL(k, at, "stands %s entry %lld, which %s message %lld",
                         from ? "before" : "behind", (long long)work,
                         from ? "makes" : "reads", (long long)message);
    }
    return LOONG_OK;
}

static loong_status_t check_rank(cell_checker_t *k)
{
    const loong_cell_t *cell = k->cell;
    const loong_cell_params_t *p = &cell->params;
    LOONG_TRY(read_list(k));
    for (int c = 0; c < p->num_components; c++) {
        loong_entry_writer_t w = {cell->schedules[c],
                                  loongi_cell_pipeline_rank(cell, c, k->rank),
                                  c, &cell->ranks[k->rank],
                                  loongi_cell_hollow(cell, c, k->rank)};
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
    return LOONG_OK;
}

loong_status_t loongi_cell_check(const loong_cell_t *cell)
{
    const loong_cell_params_t *p = &cell->params;
    size_t messages = (size_t)p->num_messages;
    cell_checker_t k = {.cell = cell};
    LOONG_TRY(loongi_calloc(cell->ctx, 2 * messages + 1, sizeof(*k.sent),
                            "check of a cell", &k.sent));
    k.received = k.sent + messages;
    loong_status_t status = LOONG_OK;
    for (int r = 0; r < p->ranks && status == LOONG_OK; r++) {
        k.rank = r;
        k.list = &cell->ranks[r];
        status = check_rank(&k);
    }
    loongi_free(cell->ctx, k.sent);
    LOONG_TRY(status);
    loong_simulation_t simulation;
    return loongi_cell_simulate(cell, NULL, NULL, &simulation);
}
