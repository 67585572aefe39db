/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the optimizer keys of a recipe. The plan asks before a component is
 * planned; src/recipe/optimizer_keys.c says which keys a class has. */
#include "optimizer_settings.h"

#include <stdio.h>
#include <string.h>

/* What the class alone reads. */
static void read_class(const loong_recipe_t *r, const char *name,
                       loong_optimizer_group_t *group)
{
    if (strcmp(name, "lion") == 0) {
        group->beta1 = loong_recipe_real(r, "optimizer.lion_beta1");
        group->beta2 = loong_recipe_real(r, "optimizer.lion_beta2");
    } else if (strcmp(name, "sgd") == 0) {
        group->momentum = loong_recipe_real(r, "optimizer.sgd_momentum");
        group->nesterov = loong_recipe_bool(r, "optimizer.sgd_nesterov");
    } else if (strcmp(name, "muon") == 0) {
        const char *mode = loong_recipe_text(r, "optimizer.muon_scale_mode");
        group->momentum = loong_recipe_real(r, "optimizer.muon_momentum");
        group->nesterov = loong_recipe_bool(r, "optimizer.muon_use_nesterov");
        group->ns_steps =
            (int)loong_recipe_int(r, "optimizer.muon_num_ns_steps");
        group->match_rms = strcmp(mode, "match_rms_adamw") == 0;
    } else {
        group->beta1 = loong_recipe_real(r, "optimizer.adam_beta1");
        group->beta2 = loong_recipe_real(r, "optimizer.adam_beta2");
        group->eps = loong_recipe_real(r, "optimizer.adam_eps");
    }
}

static loong_optimizer_group_t read_base(const loong_recipe_t *r)
{
    loong_optimizer_group_t group = {.lr = 1.0};
    const char *name = loong_recipe_text(r, "optimizer.name");
    group.kind = loongi_optimizer_class_number(name);
    group.weight_decay = loong_recipe_real(r, "optimizer.weight_decay");
    read_class(r, name, &group);
    return group;
}

static const char *item_key(int64_t item, const char *key, char path[64])
{
    snprintf(path, 64, "optimizer.groups[%lld].%s", (long long)item, key);
    return path;
}

/* A rate or decay that the path says, where it is set. */
static double rate(const loong_recipe_t *r, const char *path, double otherwise)
{
    return loong_recipe_is_set(r, path) ? loong_recipe_real(r, path)
                                        : otherwise;
}

/* What an item says, then the component of a role, then all. item: -1, and
 * role: NULL, for none. */
static loong_optimizer_group_t group_of(const loong_recipe_t *r,
                                        const char *role, int64_t item)
{
    loong_optimizer_group_t group = read_base(r);
    double all = loong_recipe_real(r, "optimizer.lr");
    double lr = all;
    char path[64];
    if (role != NULL) {
        lr = rate(r, loong_recipe_own_path(r, role, "optimizer.lr"), lr);
        group.weight_decay =
            rate(r, loong_recipe_own_path(r, role, "optimizer.weight_decay"),
                 group.weight_decay);
    }
    if (item >= 0) {
        const char *name = loong_recipe_text(r, item_key(item, "name", path));
        if (name != NULL) {
            group.kind = loongi_optimizer_class_number(name);
            read_class(r, name, &group);
        }
        lr = rate(r, item_key(item, "lr", path), lr);
        group.weight_decay =
            rate(r, item_key(item, "weight_decay", path), group.weight_decay);
    }
    group.lr = lr != all ? lr / all : 1.0;
    return group;
}

/* The number of a group that is like this one; it is added if there is none.
 * Classes of one kind read the same keys. */
static int find_group(loong_optimizer_params_t *params,
                      const loong_optimizer_group_t *group)
{
    int i = 0;
    while (i < params->num_groups &&
           (params->group[i].kind != group->kind ||
            params->group[i].lr != group->lr ||
            params->group[i].weight_decay != group->weight_decay)) {
        i++;
    }
    if (i == params->num_groups) {
        params->group[params->num_groups++] = *group;
    }
    return i;
}

_Static_assert(LOONG_RECIPE_MAX_GROUPS == (int)LOONG_MAX_OPT_GROUPS,
               "what a recipe may ask for");

/* Of the second matrices of adapters. */
static loong_optimizer_group_t plus_of(const loong_recipe_t *r,
                                       const char *role)
{
    loong_optimizer_group_t group = group_of(r, role, -1);
    group.lr *= loong_recipe_real(r, "finetune.loraplus_lr_ratio");
    return group;
}

/* All groups there are, those of no item first. */
static void read_groups(const loong_recipe_t *r,
                        loong_optimizer_params_t *params)
{
    int64_t items = loong_recipe_count(r, "optimizer.groups");
    params->num_groups = 0;
    for (int64_t i = -1; i < items; i++) {
        const char *role = NULL;
        for (int64_t k = 0; k == 0 || role != NULL; k++) {
            loong_optimizer_group_t group = group_of(r, role, i);
            (void)find_group(params, &group);
            group = plus_of(r, role);
            if (i < 0) {
                (void)find_group(params, &group);
            }
            role = loong_recipe_component(r, k);
        }
    }
}

int loongi_optimizer_plus_group(const loong_recipe_t *recipe, const char *role)
{
    loong_optimizer_params_t params;
    loong_optimizer_group_t group = plus_of(recipe, role);
    read_groups(recipe, &params);
    return find_group(&params, &group);
}

int loongi_optimizer_item_group(const loong_recipe_t *recipe, const char *role,
                                int64_t item)
{
    loong_optimizer_params_t params;
    loong_optimizer_group_t group = group_of(recipe, role, item);
    read_groups(recipe, &params);
    return find_group(&params, &group);
}

void loongi_optimizer_settings(const loong_recipe_t *r,
                               loong_optimizer_params_t *params)
{
    read_groups(r, params);
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        char key[64];
        snprintf(key, sizeof(key), "optimizer.%s_dtype", loongi_state_name(i));
        params->bf16[i] = strcmp(loong_recipe_text(r, key), "bf16") == 0;
    }
    params->stochastic_rounding =
        loong_recipe_bool(r, "optimizer.stochastic_rounding");
    params->ema = (loong_ema_t){
        .decay = loong_recipe_real(r, "optimizer.ema.decay"),
        .start = loong_recipe_int(r, "optimizer.ema.update_after_step"),
        .warmup = loong_recipe_bool(r, "optimizer.ema.use_ema_warmup"),
        .evaluates = loong_recipe_bool(r, "eval.ema")};
}
