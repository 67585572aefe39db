/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator table of devices. Work is on a stream when a call returns;
 * who waits asks `watch`, which looks who has not made the oldest call that is
 * overdue. Created by backends/nccl and bkcl. Read device_comm.h before. */
#include "device_comm.h"

#include <stdio.h>
#include <string.h>

static device_comm_t *impl_of(const loong_comm_t *comm)
{
    return comm->impl;
}

/* ---- what is on the stream ----------------------------------------------- */

device_pending_t *loongi_device_comm_pending(device_comm_t *n, uint64_t i)
{
    return &n->pending[i % (uint64_t)n->room];
}

/* What a rank has called: of messages with this one, or of all ranks together.
 * NULL: it is on another machine. */
static const device_progress_t *
progress_of(const device_comm_t *n, const loong_collective_t *call, int rank)
{
    const device_progress_t *all =
        loong_comm_peer_pointer(n->host, n->progress, rank);
    return all == NULL ? NULL
                       : &all[device_is_message(call) ? n->comm->rank : rank];
}

static device_progress_t *own_progress(const device_comm_t *n,
                                       const loong_collective_t *call)
{
    return &n->progress[device_is_message(call) ? call->root : n->comm->rank];
}

static uint64_t called(const device_progress_t *p)
{
    return __atomic_load_n(&p->sequence, __ATOMIC_ACQUIRE);
}

void loongi_device_comm_publish(device_comm_t *n,
                                const loong_collective_t *call, uint64_t what)
{
    device_progress_t *own = own_progress(n, call);
    __atomic_store_n(&own->history[call->sequence % DEVICE_COMM_HISTORY], what,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&own->sequence, call->sequence, __ATOMIC_RELEASE);
}

void loongi_device_comm_describe(device_pending_t *pending,
                                 const loong_collective_t *call)
{
    pending->call = *call;
    strncpy(pending->label, call->label, sizeof(pending->label) - 1);
    pending->call.label = pending->label;
}

static loong_status_t retire(device_comm_t *n)
{
    bool done = true;
    while (n->ended < n->begun && done) {
        LOONG_TRY(loong_device_event_is_done(
            n->device, loongi_device_comm_pending(n, n->ended)->event, &done));
        n->ended += done;
    }
    return LOONG_OK;
}

loong_status_t loongi_device_comm_make_room(device_comm_t *n)
{
    if (n->begun - n->ended + (uint64_t)n->grouped < (uint64_t)n->room) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_event_await(
        n->device, loongi_device_comm_pending(n, n->ended)->event,
        "room for another collective"));
    return retire(n);
}

/* ---- room for calls ------------------------------------------------------ */

static loong_status_t take_room(device_comm_t *n, int count)
{
    LOONG_TRY(loongi_calloc(n->ctx, (size_t)count, sizeof(*n->end),
                            "messages of a rank to itself", &n->end));
    LOONG_TRY(loongi_calloc(n->ctx, (size_t)count, sizeof(*n->pending),
                            "calls under way", &n->pending));
    n->room = count;
    return n->handle != NULL ? loongi_device_comm_events(n) : LOONG_OK;
}

loong_status_t loongi_device_comm_events(device_comm_t *n)
{
    for (int i = 0; i < n->room; i++) {
        LOONG_TRY(loong_device_event_create(n->device, &n->pending[i].event));
        LOONG_TRY(loong_device_event_create(n->device, &n->pending[i].reached));
    }
    return LOONG_OK;
}

static void give_room(device_comm_t *n)
{
    for (int i = 0; i < n->room; i++) {
        loong_device_event_destroy(n->device, n->pending[i].event);
        loong_device_event_destroy(n->device, n->pending[i].reached);
    }
    loongi_free(n->ctx, n->pending);
    loongi_free(n->ctx, n->end);
    n->pending = NULL;
    n->end = NULL;
    n->room = 0;
}

static loong_status_t device_comm_reserve(loong_comm_t *comm, int count,
                                          size_t bytes)
{
    device_comm_t *n = comm->impl;
    (void)bytes;
    if (count <= n->room) {
        return LOONG_OK;
    }
    LOONG_CHECK(n->ctx, n->met == n->ends, LOONG_ERR_INTERNAL,
                "room for messages of %s while some are under way", comm->name);
    while (n->ended < n->begun) {
        LOONG_TRY(loong_device_event_await(
            n->device, loongi_device_comm_pending(n, n->ended)->event,
            "room for messages"));
        LOONG_TRY(retire(n));
    }
    give_room(n);
    return take_room(n, count);
}

