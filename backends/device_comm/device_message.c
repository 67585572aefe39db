/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of device communicators: one behind the other, on a stream of their
 * own, in the order in which a rank begins them; those of a group together. One
 * is behind what is computed when it begins; what is computed from the wait on
 * is behind it. Where more than two ranks have messages, their orders must be
 * parts of one order of all. Called by device_comm.c. Read device_comm.h
 * before. */
#include <stdio.h>

#include "device_comm.h"

static void *computing(const device_comm_t *n)
{
    return n->comm->stream != NULL ? n->comm->stream
                                   : loong_device_stream(n->device);
}

static loong_status_t prepare_messages(device_comm_t *n)
{
    LOONG_CHECK(n->ctx, n->begun == 0, LOONG_ERR_INTERNAL,
                "messages of %s, which has collectives", n->comm->name);
    LOONG_TRY(loong_device_event_create(n->device, &n->computed));
    LOONG_TRY(loong_device_stream_create(n->device, &n->messages));
    return n->handle == NULL ? n->calls->connect(n) : LOONG_OK;
}

/* Both ends of a message say the same of it. */
static void publish(device_comm_t *n, const loong_collective_t *call)
{
    bool send = call->kind == LOONG_COLLECTIVE_SEND;
    int sender = send ? n->comm->rank : call->root;
    loongi_device_comm_publish(
        n, call, (uint64_t)(call->count * n->comm->size + sender));
}

static loong_status_t enqueue_grouped(device_comm_t *n)
{
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < n->grouped && status == LOONG_OK; i++) {
        uint64_t number = n->begun + (uint64_t)i;
        status =
            n->calls->enqueue(n, &loongi_device_comm_pending(n, number)->call);
    }
    return status;
}

/* A group that was begun ends, whatever becomes of it. */
static loong_status_t enqueue(device_comm_t *n)
{
    if (n->grouped == 1 || n->calls->group == NULL) {
        return enqueue_grouped(n);
    }
    LOONG_TRY(n->calls->group(n, true));
    loong_status_t status = enqueue_grouped(n);
    loong_status_t ended = n->calls->group(n, false);
    return status == LOONG_OK ? ended : status;
}

/* What is grouped, or the one message that is not. */
static loong_status_t launch(device_comm_t *n)
{
    if (n->grouped == 0) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_event_record(n->device, n->computed, computing(n)));
    LOONG_TRY(loong_device_event_wait(n->device, n->computed, n->messages));
    for (int i = 0; i < n->grouped; i++) {
        device_pending_t *p =
            loongi_device_comm_pending(n, n->begun + (uint64_t)i);
        publish(n, &p->call);
        LOONG_TRY(
            loong_device_event_record(n->device, p->reached, n->messages));
    }
    LOONG_TRY(enqueue(n));
    for (; n->grouped > 0; n->grouped--) {
        device_pending_t *p = loongi_device_comm_pending(n, n->begun++);
        LOONG_TRY(loong_device_event_record(n->device, p->event, n->messages));
    }
    return LOONG_OK;
}

loong_status_t loongi_device_comm_group_messages(loong_comm_t *comm, bool begin)
{
    device_comm_t *n = comm->impl;
    n->grouping = begin;
    return begin ? LOONG_OK : launch(n);
}

/* Of the messages with a peer; grouped ones are not published yet. */
static uint64_t next_of(device_comm_t *n, int peer)
{
    uint64_t number = n->progress[peer].sequence + 1;
    for (int i = 0; i < n->grouped; i++) {
        uint64_t at = n->begun + (uint64_t)i;
        number += loongi_device_comm_pending(n, at)->call.root == peer;
    }
    return number;
}

/* backend[0] is the number of what is pending; 0: the other end is missing. */
static loong_status_t begin_message(device_comm_t *n, void *data,
                                    loong_comm_request_t *request)
{
    char label[LOONG_EVENT_LABEL];
    bool send = request->kind == (int)LOONG_COLLECTIVE_SEND;
    loong_collective_t call = {
        .kind = (loong_collective_kind_t)request->kind,
        .dtype = LOONG_U8,
        .root = request->peer,
        .data = data,
        .count = (int64_t)request->bytes,
        .sequence = next_of(n, request->peer),
        .label = label,
    };
    snprintf(label, sizeof(label), "%s rank %d", send ? "to" : "from",
             n->comm->world_ranks[request->peer]);
    if (n->messages == NULL) {
        LOONG_TRY(prepare_messages(n));
    }
    LOONG_CHECK(n->ctx, n->grouped < n->room, LOONG_ERR_INTERNAL,
                "more than %d messages of %s in a group", n->room,
                n->comm->name);
    LOONG_TRY(loongi_device_comm_make_room(n));
    uint64_t at = n->begun + (uint64_t)n->grouped++;
    loongi_device_comm_describe(loongi_device_comm_pending(n, at), &call);
    request->backend[0] = at + 1;
    return n->grouping ? LOONG_OK : launch(n);
}

/* To itself: a copy when both ends are there, in the order of what is computed.
 */
static loong_status_t meet(device_comm_t *n, void *data,
                           loong_comm_request_t *request)
{
    uint64_t room = (uint64_t)n->room;
    device_end_t *other = &n->end[n->met % room];
    if (n->met == n->ends || other->request->kind == request->kind) {
        LOONG_CHECK(n->ctx, n->ends - n->met < room, LOONG_ERR_INTERNAL,
                    "%s: more than %d messages of a rank to itself at one "
                    "time",
                    n->comm->name, n->room);
        device_end_t end = {request, data};
        n->end[n->ends++ % room] = end;
        return LOONG_OK;
    }
    n->met++;
    LOONG_CHECK(n->ctx, other->request->bytes == request->bytes,
                LOONG_ERR_INTERNAL,
                "%s: a message of %zu bytes is received as "
                "one of %zu, or the reverse",
                n->comm->name, request->bytes, other->request->bytes);
    bool send = request->kind == (int)LOONG_COLLECTIVE_SEND;
    other->request->backend[0] = request->backend[0] = n->met;
    return loong_device_stream_copy(n->device, computing(n),
                                    send ? other->data : data,
                                    send ? data : other->data, request->bytes);
}

loong_status_t loongi_device_comm_isend(loong_comm_t *comm, const void *data,
                                        loong_comm_request_t *request)
{
    device_comm_t *n = comm->impl;
    return comm->size == 1 ? meet(n, (void *)(uintptr_t)data, request)
                           : begin_message(n, (void *)(uintptr_t)data, request);
}

loong_status_t loongi_device_comm_irecv(loong_comm_t *comm,
                                        loong_comm_request_t *request)
{
    device_comm_t *n = comm->impl;
    return comm->size == 1 ? meet(n, request->data, request)
                           : begin_message(n, request->data, request);
}

loong_status_t loongi_device_comm_wait(loong_comm_t *comm,
                                       loong_comm_request_t *request)
{
    device_comm_t *n = comm->impl;
    uint64_t number = request->backend[0];
    LOONG_CHECK(comm->ctx, number > 0, LOONG_ERR_INTERNAL,
                "%s of %s: the rank has not begun the other end",
                loong_collective_name((loong_collective_kind_t)request->kind),
                comm->name);
    if (comm->size == 1 || number <= n->ended) {
        return LOONG_OK;
    }
    LOONG_CHECK(comm->ctx, number <= n->begun, LOONG_ERR_INTERNAL,
                "%s: a message is waited for before its group has begun",
                comm->name);
    return loong_device_event_wait(
        n->device, loongi_device_comm_pending(n, number - 1)->event,
        computing(n));
}
