/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives piece by piece. The pieces of a call are a matter of its
 * arguments alone, so all ranks make the same calls of the host's
 * communicator; sums are its own, in the order of ranks for every element.
 * Called by staged_comm.c. Read staged_impl.h before. */
#include "staged_impl.h"

/* A call on its way. */
typedef struct job {
    staged_t *s;
    const loong_collective_t *call;
    void *stream;
    int size;
    size_t element; /* bytes */
    int64_t most;   /* elements of a block in a piece */
    int64_t pieces;
} job_t;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements of a block of `count` that are in piece k. */
static int64_t part_of(const job_t *j, int64_t count, int64_t k)
{
    int64_t rest = count - k * j->most;
    return rest > 0 ? least(rest, j->most) : 0;
}

static loong_status_t copy(const job_t *j, void *dst, const void *src,
                           int64_t elements)
{
    return elements > 0
               ? loong_device_stream_copy(j->s->root->device, j->stream, dst,
                                          src, (size_t)elements * j->element)
               : LOONG_OK;
}

/* Blocks [first, end) of the call's, between its data and a place, where they
 * are the piece's, one behind the other. */
typedef struct blocks {
    char *data;
    const int64_t *counts; /* NULL: one block of `count` */
    int64_t count;
    int first, end;
    char *place;
} blocks_t;

static loong_status_t move(const job_t *j, const blocks_t *b, int64_t k,
                           bool out)
{
    char *data = b->data;
    char *place = b->place;
    for (int r = 0; r < b->end; r++) {
        int64_t count = b->counts != NULL ? b->counts[r] : b->count;
        int64_t part = part_of(j, count, k);
        char *at = data + (size_t)(k * j->most) * j->element;
        if (r >= b->first) {
            LOONG_TRY(copy(j, out ? place : at, out ? at : place, part));
        }
        data += (size_t)count * j->element;
        place += (size_t)part * j->element;
    }
    return LOONG_OK;
}

/* What this rank gives to a call, and what it gets. */
static bool blocks_of(const job_t *j, char *place, bool out, blocks_t *b)
{
    const loong_collective_t *c = j->call;
    int rank = j->s->comm->rank;
    blocks_t all = {c->data, c->counts, c->count, 0, j->size, place};
    *b = all;
    switch (c->kind) {
    case LOONG_COLLECTIVE_BROADCAST:
        b->end = 1;
        return out == (rank == c->root);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        b->end = 1;
        return true;
    case LOONG_COLLECTIVE_REDUCE_SCATTER:
    case LOONG_COLLECTIVE_ALL_GATHER:
        if (out == (c->kind == LOONG_COLLECTIVE_ALL_GATHER)) {
            b->first = rank;
            b->end = rank + 1;
        }
        return true;
    default: /* all to all: what is received has the other half */
        b->data = out ? (char *)(uintptr_t)c->send : c->data;
        b->counts = out ? c->counts : c->receive_counts;
        b->place = place + (out ? 0 : j->s->root->piece / 2);
        return true;
    }
}

/* Piece k to its place, behind what used that last. */
static loong_status_t begin_piece(const job_t *j, int64_t k)
{
    loong_device_t *device = j->s->root->device;
    staged_ring_t *ring = &j->s->root->ring;
    int64_t i = k % STAGED_PLACES;
    blocks_t b;
    LOONG_TRY(loong_device_event_wait(device, ring->in[i], j->stream));
    if (blocks_of(j, ring->place[i], true, &b)) {
        LOONG_TRY(move(j, &b, k, true));
    }
    return loong_device_event_record(device, ring->out[i], j->stream);
}

static loong_status_t end_piece(const job_t *j, int64_t k)
{
    staged_ring_t *ring = &j->s->root->ring;
    int64_t i = k % STAGED_PLACES;
    blocks_t b;
    if (blocks_of(j, ring->place[i], false, &b)) {
        LOONG_TRY(move(j, &b, k, false));
    }
    return loong_device_event_record(j->s->root->device, ring->in[i],
                                     j->stream);
}

static void set_counts(const job_t *j, const int64_t *of, int64_t k,
                       int64_t *counts)
{
    for (int r = 0; r < j->size; r++) {
        counts[r] = part_of(j, of[r], k);
    }
}

