/* SPDX-License-Identifier: Apache-2.0
 *
 * Completes what --print-config shows by what a model's family means. Called by
 * loongrun. Read loong/family.h before. */
#include "loongrun_config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loong/family.h"

#define MODEL_KEY "model.foundation"

static loong_status_t set_stated(void *user, const char *key,
                                 const char *value)
{
    char path[256];
    char number[40];
    snprintf(path, sizeof(path), MODEL_KEY ".%s", key);
    if (strpbrk(value, ".e") != NULL && isdigit((unsigned char)value[0])) {
        double wanted = strtod(value, NULL); /* as short as it reads back */
        int digits = 1;
        do {
            snprintf(number, sizeof(number), "%.*g", digits, wanted);
        } while (strtod(number, NULL) != wanted && digits++ < 17);
        value = number;
    }
    return loong_recipe_is_set(user, path)
               ? LOONG_OK
               : loong_recipe_set(user, path, value, "default of the family");
}

loong_status_t config_state_family(loong_context_t *ctx, loong_recipe_t *recipe)
{
    const char *name = loong_recipe_text(recipe, MODEL_KEY ".family");
    const loong_family_t *family =
        name != NULL ? loong_find_family(ctx, name) : NULL;
    if (family == NULL || family->state == NULL) {
        return LOONG_OK;
    }
    void *config = calloc(1, family->config_size);
    loong_status_t status = config == NULL ? LOONG_ERR_MEMORY : LOONG_OK;
    if (status == LOONG_OK &&
        family->configure(ctx, recipe, MODEL_KEY, config) == LOONG_OK) {
        status = family->state(config, set_stated, recipe);
    } else {
        loong_context_clear_error(ctx);
    }
    free(config);
    return status;
}
