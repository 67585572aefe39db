/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for mpi_*.c in a build without MPI. Called as mpi_world.c and
 * mpi_version.c are. Read loong/comm.h before. */
#include <stdio.h>

#include "base.h"
#include "loong/comm.h"
#include "mpi_version.h"

const char *loongi_mpi_version(char *text, size_t size)
{
    snprintf(text, size, "no MPI");
    return text;
}

loong_status_t loong_comm_create_mpi(loong_context_t *ctx,
                                     const loong_comm_params_t *params,
                                     loong_comm_t **comm_p)
{
    (void)params;
    (void)comm_p;
    return LOONG_FAIL(ctx, LOONG_ERR_UNSUPPORTED,
                      "this library was built without MPI, so it runs one "
                      "rank; build it with -DLOONG_MPI=ON for more");
}