static loong_status_t call_host(const job_t *j, int64_t k)
{
    const loong_collective_t *c = j->call;
    staged_t *s = j->s;
    loong_comm_t *host = loong_comm_at(s->host, c->file, c->line);
    char *at = s->root->ring.place[k % STAGED_PLACES];
    int64_t *counts = s->counts;
    if (c->counts != NULL) {
        set_counts(j, c->counts, k, counts);
    }
    switch (c->kind) {
    case LOONG_COLLECTIVE_BROADCAST:
        return (loong_comm_broadcast)(host, at,
                                      (size_t)part_of(j, c->count, k), c->root,
                                      c->label);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        return (loong_comm_all_reduce)(host, at, part_of(j, c->count, k),
                                       c->dtype, c->reduce, c->label);
    case LOONG_COLLECTIVE_REDUCE_SCATTER:
        return (loong_comm_reduce_scatter)(host, at, counts, c->dtype,
                                           c->reduce, c->label);
    case LOONG_COLLECTIVE_ALL_GATHER:
        return (loong_comm_all_gather)(host, at, counts, c->dtype, c->label);
    default:
        break;
    }
    set_counts(j, c->receive_counts, k, counts + j->size);
    const loong_all_to_all_t blocks = {at, counts, at + s->root->piece / 2,
                                       counts + j->size};
    return (loong_comm_all_to_all)(host, &blocks, c->dtype, c->label);
}

/* On the host. */
static loong_status_t exchange_piece(const job_t *j, int64_t k)
{
    double begin = loongi_now();
    loong_status_t status = call_host(j, k);
    loongi_staged_waited(j->s, begin);
    return status;
}

/* Copies of the next piece are on the stream while this one is exchanged. */
static loong_status_t run_pieces(const job_t *j)
{
    for (int64_t k = 0; k < j->pieces; k++) {
        void *out = j->s->root->ring.out[k % STAGED_PLACES];
        if (k == 0) {
            LOONG_TRY(begin_piece(j, 0));
        }
        if (k + 1 < j->pieces) {
            LOONG_TRY(begin_piece(j, k + 1));
        }
        LOONG_TRY(loongi_staged_await(j->s, out, j->call->label));
        LOONG_TRY(exchange_piece(j, k));
        LOONG_TRY(end_piece(j, k));
    }
    return LOONG_OK;
}

/* The largest block decides how many pieces there are; of an all-to-all no
 * rank knows it alone. */
static loong_status_t count_pieces(job_t *j)
{
    const loong_collective_t *c = j->call;
    bool exchanges = c->kind == LOONG_COLLECTIVE_ALL_TO_ALL;
    int64_t most = c->counts == NULL ? c->count : 0;
    for (int r = 0; r < j->size && c->counts != NULL; r++) {
        most = c->counts[r] > most ? c->counts[r] : most;
    }
    size_t blocks = c->counts == NULL ? 1 : (size_t)j->size;
    blocks = exchanges ? 2 * blocks : blocks;
    j->most = (int64_t)(j->s->root->piece / blocks / j->element);
    LOONG_CHECK(j->s->root->ctx, j->most > 0, LOONG_ERR_UNSUPPORTED,
                "%s of %s: more than %zu ranks", loong_collective_name(c->kind),
                j->s->comm->name, j->s->root->piece / 2 / j->element);
    if (exchanges) {
        double begin = loongi_now();
        LOONG_TRY((loong_comm_all_reduce)(
            loong_comm_at(j->s->host, c->file, c->line), &most, 1, LOONG_I64,
            LOONG_REDUCE_MAX, c->label));
        loongi_staged_waited(j->s, begin);
    }
    j->pieces = (most + j->most - 1) / j->most;
    return LOONG_OK;
}

loong_status_t loongi_staged_barrier(staged_t *s,
                                     const loong_collective_t *call)
{
    double begin = loongi_now();
    loong_status_t status = (loong_comm_barrier)(
        loong_comm_at(s->host, call->file, call->line), call->label);
    loongi_staged_waited(s, begin);
    return status;
}

loong_status_t loongi_staged_run(staged_t *s, const loong_collective_t *call)
{
    job_t j = {.s = s,
               .call = call,
               .stream = loongi_staged_stream(s),
               .size = s->comm->size,
               .element = loong_dtype_size(call->dtype)};
    LOONG_TRY(count_pieces(&j));
    if (j.pieces == 0) { /* the others may wait, and see what was called */
        return loongi_staged_barrier(s, call);
    }
    return run_pieces(&j);
}
