/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer of a run. It is read at the start, also when nothing is
 * sampled, so that a file that is missing, damaged or of another vocabulary is
 * noticed before anything is trained; ids of tokens go into checkpoints. Called
 * by preflight.c, open_data.c and sample.c. Read loong/tokenizer.h
 * before. */
#include <string.h>

#include "hf_tokens.h"
#include "sample.h"

const char *loongi_recipe_tokenizer_path(const loong_recipe_t *recipe)
{
    const char *path = loong_recipe_text(recipe, "data.tokenizer");
    const char *init = loong_recipe_init_key(recipe, NULL);
    return path != NULL || init == NULL ? path
                                        : loong_recipe_text(recipe, init);
}

loong_status_t loongi_recipe_tokenizer(loong_context_t *ctx,
                                       const loong_recipe_t *recipe,
                                       loong_tokenizer_t **tokenizer_p)
{
    const char *path = loongi_recipe_tokenizer_path(recipe);
    if (path == NULL) {
        return LOONG_OK;
    }
    return strcmp(path, "bytes") == 0
               ? loong_tokenizer_bytes(ctx, tokenizer_p)
               : loong_tokenizer_load(ctx, path, tokenizer_p);
}

/* Padding makes a model's vocabulary larger than the tokenizer's. */
static loong_status_t check_vocabulary(const loong_sampling_t *s,
                                       const char *key)
{
    int64_t ids = loong_tokenizer_get_vocab_size(s->tokenizer);
    int64_t vocab =
        loong_recipe_int(s->plan->recipe, "model.foundation.vocab_size");
    if (vocab == 0) {
        return LOONG_OK; /* the model is told to be wrong */
    }
    LOONG_CHECK(s->plan->ctx, ids <= vocab, LOONG_ERR_CONFIG,
                "%s: %s: the tokenizer has %lld ids, the model knows %lld: "
                "model.foundation.vocab_size must be %lld or more",
                loong_recipe_where(s->plan->recipe, key), key, (long long)ids,
                (long long)vocab, (long long)ids);
    if (ids < vocab) {
        loongi_log(s->plan->ctx, LOONG_LOG_INFO,
                   "%s: the tokenizer has %lld ids, the model knows %lld: the "
                   "last %lld are padding",
                   key, (long long)ids, (long long)vocab,
                   (long long)(vocab - ids));
    }
    return LOONG_OK;
}

/* How texts begin and end, for exports. */
static loong_status_t keep_tokens(const loong_sampling_t *s,
                                  loong_pairs_t *tokens)
{
    static const loong_token_role_t roles[LOONG_HF_TOKENS] = {
        LOONG_TOKEN_BOS, LOONG_TOKEN_EOS, LOONG_TOKEN_PAD};
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        int32_t id = loong_tokenizer_get_role(s->tokenizer, roles[i]);
        if (roles[i] == LOONG_TOKEN_EOS && id < 0) { /* ends a text as well */
            id = loong_tokenizer_get_role(s->tokenizer, LOONG_TOKEN_EOD);
        }
        if (id >= 0) {
            LOONG_TRY(
                loongi_pairs_set_int(tokens, loongi_hf_token_names[i], id));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_sample_open_tokenizer(loong_sampling_t *s,
                                            loong_pairs_t *tokens)
{
    const loong_recipe_t *recipe = s->plan->recipe;
    bool named = loong_recipe_text(recipe, "data.tokenizer") != NULL;
    bool samples = loongi_sample_count(recipe) > 0;
    const char *key =
        named ? "data.tokenizer" : loong_recipe_init_key(recipe, NULL);
    if (!named && !samples) {
        return LOONG_OK;
    }
    loong_status_t status =
        loongi_recipe_tokenizer(s->plan->ctx, recipe, &s->tokenizer);
    if (status != LOONG_OK) {
        loongi_error_note(s->plan->ctx, "wanted by %s", key);
    }
    if (status != LOONG_OK || s->tokenizer == NULL) {
        return status;
    }
    LOONG_TRY(check_vocabulary(s, key));
    LOONG_TRY(loongi_sample_check_prompts(s));
    return named ? keep_tokens(s, tokens) : LOONG_OK;
}
