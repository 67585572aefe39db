/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives boundary tensors of a chunk, slot by slot. Called by
 * src/component/model.c for each entry of a list that is a message. Read
 * schedule.h and links.h before. */
#include "transfer.h"

#include <stdio.h>
#include <string.h>

#include "comm_run.h"

enum { MAX_TENSORS = 4, DIRECTIONS = 2, MAX_TAGS = 1 << 14 };
enum { TAGS_OF_STAGE = DIRECTIONS * MAX_TENSORS };

/* Tensors of one direction at one side. */
typedef struct tensors {
    int count;
    const loong_port_t *port[MAX_TENSORS];
} tensors_t;

typedef struct messages {
    loong_comm_t *comm; /* they go over */
    int peer;
    int first_tag;
    int begun; /* of the tensors */
    double begin;
    loong_comm_request_t request[MAX_TENSORS];
} messages_t;

typedef struct slot {
    int32_t micro_batch; /* -1: none yet */
    messages_t sent[DIRECTIONS];
    messages_t received[DIRECTIONS];
} slot_t;

struct loong_transfer {
    loong_context_t *ctx;
    loong_comm_t *comm;
    const loong_links_t *links;
    loong_device_t *timed; /* messages are waited for there; NULL: are not */
    int stage;
    int stages_before; /* in the tags */
    tensors_t out[DIRECTIONS]; /* 0: forward, 1: gradients */
    tensors_t in[DIRECTIONS];
    int64_t num_slots;
    slot_t *slots;
    loong_transfer_stats_t stats[2]; /* sent, received */
};

/* ---- what is sent ------------------------------------------------------- */

/* The ports of one side of a chunk. */
typedef struct side {
    int count;
    const loong_port_t *ports;
} side_t;

static const loong_port_t *gradient_of(const loong_port_t *port,
                                       const side_t *side)
{
    char name[256];
    snprintf(name, sizeof(name), "%s.grad", port->name);
    for (int i = 0; i < side->count; i++) {
        if (strcmp(side->ports[i].name, name) == 0) {
            return &side->ports[i];
        }
    }
    return NULL; /* the chunk only evaluates */
}

/* Boundary tensors of one side, and their gradients on the other. */
static loong_status_t collect(loong_transfer_t *t, side_t side, side_t other,
                              tensors_t *forward, tensors_t *backward)
{
    for (int i = 0; i < side.count; i++) {
        const loong_port_t *port = &side.ports[i];
        if (!port->boundary || port->edge) {
            continue;
        }
        LOONG_CHECK(t->ctx, forward->count < MAX_TENSORS,
                    LOONG_ERR_UNSUPPORTED,
                    "more than %d tensors between two stages", MAX_TENSORS);
        forward->port[forward->count++] = port;
        const loong_port_t *grad = gradient_of(port, &other);
        if (grad != NULL) {
            backward->port[backward->count++] = grad;
        }
    }
    return LOONG_OK;
}

static loong_status_t collect_all(loong_transfer_t *t,
                                  const loong_model_chunk_t *c)
{
    side_t inputs = {c->num_inputs, c->inputs};
    side_t outputs = {c->num_outputs, c->outputs};
    LOONG_TRY(collect(t, outputs, inputs, &t->out[0], &t->in[1]));
    return collect(t, inputs, outputs, &t->in[0], &t->out[1]);
}

static loong_status_t prepare(loong_transfer_t *t, const loong_model_chunk_t *c)
{
    LOONG_CHECK(
        t->ctx, (t->stages_before + t->stage + 1) * TAGS_OF_STAGE <= MAX_TAGS,
        LOONG_ERR_UNSUPPORTED, "more than %d stages of pipelines",
        MAX_TAGS / TAGS_OF_STAGE);
    LOONG_TRY(loongi_calloc(t->ctx, (size_t)t->num_slots, sizeof(*t->slots),
                            "slots of transfers", &t->slots));
    for (int64_t s = 0; s < t->num_slots; s++) {
        t->slots[s].micro_batch = -1;
    }
    return collect_all(t, c);
}

static size_t bytes_of(const loong_port_t *port)
{
    return (size_t)loongi_shape_elements(&port->shape) *
           loong_dtype_size(port->dtype);
}

