/* SPDX-License-Identifier: Apache-2.0
 *
 * What each data-parallel rank does of a step: as many micro-batches, or in
 * proportion to weights that the recipe has or that were measured before. Never
 * by what a run takes, so that it goes on with the same shares wherever it is
 * resumed. */
#ifndef LOONG_PLAN_SHARES_H
#define LOONG_PLAN_SHARES_H

#include "json.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The member of a file of speeds: of a kind of device micro-batches in a
 * million seconds, integers. */
extern const char loongi_speeds_member[];

/* Sets plan->weights, where the recipe asks for any: rank 0's, in the arena.
 * Collective. Errors: LOONG_ERR_CONFIG, LOONG_ERR_FORMAT, those of files. */
LOONG_NODISCARD loong_status_t loongi_shares_open(loong_plan_t *plan,
                                                  loong_arena_t *arena);

/* Micro-batches of a data-parallel rank in a step of so many samples. */
int64_t loongi_shares_of_rank(const loong_plan_t *plan, int64_t samples,
                              int data_parallel_rank);

/* Every rank's micro-batches, also of every step of a ramp-up, must be those
 * that the schedule takes and that ranks can meet in. Pure. */
LOONG_NODISCARD loong_status_t loongi_shares_check(const loong_plan_t *plan);

/* "micro-batches of a step: 6 (cuda), 2 (cpu)"; nothing where all have the
 * same. */
void loongi_shares_describe(loong_plan_t *plan);

/* The kind of device that a data-parallel rank has: of several the slowest, by
 * speeds of this file; NULL: the first. */
const char *loongi_shares_kind(const loong_plan_t *plan,
                               const loong_json_t *speeds,
                               int data_parallel_rank);

#ifdef __cplusplus
}
#endif

#endif
