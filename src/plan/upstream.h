/* SPDX-License-Identifier: Apache-2.0
 *
 * Components that others read: an image encoder and its projector in front of
 * the component with the loss, each with a layout of its own. The pictures of a
 * micro-batch of all replicas of that component in a cell are dealt evenly to
 * the replicas of the others in it. */
#ifndef LOONG_UPSTREAM_H
#define LOONG_UPSTREAM_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills plan->pictures, and all that is still missing in params[0 .. count-2],
 * which have name, family, config and rules; the last one is complete. Checks
 * their layouts. Lists are in the arena. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_upstream_params(loong_plan_t *plan, loong_arena_t *arena, int count,
                       loong_component_params_t *params);

/* Puts a component on its ranks, as a rank of the job sees it: ranks, mesh and
 * absent. */
LOONG_NODISCARD loong_status_t
loongi_upstream_place(const loong_plan_t *plan, int job_rank,
                      loong_component_params_t *params);

/* Whether a join whose replicas compute apart goes with a layout: ranks that
 * meet in the programs of a component compute at one time, so they must be of
 * one stage of the last one, and all steps have the same micro-batches. Errors:
 * LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_upstream_apart(const loong_plan_t *plan, int count,
                      const loong_component_params_t *params,
                      const loong_cell_ranks_t *cell, const char *join);

#ifdef __cplusplus
}
#endif

#endif
