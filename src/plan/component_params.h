/* SPDX-License-Identifier: Apache-2.0
 *
 * What a component is asked to be. */
#ifndef LOONG_COMPONENT_PARAMS_H
#define LOONG_COMPONENT_PARAMS_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of layout, schedule, precision and products. */
extern const loong_recipe_table_t loongi_layout_keys;

/* Fills all that the recipe says, beside the model, in params; segments: the
 * most that a sample has. Lists are in the arena. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_component_params(const loong_plan_t *plan, int64_t segments,
                        loong_arena_t *arena, loong_component_params_t *params);

/* The part of it that each component may say for itself: precision and
 * recomputation. */
LOONG_NODISCARD loong_status_t
loongi_component_own(const loong_plan_t *plan, loong_arena_t *arena,
                     loong_component_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
