/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of shared.c for buffers that peers cannot read: slice by
 * slice through one staging buffer per rank. Called by shared.c. Read
 * inside/shared_impl.h before. */
#include "reduce.h"
#include "shared_impl.h"

static unsigned char *staging_of(loong_shared_t *shared, int rank)
{
    return shared->staging + (size_t)rank * shared->params.staging;
}

/* Elements of a slice when a staging buffer holds `parts` of them. */
static int64_t slice_length(const loong_shared_t *shared,
                            const loong_collective_t *call, int parts)
{
    size_t bytes = shared->params.staging / (size_t)parts / 64 * 64;
    return (int64_t)(bytes / loong_dtype_size(call->dtype));
}

/* Copies slice `round` of every piece between the staging buffer of this rank
 * and its own memory. */
static void move_slices(loong_shared_t *shared, loong_comm_t *comm,
                        const loong_collective_t *call, int64_t round,
                        bool into_staging)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = slice_length(shared, call, comm->size);
    unsigned char *mine = staging_of(shared, comm->rank);
    for (int p = 0; p < comm->size; p++) {
        loong_piece_t part =
            loongi_slice(loongi_piece(call, comm->size, p), slice, round);
        void *staged = mine + (size_t)(p * slice) * size;
        void *data = (char *)call->data + (size_t)part.begin * size;
        loongi_copy(into_staging ? staged : data, into_staging ? data : staged,
                    (size_t)part.count * size);
    }
}

static loong_status_t reduce_staged(loong_shared_t *shared, loong_comm_t *comm,
                                    const loong_collective_t *call)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = slice_length(shared, call, comm->size);
    bool all = call->kind == LOONG_COLLECTIVE_ALL_REDUCE;
    int64_t longest = 0;
    for (int p = 0; p < comm->size; p++) {
        longest = LOONG_MAX(longest, loongi_piece(call, comm->size, p).count);
    }
    loong_piece_t piece = loongi_piece(call, comm->size, comm->rank);
    for (int64_t round = 0; round < loongi_rounds(longest, slice); round++) {
        loong_piece_t part = loongi_slice(piece, slice, round);
        void *result = (char *)call->data + (size_t)part.begin * size;
        move_slices(shared, comm, call, round, true);
        LOONG_TRY(loongi_shared_sync(shared, comm));
        for (int p = 0; p < comm->size; p++) {
            shared->targets[p] =
                staging_of(shared, p) + (size_t)(comm->rank * slice) * size;
            shared->sources[p] = shared->targets[p];
        }
        loong_reduction_t reduction = {call->dtype,
                                       call->reduce,
                                       shared->sources,
                                       comm->size,
                                       all ? shared->targets : &result,
                                       all ? comm->size : 1,
                                       part.count};
        if (part.count > 0) {
            loongi_reduce(&reduction);
        }
        LOONG_TRY(loongi_shared_sync(shared, comm));
        if (all) {
            move_slices(shared, comm, call, round, false);
        }
    }
    return LOONG_OK;
}

/* Rank p's slices of `from` arrive in `to[p]` of every rank that takes them
 * (to[p] is not NULL); pieces are in bytes. */
static loong_status_t spread_staged(loong_shared_t *shared, loong_comm_t *comm,
                                    const void *from)
{
    int64_t slice = (int64_t)shared->params.staging;
    int64_t longest = 0;
    int me = comm->rank;
    void *const *to = shared->targets;
    for (int p = 0; p < comm->size; p++) {
        longest = LOONG_MAX(longest, shared->pieces[p].count);
    }
    for (int64_t round = 0; round < loongi_rounds(longest, slice); round++) {
        loong_piece_t mine = loongi_slice(shared->pieces[me], slice, round);
        loongi_copy(staging_of(shared, me), (const char *)from + mine.begin,
                    (size_t)mine.count);
        LOONG_TRY(loongi_shared_sync(shared, comm));
        for (int i = 0; i < comm->size; i++) {
            int p = (me + i) % comm->size; /* not all at one peer */
            loong_piece_t part = loongi_slice(shared->pieces[p], slice, round);
            if (to[p] != NULL) {
                loongi_copy((char *)to[p] + part.begin, staging_of(shared, p),
                            (size_t)part.count);
            }
        }
        LOONG_TRY(loongi_shared_sync(shared, comm));
    }
    return LOONG_OK;
}

