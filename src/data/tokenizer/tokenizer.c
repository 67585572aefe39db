/* SPDX-License-Identifier: Apache-2.0
 *
 * Making, saving and asking a tokenizer. Called by src/features/tokenizer.c,
 * sources of texts and tools of data. Read loong/tokenizer.h and
 * tokenizer_impl.h before. */
#include "loong/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "file.h"
#include "tokenizer_impl.h"

loong_status_t loongi_tokenizer_begin(loong_context_t *ctx,
                                      loong_tokenizer_t **t_p)
{
    loong_tokenizer_t *t = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*t), "tokenizer", &t));
    t->ctx = ctx;
    t->unk_id = -1;
    for (int i = 0; i < LOONG_TOKEN_ROLES; i++) {
        t->roles[i] = -1;
    }
    t->image[0] = t->image[1] = t->image[2] = -1;
    loong_status_t status =
        loongi_arena_create(ctx, "tokenizer texts", &t->arena);
    if (status == LOONG_OK) {
        status = loongi_unicode_create(ctx, &t->chars);
    }
    if (status != LOONG_OK) {
        loong_tokenizer_destroy(&t);
        return status;
    }
    *t_p = t;
    return LOONG_OK;
}

void loong_tokenizer_destroy(loong_tokenizer_t **tokenizer)
{
    loong_tokenizer_t *t = *tokenizer;
    if (t == NULL) {
        return;
    }
    for (int i = 0; i < t->num_stages; i++) {
        loongi_regex_destroy(t->ctx, &t->stages[i].regex);
    }
    loongi_free(t->ctx, t->vocab.tokens);
    loongi_free(t->ctx, t->vocab.slots);
    loongi_merges_destroy(t->ctx, &t->merges);
    loongi_whole_destroy(t);
    loongi_free(t->ctx, t->added_raw.tokens);
    loongi_free(t->ctx, t->added_normalized.tokens);
    loongi_free(t->ctx, t->template_before);
    loongi_free(t->ctx, t->template_after);
    loongi_free(t->ctx, t->nfc);
    loongi_free(t->ctx, t->chars);
    loongi_free(t->ctx, t->source);
    loongi_arena_destroy(&t->arena);
    loongi_free(t->ctx, t);
    *tokenizer = NULL;
}

/* The ids that single bytes have: as characters of the byte-level alphabet,
 * or as "<0xAB>". */
static loong_status_t find_byte_ids(loong_tokenizer_t *t)
{
    int missing = 0;
    for (int b = 0; b < 256; b++) {
        char text[8];
        int length =
            t->byte_level
                ? loongi_utf8_put(loongi_byte_to_point((unsigned char)b), text)
                : snprintf(text, sizeof(text), "<0x%02X>", (unsigned)b);
        int32_t id = loongi_vocab_find(&t->vocab, text, (size_t)length);
        t->byte_ids[b] = id >= 0 && t->vocab.tokens[id].in_model ? id : -1;
        missing += t->byte_ids[b] < 0;
    }
    LOONG_CHECK(t->ctx, !(t->byte_level && t->byte_fallback && missing > 0),
                LOONG_ERR_UNSUPPORTED,
                "byte_fallback with a ByteLevel pre-tokenizer is not "
                "supported when bytes (%d) are missing in the vocabulary",
                missing);
    return LOONG_OK;
}

/* Behind vocabulary and merges. */
static loong_status_t load_rest(loong_tokenizer_t *t, const loong_json_t *root)
{
    LOONG_TRY(loongi_load_normalizer(t, loongi_json_get(root, "normalizer")));
    LOONG_TRY(
        loongi_load_pretokenizer(t, loongi_json_get(root, "pre_tokenizer")));
    LOONG_TRY(loongi_load_added(t, loongi_json_get(root, "added_tokens")));
    LOONG_TRY(
        loongi_load_postprocessor(t, loongi_json_get(root, "post_processor")));
    LOONG_TRY(loongi_load_decoder(t, loongi_json_get(root, "decoder")));
    LOONG_TRY(find_byte_ids(t));
    return loongi_whole_create(t);
}

static loong_status_t load_parts(loong_tokenizer_t *t, const loong_json_t *root)
{
    static const char *const refused[] = {"truncation", "padding"};
    LOONG_CHECK(t->ctx, loongi_json_kind(root) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "found %s, must be an object",
                loongi_json_kind_text(root));
    for (int i = 0; i < 2; i++) {
        const loong_json_t *part = loongi_json_get(root, refused[i]);
        LOONG_CHECK(t->ctx,
                    part == NULL || loongi_json_kind(part) == LOONG_JSON_NULL,
                    LOONG_ERR_UNSUPPORTED,
                    "'%s' is not supported: set it to null", refused[i]);
    }
    LOONG_TRY(loongi_load_model(t, loongi_json_get(root, "model")));
    return load_rest(t, root);
}

