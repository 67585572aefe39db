/* SPDX-License-Identifier: Apache-2.0
 *
 * The recipe that a checkpoint keeps, read for a comparison. */
#ifndef LOONG_EARLIER_H
#define LOONG_EARLIER_H

#include "base.h"
#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* It may have the caller's own keys, as the recipe of now declares them. Layers
 * with experts are written as the recipe of now writes them, where they
 * are the same: [0]*1+[1]*26 and [0]+[1]* of 27 layers. */
LOONG_NODISCARD loong_status_t
loongi_earlier_recipe(loong_context_t *ctx, const char *text,
                      const loong_recipe_t *now, loong_recipe_t **earlier_p);

#ifdef __cplusplus
}
#endif

#endif
