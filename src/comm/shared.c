/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives over common memory. One counter per rank, `phase`, carries all
 * synchronisation: every rank makes the same sequence of syncs. A call posts
 * its description and syncs; descriptions alternate between two places, so a
 * fast rank in the next call does not overwrite what a slow one still reads.
 * Called by mpi_comm.c and threads_comm.c. Read inside/shared.h before. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "reduce.h"
#include "shared_impl.h"

enum { LINE = 128 }; /* two cache lines: the prefetcher pulls pairs */
enum { FAIL_NONE, FAIL_WRITING, FAIL_READY };

/* What a rank calls, as the others see it. */
typedef struct post {
    int kind;
    int dtype;
    int reduce;
    int root;
    int64_t count;
    uint64_t sequence;
    loong_location_t source; /* the buffer that peers read */
    char label[LOONG_EVENT_LABEL];
    char where[LOONG_SOURCE_TEXT]; /* the line of the call */
} post_t;

typedef struct seat {
    _Alignas(LINE) _Atomic uint64_t phase;
    _Alignas(LINE) post_t post[2];
} seat_t;

typedef struct control {
    _Alignas(LINE) _Atomic int failed;
    char failure[LOONG_BOARD_TEXT];
    seat_t seat[];
} control_t;

static size_t counts_at(int size)
{
    return sizeof(control_t) + (size_t)size * sizeof(seat_t);
}

static size_t staging_at(int size)
{
    size_t end =
        counts_at(size) + 2 * (size_t)size * (size_t)size * sizeof(int64_t);
    return (size_t)loongi_round_up((int64_t)end, 4096);
}

size_t loongi_shared_bytes(int size, size_t staging)
{
    return staging_at(size) + (size_t)size * staging;
}

loong_status_t loongi_shared_create(loong_context_t *ctx,
                                    const loong_shared_params_t *params,
                                    loong_shared_t **shared_p)
{
    loong_shared_t *shared = NULL;
    size_t size = (size_t)params->size;
    size_t arrays = size * (2 * sizeof(void *) + sizeof(loong_piece_t));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*shared) + arrays,
                           "shared-memory collectives", &shared));
    unsigned char *memory = params->memory;
    shared->params = *params;
    shared->control = params->memory;
    shared->counts = (int64_t *)(void *)(memory + counts_at(params->size));
    shared->staging = memory + staging_at(params->size);
    shared->sources = (const void **)(shared + 1);
    shared->targets = (void **)(shared->sources + size);
    shared->pieces = (loong_piece_t *)(void *)(shared->targets + size);
    *shared_p = shared;
    return LOONG_OK;
}

void loongi_shared_destroy(loong_context_t *ctx, loong_shared_t **shared_p)
{
    loongi_free(ctx, *shared_p);
    *shared_p = NULL;
}

void loongi_shared_abort(loong_shared_t *shared, const char *text)
{
    control_t *control = shared->control;
    int none = FAIL_NONE;
    if (atomic_compare_exchange_strong(&control->failed, &none, FAIL_WRITING)) {
        int n = snprintf(control->failure, sizeof(control->failure),
                         "rank %d: ", shared->params.rank);
        loongi_board_text(control->failure + n,
                          sizeof(control->failure) - (size_t)n, text);
        atomic_store(&control->failed, FAIL_READY);
    }
}

static uint64_t phase_of(loong_shared_t *shared, int rank)
{
    return atomic_load_explicit(&shared->control->seat[rank].phase,
                                memory_order_acquire);
}

static bool has_failed(loong_shared_t *shared)
{
    return atomic_load(&shared->control->failed) == FAIL_READY;
}

static loong_status_t sync_failed(loong_shared_t *shared, loong_comm_t *comm,
                                  loong_wait_t *wait)
{
    if (has_failed(shared)) {
        char call[LOONG_BOARD_TEXT];
        loongi_wait_end(wait);
        loongi_call_text(comm, comm->current, call, sizeof(call));
        return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM, "%s: given up by %s", call,
                          shared->control->failure);
    }
    for (int p = 0; p < comm->size; p++) {
        comm->missing[p] = phase_of(shared, p) < shared->phase;
    }
    loong_status_t status = loongi_wait_failed(wait);
    loongi_shared_abort(shared, loong_context_error(comm->ctx));
    return status;
}

loong_status_t loongi_shared_sync(loong_shared_t *shared, loong_comm_t *comm)
{
    int me = shared->params.rank;
    shared->phase++;
    atomic_store_explicit(&shared->control->seat[me].phase, shared->phase,
                          memory_order_release);
    loong_wait_t wait = loongi_wait_begin(comm);
    for (int p = 0; p < comm->size; p++) {
        while (phase_of(shared, p) < shared->phase) {
            if (has_failed(shared) || !loongi_wait_step(&wait, p)) {
                return sync_failed(shared, comm, &wait);
            }
        }
    }
    loongi_wait_end(&wait);
    return LOONG_OK;
}

