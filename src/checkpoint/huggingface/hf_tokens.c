/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads ids of special tokens from a Hugging Face directory, and writes
 * tokenizer_config.json of an export. Called by imports, artifacts.c and
 * hf_export.c. Read hf_files.h before. */
#include "hf_tokens.h"

#include <string.h>

#include "file.h"
#include "json.h"

const char *const loongi_hf_token_names[LOONG_HF_TOKENS] = {
    "bos_token_id", "eos_token_id", "pad_token_id"};

static loong_status_t load(loong_context_t *ctx, const char *dir,
                           const char *name, loong_json_t **json_p)
{
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/%s", dir, name);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loongi_json_load(ctx, path.data, json_p);
    }
    loongi_text_free(&path);
    return status;
}

static bool exists(loong_context_t *ctx, const char *dir, const char *name)
{
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/%s", dir, name);
    bool found = loongi_file_exists(loongi_text_get(&path));
    loongi_text_free(&path);
    return found;
}

loong_status_t loongi_hf_tokens_read(loong_context_t *ctx, const char *dir,
                                     loong_pairs_t *ids)
{
    loong_json_t *config = NULL;
    LOONG_TRY(load(ctx, dir, "config.json", &config));
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < LOONG_HF_TOKENS && status == LOONG_OK; i++) {
        const loong_json_t *id =
            loongi_json_get(config, loongi_hf_token_names[i]);
        if (id == NULL || loongi_json_kind(id) == LOONG_JSON_NULL) {
            id = loongi_json_get(loongi_json_get(config, "text_config"),
                                 loongi_hf_token_names[i]);
        }
        if (id == NULL || loongi_json_kind(id) == LOONG_JSON_NULL) {
            continue;
        }
        status = loongi_pairs_set_json(ids, loongi_hf_token_names[i], id);
    }
    loongi_json_destroy(&config);
    return status;
}

/* The text of an id, of the first where there are several; NULL: none. */
static const char *token_text(const loong_json_t *tokenizer,
                              const loong_json_t *id)
{
    const loong_json_t *added = loongi_json_get(tokenizer, "added_tokens");
    if (id != NULL && loongi_json_kind(id) == LOONG_JSON_ARRAY) {
        id = loongi_json_at(id, 0);
    }
    if (id == NULL || loongi_json_kind(id) != LOONG_JSON_INT) {
        return NULL;
    }
    for (int64_t i = 0; i < loongi_json_count(added); i++) {
        const loong_json_t *token = loongi_json_at(added, i);
        if (loongi_json_int(loongi_json_get(token, "id")) ==
            loongi_json_int(id)) {
            return loongi_json_string(loongi_json_get(token, "content"));
        }
    }
    const loong_json_t *vocab =
        loongi_json_get(loongi_json_get(tokenizer, "model"), "vocab");
    for (const loong_json_member_t *it = loongi_json_first(vocab); it != NULL;
         it = loongi_json_next(vocab, it)) {
        if (loongi_json_int(loongi_json_member_value(it)) ==
            loongi_json_int(id)) {
            return loongi_json_member_key(it);
        }
    }
    return NULL;
}

static void compose(const loong_json_t *config, const loong_json_t *tokenizer,
                    const loong_pairs_t *model, loong_text_t *text)
{
    const char *longest = loongi_pairs_get(model, "max_position_embeddings");
    loongi_text_printf(text, "{\n  \"tokenizer_class\": "
                             "\"PreTrainedTokenizerFast\"");
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        const char *name = loongi_hf_token_names[i];
        const char *token =
            token_text(tokenizer, loongi_json_get(config, name));
        /* "eos_token" of "eos_token_id"; null keeps a class from guessing */
        loongi_text_printf(text, ",\n  \"%.9s\": ", name);
        if (token != NULL) {
            loongi_text_json_string(text, token);
        } else {
            loongi_text_printf(text, "null");
        }
    }
    if (longest != NULL) {
        loongi_text_printf(text, ",\n  \"model_max_length\": %s", longest);
    }
    loongi_text_printf(text,
                       ",\n  \"clean_up_tokenization_spaces\": false\n}\n");
}

loong_status_t loongi_hf_tokenizer_config_write(loong_context_t *ctx,
                                                const char *dir,
                                                const loong_pairs_t *model)
{
    loong_json_t *config = NULL;
    loong_json_t *tokenizer = NULL;
    loong_text_t text = loongi_text_begin(ctx);
    loong_text_t path = loongi_text_begin(ctx);
    loong_status_t status = LOONG_OK;
    if (!exists(ctx, dir, "tokenizer.json") ||
        exists(ctx, dir, "tokenizer_config.json")) {
        return LOONG_OK;
    }
    LOONG_TRY_GOTO(load(ctx, dir, "config.json", &config), status, out);
    LOONG_TRY_GOTO(load(ctx, dir, "tokenizer.json", &tokenizer), status, out);
    compose(config, tokenizer, model, &text);
    loongi_text_printf(&path, "%s/tokenizer_config.json", dir);
    LOONG_TRY_GOTO(text.status, status, out);
    LOONG_TRY_GOTO(path.status, status, out);
    status = loongi_file_write(ctx, path.data, text.data, text.length);
out:
    loongi_text_free(&path);
    loongi_text_free(&text);
    loongi_json_destroy(&tokenizer);
    loongi_json_destroy(&config);
    return status;
}
