/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator table of an MPI job. Made by mpi_world.c, called by
 * src/comm/comm.c. Read mpi_impl.h and loong/comm_backend.h before. */
#include <string.h>
#include <unistd.h>

#include "mpi_impl.h"
#include "pages.h"

/* Per rank, for buffers that peers cannot read: stays in the L2 cache. */
static const size_t STAGING_BYTES = (size_t)512 << 10;

_Static_assert(sizeof(MPI_Request) <=
                   sizeof(((loong_comm_request_t *)0)->backend),
               "an MPI request fits into a request");

/* ---- Messages -------------------------------------------------------------
 */

static MPI_Request get_handle(const loong_comm_request_t *request)
{
    MPI_Request handle;
    memcpy(&handle, request->backend, sizeof(handle));
    return handle;
}

static void put_handle(loong_comm_request_t *request, MPI_Request handle)
{
    memcpy(request->backend, &handle, sizeof(handle));
}

static loong_status_t post(loong_context_t *ctx, MPI_Comm mpi,
                           loong_comm_request_t *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    int bytes = 0;
    LOONG_TRY(loongi_to_int(ctx, (int64_t)request->bytes,
                            "the bytes of a message", &bytes));
    if (request->kind == LOONG_COLLECTIVE_SEND) {
        LOONG_TRY_MPI(ctx,
                      MPI_Isend(request->data, bytes, MPI_BYTE, request->peer,
                                request->tag, mpi, &handle));
    } else {
        LOONG_TRY_MPI(ctx,
                      MPI_Irecv(request->data, bytes, MPI_BYTE, request->peer,
                                request->tag, mpi, &handle));
    }
    put_handle(request, handle);
    return LOONG_OK;
}

static loong_message_state_t test(loong_comm_request_t *request,
                                  size_t *other_bytes_p)
{
    MPI_Request handle = get_handle(request);
    MPI_Status status;
    int done = 0;
    int bytes = 0;
    if (handle == MPI_REQUEST_NULL) {
        return LOONG_MESSAGE_DONE;
    }
    int code = MPI_Test(&handle, &done, &status);
    put_handle(request, handle);
    if (code != MPI_SUCCESS) { /* longer than the buffer */
        *other_bytes_p = request->bytes + 1;
        return LOONG_MESSAGE_OTHER_SIZE;
    }
    if (done == 0) {
        return LOONG_MESSAGE_PENDING;
    }
    if (request->kind == LOONG_COLLECTIVE_RECV) {
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        *other_bytes_p = (size_t)bytes;
        return (size_t)bytes == request->bytes ? LOONG_MESSAGE_DONE
                                               : LOONG_MESSAGE_OTHER_SIZE;
    }
    return LOONG_MESSAGE_DONE;
}

/* A receive that has met its sender, and a send, cannot be taken back: false
 * until they are complete. */
static bool cancel(loong_comm_request_t *request)
{
    MPI_Request handle = get_handle(request);
    int done = 1;
    if (handle != MPI_REQUEST_NULL) {
        if (request->kind == LOONG_COLLECTIVE_RECV) {
            MPI_Cancel(&handle);
        }
        MPI_Test(&handle, &done, MPI_STATUS_IGNORE);
        put_handle(request, handle);
    }
    return done != 0;
}

static loong_status_t post_internal(void *owner, loong_comm_request_t *request)
{
    mpi_t *mpi = owner;
    return post(mpi->comm->ctx, mpi->internal, request);
}

static loong_message_state_t
test_internal(void *owner, loong_comm_request_t *request, size_t *other_bytes_p)
{
    (void)owner;
    return test(request, other_bytes_p);
}

static void cancel_internal(void *owner, loong_comm_request_t *request)
{
    (void)owner;
    (void)cancel(request);
}

static bool probe_internal(void *owner, int *peer_p, int *tag_p)
{
    mpi_t *mpi = owner;
    MPI_Status status;
    int found = 0;
    int code = MPI_Iprobe(*peer_p >= 0 ? *peer_p : MPI_ANY_SOURCE,
                          *tag_p >= 0 ? *tag_p : MPI_ANY_TAG, mpi->internal,
                          &found, &status);
    if (code == MPI_SUCCESS && found != 0) {
        *peer_p = status.MPI_SOURCE;
        *tag_p = status.MPI_TAG;
    }
    return code == MPI_SUCCESS && found != 0;
}

static loong_status_t mpi_isend(loong_comm_t *comm, const void *data,
                                loong_comm_request_t *request)
{
    mpi_t *mpi = comm->impl;
    request->data = (void *)(uintptr_t)data;
    LOONG_TRY(post(comm->ctx, mpi->user, request));
    __atomic_fetch_add(&mpi->world->active, 1, __ATOMIC_RELAXED);
    return LOONG_OK;
}

