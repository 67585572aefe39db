/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: what happens around ids: post_processor and decoder. Called
 * by tokenizer.c. Read tokenizer_impl.h before. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

static bool is_absent(const loong_json_t *json)
{
    return json == NULL || loongi_json_kind(json) == LOONG_JSON_NULL;
}

static loong_status_t add_id(loong_tokenizer_t *t, bool after, int64_t id)
{
    int32_t **ids = after ? &t->template_after : &t->template_before;
    int64_t *count = after ? &t->num_after : &t->num_before;
    LOONG_CHECK(t->ctx, id >= 0 && id < t->vocab.size, LOONG_ERR_FORMAT,
                "post_processor: there is no token %lld", (long long)id);
    LOONG_TRY(loongi_realloc(t->ctx, (size_t)(*count + 1) * sizeof(**ids),
                             "template", ids));
    (*ids)[(*count)++] = (int32_t)id;
    return LOONG_OK;
}

/* {"SpecialToken": {"id": NAME}}; the ids of NAME stand in special_tokens. */
static loong_status_t add_special(loong_tokenizer_t *t,
                                  const loong_json_t *item,
                                  const loong_json_t *table, bool after)
{
    const char *name = NULL;
    LOONG_TRY(loongi_member_text(t->ctx, item, "id",
                                 "post_processor.single.SpecialToken", &name));
    const loong_json_t *special = loongi_json_get(table, name);
    const loong_json_t *ids = NULL;
    LOONG_CHECK(t->ctx, special != NULL, LOONG_ERR_FORMAT,
                "post_processor.special_tokens: '%s' is missing", name);
    LOONG_TRY(loongi_member_list(t->ctx, special, "ids",
                                 "post_processor.special_tokens", &ids));
    for (int64_t i = 0; i < loongi_json_count(ids); i++) {
        const loong_json_t *id = loongi_json_at(ids, i);
        LOONG_CHECK(t->ctx,
                    id != NULL && loongi_json_kind(id) == LOONG_JSON_INT,
                    LOONG_ERR_FORMAT,
                    "post_processor.special_tokens: ids of '%s' must be "
                    "integers",
                    name);
        LOONG_TRY(add_id(t, after, loongi_json_int(id)));
    }
    return LOONG_OK;
}

static loong_status_t load_template(loong_tokenizer_t *t,
                                    const loong_json_t *json)
{
    const loong_json_t *single = NULL;
    const loong_json_t *table = loongi_json_get(json, "special_tokens");
    int sequences = 0;
    LOONG_TRY(
        loongi_member_list(t->ctx, json, "single", "post_processor", &single));
    for (int64_t i = 0; i < loongi_json_count(single); i++) {
        const loong_json_t *item = loongi_json_at(single, i);
        const loong_json_t *special = loongi_json_get(item, "SpecialToken");
        if (special != NULL) {
            LOONG_TRY(add_special(t, special, table, sequences > 0));
        }
        sequences += loongi_json_get(item, "Sequence") != NULL;
    }
    LOONG_CHECK(t->ctx, sequences == 1, LOONG_ERR_UNSUPPORTED,
                "post_processor.single has %d sequences, one is supported",
                sequences);
    return LOONG_OK;
}

loong_status_t loongi_load_postprocessor(loong_tokenizer_t *t,
                                         const loong_json_t *json)
{
    const char *type = NULL;
    if (is_absent(json)) {
        return LOONG_OK;
    }
    LOONG_TRY(
        loongi_member_text(t->ctx, json, "type", "post_processor", &type));
    if (strcmp(type, "Sequence") == 0) {
        const loong_json_t *list = NULL;
        LOONG_TRY(loongi_member_list(t->ctx, json, "processors",
                                     "post_processor", &list));
        for (int64_t i = 0; i < loongi_json_count(list); i++) {
            const loong_json_t *part = loongi_json_at(list, i);
            LOONG_TRY(loongi_member_text(t->ctx, part, "type", "post_processor",
                                         &type));
            LOONG_CHECK(t->ctx, strcmp(type, "Sequence") != 0,
                        LOONG_ERR_UNSUPPORTED,
                        "post_processor: a sequence in a sequence");
            LOONG_TRY(loongi_load_postprocessor(t, part));
        }
        return LOONG_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return LOONG_OK; /* trims offsets, which are not given out */
    }
    LOONG_CHECK(t->ctx, strcmp(type, "TemplateProcessing") == 0,
                LOONG_ERR_UNSUPPORTED,
                "post_processor '%s' is not supported; ByteLevel, Sequence "
                "and TemplateProcessing are",
                type);
    LOONG_CHECK(t->ctx, t->num_before + t->num_after == 0,
                LOONG_ERR_UNSUPPORTED,
                "post_processor: two templates are not supported");
    return load_template(t, json);
}

/* Decoders are applied to each token once, here; what is left for later is
 * blanks at the beginning of the text. */
typedef struct decoding {
    bool byte_level;
    bool byte_fallback;
    const char *from; /* of replace; NULL: none */
    const char *to;
} decoding_t;

