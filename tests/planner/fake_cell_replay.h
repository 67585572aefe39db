/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a cell on the memory that was planned, and what may be planted:
 * fake_cell_messages.c carries messages, fake_cell_replay.c runs the lists. */
#ifndef FAKE_CELL_REPLAY_H
#define FAKE_CELL_REPLAY_H

#include "fake_components.h"

/* What is planted. */
#define FAULT_LIST(X)                                                     \
    X(NONE, "nothing")                                                    \
    X(FIRST_ON_HOLLOW, "`first` on a hollow entry that clears nothing")   \
    X(HOLLOW_RUNS, "a micro-batch without anything runs")                 \
    X(HOLLOW_LEFT_OUT, "a hollow entry left out by one replica")          \
    X(HOLLOW_MEETS_LESS, "a hollow entry with a collective too few")      \
    X(LOCKSTEP, "entries of two components swapped on one rank")          \
    X(TIE_HOLDER, "a tie with a holder missing")                          \
    X(ROW_TWICE, "a row's gradient from two")                             \
    X(ROW_BY_NONE, "a row's gradient from none")                          \
    X(AREA_SHARED, "a message before its area is free")                   \
    X(AREA_EARLY, "an area given back before its last reader")            \
    X(OVERLAID, "components over each other")                             \
    X(SLOT_EARLY, "a slot taken before its messages are sent")            \
    X(FROM_ROW, "a segment sent from a row further")                      \
    X(TO_ROW, "a segment received a row further")                         \
    X(MICRO_BATCH, "messages of two micro-batches swapped at the sender") \
    X(STALE, "the sender has the plan of the step before")                \
    X(ZERO_SIZE, "a message of no rows sent by one side")                 \
    X(NOT_CLEARED, "rows that no message brings are left as they were")

typedef enum fault {
#define FAULT_ENUM(name_, text_) FAULT_##name_,
    FAULT_LIST(FAULT_ENUM)
#undef FAULT_ENUM
        FAULTS
} fault_t;

enum { MOST_CHUNKS = 32, FAKE_COLLECTIVES = 3 };
enum { WAITS = 0, MOVES = 1, WRONG = -1 };

/* A segment that one end has begun. */
typedef struct posted {
    int message;
    char *data;
    int64_t bytes;
    bool done;
} posted_t;

/* A message of a pipeline. */
typedef struct passed {
    const loong_entry_t *from, *to;
    int from_rank, to_rank;
    bool done;
} passed_t;

typedef struct replay {
    fake_components_t *fake;
    fault_t fault;
    int planted;
    fake_world_t world;
    fake_table_t seen, grads; /* of the reference */
    loong_memory_plan_t *ranks[FAKE_RANKS];
    loong_model_chunk_t *chunks[FAKE_RANKS][MOST_CHUNKS];
    loong_binding_t run[FAKE_RANKS];
    fake_region_t *base[FAKE_RANKS][LOONG_BASE_COUNT];
    fake_region_t *host[FAKE_RANKS][2]; /* areas that are in host memory */
    int64_t at[FAKE_RANKS];
    int32_t slot[FAKE_RANKS][MOST_CHUNKS][FAKE_MICRO]; /* holders */
    int32_t area[FAKE_RANKS][MOST_CHUNKS][2][FAKE_MICRO];
    bool cleared[FAKE_RANKS][MOST_CHUNKS][2][FAKE_MICRO];
    passed_t passed[2][2 * FAKE_COMPONENTS][FAKE_RANKS][FAKE_STAGES]
                   [FAKE_MICRO];
    int num_sent, num_received;
    posted_t sent[FAKE_MESSAGES * FAKE_SEGMENTS];
    posted_t received[FAKE_MESSAGES * FAKE_SEGMENTS];
    bool begun[2][FAKE_MESSAGES];                       /* sent, received */
    fake_segment_t stale[FAKE_MESSAGES][FAKE_SEGMENTS]; /* last step's */
    /* Replicas that came to a collective: by component, stage, program,
     * micro-batch and ordinal. */
    uint8_t come[2 * FAKE_COMPONENTS][FAKE_STAGES][LOONG_PROGRAM_COUNT]
                [FAKE_MICRO][FAKE_COLLECTIVES];
    int met[FAKE_RANKS]; /* collectives of a rank's entry */
    bool waits[FAKE_RANKS]; /* in the next one */
    int step;
    uint64_t drawn;
    int64_t reused, carried, hollow, areas, windows, met_in_all, tied;
} replay_t;

static inline bool fake_is(const replay_t *r, fault_t fault)
{
    return r->fault == fault;
}

static inline const loong_cell_t *fake_cell_of(const replay_t *r)
{
    return r->fake->cell;
}

/* A random number, of the order in which ranks and messages advance. */
int fake_replay_draw(replay_t *r, int bound);
int fake_stage_of(const replay_t *r, int rank, const loong_entry_t *e);

/* Begins an end of a message. */
bool fake_post(replay_t *r, int message, const loong_binding_t *run, bool send);
/* Matches the oldest send and receive of each channel, all that there are. */
bool fake_match(replay_t *r);
/* Are the messages of an item there (receives), or gone? */
int fake_want_edges(replay_t *r, int rank, const loong_entry_t *e,
                    int micro_batch, bool receives, bool backward);
/* Is the pipeline's message to a stage there? */
int fake_want_passed(replay_t *r, int rank, const loong_entry_t *e,
                     int backward, int stage, int micro_batch);

/* Plans a rank; the bytes of its bases are those that are planned. */
loong_status_t fake_replay_plan(replay_t *r, int rank);
/* Runs all steps. */
bool fake_replay_cell(replay_t *r);

#endif
