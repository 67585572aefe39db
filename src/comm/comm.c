/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator object and its dispatcher: arguments are checked, the call
 * is numbered, put on the board and timed, then the backend's table does it.
 * Called by all that communicates. Read loong/comm.h and loong/comm_backend.h
 * before. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm_impl.h"
#include "convert.h"
#include "tiers.h"

static const double DEFAULT_TIMEOUT = 600.0;

const char *loong_collective_name(loong_collective_kind_t kind)
{
    static const char *const names[] = {
#define LOONG_COLLECTIVE_TEXT(name_, text_) text_,
        LOONG_COLLECTIVE_LIST(LOONG_COLLECTIVE_TEXT)
#undef LOONG_COLLECTIVE_TEXT
    };
    bool inside = (int)kind >= 0 && kind < LOONG_COLLECTIVE_COUNT;
    return inside ? names[kind] : "unknown collective";
}

loong_status_t loong_comm_create(loong_context_t *ctx,
                                 const loong_comm_description_t *description,
                                 loong_comm_t **comm_p)
{
    const loong_comm_description_t *d = description;
    loong_comm_t *comm = NULL;
    LOONG_CHECK(ctx, d->size >= 1 && d->rank >= 0 && d->rank < d->size,
                LOONG_ERR_ARG, "communicator '%s': rank %d of %d", d->name,
                d->rank, d->size);
    LOONG_CHECK(ctx, d->timeout >= 0.0, LOONG_ERR_ARG,
                "communicator '%s': time limit %g s; it is 0 (for %g) or more",
                d->name, d->timeout, DEFAULT_TIMEOUT);
    /* One block: the object, its ranks, its scratch. */
    size_t ranks = (size_t)d->size * sizeof(*comm->world_ranks);
    size_t missing = (size_t)d->size * sizeof(*comm->missing);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*comm) + ranks + missing, "communicator",
                           &comm));
    comm->world_ranks = (int *)(comm + 1);
    comm->missing = (bool *)(comm->world_ranks + d->size);
    for (int i = 0; i < d->size; i++) {
        comm->world_ranks[i] = d->world_ranks != NULL ? d->world_ranks[i] : i;
    }
    comm->ctx = ctx;
    snprintf(comm->name, sizeof(comm->name), "%s", d->name);
    comm->rank = d->rank;
    comm->size = d->size;
    comm->ops = d->ops;
    comm->impl = d->impl;
    comm->timeout = d->timeout > 0.0 ? d->timeout : DEFAULT_TIMEOUT;
    *comm_p = comm;
    return LOONG_OK;
}

void loongi_comm_set_board(loong_comm_t *comm, loong_board_t *board)
{
    int world_rank = comm->world_ranks[comm->rank];
    comm->slot = board != NULL ? loongi_board_find(board, world_rank) : NULL;
    comm->board = comm->slot != NULL ? board : NULL;
    if (comm->slot != NULL) {
        loongi_slot_set_cores(comm->slot);
    }
}

void loongi_comm_set_wait_policy(loong_comm_t *comm,
                                 loong_wait_policy_t (*wait_policy)(void *user),
                                 void *user)
{
    comm->wait_policy = wait_policy;
    comm->wait_policy_user = user;
    loongi_tiers_set_wait_policy(comm);
}

bool loongi_comm_is_concurrent(const loong_comm_t *comm)
{
    return !comm->lonely;
}

void loong_comm_destroy(loong_comm_t **comm_p)
{
    loong_comm_t *comm = *comm_p;
    if (comm == NULL) {
        return;
    }
    loongi_tiers_destroy(comm);
    comm->ops->destroy(comm, comm->failed);
    loongi_free(comm->ctx, comm);
    *comm_p = NULL;
}

int loong_comm_rank(const loong_comm_t *comm)
{
    return comm->rank;
}

int loong_comm_size(const loong_comm_t *comm)
{
    return comm->size;
}

int loong_comm_world_rank(const loong_comm_t *comm, int rank)
{
    return rank >= 0 && rank < comm->size ? comm->world_ranks[rank] : -1;
}

const char *loong_comm_name(const loong_comm_t *comm)
{
    return comm->name;
}

