/* SPDX-License-Identifier: Apache-2.0
 *
 * What the purpose of a run says where its recipe says nothing: fine-tuning, an
 * evaluation, the plan of a model alone. Keys are set in the recipe, with their
 * origin, so that they are printed and saved like those that were written. Not
 * collective. */
#ifndef LOONG_COMPLETE_H
#define LOONG_COMPLETE_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* training_phase: sft, also where finetune.method is set and no phase is;
 * weights from where the model is. */
LOONG_NODISCARD loong_status_t loongi_complete_phase(loong_recipe_t *recipe);
/* When the components are known: learning rate, packing, checkpoints beside
 * export.hf, and of a model that sees pictures that the published parts before
 * the language model stay. What needs the ranks or the data comes later. */
LOONG_NODISCARD loong_status_t
loongi_complete_finetuning(loong_recipe_t *recipe);
bool loongi_recipe_finetunes(const loong_recipe_t *recipe);

/* Of fine-tuning: `rows` as the batch, or as many as the ranks make of them. */
LOONG_NODISCARD loong_status_t loongi_complete_batch(loong_plan_t *plan,
                                                     int64_t rows);

/* What these two, the rows of the data and the day would set is as in the
 * recipe of the run that this one goes on with, if that was a fine-tuning, too;
 * an evaluation takes the day alone. */
LOONG_NODISCARD loong_status_t
loongi_complete_resumed(loong_plan_t *plan, const loong_recipe_t *before);

/* An evaluation needs nothing that is about training. */
LOONG_NODISCARD loong_status_t loongi_complete_evaluation(loong_plan_t *plan);

/* A recipe that is a model, and at most the length of samples, still has a
 * plan: that of one micro-batch a rank. longest: of a sample that the model
 * knows; 0: no bound. */
LOONG_NODISCARD loong_status_t loongi_complete_model(loong_plan_t *plan,
                                                     int64_t longest);

#ifdef __cplusplus
}
#endif

#endif
