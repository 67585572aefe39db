/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives made of messages. Called by mpi_comm.c and threads_comm.c. Read
 * inside/message.h before. */
#include <stdio.h>
#include <string.h>

#include "message_impl.h"
#include "pages.h"
#include "piece.h"
#include "reduce.h"

/* Receive buffers of a reduction, all peers together, and of one peer. */
static const int64_t STAGING_BYTES = 16 << 20;
static const int64_t SLICE_MIN = 4 << 10;
static const int64_t SLICE_MAX = 1 << 20;
/* A message that needs no buffer. */
static const int64_t COPY_SLICE = 16 << 20;
/* What goes through the tree, and how many children a rank has there. */
enum { TREE_BYTES = 4 << 10, TREE_CHILDREN = 31 };
enum { SEQUENCES = 4096, KINDS = 8, PROBE_TURNS = 1024 };
_Static_assert((int)LOONG_COLLECTIVE_SEND < (int)KINDS, "a kind fits a tag");

static size_t staging_bytes(const loong_message_t *message)
{
    return (size_t)(message->slice * message->params.size);
}

loong_status_t loongi_message_create(loong_context_t *ctx,
                                     const loong_message_params_t *params,
                                     loong_message_t **message_p)
{
    loong_message_t *message = NULL;
    size_t size = (size_t)params->size;
    size_t requests = 2 * size * sizeof(loong_comm_request_t);
    void *staging = NULL;
    LOONG_TRY(loongi_alloc(ctx,
                           sizeof(*message) + requests + size * sizeof(void *),
                           "message collectives", &message));
    message->params = *params;
    message->requests = (loong_comm_request_t *)(message + 1);
    message->sources = (const void **)(message->requests + 2 * size);
    int64_t share = STAGING_BYTES / params->size / 64 * 64;
    message->slice = LOONG_MAX(LOONG_MIN(share, SLICE_MAX), SLICE_MIN);
    loong_status_t status = loongi_pages_alloc(
        ctx, staging_bytes(message), "staging of collectives", &staging);
    if (status != LOONG_OK) {
        loongi_free(ctx, message);
        return status;
    }
    message->staging = staging;
    *message_p = message;
    return LOONG_OK;
}

void loongi_message_destroy(loong_context_t *ctx, loong_message_t **message_p)
{
    if (*message_p != NULL) {
        loongi_roll_linger(*message_p);
        loongi_message_cancel(*message_p);
        loongi_pages_free((*message_p)->staging, staging_bytes(*message_p));
        loongi_free(ctx, *message_p);
        *message_p = NULL;
    }
}

/* ---- Starting and finishing a set of messages ---------------------------- */

static int tag_of(const loong_collective_t *call)
{
    return (int)(call->sequence % SEQUENCES) * KINDS + (int)call->kind;
}

loong_status_t loongi_message_post(loong_message_t *message,
                                   loong_collective_kind_t kind, int tag,
                                   void *data, size_t bytes, int peer)
{
    loong_comm_request_t *request = &message->requests[message->active];
    memset(request, 0, sizeof(*request));
    request->kind = (int)kind;
    request->peer = peer;
    request->tag = tag;
    request->data = data;
    request->bytes = bytes;
    LOONG_TRY(message->params.post(message->params.owner, request));
    message->active++;
    return LOONG_OK;
}

static loong_status_t start_send(loong_message_t *message,
                                 const loong_collective_t *call,
                                 const void *data, size_t bytes, int peer)
{
    /* Not written to: the request serves both directions. */
    void *from = (void *)(uintptr_t)data;
    message->stats->messages++;
    message->stats->message_bytes += bytes;
    return loongi_message_post(message, LOONG_COLLECTIVE_SEND, tag_of(call),
                               from, bytes, peer);
}

static loong_status_t start_receive(loong_message_t *message,
                                    const loong_collective_t *call, void *data,
                                    size_t bytes, int peer)
{
    return loongi_message_post(message, LOONG_COLLECTIVE_RECV, tag_of(call),
                               data, bytes, peer);
}

static loong_status_t other_call(loong_comm_t *comm, int peer, int tag)
{
    char mine[LOONG_BOARD_TEXT];
    char theirs[2 * LOONG_BOARD_TEXT];
    loongi_call_text(comm, comm->current, mine, sizeof(mine));
    loongi_board_describe(comm->board, comm->world_ranks[peer], loongi_now(),
                          theirs, sizeof(theirs));
    return LOONG_FAIL(
        comm->ctx, LOONG_ERR_COMM,
        "ranks of %s do not call the same: rank %d calls %s, "
        "rank %d calls %s (call number %d modulo %d): %s",
        comm->name, comm->rank, mine, peer,
        loong_collective_name((loong_collective_kind_t)(tag % KINDS)),
        tag / KINDS, SEQUENCES, theirs);
}

