/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank holds of a component: its stages of the pipeline, the
 * schedules that run them, and one memory for all. Planning (create) touches
 * no device; allocate does.
 */
#ifndef LOONG_COMPONENT_H
#define LOONG_COMPONENT_H

#include "component_comms.h"
#include "rank.h"
#include "stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A parameter of the whole model, on whatever rank it is; without padding.
 * Outside of graphs the matrices of experts stand one below the other. */
typedef struct loong_whole_param {
    const char *name;
    int ndim;
    int64_t shape[2];
    bool frozen;
    int group; /* of the optimizer */
    /* That keeps states of it; NULL: none. */
    const loong_optimizer_class_t *optimizer;
} loong_whole_param_t;

typedef struct loong_component {
    loong_context_t *ctx;
    loong_arena_t *arena;
    loong_component_params_t params;
    loong_model_facts_t facts;
    int64_t num_whole;
    loong_whole_param_t *whole;
    int num_losses; /* of the whole model */
    loong_loss_params_t losses[LOONG_MAX_LOSSES];
    loong_stage_cut_t *cuts; /* of all stages of the pipeline */
    int num_stages;          /* of this rank */
    loong_stage_t **stages;
    loong_chunk_t **chunks[LOONG_STAGE_CHUNKS]; /* those of the stages */
    loong_schedule_t *schedule;   /* of the coming step; NULL: no training */
    loong_schedule_t *evaluation; /* of one micro-batch, forward alone */
    loong_rank_t *rank;
    loong_program_t tie; /* once a step, behind the reductions of all stages */
    int use[LOONG_STAGE_CHUNKS];  /* of rank */
    loong_component_comms_t comms;  /* none until allocate */
    void *shared[LOONG_BASE_COUNT]; /* memory that peers read; NULL: none */
    bool busy; /* messages are under way that cannot be given up */
    int64_t bytes[LOONG_BASE_COUNT]; /* planned, equal to allocated */
    loong_run_t run;                 /* device: NULL until allocate */
} loong_component_t;

/* Cuts, builds and compiles. Not collective. */
LOONG_NODISCARD loong_status_t
loongi_component_create(loong_context_t *ctx,
                        const loong_component_params_t *params,
                        loong_component_t **component_p);
/* Gives messages up that are under way after a failure, ends what runs on the
 * device (loongi_resources_disconnect), and closes the communicators of
 * devices; nothing the second time, or for NULL. Whatever waits for the device
 * comes behind. Collective on: world. */
void loongi_component_disconnect(loong_component_t *component);
/* Disconnects. Collective on: world, once allocated. */
void loongi_component_destroy(loong_component_t **component_p);

/* Opens the component's communicators, takes the memory of all bases
 * (parameters and gradients where peers of the machine can read them) and
 * prepares kernels. resources: borrowed. Collective on: world. */
LOONG_NODISCARD loong_status_t loongi_component_allocate(
    loong_component_t *component, loong_resources_t *resources);

/* Makes the schedule of a step of so many micro-batches, no more than
 * planned; nothing when it is the same number. */
LOONG_NODISCARD loong_status_t
loongi_component_plan_step(loong_component_t *component, int micro_batches);

/* Whether the schedule takes a step of so many micro-batches; with its reason
 * else. */
LOONG_NODISCARD loong_status_t
loongi_component_accepts(const loong_component_t *component,
                         int micro_batches);

/* The stage of the pipeline that a stage of this rank is. */
static inline int loongi_component_stage(const loong_component_t *component,
                                         int index)
{
    return loongi_schedule_stage(component->evaluation,
                                 component->params.mesh.coord[LOONG_AXIS_PP],
                                 index);
}

/* The entries of this rank. */
const loong_rank_schedule_t *
loongi_component_entries(const loong_component_t *component,
                         loong_stage_chunk_t chunk);

/* The stage with the head, NULL on other ranks; the rank of the pipeline that
 * has it. */
loong_stage_t *loongi_component_head(const loong_component_t *component);
int loongi_component_head_rank(const loong_component_t *component);

LOONG_NODISCARD loong_status_t
loongi_component_initialize(loong_component_t *component, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