/* ---- watching ------------------------------------------------------------ */

/* Is a rank waited for? */
static bool takes_part(const loong_collective_t *call, int rank)
{
    return !device_is_message(call) || rank == call->root;
}

/* A peer that called something else in place of this; -1: none that is known.
 * With room for very many calls this rank may not remember it itself. */
static int find_stranger(const device_comm_t *n, const loong_collective_t *call)
{
    uint64_t i = call->sequence % DEVICE_COMM_HISTORY;
    const device_progress_t *own = own_progress(n, call);
    bool known = called(own) < call->sequence + DEVICE_COMM_HISTORY;
    for (int r = 0; r < n->comm->size && known; r++) {
        const device_progress_t *p = progress_of(n, call, r);
        if (p == NULL || !takes_part(call, r) || called(p) < call->sequence) {
            continue;
        }
        uint64_t what = __atomic_load_n(&p->history[i], __ATOMIC_ACQUIRE);
        /* what it is writing now is at most one call further than it says */
        if (what != own->history[i] &&
            called(p) + 1 < call->sequence + DEVICE_COMM_HISTORY) {
            return r;
        }
    }
    return -1;
}

/* Marks those that have not made the call; the first of them, or -1. */
static int find_missing(const device_comm_t *n, const loong_collective_t *call)
{
    int first = -1;
    for (int r = 0; r < n->comm->size; r++) {
        const device_progress_t *p = progress_of(n, call, r);
        n->comm->missing[r] =
            p != NULL && takes_part(call, r) && called(p) < call->sequence;
        if (n->comm->missing[r] && first < 0) {
            first = r;
        }
    }
    return first;
}

/* Ended waits leave the board: one that stayed there would look like a rank
 * that waits to its time limit. */
static void stop_waiting(device_comm_t *n)
{
    if (n->waited != 0) {
        loongi_wait_end(&n->wait);
        n->waited = 0;
        loongi_device_comm_stand_nowhere(n);
    }
}

/* Why the job is lost, as far as this machine knows; else an empty text. */
static void tell_lost(const loong_comm_t *comm, char *text, size_t size)
{
    loong_board_verdict_t verdict;
    text[0] = '\0';
    if (comm->board == NULL) {
        return;
    }
    if (loongi_board_verdict(comm->board, &verdict)) {
        snprintf(text, size, "%s", verdict.text);
    }
    for (int r = 0; r < comm->size && text[0] == '\0'; r++) {
        loong_board_slot_t *slot =
            loongi_board_find(comm->board, comm->world_ranks[r]);
        if (slot != NULL && loongi_slot_state(slot) >= LOONG_RANK_FAILED) {
            loongi_board_describe(comm->board, comm->world_ranks[r],
                                  loongi_now(), text, size);
        }
    }
}

/* Nobody of this communicator is missing: one that has failed since, or another
 * that is lost, keeps it from ending, or the device itself hangs. */
static loong_status_t does_not_end(device_comm_t *n,
                                   const loong_collective_t *call)
{
    char text[LOONG_BOARD_TEXT];
    char lost[2 * LOONG_BOARD_TEXT];
    double seconds = loongi_now() - n->wait.begin;
    tell_lost(n->comm, lost, sizeof(lost));
    stop_waiting(n);
    loongi_call_text(n->comm, call, text, sizeof(text));
    return LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                      "%s: all its ranks of this machine called it, but it "
                      "did not end on the device in %.1f s (limit %.1f s)%s%s",
                      text, seconds, n->comm->timeout,
                      lost[0] != '\0' ? "; the job is lost: " : "", lost);
}

static loong_status_t give_up(device_comm_t *n, const loong_collective_t *call,
                              int missing)
{
    if (missing < 0) {
        return does_not_end(n, call);
    }
    n->waited = 0;
    return loongi_wait_failed(&n->wait);
}

static loong_status_t tell_stranger(device_comm_t *n,
                                    const loong_collective_t *call, int rank)
{
    char text[LOONG_BOARD_TEXT];
    char other[2 * LOONG_BOARD_TEXT] = "";
    loongi_call_text(n->comm, call, text, sizeof(text));
    loongi_board_describe(n->comm->board, n->comm->world_ranks[rank],
                          loongi_now(), other, sizeof(other));
    return LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                      "%s: rank %d of %s called something else; %s", text, rank,
                      n->comm->name, other);
}