const char *loong_comm_backend(const loong_comm_t *comm)
{
    return comm->ops->name;
}

loong_comm_stats_t loong_comm_stats(const loong_comm_t *comm)
{
    loong_comm_stats_t stats = comm->stats;
    loongi_tiers_add_stats(comm, &stats);
    return stats;
}

void *loong_comm_impl(const loong_comm_t *comm)
{
    return comm->impl;
}

loong_context_t *loong_comm_context(const loong_comm_t *comm)
{
    return comm->ctx;
}

void loong_comm_set_stream(loong_comm_t *comm, void *stream)
{
    comm->stream = stream;
}

void *loong_comm_stream(const loong_comm_t *comm)
{
    return comm->stream;
}

double loong_comm_timeout(const loong_comm_t *comm)
{
    return comm->timeout;
}

loong_status_t loong_comm_fail(loong_comm_t *comm, loong_status_t status,
                               const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return LOONG_FAIL(comm->ctx, status, "%s", text);
}

loong_comm_t *loong_comm_at(loong_comm_t *comm, const char *file, int line)
{
    comm->file = file;
    comm->line = line;
    return comm;
}

void loong_comm_set_step(loong_comm_t *comm, int64_t step)
{
    if (comm->slot != NULL) {
        loongi_slot_set_step(comm->slot, step);
    }
}

void loong_comm_abort(loong_comm_t *comm, const char *text)
{
    comm->failed = true;
    if (comm->slot != NULL) {
        loongi_slot_set_state(comm->slot, LOONG_RANK_FAILED, text);
    }
    loongi_tiers_abort(comm, text);
    if (comm->ops->abort != NULL) {
        comm->ops->abort(comm, text);
    }
}

static int64_t bytes_of(const loong_collective_t *call)
{
    return call->count * (int64_t)loong_dtype_size(call->dtype);
}

void loongi_call_text(const loong_comm_t *comm, const loong_collective_t *call,
                      char *text, size_t size)
{
    char source[LOONG_SOURCE_TEXT];
    if (call == NULL) {
        snprintf(text, size, "%s", comm->name);
        return;
    }
    loongi_source_text(call->file, call->line, source);
    snprintf(text, size, "%s #%llu '%s' of %s (%lld bytes%s%s)",
             loong_collective_name(call->kind),
             (unsigned long long)call->sequence, call->label, comm->name,
             (long long)bytes_of(call), source[0] != '\0' ? ", " : "", source);
}

/* Fowler-Noll-Vo over one word. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ ((word >> (8 * i)) & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void report(loong_comm_t *comm, const loong_collective_t *call,
                   double now)
{
    if (comm->slot != NULL) {
        loong_board_event_t event = {loong_collective_name(call->kind),
                                     comm->name, call->label, call->file,
                                     call->line, call->sequence,
                                     bytes_of(call)};
        comm->event = loongi_slot_begin(comm->slot, &event, now);
    }
}

/* The line belongs to this call alone. */
static void take_source(loong_comm_t *comm, loong_collective_t *call)
{
    call->file = comm->file;
    call->line = comm->line;
    comm->file = NULL;
}

/* A call behind the one that failed: the trail says already why, unless it has
 * been cleared. */
static loong_status_t refuse(loong_comm_t *comm, const char *call)
{
    return loong_context_error(comm->ctx)[0] != '\0'
               ? LOONG_ERR_COMM
               : LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                            "%s of %s: the communicator has failed before",
                            call, comm->name);
}

/* Numbers the call, reports and times it. */
static loong_status_t dispatch(loong_comm_t *comm, loong_collective_t *call)
{
    take_source(comm, call);
    if (comm->failed) {
        return refuse(comm, loong_collective_name(call->kind));
    }
    double begin = loongi_now();
    int64_t bytes = bytes_of(call);
    call->label = call->label != NULL ? call->label : "";
    call->sequence = ++comm->sequence;
    comm->current = call;
    comm->history = mix(comm->history, (uint64_t)call->kind);
    if (call->kind != LOONG_COLLECTIVE_ALL_TO_ALL &&
        call->kind != LOONG_COLLECTIVE_REPLAY) { /* each rank's own */
        comm->history = mix(comm->history, (uint64_t)bytes);
    }
    report(comm, call, begin);
    loong_status_t status = comm->tiers != NULL ? loongi_tiers_run(comm, call)
                                                : comm->ops->run(comm, call);
    double end = loongi_now();
    comm->current = NULL;
    comm->stats.calls++;
    comm->stats.bytes += (uint64_t)bytes;
    comm->stats.seconds += end - begin;
    if (status != LOONG_OK) {
        comm->failed = true;
        return status;
    }
    if (comm->slot != NULL) {
        loongi_slot_end(comm->slot, comm->event, end);
    }
    return LOONG_OK;
}

