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
 * these of ranks without the component with the loss; t->component where that
 * is the rank. In a plan of ranks that are not there t->memory
 * becomes that of the largest. Not collective. */
LOONG_NODISCARD loong_status_t loongi_stage_plans_create(loong_plan_t *plan);
void loongi_stage_plans_destroy(loong_plan_t *plan);

/* A table of their memory by class. */
void loongi_stage_plans_describe(const loong_plan_t *plan, loong_text_t *text);

#ifdef __cplusplus
}
#endif

#endif
