/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining and leaving the MPI job. Called by src/launch/launch.c and loongrun,
 * and by mpi_comm.c when a job ends. Read mpi_impl.h before. */
#include <stdlib.h>
#include <unistd.h>

#include "launcher.h"
#include "loong/launch.h"
#include "mpi_impl.h"
#include "pages.h"
#include "tiers.h"

loong_status_t loongi_mpi_check(loong_context_t *ctx, int code,
                                const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS) {
        return LOONG_OK;
    }
    MPI_Error_string(code, text, &length);
    return LOONG_FAIL(ctx, LOONG_ERR_COMM, "%.80s: %s", what, text);
}

loong_status_t loongi_mpi_agree(loong_context_t *ctx, MPI_Comm mpi,
                                loong_status_t mine, const char *what)
{
    struct {
        int status;
        int rank;
    } worst = {(int)mine, 0};
    LOONG_TRY_MPI(ctx, MPI_Comm_rank(mpi, &worst.rank));
    LOONG_TRY_MPI(
        ctx, MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_2INT, MPI_MAXLOC, mpi));
    if (worst.status == LOONG_OK || mine != LOONG_OK) {
        return mine;
    }
    return LOONG_FAIL(ctx, (loong_status_t)worst.status,
                      "%s failed on rank %d: %s", what, worst.rank,
                      loong_status_text((loong_status_t)worst.status));
}

/* Maps what rank 0 made. */
static loong_status_t map_common(loong_context_t *ctx, const mpi_file_t *made,
                                 void **ptr_p)
{
    int file = -1;
    if (made->status != LOONG_OK) {
        return LOONG_OK; /* rank 0 tells */
    }
    LOONG_TRY(loongi_pages_open(ctx, made->pid, made->file, &file));
    loong_status_t status =
        loongi_pages_map(ctx, file, (size_t)made->bytes, ptr_p);
    close(file);
    return status;
}

loong_status_t loongi_mpi_common(loong_context_t *ctx, MPI_Comm mpi,
                                 size_t bytes, const char *what, void **ptr_p)
{
    mpi_file_t made = {(int)getpid(), -1, bytes, 0, LOONG_OK};
    int rank = 0;
    void *ptr = NULL;
    LOONG_TRY_MPI(ctx, MPI_Comm_rank(mpi, &rank));
    if (rank == 0) {
        made.status = (int)loongi_pages_file(ctx, bytes, what, &made.file);
    }
    int own = made.file;
    loong_status_t own_status = (loong_status_t)made.status;
    LOONG_TRY_MPI(ctx, MPI_Bcast(&made, (int)sizeof(made), MPI_BYTE, 0, mpi));
    loong_status_t status =
        own_status != LOONG_OK ? own_status : map_common(ctx, &made, &ptr);
    status = loongi_mpi_agree(ctx, mpi, status, what);
    if (own >= 0) {
        close(own); /* all have mapped it, or given up */
    }
    if (status != LOONG_OK) {
        loongi_pages_free(ptr, bytes);
        return status;
    }
    *ptr_p = ptr;
    return LOONG_OK;
}

static loong_status_t start_mpi(loong_context_t *ctx, mpi_world_t *world)
{
    int done = 0;
    MPI_Initialized(&done);
    if (done == 0) {
        LOONG_TRY_MPI(
            ctx, MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE,
                                 &world->thread_level));
        world->initialised = true;
    }
    loongi_mpi_survive_launcher();
    LOONG_TRY_MPI(ctx, MPI_Query_thread(&world->thread_level));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    LOONG_TRY_MPI(ctx, MPI_Comm_rank(MPI_COMM_WORLD, &world->rank));
    LOONG_TRY_MPI(ctx, MPI_Comm_size(MPI_COMM_WORLD, &world->size));
    return LOONG_OK;
}

/* Who is on which machine; ranks_per_node > 0 pretends. */
static loong_status_t find_nodes(loong_context_t *ctx, mpi_world_t *world,
                                 MPI_Comm node, int ranks_per_node)
{
    int mine = world->rank;
    LOONG_TRY(loongi_calloc(ctx, (size_t)world->size, sizeof(int),
                            "machines of ranks", &world->node_of));
    LOONG_TRY_MPI(ctx, MPI_Bcast(&mine, 1, MPI_INT, 0, node));
    if (ranks_per_node > 0) {
        mine = world->rank / ranks_per_node;
    }
    LOONG_TRY_MPI(ctx, MPI_Allgather(&mine, 1, MPI_INT, world->node_of, 1,
                                     MPI_INT, MPI_COMM_WORLD));
    return LOONG_OK;
}

