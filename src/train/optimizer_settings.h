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

/* Reads the keys of optimizer: of a checked recipe but rates and rules. */
void loongi_optimizer_settings(const loong_recipe_t *recipe,
                               loong_optimizer_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