/* Who is at the other end there: the pipeline's rank `peer`. */
static loong_comm_t *comm_of(const loong_transfer_t *t, bool send,
                             int direction, int *peer)
{
    bool behind = send == (direction == 0);
    if (t->links == NULL) {
        return t->comm;
    }
    loong_comm_t *link =
        loongi_links_get(t->links, behind ? t->stage : t->stage - 1,
                         direction);
    *peer = loong_comm_size(link) - 1 - loong_comm_rank(link);
    return link;
}

/* A message of each tensor in each slot. A receive begins long before it is
 * needed: waiting on the host for room would be waiting for what stands later
 * in the list. */
static loong_transfer_room_t room_of(const loong_transfer_t *t, bool send,
                                     int direction)
{
    const tensors_t *tensors = send ? &t->out[direction] : &t->in[direction];
    loong_transfer_room_t room = {(int)t->num_slots * tensors->count, 0};
    for (int i = 0; i < tensors->count; i++) {
        room.bytes = LOONG_MAX(room.bytes, bytes_of(tensors->port[i]));
    }
    return room;
}

loong_status_t loongi_transfer_room(const loong_model_chunk_t *chunk,
                                    int64_t num_slots, bool send, int direction,
                                    loong_transfer_room_t *room_p)
{
    loong_transfer_t t;
    memset(&t, 0, sizeof(t));
    t.ctx = chunk->ctx;
    t.num_slots = num_slots;
    LOONG_TRY(collect_all(&t, chunk));
    *room_p = room_of(&t, send, direction);
    return LOONG_OK;
}

static loong_status_t reserve(const loong_transfer_t *t, bool send,
                              int direction)
{
    int peer = 0;
    loong_transfer_room_t room = room_of(t, send, direction);
    return room.messages > 0 && t->links != NULL
               ? loongi_comm_reserve(comm_of(t, send, direction, &peer),
                                     room.messages, room.bytes)
               : LOONG_OK;
}

static loong_status_t reserve_all(const loong_transfer_t *t)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        LOONG_TRY(reserve(t, true, d));
        LOONG_TRY(reserve(t, false, d));
    }
    return LOONG_OK;
}

loong_status_t loongi_transfer_create(const loong_transfer_params_t *params,
                                      loong_transfer_t **transfer_p)
{
    const loong_model_chunk_t *c = params->chunk;
    loong_transfer_t *t = NULL;
    LOONG_TRY(loongi_alloc(c->ctx, sizeof(*t), "transfers", &t));
    t->ctx = c->ctx;
    t->comm = params->comm;
    t->links = params->links;
    t->stage = params->stage;
    t->stages_before = params->stages_before;
    t->num_slots = params->num_slots;
    loong_status_t status = prepare(t, c);
    if (status == LOONG_OK) {
        status = reserve_all(t);
    }
    if (status != LOONG_OK) {
        loongi_transfer_destroy(&t);
        return status;
    }
    *transfer_p = t;
    return LOONG_OK;
}

void loongi_transfer_destroy(loong_transfer_t **transfer_p)
{
    loong_transfer_t *t = *transfer_p;
    if (t != NULL) {
        loongi_free(t->ctx, t->slots);
        loongi_free(t->ctx, t);
        *transfer_p = NULL;
    }
}

/* ---- waiting ------------------------------------------------------------ */

static loong_status_t wait_for(loong_transfer_t *t, bool received,
                               const tensors_t *tensors, messages_t *m)
{
    loong_transfer_stats_t *stats = &t->stats[received];
    double begin = loongi_now();
    if (m->begun == 0) {
        return LOONG_OK;
    }
    for (int i = 0; i < tensors->count; i++) {
        LOONG_TRY(loong_comm_wait(m->comm, &m->request[i]));
        stats->bytes += (double)m->request[i].bytes;
    }
    if (t->timed != NULL) {
        LOONG_TRY(loong_device_synchronize(t->timed, "a timed message"));
    }
    double end = loongi_now();
    stats->count += tensors->count;
    stats->seconds += end - m->begin;
    stats->blocked += end - begin;
    m->begun = 0;
    return LOONG_OK;
}

loong_transfer_stats_t loongi_transfer_stats(const loong_transfer_t *transfer,
                                             bool received)
{
    return transfer->stats[received];
}

static loong_status_t wait_sent(loong_transfer_t *t, slot_t *slot)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        LOONG_TRY(wait_for(t, false, &t->out[d], &slot->sent[d]));
    }
    return LOONG_OK;
}

