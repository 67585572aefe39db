/* SPDX-License-Identifier: Apache-2.0
 *
 * A model described by a YAML file, as configs/models has them, and whether
 * the engine takes what describes it. Called by hf_weights.c, import.c and
 * verify.c. Read hf_config.h before. */
#include <stdio.h>

#include "file.h"
#include "hf_config.h"
#include "hf_kind.h"
#include "hf_weights.h"
#include "loong/recipe.h"
#include "tree.h"

/* Maps in maps become "rope_scaling.type". */
static loong_status_t add_keys(loong_pairs_t *pairs, const loong_tree_t *map,
                               const char *prefix, const char *path)
{
    for (int64_t i = 0; i < map->count; i++) {
        const loong_tree_item_t *item = &map->items[i];
        char key[256];
        int length = snprintf(key, sizeof(key), "%s%s%s", prefix,
                              prefix[0] != '\0' ? "." : "", item->key);
        LOONG_CHECK(pairs->ctx,
                    length < (int)sizeof(key) &&
                        item->value->kind != LOONG_TREE_LIST,
                    LOONG_ERR_CONFIG,
                    "%s:%d: %s is a list or too long, a key of a model is "
                    "wanted", path, item->line, item->key);
        LOONG_TRY(item->value->kind == LOONG_TREE_MAP
                      ? add_keys(pairs, item->value, key, path)
                      : loongi_pairs_set(pairs, key, item->value->text));
    }
    return LOONG_OK;
}

/* What config.json states and such a file may leave to defaults. The keys are
 * checked on the way. */
static loong_status_t state_sizes(loong_pairs_t *pairs)
{
    static const char *const keys[] = {
        "num_query_groups", "kv_channels", "ffn_hidden_size",
        "max_position_embeddings", "add_bias_linear", "add_qkv_bias",
        "add_attn_proj_bias", "qk_layernorm",
        "untie_embeddings_and_output_weights"};
    loong_pairs_t *filled = NULL;
    const loong_hf_kind_t *kind =
        loongi_hf_kind_find(pairs->ctx, loongi_pairs_get(pairs, "family"));
    loong_status_t status = loongi_pairs_copy(pairs->ctx, pairs, &filled);
    if (status == LOONG_OK) {
        status = kind->fill(pairs->ctx, filled);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && status == LOONG_OK; i++) {
        const char *value = loongi_pairs_get(filled, keys[i]);
        if (value != NULL && loongi_pairs_get(pairs, keys[i]) == NULL) {
            status = loongi_pairs_set(pairs, keys[i], value);
        }
    }
    loongi_pairs_destroy(&filled);
    return status;
}

static loong_status_t read_keys(loong_pairs_t *pairs, const char *path)
{
    loong_context_t *ctx = pairs->ctx;
    loong_tree_t *tree = NULL;
    char *text = NULL;
    size_t length = 0;
    LOONG_TRY(loongi_file_read(ctx, path, &text, &length));
    loong_status_t status =
        loongi_tree_parse(ctx, pairs->arena, path, text, length, &tree);
    loongi_free(ctx, text);
    LOONG_TRY(status);
    LOONG_CHECK(ctx, tree != NULL && tree->kind == LOONG_TREE_MAP,
                LOONG_ERR_CONFIG,
                "%s: keys of model.foundation are wanted, like those of "
                "configs/models", path);
    LOONG_TRY(add_keys(pairs, tree, "", path));
    status = state_sizes(pairs);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "in %s", path);
    }
    return status;
}

loong_status_t loongi_hf_model_read(loong_context_t *ctx, const char *path,
                                    loong_pairs_t **pairs_p)
{
    loong_pairs_t *pairs = NULL;
    LOONG_TRY(loongi_pairs_create(ctx, &pairs));
    loong_status_t status = read_keys(pairs, path);
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&pairs);
        return status;
    }
    *pairs_p = pairs;
    return LOONG_OK;
}

/* A recipe may have it: the schema has the range of each key. */
static loong_status_t check_ranges(loong_context_t *ctx,
                                   const loong_pairs_t *model,
                                   const loong_pairs_t *origins,
                                   const char *role)
{
    loong_recipe_t *recipe = NULL;
    char path[256];
    LOONG_TRY(
        loong_recipe_parse(ctx, "ranges", "version: 1", NULL, &recipe));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; i < model->count && status == LOONG_OK; i++) {
        const loong_pair_t *pair = &model->items[i];
        snprintf(path, sizeof(path), "model.%s.%s", role, pair->key);
        status = loong_recipe_set(recipe, path, pair->value,
                                  loongi_pairs_get(origins, pair->key));
    }
    loong_recipe_destroy(&recipe);
    return status;
}

static loong_status_t check_config(loong_context_t *ctx,
                                   const loong_hf_open_params_t *params,
                                   loong_pairs_t *origins)
{
    loong_pairs_t *model = NULL;
    LOONG_TRY(loongi_hf_config_trace(ctx, params->dir, params->role, origins,
                                     &model));
    const loong_hf_kind_t *kind =
        loongi_hf_kind_find(ctx, loongi_pairs_get(model, "family"));
    loong_status_t status = kind->check(ctx, model);
    if (status != LOONG_OK) {
        loongi_problems_note_origins(ctx, origins);
    } else {
        status = check_ranges(ctx, model, origins, kind->role);
    }
    loongi_pairs_destroy(&model);
    return status;
}

loong_status_t loongi_hf_check_model(loong_context_t *ctx,
                                     const loong_hf_open_params_t *params)
{
    loong_pairs_t *origins = NULL;
    if (params->model != NULL) {
        return LOONG_OK; /* reading it checks */
    }
    LOONG_TRY(loongi_pairs_create(ctx, &origins));
    loong_status_t status = check_config(ctx, params, origins);
    loongi_pairs_destroy(&origins);
    return status;
}
