/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a cell share. */
#ifndef LOONG_CELL_IMPL_H
#define LOONG_CELL_IMPL_H

#include "cell.h"
#include "schedule_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Groups of a component are the replicas that have one micro-batch together:
 * `turn` of them, the last group overlaps where these do not divide all; or
 * all, in one group. */
static inline bool loongi_has_groups(const loong_cell_component_t *of)
{
    return of->turn > 0 && of->turn < of->replicas;
}
static inline int loongi_groups(const loong_cell_component_t *of)
{
    return loongi_has_groups(of) ? (of->replicas + of->turn - 1) / of->turn : 1;
}
static inline int loongi_group_size(const loong_cell_component_t *of)
{
    return loongi_has_groups(of) ? of->turn : of->replicas;
}
/* The first replica of one. */
static inline int loongi_group_first(const loong_cell_component_t *of,
                                     int group)
{
    int size = loongi_group_size(of);
    return LOONG_MIN(group * size, of->replicas - size);
}

/* Keys of one moment: what stands right before it, itself, right behind it. */
enum { LOONG_JOIN_STEP = 3 };

/* Where computations stand in the one order of the cell: keys of the moments of
 * the last component's simulated step. */
struct loong_join {
    const loong_cell_t *cell;
    /* Per component: [stage][micro-batch]. */
    int64_t **forward;
    int64_t **backward;        /* W stands behind its B */
    int64_t *weights;          /* but here, of the last component */
    const loong_span_t *spans; /* of its entries, in these units */
    loong_stage_work_t **work; /* per component and stage, likewise */
};

/* Components in an order in which edges lead on: doubles stand beside the
 * component whose forward they run. */
static inline int loongi_cell_order(const loong_cell_t *cell, int component)
{
    return 2 * cell->forward_of[component] + (component < cell->num_own);
}

/* Forwards of a component right before the first that reads them, backwards
 * right behind the last gradient that they read; readers first. All stages
 * compute a micro-batch one behind the other. */
void loongi_join_before(loong_join_t *join, int component);
void loongi_join_behind(loong_join_t *join, int component);
/* Both, of the components from the first to the last. */
void loongi_join_couple(loong_join_t *join, int first, int last);

extern const loong_join_kind_t loongi_join_bubbles;

enum { LOONG_JOIN_FIRST = -1, LOONG_JOIN_LAST = INT32_MAX };

/* One end of a message, or both. */
typedef struct loong_message_end {
    int32_t rank, component, stage, chunk, micro_batch;
} loong_message_end_t;

loong_message_end_t loongi_message_from(const loong_cell_t *cell,
                                        const loong_message_t *message);
loong_message_end_t loongi_message_to(const loong_cell_t *cell,
                                      const loong_message_t *message);

/* Of a rank's micro-batches; NULL: none is known to be hollow. */
const bool *loongi_cell_hollow(const loong_cell_t *cell, int component,
                               int rank);

/* Fills the lists of all ranks. */
LOONG_NODISCARD loong_status_t loongi_cell_fill(loong_cell_t *cell);

#ifdef __cplusplus
}
#endif

#endif
