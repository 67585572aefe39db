/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether what a run trains can be exported, known before it begins. Called by
 * trainer_model.c. Read from_hf.h before. */
#include <stdio.h>
#include <string.h>

#include "artifacts.h"
#include "file.h"
#include "from_hf.h"
#include "hf_adapters.h"
#include "hf_code.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_names.h"
#include "hf_weights.h"
#include "native.h"
#include "peft.h"
#include "peft_terms.h"

/* A published model is no place for what is made of it. */
static loong_status_t check_no_source(loong_context_t *ctx,
                                      const loong_recipe_t *recipe,
                                      const char *dir)
{
    const char *keys[] = {loong_recipe_init_key(recipe, NULL), "model.from_hf"};
    for (int64_t i = keys[0] == NULL; i < LOONG_COUNT_OF(keys); i++) {
        const char *from = loong_recipe_text(recipe, keys[i]);
        LOONG_CHECK(ctx, from == NULL || !loongi_file_same(dir, from),
                    LOONG_ERR_CONFIG,
                    "export.hf: '%s' is the directory of %s: the model in it "
                    "would be replaced, another directory is wanted",
                    dir, keys[i]);
    }
    return LOONG_OK;
}

static bool exports_adapters(const loong_recipe_t *recipe)
{
    return strcmp(loong_recipe_text(recipe, "finetune.method"), "full") != 0 &&
           !loong_recipe_bool(recipe, "export.merge");
}

/* An adapter of the embedding alone cannot be merged where the head is the same
 * matrix. */
static loong_status_t check_merge(loong_context_t *ctx,
                                  const loong_recipe_t *recipe,
                                  const loong_hf_map_t *map,
                                  const loong_adapters_t *a)
{
    bool embedding = a != NULL &&
                     loongi_scope_ends_any(a->num_targets, a->targets,
                                           LOONG_LORA_EMBEDDING) &&
                     !loongi_scope_ends_any(a->num_excluded, a->excluded,
                                            LOONG_LORA_EMBEDDING);
    LOONG_CHECK(ctx,
                !embedding || !loong_recipe_bool(recipe, "export.merge") ||
                    loongi_hf_map_find(map, LOONG_HF_HEAD) != NULL,
                LOONG_ERR_CONFIG,
                "%s: export.merge: the adapter of " LOONG_LORA_EMBEDDING
                " cannot be merged: the head is the same matrix and has none; "
                "it can be exported as it is",
                loong_recipe_where(recipe, "export.merge"));
    return LOONG_OK;
}

/* dir: to be written, or NULL. */
static loong_status_t check_as(loong_context_t *ctx,
                               const loong_recipe_t *recipe,
                               const loong_pairs_t *model_keys,
                               const loong_adapters_t *adapters,
                               const char *dir, loong_pairs_t *code)
{
    loong_hf_map_t *map = NULL;
    loong_pairs_t *model = NULL;
    if (dir != NULL) {
        LOONG_TRY(loongi_checkpoint_check_outside(ctx, dir));
        LOONG_TRY(check_no_source(ctx, recipe, dir));
    }
    LOONG_TRY(loongi_artifacts_code(ctx, recipe, code));
    LOONG_TRY(loongi_hf_model_as(
        ctx, model_keys, loong_recipe_text(recipe, "export.as"),
        loongi_pairs_get(code, LOONG_HF_AUTO_MAP) != NULL, &model));
    loong_status_t status = loongi_hf_map_create(ctx, model, &map);
    if (status == LOONG_OK) {
        status = check_merge(ctx, recipe, map, adapters);
    }
    loongi_hf_map_destroy(&map);
    if (status == LOONG_OK) {
        status = loongi_hf_config_check(ctx, model);
    }
    if (status == LOONG_OK && dir != NULL) {
        status = exports_adapters(recipe)
                     ? loongi_peft_check_place(ctx, dir)
                     : loongi_hf_check_replaced(ctx, dir, model);
    }
    loongi_pairs_destroy(&model);
    return status;
}

/* Beside an adapter of the language model stands what the projector learns
 * (modules_to_save), and no encoder. */