static loong_status_t mpi_irecv(loong_comm_t *comm,
                                loong_comm_request_t *request)
{
    mpi_t *mpi = comm->impl;
    LOONG_TRY(post(comm->ctx, mpi->user, request));
    __atomic_fetch_add(&mpi->world->active, 1, __ATOMIC_RELAXED);
    return LOONG_OK;
}

static bool mpi_cancel(loong_comm_t *comm, loong_comm_request_t *request)
{
    mpi_t *mpi = comm->impl;
    bool active = get_handle(request) != MPI_REQUEST_NULL;
    bool done = cancel(request);
    if (active && done) {
        __atomic_fetch_sub(&mpi->world->active, 1, __ATOMIC_RELAXED);
    }
    return done;
}

static loong_status_t mpi_wait(loong_comm_t *comm,
                               loong_comm_request_t *request)
{
    mpi_t *mpi = comm->impl;
    size_t other = 0;
    loong_message_state_t state;
    loong_wait_t wait = loongi_wait_begin(comm);
    while ((state = test(request, &other)) == LOONG_MESSAGE_PENDING) {
        if (!loongi_wait_step(&wait, request->peer)) {
            (void)mpi_cancel(comm, request);
            return loongi_wait_failed_on(&wait, request->peer);
        }
    }
    loongi_wait_end(&wait);
    __atomic_fetch_sub(&mpi->world->active, 1, __ATOMIC_RELAXED);
    LOONG_CHECK(comm->ctx, state == LOONG_MESSAGE_DONE, LOONG_ERR_COMM,
                "message with tag %d of %s: rank %d expects %zu bytes, rank "
                "%d sends %s%zu",
                request->tag, comm->name, comm->rank, request->bytes,
                request->peer, other > request->bytes ? "at least " : "",
                other);
    return LOONG_OK;
}

/* Messages of the user, of any communicator, go on while a collective waits in
 * shared memory, or beside a computation. */
static bool mpi_progress(loong_comm_t *comm)
{
    mpi_t *mpi = comm->impl;
    int found = 0;
    bool active = __atomic_load_n(&mpi->world->active, __ATOMIC_RELAXED) > 0;
    if (active) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->user, &found,
                   MPI_STATUS_IGNORE);
    }
    return active;
}

/* ---- Shared memory --------------------------------------------------------
 */

/* Readable when every rank of the communicator has a part in the region. */
static loong_location_t mpi_locate(void *owner, const void *ptr, size_t bytes)
{
    mpi_t *mpi = owner;
    loong_location_t location = {0, 0};
    loong_region_t *region =
        loongi_region_find(&mpi->world->regions, ptr, bytes);
    for (int p = 0; p < mpi->size && region != NULL; p++) {
        if (region->part[mpi->comm->world_ranks[p]].base == NULL) {
            region = NULL;
        }
    }
    if (region != NULL) {
        const char *base = region->part[region->self].base;
        location.region = region->id;
        location.offset = (uint64_t)((const char *)ptr - base);
    }
    return location;
}

static void *mpi_resolve(void *owner, int peer,
                         const loong_location_t *location)
{
    mpi_t *mpi = owner;
    loong_region_t *region =
        loongi_region_of(&mpi->world->regions, location->region);
    return (char *)region->part[mpi->comm->world_ranks[peer]].base +
           location->offset;
}

static void unmap_region(loong_context_t *ctx, mpi_world_t *world,
                         loong_region_t *region)
{
    for (int r = 0; r < world->size; r++) {
        loongi_pages_free(region->part[r].base, region->part[r].bytes);
    }
    loongi_region_remove(ctx, &world->regions, region);
}

/* Maps the files of all ranks that are on this machine. */
static loong_status_t map_parts(loong_comm_t *comm, const mpi_file_t *files,
                                int own, loong_region_t *region)
{
    const mpi_world_t *world = ((mpi_t *)comm->impl)->world;
    for (int p = 0; p < comm->size; p++) {
        int peer = comm->world_ranks[p];
        loong_region_slice_t *part = &region->part[peer];
        int file = own;
        if (files[p].status != LOONG_OK ||
            world->node_of[peer] != world->node_of[world->rank]) {
            continue;
        }
        if (peer != world->rank) {
            LOONG_TRY(loongi_pages_open(comm->ctx, files[p].pid, files[p].file,
                                        &file));
        }
        part->bytes = (size_t)files[p].bytes;
        loong_status_t status =
            loongi_pages_map(comm->ctx, file, part->bytes, &part->base);
        if (peer != world->rank) {
            close(file);
        }
        LOONG_TRY(status);
    }
    return LOONG_OK;
}