loong_status_t loongi_comm_replay(loong_comm_t *comm, int64_t bytes,
                                  const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_REPLAY,
                               .dtype = LOONG_U8,
                               .count = bytes,
                               .label = label};
    return dispatch(comm, &call);
}

static loong_status_t check_dtype(loong_comm_t *comm, loong_dtype_t dtype,
                                  loong_collective_kind_t kind)
{
    LOONG_CHECK(comm->ctx, loong_dtype_size(dtype) > 0, LOONG_ERR_ARG,
                "%s of %s: element type %d is not one",
                loong_collective_name(kind), comm->name, (int)dtype);
    return LOONG_OK;
}

static loong_status_t check_reduce(loong_comm_t *comm, loong_dtype_t dtype,
                                   loong_reduce_t reduce,
                                   loong_collective_kind_t kind)
{
    LOONG_TRY(check_dtype(comm, dtype, kind));
    LOONG_CHECK(comm->ctx, (int)reduce >= 0 && reduce < LOONG_REDUCE_COUNT,
                LOONG_ERR_ARG, "%s of %s: reduction %d is not one",
                loong_collective_name(kind), comm->name, (int)reduce);
    LOONG_CHECK(comm->ctx, dtype != LOONG_BOOL || reduce != LOONG_REDUCE_SUM,
                LOONG_ERR_ARG,
                "%s of %s: bool has no sum; use max (any) or min (all)",
                loong_collective_name(kind), comm->name);
    LOONG_CHECK(comm->ctx, !loongi_dtype_is_fp8(dtype), LOONG_ERR_UNSUPPORTED,
                "%s of %s: %s cannot be reduced",
                loong_collective_name(kind), comm->name,
                loong_dtype_name(dtype));
    return LOONG_OK;
}

static loong_status_t check_rank(loong_comm_t *comm, int rank,
                                 loong_collective_kind_t kind)
{
    LOONG_CHECK(comm->ctx, rank >= 0 && rank < comm->size, LOONG_ERR_ARG,
                "%s of %s: rank %d is outside 0...%d",
                loong_collective_name(kind), comm->name, rank, comm->size - 1);
    return LOONG_OK;
}

static loong_status_t sum_counts(loong_comm_t *comm, const int64_t *counts,
                                 loong_collective_kind_t kind, int64_t *sum_p)
{
    int64_t sum = 0;
    for (int i = 0; i < comm->size; i++) {
        LOONG_CHECK(comm->ctx, counts[i] >= 0 && counts[i] <= INT64_MAX - sum,
                    LOONG_ERR_ARG, "%s of %s: count %lld of rank %d",
                    loong_collective_name(kind), comm->name,
                    (long long)counts[i], i);
        sum += counts[i];
    }
    *sum_p = sum;
    return LOONG_OK;
}

