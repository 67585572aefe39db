/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer_create.c asks before the component is planned;
 * src/recipe/optimizer_keys.c says which keys a class has. */
#include "optimizer_settings.h"

#include <stdio.h>
#include <string.h>

static void read_betas(const loong_recipe_t *r, const char *name,
                       loong_optimizer_group_t *group)
{
    if (strcmp(name, "lion") == 0) {
        group->beta1 = loong_recipe_real(r, "optimizer.lion_beta1");
        group->beta2 = loong_recipe_real(r, "optimizer.lion_beta2");
    } else if (strcmp(name, "sgd") == 0) {
        group->momentum = loong_recipe_real(r, "optimizer.sgd_momentum");
        group->nesterov = loong_recipe_bool(r, "optimizer.sgd_nesterov");
    } else {
        group->beta1 = loong_recipe_real(r, "optimizer.adam_beta1");
        group->beta2 = loong_recipe_real(r, "optimizer.adam_beta2");
        group->eps = loong_recipe_real(r, "optimizer.adam_eps");
    }
}

void loongi_optimizer_settings(const loong_recipe_t *r,
                               loong_optimizer_params_t *params)
{
    const char *name = loong_recipe_text(r, "optimizer.name");
    loong_optimizer_group_t *group = &params->group[0];
    group->kind = loongi_optimizer_class_number(name);
    group->weight_decay = loong_recipe_real(r, "optimizer.weight_decay");
    read_betas(r, name, group);
    for (int i = 0; i < LOONG_STATE_COUNT; i++) {
        char key[64];
        snprintf(key, sizeof(key), "optimizer.%s_dtype", loongi_state_name(i));
        params->bf16[i] = strcmp(loong_recipe_text(r, key), "bf16") == 0;
    }
    params->stochastic_rounding =
        loong_recipe_bool(r, "optimizer.stochastic_rounding");
}
