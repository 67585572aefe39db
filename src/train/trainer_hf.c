/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of a model as config.json of a directory says them. */
#include <stdio.h>
#include <string.h>

#include "decoder_config.h"
#include "hf_config.h"
#include "trainer_hf.h"

#define FOUNDATION "model.foundation"

static loong_status_t add_set(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* Of training, not of the model: no config.json means one for it. */
static bool is_of_training(const char *key)
{
    static const char *const keys[] = {
        "attention_dropout", "hidden_dropout", "embedding_dropout",
        "init_method_std", "embedding_init_method_std",
        "use_scaled_init_method", "make_vocab_size_divisible_by", "mla_absorb",
        "moe_expert_capacity_factor", "moe_token_drop_policy",
        "moe_router_force_load_balancing", "moe_router_bias_update_rate",
        "moe_router_load_balancing_type", "moe_aux_loss_coeff",
        "moe_z_loss_coeff"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys); i++) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* The recipe holds against config.json, but not silently: what it sets is
 * compared with all that config.json means, defaults included. read: as there;
 * theirs, ours: the same without and with the keys of the recipe, filled. */
static void tell_overrides(const loong_trainer_t *t, const loong_pairs_t *read,
                           const loong_pairs_t *theirs,
                           const loong_pairs_t *ours, const char *dir)
{
    for (int64_t i = 0; i < theirs->count; i++) {
        char path[256];
        const char *key = theirs->items[i].key;
        const char *means = theirs->items[i].value;
        const char *holds = loongi_pairs_get(ours, key);
        const char *written = loongi_pairs_get(read, key);
        snprintf(path, sizeof(path), FOUNDATION ".%s", key);
        if (loong_recipe_is_set(t->recipe, path) && holds != NULL &&
            (written != NULL || !is_of_training(key)) &&
            strcmp(holds, means) != 0) {
            loongi_log(t->ctx, LOONG_LOG_WARN,
                       "%s: %s in the recipe holds, %s/config.json means %s",
                       path, loong_recipe_text(t->recipe, path), dir,
                       written != NULL ? written : means);
        }
    }
}

static loong_status_t compare(const loong_trainer_t *t,
                              const loong_pairs_t *read, const char *dir,
                              loong_pairs_t *theirs, loong_pairs_t *ours)
{
    for (int64_t i = 0; i < read->count; i++) {
        const loong_pair_t *pair = &read->items[i];
        LOONG_TRY(loongi_pairs_set(theirs, pair->key, pair->value));
        LOONG_TRY(loongi_pairs_set(ours, pair->key, pair->value));
    }
    LOONG_TRY(loong_recipe_each(t->recipe, FOUNDATION, add_set, ours));
    if (loongi_decoder_fill(t->ctx, theirs) != LOONG_OK ||
        loongi_decoder_fill(t->ctx, ours) != LOONG_OK) {
        loong_context_clear_error(t->ctx); /* configuring will say it again */
        return LOONG_OK;
    }
    tell_overrides(t, read, theirs, ours, dir);
    return LOONG_OK;
}

static loong_status_t compare_with_recipe(const loong_trainer_t *t,
                                          const loong_pairs_t *read,
                                          const char *dir)
{
    loong_pairs_t *theirs = NULL;
    loong_pairs_t *ours = NULL;
    if (loong_comm_rank(t->comm) != 0) {
        return LOONG_OK;
    }
    loong_status_t status = loongi_pairs_create(t->ctx, &theirs);
    if (status == LOONG_OK) {
        status = loongi_pairs_create(t->ctx, &ours);
    }
    if (status == LOONG_OK) {
        status = compare(t, read, dir, theirs, ours);
    }
    loongi_pairs_destroy(&ours);
    loongi_pairs_destroy(&theirs);
    return status;
}

loong_status_t loongi_trainer_adopt_hf(loong_trainer_t *t, const char *key)
{
    const char *dir = loong_recipe_text(t->recipe, key);
    loong_pairs_t *pairs = NULL;
    if (dir == NULL) {
        return LOONG_OK;
    }
    loong_status_t read = loongi_hf_config_read(t->ctx, dir, &pairs);
    if (read != LOONG_OK) {
        loongi_error_note(t->ctx, "wanted by %s (%s)", key,
                          loong_recipe_where(t->recipe, key));
        return read;
    }
    loong_status_t status = compare_with_recipe(t, pairs, dir);
    for (int64_t i = 0; i < pairs->count && status == LOONG_OK; i++) {
        char path[256];
        snprintf(path, sizeof(path), FOUNDATION ".%s", pairs->items[i].key);
        if (!loong_recipe_is_set(t->recipe, path)) {
            status = loong_recipe_set(t->recipe, path, pairs->items[i].value,
                                      dir);
        }
    }
    loongi_pairs_destroy(&pairs);
    return status;
}

const char *loongi_trainer_hf_dir(const loong_trainer_t *t)
{
    const char *dir = loong_recipe_text(t->recipe, "init.from_hf");
    return dir != NULL ? dir : loong_recipe_text(t->recipe, "model.from_hf");
}