/* Now and then while waiting: the peer calls something else, or somebody calls
 * the roll. */
static loong_status_t look_around(loong_message_t *message, loong_comm_t *comm,
                                  loong_wait_t *wait,
                                  loong_comm_request_t *request)
{
    const loong_message_params_t *params = &message->params;
    size_t other = 0;
    int tag = LOONG_ROLL_TAG;
    int peer = -1;
    if (params->probe(params->owner, &peer, &tag)) {
        return loongi_roll_call(message, comm, wait, request->peer);
    }
    tag = -1;
    peer = request->peer;
    if (params->probe(params->owner, &peer, &tag) && tag != request->tag &&
        tag != LOONG_ROLL_TAG &&
        /* The peer may have come and gone on since the last test. */
        params->test(params->owner, request, &other) == LOONG_MESSAGE_PENDING) {
        return other_call(comm, request->peer, tag);
    }
    return LOONG_OK;
}

static loong_status_t finish_one(loong_message_t *message, loong_comm_t *comm,
                                 loong_wait_t *wait,
                                 loong_comm_request_t *request)
{
    const loong_message_params_t *params = &message->params;
    size_t other = 0;
    loong_message_state_t state;
    while ((state = params->test(params->owner, request, &other)) ==
           LOONG_MESSAGE_PENDING) {
        if (wait->turns % PROBE_TURNS == PROBE_TURNS - 1) {
            LOONG_TRY(look_around(message, comm, wait, request));
        }
        if (!loongi_wait_step(wait, request->peer)) {
            return loongi_roll_call(message, comm, wait, request->peer);
        }
    }
    if (state == LOONG_MESSAGE_OTHER_SIZE) {
        char call[LOONG_BOARD_TEXT];
        loongi_call_text(comm, comm->current, call, sizeof(call));
        return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                          "%s: rank %d expects %zu bytes of rank %d, which "
                          "sends %zu",
                          call, comm->rank, request->bytes, request->peer,
                          other);
    }
    return LOONG_OK;
}

static loong_status_t finish(loong_message_t *message, loong_comm_t *comm)
{
    loong_wait_t wait = loongi_wait_begin(comm);
    for (int i = 0; i < message->active; i++) {
        loong_status_t status =
            finish_one(message, comm, &wait, &message->requests[i]);
        if (status != LOONG_OK) {
            return status;
        }
    }
    message->active = 0;
    loongi_wait_end(&wait);
    return LOONG_OK;
}

/* ---- The collectives ------------------------------------------------------
 */

/* The rank that stands at a place of the tree whose top is the root. */
static int at_place(const loong_comm_t *comm, int root, int place)
{
    return (place + root) % comm->size;
}

static int place_of(const loong_comm_t *comm, int root)
{
    return (comm->rank - root + comm->size) % comm->size;
}

/* From the leaves to the root; data becomes the reduction of what is below,
 * in rank order. */
static loong_status_t climb(loong_message_t *message, loong_comm_t *comm,
                            const loong_collective_t *call, size_t bytes)
{
    const void *sources[TREE_CHILDREN + 1] = {call->data};
    void *target = call->data;
    int children = 0;
    int place = place_of(comm, call->root);
    int bit = 1;
    for (; bit < comm->size && (place & bit) == 0; bit <<= 1) {
        if (place + bit < comm->size) {
            void *staged = message->staging + (size_t)children * TREE_BYTES;
            sources[++children] = staged;
            LOONG_TRY(start_receive(message, call, staged, bytes,
                                    at_place(comm, call->root, place + bit)));
        }
    }
    LOONG_TRY(finish(message, comm));
    loong_reduction_t reduction = {call->dtype,  call->reduce, sources,
                                   children + 1, &target,      1,
                                   call->count};
    if (children > 0 && bytes > 0) {
        loongi_reduce(&reduction);
    }
    if (place > 0) {
        LOONG_TRY(start_send(message, call, call->data, bytes,
                             at_place(comm, call->root, place - bit)));
    }
    return finish(message, comm);
}