loong_status_t (loong_comm_barrier)(loong_comm_t *comm, const char *label)
{
    loong_collective_t call = {
        .kind = LOONG_COLLECTIVE_BARRIER, .dtype = LOONG_U8, .label = label};
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_broadcast)(loong_comm_t *comm, void *data,
                                    size_t bytes, int root, const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_BROADCAST,
                               .dtype = LOONG_U8,
                               .root = root,
                               .data = data,
                               .count = (int64_t)bytes,
                               .label = label};
    LOONG_TRY(check_rank(comm, root, call.kind));
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_all_reduce)(loong_comm_t *comm, void *data,
                                     int64_t count, loong_dtype_t dtype,
                                     loong_reduce_t reduce, const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_ALL_REDUCE,
                               .dtype = dtype,
                               .reduce = reduce,
                               .data = data,
                               .count = count,
                               .label = label};
    LOONG_TRY(check_reduce(comm, dtype, reduce, call.kind));
    LOONG_CHECK(comm->ctx, count >= 0, LOONG_ERR_ARG,
                "all_reduce of %s: count %lld", comm->name, (long long)count);
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_reduce_scatter)(loong_comm_t *comm, void *data,
                                         const int64_t *counts,
                                         loong_dtype_t dtype,
                                         loong_reduce_t reduce,
                                         const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_REDUCE_SCATTER,
                               .dtype = dtype,
                               .reduce = reduce,
                               .data = data,
                               .counts = counts,
                               .label = label};
    LOONG_TRY(check_reduce(comm, dtype, reduce, call.kind));
    LOONG_TRY(sum_counts(comm, counts, call.kind, &call.count));
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_all_gather)(loong_comm_t *comm, void *data,
                                     const int64_t *counts, loong_dtype_t dtype,
                                     const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_ALL_GATHER,
                               .dtype = dtype,
                               .data = data,
                               .counts = counts,
                               .label = label};
    LOONG_TRY(check_dtype(comm, dtype, call.kind));
    LOONG_TRY(sum_counts(comm, counts, call.kind, &call.count));
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_all_to_all)(loong_comm_t *comm,
                                     const loong_all_to_all_t *blocks,
                                     loong_dtype_t dtype, const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_ALL_TO_ALL,
                               .dtype = dtype,
                               .data = blocks->receive,
                               .send = blocks->send,
                               .counts = blocks->send_counts,
                               .receive_counts = blocks->receive_counts,
                               .label = label};
    int64_t received = 0;
    LOONG_TRY(check_dtype(comm, dtype, call.kind));
    LOONG_TRY(sum_counts(comm, call.counts, call.kind, &call.count));
    LOONG_TRY(sum_counts(comm, call.receive_counts, call.kind, &received));
    int me = comm->rank;
    LOONG_CHECK(comm->ctx, call.counts[me] == call.receive_counts[me],
                LOONG_ERR_ARG,
                "all_to_all of %s: rank %d sends %lld elements to itself and "
                "expects %lld",
                comm->name, me, (long long)call.counts[me],
                (long long)call.receive_counts[me]);
    return dispatch(comm, &call);
}

loong_status_t (loong_comm_gather)(loong_comm_t *comm, const void *data,
                                 size_t bytes, void *all, int root,
                                 const char *label)
{
    loong_collective_t call = {.kind = LOONG_COLLECTIVE_GATHER,
                               .dtype = LOONG_U8,
                               .root = root,
                               .data = all,
                               .send = data,
                               .count = (int64_t)bytes,
                               .label = label};
    LOONG_TRY(check_rank(comm, root, call.kind));
    return dispatch(comm, &call);
}

static loong_status_t check_message(loong_comm_t *comm, int peer, int tag,
                                    loong_collective_kind_t kind)
{
    LOONG_CHECK(comm->ctx, !comm->failed, LOONG_ERR_COMM,
                "%s of %s: the communicator has failed before",
                loong_collective_name(kind), comm->name);
    LOONG_CHECK(comm->ctx, tag >= 0 && tag <= 32767, LOONG_ERR_ARG,
                "%s of %s: tag %d is outside 0...32767",
                loong_collective_name(kind), comm->name, tag);
    return check_rank(comm, peer, kind);
}

static void begin_message(loong_comm_t *comm, loong_comm_request_t *request,
                          loong_collective_kind_t kind, size_t bytes)
{
    memset(request, 0, sizeof(*request));
    request->kind = (int)kind;
    request->bytes = bytes;
    request->sequence = ++comm->messages;
    comm->stats.calls++;
    comm->stats.bytes += bytes;
}

loong_status_t loong_comm_isend(loong_comm_t *comm, const void *data,
                                size_t bytes, int peer, int tag,
                                loong_comm_request_t *request)
{
    LOONG_TRY(check_message(comm, peer, tag, LOONG_COLLECTIVE_SEND));
    begin_message(comm, request, LOONG_COLLECTIVE_SEND, bytes);
    request->peer = peer;
    request->tag = tag;
    return comm->ops->isend(comm, data, request);
}

