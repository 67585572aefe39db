/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe takes from a Hugging Face directory beside its weights. */
#ifndef LOONG_FROM_HF_H
#define LOONG_FROM_HF_H

#include "component.h"
#include "loong/family.h"
#include "loong/recipe.h"
#include "pairs.h"
#include "resume_check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a recipe that speaks of other components of a directory of several alone:
 * the component with the loss, by which the phase of training is known. */
LOONG_NODISCARD loong_status_t loongi_recipe_fill_loss(loong_context_t *ctx,
                                                       loong_recipe_t *recipe);
/* See loong_trainer_fill_recipe. */
LOONG_NODISCARD loong_status_t loongi_recipe_fill(loong_context_t *ctx,
                                                  loong_recipe_t *recipe,
                                                  bool tells);
/* The directory that the component with the loss is from; NULL: none. */
const char *loongi_recipe_hf_dir(const loong_recipe_t *recipe);
/* A checkpoint without a recipe, of an import: what its metadata says of the
 * model, against the recipe. Errors: LOONG_ERR_MISMATCH, with every key. */
LOONG_NODISCARD loong_status_t loongi_check_import(loong_context_t *ctx,
                                                   const loong_recipe_t *recipe,
                                                   const loong_pairs_t *meta);

/* What cannot be exported at the end is refused at the start; with `judged`
 * that it could not be later is told. adapters: NULL, there are none. */
LOONG_NODISCARD loong_status_t
loongi_check_export(loong_context_t *ctx, const loong_recipe_t *recipe,
                    const loong_model_keys_t *model,
                    const loong_adapters_t *adapters, bool judged);
/* The same of what is trained beside adapters, once it is known. component: the
 * one with the loss; model: its keys. */
LOONG_NODISCARD loong_status_t loongi_check_export_saved(
    const loong_recipe_t *recipe, const loong_component_t *component,
    const loong_pairs_t *model);

#ifdef __cplusplus
}
#endif

#endif
