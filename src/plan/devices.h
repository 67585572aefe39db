/* SPDX-License-Identifier: Apache-2.0
 *
 * Which device each rank of a job has: `device`, one kind for all, or
 * `devices`, a list of kinds with their ranks. */
#ifndef LOONG_DEVICES_H
#define LOONG_DEVICES_H

#include "loong/recipe.h"
#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "auto" is the accelerator that every rank finds, which the recipe says from
 * here on, else the processor: one kind for all. Collective. */
LOONG_NODISCARD loong_status_t loongi_devices_settle(loong_plan_t *plan);

/* Refuses a list that leaves out a rank of the plan or names one twice, and
 * what ranks on several kinds of devices would decide differently. */
LOONG_NODISCARD loong_status_t loongi_devices_check(const loong_plan_t *plan);

/* Of a recipe that was checked; "auto": what it was settled to be. */
const char *loongi_devices_kind(const loong_plan_t *plan, int rank);
/* Its memory is the host's. */
bool loongi_devices_is_processor(const loong_plan_t *plan, int rank);
/* The job has devices of several kinds. */
bool loongi_devices_are_mixed(const loong_plan_t *plan);
/* "cuda 0-3, cpu 4-7" */
void loongi_devices_describe(const loong_plan_t *plan, loong_text_t *text);

/* How the ranks' communicators on memory of devices are made. */
LOONG_NODISCARD loong_status_t loongi_devices_staging(
    const loong_plan_t *plan, loong_arena_t *arena, loong_staging_t *staging_p);

/* Sets t->device. Collective on: the job, with a list of devices. */
LOONG_NODISCARD loong_status_t loongi_devices_open(loong_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
