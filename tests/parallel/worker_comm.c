/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of an MPI job, started by mpirun from ctest:
 *   worker_comm cases RANKS_PER_NODE    the cases of comm_cases.c
 *   worker_comm count RANKS_PER_NODE    messages and bytes of a step header and
 *                                       a barrier */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "comm_cases.h"
#include "loong/launch.h"
#include "step_header.h"

static void print_log(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

enum { STEPS = 5 };

/* Of the rank that sends most, for each step: 3 log2(machines) messages and
 * 192 log2(machines) bytes, as docs/parallelism.md says. */
static loong_status_t count(loong_context_t *ctx, loong_comm_t *comm,
                            int per_node)
{
    int machines = loong_comm_size(comm) / per_node;
    int64_t log = 0;
    loong_step_exchange_t *exchange = NULL;
    loong_step_report_t report = {.recipe_hash = 42};
    loong_step_header_t agreed;
    LOONG_TRY(loongi_step_exchange_create(ctx, comm, 1, &exchange));
    loong_comm_stats_t before = loong_comm_stats(comm);
    loong_status_t status = LOONG_OK;
    for (; report.step < STEPS && status == LOONG_OK; report.step++) {
        status = loongi_step_exchange_run(exchange, &report, &agreed);
        if (status == LOONG_OK) {
            status = loong_comm_barrier(comm, "counted");
        }
    }
    loong_comm_stats_t after = loong_comm_stats(comm);
    loongi_step_exchange_destroy(&exchange);
    LOONG_TRY(status);
    int64_t most[2] = {
        (int64_t)(after.messages - before.messages),
        (int64_t)(after.message_bytes - before.message_bytes)};
    LOONG_TRY(loong_comm_all_reduce(comm, most, 2, LOONG_I64, LOONG_REDUCE_MAX,
                                    "most"));
    while (1 << log < machines) {
        log++;
    }
    if (loong_comm_rank(comm) == 0) {
        printf("%d ranks, %d on a machine: %lld messages, %lld bytes a step\n",
               loong_comm_size(comm), per_node, (long long)most[0] / STEPS,
               (long long)most[1] / STEPS);
    }
    LOONG_CHECK(ctx, most[0] == 3 * log * STEPS && most[1] == 192 * log * STEPS,
                LOONG_ERR_INTERNAL, "%lld messages, %lld bytes in %d steps",
                (long long)most[0], (long long)most[1], STEPS);
    return LOONG_OK;
}

static loong_status_t run(loong_context_t *ctx, bool counts, int per_node)
{
    loong_comm_t *comm = NULL;
    loong_comm_params_t params = {.timeout = 60.0,
                                  .ranks_per_node = per_node};
    LOONG_TRY(loong_comm_create_mpi(ctx, &params, &comm));
    if (counts) {
        loong_status_t counted = count(ctx, comm, per_node);
        loong_comm_destroy(&comm);
        return counted;
    }
    comm_cases_params_t small = {7, 3000, 3, per_node};
    comm_cases_params_t large = {8, 700001, 3, per_node};
    loong_status_t status = comm_cases(ctx, comm, &small);
    if (status == LOONG_OK && loong_comm_size(comm) == 2) {
        status = comm_cases(ctx, comm, &large);
    }
    loong_comm_destroy(&comm);
    return status;
}

int main(int argc, char **argv)
{
    loong_context_t *ctx = NULL;
    loong_context_params_t params = {print_log, NULL, LOONG_LOG_WARN};
    if (argc != 3 || loong_context_create(&params, &ctx) != LOONG_OK) {
        return 2;
    }
    bool counts = strcmp(argv[1], "count") == 0;
    loong_status_t status = run(ctx, counts, atoi(argv[2]));
    if (status != LOONG_OK) {
        fprintf(stderr, "%s: %s\n", loong_status_text(status),
                loong_context_error(ctx));
        return 1;
    }
    size_t alive = loong_context_alloc_bytes(ctx);
    loong_context_destroy(&ctx);
    return alive == 0 ? 0 : 1;
}