/* Names alone do not do: a vocabulary may have learned "</s>" from text. */
static void guess_roles(loong_tokenizer_t *t)
{
    static const char *const names[LOONG_TOKEN_ROLES][7] = {
        {"<|begin_of_text|>", "<s>", "<bos>", "<｜begin▁of▁sentence｜>"},
        {"<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>",
         "<|endoftext|>", "<|im_end|>"},
        {"<pad>", "<|pad|>", "[PAD]", "<|finetune_right_pad_id|>"},
        {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>",
         "<｜end▁of▁sentence｜>"},
    };
    for (int role = 0; role < LOONG_TOKEN_ROLES; role++) {
        for (int i = 0; t->roles[role] < 0 && names[role][i] != NULL; i++) {
            int32_t id = loong_tokenizer_token_to_id(t, names[role][i]);
            bool special = id >= 0 && t->vocab.tokens[id].special;
            t->roles[role] = special ? id : -1;
        }
    }
}

loong_status_t loong_tokenizer_parse(loong_context_t *ctx, const char *json,
                                     size_t length, const char *where,
                                     loong_tokenizer_t **tokenizer_p)
{
    loong_tokenizer_t *t = NULL;
    loong_json_t *root = NULL;
    loong_status_t status = loongi_json_parse(ctx, json, length, where, &root);
    if (status != LOONG_OK) {
        return status;
    }
    LOONG_TRY_GOTO(loongi_tokenizer_begin(ctx, &t), status, out);
    status = load_parts(t, root);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "in tokenizer '%s'", where);
        goto out;
    }
    LOONG_TRY_GOTO(loongi_alloc(ctx, length + 1, "tokenizer text", &t->source),
                   status, out);
    memcpy(t->source, json, length);
    t->hash = XXH3_64bits(json, length);
    t->source_length = length;
    guess_roles(t);
    *tokenizer_p = t;
    t = NULL;
out:
    loongi_json_destroy(&root);
    loong_tokenizer_destroy(&t);
    return status;
}

/* What InternVL's processor looks for in tokenizers, and the tokens of those
 * that name none. */
static void read_image(loong_tokenizer_t *t, const loong_json_t *config)
{
    static const char *const keys[] = {"context_image_token",
                                       "start_image_token", "end_image_token"};
    static const char *const usual[] = {"<IMG_CONTEXT>", "<img>", "</img>"};
    const loong_json_t *more = loongi_json_get(config, "extra_special_tokens");
    for (int i = 0; i < 3; i++) {
        const loong_json_t *own = loongi_json_get(config, keys[i]);
        own = own != NULL ? own : loongi_json_get(more, keys[i]);
        t->image[i] = loong_tokenizer_token_to_id(
            t, own != NULL ? loongi_json_string(own) : usual[i]);
    }
}

/* bos_token and so on: a string, an object with `content`; null: none. */
static loong_status_t read_config(loong_tokenizer_t *t, const char *path)
{
    static const char *const keys[] = {"bos_token", "eos_token", "pad_token"};
    loong_json_t *root = NULL;
    loong_status_t status = LOONG_OK;
    if (!loongi_file_exists(path)) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_json_load(t->ctx, path, &root));
    for (int i = 0; i < 3 && status == LOONG_OK; i++) {
        const loong_json_t *token = loongi_json_get(root, keys[i]);
        const loong_json_t *content = loongi_json_get(token, "content");
        const char *text = loongi_json_string(content ? content : token);
        if (token == NULL) {
            continue;
        }
        bool none = loongi_json_kind(token) == LOONG_JSON_NULL;
        t->roles[i] = none ? -1 : loong_tokenizer_token_to_id(t, text);
        if (t->roles[i] < 0 && !none) {
            status = LOONG_FAIL(t->ctx, LOONG_ERR_MISMATCH,
                                "'%s': %s '%s' is not in the vocabulary", path,
                                keys[i], text);
        }
    }
    read_image(t, root);
    loongi_json_destroy(&root);
    return status;
}

/* A file of tiktoken's, of the class that tokenizer_config.json names. */
static loong_status_t parse_tiktoken(loong_context_t *ctx, const char *text,
                                     size_t length, const char *where,
                                     const char *config,
                                     loong_tokenizer_t **tokenizer_p)
{
    loong_tokenizer_t *t = NULL;
    loong_json_t *json = NULL, *rest = NULL;
    LOONG_TRY(loongi_json_load(ctx, config, &json));
    loong_status_t status = loongi_tokenizer_begin(ctx, &t);
    if (status == LOONG_OK) {
        status = loongi_load_tiktoken(t, text, length, json, &rest);
    }
    if (status == LOONG_OK) {
        status = load_rest(t, rest);
    }
    if (status == LOONG_OK) {
        loong_text_t key = loongi_text_begin(ctx);
        loongi_text_json(&key, rest);
        t->hash = XXH3_64bits_withSeed(text, length,
                                       XXH3_64bits(key.data, key.length));
        status = key.status;
        loongi_text_free(&key);
    }
    loongi_json_destroy(&json);
    loongi_json_destroy(&rest);
    if (status != LOONG_OK) {
        loongi_error_note(ctx, "in tokenizer '%s'", where);
        loong_tokenizer_destroy(&t);
        return status;
    }
    guess_roles(t);
    *tokenizer_p = t;
    return LOONG_OK;
}

