/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint's run beside the run that goes on from it. */
#ifndef LOONG_RESUME_CHECK_H
#define LOONG_RESUME_CHECK_H

#include <stdbool.h>

#include "loong/recipe.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The components of a model, the last one with the loss: what each is. */
typedef struct loong_model_keys {
    int count;
    const char *role[LOONG_MODEL_ROLES];
    loong_pairs_t *keys[LOONG_MODEL_ROLES];
} loong_model_keys_t;

/* Of the recipe, and of metadata: there never auto. */
#define LOONG_PARAMS_DTYPE "precision.params_dtype"

/* Adds to a checkpoint's metadata what loongi_resume_check compares of a
 * recipe. */
LOONG_NODISCARD loong_status_t loongi_resume_describe(loong_recipe_t *recipe,
                                                      const char *dtype,
                                                      loong_pairs_t *meta);

/* The recipe of a checkpoint from its metadata's text, with the caller's own
 * keys as the recipe of now declares them. */
LOONG_NODISCARD loong_status_t loongi_resume_parse(const char *text,
                                                   const loong_recipe_t *now,
                                                   loong_recipe_t **recipe_p);

/* meta: of the checkpoint, with its recipe, which may have the caller's own
 * keys, as the recipe of now declares them. model: the keys of the model of
 * now, those included that its family states. dtype: what params_dtype is now.
 * Models are compared by what they are: a default that is written out is no
 * change, a family's default that is another one by now is. An evaluation asks
 * for the same model, not how it learns, and nothing else. Errors:
 * LOONG_ERR_MISMATCH, of an evaluation LOONG_ERR_CONFIG, with every change. */
LOONG_NODISCARD loong_status_t loongi_resume_check(
    const loong_pairs_t *meta, const loong_recipe_t *now,
    const loong_model_keys_t *model, const char *dtype, bool evaluate_only);

/* Of other code than that of the checkpoint's run: it may have been mended. */
void loongi_resume_warn_extensions(const loong_pairs_t *meta,
                                   const loong_recipe_t *now);

/* A key of a model that says how it begins and learns, not what it is. */
bool loongi_is_of_learning(const char *key);

/* The role of the component with the loss. */
const char *loongi_model_role(const loong_recipe_t *recipe);
/* loong_recipe_each_family_key of a role. */
LOONG_NODISCARD loong_status_t loongi_each_model_key(
    const loong_recipe_t *recipe, const char *role,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user);
/* `fill` of the family's kind (hf_kind.h); others state every key. */
LOONG_NODISCARD loong_status_t loongi_model_fill(loong_context_t *ctx,
                                                 loong_pairs_t *model);
/* The family of a role; NULL: not set. */
const char *loongi_model_family(const loong_recipe_t *recipe, const char *role);

#ifdef __cplusplus
}
#endif

#endif