/* The slot of an entry, free for its micro-batch. */
static loong_status_t take(loong_transfer_t *t, const loong_entry_t *entry,
                           slot_t **slot_p)
{
    slot_t *slot = &t->slots[entry->slot];
    if (slot->micro_batch != entry->micro_batch) {
        LOONG_TRY(wait_sent(t, slot));
        slot->micro_batch = entry->micro_batch;
    }
    *slot_p = slot;
    return LOONG_OK;
}

loong_status_t loongi_transfer_need(loong_transfer_t *transfer,
                                    const loong_entry_t *entry)
{
    slot_t *slot = NULL;
    int direction = entry->kind == LOONG_ENTRY_B;
    if (entry->slot < 0) {
        return LOONG_OK;
    }
    LOONG_TRY(take(transfer, entry, &slot));
    return wait_for(transfer, true, &transfer->in[direction],
                    &slot->received[direction]);
}

loong_status_t loongi_transfer_finish(loong_transfer_t *transfer)
{
    for (int64_t s = 0; s < transfer->num_slots; s++) {
        LOONG_TRY(wait_sent(transfer, &transfer->slots[s]));
        transfer->slots[s].micro_batch = -1;
    }
    return LOONG_OK;
}

static bool cancel(messages_t *m)
{
    bool done = true;
    for (int i = 0; i < m->begun; i++) {
        done = loong_comm_cancel(m->comm, &m->request[i]) && done;
    }
    m->begun = done ? 0 : m->begun;
    return done;
}

bool loongi_transfer_cancel(loong_transfer_t *transfer)
{
    loong_transfer_t *t = transfer;
    bool done = true;
    for (int64_t s = 0; t != NULL && s < t->num_slots; s++) {
        for (int d = 0; d < DIRECTIONS; d++) {
            done = cancel(&t->slots[s].sent[d]) && done;
            done = cancel(&t->slots[s].received[d]) && done;
        }
    }
    if (!done) {
        t->slots = NULL; /* they stay: their requests are under way */
        t->num_slots = 0;
    }
    return done;
}

/* ---- beginning ---------------------------------------------------------- */

/* Tags belong to the stage that sends. */
static int first_tag(const loong_transfer_t *t, bool send, int direction)
{
    int sender = send ? t->stage : t->stage + (direction == 0 ? -1 : 1);
    return (t->stages_before + sender) * TAGS_OF_STAGE +
           direction * MAX_TENSORS;
}

static loong_status_t begin_one(messages_t *m, int index, bool send,
                                const loong_port_t *port, char *data)
{
    loong_comm_request_t *r = &m->request[index];
    size_t bytes = bytes_of(port);
    int tag = m->first_tag + index;
    return send ? loong_comm_isend(m->comm, data, bytes, m->peer, tag, r)
                : loong_comm_irecv(m->comm, data, bytes, m->peer, tag, r);
}

loong_status_t loongi_transfer_begin(loong_transfer_t *transfer,
                                     const loong_binding_t *run,
                                     const loong_entry_t *entry)
{
    loong_transfer_t *t = transfer;
    slot_t *slot = NULL;
    bool send = entry->kind == LOONG_ENTRY_SEND_FORWARD ||
                entry->kind == LOONG_ENTRY_SEND_BACKWARD;
    int direction = entry->kind == LOONG_ENTRY_SEND_BACKWARD ||
                    entry->kind == LOONG_ENTRY_RECV_BACKWARD;
    LOONG_TRY(take(t, entry, &slot));
    const tensors_t *tensors =
        send ? &t->out[direction] : &t->in[direction];
    messages_t *m = send ? &slot->sent[direction] : &slot->received[direction];
    m->begin = loongi_now();
    m->peer = entry->peer;
    m->comm = comm_of(t, send, direction, &m->peer);
    m->first_tag = first_tag(t, send, direction);
    t->timed = run->hook != NULL ? run->device : NULL;
    loong_comm_set_stream(m->comm, run->stream);
    for (int i = 0; i < tensors->count; i++) {
        const loong_port_t *port = tensors->port[i];
        LOONG_TRY(begin_one(m, i, send, port,
                            run->base[port->operand.base] +
                                port->operand.offset));
        m->begun++;
    }
    if (m->begun > 0) {
        loongi_lane_wake(run->lane);
    }
    return LOONG_OK;
}
