/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule is data: for every rank of a pipeline the list of entries that one
 * training step runs, in order. The trainer runs the list of its own rank, the
 * simulator runs the lists of all ranks against costs, the validator replays
 * them. Generators stand in loongi_schedule_kinds, by name.
 *
 * Stage s of the pipeline is chunk s / ranks of rank s % ranks; of a folded
 * schedule odd chunks run backwards over the ranks.
 *
 * Not collective.
 */
#ifndef LOONG_SCHEDULE_H
#define LOONG_SCHEDULE_H

#include "base.h"
#include "graph_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an entry does. The first ones run the program of that kind. "Forward"
 * is what the boundary outputs of a chunk carry, "backward" the gradients of
 * its boundary inputs. Sends and receives only begin; a program waits for the
 * receive that it reads, a slot is used again only when its sends are
 * complete. What edges between components carry stands in cells alone
 * (cell.h). */
#define LOONG_ENTRY_LIST(X)                                               \
    LOONG_PROGRAM_LIST(X)                                                 \
    X(SEND_FORWARD, "send forward")                                       \
    X(RECV_FORWARD, "receive forward")                                    \
    X(SEND_BACKWARD, "send backward")                                     \
    X(RECV_BACKWARD, "receive backward")                                  \
    X(REDUCE, "reduce")   /* what several stages hold (ties.h) */         \
    X(SEND_EDGE_FORWARD, "send edge forward")                             \
    X(RECV_EDGE_FORWARD, "receive edge forward")                          \
    X(SEND_EDGE_BACKWARD, "send edge backward")                           \
    X(RECV_EDGE_BACKWARD, "receive edge backward")

typedef enum loong_entry_kind {
#define LOONG_ENTRY_ENUM(name_, text_) LOONG_ENTRY_##name_,
    LOONG_ENTRY_LIST(LOONG_ENTRY_ENUM)
#undef LOONG_ENTRY_ENUM
    LOONG_ENTRY_COUNT
} loong_entry_kind_t;

typedef struct loong_entry {
    loong_entry_kind_t kind;
    int32_t component;   /* of the cell; -1: all of them (U) */
    int32_t chunk;       /* of the rank; -1: all of them (U) */
    int32_t micro_batch; /* -1: of no micro-batch (REDUCE, U) */
    int32_t slot;        /* of the chunk; -1: none */
    int32_t pair;        /* entry run step by step with this one, or -1 */
    int32_t peer;        /* rank at the other end of a send or receive, or -1 */
    int32_t message;     /* of the cell's table; -1: none */
    int32_t area[2]; /* where edges arrive, forward and backward; -1: none */
    /* Where a computation reads its area if that is in host memory. */
    int32_t window[2];
} loong_entry_t;

/* Of a chunk, in each direction, at most: one is read, the next one filled. */
enum { LOONG_EDGE_WINDOWS = 2 };

/* An entry of component 0 that has nothing else yet. */
static inline loong_entry_t loongi_entry(loong_entry_kind_t kind, int chunk,
                                         int micro_batch)
{
    loong_entry_t entry = {.kind = kind,
                           .component = kind == LOONG_ENTRY_U ? -1 : 0,
                           .chunk = chunk,
                           .micro_batch = micro_batch,
                           .slot = -1,
                           .pair = -1,
                           .peer = -1,
                           .message = -1,
                           .area = {-1, -1},
                           .window = {-1, -1}};
    return entry;
}

static inline bool loongi_entry_computes(const loong_entry_t *entry)
{
    return entry->kind == LOONG_ENTRY_F || entry->kind == LOONG_ENTRY_B ||
           entry->kind == LOONG_ENTRY_W || entry->kind == LOONG_ENTRY_E;
}

static inline bool loongi_entry_sends_edge(const loong_entry_t *entry)
{
    return entry->kind == LOONG_ENTRY_SEND_EDGE_FORWARD ||
           entry->kind == LOONG_ENTRY_SEND_EDGE_BACKWARD;
}

static inline bool loongi_entry_receives_edge(const loong_entry_t *entry)
{
    return entry->kind == LOONG_ENTRY_RECV_EDGE_FORWARD ||
           entry->kind == LOONG_ENTRY_RECV_EDGE_BACKWARD;
}

/* How many of each a chunk needs: exactly as many as live at one time. */
typedef struct loong_chunk_slots {
    int32_t slots;
    int32_t areas[2]; /* 0 where no edge arrives; forward, backward */
} loong_chunk_slots_t;

typedef struct loong_rank_schedule {
    int64_t num_entries, cap_entries;
    loong_entry_t *entries;
    loong_chunk_slots_t *chunks; /* per chunk */
} loong_rank_schedule_t;

typedef struct loong_schedule_params {
    int ranks;  /* of the pipeline */
    int chunks; /* of each rank */
    int micro_batches;
    bool pair;   /* run F of one micro-batch with B of another */
    bool folded; /* as kind->folded: stages as those of another schedule */
} loong_schedule_params_t;

typedef struct loong_schedule loong_schedule_t;