loong_status_t loong_comm_irecv(loong_comm_t *comm, void *data, size_t bytes,
                                int peer, int tag,
                                loong_comm_request_t *request)
{
    LOONG_TRY(check_message(comm, peer, tag, LOONG_COLLECTIVE_RECV));
    begin_message(comm, request, LOONG_COLLECTIVE_RECV, bytes);
    request->peer = peer;
    request->tag = tag;
    request->data = data;
    return comm->ops->irecv(comm, request);
}

loong_status_t (loong_comm_wait)(loong_comm_t *comm,
                               loong_comm_request_t *request)
{
    char label[64];
    loong_collective_t call = {.kind = (loong_collective_kind_t)request->kind,
                               .dtype = LOONG_U8,
                               .root = request->peer,
                               .count = (int64_t)request->bytes,
                               .sequence = request->sequence,
                               .label = label};
    snprintf(label, sizeof(label), "rank %d tag %d", request->peer,
             request->tag);
    take_source(comm, &call);
    double begin = loongi_now();
    comm->current = &call;
    report(comm, &call, begin);
    loong_status_t status = comm->ops->wait(comm, request);
    double end = loongi_now();
    comm->current = NULL;
    comm->stats.seconds += end - begin;
    if (status != LOONG_OK) {
        comm->failed = true;
    } else if (comm->slot != NULL) {
        loongi_slot_end(comm->slot, comm->event, end);
    }
    return status;
}

bool loong_comm_cancel(loong_comm_t *comm, loong_comm_request_t *request)
{
    return comm->ops->cancel == NULL || comm->ops->cancel(comm, request);
}

loong_status_t (loong_comm_send)(loong_comm_t *comm, const void *data,
                               size_t bytes, int peer, int tag)
{
    loong_comm_request_t request;
    LOONG_TRY(loong_comm_isend(comm, data, bytes, peer, tag, &request));
    return (loong_comm_wait)(comm, &request);
}

loong_status_t (loong_comm_recv)(loong_comm_t *comm, void *data, size_t bytes,
                               int peer, int tag)
{
    loong_comm_request_t request;
    LOONG_TRY(loong_comm_irecv(comm, data, bytes, peer, tag, &request));
    return (loong_comm_wait)(comm, &request);
}

loong_status_t loong_comm_split(loong_comm_t *comm, int color, int key,
                                const char *name, loong_comm_t **group_p)
{
    LOONG_TRY(loong_comm_barrier(comm, name));
    loong_comm_t *group = NULL;
    LOONG_TRY(comm->ops->split(comm, color, key, name, &group));
    if (group != NULL && comm->board != NULL) {
        loongi_comm_set_board(group, comm->board);
    }
    LOONG_TRY(group != NULL ? loongi_tiers_create(&group) : LOONG_OK);
    *group_p = group;
    return LOONG_OK;
}

loong_status_t loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                       const char *what, void *ptr_p)
{
    void *ptr = NULL;
    LOONG_CHECK(comm->ctx, comm->ops->alloc_shared != NULL,
                LOONG_ERR_UNSUPPORTED,
                "%s: ranks do not share the memory of their devices", what);
    LOONG_TRY(loong_comm_barrier(comm, what));
    LOONG_TRY(comm->ops->alloc_shared(comm, bytes, what, &ptr));
    memcpy(ptr_p, &ptr, sizeof(ptr));
    return LOONG_OK;
}

void loong_comm_free_shared(loong_comm_t *comm, void *ptr_p)
{
    void *ptr = NULL;
    memcpy(&ptr, ptr_p, sizeof(ptr));
    if (ptr != NULL) {
        /* Peers may still read it; a failure is theirs to report. */
        loong_status_t ignored =
            comm->failed ? LOONG_OK : loong_comm_barrier(comm, "free shared");
        (void)ignored;
        comm->ops->free_shared(comm, ptr);
        ptr = NULL;
        memcpy(ptr_p, &ptr, sizeof(ptr));
    }
}

void *loong_comm_peer_pointer(loong_comm_t *comm, const void *ptr, int peer)
{
    if (comm->ops->peer_pointer == NULL || peer < 0 || peer >= comm->size) {
        return NULL;
    }
    return comm->ops->peer_pointer(comm, ptr, peer);
}
