/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator table of GPUs. Work is on a stream when a call returns;
 * whoever waits for the device asks `watch` meanwhile, which looks whether the
 * oldest call is overdue and who has not made it. */
#include "nccl_comm.h"

#include <string.h>

#include "nccl_impl.h"

static nccl_t *impl_of(const loong_comm_t *comm)
{
    return comm->impl;
}

/* ---- what is on the stream ----------------------------------------------- */

static nccl_pending_t *pending_at(nccl_t *n, uint64_t i)
{
    return &n->pending[i % NCCL_PENDING];
}

static nccl_progress_t *progress_of(const nccl_t *n, int rank)
{
    return loong_comm_peer_pointer(n->host, n->progress, rank);
}

static uint64_t called(const nccl_progress_t *p)
{
    return __atomic_load_n(&p->sequence, __ATOMIC_ACQUIRE);
}

/* Every rank says what it calls, the n-th time. */
static void publish(nccl_t *n, const loong_collective_t *call)
{
    nccl_progress_t *own = n->progress;
    own->history[call->sequence % NCCL_PENDING] = n->comm->history;
    __atomic_store_n(&own->sequence, call->sequence, __ATOMIC_RELEASE);
}

static loong_status_t remember(nccl_t *n, const loong_collective_t *call)
{
    nccl_pending_t *p = pending_at(n, n->begun++);
    p->call = *call;
    strncpy(p->label, call->label, sizeof(p->label) - 1);
    p->call.label = p->label;
    return loong_device_event_record(n->device, p->event,
                                     n->comm->stream);
}

static loong_status_t retire(nccl_t *n)
{
    bool done = true;
    while (n->ended < n->begun && done) {
        LOONG_TRY(loong_device_event_is_done(
            n->device, pending_at(n, n->ended)->event, &done));
        n->ended += done;
    }
    return LOONG_OK;
}

/* ---- watching ------------------------------------------------------------ */

/* A peer that called something else in place of this; -1: none. */
static int find_stranger(const nccl_t *n, const loong_collective_t *call)
{
    uint64_t i = call->sequence % NCCL_PENDING;
    for (int r = 0; r < n->comm->size; r++) {
        const nccl_progress_t *p = progress_of(n, r);
        uint64_t at = p != NULL ? called(p) : 0;
        if (at >= call->sequence && at < call->sequence + NCCL_PENDING &&
            p->history[i] != n->progress->history[i]) {
            return r;
        }
    }
    return -1;
}

/* Marks those that have not made the call; the first of them, or -1. */
static int find_missing(const nccl_t *n, const loong_collective_t *call)
{
    int first = -1;
    for (int r = 0; r < n->comm->size; r++) {
        const nccl_progress_t *p = progress_of(n, r);
        n->comm->missing[r] =
            p != NULL && called(p) < call->sequence;
        if (n->comm->missing[r] && first < 0) {
            first = r;
        }
    }
    return first;
}

static loong_status_t give_up(nccl_t *n, const loong_collective_t *call,
                              int missing)
{
    char text[LOONG_BOARD_TEXT];
    if (missing >= 0) {
        return loongi_wait_failed(&n->wait);
    }
    loongi_wait_end(&n->wait);
    loongi_call_text(n->comm, call, text, sizeof(text));
    return LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                      "%s: all ranks of this machine called it, but it does "
                      "not end on the device (limit %.1f s)",
                      text, n->comm->timeout);
}

static loong_status_t tell_stranger(nccl_t *n, const loong_collective_t *call,
                                    int rank)
{
    char text[LOONG_BOARD_TEXT];
    char other[2 * LOONG_BOARD_TEXT] = "";
    loongi_call_text(n->comm, call, text, sizeof(text));
    loongi_board_describe(n->comm->board, n->comm->world_ranks[rank],
                          loongi_now(), other, sizeof(other));
    return LOONG_FAIL(n->ctx, LOONG_ERR_COMM,
                      "%s: rank %d of %s called something else; %s", text,
                      rank, n->comm->name, other);
}

static loong_status_t judge(nccl_t *n)
{
    const loong_collective_t *call = &pending_at(n, n->ended)->call;
    if (n->waited != n->ended + 1) {
        n->wait = loongi_wait_begin(n->comm);
        n->waited = n->ended + 1;
    }
    int stranger = find_stranger(n, call);
    if (stranger >= 0) {
        return tell_stranger(n, call, stranger);
    }
    LOONG_TRY(loongi_nccl_check(n));
    int missing = find_missing(n, call);
    int peer = missing >= 0 ? missing : (n->comm->rank + 1) % n->comm->size;
    return loongi_wait_step(&n->wait, peer) ? LOONG_OK
                                            : give_up(n, call, missing);
}