/* A generator. */
typedef struct loong_schedule_kind {
    const char *name;
    const char *about;
    bool split;    /* has entries W: chunks are compiled with B and W apart */
    bool evaluate; /* has entries E alone */
    bool folded;   /* stages go down the ranks and up again */
    bool pairs;    /* can pair */
    bool (*accepts)(const loong_schedule_params_t *params,
                    char reason[LOONG_REASON_SIZE]); /* NULL: all */
    /* Appends what one rank computes, in order: sends, slots and the rest
     * are put in afterwards, the same way for all generators. */
    loong_status_t (*order)(loong_schedule_t *schedule, int rank);
    /* Promise: micro-batches of all chunks that are alive at one time. */
    int64_t (*alive)(const loong_schedule_params_t *params, int rank);
} loong_schedule_kind_t;

/* Ends with NULL. */
extern const loong_schedule_kind_t *const loongi_schedule_kinds[];

struct loong_schedule {
    loong_context_t *ctx;
    const loong_schedule_kind_t *kind;
    loong_schedule_params_t params;
    loong_rank_schedule_t *ranks; /* per rank */
};

/* The generator that "auto" stands for; any other name is itself. */
const char *loongi_schedule_resolve(const char *name, int ranks, int chunks);

/* Whether its stages go down the ranks and up again. */
bool loongi_schedule_folded(const char *name,
                            const loong_schedule_params_t *params);

/* Whether the generator takes these sizes; chunks and micro-batches of 0 are
 * not known yet. LOONG_ERR_ARG for an unknown name, or with all reasons. */
LOONG_NODISCARD loong_status_t
loongi_schedule_accept(loong_context_t *ctx, const char *name,
                       const loong_schedule_params_t *params);

/* Makes the lists of all ranks: "one_stage", "1f1b", "interleaved",
 * "zero_bubble_h1", "zero_bubble_v", "evaluate", "gpipe".
 * LOONG_ERR_ARG for an unknown name, or for sizes
 * that the generator does not take (with its reason). */
LOONG_NODISCARD loong_status_t
loongi_schedule_create(loong_context_t *ctx, const char *name,
                       const loong_schedule_params_t *params,
                       loong_schedule_t **schedule_p);
void loongi_schedule_destroy(loong_schedule_t **schedule_p);

const char *loongi_entry_name(loong_entry_kind_t kind);

/* Stages of the whole pipeline, and the stage of a chunk. */
static inline int loongi_schedule_stages(const loong_schedule_t *s)
{
    return s->params.ranks * s->params.chunks;
}

static inline int loongi_schedule_stage(const loong_schedule_t *s, int rank,
                                        int chunk)
{
    int last = s->params.ranks - 1;
    bool back = s->params.folded && chunk % 2 == 1;
    return chunk * s->params.ranks + (back ? last - rank : rank);
}

/* The rank of a stage. */
static inline int loongi_schedule_rank(const loong_schedule_t *s, int stage)
{
    int ranks = s->params.ranks;
    bool back = s->params.folded && stage / ranks % 2 == 1;
    return back ? ranks - 1 - stage % ranks : stage % ranks;
}

/* Does a forward run before the backward of an earlier micro-batch? Chunks are
 * then compiled with `ahead`. */
static inline bool loongi_schedule_ahead(const loong_schedule_t *s)
{
    bool ahead = false;
    for (int r = 0; r < s->params.ranks; r++) {
        ahead = ahead || s->kind->alive(&s->params, r) > 1;
    }
    return ahead;
}

/* Proves a schedule: each entry there exactly once, in the order of what it
 * reads, slots and areas disjoint in time and no more than needed,
 * micro-batches of a chunk in ascending order, no deadlock when all ranks run,
 * the generator's promise kept.
 * LOONG_ERR_INTERNAL with the rank and entry otherwise. */
LOONG_NODISCARD loong_status_t
loongi_schedule_check(const loong_schedule_t *schedule);

/* Seconds of the entries of one stage. */
typedef struct loong_stage_cost {
    double seconds[LOONG_ENTRY_COUNT];
} loong_stage_cost_t;

typedef struct loong_simulation {
    double seconds; /* of the step */
    double busy;    /* computing, all ranks together */
    double bubble;  /* part of ranks * seconds that computes nothing */
} loong_simulation_t;

/* When an entry ran, in seconds from the start of the step. */
typedef struct loong_span {
    double begin;
    double end;
} loong_span_t;

/* Entries of the ranks below `rank`: spans of all ranks stand in this order,
 * rank by rank. */
static inline int64_t loongi_schedule_spans(const loong_rank_schedule_t *ranks,
                                            int rank)
{
    int64_t count = 0;
    for (int r = 0; r < rank; r++) {
        count += ranks[r].num_entries;
    }
    return count;
}

/* loongi_cell_simulate of the schedule alone. */
LOONG_NODISCARD loong_status_t
loongi_schedule_simulate(const loong_schedule_t *schedule,
                         const loong_stage_cost_t *costs, loong_span_t *spans,
                         loong_simulation_t *simulation_p);

#ifdef __cplusplus
}
#endif

#endif