static loong_status_t judge(device_comm_t *n)
{
    device_pending_t *pending = loongi_device_comm_pending(n, n->ended);
    const loong_collective_t *call = &pending->call;
    bool hangs = false;
    int next = -1;
    if (n->waited != n->ended + 1) {
        stop_waiting(n);
        n->wait = loongi_wait_begin(n->comm);
        n->waited = n->ended + 1;
    }
    int stranger = find_stranger(n, call);
    if (stranger >= 0) {
        return tell_stranger(n, call, stranger);
    }
    LOONG_TRY(n->calls->check(n));
    LOONG_TRY(loongi_device_comm_excuse(n, pending));
    int missing = find_missing(n, call);
    LOONG_TRY(loongi_device_comm_stand(n, pending, &next, &hangs));
    if (hangs) {
        return loongi_device_comm_hangs(n, call);
    }
    int peer = missing >= 0              ? missing
               : next >= 0               ? next
               : device_is_message(call) ? call->root
                                         : (n->comm->rank + 1) % n->comm->size;
    return loongi_wait_step(&n->wait, peer) ? LOONG_OK
                                            : give_up(n, call, missing);
}

/* Whoever waits leaves. What is on the stream stays there until the owner
 * aborts: the library then waits for graphs that hold the communicator, and
 * they are the owner's. */
static loong_status_t device_comm_watch(loong_comm_t *comm, bool waits)
{
    device_comm_t *n = impl_of(comm);
    if (n->handle == NULL) {
        return LOONG_OK;
    }
    if (!waits) {
        stop_waiting(n);
        return LOONG_OK;
    }
    if (comm->failed) { /* and has told why */
        return LOONG_ERR_COMM;
    }
    LOONG_TRY(retire(n));
    if (n->ended == n->begun) {
        stop_waiting(n);
        return LOONG_OK;
    }
    comm->current = &loongi_device_comm_pending(n, n->ended)->call;
    loong_status_t status = judge(n);
    comm->current = NULL;
    if (status != LOONG_OK) {
        stop_waiting(n);
        comm->failed = true;
    }
    return status;
}

/* ---- collectives --------------------------------------------------------- */

/* One rank has all there is. */
static loong_status_t run_alone(device_comm_t *n,
                                const loong_collective_t *call)
{
    if (call->kind != LOONG_COLLECTIVE_ALL_TO_ALL) {
        return LOONG_OK;
    }
    return loong_device_stream_copy(
        n->device, n->comm->stream, call->data, call->send,
        (size_t)call->count * loong_dtype_size(call->dtype));
}

static loong_status_t device_comm_run(loong_comm_t *comm,
                                      const loong_collective_t *call)
{
    device_comm_t *n = impl_of(comm);
    if (call->kind == LOONG_COLLECTIVE_BARRIER) {
        return loong_comm_barrier(n->host, call->label);
    }
    LOONG_CHECK(comm->ctx, call->kind != LOONG_COLLECTIVE_GATHER,
                LOONG_ERR_UNSUPPORTED,
                "gather of %s: not on the memory of a device", comm->name);
    if (comm->size == 1) {
        return run_alone(n, call);
    }
    LOONG_CHECK(comm->ctx, n->messages == NULL, LOONG_ERR_INTERNAL,
                "%s of %s, which has messages",
                loong_collective_name(call->kind), comm->name);
    if (loong_device_is_capturing(n->device)) {
        LOONG_CHECK(comm->ctx, n->handle != NULL, LOONG_ERR_INTERNAL,
                    "%s of %s: captured before its ranks are connected",
                    loong_collective_name(call->kind), comm->name);
        return n->calls->enqueue(n, call);
    }
    if (n->handle == NULL) {
        LOONG_TRY(n->calls->connect(n));
    }
    LOONG_TRY(loongi_device_comm_make_room(n));
    loongi_device_comm_publish(n, call, comm->history);
    LOONG_TRY(loong_device_event_record(
        n->device, loongi_device_comm_pending(n, n->begun)->reached,
        comm->stream));
    if (call->kind != LOONG_COLLECTIVE_REPLAY) { /* it is on the stream */
        LOONG_TRY(n->calls->enqueue(n, call));
    }
    device_pending_t *p = loongi_device_comm_pending(n, n->begun++);
    loongi_device_comm_describe(p, call);
    return loong_device_event_record(n->device, p->event, comm->stream);
}