/* Aborting ends what is on the stream. */
static loong_status_t nccl_watch(loong_comm_t *comm)
{
    nccl_t *n = impl_of(comm);
    if (n->handle == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(retire(n));
    if (n->ended == n->begun) {
        if (n->waited != 0) {
            loongi_wait_end(&n->wait);
            n->waited = 0;
        }
        return LOONG_OK;
    }
    comm->current = &pending_at(n, n->ended)->call;
    loong_status_t status = judge(n);
    comm->current = NULL;
    if (status != LOONG_OK) {
        comm->failed = true;
        loongi_nccl_disconnect(n, true);
    }
    return status;
}

/* ---- collectives --------------------------------------------------------- */

/* One rank has all there is. */
static loong_status_t run_alone(nccl_t *n, const loong_collective_t *call)
{
    if (call->kind != LOONG_COLLECTIVE_ALL_TO_ALL) {
        return LOONG_OK;
    }
    return loong_device_stream_copy(
        n->device, n->comm->stream, call->data, call->send,
        (size_t)call->count * loong_dtype_size(call->dtype));
}

static loong_status_t nccl_run(loong_comm_t *comm,
                               const loong_collective_t *call)
{
    nccl_t *n = impl_of(comm);
    if (call->kind == LOONG_COLLECTIVE_BARRIER) {
        return loong_comm_barrier(n->host, call->label);
    }
    LOONG_CHECK(comm->ctx, call->kind != LOONG_COLLECTIVE_GATHER,
                LOONG_ERR_UNSUPPORTED,
                "gather of %s: not on the memory of a device", comm->name);
    if (comm->size == 1) {
        return run_alone(n, call);
    }
    if (n->handle == NULL) {
        LOONG_TRY(loongi_nccl_connect(n));
    }
    if (n->begun - n->ended == NCCL_PENDING) {
        LOONG_TRY(loong_device_event_await(
            n->device, pending_at(n, n->ended)->event,
            "room for another collective"));
        LOONG_TRY(retire(n));
    }
    publish(n, call);
    LOONG_TRY(loongi_nccl_enqueue(n, call));
    return remember(n, call);
}

static loong_status_t nccl_split(loong_comm_t *comm, int color, int key,
                                 const char *name, loong_comm_t **group_p)
{
    nccl_t *n = impl_of(comm);
    loong_comm_t *host = NULL;
    LOONG_TRY(loong_comm_split(n->host, color, key, name, &host));
    if (host == NULL) {
        *group_p = NULL;
        return LOONG_OK;
    }
    loong_status_t status =
        loongi_nccl_create(comm->ctx, n->device, host, group_p);
    if (status != LOONG_OK) {
        loong_comm_destroy(&host);
        return status;
    }
    impl_of(*group_p)->owns_host = true;
    return LOONG_OK;
}

/* ---- messages, through the host's memory --------------------------------- */

/* A free buffer of this size; made when there is none. */
static loong_status_t take_message(nccl_t *n, size_t bytes,
                                   nccl_message_t **message_p)
{
    nccl_message_t *m = n->messages;
    while (m != NULL && (m->busy || m->bytes != bytes)) {
        m = m->next;
    }
    if (m == NULL) {
        LOONG_TRY(loongi_alloc(n->ctx, sizeof(*m), "message", &m));
        m->next = n->messages;
        n->messages = m;
        m->bytes = bytes;
        m->busy = true; /* until it is whole */
        LOONG_TRY(loong_device_host_alloc(n->device, bytes, "message",
                                          &m->buffer));
        LOONG_TRY(loong_device_event_create(n->device, &m->copied));
    }
    m->busy = true;
    m->stream = n->comm->stream != NULL ? n->comm->stream
                                        : loong_device_stream(n->device);
    LOONG_TRY(loong_device_event_await(n->device, m->copied, "a message"));
    *message_p = m;
    return LOONG_OK;
}

static loong_status_t copied(nccl_t *n, nccl_message_t *m, void *dst,
                             const void *src)
{
    LOONG_TRY(loong_device_stream_copy(n->device, m->stream, dst, src,
                                       m->bytes));
    return loong_device_event_record(n->device, m->copied, m->stream);
}

static loong_status_t nccl_isend(loong_comm_t *comm, const void *data,
                                 loong_comm_request_t *request)
{
    nccl_t *n = impl_of(comm);
    nccl_message_t *m = NULL;
    LOONG_TRY(take_message(n, request->bytes, &m));
    memcpy(request->backend, &m, sizeof(m));
    LOONG_TRY(copied(n, m, m->buffer, data));
    LOONG_TRY(loong_device_event_await(n->device, m->copied,
                                       "what is sent to another rank"));
    return loong_comm_isend(n->host, m->buffer, m->bytes, request->peer,
                            request->tag, &m->request);
}

static loong_status_t nccl_irecv(loong_comm_t *comm,
                                 loong_comm_request_t *request)
{
    nccl_t *n = impl_of(comm);
    nccl_message_t *m = NULL;
    LOONG_TRY(take_message(n, request->bytes, &m));
    memcpy(request->backend, &m, sizeof(m));
    return loong_comm_irecv(n->host, m->buffer, m->bytes, request->peer,
                            request->tag, &m->request);
}

static loong_status_t nccl_wait(loong_comm_t *comm,
                                loong_comm_request_t *request)
{
    nccl_t *n = impl_of(comm);
    nccl_message_t *m = NULL;
    memcpy(&m, request->backend, sizeof(m));
    LOONG_TRY(loong_comm_wait(n->host, &m->request));
    m->busy = false;
    return request->kind == (int)LOONG_COLLECTIVE_RECV
               ? copied(n, m, request->data, m->buffer)
               : LOONG_OK;
}

/* ---- the table ----------------------------------------------------------- */

static loong_status_t nccl_alloc_shared(loong_comm_t *comm, size_t bytes,
                                        const char *what, void **ptr_p)
{
    (void)bytes;
    (void)ptr_p;
    return LOONG_FAIL(comm->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: ranks do not share the memory of their devices",
                      what);
}

static void nccl_free_shared(loong_comm_t *comm, void *ptr)
{
    (void)comm;
    (void)ptr;
}

static void nccl_abort(loong_comm_t *comm, const char *text)
{
    nccl_t *n = impl_of(comm);
    loongi_nccl_disconnect(n, true);
    loong_comm_abort(n->host, text);
}

static void nccl_destroy(loong_comm_t *comm, bool failed)
{
    nccl_t *n = impl_of(comm);
    bool over = retire(n) == LOONG_OK && n->ended == n->begun;
    loongi_nccl_disconnect(n, failed || !over);
    for (int i = 0; i < NCCL_PENDING; i++) {
        loong_device_event_destroy(n->device, n->pending[i].event);
    }
    while (n->messages != NULL) {
        nccl_message_t *m = n->messages;
        n->messages = m->next;
        loong_device_event_destroy(n->device, m->copied);
        loong_device_host_free(n->device, m->buffer);
        loongi_free(n->ctx, m);
    }
    loong_comm_free_shared(n->host, &n->progress);
    if (n->owns_host) {
        loong_comm_destroy(&n->host);
    }
    loongi_free(n->ctx, n);
}

static const loong_comm_ops_t nccl_ops = {
    .name = "nccl",
    .run = nccl_run,
    .split = nccl_split,
    .isend = nccl_isend,
    .irecv = nccl_irecv,
    .wait = nccl_wait,
    .alloc_shared = nccl_alloc_shared,
    .free_shared = nccl_free_shared,
    .abort = nccl_abort,
    .destroy = nccl_destroy,
};

loong_status_t loongi_nccl_create(loong_context_t *ctx,
                                  loong_device_t *device, loong_comm_t *host,
                                  loong_comm_t **comm_p)
{
    nccl_t *n = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*n), "communicator of GPUs", &n));
    n->ctx = ctx;
    n->host = host;
    n->device = device;
    loong_comm_description_t description = {
        .name = host->name,
        .rank = host->rank,
        .size = host->size,
        .world_ranks = host->world_ranks,
        .timeout = host->timeout,
        .ops = &nccl_ops,
        .impl = n,
    };
    loong_status_t status = loong_comm_alloc_shared(
        host, sizeof(*n->progress), "calls of ranks", &n->progress);
    if (status == LOONG_OK) {
        status = loong_comm_create(ctx, &description, &n->comm);
    }
    if (status != LOONG_OK) {
        loong_comm_free_shared(host, &n->progress);
        loongi_free(ctx, n);
        return status;
    }
    n->comm->watch = nccl_watch;
    loongi_comm_set_board(n->comm, host->board);
    *comm_p = n->comm;
    return LOONG_OK;
}