static post_t *post_of(loong_shared_t *shared, const loong_collective_t *call,
                       int rank)
{
    return &shared->control->seat[rank].post[call->sequence % 2];
}

int64_t *loongi_shared_counts(loong_shared_t *shared,
                              const loong_collective_t *call, int rank)
{
    int64_t size = shared->params.size;
    return shared->counts + (2 * rank + (int64_t)(call->sequence % 2)) * size;
}

const void *loongi_shared_source(const loong_collective_t *call)
{
    bool sends = call->kind == LOONG_COLLECTIVE_ALL_TO_ALL ||
                 call->kind == LOONG_COLLECTIVE_GATHER;
    return sends ? call->send : call->data;
}

static void publish(loong_shared_t *shared, const loong_collective_t *call)
{
    const loong_shared_params_t *params = &shared->params;
    post_t *post = post_of(shared, call, params->rank);
    size_t bytes = (size_t)call->count * loong_dtype_size(call->dtype);
    post->kind = (int)call->kind;
    post->dtype = (int)call->dtype;
    post->reduce = (int)call->reduce;
    post->root = call->root;
    post->count = call->count;
    post->sequence = call->sequence;
    post->source =
        params->locate(params->owner, loongi_shared_source(call), bytes);
    size_t n = strnlen(call->label, sizeof(post->label) - 1);
    memcpy(post->label, call->label, n);
    post->label[n] = '\0';
    loongi_source_text(call->file, call->line, post->where);
    if (call->counts != NULL) {
        memcpy(loongi_shared_counts(shared, call, params->rank), call->counts,
               (size_t)params->size * sizeof(*call->counts));
    }
}

static void post_text(const post_t *post, char *text, size_t size)
{
    snprintf(text, size, "%s #%llu '%s' (%lld %s, %s, root %d%s%s)",
             loong_collective_name((loong_collective_kind_t)post->kind),
             (unsigned long long)post->sequence, post->label,
             (long long)post->count,
             loong_dtype_name((loong_dtype_t)post->dtype),
             loong_reduce_name((loong_reduce_t)post->reduce), post->root,
             post->where[0] != '\0' ? ", " : "", post->where);
}

static bool same_call(const post_t *a, const post_t *b)
{
    bool free_counts = a->kind == LOONG_COLLECTIVE_ALL_TO_ALL;
    return a->kind == b->kind && a->dtype == b->dtype &&
           a->reduce == b->reduce && a->root == b->root &&
           a->sequence == b->sequence &&
           (free_counts || a->count == b->count);
}

/* Of calls that are the same otherwise. */
static bool same_pieces(loong_shared_t *shared, const loong_collective_t *call,
                        int rank)
{
    int kind = post_of(shared, call, 0)->kind;
    bool pieces = kind == LOONG_COLLECTIVE_REDUCE_SCATTER ||
                  kind == LOONG_COLLECTIVE_ALL_GATHER;
    return !pieces ||
           memcmp(loongi_shared_counts(shared, call, 0),
                  loongi_shared_counts(shared, call, rank),
                  (size_t)shared->params.size * sizeof(*call->counts)) == 0;
}

static loong_status_t check_blocks(loong_shared_t *shared, loong_comm_t *comm,
                                   const loong_collective_t *call)
{
    for (int p = 0; p < comm->size; p++) {
        int64_t sent = loongi_shared_counts(shared, call, p)[comm->rank];
        if (sent != call->receive_counts[p]) {
            char name[LOONG_BOARD_TEXT];
            loongi_call_text(comm, call, name, sizeof(name));
            LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                       "%s: rank %d sends %lld elements to rank %d, which "
                       "expects %lld",
                       name, p, (long long)sent, comm->rank,
                       (long long)call->receive_counts[p]);
            loongi_shared_abort(shared, loong_context_error(comm->ctx));
            return LOONG_ERR_COMM;
        }
    }
    return LOONG_OK;
}

static loong_status_t check_posts(loong_shared_t *shared, loong_comm_t *comm,
                                  const loong_collective_t *call)
{
    const post_t *zero = post_of(shared, call, 0);
    for (int p = 1; p < comm->size; p++) {
        const post_t *post = post_of(shared, call, p);
        bool same = same_call(zero, post);
        if (!same || !same_pieces(shared, call, p)) {
            char first[LOONG_BOARD_TEXT];
            char other[LOONG_BOARD_TEXT];
            post_text(zero, first, sizeof(first));
            post_text(post, other, sizeof(other));
            return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                              "ranks of %s do not call the same: rank 0 calls "
                              "%s, rank %d calls %s%s",
                              comm->name, first, p, other,
                              same ? " with other counts per rank" : "");
        }
    }
    if (call->kind == LOONG_COLLECTIVE_ALL_TO_ALL) {
        return check_blocks(shared, comm, call);
    }
    return LOONG_OK;
}