static void join(device_comm_t *n, device_comm_t *fresh)
{
    fresh->next = n->next;
    fresh->before = n;
    n->next->before = fresh;
    n->next = fresh;
}

static void leave(device_comm_t *n)
{
    n->before->next = n->next;
    n->next->before = n->before;
}

static loong_status_t device_comm_split(loong_comm_t *comm, int color, int key,
                                        const char *name,
                                        loong_comm_t **group_p)
{
    device_comm_t *n = impl_of(comm);
    loong_comm_t *host = NULL;
    LOONG_TRY(loong_comm_split(n->host, color, key, name, &host));
    if (host == NULL) {
        *group_p = NULL;
        return LOONG_OK;
    }
    loong_status_t status = loongi_device_comm_create(comm->ctx, n->device,
                                                      host, n->calls, group_p);
    if (status != LOONG_OK) {
        loong_comm_destroy(&host);
        return status;
    }
    impl_of(*group_p)->owns_host = true;
    join(n, impl_of(*group_p));
    return LOONG_OK;
}

/* ---- the table ----------------------------------------------------------- */

static void device_comm_abort(loong_comm_t *comm, const char *text)
{
    device_comm_t *n = impl_of(comm);
    device_comm_t *m = n;
    n->calls->give_up(n);
    do {
        m->comm->failed = true;
        loong_comm_abort(m->host, text);
        m = m->next;
    } while (m != n);
}

static void device_comm_destroy(loong_comm_t *comm, bool failed)
{
    device_comm_t *n = impl_of(comm);
    bool over = retire(n) == LOONG_OK && n->ended == n->begun;
    stop_waiting(n);
    leave(n);
    n->calls->disconnect(n, failed || !over);
    give_room(n);
    loong_device_event_destroy(n->device, n->computed);
    loong_device_stream_destroy(n->device, n->messages);
    loong_comm_free_shared(n->host, &n->progress);
    if (n->owns_host) {
        loong_comm_destroy(&n->host);
    }
    loongi_free(n->ctx, n->library);
    loongi_free(n->ctx, n);
}

static const loong_comm_ops_t device_comm_ops = {
    .run = device_comm_run,
    .split = device_comm_split,
    .isend = loongi_device_comm_isend,
    .irecv = loongi_device_comm_irecv,
    .wait = loongi_device_comm_wait,
    .abort = device_comm_abort,
    .destroy = device_comm_destroy,
};

/* While the host waits the device works, and what a rank has not called yet it
 * may call when its own device has gone on. So ranks that wait long for each
 * other have not lost each other: the time limit decides. */
static loong_wait_policy_t wait_policy(void *user)
{
    (void)user;
    return LOONG_WAIT_DEVICE;
}

loong_status_t loongi_device_comm_create(loong_context_t *ctx,
                                         loong_device_t *device,
                                         loong_comm_t *host,
                                         const device_calls_t *calls,
                                         loong_comm_t **comm_p)
{
    device_comm_t *n = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*n), "communicator of devices", &n));
    n->ctx = ctx;
    n->host = host;
    n->device = device;
    n->calls = calls;
    n->ops = device_comm_ops;
    n->ops.name = calls->name;
    n->next = n->before = n;
    loong_comm_description_t description = {
        .name = host->name,
        .rank = host->rank,
        .size = host->size,
        .world_ranks = host->world_ranks,
        .timeout = host->timeout,
        .ops = &n->ops,
        .impl = n,
    };
    loong_status_t status =
        loong_comm_alloc_shared(host, (size_t)host->size * sizeof(*n->progress),
                                "calls of ranks", &n->progress);
    if (status == LOONG_OK) {
        status = take_room(n, DEVICE_COMM_PENDING);
    }
    if (status == LOONG_OK) {
        status = loong_comm_create(ctx, &description, &n->comm);
    }
    if (status != LOONG_OK) {
        give_room(n);
        loong_comm_free_shared(host, &n->progress);
        loongi_free(ctx, n);
        return status;
    }
    n->comm->host = host;
    n->comm->watch = device_comm_watch;
    n->comm->reserve = device_comm_reserve;
    n->comm->group_messages = loongi_device_comm_group_messages;
    loongi_comm_set_wait_policy(n->comm, wait_policy, NULL);
    loongi_comm_set_board(n->comm, host->board);
    n->comm->group = loongi_device_comm_group(n->comm);
    *comm_p = n->comm;
    return LOONG_OK;
}
