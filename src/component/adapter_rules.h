/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of adapters (finetune), as rules over parameters. */
#ifndef LOONG_ADAPTER_RULES_H
#define LOONG_ADAPTER_RULES_H

#include "base.h"
#include "fields.h"
#include "loong/family.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_recipe_table_t loongi_adapter_keys;

/* Fills adapters and what is trained beside them, of the component with the
 * loss where the recipe has adapters; nothing otherwise. */
LOONG_NODISCARD loong_status_t
loongi_adapter_rules_read(const loong_recipe_t *recipe, const char *role,
                          loong_arena_t *arena, loong_param_rules_t *rules);

#ifdef __cplusplus
}
#endif

#endif