static loong_status_t check_frozen(loong_context_t *ctx,
                                   const loong_recipe_t *recipe)
{
    const char *role = loong_recipe_component(recipe, 0);
    char key[64];
    snprintf(key, sizeof(key), "model.%s.freeze", role);
    LOONG_CHECK(ctx, loong_recipe_bool(recipe, key), LOONG_ERR_CONFIG,
                "%s: %s: what model.%s learns is no part of an adapter: "
                "export.merge: true writes the whole model",
                loong_recipe_where(recipe, key), key, role);
    return LOONG_OK;
}

/* Its config.json can be written. */
static loong_status_t check_config(loong_context_t *ctx,
                                   const loong_model_keys_t *model,
                                   const loong_hf_composite_t *composite,
                                   const char *as, const loong_pairs_t *code)
{
    loong_pairs_t *named[LOONG_HF_PARTS] = {NULL, NULL, NULL};
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < model->count && status == LOONG_OK; i++) {
        status =
            loongi_hf_part_as(ctx, composite, model->keys[i], as, &named[i]);
    }
    const loong_hf_config_params_t config = {
        "",   NULL,      LOONG_F32,
        code, composite, (const loong_pairs_t *const *)named};
    status = status != LOONG_OK ? status
                                : loongi_hf_config_check_as(ctx, &config);
    for (int i = 0; i < model->count; i++) {
        loongi_pairs_destroy(&named[i]);
    }
    return status;
}

/* The same of several components. */
static loong_status_t check_whole(loong_context_t *ctx,
                                  const loong_recipe_t *recipe,
                                  const loong_model_keys_t *model,
                                  const char *dir, loong_pairs_t *code)
{
    const char *families[LOONG_MODEL_ROLES] = {NULL};
    const char *as = loong_recipe_text(recipe, "export.as");
    for (int i = 0; i < model->count; i++) {
        families[i] = loongi_pairs_get(model->keys[i], "family");
    }
    LOONG_TRY(loongi_artifacts_code(ctx, recipe, code));
    const loong_hf_composite_t *composite =
        model->count == LOONG_HF_PARTS
            ? loongi_hf_composite_of_families(families, code, as)
            : NULL;
    LOONG_CHECK(ctx, composite != NULL, LOONG_ERR_UNSUPPORTED,
                "components of families %s and %s, with others: no model type "
                "%s%shas them together; one is written, by loong-ckpt export "
                "--component NAME",
                families[0], families[1], as != NULL ? as : "",
                as != NULL ? " " : "");
    if (dir != NULL) {
        LOONG_TRY(loongi_checkpoint_check_outside(ctx, dir));
        LOONG_TRY(check_no_source(ctx, recipe, dir));
    }
    LOONG_TRY(dir != NULL && exports_adapters(recipe)
                  ? check_frozen(ctx, recipe)
                  : LOONG_OK);
    LOONG_TRY(check_config(ctx, model, composite, as, code));
    const loong_pairs_t *last = model->keys[LOONG_HF_PART_LOSS];
    return dir == NULL ? LOONG_OK
           : exports_adapters(recipe)
               ? loongi_peft_check_place(ctx, dir)
               : loongi_hf_check_replaced(ctx, dir, last);
}

/* What cannot be exported at the end is refused at the start; that it could not
 * be later, a judged plan tells. */
loong_status_t loongi_check_export(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   const loong_model_keys_t *model,
                                   const loong_adapters_t *adapters,
                                   bool judged)
{
    const char *dir = loong_recipe_text(recipe, "export.hf");
    loong_pairs_t *code = NULL;
    if (dir == NULL && !judged) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_create(ctx, &code));
    loong_status_t status =
        model->count == 1
            ? check_as(ctx, recipe, model->keys[0], adapters, dir, code)
            : check_whole(ctx, recipe, model, dir, code);
    loongi_pairs_destroy(&code);
    if (status != LOONG_OK && dir != NULL) {
        loongi_error_note(ctx, "wanted for export.hf");
        status = status == LOONG_ERR_UNSUPPORTED ? LOONG_ERR_CONFIG : status;
    } else if (status != LOONG_OK && status != LOONG_ERR_MEMORY &&
               status != LOONG_ERR_INTERNAL) {
        if (status == LOONG_ERR_UNSUPPORTED || status == LOONG_ERR_CONFIG) {
            loongi_log(ctx, LOONG_LOG_WARN,
                       "the model as it is cannot be exported to Hugging Face "
                       "form: %s",
                       loong_context_error(ctx));
        } /* else a file is broken, which who reads it tells */
        loong_context_clear_error(ctx);
        status = LOONG_OK;
    }
    return status;
}

