/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of the optimizer. */
#ifndef LOONG_OPTIMIZER_SETTINGS_H
#define LOONG_OPTIMIZER_SETTINGS_H

#include "fields.h"
#include "optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Up to the weight decay of all, and behind the rules of it. */
extern const loong_recipe_table_t loongi_optimizer_keys[];

/* The group of the parameters of a component in the scope of an item of
 * optimizer.groups, -1: of all, of a checked recipe. Where the same is said is
 * one group, where nothing is, group 0. */
int loongi_optimizer_item_group(const loong_recipe_t *recipe, const char *role,
                                int64_t item);
/* The same of the second matrices of adapters (finetune.loraplus_lr_ratio). */
int loongi_optimizer_plus_group(const loong_recipe_t *recipe, const char *role);

/* Reads the keys of optimizer: of a checked recipe but the schedule of rates
 * and scopes. */
void loongi_optimizer_settings(const loong_recipe_t *recipe,
                               loong_optimizer_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
