/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of every stage hold. Building is pure, so any rank can plan
 * the others. Of the ranks of a stage the one that holds most: sizes that do
 * not divide give the last tensor parallel rank most, and with components that
 * others read all of its ranks are looked at, up to 32. */
#ifndef LOONG_STAGE_PLANS_H
#define LOONG_STAGE_PLANS_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What any rank holds, on its own mesh. Not collective. */
LOONG_NODISCARD loong_status_t loongi_stage_plans_model(
    const loong_plan_t *plan, int rank, loong_model_t **model_p);

/* Plans them, once: t->stage_plans, by the rank of the pipeline, and behind
 * these of ranks without the component with the loss, and of a model of
 * several components one for each further kind of device that has a stage;
 * t->component where that is the rank. Of a model of one component pipelines
 * that have other kinds of devices or another share of a step come one behind
 * the other, that of this rank first. In a plan of ranks that are not there
 * t->memory becomes that of the largest of this rank's kind. Not collective. */
LOONG_NODISCARD loong_status_t loongi_stage_plans_create(loong_plan_t *plan);
void loongi_stage_plans_destroy(loong_plan_t *plan);

/* How many of them are of this rank's pipeline, or of other components. */
int loongi_stage_plans_own(const loong_plan_t *plan);
/* The first of the data-parallel ranks that pipeline `index` stands for. */
int loongi_stage_plans_replica(const loong_plan_t *plan, int index);
/* Have the stages of two data-parallel ranks the same kinds of devices, and
 * these as many micro-batches of a step? */
bool loongi_stage_plans_alike(const loong_plan_t *plan, int a, int b);
/* Of what is planned, the kind of its device, and its memory in all classes. */
const char *loongi_stage_plans_kind(const loong_plan_t *plan, int index);
int64_t loongi_stage_plans_bytes(const loong_plan_t *plan, int index);

/* A table of their memory by class. */
void loongi_stage_plans_describe(const loong_plan_t *plan, loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
