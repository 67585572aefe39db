/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of an MPI job, started by mpirun from ctest:
 *   worker_comm cases RANKS_PER_NODE    the cases of comm_cases.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"
#include "comm_cases.h"
#include "loong/launch.h"

static void print_log(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    fprintf(stderr, "%s\n", line);
}

static loong_status_t run(loong_context_t *ctx, int per_node)
{
    loong_comm_t *comm = NULL;
    loong_comm_params_t params = {.timeout = 60.0,
                                  .ranks_per_node = per_node};
    LOONG_TRY(loong_comm_create_mpi(ctx, &params, &comm));
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
    loong_status_t status = run(ctx, atoi(argv[2]));
    if (status != LOONG_OK) {
        fprintf(stderr, "%s: %s\n", loong_status_text(status),
                loong_context_error(ctx));
        return 1;
    }
    size_t alive = loong_context_alloc_bytes(ctx);
    loong_context_destroy(&ctx);
    return alive == 0 ? 0 : 1;
}
