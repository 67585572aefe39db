/* SPDX-License-Identifier: Apache-2.0
 *
 * What --print-config shows beside the recipe. */
#ifndef LOONGRUN_CONFIG_H
#define LOONGRUN_CONFIG_H

#include "loong/recipe.h"

/* Sets what the model's family means by keys that nobody has set, as a
 * checkpoint states it. A model that is wrong stays as it is. */
loong_status_t config_state_family(loong_context_t *ctx,
                                   loong_recipe_t *recipe);

#endif
