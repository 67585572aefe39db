/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank of a schedule needs and how its entries are bound to it: the
 * exact bytes of every base before anything is allocated, and for an entry the
 * place in them of its chunk, slot and scratch.
 *
 * The two programs of a pair get scratch and COMM one behind the other; all
 * else uses the same. Not collective.
 */
#ifndef LOONG_RANK_H
#define LOONG_RANK_H

#include "executor.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the bases of a chunk begin; slots and areas lie one behind the other.*/
typedef struct loong_chunk_place {
    int64_t begin[LOONG_BASE_COUNT];
    int64_t host;
} loong_chunk_place_t;

typedef struct loong_rank {
    loong_context_t *ctx;
    const loong_schedule_t *schedule; /* borrowed */
    int rank;
    loong_chunk_t *const *chunks; /* borrowed; one per chunk of the rank */
    loong_chunk_place_t *places;
    int64_t bytes[LOONG_BASE_COUNT]; /* to allocate, exactly */
    int64_t host_bytes;              /* where OFFLOAD copies to */
    uint8_t *orders;                 /* of pairs; per (F chunk, B chunk) */
    int64_t *order_at;
} loong_rank_t;

LOONG_NODISCARD loong_status_t
loongi_rank_create(const loong_schedule_t *schedule, int rank,
                   loong_chunk_t *const *chunks, loong_rank_t **rank_p);
void loongi_rank_destroy(loong_rank_t **rank_p);

/* The bases of an entry, from those of the rank: its chunk and slot. */
loong_run_t loongi_rank_bind(const loong_rank_t *rank, const loong_run_t *run,
                             const loong_entry_t *entry);

/* Where OFFLOAD and RELOAD of an entry keep the away area. */
static inline int64_t loongi_rank_host(const loong_rank_t *rank,
                                       const loong_entry_t *entry)
{
    return rank->places[entry->chunk].host +
           entry->host * rank->chunks[entry->chunk]->away_bytes;
}

/* Runs entry `index` of the rank's list, whose kind is a program. The first of
 * a pair runs both, each with the frame of its micro-batch; the second does
 * nothing. Frames are checked against planned counts. */
LOONG_NODISCARD loong_status_t
loongi_rank_run(const loong_rank_t *rank, const loong_run_t *run,
                int64_t index, const loong_frame_t *frame,
                const loong_frame_t *pair_frame);

#ifdef __cplusplus
}
#endif

#endif
