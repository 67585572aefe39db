/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.json: how text is prepared: normalizer and pre_tokenizer. Called by
 * tokenizer.c. Read tokenizer_impl.h before. */
#include <string.h>

#include "tokenizer_impl.h"

enum { MAX_DEPTH = 8 };

static bool is_absent(const loong_json_t *json)
{
    return json == NULL || loongi_json_kind(json) == LOONG_JSON_NULL;
}

static loong_status_t keep(loong_tokenizer_t *t, const char *text,
                           const char **kept_p, size_t *length_p)
{
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(t->arena, text, &copy));
    *kept_p = copy;
    *length_p = strlen(copy);
    return LOONG_OK;
}

static loong_status_t load_replace(loong_tokenizer_t *t,
                                   const loong_json_t *json, normalizer_t *n)
{
    const char *from = NULL;
    const char *to = NULL;
    const loong_json_t *pattern = loongi_json_get(json, "pattern");
    LOONG_CHECK(t->ctx, loongi_json_get(pattern, "Regex") == NULL,
                LOONG_ERR_UNSUPPORTED,
                "normalizer Replace with a regular expression ('%s') is not "
                "supported, only with a string",
                loongi_json_string(loongi_json_get(pattern, "Regex")));
    LOONG_TRY(loongi_member_text(t->ctx, pattern, "String",
                                 "normalizer.pattern", &from));
    LOONG_TRY(loongi_member_text(t->ctx, json, "content", "normalizer", &to));
    LOONG_CHECK(t->ctx, from[0] != '\0', LOONG_ERR_UNSUPPORTED,
                "normalizer Replace of an empty string is not supported");
    n->kind = NORMALIZE_REPLACE;
    LOONG_TRY(keep(t, from, &n->from, &n->from_length));
    return keep(t, to, &n->to, &n->to_length);
}

static loong_status_t load_normalizer(loong_tokenizer_t *t,
                                      const loong_json_t *json, int depth)
{
    const char *type = NULL;
    const char *text = NULL;
    LOONG_TRY(loongi_member_text(t->ctx, json, "type", "normalizer", &type));
    if (strcmp(type, "Sequence") == 0) {
        const loong_json_t *list = NULL;
        LOONG_TRY(loongi_member_list(t->ctx, json, "normalizers", "normalizer",
                                     &list));
        LOONG_CHECK(t->ctx, depth < MAX_DEPTH, LOONG_ERR_UNSUPPORTED,
                    "normalizer: more than %d sequences in each other",
                    MAX_DEPTH);
        for (int64_t i = 0; i < loongi_json_count(list); i++) {
            LOONG_TRY(load_normalizer(t, loongi_json_at(list, i), depth + 1));
        }
        return LOONG_OK;
    }
    LOONG_CHECK(t->ctx, t->num_normalizers < LOONG_MAX_STAGES,
                LOONG_ERR_UNSUPPORTED, "more than %d normalizers",
                LOONG_MAX_STAGES);
    normalizer_t *n = &t->normalizers[t->num_normalizers++];
    if (strcmp(type, "NFC") == 0) {
        n->kind = NORMALIZE_NFC;
        return t->nfc != NULL ? LOONG_OK : loongi_nfc_create(t->ctx, &t->nfc);
    }
    if (strcmp(type, "Prepend") == 0) {
        n->kind = NORMALIZE_PREPEND;
        LOONG_TRY(
            loongi_member_text(t->ctx, json, "prepend", "normalizer", &text));
        return keep(t, text, &n->to, &n->to_length);
    }
    LOONG_CHECK(t->ctx, strcmp(type, "Replace") == 0, LOONG_ERR_UNSUPPORTED,
                "normalizer '%s' is not supported; NFC, Prepend, Replace and "
                "Sequence are",
                type);
    return load_replace(t, json, n);
}

loong_status_t loongi_load_normalizer(loong_tokenizer_t *t,
                                      const loong_json_t *json)
{
    return is_absent(json) ? LOONG_OK : load_normalizer(t, json, 0);
}

static loong_status_t new_stage(loong_tokenizer_t *t, stage_t **stage_p)
{
    LOONG_CHECK(t->ctx, t->num_stages < LOONG_MAX_STAGES, LOONG_ERR_UNSUPPORTED,
                "pre_tokenizer: more than %d stages", LOONG_MAX_STAGES);
    *stage_p = &t->stages[t->num_stages++];
    (*stage_p)->chars = t->chars;
    return LOONG_OK;
}

static loong_status_t load_behavior(loong_context_t *ctx,
                                    const loong_json_t *json,
                                    behavior_t *behavior)
{
    const char *text = NULL;
    bool invert = false;
    LOONG_TRY(
        loongi_member_text(ctx, json, "behavior", "pre_tokenizer", &text));
    LOONG_TRY(loongi_member_bool(ctx, json, "invert", "pre_tokenizer", false,
                                 &invert));
    if (strcmp(text, "Isolated") == 0) {
        *behavior = KEEP_ALL;
        return LOONG_OK;
    }
    if (strcmp(text, "Removed") == 0) {
        *behavior = invert ? KEEP_MATCHES : KEEP_GAPS;
        return LOONG_OK;
    }
    LOONG_CHECK(ctx, strcmp(text, "MergedWithPrevious") == 0 && !invert,
                LOONG_ERR_UNSUPPORTED,
                "pre_tokenizer Split: behavior '%s'%s is not supported; "
                "Isolated, Removed and MergedWithPrevious are",
                text, invert ? " with invert" : "");
    *behavior = WITH_PREVIOUS;
    return LOONG_OK;
}