/* The root's data to everybody. */
static loong_status_t descend(loong_message_t *message, loong_comm_t *comm,
                              const loong_collective_t *call, size_t bytes)
{
    int place = place_of(comm, call->root);
    int bit = 1;
    while (bit < comm->size && (place & bit) == 0) {
        bit <<= 1;
    }
    if (place > 0) {
        LOONG_TRY(start_receive(message, call, call->data, bytes,
                                at_place(comm, call->root, place - bit)));
        LOONG_TRY(finish(message, comm));
    }
    for (bit >>= 1; bit > 0; bit >>= 1) {
        if (place + bit < comm->size) {
            LOONG_TRY(start_send(message, call, call->data, bytes,
                                 at_place(comm, call->root, place + bit)));
        }
    }
    return finish(message, comm);
}

static int64_t longest_piece(const loong_comm_t *comm,
                             const loong_collective_t *call)
{
    int64_t longest = 0;
    for (int p = 0; p < comm->size; p++) {
        longest = LOONG_MAX(longest, loongi_piece(call, comm->size, p).count);
    }
    return longest;
}

/* One slice of every piece goes to its owner, and is reduced there. */
static loong_status_t reduce_round(loong_message_t *message, loong_comm_t *comm,
                                   const loong_collective_t *call,
                                   int64_t round)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = message->slice / (int64_t)size;
    loong_piece_t mine =
        loongi_slice(loongi_piece(call, comm->size, comm->rank), slice, round);
    void *result = (char *)call->data + (size_t)mine.begin * size;
    for (int i = 1; i < comm->size; i++) {
        int to = (comm->rank + i) % comm->size;
        int from = (comm->rank - i + comm->size) % comm->size;
        loong_piece_t theirs =
            loongi_slice(loongi_piece(call, comm->size, to), slice, round);
        void *staged = message->staging + (size_t)from * (size_t)message->slice;
        message->sources[from] = staged;
        if (mine.count > 0) {
            LOONG_TRY(start_receive(message, call, staged,
                                    (size_t)mine.count * size, from));
        }
        if (theirs.count > 0) {
            LOONG_TRY(start_send(
                message, call, (char *)call->data + (size_t)theirs.begin * size,
                (size_t)theirs.count * size, to));
        }
    }
    message->sources[comm->rank] = result;
    LOONG_TRY(finish(message, comm));
    loong_reduction_t reduction = {call->dtype, call->reduce, message->sources,
                                   comm->size,  &result,      1,
                                   mine.count};
    if (mine.count > 0) {
        loongi_reduce(&reduction);
    }
    return LOONG_OK;
}

static loong_status_t reduce_pieces(loong_message_t *message,
                                    loong_comm_t *comm,
                                    const loong_collective_t *call)
{
    int64_t slice = message->slice / (int64_t)loong_dtype_size(call->dtype);
    int64_t rounds = loongi_rounds(longest_piece(comm, call), slice);
    for (int64_t round = 0; round < rounds; round++) {
        LOONG_TRY(reduce_round(message, comm, call, round));
    }
    return LOONG_OK;
}

/* Pieces from their owners to everybody, or from the root to their owners. */
static loong_status_t gather_pieces(loong_message_t *message,
                                    loong_comm_t *comm,
                                    const loong_collective_t *call,
                                    bool scatter)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = COPY_SLICE / (int64_t)size;
    int64_t rounds = loongi_rounds(longest_piece(comm, call), slice);
    for (int64_t round = 0; round < rounds; round++) {
        for (int i = 1; i < comm->size; i++) {
            int p = (comm->rank + i) % comm->size;
            int owner = scatter ? comm->rank : p;
            loong_piece_t in = loongi_slice(
                loongi_piece(call, comm->size, owner), slice, round);
            loong_piece_t out = loongi_slice(
                loongi_piece(call, comm->size, scatter ? p : comm->rank), slice,
                round);
            bool receives = !scatter || p == call->root;
            bool sends = !scatter || comm->rank == call->root;
            char *data = call->data;
            if (receives && in.count > 0) {
                LOONG_TRY(start_receive(message, call,
                                        data + (size_t)in.begin * size,
                                        (size_t)in.count * size, p));
            }
            if (sends && out.count > 0) {
                LOONG_TRY(start_send(message, call,
                                     data + (size_t)out.begin * size,
                                     (size_t)out.count * size, p));
            }
        }
        LOONG_TRY(finish(message, comm));
    }
    return LOONG_OK;
}

