/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank needs for its list of entries and how these are bound to it:
 * the exact bytes of every base before anything is allocated, and for an entry
 * the place in them of its chunk, slot and scratch. Parameters, gradients,
 * states and slots of the components of the list lie one behind the other;
 * scratch and COMM are those of the largest program.
 *
 * The two programs of a pair get scratch and COMM one behind the other; all
 * else uses the same. Not collective.
 */
#ifndef LOONG_MEMORY_PLAN_H
#define LOONG_MEMORY_PLAN_H

#include "executor.h"
#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_MAX_USES = 4 };

/* A list of the rank and the compiled chunks that it runs, of all components,
 * in the order of list->chunks; NULL: it does not run the chunk. Borrowed. */
typedef struct loong_memory_plan_use {
    const loong_rank_schedule_t *list;
    loong_model_chunk_t *const *chunks;
} loong_memory_plan_use_t;

typedef struct loong_memory_plan_params {
    int num_components;
    /* Per component the number of its first chunk; behind the last one the
     * number of all. */
    const int32_t *first_chunk;
    /* Per component: that whose forward it runs as E, with its parameters; else
     * itself. */
    const int32_t *forward_of;
    /* Per component: edges arrive in host memory, forward and backward; NULL:
     * none do. */
    const bool (*on_host)[2];
    int num_uses;
    const loong_memory_plan_use_t
        *uses; /* only the list of use 0 may have pairs */
} loong_memory_plan_params_t;

/* Where the bases of a chunk begin; slots and areas lie one behind the other.*/
typedef struct loong_chunk_bases {
    int64_t begin[LOONG_BASE_COUNT];
    bool on_host[2]; /* of edges the base has windows, areas are elsewhere, */
    int64_t area[2]; /* where they begin */
} loong_chunk_bases_t;

/* Several uses have the same memory one after the other: training and
 * evaluation. Their chunks have the same parameters. */
typedef struct loong_memory_plan {
    loong_context_t *ctx;
    int chunks; /* of all components */
    int32_t *first_chunk, *forward_of;
    int num_uses;
    loong_memory_plan_use_t use[LOONG_MAX_USES];
    loong_chunk_bases_t *places;     /* of each chunk */
    int64_t bytes[LOONG_BASE_COUNT]; /* to allocate, exactly */
    int64_t host_bytes[2]; /* of areas in host memory, forward and backward */
    uint8_t *orders; /* of the pairs of use 0; per (F chunk, B chunk) */
    int64_t *order_at;
} loong_memory_plan_t;

LOONG_NODISCARD loong_status_t loongi_memory_plan_create(
    loong_context_t *ctx, const loong_memory_plan_params_t *params,
    loong_memory_plan_t **plan_p);
void loongi_memory_plan_destroy(loong_memory_plan_t **plan_p);

/* The number of an entry's chunk among those of all components. */
static inline int loongi_memory_plan_index(const loong_memory_plan_t *plan,
                                           const loong_entry_t *entry)
{
    return plan->first_chunk[entry->component] + entry->chunk;
}

/* The program of an entry, whose kind is one. */
const loong_program_t *
loongi_memory_plan_program(const loong_memory_plan_t *plan, int use,
                           const loong_entry_t *entry);

/* The bases of a chunk, from those of the rank; slot 0. */
loong_binding_t loongi_memory_plan_chunk(const loong_memory_plan_t *plan,
                                         const loong_binding_t *run, int chunk);
/* The bases of an entry: its chunk and slot. */
loong_binding_t loongi_memory_plan_bind(const loong_memory_plan_t *plan,
                                        int use, const loong_binding_t *run,
                                        const loong_entry_t *entry);

/* The area of an entry, of a chunk whose areas are in host memory, among
 * these. */
int64_t loongi_memory_plan_area(const loong_memory_plan_t *plan, int use,
                                const loong_entry_t *entry, bool backward);

/* Loads every program of every use at the bases of its entries, with the run
 * of its component; `again`: when these have changed (loongi_program_load). */
LOONG_NODISCARD loong_status_t
loongi_memory_plan_load(const loong_memory_plan_t *plan,
                        const loong_binding_t *const *runs, bool again);

/* Runs entry `index` of the rank's list, whose kind is a program. The first of
 * a pair runs both, each with the frame of its micro-batch; the second does
 * nothing. frame: of the entry and of the other one of its pair (may be NULL
 * without). Frames are checked against planned counts. */
LOONG_NODISCARD loong_status_t loongi_memory_plan_run(
    const loong_memory_plan_t *plan, int use, const loong_binding_t *run,
    int64_t index, const loong_frame_t *const frame[2]);

#ifdef __cplusplus
}
#endif

#endif
