/* SPDX-License-Identifier: Apache-2.0
 *
 * The step header: every rank's record to every rank (a few hundred bytes),
 * combined by each in rank order. */
#include <string.h>

#include "comm_impl.h"
#include "step_header.h"

typedef struct record {
    loong_step_report_t report;
    uint64_t history; /* of the calls on this communicator so far */
} record_t;

struct loong_step_exchange {
    loong_comm_t *comm;
    record_t *records; /* [size] */
    int64_t *bytes;    /* [size]: of each record */
};

loong_status_t loongi_step_exchange_create(loong_context_t *ctx,
                                           loong_comm_t *comm,
                                           loong_step_exchange_t **exchange_p)
{
    loong_step_exchange_t *exchange = NULL;
    size_t size = (size_t)comm->size;
    LOONG_TRY(loongi_alloc(
        ctx, sizeof(*exchange) + size * (sizeof(record_t) + sizeof(int64_t)),
        "step header", &exchange));
    exchange->comm = comm;
    exchange->records = (record_t *)(void *)(exchange + 1);
    exchange->bytes = (int64_t *)(void *)(exchange->records + size);
    for (size_t i = 0; i < size; i++) {
        exchange->bytes[i] = (int64_t)sizeof(record_t);
    }
    *exchange_p = exchange;
    return LOONG_OK;
}

void loongi_step_exchange_destroy(loong_step_exchange_t **exchange_p)
{
    if (*exchange_p != NULL) {
        loongi_free((*exchange_p)->comm->ctx, *exchange_p);
        *exchange_p = NULL;
    }
}

static loong_status_t check_equal(const loong_step_exchange_t *exchange)
{
    loong_comm_t *comm = exchange->comm;
    const record_t *first = &exchange->records[0];
    for (int r = 1; r < comm->size; r++) {
        const record_t *record = &exchange->records[r];
        const loong_step_report_t *a = &first->report;
        const loong_step_report_t *b = &record->report;
        LOONG_CHECK(comm->ctx, a->recipe_hash == b->recipe_hash,
                    LOONG_ERR_MISMATCH,
                    "rank %d runs another recipe than rank 0 (hash %016llx, "
                    "rank 0 has %016llx): start all ranks with the same files "
                    "and overrides",
                    r, (unsigned long long)b->recipe_hash,
                    (unsigned long long)a->recipe_hash);
        LOONG_CHECK(comm->ctx, a->step == b->step, LOONG_ERR_MISMATCH,
                    "rank %d is at step %lld, rank 0 at step %lld", r,
                    (long long)b->step, (long long)a->step);
        LOONG_CHECK(comm->ctx, first->history == record->history,
                    LOONG_ERR_MISMATCH,
                    "before step %lld rank %d made other collectives on %s "
                    "than rank 0",
                    (long long)a->step, r, comm->name);
    }
    return LOONG_OK;
}

static void combine(const loong_step_exchange_t *exchange,
                    loong_step_header_t *agreed)
{
    agreed->error_rank = -1;
    for (int r = 0; r < exchange->comm->size; r++) {
        const loong_step_report_t *report = &exchange->records[r].report;
        for (int i = 0; i < LOONG_STEP_COUNTS; i++) {
            agreed->counts[i] += report->counts[i];
        }
        agreed->flags |= report->flags;
        if (report->status == LOONG_OK) {
            continue;
        }
        agreed->error_count++;
        if (agreed->error_rank < 0) {
            agreed->error_rank = r;
            agreed->status = report->status;
            memcpy(agreed->message, report->message, sizeof(agreed->message));
            agreed->message[sizeof(agreed->message) - 1] = '\0';
        }
    }
}

loong_status_t loongi_step_exchange_run(loong_step_exchange_t *exchange,
                                        const loong_step_report_t *mine,
                                        loong_step_header_t *agreed_p)
{
    loong_comm_t *comm = exchange->comm;
    loong_step_header_t agreed = {.error_rank = -1};
    record_t *own = &exchange->records[comm->rank];
    own->report = *mine;
    own->history = comm->history;
    loong_comm_set_step(comm, mine->step);
    LOONG_TRY(loong_comm_all_gather(comm, exchange->records, exchange->bytes,
                                    LOONG_U8, "step header"));
    LOONG_TRY(check_equal(exchange));
    combine(exchange, &agreed);
    *agreed_p = agreed;
    return LOONG_OK;
}
