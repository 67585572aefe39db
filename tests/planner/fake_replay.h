/* SPDX-License-Identifier: Apache-2.0
 *
 * The replay's own state: fake_plan.c makes it, fake_replay.c runs it. */
#ifndef LOONG_FAKE_REPLAY_H
#define LOONG_FAKE_REPLAY_H

#include "fake.h"
#include "memory_plan.h"

enum { MAX_RANKS = 8, MAX_CHUNKS = 4, MAX_STAGES = 32, MAX_MICRO = 24 };

typedef struct message {
    bool sent;
    bool received;
    bool delivered;
    loong_binding_t from;
    loong_binding_t to;
} message_t;

typedef struct replay {
    loong_context_t *ctx;
    const fake_model_t *model;
    const fake_options_t *options;
    const fake_reference_t *reference;
    fake_counters_t *counters;
    loong_schedule_t *schedule;
    loong_model_chunk_t *chunks[MAX_RANKS][MAX_CHUNKS];
    loong_memory_plan_t *ranks[MAX_RANKS];
    loong_binding_t run[MAX_RANKS];
    fake_region_t *base[MAX_RANKS][LOONG_BASE_COUNT];
    int64_t at[MAX_RANKS];
    message_t messages[2][MAX_STAGES][MAX_MICRO]; /* per receiving stage */
    int32_t holder[MAX_STAGES][MAX_MICRO];        /* of slots, -1: nobody */
    fake_world_t world;
    fake_table_t seen;
    int step;
    uint64_t drawn;
} replay_t;

loong_status_t fake_plan_create(replay_t *r);
void fake_plan_destroy(replay_t *r);
/* Planned = allocated = touched. */
bool fake_plan_exact(replay_t *r);

loong_model_chunk_t *fake_chunk_of(replay_t *r, int stage);
/* The buffer of a base of the rank that holds a stage, and where the part of
 * the stage begins. */
fake_region_t *fake_region_of(replay_t *r, int stage, loong_base_t base,
                              int64_t *begin_p);

#endif