/* The parent's board, or one that the ranks of the machine make. */
static loong_status_t find_board(loong_context_t *ctx, mpi_world_t *world,
                                 MPI_Comm node)
{
    loong_board_slot_t *slot = world->parent.slot;
    int size = 0;
    int rank = 0;
    LOONG_TRY_MPI(ctx, MPI_Comm_size(node, &size));
    LOONG_TRY_MPI(ctx, MPI_Comm_rank(node, &rank));
    world->board = world->parent.board;
    if (world->board == NULL) {
        world->board_bytes = loongi_board_bytes(size);
        LOONG_TRY(loongi_mpi_common(ctx, node, world->board_bytes,
                                    "status board", &world->board_memory));
        world->board = loongi_board_init(world->board_memory, size);
        slot = loongi_board_slot(world->board, rank);
    }
    loongi_slot_claim(slot, world->rank, (int)getpid());
    loongi_slot_set_state(slot, LOONG_RANK_RUNNING, NULL);
    LOONG_TRY_MPI(ctx, MPI_Barrier(node));
    return LOONG_OK;
}

static loong_status_t join(loong_context_t *ctx, mpi_world_t *world,
                           const loong_comm_params_t *params,
                           loong_comm_t **comm_p)
{
    loong_launch_t launch;
    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm all = MPI_COMM_NULL;
    LOONG_TRY(loongi_board_parent_open(ctx, &world->parent));
    if (world->parent.slot != NULL) {
        loongi_slot_set_state(world->parent.slot, LOONG_RANK_JOINING, NULL);
    }
    /* Before MPI, which adds to the environment. */
    loong_launch_detect(&launch);
    LOONG_TRY(start_mpi(ctx, world));
    LOONG_TRY(loong_launch_check(ctx, &launch, world->size));
    LOONG_TRY_MPI(ctx, MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
                                           world->rank, MPI_INFO_NULL, &node));
    loong_status_t status =
        find_nodes(ctx, world, node, params->ranks_per_node);
    if (status == LOONG_OK) {
        status = find_board(ctx, world, node);
    }
    MPI_Comm_free(&node);
    LOONG_TRY(status);
    loongi_board_set_heartbeat(world->board, params->heartbeat_timeout);
    LOONG_TRY(loongi_mpi_heartbeat_start(ctx, world));
    LOONG_TRY_MPI(ctx, MPI_Comm_dup(MPI_COMM_WORLD, &all));
    LOONG_TRY(loongi_mpi_wrap(ctx, world, all, "world", comm_p));
    LOONG_TRY(loongi_tiers_create(comm_p));
    ((mpi_t *)loong_comm_impl(*comm_p))->first = true;
    return LOONG_OK;
}

loong_status_t loong_comm_create_mpi(loong_context_t *ctx,
                                     const loong_comm_params_t *params,
                                     loong_comm_t **comm_p)
{
    static const loong_comm_params_t defaults = {.timeout = 0.0};
    mpi_world_t *world = NULL;
    params = params != NULL ? params : &defaults;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*world), "MPI job", &world));
    world->timeout = params->timeout;
    loong_status_t status = join(ctx, world, params, comm_p);
    if (status != LOONG_OK) {
        loongi_mpi_world_end(ctx, world, true);
    }
    return status;
}

void loongi_mpi_world_end(loong_context_t *ctx, mpi_world_t *world, bool failed)
{
    loong_board_slot_t *slot =
        world->board != NULL ? loongi_board_find(world->board, world->rank)
                             : NULL;
    if (slot != NULL) {
        loongi_slot_set_state(
            slot, failed ? LOONG_RANK_FAILED : LOONG_RANK_FINISHED, NULL);
    }
    loongi_mpi_heartbeat_end(ctx, world, failed);
    /* Finalising waits for all ranks and the launcher: not after a failure. */
    if (world->initialised && !failed && !loongi_launcher_is_lost()) {
        MPI_Finalize();
    }
    loongi_board_parent_close(&world->parent);
    loongi_pages_free(world->board_memory, world->board_bytes);
    loongi_free(ctx, world->node_of);
    loongi_free(ctx, world);
}
