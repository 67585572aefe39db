/* SPDX-License-Identifier: Apache-2.0
 *
 * Where components stand: the ranks of the job that each has, and the cells
 * into which replicas of all components fall. A rank is in one cell. */
#ifndef LOONG_CELL_RANKS_H
#define LOONG_CELL_RANKS_H

#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks of a cell that a component has. */
typedef struct loong_component_place {
    /* Replicas along all axes of the mesh but the pipeline's, and their ranks
     * of the cell, [pipelines][PP]; those of a data-parallel rank follow one
     * another. */
    int pipelines;
    const int32_t *rank;
    int replicas; /* data-parallel ones, and these ranks, ascending */
    const int32_t *replica;
} loong_component_place_t;

typedef struct loong_cell_ranks {
    int count; /* ranks of the cell; of the job they are these, ascending */
    const int32_t *rank;
    int cell_rank; /* this one among them */
    loong_component_place_t component[LOONG_MAX_COMPONENTS];
} loong_cell_ranks_t;

/* The rank of the job that rank i of a component is; the reverse, -1: none. */
static inline int loongi_job_rank(const loong_component_params_t *params, int i)
{
    return params->ranks != NULL ? params->ranks[i] : i;
}
int loongi_component_rank(const loong_component_params_t *params, int job_rank);

/* The cell of this rank, which has one of the components at least. Replicas
 * that share ranks are together; these heaps are dealt to as many cells as can
 * be so that each gets as many of each kind. One component alone has its
 * pipeline. Lists are in the arena. Not collective. */
LOONG_NODISCARD loong_status_t loongi_cell_ranks_find(
    loong_context_t *ctx, loong_arena_t *arena, int num_components,
    const loong_component_params_t *params, loong_cell_ranks_t *ranks_p);

/* Ranks of a stage that a replica has: they share layers and rows. */
static inline int loongi_replica_ranks(const loong_component_params_t *params)
{
    const int *size = params->mesh.size;
    return size[LOONG_AXIS_TP] * size[LOONG_AXIS_CP];
}

/* Which of a component's pipelines a rank of the cell is of; -1: none. */
int loongi_place_pipeline(const loong_component_place_t *place, int stages,
                          int cell_rank);

#ifdef __cplusplus
}
#endif

#endif
