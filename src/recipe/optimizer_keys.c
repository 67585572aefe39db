/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys of optimizer: belong to which class of optimizers. together.c
 * calls it; each key alone was checked against the schema. Read
 * src/optim/optimizer_settings.c before. */
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
    {"optimizer.muon_momentum", "muon"},
    {"optimizer.muon_use_nesterov", "muon"},
    {"optimizer.muon_num_ns_steps", "muon"},
    {"optimizer.muon_scale_mode", "muon"},
    {"optimizer.exp_avg_dtype", "adamw lion"},
    {"optimizer.exp_avg_sq_dtype", "adamw"},
    {"optimizer.momentum_buffer_dtype", "sgd muon"},
};

static const char *item_key(int64_t item, const char *key, char path[64])
{
    snprintf(path, 64, "optimizer.groups[%lld].%s", (long long)item, key);
    return path;
}

/* Whether one of these classes has parameters; no name of a class is part of
 * another's. */
static bool is_used(const loong_recipe_t *recipe, const char *classes)
{
    int64_t items = loong_recipe_count(recipe, "optimizer.groups");
    const char *base = loong_recipe_text(recipe, "optimizer.name");
    bool found = items == 0 && strstr(classes, base) != NULL;
    for (int64_t i = 0; i < items; i++) {
        char path[64];
        const char *name = loong_recipe_text(recipe, item_key(i, "name", path));
        found = found || strstr(classes, name != NULL ? name : base) != NULL;
    }
    return found;
}

static void check_rate(const loong_recipe_t *recipe, const char *path,
                       loong_problems_t *problems)
{
    if (loong_recipe_is_set(recipe, path) &&
        loong_recipe_real(recipe, "optimizer.lr") == 0.0) {
        loongi_problems_add(problems,
                            "%s: %s: follows the schedule in proportion to "
                            "optimizer.lr, which is 0",
                            loong_recipe_where(recipe, path), path);
    }
}

/* Components with a rate or decay of their own. */
static int64_t check_components(const loong_recipe_t *recipe,
                                loong_problems_t *problems)
{
    int64_t count = 0;
    const char *role = NULL;
    for (int64_t i = 0;
         (role = loong_recipe_component(recipe, i)) != NULL; i++) {
        char lr[64];
        char decay[64];
        snprintf(lr, sizeof(lr), "model.%s.optimizer.lr", role);
        snprintf(decay, sizeof(decay), "model.%s.optimizer.weight_decay", role);
        check_rate(recipe, lr, problems);
        count += loong_recipe_is_set(recipe, lr) ||
                 loong_recipe_is_set(recipe, decay);
    }
    return count;
}

static void check_items(const loong_recipe_t *recipe,
                        loong_problems_t *problems)
{
    int64_t items = loong_recipe_count(recipe, "optimizer.groups");
    int64_t own = check_components(recipe, problems);
    int64_t most = LOONG_RECIPE_MAX_GROUPS / (1 + own) - 1;
    char path[64];
    if (items > most) {
        loongi_problems_add(problems,
                            "%s: optimizer.groups: %lld items, up to %lld "
                            "allowed%s",
                            loong_recipe_where(recipe, "optimizer.groups"),
                            (long long)items, (long long)most,
                            own > 0 ? " beside rates of components" : "");
    }
    for (int64_t i = 0; i < items; i++) {
        check_rate(recipe, item_key(i, "lr", path), problems);
    }
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
    const char *chance = "optimizer.stochastic_rounding";
    const char *ahead = "optimizer.sgd_nesterov";
    const char *bytes = "optimizer.momentum_buffer_dtype";
    for (int64_t i = 0; i < LOONG_COUNT_OF(owned); i++) {
        if (loong_recipe_is_set(recipe, owned[i].key) &&
            !is_used(recipe, owned[i].classes)) {
            loongi_problems_add(problems,
                                "%s: %s: a key of %s, no parameter has that "
                                "class; optimizer.name is %s",
                                loong_recipe_where(recipe, owned[i].key),
                                owned[i].key, owned[i].classes,
                                loong_recipe_text(recipe, "optimizer.name"));
        }
    }
    if (is_used(recipe, "muon") &&
        strcmp(loong_recipe_text(recipe, bytes), "bf16") == 0) {
        loongi_problems_add(problems,
                            "%s: %s: bf16, muon's buffer is in fp32 alone",
                            loong_recipe_where(recipe, bytes), bytes);
    }
    check_items(recipe, problems);
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