static loong_status_t mpi_alloc_shared(loong_comm_t *comm, size_t bytes,
                                       const char *what, void **ptr_p)
{
    mpi_t *mpi = comm->impl;
    mpi_world_t *world = mpi->world;
    mpi_file_t mine = {(int)getpid(), -1, bytes, 0, LOONG_OK};
    mpi_file_t *files = NULL;
    loong_region_t *region = NULL;
    /* A rank that fails takes part all the same, so that all hear of it. */
    loong_status_t status = loongi_calloc(
        comm->ctx, (size_t)comm->size, sizeof(*files), "shared files", &files);
    status = loongi_mpi_agree(comm->ctx, mpi->internal, status, what);
    if (status != LOONG_OK) {
        loongi_free(comm->ctx, files);
        return status;
    }
    status = loongi_pages_file(comm->ctx, bytes, what, &mine.file);
    mine.status = (int)status;
    mine.id = ((uint64_t)world->rank << 32) + ++world->regions_made;
    LOONG_TRY(loongi_mpi_check(comm->ctx,
                               MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE,
                                             files, (int)sizeof(mine), MPI_BYTE,
                                             mpi->internal),
                               what));
    if (status == LOONG_OK) {
        status = loongi_region_add(comm->ctx, &world->regions, files[0].id,
                                   world->rank, world->size, &region);
    }
    if (status == LOONG_OK) {
        status = map_parts(comm, files, mine.file, region);
    }
    status = loongi_mpi_agree(comm->ctx, mpi->internal, status, what);
    if (mine.file >= 0) {
        close(mine.file);
    }
    loongi_free(comm->ctx, files);
    if (status != LOONG_OK) {
        if (region != NULL) {
            unmap_region(comm->ctx, world, region);
        }
        return status;
    }
    *ptr_p = region->part[world->rank].base;
    return LOONG_OK;
}

static void mpi_free_shared(loong_comm_t *comm, void *ptr)
{
    mpi_world_t *world = ((mpi_t *)comm->impl)->world;
    loong_region_t *region = loongi_region_find(&world->regions, ptr, 0);
    if (region != NULL) {
        unmap_region(comm->ctx, world, region);
    }
}

static void *mpi_peer_pointer(loong_comm_t *comm, const void *ptr, int peer)
{
    mpi_world_t *world = ((mpi_t *)comm->impl)->world;
    return loongi_region_peer(&world->regions, ptr, comm->world_ranks[peer]);
}

/* ---- The table ------------------------------------------------------------
 */

static int mpi_machine(const loong_comm_t *comm, int rank)
{
    const mpi_t *mpi = comm->impl;
    return mpi->world->node_of[comm->world_ranks[rank]];
}

static loong_status_t mpi_run(loong_comm_t *comm,
                              const loong_collective_t *call)
{
    mpi_t *mpi = comm->impl;
    return mpi->shared != NULL ? loongi_shared_run(mpi->shared, comm, call)
                               : loongi_message_run(mpi->message, comm, call);
}

static void mpi_abort(loong_comm_t *comm, const char *text)
{
    mpi_t *mpi = comm->impl;
    if (mpi->shared != NULL) {
        loongi_shared_abort(mpi->shared, text);
    } else {
        loongi_message_abort(mpi->message, text);
    }
}

static void free_mpi(loong_context_t *ctx, mpi_t *mpi, bool failed)
{
    loongi_shared_destroy(ctx, &mpi->shared);
    loongi_message_destroy(ctx, &mpi->message);
    loongi_pages_free(mpi->control, mpi->control_bytes);
    if (!failed) { /* freeing waits for the others */
        MPI_Comm_free(&mpi->internal);
        MPI_Comm_free(&mpi->user);
    }
    loongi_free(ctx, mpi);
}

static void mpi_destroy(loong_comm_t *comm, bool failed)
{
    mpi_t *mpi = comm->impl;
    mpi_world_t *world = mpi->world;
    bool first = mpi->first;
    free_mpi(comm->ctx, mpi, failed);
    if (first) {
        loongi_mpi_world_end(comm->ctx, world, failed);
    }
}

