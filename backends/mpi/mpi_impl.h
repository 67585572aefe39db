/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes of an MPI job. MPI starts the job, makes groups, and
 * carries messages; on one machine collectives go through memory that the
 * processes share (shared.h), between machines through messages (message.h).
 */
#ifndef LOONG_MPI_IMPL_H
#define LOONG_MPI_IMPL_H

#include <mpi.h>

#include "board_parent.h"
#include "comm_impl.h"
#include "message.h"
#include "region.h"
#include "shared.h"

typedef struct mpi_heartbeat mpi_heartbeat_t;

/* One per process: what all communicators of the job have in common. */
typedef struct mpi_world {
    bool initialised; /* MPI, by us */
    int thread_level; /* of MPI */
    int rank;
    int size;
    int *node_of; /* [size]: the lowest rank of the machine */
    double timeout;
    mpi_heartbeat_t *heartbeat; /* NULL: one machine, or one thread */
    loong_regions_t regions;
    uint64_t regions_made; /* by this rank as leader */
    loong_board_parent_t parent;
    loong_board_t *board; /* the parent's, or in board_memory */
    int active; /* messages of the user under way */
    void *board_memory;
    size_t board_bytes;
} mpi_world_t;

typedef struct mpi {
    mpi_world_t *world;
    bool first; /* owns the world */
    MPI_Comm user;
    MPI_Comm internal; /* messages of collectives, setting up */
    int rank;
    int size;
    loong_comm_t *comm;
    loong_shared_t *shared; /* one of the two */
    loong_message_t *message;
    void *control;
    size_t control_bytes;
} mpi_t;

/* A memory file as another process finds it. */
typedef struct mpi_file {
    int pid;
    int file;
    uint64_t bytes;
    uint64_t id;
    int status; /* loong_status_t of making it */
} mpi_file_t;

/* Turns an MPI return code into a status with MPI's own text. */
loong_status_t loongi_mpi_check(loong_context_t *ctx, int code,
                                const char *what);
#define LOONG_TRY_MPI(ctx_, call_) \
    LOONG_TRY(loongi_mpi_check((ctx_), (call_), #call_))

/* The greatest of all ranks' statuses, so that all fail together. */
loong_status_t loongi_mpi_agree(loong_context_t *ctx, MPI_Comm mpi,
                                loong_status_t mine, const char *what);

/* Memory made by rank 0 of mpi, mapped by all: one machine. */
loong_status_t loongi_mpi_common(loong_context_t *ctx, MPI_Comm mpi,
                                 size_t bytes, const char *what, void **ptr_p);

/* Open MPI ends a process at once when the launcher's daemon on its machine is
 * gone. From here on that is a request to stop, as TERM is. Once MPI is
 * initialised; does nothing where MPI was not started through PMIx. */
void loongi_mpi_survive_launcher(void);

/* ---- mpi_heartbeat.c ---- */
/* Where ranks are on several machines: asks those that this rank waits for, and
 * answers others, in a thread of its own. Once machines and board are known.
 * Collective on: the job. */
loong_status_t loongi_mpi_heartbeat_start(loong_context_t *ctx,
                                          mpi_world_t *world);
/* Collective on: the job, unless it has failed. */
void loongi_mpi_heartbeat_end(loong_context_t *ctx, mpi_world_t *world,
                              bool failed);

/* Wraps an MPI communicator, which the object then owns. */
loong_status_t loongi_mpi_wrap(loong_context_t *ctx, mpi_world_t *world,
                               MPI_Comm mpi, const char *name,
                               loong_comm_t **comm_p);

void loongi_mpi_world_end(loong_context_t *ctx, mpi_world_t *world,
                          bool failed);

#endif
