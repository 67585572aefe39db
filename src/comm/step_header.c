/* SPDX-License-Identifier: Apache-2.0
 *
 * The step header: sums of the counts, greatest and least of the rest. Called
 * by src/train/train_step.c. Read step_header.h before. */
#include <string.h>

#include "comm_impl.h"
#include "step_header.h"

/* What must be equal; of each word the greatest goes around, and the greatest
 * of its complement, which is the complement of the least. */
enum { SAME_RECIPE, SAME_STEP, SAME_HISTORY, SAME_WORDS };

enum { FLAGS = 5 };
_Static_assert(LOONG_STEP_VIDEOS == 1 << (FLAGS - 1), "a word for each flag");

typedef struct sums {
    int64_t errors; /* ranks */
    int64_t of[LOONG_STEP_SUMS][LOONG_EXACT_WORDS];
} sums_t;

typedef struct maxima {
    int64_t same[SAME_WORDS];
    int64_t complement[SAME_WORDS];
    int64_t flags[FLAGS];
    int64_t failing; /* -1 - the lowest rank; INT64_MIN: none */
} maxima_t;

struct loong_step_exchange {
    loong_comm_t *comm;
    int num_sums;
};

loong_status_t loongi_step_exchange_create(loong_context_t *ctx,
                                           loong_comm_t *comm, int num_sums,
                                           loong_step_exchange_t **exchange_p)
{
    loong_step_exchange_t *exchange = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*exchange), "step header", &exchange));
    exchange->comm = comm;
    exchange->num_sums = num_sums;
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

/* Not all are the same: names the first rank that differs from rank 0. */
static loong_status_t name_other(loong_comm_t *comm, const int64_t *mine)
{
    int64_t first[SAME_WORDS];
    int64_t other[SAME_WORDS];
    memcpy(first, mine, sizeof(first));
    memcpy(other, mine, sizeof(other));
    LOONG_TRY(loong_comm_broadcast(comm, first, sizeof(first), 0,
                                   "step header of rank 0"));
    bool same = memcmp(first, mine, sizeof(first)) == 0;
    int64_t rank = same ? INT64_MAX : comm->rank;
    LOONG_TRY(loong_comm_all_reduce(comm, &rank, 1, LOONG_I64, LOONG_REDUCE_MIN,
                                    "who differs"));
    int r = (int)rank;
    LOONG_TRY(loong_comm_broadcast(comm, other, sizeof(other), r,
                                   "step header of the other"));
    LOONG_CHECK(comm->ctx, first[SAME_RECIPE] == other[SAME_RECIPE],
                LOONG_ERR_MISMATCH,
                "rank %d runs another recipe than rank 0 (hash %016llx, "
                "rank 0 has %016llx): start all ranks with the same files "
                "and overrides",
                r, (unsigned long long)other[SAME_RECIPE],
                (unsigned long long)first[SAME_RECIPE]);
    LOONG_CHECK(comm->ctx, first[SAME_STEP] == other[SAME_STEP],
                LOONG_ERR_MISMATCH,
                "rank %d is at step %lld, rank 0 at step "
                "%lld",
                r, (long long)other[SAME_STEP], (long long)first[SAME_STEP]);
    return LOONG_FAIL(comm->ctx, LOONG_ERR_MISMATCH,
                      "before step %lld rank %d made other collectives on %s "
                      "than rank 0",
                      (long long)first[SAME_STEP], r, comm->name);
}

/* The status and message of the lowest rank that failed. */
static loong_status_t fetch_error(loong_comm_t *comm,
                                  const loong_step_report_t *mine,
                                  loong_step_header_t *agreed)
{
    struct {
        int64_t status;
        char message[LOONG_STEP_MESSAGE];
    } error = {(int64_t)mine->status, {0}};
    memcpy(error.message, mine->message, sizeof(error.message));
    LOONG_TRY(loong_comm_broadcast(comm, &error, sizeof(error),
                                   agreed->error_rank, "error of a rank"));
    agreed->status = (loong_status_t)error.status;
    memcpy(agreed->message, error.message, sizeof(agreed->message));
    agreed->message[sizeof(agreed->message) - 1] = '\0';
    return LOONG_OK;
}

loong_status_t loongi_step_exchange_run(loong_step_exchange_t *exchange,
                                        const loong_step_report_t *mine,
                                        loong_step_header_t *agreed_p)
{
    loong_comm_t *comm = exchange->comm;
    bool failed = mine->status != LOONG_OK;
    const int64_t same[SAME_WORDS] = {
        [SAME_RECIPE] = (int64_t)mine->recipe_hash,
        [SAME_STEP] = mine->step,
        [SAME_HISTORY] = (int64_t)comm->history,
    };
    sums_t sums = {.errors = failed};
    maxima_t most = {.failing = failed ? -1 - comm->rank : INT64_MIN};
    loong_step_header_t agreed = {.error_rank = -1};
    memcpy(sums.of, mine->sums, sizeof(sums.of));
    for (int i = 0; i < SAME_WORDS; i++) {
        most.same[i] = same[i];
        most.complement[i] = ~same[i];
    }
    for (int i = 0; i < FLAGS; i++) {
        most.flags[i] = mine->flags >> i & 1;
    }
    loong_comm_set_step(comm, mine->step);
    LOONG_TRY(loong_comm_all_reduce(comm, &most, sizeof(most) / 8, LOONG_I64,
                                    LOONG_REDUCE_MAX, "step header"));
    LOONG_TRY(loong_comm_all_reduce(
        comm, &sums, 1 + exchange->num_sums * LOONG_EXACT_WORDS, LOONG_I64,
        LOONG_REDUCE_SUM, "step header"));
    for (int i = 0; i < SAME_WORDS; i++) {
        if (most.same[i] != ~most.complement[i]) {
            return name_other(comm, same);
        }
    }
    memcpy(agreed.sums, sums.of, sizeof(agreed.sums));
    for (int i = 0; i < FLAGS; i++) {
        agreed.flags |= (unsigned)most.flags[i] << i;
    }
    agreed.error_count = (int)sums.errors;
    if (sums.errors > 0) {
        agreed.error_rank = (int)(-1 - most.failing);
        LOONG_TRY(fetch_error(comm, mine, &agreed));
    }
    *agreed_p = agreed;
    return LOONG_OK;
}
