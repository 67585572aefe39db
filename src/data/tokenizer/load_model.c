/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: the model and the added tokens. Called by tokenizer.c. Read
 * tokenizer_impl.h before. */
#include <stdio.h>
#include <string.h>

#include "tokenizer_impl.h"

loong_status_t loongi_member_text(loong_context_t *ctx,
                                  const loong_json_t *json, const char *key,
                                  const char *where, const char **text_p)
{
    const loong_json_t *member = loongi_json_get(json, key);
    LOONG_CHECK(ctx, member != NULL, LOONG_ERR_FORMAT, "%s: '%s' is missing",
                where, key);
    LOONG_CHECK(ctx, loongi_json_kind(member) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s.%s is %s, must be a string", where, key,
                loongi_json_kind_text(member));
    const char *text = loongi_json_string(member);
    LOONG_CHECK(ctx, strlen(text) == loongi_json_string_length(member),
                LOONG_ERR_UNSUPPORTED,
                "%s.%s has U+0000 in it, which is not supported", where, key);
    *text_p = text;
    return LOONG_OK;
}

loong_status_t loongi_member_bool(loong_context_t *ctx,
                                  const loong_json_t *json, const char *key,
                                  const char *where, bool absent, bool *value_p)
{
    const loong_json_t *member = loongi_json_get(json, key);
    if (member == NULL || loongi_json_kind(member) == LOONG_JSON_NULL) {
        *value_p = absent;
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, loongi_json_kind(member) == LOONG_JSON_BOOL,
                LOONG_ERR_FORMAT, "%s.%s is %s, must be a boolean", where, key,
                loongi_json_kind_text(member));
    *value_p = loongi_json_bool(member);
    return LOONG_OK;
}

loong_status_t loongi_member_list(loong_context_t *ctx,
                                  const loong_json_t *json, const char *key,
                                  const char *where,
                                  const loong_json_t **list_p)
{
    const loong_json_t *member = loongi_json_get(json, key);
    LOONG_CHECK(ctx, loongi_json_kind(member) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "%s.%s is %s, must be an array", where, key,
                member == NULL ? "missing" : loongi_json_kind_text(member));
    *list_p = member;
    return LOONG_OK;
}

static loong_status_t load_vocab(loong_tokenizer_t *t,
                                 const loong_json_t *vocab)
{
    LOONG_CHECK(t->ctx, loongi_json_kind(vocab) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "model.vocab is %s, must be an object",
                vocab == NULL ? "missing" : loongi_json_kind_text(vocab));
    LOONG_CHECK(t->ctx, loongi_json_count(vocab) > 0, LOONG_ERR_FORMAT,
                "model.vocab is empty");
    LOONG_TRY(loongi_vocab_reserve(t->ctx, &t->vocab,
                                   loongi_json_count(vocab) + 1024));
    for (const loong_json_member_t *m = loongi_json_first(vocab); m != NULL;
         m = loongi_json_next(vocab, m)) {
        const char *text = loongi_json_member_key(m);
        const loong_json_t *id = loongi_json_member_value(m);
        LOONG_CHECK(t->ctx, loongi_json_kind(id) == LOONG_JSON_INT,
                    LOONG_ERR_FORMAT,
                    "model.vocab: the id of '%s' is %s, must be an integer",
                    text, loongi_json_kind_text(id));
        LOONG_TRY(loongi_vocab_add(t, loongi_json_int(id), text, strlen(text)));
        t->vocab.tokens[loongi_json_int(id)].in_model = true;
    }
    return LOONG_OK;
}

/* The two texts of a merge: "a b" or ["a", "b"]. */
static loong_status_t merge_texts(loong_context_t *ctx,
                                  const loong_json_t *json, int64_t index,
                                  const char *text[2], size_t length[2])
{
    if (loongi_json_kind(json) == LOONG_JSON_STRING) {
        const char *line = loongi_json_string(json);
        const char *blank = strchr(line, ' ');
        LOONG_CHECK(ctx, blank != NULL && strchr(blank + 1, ' ') == NULL,
                    LOONG_ERR_FORMAT,
                    "model.merges[%lld] is '%s', must be two tokens with one "
                    "blank between",
                    (long long)index, line);
        text[0] = line;
        length[0] = (size_t)(blank - line);
        text[1] = blank + 1;
        length[1] = strlen(blank + 1);
        return LOONG_OK;
    }
    for (int i = 0; i < 2; i++) {
        const loong_json_t *part = loongi_json_at(json, i);
        LOONG_CHECK(ctx,
                    loongi_json_count(json) == 2 && part != NULL &&
                        loongi_json_kind(part) == LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT,
                    "model.merges[%lld] must be a string or two strings",
                    (long long)index);
        text[i] = loongi_json_string(part);
        length[i] = strlen(text[i]);
    }
    return LOONG_OK;
}

