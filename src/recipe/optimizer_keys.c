/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys of optimizer: belong to which class of optimizers. together.c
 * calls it; each key alone was checked against the schema. */
#include <stdio.h>
#include <string.h>

#include "problems.h"
#include "recipe_impl.h"

/* What a class alone reads; all classes read the rest. */
static const struct {
    const char *key;
    const char *classes; /* one behind the other */
} owned[] = {
    {"optimizer.adam_beta1", "adamw"},
    {"optimizer.adam_beta2", "adamw"},
    {"optimizer.adam_eps", "adamw"},
    {"optimizer.lion_beta1", "lion"},
    {"optimizer.lion_beta2", "lion"},
    {"optimizer.sgd_momentum", "sgd"},
    {"optimizer.sgd_nesterov", "sgd"},
    {"optimizer.exp_avg_dtype", "adamw lion"},
    {"optimizer.exp_avg_sq_dtype", "adamw"},
    {"optimizer.momentum_buffer_dtype", "sgd"},
};

/* No name of a class is part of another's. */
static bool is_among(const char *classes, const char *name)
{
    return strstr(classes, name) != NULL;
}

static bool stores_bf16(const loong_recipe_t *recipe)
{
    bool found = false;
    for (int64_t i = 0; i < LOONG_COUNT_OF(owned); i++) {
        const char *text = loong_recipe_text(recipe, owned[i].key);
        found = found || (text != NULL && strcmp(text, "bf16") == 0);
    }
    return found;
}

void loongi_optimizer_keys_check(const loong_recipe_t *recipe,
                                 loong_problems_t *problems)
{
    const char *name = loong_recipe_text(recipe, "optimizer.name");
    const char *chance = "optimizer.stochastic_rounding";
    const char *ahead = "optimizer.sgd_nesterov";
    for (int64_t i = 0; i < LOONG_COUNT_OF(owned); i++) {
        if (loong_recipe_is_set(recipe, owned[i].key) &&
            !is_among(owned[i].classes, name)) {
            loongi_problems_add(problems,
                                "%s: %s: a key of %s, optimizer.name is %s",
                                loong_recipe_where(recipe, owned[i].key),
                                owned[i].key, owned[i].classes, name);
        }
    }
    if (loong_recipe_bool(recipe, ahead) &&
        loong_recipe_real(recipe, "optimizer.sgd_momentum") == 0.0) {
        loongi_problems_add(problems,
                            "%s: %s: has no effect with "
                            "optimizer.sgd_momentum 0",
                            loong_recipe_where(recipe, ahead), ahead);
    }
    if (loong_recipe_bool(recipe, chance) && !stores_bf16(recipe)) {
        loongi_problems_add(problems,
                            "%s: %s: has no effect: no state of the optimizer "
                            "is stored in bf16",
                            loong_recipe_where(recipe, chance), chance);
    }
}