static loong_status_t read_decoder(loong_tokenizer_t *t,
                                   const loong_json_t *json, decoding_t *d,
                                   int depth)
{
    const char *type = NULL;
    const char *text = NULL;
    LOONG_TRY(loongi_member_text(t->ctx, json, "type", "decoder", &type));
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const loong_json_t *list = NULL;
        LOONG_TRY(
            loongi_member_list(t->ctx, json, "decoders", "decoder", &list));
        for (int64_t i = 0; i < loongi_json_count(list); i++) {
            LOONG_TRY(read_decoder(t, loongi_json_at(list, i), d, depth + 1));
        }
    } else if (strcmp(type, "ByteLevel") == 0) {
        d->byte_level = true;
    } else if (strcmp(type, "ByteFallback") == 0) {
        d->byte_fallback = true;
    } else if (strcmp(type, "Replace") == 0 && d->from == NULL) {
        LOONG_TRY(loongi_member_text(t->ctx, loongi_json_get(json, "pattern"),
                                     "String", "decoder.pattern", &d->from));
        LOONG_TRY(
            loongi_member_text(t->ctx, json, "content", "decoder", &d->to));
        LOONG_CHECK(t->ctx, d->from[0] != '\0', LOONG_ERR_UNSUPPORTED,
                    "decoder Replace of an empty string is not supported");
    } else if (strcmp(type, "Metaspace") == 0 && d->from == NULL) {
        bool prefix = true;
        LOONG_TRY(loongi_member_text(t->ctx, json, "replacement", "decoder",
                                     &d->from));
        LOONG_TRY(loongi_member_bool(t->ctx, json, "add_prefix_space",
                                     "decoder", true, &prefix));
        const loong_json_t *scheme = loongi_json_get(json, "prepend_scheme");
        if (scheme != NULL) {
            prefix = strcmp(loongi_json_string(scheme), "never") != 0;
        }
        d->to = " ";
        t->strip_left = prefix ? INT_MAX : 0;
    } else if (strcmp(type, "Strip") == 0) {
        LOONG_TRY(
            loongi_member_text(t->ctx, json, "content", "decoder", &text));
        int64_t start = loongi_json_int(loongi_json_get(json, "start"));
        LOONG_CHECK(
            t->ctx,
            strcmp(text, " ") == 0 && start >= 0 && start <= 1 &&
                loongi_json_int(loongi_json_get(json, "stop")) == 0,
            LOONG_ERR_UNSUPPORTED,
            "decoder Strip is supported for one blank at the start only");
        t->strip_left = (int)start;
    } else {
        LOONG_CHECK(t->ctx, strcmp(type, "Fuse") == 0, LOONG_ERR_UNSUPPORTED,
                    "decoder '%s' is not supported at this place", type);
    }
    return LOONG_OK;
}

/* The byte of "<0xAB>", or -1. */
static int fallback_byte(const token_t *token)
{
    static const char hex[] = "0123456789ABCDEFabcdef";
    if (token->length != 6 || memcmp(token->text, "<0x", 3) != 0 ||
        strspn(token->text + 3, hex) != 2 || token->text[5] != '>') {
        return -1;
    }
    return (int)strtol(token->text + 3, NULL, 16);
}

/* Every character of the token as the byte it stands for; false when one
 * stands for none. */
static bool to_bytes(const token_t *token, char *out, uint32_t *length_p)
{
    uint32_t n = 0;
    for (size_t at = 0; at < token->length;) {
        int byte = loongi_point_to_byte(loongi_utf8_get(token->text + at, &at));
        if (byte < 0) {
            return false;
        }
        out[n++] = (char)byte;
    }
    *length_p = n;
    return true;
}

static void replace_all(const token_t *token, const decoding_t *d, char *out,
                        uint32_t *length_p)
{
    size_t from = strlen(d->from);
    size_t to = strlen(d->to);
    uint32_t n = 0;
    for (size_t at = 0; at < token->length;) {
        if (strncmp(token->text + at, d->from, from) == 0) {
            memcpy(out + n, d->to, to);
            n += (uint32_t)to;
            at += from;
        } else {
            out[n++] = token->text[at++];
        }
    }
    *length_p = n;
}

static loong_status_t decode_token(loong_tokenizer_t *t, token_t *token,
                                   const decoding_t *d)
{
    char *out = NULL;
    int byte = d->byte_fallback ? fallback_byte(token) : -1;
    size_t grown = d->from != NULL ? LOONG_MAX(strlen(d->to), 1) : 1;
    token->bytes = token->text;
    token->num_bytes = token->length;
    LOONG_TRY(loongi_arena_alloc(t->arena, token->length * grown + 1, &out));
    if (byte >= 0) {
        out[0] = (char)byte;
        token->num_bytes = 1;
        token->bytes = out;
    } else if (d->byte_level && token->in_model) {
        token->bytes =
            to_bytes(token, out, &token->num_bytes) ? out : token->text;
    } else if (d->from != NULL) {
        replace_all(token, d, out, &token->num_bytes);
        token->bytes = out;
    }
    t->longest = LOONG_MAX(t->longest, (size_t)token->num_bytes);
    return LOONG_OK;
}

loong_status_t loongi_load_decoder(loong_tokenizer_t *t,
                                   const loong_json_t *json)
{
    decoding_t d = {0};
    if (!is_absent(json)) {
        LOONG_TRY(read_decoder(t, json, &d, 0));
    }
    LOONG_CHECK(t->ctx, !(d.byte_level && d.from != NULL),
                LOONG_ERR_UNSUPPORTED,
                "decoder ByteLevel together with Replace is not supported");
    for (int64_t id = 0; id < t->vocab.size; id++) {
        if (t->vocab.tokens[id].text != NULL) {
            LOONG_TRY(decode_token(t, &t->vocab.tokens[id], &d));
        }
    }
    return LOONG_OK;
}