static loong_status_t load_merge(loong_tokenizer_t *t, const loong_json_t *json,
                                 int64_t index, loong_buffer_t *joined)
{
    const char *text[3] = {NULL, NULL, NULL};
    size_t length[3] = {0, 0, 0};
    int32_t ids[3];
    LOONG_TRY(merge_texts(t->ctx, json, index, text, length));
    joined->length = 0;
    LOONG_TRY(loongi_buffer_add(t->ctx, joined, text[0], length[0]));
    LOONG_TRY(loongi_buffer_add(t->ctx, joined, text[1], length[1]));
    text[2] = joined->data;
    length[2] = joined->length;
    for (int i = 0; i < 3; i++) {
        ids[i] = length[i] > 0
                     ? loongi_vocab_find(&t->vocab, text[i], length[i])
                     : -1;
        LOONG_CHECK(t->ctx, ids[i] >= 0, LOONG_ERR_FORMAT,
                    "model.merges[%lld]: '%.*s' is not in the vocabulary",
                    (long long)index, (int)length[i], text[i]);
    }
    merge_t merge = {(uint64_t)(uint32_t)ids[0] << 32 | (uint32_t)ids[1],
                     (uint32_t)index, ids[2]};
    loongi_merges_put(&t->merges, merge);
    return LOONG_OK;
}

static loong_status_t load_merges(loong_tokenizer_t *t,
                                  const loong_json_t *model)
{
    loong_buffer_t joined = {0};
    loong_status_t status = LOONG_OK;
    const loong_json_t *merges = NULL;
    LOONG_TRY(loongi_member_list(t->ctx, model, "merges", "model", &merges));
    LOONG_TRY(
        loongi_merges_create(t->ctx, loongi_json_count(merges), &t->merges));
    for (int64_t i = 0; i < loongi_json_count(merges) && status == LOONG_OK;
         i++) {
        status = load_merge(t, loongi_json_at(merges, i), i, &joined);
    }
    loongi_free(t->ctx, joined.data);
    return status;
}

/* Settings of the model that would change ids and are not done here. */
static loong_status_t refuse_settings(loong_context_t *ctx,
                                      const loong_json_t *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const loong_json_t *type = loongi_json_get(model, "type");
    const loong_json_t *dropout = loongi_json_get(model, "dropout");
    LOONG_CHECK(
        ctx, type == NULL || strcmp(loongi_json_string(type), "BPE") == 0,
        LOONG_ERR_UNSUPPORTED, "model.type '%s' is not supported, only BPE is",
        loongi_json_string(type));
    LOONG_CHECK(ctx, dropout == NULL || loongi_json_real(dropout) == 0,
                LOONG_ERR_UNSUPPORTED, "model.dropout %g is not supported",
                loongi_json_real(dropout));
    for (int i = 0; i < 2; i++) {
        const loong_json_t *affix = loongi_json_get(model, affixes[i]);
        LOONG_CHECK(ctx, affix == NULL || loongi_json_string(affix)[0] == '\0',
                    LOONG_ERR_UNSUPPORTED, "model.%s '%s' is not supported",
                    affixes[i], loongi_json_string(affix));
    }
    return LOONG_OK;
}

loong_status_t loongi_load_model(loong_tokenizer_t *t,
                                 const loong_json_t *model)
{
    LOONG_CHECK(t->ctx, loongi_json_kind(model) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "'model' is %s, must be an object",
                model == NULL ? "missing" : loongi_json_kind_text(model));
    LOONG_TRY(refuse_settings(t->ctx, model));
    LOONG_TRY(loongi_member_bool(t->ctx, model, "fuse_unk", "model", false,
                                 &t->fuse_unk));
    LOONG_TRY(loongi_member_bool(t->ctx, model, "byte_fallback", "model", false,
                                 &t->byte_fallback));
    LOONG_TRY(loongi_member_bool(t->ctx, model, "ignore_merges", "model", false,
                                 &t->ignore_merges));
    LOONG_TRY(load_vocab(t, loongi_json_get(model, "vocab")));
    LOONG_TRY(load_merges(t, model));
    const loong_json_t *unk = loongi_json_get(model, "unk_token");
    t->unk_id = -1;
    if (unk != NULL && loongi_json_kind(unk) != LOONG_JSON_NULL) {
        const char *text = NULL;
        LOONG_TRY(
            loongi_member_text(t->ctx, model, "unk_token", "model", &text));
        t->unk_id = loongi_vocab_find(&t->vocab, text, strlen(text));
        LOONG_CHECK(t->ctx, t->unk_id >= 0, LOONG_ERR_FORMAT,
                    "model.unk_token '%s' is not in the vocabulary", text);
    }
    return LOONG_OK;
}

