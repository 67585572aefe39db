/* SPDX-License-Identifier: Apache-2.0
 *
 * A cell: components whose pipelines share ranks or send one another messages,
 * and for each rank the one list of entries that a training step runs. A join
 * merges the orders of the components; what stands in the lists then follows
 * from it the same way for all joins.
 *
 * All replicas of a component's pipeline (its ranks along all axes of the mesh
 * but the pipeline's) run the same entries of it in the same order, hollow ones
 * too: their programs hold collectives.
 *
 * A cell of one component has its schedule's lists. Not collective.
 */
#ifndef LOONG_CELL_H
#define LOONG_CELL_H

#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a micro-batch of a stage costs by configuration, in any unit that all
 * components share. */
typedef struct loong_stage_work {
    int64_t forward, backward, weights;
} loong_stage_work_t;

typedef struct loong_cell_component {
    const char *schedule; /* kind of its pipeline; "evaluate": frozen */
    loong_schedule_params_t params;
    int replicas;
    const int32_t *rank; /* of the cell: [replicas][params.ranks] */
    /* So many replicas, one behind the other, read a micro-batch, others the
     * next; for the rest it is hollow. 0: all read each. */
    int turn;
    const loong_stage_work_t *work; /* per stage; NULL: 1 each */
} loong_cell_component_t;

/* Rows that a stage of one component reads and a stage of another makes. */
typedef struct loong_cell_edge {
    int32_t from, to; /* components, from < to */
    int32_t from_stage, to_stage;
    bool gradient; /* comes back; both are trained then */
} loong_cell_edge_t;

/* What one rank sends another, or itself, for one micro-batch of each of the
 * two components. Backward ones go from the edge's `to` to its `from`. */
typedef struct loong_message {
    int32_t edge;
    bool backward;
    int32_t from_rank, from_micro_batch;
    int32_t to_rank, to_micro_batch;
} loong_message_t;

typedef struct loong_cell_params {
    const char *join; /* "coupled", "phases", "two_pass", "bubbles" */
    int ranks;
    int num_components; /* the last one has the loss; see loong_cell_t */
    const loong_cell_component_t *components;
    int num_edges;
    const loong_cell_edge_t *edges;
    int64_t num_messages; /* the same messages on all ranks */
    const loong_message_t *messages;
} loong_cell_params_t;

typedef struct loong_cell loong_cell_t;
typedef struct loong_join loong_join_t;

/* How the computations of components are merged. */
typedef struct loong_join_kind {
    const char *name;
    const char *about;
    bool twice; /* forwards of trained components run once more */
    /* Replicas compute at different times, by the costs of stages: their
     * programs must not hold collectives but in the last backward. */
    bool apart;
    loong_status_t (*place)(loong_join_t *join);
} loong_join_kind_t;

/* Ends with NULL. */
extern const loong_join_kind_t *const loongi_join_kinds[];
/* NULL: there is none of this name. */
const loong_join_kind_t *loongi_join_kind(const char *name);

/* With join->twice each trained component but the last one has a double behind
 * it in the list of components, which runs its forward ahead and keeps nothing:
 * what leads to the last component forward leads there from doubles, along
 * edges that stand behind those asked for, edge e at num_edges / 2 + e;
 * gradients lead to the components themselves, which run their forward once
 * more. */
struct loong_cell {
    loong_context_t *ctx;
    int users;
    loong_arena_t *arena;
    const loong_join_kind_t *join;
    loong_cell_params_t params; /* a copy, with doubles */
    int num_own;                /* components without doubles */
    int32_t *forward_of;        /* per component: whose forward it runs */
    /* Per component and micro-batch: the first replica that reads it; NULL: all
     * read it. */
    int32_t **reader;
    bool **hollow; /* of joins whose replicas are apart, where that is said:
                      [replica][micro-batch], who reads nothing */
    loong_schedule_t **schedules; /* per component: its own pipeline */
    int32_t *first_chunk; /* per component, and behind the last one their sum */
    loong_rank_schedule_t *ranks; /* chunks: those of component c begin at
                                     first_chunk[c] */
};

/* Makes the lists of all ranks. LOONG_ERR_ARG, with what was found, for an
 * unknown join, sizes that a schedule does not take, ranks out of range or
 * twice in a component, edges that point back, messages that no stage sends or
 * reads or that stand there twice, and pairs beside another component. */
LOONG_NODISCARD loong_status_t
loongi_cell_create(loong_context_t *ctx, const loong_cell_params_t *params,
                   loong_cell_t **cell_p);
/* One more user, who destroys it as well. */
loong_cell_t *loongi_cell_retain(loong_cell_t *cell);
void loongi_cell_destroy(loong_cell_t **cell_p);

/* The edge that was asked for. */
static inline int loongi_cell_edge(const loong_cell_t *cell, int edge)
{
    int own = cell->params.num_edges / (cell->join->twice ? 2 : 1);
    return own > 0 ? edge % own : edge;
}

/* The number of a component's stage among those of all components. */
static inline int loongi_cell_stage(const loong_cell_t *cell, int component,
                                    int stage)
{
    for (int c = 0; c < component; c++) {
        stage += loongi_schedule_stages(cell->schedules[c]);
    }
    return stage;
}

/* Runs the lists against costs, one per stage of all components. Programs of a
 * rank run one after the other, and reloads with them; replicas run theirs
 * together. A transfer takes the cost of its send from when both ends have
 * begun, and runs beside them, as copies out do. Hollow entries take no time,
 * nor wait for others. U costs what it does at the
 * first chunk of the last component that the rank has. spans: of all entries,
 * or NULL.
 * LOONG_ERR_INTERNAL with where each rank waits when they deadlock. */
LOONG_NODISCARD loong_status_t
loongi_cell_simulate(const loong_cell_t *cell, const loong_stage_cost_t *costs,
                     loong_span_t *spans, loong_simulation_t *simulation_p);

/* The rank of the pipeline of a component that a rank of the cell is, or -1. */
int loongi_cell_pipeline_rank(const loong_cell_t *cell, int component,
                              int rank);

/* Does a replica read a micro-batch? */
static inline bool loongi_cell_reads(const loong_cell_t *cell, int component,
                                     int replica, int micro_batch)
{
    const int32_t *reader = cell->reader[component];
    int turn = cell->params.components[component].turn;
    return reader == NULL || (replica >= reader[micro_batch] &&
                              replica < reader[micro_batch] + turn);
}

/* The component of an entry of a rank; U is of the last one that the rank
 * has. */
int loongi_cell_component(const loong_cell_t *cell, int rank,
                          const loong_entry_t *entry);

/* Proves a cell over all ranks: of each component what loongi_schedule_check
 * proves, areas included; every message sent and received once, behind what
 * makes it, before what reads it; no deadlock when all ranks run, where
 * replicas run their programs together.
 * LOONG_ERR_INTERNAL with the rank and entry otherwise. */
LOONG_NODISCARD loong_status_t loongi_cell_check(const loong_cell_t *cell);

#ifdef __cplusplus
}
#endif

#endif
