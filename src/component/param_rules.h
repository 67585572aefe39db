/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of some parameters by their names: which stay fixed,
 * how they start, how much they decay. */
#ifndef LOONG_PARAM_RULES_H
#define LOONG_PARAM_RULES_H

#include "fields.h"
#include "loong/family.h"
#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of weight decay, and of how parameters start. */
extern const loong_recipe_table_t loongi_param_rule_keys[];

/* The texts of a list, in the arena. */
LOONG_NODISCARD loong_status_t loongi_read_globs(const loong_recipe_t *recipe,
                                                 const char *path,
                                                 loong_arena_t *arena,
                                                 int *count_p,
                                                 const char *const **globs_p);

/* Fills the rules of the component of a role, which has so many layers. A glob
 * may begin with a role, as names in checkpoints do; without one it is of all
 * components. Errors: LOONG_ERR_CONFIG, of layers that are not there. */
LOONG_NODISCARD loong_status_t loongi_param_rules_read(
    loong_context_t *ctx, const loong_recipe_t *recipe, const char *role,
    int num_layers, loong_arena_t *arena, loong_param_rules_t *rules);

/* A glob that no parameter matches is a mistake. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_param_rules_check(loong_context_t *ctx, const loong_recipe_t *recipe,
                         const loong_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
