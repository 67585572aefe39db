/* SPDX-License-Identifier: Apache-2.0
 *
 * From the model keys of a recipe to a configured family. */
#include <stdio.h>
#include <string.h>

#include "earlier.h"
#include "from_hf.h"
#include "param_rules.h"
#include "trainer_impl.h"

/* The names there are, as "a, b, c", and the nearest to a name. */
static loong_status_t unknown_family(loong_trainer_t *t, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "model.%s.family",
             loongi_model_role(t->recipe));
    loong_text_t names = loongi_text_begin(t->ctx);
    const char *near = "";
    int best = 4;
    for (int64_t i = 0; loong_family_at(t->ctx, i) != NULL; i++) {
        const char *other = loong_family_at(t->ctx, i)->name;
        int distance = loongi_edit_distance(name != NULL ? name : "", other,
                                            best);
        near = distance < best ? other : near;
        best = LOONG_MIN(best, distance);
        loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "", other);
    }
    loong_status_t status =
        name == NULL
            ? LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                         "no model: model: FAMILY/SIZE takes a preset, "
                         "model.from_hf what config.json of a directory says, "
                         "%s one of %s", path, loongi_text_get(&names))
            : LOONG_FAIL(t->ctx, LOONG_ERR_CONFIG,
                         "%s: %s: found %s%s%s%s are %s",
                         loong_recipe_where(t->recipe, path), path, name,
                         near[0] != '\0' ? "; did you mean " : "", near,
                         near[0] != '\0' ? "? There" : "; there",
                         loongi_text_get(&names));
    loongi_text_free(&names);
    return status;
}

static loong_status_t add_pair(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* Does not overrule what the recipe says. */
static loong_status_t add_stated(void *user, const char *key,
                                 const char *value)
{
    return loongi_pairs_get(user, key) != NULL
               ? LOONG_OK
               : loongi_pairs_set(user, key, value);
}

loong_status_t loongi_trainer_model(loong_trainer_t *t,
                                    loong_component_params_t *params)
{
    const char *name = loongi_model_family(t->recipe);
    const loong_family_t *family =
        name != NULL ? loong_find_family(t->ctx, name) : NULL;
    void *config = NULL;
    char path[64];
    const char *second = loong_recipe_component(t->recipe, 1);
    LOONG_CHECK(t->ctx, second == NULL, LOONG_ERR_CONFIG,
                "model: %s and %s: one component is trained, edges between "
                "several are not there yet",
                loong_recipe_component(t->recipe, 0), second);
    if (family == NULL) {
        return unknown_family(t, name);
    }
    params->name = loongi_model_role(t->recipe);
    snprintf(path, sizeof(path), "model.%s", params->name);
    LOONG_TRY(loongi_pairs_create(t->ctx, &t->model_keys));
    LOONG_TRY(loongi_each_model_key(t->recipe, add_pair, t->model_keys));
    loong_arena_t *arena = t->model_keys->arena;
    LOONG_TRY(loongi_arena_alloc(arena, family->config_size, &config));
    LOONG_TRY(family->configure(t->ctx, t->recipe, path, config));
    if (family->state != NULL) {
        LOONG_TRY(family->state(config, add_stated, t->model_keys));
    }
    bool judged = t->plan.judge && loong_comm_rank(t->comm) == 0;
    LOONG_TRY(loongi_check_export(t->ctx, t->recipe, t->model_keys, judged));
    params->family = family;
    params->config = config;
    return loongi_param_rules_read(t->recipe, arena, &params->request.rules);
}