/* Its id must be what `tokenizers` gives it: that of the vocabulary, or the
 * next free one. */
static loong_status_t added_id(loong_tokenizer_t *t, const loong_json_t *json,
                               const char *text, int64_t *next, int32_t *id_p)
{
    const loong_json_t *id = loongi_json_get(json, "id");
    int64_t known = loongi_vocab_find(&t->vocab, text, strlen(text));
    int64_t expected = known >= 0 ? known : *next;
    LOONG_CHECK(t->ctx, loongi_json_kind(id) == LOONG_JSON_INT,
                LOONG_ERR_FORMAT,
                "added_tokens: the id of '%s' is %s, must be an integer", text,
                id == NULL ? "missing" : loongi_json_kind_text(id));
    LOONG_CHECK(t->ctx, loongi_json_int(id) == expected, LOONG_ERR_FORMAT,
                "added_tokens: the id of '%s' must be %lld, found %lld", text,
                (long long)expected, (long long)loongi_json_int(id));
    if (known < 0) {
        LOONG_TRY(loongi_vocab_add(t, expected, text, strlen(text)));
    }
    *next = LOONG_MAX(*next, expected + 1);
    *id_p = (int32_t)expected;
    return LOONG_OK;
}

static loong_status_t load_added(loong_tokenizer_t *t, const loong_json_t *json,
                                 loong_text_encoder_t *encoder, int64_t *next)
{
    static const char where[] = "added_tokens";
    added_token_t token = {0};
    bool special = false;
    bool normalized = false;
    LOONG_TRY(loongi_member_text(t->ctx, json, "content", where, &token.text));
    LOONG_CHECK(t->ctx, token.text[0] != '\0', LOONG_ERR_FORMAT,
                "added_tokens: an empty token");
    LOONG_TRY(added_id(t, json, token.text, next, &token.id));
    LOONG_TRY(
        loongi_member_bool(t->ctx, json, "special", where, false, &special));
    LOONG_TRY(loongi_member_bool(t->ctx, json, "normalized", where, !special,
                                 &normalized));
    LOONG_TRY(loongi_member_bool(t->ctx, json, "single_word", where, false,
                                 &token.single_word));
    LOONG_TRY(loongi_member_bool(t->ctx, json, "lstrip", where, false,
                                 &token.lstrip));
    LOONG_TRY(loongi_member_bool(t->ctx, json, "rstrip", where, false,
                                 &token.rstrip));
    t->vocab.tokens[token.id].special |= special;
    token.length = strlen(token.text);
    if (normalized) {
        LOONG_TRY(loongi_normalize(encoder, &token.text, &token.length));
        LOONG_CHECK(t->ctx, token.length > 0, LOONG_ERR_FORMAT,
                    "added_tokens: nothing is left of id %d when normalised",
                    token.id);
    }
    char *copy = NULL;
    LOONG_TRY(loongi_arena_alloc(t->arena, token.length + 1, &copy));
    memcpy(copy, token.text, token.length);
    token.text = copy;
    return loongi_added_add(
        t, normalized ? &t->added_normalized : &t->added_raw, &token);
}

loong_status_t loongi_load_added(loong_tokenizer_t *t, const loong_json_t *list)
{
    loong_text_encoder_t *encoder = NULL; /* to normalise with */
    int64_t next = t->vocab.count;
    LOONG_CHECK(t->ctx,
                list == NULL || loongi_json_kind(list) == LOONG_JSON_ARRAY ||
                    loongi_json_kind(list) == LOONG_JSON_NULL,
                LOONG_ERR_FORMAT, "added_tokens is %s, must be an array",
                loongi_json_kind_text(list));
    LOONG_TRY(loong_text_encoder_create(t->ctx, t, &encoder));
    loong_status_t status = LOONG_OK;
    for (int64_t i = 0; status == LOONG_OK && i < loongi_json_count(list);
         i++) {
        status = load_added(t, loongi_json_at(list, i), encoder, &next);
    }
    loong_text_encoder_destroy(&encoder);
    LOONG_TRY(status);
    LOONG_TRY(loongi_added_finish(t, &t->added_raw));
    return loongi_added_finish(t, &t->added_normalized);
}
