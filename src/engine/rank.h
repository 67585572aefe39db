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

enum { LOONG_MAX_USES = 4 };

/* A schedule and the compiled chunks of the rank that it runs; both are
 * borrowed. */
typedef struct loong_rank_use {
    const loong_schedule_t *schedule;
    loong_chunk_t *const *chunks;
} loong_rank_use_t;

/* Where the bases of a chunk begin; slots and areas lie one behind the other.*/
typedef struct loong_chunk_place {
    int64_t begin[LOONG_BASE_COUNT];
    int64_t host;
} loong_chunk_place_t;

/* Several uses have the same memory one after the other: training and
 * evaluation. Their chunks have the same parameters. */
typedef struct loong_rank {
    loong_context_t *ctx;
    int rank;
    int chunks;
    int num_uses;
    loong_rank_use_t use[LOONG_MAX_USES];
    loong_chunk_place_t *places;     /* of each chunk */
    int64_t bytes[LOONG_BASE_COUNT]; /* to allocate, exactly */
    int64_t host_bytes;              /* where OFFLOAD copies to */
    uint8_t *orders; /* of the pairs of use 0; per (F chunk, B chunk) */
    int64_t *order_at;
} loong_rank_t;

/* Only the schedule of use 0 may have pairs. */
LOONG_NODISCARD loong_status_t
loongi_rank_create(loong_context_t *ctx, int rank, int num_uses,
                   const loong_rank_use_t *uses, loong_rank_t **rank_p);
void loongi_rank_destroy(loong_rank_t **rank_p);

/* The bases of a chunk, from those of the rank; slot 0. */
loong_run_t loongi_rank_chunk(const loong_rank_t *rank, const loong_run_t *run,
                              int chunk);
/* The bases of an entry: its chunk and slot. */
loong_run_t loongi_rank_bind(const loong_rank_t *rank, int use,
                             const loong_run_t *run,
                             const loong_entry_t *entry);

/* Where OFFLOAD and RELOAD of an entry keep the away area. */
static inline int64_t loongi_rank_host(const loong_rank_t *rank, int use,
                                       const loong_entry_t *entry)
{
    return rank->places[entry->chunk].host +
           entry->host * rank->use[use].chunks[entry->chunk]->away_bytes;
}

/* Loads every program of every use at the bases of its entries; `again`: when
 * these have changed (loongi_program_load). */
LOONG_NODISCARD loong_status_t loongi_rank_load(const loong_rank_t *rank,
                                                const loong_run_t *run,
                                                bool again);

/* Runs entry `index` of the rank's list, whose kind is a program. The first of
 * a pair runs both, each with the frame of its micro-batch; the second does
 * nothing. frame: of the entry and of the other one of its pair (may be NULL
 * without). Frames are checked against planned counts. */
LOONG_NODISCARD loong_status_t
loongi_rank_run(const loong_rank_t *rank, int use, const loong_run_t *run,
                int64_t index, const loong_frame_t *const frame[2]);

#ifdef __cplusplus
}
#endif

#endif