static loong_status_t exchange(loong_message_t *message, loong_comm_t *comm,
                               const loong_collective_t *call)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = COPY_SLICE / (int64_t)size;
    int64_t longest = 0;
    char *receive = call->data;
    const char *send = call->send;
    int me = comm->rank;
    for (int p = 0; p < comm->size; p++) {
        longest = LOONG_MAX(
            longest, LOONG_MAX(call->counts[p], call->receive_counts[p]));
    }
    if (call->counts[me] > 0) {
        size_t to = (size_t)loongi_piece_begin(call->receive_counts, me);
        size_t from = (size_t)loongi_piece_begin(call->counts, me);
        memcpy(receive + to * size, send + from * size,
               (size_t)call->counts[me] * size);
    }
    for (int64_t round = 0; round < loongi_rounds(longest, slice); round++) {
        for (int i = 1; i < comm->size; i++) {
            int p = (me + i) % comm->size;
            loong_piece_t in = {loongi_piece_begin(call->receive_counts, p),
                                call->receive_counts[p]};
            loong_piece_t out = {loongi_piece_begin(call->counts, p),
                                 call->counts[p]};
            in = loongi_slice(in, slice, round);
            out = loongi_slice(out, slice, round);
            if (in.count > 0) {
                LOONG_TRY(start_receive(message, call,
                                        receive + (size_t)in.begin * size,
                                        (size_t)in.count * size, p));
            }
            if (out.count > 0) {
                LOONG_TRY(start_send(message, call,
                                     send + (size_t)out.begin * size,
                                     (size_t)out.count * size, p));
            }
        }
        LOONG_TRY(finish(message, comm));
    }
    return LOONG_OK;
}

static loong_status_t gather(loong_message_t *message, loong_comm_t *comm,
                             const loong_collective_t *call)
{
    loong_piece_t all = {0, call->count};
    char *data = call->data;
    bool root = comm->rank == call->root;
    if (root && call->count > 0) {
        memcpy(data + (int64_t)comm->rank * call->count, call->send,
               (size_t)call->count);
    }
    for (int64_t round = 0; round < loongi_rounds(call->count, COPY_SLICE);
         round++) {
        loong_piece_t part = loongi_slice(all, COPY_SLICE, round);
        size_t bytes = (size_t)part.count;
        for (int p = 0; p < comm->size && root; p++) {
            if (p != comm->rank) {
                LOONG_TRY(start_receive(message, call,
                                        data + p * call->count + part.begin,
                                        bytes, p));
            }
        }
        if (!root) {
            LOONG_TRY(start_send(message, call,
                                 (const char *)call->send + part.begin, bytes,
                                 call->root));
        }
        LOONG_TRY(finish(message, comm));
    }
    return LOONG_OK;
}

static bool is_short(const loong_collective_t *call)
{
    return (size_t)call->count * loong_dtype_size(call->dtype) <= TREE_BYTES;
}

static loong_status_t run(loong_message_t *message, loong_comm_t *comm,
                          const loong_collective_t *call)
{
    size_t bytes = (size_t)call->count * loong_dtype_size(call->dtype);
    switch (call->kind) {
    case LOONG_COLLECTIVE_BARRIER:
        LOONG_TRY(climb(message, comm, call, 0));
        return descend(message, comm, call, 0);
    case LOONG_COLLECTIVE_ALL_REDUCE:
        if (is_short(call) && !loongi_needs_order(call)) {
            LOONG_TRY(climb(message, comm, call, bytes));
            return descend(message, comm, call, bytes);
        }
        LOONG_TRY(reduce_pieces(message, comm, call));
        return gather_pieces(message, comm, call, false);
    case LOONG_COLLECTIVE_REDUCE_SCATTER:
        return reduce_pieces(message, comm, call);
    case LOONG_COLLECTIVE_ALL_GATHER:
        return gather_pieces(message, comm, call, false);
    case LOONG_COLLECTIVE_ALL_TO_ALL:
        return exchange(message, comm, call);
    case LOONG_COLLECTIVE_BROADCAST:
        if (is_short(call)) {
            return descend(message, comm, call, bytes);
        }
        LOONG_TRY(gather_pieces(message, comm, call, true));
        return gather_pieces(message, comm, call, false);
    default:
        return gather(message, comm, call);
    }
}

loong_status_t loongi_message_run(loong_message_t *message, loong_comm_t *comm,
                                  const loong_collective_t *call)
{
    message->stats = &comm->stats;
    loong_status_t status = run(message, comm, call);
    if (status != LOONG_OK) {
        loongi_message_abort(message, loong_context_error(comm->ctx));
    }
    return status;
}