/* ---- All buffers are readable by the peers ------------------------------ */

static void reduce_direct(loong_shared_t *shared, loong_comm_t *comm,
                          const loong_collective_t *call)
{
    size_t size = loong_dtype_size(call->dtype);
    loong_piece_t piece = loongi_piece(call, comm->size, comm->rank);
    size_t at = (size_t)piece.begin * size;
    bool all = call->kind == LOONG_COLLECTIVE_ALL_REDUCE;
    for (int p = 0; p < comm->size; p++) {
        const char *peer = shared->sources[p];
        shared->sources[p] = peer + at;
        /* The owner writes the result to everybody: no second pass. */
        shared->targets[p] = (char *)shared->targets[p] + at;
    }
    void *mine = (char *)call->data + at;
    loong_reduction_t reduction = {call->dtype,
                                   call->reduce,
                                   shared->sources,
                                   comm->size,
                                   all ? shared->targets : &mine,
                                   all ? comm->size : 1,
                                   piece.count};
    if (piece.count > 0) {
        loongi_reduce(&reduction);
    }
}

static void gather_direct(loong_shared_t *shared, loong_comm_t *comm,
                          const loong_collective_t *call)
{
    size_t size = loong_dtype_size(call->dtype);
    for (int i = 1; i < comm->size; i++) {
        int p = (comm->rank + i) % comm->size; /* not all at one peer */
        loong_piece_t piece = loongi_piece(call, comm->size, p);
        size_t at = (size_t)piece.begin * size;
        loongi_copy((char *)call->data + at,
                    (const char *)shared->sources[p] + at,
                    (size_t)piece.count * size);
    }
}

static void exchange_direct(loong_shared_t *shared, loong_comm_t *comm,
                            const loong_collective_t *call)
{
    size_t size = loong_dtype_size(call->dtype);
    for (int i = 0; i < comm->size; i++) {
        int p = (comm->rank + i) % comm->size;
        const int64_t *sent = loongi_shared_counts(shared, call, p);
        size_t from = (size_t)loongi_piece_begin(sent, comm->rank) * size;
        size_t to = (size_t)loongi_piece_begin(call->receive_counts, p) * size;
        loongi_copy((char *)call->data + to,
                    (const char *)shared->sources[p] + from,
                    (size_t)call->receive_counts[p] * size);
    }
}

static loong_status_t run_direct(loong_shared_t *shared, loong_comm_t *comm,
                                 const loong_collective_t *call)
{
    const loong_shared_params_t *params = &shared->params;
    size_t bytes = (size_t)call->count * loong_dtype_size(call->dtype);
    for (int p = 0; p < comm->size; p++) {
        const loong_location_t *at = &post_of(shared, call, p)->source;
        void *peer =
            p == comm->rank ? NULL : params->resolve(params->owner, p, at);
        shared->sources[p] =
            p == comm->rank ? loongi_shared_source(call) : peer;
        shared->targets[p] = p == comm->rank ? call->data : peer;
    }
    bool reduces = call->kind == LOONG_COLLECTIVE_ALL_REDUCE ||
                   call->kind == LOONG_COLLECTIVE_REDUCE_SCATTER;
    if (reduces && comm->size == 1) {
        return LOONG_OK; /* one rank's data is its own reduction */
    }
    switch (call->kind) {
    case LOONG_COLLECTIVE_ALL_REDUCE:
    case LOONG_COLLECTIVE_REDUCE_SCATTER:
        reduce_direct(shared, comm, call);
        break;
    case LOONG_COLLECTIVE_ALL_GATHER:
        gather_direct(shared, comm, call);
        break;
    case LOONG_COLLECTIVE_ALL_TO_ALL:
        exchange_direct(shared, comm, call);
        break;
    case LOONG_COLLECTIVE_BROADCAST:
        loongi_copy(call->data, shared->sources[call->root], bytes);
        break;
    default: /* GATHER */
        for (int p = 0; p < comm->size && comm->rank == call->root; p++) {
            loongi_copy((char *)call->data + (size_t)p * bytes,
                        shared->sources[p], bytes);
        }
        break;
    }
    return loongi_shared_sync(shared, comm);
}

loong_status_t loongi_shared_run(loong_shared_t *shared, loong_comm_t *comm,
                                 const loong_collective_t *call)
{
    publish(shared, call);
    LOONG_TRY(loongi_shared_sync(shared, comm));
    LOONG_TRY(check_posts(shared, comm, call));
    if (call->kind == LOONG_COLLECTIVE_BARRIER) {
        return LOONG_OK;
    }
    /* Every rank comes to the same answer: they all read the same posts. */
    bool direct = true;
    for (int p = 0; p < comm->size; p++) {
        direct = direct && post_of(shared, call, p)->source.region != 0;
    }
    return direct ? run_direct(shared, comm, call)
                  : loongi_shared_staged(shared, comm, call);
}
