/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a checkpoint's run with that of now, for trainer_save.c, before any
 * tensor is read. Read src/recipe/compare.c first. */
#include "resume_check.h"

#include <stdio.h>
#include <string.h>

#include "hf_kind.h"
#include "loong/family.h"
#include "recipe_impl.h"
#include "view.h"

const char *loongi_model_role(const loong_recipe_t *recipe)
{
    const char *role = LOONG_DEFAULT_ROLE;
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        role = loong_recipe_component(recipe, i);
    }
    return role;
}

loong_status_t loongi_each_model_key(
    const loong_recipe_t *recipe, const char *role,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user)
{
    char path[64];
    snprintf(path, sizeof(path), "model.%s", role);
    return loong_recipe_each_family_key(recipe, path, visit, user);
}

const char *loongi_model_family(const loong_recipe_t *recipe, const char *role)
{
    char path[64];
    snprintf(path, sizeof(path), "model.%s.family", role);
    return loong_recipe_text(recipe, path);
}

loong_status_t loongi_model_fill(loong_context_t *ctx, loong_pairs_t *model)
{
    const loong_hf_kind_t *kind =
        loongi_hf_kind_find(ctx, loongi_pairs_get(model, "family"));
    return kind != NULL ? kind->fill(ctx, model) : LOONG_OK;
}

#define EXTENSIONS_HASH "extensions_hash" /* of metadata */

enum { BEFORE, AFTER };

typedef struct comparison {
    loong_context_t *ctx;
    loong_recipe_t *recipe;
    const loong_recipe_t *now;
    const char *role;         /* of the component that is looked at */
    loong_pairs_t *stated[2]; /* by each run */
    loong_pairs_t *whole[2];  /* and what it leaves to defaults */
    loong_pairs_t *meant[2];  /* what is compared, by path */
} comparison_t;

static loong_status_t fill(const comparison_t *e, int side)
{
    loong_status_t status = loongi_model_fill(e->ctx, e->whole[side]);
    if (status == LOONG_ERR_CONFIG) { /* it was allowed then */
        loong_context_clear_error(e->ctx);
        status = LOONG_OK;
    }
    return status;
}

/* A key counts that one of the recipes sets or that both models state: what
 * only one of them states has no effect in the other. What may change is
 * listed as the recipes have it. */
static bool does_count(const comparison_t *e, const char *key, const char *path)
{
    const loong_recipe_key_t *rule = loongi_recipe_find(e->now, path);
    if (rule == NULL || rule->resume == LOONG_RESUME_FREE) {
        return false;
    }
    return loong_recipe_is_set(e->recipe, path) ||
           loong_recipe_is_set(e->now, path) ||
           (loongi_pairs_get(e->stated[BEFORE], key) != NULL &&
            loongi_pairs_get(e->stated[AFTER], key) != NULL);
}

static loong_status_t add_model(const comparison_t *e)
{
    for (int64_t i = 0; i < e->whole[BEFORE]->count; i++) {
        const loong_pair_t *before = &e->whole[BEFORE]->items[i];
        const char *after = loongi_pairs_get(e->whole[AFTER], before->key);
        char path[LOONG_RECIPE_PATH];
        snprintf(path, sizeof(path), "model.%s.%s", e->role, before->key);
        if (after != NULL && does_count(e, before->key, path)) {
            LOONG_TRY(loongi_pairs_set(e->meant[BEFORE], path, before->value));
            LOONG_TRY(loongi_pairs_set(e->meant[AFTER], path, after));
        }
    }
    return LOONG_OK;
}

static loong_status_t read_model(comparison_t *e, const loong_pairs_t *meta,
                                 const loong_pairs_t *model)
{
    LOONG_TRY(loongi_pairs_create(e->ctx, &e->stated[BEFORE]));
    LOONG_TRY(loongi_view_model_keys(meta, e->role, e->stated[BEFORE]));
    LOONG_TRY(loongi_pairs_copy(e->ctx, model, &e->stated[AFTER]));
    for (int side = BEFORE; side <= AFTER; side++) {
        LOONG_TRY(loongi_pairs_copy(e->ctx, e->stated[side], &e->whole[side]));
        LOONG_TRY(fill(e, side));
    }
    return add_model(e);
}

static loong_status_t read_models(comparison_t *e, const loong_pairs_t *meta,
                                  const loong_model_keys_t *model)
{
    loong_status_t status = LOONG_OK;
    for (int side = BEFORE; side <= AFTER; side++) {
        LOONG_TRY(loongi_pairs_create(e->ctx, &e->meant[side]));
    }
    for (int i = 0; i < model->count && status == LOONG_OK; i++) {
        e->role = model->role[i];
        status = read_model(e, meta, model->keys[i]);
        for (int side = BEFORE; side <= AFTER; side++) {
            loongi_pairs_destroy(&e->whole[side]);
            loongi_pairs_destroy(&e->stated[side]);
        }
    }
    return status;
}