loong_status_t loong_tokenizer_load(loong_context_t *ctx, const char *path,
                                    loong_tokenizer_t **tokenizer_p)
{
    loong_tokenizer_t *t = NULL;
    char *text = NULL;
    size_t length = 0;
    loong_text_t file = loongi_text_begin(ctx);
    loong_text_t config = loongi_text_begin(ctx);
    loongi_tokenizer_file(path, &file);
    loongi_tokenizer_config(loongi_text_get(&file), &config);
    loong_status_t status =
        file.status != LOONG_OK ? file.status : config.status;
    if (status == LOONG_OK) {
        status = loongi_file_read(ctx, loongi_text_get(&file), &text, &length);
    }
    if (status == LOONG_OK) {
        const char *own = loongi_text_get(&file);
        status = loongi_tokenizer_has_ranks(&file)
                     ? parse_tiktoken(ctx, text, length, own,
                                      loongi_text_get(&config), &t)
                     : loong_tokenizer_parse(ctx, text, length, own, &t);
    }
    if (status == LOONG_OK) {
        status = read_config(t, loongi_text_get(&config));
    }
    loongi_free(ctx, text);
    loongi_text_free(&file);
    loongi_text_free(&config);
    if (status != LOONG_OK) {
        loong_tokenizer_destroy(&t);
        return status;
    }
    *tokenizer_p = t;
    return LOONG_OK;
}

loong_status_t loong_tokenizer_bytes(loong_context_t *ctx,
                                     loong_tokenizer_t **tokenizer_p)
{
    static const char end[] = "<|endoftext|>";
    loong_tokenizer_t *t = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_tokenizer_begin(ctx, &t));
    t->bytes = true;
    for (int b = 0; b < 256 && status == LOONG_OK; b++) {
        char text[8];
        char *byte = NULL;
        int length =
            loongi_utf8_put(loongi_byte_to_point((unsigned char)b), text);
        text[length] = '\0';
        status = loongi_vocab_add(t, b, text, (size_t)length);
        if (status == LOONG_OK) {
            status = loongi_arena_alloc(t->arena, 1, &byte);
        }
        if (status == LOONG_OK) {
            *byte = (char)b;
            t->vocab.tokens[b].bytes = byte;
            t->vocab.tokens[b].num_bytes = 1;
        }
    }
    if (status == LOONG_OK) {
        status = loongi_vocab_add(t, 256, end, sizeof(end) - 1);
    }
    if (status != LOONG_OK) {
        loong_tokenizer_destroy(&t);
        return status;
    }
    t->vocab.tokens[256].bytes = end;
    t->vocab.tokens[256].num_bytes = sizeof(end) - 1;
    t->vocab.tokens[256].special = true;
    t->longest = sizeof(end) - 1;
    t->roles[LOONG_TOKEN_EOS] = 256;
    t->roles[LOONG_TOKEN_EOD] = 256;
    *tokenizer_p = t;
    return LOONG_OK;
}

loong_status_t loong_tokenizer_save(loong_context_t *ctx,
                                    const loong_tokenizer_t *t,
                                    const char *path)
{
    LOONG_CHECK(ctx, t->source != NULL, LOONG_ERR_UNSUPPORTED,
                "'%s': the byte tokenizer, and one of ranks, has no "
                "tokenizer.json",
                path);
    return loongi_file_write(ctx, path, t->source, t->source_length);
}

uint64_t loong_tokenizer_hash(const loong_tokenizer_t *t)
{
    return t->hash;
}

int64_t loong_tokenizer_get_vocab_size(const loong_tokenizer_t *t)
{
    return t->vocab.size;
}

int32_t loong_tokenizer_token_to_id(const loong_tokenizer_t *t,
                                    const char *token)
{
    return loongi_vocab_find(&t->vocab, token, strlen(token));
}

const char *loong_tokenizer_id_to_token(const loong_tokenizer_t *t, int32_t id)
{
    return id >= 0 && id < t->vocab.size ? t->vocab.tokens[id].text : NULL;
}

int32_t loong_tokenizer_get_role(const loong_tokenizer_t *t,
                                 loong_token_role_t role)
{
    return t->roles[role];
}

bool loong_tokenizer_image_bounds(const loong_tokenizer_t *t, int32_t image,
                                  int32_t bounds[2])
{
    bounds[0] = t->image[1];
    bounds[1] = t->image[2];
    return image >= 0 && image == t->image[0] && bounds[0] >= 0 &&
           bounds[1] >= 0;
}