static loong_status_t load_split(loong_tokenizer_t *t, const loong_json_t *json)
{
    stage_t *s = NULL;
    const char *text = NULL;
    const loong_json_t *pattern = loongi_json_get(json, "pattern");
    LOONG_TRY(new_stage(t, &s));
    s->kind = STAGE_SPLIT;
    LOONG_TRY(load_behavior(t->ctx, json, &s->behavior));
    if (loongi_json_get(pattern, "Regex") != NULL) {
        LOONG_TRY(loongi_member_text(t->ctx, pattern, "Regex",
                                     "pre_tokenizer.pattern", &text));
        s->find = loongi_scan_find(text);
        if (s->find == NULL) {
            s->find = loongi_regex_find;
            LOONG_TRY(loongi_regex_create(t->ctx, text, &s->regex));
        }
        return LOONG_OK;
    }
    LOONG_TRY(loongi_member_text(t->ctx, pattern, "String",
                                 "pre_tokenizer.pattern", &text));
    LOONG_CHECK(t->ctx, text[0] != '\0', LOONG_ERR_UNSUPPORTED,
                "pre_tokenizer Split by an empty string is not supported");
    s->find = loongi_scan_literal();
    return keep(t, text, &s->literal, &s->literal_length);
}

static loong_status_t load_metaspace(loong_tokenizer_t *t,
                                     const loong_json_t *json)
{
    static const char where[] = "pre_tokenizer Metaspace";
    static const char *const schemes[] = {"never", "first", "always"};
    stage_t *s = NULL;
    const char *text = NULL;
    LOONG_TRY(new_stage(t, &s));
    s->kind = STAGE_METASPACE;
    LOONG_TRY(loongi_member_text(t->ctx, json, "replacement", where, &text));
    LOONG_CHECK(t->ctx, text[0] != '\0', LOONG_ERR_FORMAT,
                "%s.replacement is empty", where);
    LOONG_TRY(keep(t, text, &s->literal, &s->literal_length));
    LOONG_TRY(
        loongi_member_bool(t->ctx, json, "split", where, true, &s->split));
    bool prefix = true; /* the older spelling */
    LOONG_TRY(loongi_member_bool(t->ctx, json, "add_prefix_space", where, true,
                                 &prefix));
    s->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (loongi_json_get(json, "prepend_scheme") == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_member_text(t->ctx, json, "prepend_scheme", where, &text));
    int scheme = 0;
    while (scheme < 3 && strcmp(text, schemes[scheme]) != 0) {
        scheme++;
    }
    LOONG_CHECK(t->ctx, scheme < 3, LOONG_ERR_FORMAT,
                "%s.prepend_scheme '%s' must be never, first or always", where,
                text);
    s->prepend = scheme == 0   ? PREPEND_NEVER
                 : scheme == 1 ? PREPEND_FIRST
                               : PREPEND_ALWAYS;
    return LOONG_OK;
}

static loong_status_t load_byte_level(loong_tokenizer_t *t,
                                      const loong_json_t *json)
{
    static const char where[] = "pre_tokenizer ByteLevel";
    bool prefix = false;
    bool cut = false;
    stage_t *s = NULL;
    LOONG_TRY(loongi_member_bool(t->ctx, json, "add_prefix_space", where, true,
                                 &prefix));
    LOONG_TRY(loongi_member_bool(t->ctx, json, "use_regex", where, true, &cut));
    if (prefix) {
        LOONG_TRY(new_stage(t, &s));
        s->kind = STAGE_PREFIX_SPACE;
    }
    if (cut) {
        LOONG_TRY(new_stage(t, &s));
        s->kind = STAGE_SPLIT;
        s->find =
            loongi_scan_find(loongi_scan_pattern(LOONG_PRETOKENIZER_GPT2));
    }
    t->byte_level = true;
    return LOONG_OK;
}

static loong_status_t load_pretokenizer(loong_tokenizer_t *t,
                                        const loong_json_t *json, int depth)
{
    const char *type = NULL;
    stage_t *s = NULL;
    LOONG_TRY(loongi_member_text(t->ctx, json, "type", "pre_tokenizer", &type));
    LOONG_CHECK(t->ctx, !t->byte_level, LOONG_ERR_UNSUPPORTED,
                "pre_tokenizer: '%s' behind ByteLevel is not supported", type);
    if (strcmp(type, "Sequence") == 0) {
        const loong_json_t *list = NULL;
        LOONG_TRY(loongi_member_list(t->ctx, json, "pretokenizers",
                                     "pre_tokenizer", &list));
        LOONG_CHECK(t->ctx, depth < MAX_DEPTH, LOONG_ERR_UNSUPPORTED,
                    "pre_tokenizer: more than %d sequences in each other",
                    MAX_DEPTH);
        for (int64_t i = 0; i < loongi_json_count(list); i++) {
            LOONG_TRY(load_pretokenizer(t, loongi_json_at(list, i), depth + 1));
        }
        return LOONG_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return load_byte_level(t, json);
    }
    if (strcmp(type, "Split") == 0) {
        return load_split(t, json);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(t, json);
    }
    LOONG_CHECK(t->ctx, strcmp(type, "Digits") == 0, LOONG_ERR_UNSUPPORTED,
                "pre_tokenizer '%s' is not supported; ByteLevel, Digits, "
                "Metaspace, Sequence and Split are",
                type);
    bool individual = false;
    LOONG_TRY(loongi_member_bool(t->ctx, json, "individual_digits",
                                 "pre_tokenizer Digits", false, &individual));
    LOONG_TRY(new_stage(t, &s));
    s->kind = STAGE_SPLIT;
    s->find = loongi_scan_digits(individual);
    return LOONG_OK;
}

loong_status_t loongi_load_pretokenizer(loong_tokenizer_t *t,
                                        const loong_json_t *json)
{
    return is_absent(json) ? LOONG_OK : load_pretokenizer(t, json, 0);
}
