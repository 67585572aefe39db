/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of a component cost, by its configuration alone: so that all
 * ranks, and all runs of a recipe, place its computations alike. */
#ifndef LOONG_STAGE_WORK_H
#define LOONG_STAGE_WORK_H

#include "cell.h"
#include "component.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Floating-point operations of a micro-batch, work[stages of its pipeline];
 * attention as if a micro-batch was full of segments of the longest kind. */
void loongi_stage_work(const loong_component_t *component,
                       loong_stage_work_t *work);

#ifdef __cplusplus
}
#endif

#endif
