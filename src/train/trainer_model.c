/* SPDX-License-Identifier: Apache-2.0
 *
 * From the model keys of a recipe to a configured family. */
#include <stdio.h>
#include <string.h>

#include "earlier.h"
#include "file.h"
#include "hf_code.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "native.h"
#include "param_rules.h"
#include "trainer_hf.h"

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

/* A published model is no place for what is made of it. */
static loong_status_t check_no_source(const loong_trainer_t *t,
                                      const char *dir)
{
    static const char *const keys[] = {"init.from_hf", "model.from_hf"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        const char *from = loong_recipe_text(t->recipe, keys[i]);
        LOONG_CHECK(t->ctx, from == NULL || !loongi_file_same(dir, from),
                    LOONG_ERR_CONFIG,
                    "export.hf: '%s' is the directory of %s: the model in it "
                    "would be replaced, another directory is wanted", dir,
                    keys[i]);
    }
    return LOONG_OK;
}

/* dir: to be written, or NULL. */
static loong_status_t check_as(loong_trainer_t *t, const char *dir,
                               loong_pairs_t *code)
{
    loong_hf_map_t *map = NULL;
    loong_pairs_t *model = NULL;
    if (dir != NULL) {
        LOONG_TRY(loongi_checkpoint_check_outside(t->ctx, dir));
        LOONG_TRY(check_no_source(t, dir));
    }
    LOONG_TRY(loongi_trainer_code(t, code));
    LOONG_TRY(loongi_hf_model_as(
        t->ctx, t->model_keys, loong_recipe_text(t->recipe, "export.as"),
        loongi_pairs_get(code, LOONG_HF_AUTO_MAP) != NULL, &model));
    loong_status_t status = loongi_hf_map_create(t->ctx, model, &map);
    loongi_hf_map_destroy(&map);
    if (status == LOONG_OK) {
        status = loongi_hf_config_check(t->ctx, model);
    }
    if (status == LOONG_OK && dir != NULL) {
        status = loongi_hf_check_replaced(t->ctx, dir, model);
    }
    loongi_pairs_destroy(&model);
    return status;
}

/* What cannot be exported at the end is refused at the start; that it could not
 * be later, a judged plan tells. */
static loong_status_t check_export(loong_trainer_t *t)
{
    const char *dir = loong_recipe_text(t->recipe, "export.hf");
    loong_pairs_t *code = NULL;
    if (dir == NULL && (!t->plan.judge || loong_comm_rank(t->comm) != 0)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_create(t->ctx, &code));
    loong_status_t status = check_as(t, dir, code);
    loongi_pairs_destroy(&code);
    if (status != LOONG_OK && dir != NULL) {
        loongi_error_note(t->ctx, "wanted for export.hf");
        status = status == LOONG_ERR_UNSUPPORTED ? LOONG_ERR_CONFIG : status;
    } else if (status != LOONG_OK) {
        loongi_log(t->ctx, LOONG_LOG_WARN,
                   "the model as it is cannot be exported to Hugging Face "
                   "form: %s",
                   loong_context_error(t->ctx));
        loong_context_clear_error(t->ctx);
        status = LOONG_OK;
    }
    return status;
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
    LOONG_TRY(check_export(t));
    params->family = family;
    params->config = config;
    return loongi_param_rules_read(t->recipe, arena, &params->request.rules);
}