static loong_status_t copy_staged(loong_shared_t *shared, loong_comm_t *comm,
                                  const loong_collective_t *call)
{
    int64_t size = (int64_t)loong_dtype_size(call->dtype);
    int64_t bytes = call->count * size;
    int me = comm->rank;
    for (int p = 0; p < comm->size; p++) {
        loong_piece_t piece = {0, bytes};
        char *to = NULL;
        if (call->kind == LOONG_COLLECTIVE_ALL_GATHER) {
            piece = loongi_piece(call, comm->size, p);
            piece.begin *= size;
            piece.count *= size;
            to = p == me ? NULL : call->data;
        } else if (call->kind == LOONG_COLLECTIVE_GATHER) {
            to = me == call->root ? (char *)call->data + p * bytes : NULL;
        } else if (p == call->root) {
            to = p == me ? NULL : call->data;
        } else {
            piece.count = 0;
        }
        shared->pieces[p] = piece;
        shared->targets[p] = to;
    }
    return spread_staged(shared, comm, loongi_shared_source(call));
}

/* Copies slice `round` of every block to or from the staging buffers. */
static void move_blocks(loong_shared_t *shared, loong_comm_t *comm,
                        const loong_collective_t *call, int64_t round,
                        bool into_staging)
{
    size_t size = loong_dtype_size(call->dtype);
    int64_t slice = slice_length(shared, call, comm->size);
    const int64_t *counts = into_staging ? call->counts : call->receive_counts;
    int me = comm->rank;
    for (int p = 0; p < comm->size; p++) {
        loong_piece_t block = {loongi_piece_begin(counts, p), counts[p]};
        loong_piece_t part = loongi_slice(block, slice, round);
        size_t at = (size_t)part.begin * size;
        size_t bytes = (size_t)part.count * size;
        if (into_staging) {
            loongi_copy(staging_of(shared, me) + (size_t)(p * slice) * size,
                        (const char *)call->send + at, bytes);
        } else {
            loongi_copy((char *)call->data + at,
                        staging_of(shared, p) + (size_t)(me * slice) * size,
                        bytes);
        }
    }
}

static loong_status_t exchange_staged(loong_shared_t *shared,
                                      loong_comm_t *comm,
                                      const loong_collective_t *call)
{
    int64_t slice = slice_length(shared, call, comm->size);
    int64_t longest = 0;
    for (int p = 0; p < comm->size; p++) {
        for (int q = 0; q < comm->size; q++) {
            longest =
                LOONG_MAX(longest, loongi_shared_counts(shared, call, p)[q]);
        }
    }
    for (int64_t round = 0; round < loongi_rounds(longest, slice); round++) {
        move_blocks(shared, comm, call, round, true);
        LOONG_TRY(loongi_shared_sync(shared, comm));
        move_blocks(shared, comm, call, round, false);
        LOONG_TRY(loongi_shared_sync(shared, comm));
    }
    return LOONG_OK;
}

loong_status_t loongi_shared_staged(loong_shared_t *shared, loong_comm_t *comm,
                                    const loong_collective_t *call)
{
    switch (call->kind) {
    case LOONG_COLLECTIVE_ALL_REDUCE:
    case LOONG_COLLECTIVE_REDUCE_SCATTER:
        return reduce_staged(shared, comm, call);
    case LOONG_COLLECTIVE_ALL_TO_ALL:
        return exchange_staged(shared, comm, call);
    default:
        return copy_staged(shared, comm, call);
    }
}