static loong_status_t add_dtype(const comparison_t *e,
                                const loong_pairs_t *meta, const char *dtype)
{
    const char *before = loongi_pairs_get(meta, LOONG_PARAMS_DTYPE);
    if (before == NULL) {
        before = loong_recipe_text(e->recipe, LOONG_PARAMS_DTYPE);
    }
    if (strcmp(before, "auto") == 0) {
        loongi_log(e->ctx, LOONG_LOG_INFO,
                   "the checkpoint does not say what " LOONG_PARAMS_DTYPE
                   " auto was, now it is %s",
                   dtype);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_set(e->meant[BEFORE], LOONG_PARAMS_DTYPE, before));
    return loongi_pairs_set(e->meant[AFTER], LOONG_PARAMS_DTYPE, dtype);
}

bool loongi_is_of_learning(const char *key)
{
    static const char *const keys[] = {"freeze",
                                       "attention_dropout",
                                       "hidden_dropout",
                                       "embedding_dropout",
                                       "init_method_std",
                                       "embedding_init_method_std",
                                       "use_scaled_init_method",
                                       "moe_router_bias_update_rate",
                                       "moe_router_load_balancing_type",
                                       "moe_aux_loss_coeff",
                                       "moe_z_loss_coeff"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

typedef struct evaluation {
    const loong_recipe_t *now;
    loong_problems_t problems;
} evaluation_t;

static loong_status_t judge_model(void *user,
                                  const loong_recipe_change_t *change)
{
    evaluation_t *v = user;
    for (int64_t i = 0; loong_recipe_component(v->now, i) != NULL; i++) {
        char model[64];
        int length = snprintf(model, sizeof(model), "model.%s.",
                              loong_recipe_component(v->now, i));
        if (strncmp(change->path, model, (size_t)length) == 0 &&
            change->resume != LOONG_RESUME_FREE &&
            !loongi_is_of_learning(change->path + length)) {
            loongi_recipe_refuse(v->now, change, &v->problems);
        }
    }
    return LOONG_OK;
}

static loong_status_t compare_models(const comparison_t *e,
                                     const loong_recipe_meant_t *meant)
{
    evaluation_t v = {e->now, loongi_problems_begin(e->ctx)};
    loong_status_t status =
        loongi_recipe_compare(e->recipe, e->now, meant, judge_model, &v);
    loong_status_t found = loongi_problems_end(
        &v.problems, LOONG_ERR_CONFIG, "another model than the checkpoint's");
    return status != LOONG_OK ? status : found;
}

loong_status_t loongi_resume_describe(loong_recipe_t *recipe, const char *dtype,
                                      loong_pairs_t *meta)
{
    const char *text = NULL;
    LOONG_TRY(loong_recipe_print(recipe, false, &text));
    LOONG_TRY(loongi_pairs_set(meta, "recipe", text));
    LOONG_TRY(loongi_pairs_set(meta, LOONG_PARAMS_DTYPE, dtype));
    return recipe->extensions_hash != 0
               ? loongi_pairs_set_int(meta, EXTENSIONS_HASH,
                                      (int64_t)recipe->extensions_hash)
               : LOONG_OK;
}

loong_status_t loongi_resume_parse(const char *text, const loong_recipe_t *now,
                                   loong_recipe_t **recipe_p)
{
    const loong_recipe_params_t params = {NULL, 0, NULL, now->params.num_keys,
                                          now->params.keys};
    return loong_recipe_parse(now->ctx, "the checkpoint's recipe", text,
                              &params, recipe_p);
}

void loongi_resume_warn_extensions(const loong_pairs_t *meta,
                                   const loong_recipe_t *now)
{
    int64_t before = 0;
    loong_text_t names = loongi_text_begin(now->ctx);
    if (loongi_pairs_int(meta, EXTENSIONS_HASH, &before) &&
        now->extensions_hash != 0 && (uint64_t)before != now->extensions_hash) {
        for (int64_t i = 0; i < loongi_recipe_items(now, "extensions"); i++) {
            char path[LOONG_RECIPE_PATH];
            snprintf(path, sizeof(path), "extensions[%lld]", (long long)i);
            loongi_text_printf(&names, "%s%s", i > 0 ? ", " : "",
                               loong_recipe_text(now, path));
        }
        loongi_log(now->ctx, LOONG_LOG_WARN,
                   "%s: extensions: the code of %s is not what the "
                   "checkpoint was saved with; the run goes on with that of "
                   "now",
                   loong_recipe_where(now, "extensions"),
                   loongi_text_get(&names));
    }
    loongi_text_free(&names);
}

loong_status_t loongi_resume_check(const loong_pairs_t *meta,
                                   const loong_recipe_t *now,
                                   const loong_model_keys_t *model,
                                   const char *dtype, bool evaluate_only)
{
    comparison_t e = {.ctx = now->ctx, .now = now};
    LOONG_TRY(
        loongi_resume_parse(loongi_pairs_get(meta, "recipe"), now, &e.recipe));
    loong_status_t status = read_models(&e, meta, model);
    if (status == LOONG_OK) {
        status = add_dtype(&e, meta, dtype);
    }
    if (status == LOONG_OK) {
        loong_recipe_meant_t meant = {e.meant[BEFORE], e.meant[AFTER]};
        status = evaluate_only
                     ? compare_models(&e, &meant)
                     : loongi_recipe_check_resume(e.recipe, now, &meant);
    }
    for (int side = BEFORE; side <= AFTER; side++) {
        loongi_pairs_destroy(&e.meant[side]);
    }
    loong_recipe_destroy(&e.recipe);
    return status;
}
