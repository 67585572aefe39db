/* SPDX-License-Identifier: Apache-2.0
 *
 * What every communicator must do, against plain loops over all ranks' data.
 * The same body runs on self, threads and MPI. A rank reports a difference as
 * LOONG_ERR_INTERNAL: cmocka's assertions do not work on threads. */
#ifndef LOONG_COMM_CASES_H
#define LOONG_COMM_CASES_H

#include "loong/comm.h"

/* user: const comm_cases_params_t *. */
typedef struct comm_cases_params {
    uint64_t seed;
    int64_t longest; /* elements of the longest buffers */
    int rounds;
    int ranks_per_node; /* as the communicator's; 0: all on one */
} comm_cases_params_t;

loong_status_t comm_cases(loong_context_t *ctx, loong_comm_t *comm, void *user);

#endif