static loong_status_t mpi_split(loong_comm_t *comm, int color, int key,
                                const char *name, loong_comm_t **group_p)
{
    mpi_t *mpi = comm->impl;
    MPI_Comm group = MPI_COMM_NULL;
    LOONG_TRY_MPI(comm->ctx, MPI_Comm_split(mpi->internal,
                                            color < 0 ? MPI_UNDEFINED : color,
                                            key, &group));
    if (group == MPI_COMM_NULL) {
        *group_p = NULL;
        return LOONG_OK;
    }
    return loongi_mpi_wrap(comm->ctx, mpi->world, group, name, group_p);
}

static const loong_comm_ops_t mpi_ops = {
    .name = "mpi",
    .run = mpi_run,
    .split = mpi_split,
    .machine = mpi_machine,
    .isend = mpi_isend,
    .irecv = mpi_irecv,
    .wait = mpi_wait,
    .cancel = mpi_cancel,
    .alloc_shared = mpi_alloc_shared,
    .free_shared = mpi_free_shared,
    .peer_pointer = mpi_peer_pointer,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
};

static bool one_node(const mpi_world_t *world, const int *ranks, int size)
{
    for (int i = 1; i < size; i++) {
        if (world->node_of[ranks[i]] != world->node_of[ranks[0]]) {
            return false;
        }
    }
    return true;
}

static loong_status_t make_engine(loong_context_t *ctx, mpi_t *mpi,
                                  const int *world_ranks)
{
    if (!one_node(mpi->world, world_ranks, mpi->size)) {
        loong_message_params_t params = {
            .rank = mpi->rank,
            .size = mpi->size,
            .owner = mpi,
            .post = post_internal,
            .test = test_internal,
            .cancel = cancel_internal,
            .probe = probe_internal,
        };
        loong_status_t status =
            loongi_message_create(ctx, &params, &mpi->message);
        return loongi_mpi_agree(ctx, mpi->internal, status, "staging");
    }
    mpi->control_bytes = loongi_shared_bytes(mpi->size, STAGING_BYTES);
    LOONG_TRY(loongi_mpi_common(ctx, mpi->internal, mpi->control_bytes,
                                "collectives", &mpi->control));
    loong_shared_params_t params = {
        .rank = mpi->rank,
        .size = mpi->size,
        .memory = mpi->control,
        .staging = STAGING_BYTES,
        .owner = mpi,
        .locate = mpi_locate,
        .resolve = mpi_resolve,
    };
    return loongi_shared_create(ctx, &params, &mpi->shared);
}

static loong_status_t fill(loong_context_t *ctx, mpi_t *mpi, const char *name,
                           int *world_ranks, loong_comm_t **comm_p)
{
    loong_comm_t *comm = NULL;
    LOONG_TRY_MPI(ctx, MPI_Allgather(&mpi->world->rank, 1, MPI_INT, world_ranks,
                                     1, MPI_INT, mpi->internal));
    LOONG_TRY(make_engine(ctx, mpi, world_ranks));
    loong_comm_description_t description = {
        .name = name,
        .rank = mpi->rank,
        .size = mpi->size,
        .world_ranks = world_ranks,
        .timeout = mpi->world->timeout,
        .ops = &mpi_ops,
        .impl = mpi,
    };
    LOONG_TRY(loong_comm_create(ctx, &description, &comm));
    mpi->comm = comm;
    comm->progress = mpi_progress;
    comm->lonely = mpi->world->thread_level < MPI_THREAD_MULTIPLE;
    loongi_comm_set_board(comm, mpi->world->board);
    *comm_p = comm;
    return LOONG_OK;
}

loong_status_t loongi_mpi_wrap(loong_context_t *ctx, mpi_world_t *world,
                               MPI_Comm user, const char *name,
                               loong_comm_t **comm_p)
{
    mpi_t *mpi = NULL;
    int *world_ranks = NULL;
    int size = 0;
    LOONG_TRY_MPI(ctx, MPI_Comm_set_errhandler(user, MPI_ERRORS_RETURN));
    LOONG_TRY_MPI(ctx, MPI_Comm_size(user, &size));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*mpi), "MPI communicator", &mpi));
    loong_status_t status = loongi_calloc(
        ctx, (size_t)size, sizeof(*world_ranks), "ranks", &world_ranks);
    mpi->world = world;
    mpi->user = user;
    mpi->size = size;
    if (status == LOONG_OK) {
        MPI_Comm_rank(user, &mpi->rank);
        status = loongi_mpi_check(ctx, MPI_Comm_dup(user, &mpi->internal),
                                  "MPI_Comm_dup");
    }
    if (status == LOONG_OK) {
        status = fill(ctx, mpi, name, world_ranks, comm_p);
    }
    loongi_free(ctx, world_ranks);
    if (status != LOONG_OK) {
        free_mpi(ctx, mpi, true);
    }
    return status;
}
