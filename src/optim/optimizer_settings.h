/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of the optimizer. */
#ifndef LOONG_OPTIMIZER_SETTINGS_H
#define LOONG_OPTIMIZER_SETTINGS_H

#include "loong/recipe.h"
#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The group of the parameters in the scope of an item of optimizer.groups, of
 * a checked recipe. Items that say the same are one group, and those that say
 * nothing are group 0, which has what stands beside them. */
int loongi_optimizer_item_group(const loong_recipe_t *recipe, int64_t item);

/* Reads the keys of optimizer: of a checked recipe but the schedule of rates
 * and scopes. */
void loongi_optimizer_settings(const loong_recipe_t *recipe,
                               loong_optimizer_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