/* A tensor of the files whose parts are all trained, or none. */
static loong_status_t check_saved(const loong_component_t *c,
                                  const loong_hf_map_t *map,
                                  const loong_hf_param_t *p)
{
    const loong_whole_param_t *trained = NULL;
    int count = 0;
    for (int64_t i = 0; i < c->num_whole; i++) {
        const loong_whole_param_t *w = &c->whole[i];
        for (int k = 0; k < p->parts && !w->frozen; k++) {
            if (strcmp(w->name, p[k].name) == 0) {
                trained = w;
                count++;
            }
        }
    }
    LOONG_TRY(trained != NULL ? loongi_lora_check_saved(c->ctx, map, p)
                              : LOONG_OK);
    LOONG_CHECK(c->ctx, trained == NULL || count == p->parts,
                LOONG_ERR_UNSUPPORTED,
                "%s is trained beside adapters, and is a part of %s in files, "
                "the rest of which is fixed: an export that is merged can have "
                "it (export.merge)",
                trained->name, p->hf_name);
    return LOONG_OK;
}

/* An adapter of an embedding that is the head too, which is refused as it is
 * read. */
static bool is_of_tied(const loong_peft_t *adapter, const loong_hf_map_t *map)
{
    bool of_embedding = false;
    for (int64_t i = 0; i < adapter->num_modules; i++) {
        of_embedding = of_embedding || adapter->modules[i].embedding;
    }
    return of_embedding && loongi_hf_map_find(map, LOONG_HF_HEAD) == NULL;
}

/* An export is the sum with what was merged into the base: what has no sum
 * cannot be exported as an adapter. */
static loong_status_t check_sum(const loong_component_t *c,
                                const loong_hf_map_t *map)
{
    static const char wanted[] =
        "an export with init.adapters is the sum of all adapters, of which %s "
        "can be no part: export.merge: true writes the model";
    loong_peft_terms_t *terms = NULL;
    const char *found = NULL;
    if (c->params.init_adapters == NULL) {
        return LOONG_OK;
    }
    for (int64_t i = 0; i < c->num_whole; i++) {
        const loong_whole_param_t *w = &c->whole[i];
        char module[LOONG_HF_MODULE];
        loong_lora_matrix_t which = loongi_lora_matrix(w->name, module);
        if (!w->frozen &&
            (which == LOONG_LORA_NONE || which == LOONG_LORA_MAGNITUDE)) {
            return LOONG_FAIL(c->ctx, LOONG_ERR_UNSUPPORTED, wanted, w->name);
        }
    }
    LOONG_TRY(loongi_peft_terms_read(c->ctx, c->params.init_adapters, &terms));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < terms->count && found == NULL; i++) {
        const loong_peft_t *t = terms->terms[i];
        found = is_of_tied(t, map)                 ? NULL
                : t->num_saved > 0                 ? t->saved[0].name
                : t->modules[0].magnitude.ndim > 0 ? "magnitudes (use_dora)"
                                                   : NULL;
        if (found != NULL) {
            status = LOONG_FAIL(c->ctx, LOONG_ERR_UNSUPPORTED, wanted, found);
            loongi_error_note(c->ctx, "of %s", t->path);
        }
    }
    loongi_peft_terms_destroy(c->ctx, &terms);
    return status;
}

loong_status_t loongi_check_export_saved(const loong_recipe_t *recipe,
                                         const loong_component_t *component,
                                         const loong_pairs_t *model)
{
    loong_context_t *ctx = component->ctx;
    loong_hf_map_t *map = NULL;
    if (loong_recipe_text(recipe, "export.hf") == NULL ||
        !exports_adapters(recipe)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_map_create(ctx, model, &map));
    loong_status_t status = check_sum(component, map);
    for (int64_t i = 0; i < loongi_hf_map_count(map) && status == LOONG_OK;
         i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        status = p->part == 0 ? check_saved(component, map, p) : LOONG_OK;
    }
    loongi_hf_map_destroy(&map);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "wanted for export.hf");
    }
    return status == LOONG_ERR_UNSUPPORTED ? LOONG_ERR_CONFIG : status;
}
