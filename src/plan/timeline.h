/* SPDX-License-Identifier: Apache-2.0
 *
 * The step on a line of time: predicted from costs, or measured. */
#ifndef LOONG_TIMELINE_H
#define LOONG_TIMELINE_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the times of this rank's entries from now on, of the last step. */
LOONG_NODISCARD loong_status_t loongi_timeline_measure(loong_plan_t *plan);
void loongi_timeline_destroy(loong_plan_t *plan);

/* What is measured: the schedule begins; an entry has run from `begin` on. */
void loongi_timeline_begin(loong_plan_t *plan);
void loongi_timeline_mark(loong_plan_t *plan, int64_t index, double begin);

/* Of the costs, that of a chunk of a component, on the rank that it is of. */
int loongi_timeline_stage(const loong_plan_t *plan,
                          const loong_component_t *component, int chunk);
/* Costs of all stages of all components, zero: plan->timeline.costs. */
LOONG_NODISCARD loong_status_t loongi_timeline_costs(loong_plan_t *plan);

/* See loong_trainer_plot. */
LOONG_NODISCARD loong_status_t loongi_timeline_plot(loong_plan_t *plan,
                                                    const char *path,
                                                    const char **text_p);

#ifdef __cplusplus
}
#endif

#endif
