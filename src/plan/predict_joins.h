/* SPDX-License-Identifier: Apache-2.0
 *
 * What joins make of a step: the same programs at the places that each has for
 * them. */
#ifndef LOONG_PREDICT_JOINS_H
#define LOONG_PREDICT_JOINS_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds a line to plan->text for each join, simulated with plan->timeline.costs,
 * or why the layout does not allow it; in front of them one for the step with
 * what others read on the first stage alone. Nothing for a model of one
 * component. */
LOONG_NODISCARD loong_status_t loongi_predict_joins(loong_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
