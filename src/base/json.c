/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows jansson. loong_json_t is its json_t, and an object
 * member is its iterator, under our names. Called by readers and writers of
 * checkpoints, tokenizers and pictures. Read json.h before. */
#include <float.h>
#include <jansson.h>
#include <string.h>

#include "file.h"
#include "json.h"

static const json_t *inner(const loong_json_t *json)
{
    return (const json_t *)json;
}

static json_t *inner_mutable(const loong_json_t *json)
{
    return (json_t *)(uintptr_t)json;
}

static json_t *decode(const char *text, size_t length, json_error_t *error)
{
    return json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY |
                                        JSON_ALLOW_NUL, error);
}

static const char *skip_digits(const char *c, const char *end)
{
    while (c < end && *c >= '0' && *c <= '9') {
        c++;
    }
    return c;
}

/* The length of the string or number at `text`, or 1. */
static size_t token_length(const char *text, const char *end)
{
    const char *c = text;
    if (*c == '"') {
        for (c++; c < end && *c != '"'; c++) {
            c += *c == '\\';
        }
        return c < end ? (size_t)(c - text) + 1 : (size_t)(end - text);
    }
    c = skip_digits(c + (*c == '-'), end);
    if (c < end && *c == '.') {
        c = skip_digits(c + 1, end);
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        c++;
        c = skip_digits(c + (c < end && (*c == '+' || *c == '-')), end);
    }
    return LOONG_MAX((size_t)(c - text), 1);
}

/* A number, and too large for what it is decoded as. */
static bool overflows(const char *token, size_t length)
{
    json_error_t error;
    json_t *json = decode(token, length, &error);
    json_decref(json); /* accepts NULL */
    return json == NULL &&
           json_error_code(&error) == json_error_numeric_overflow;
}

static void append_token(loong_text_t *text, const char *token, size_t length)
{
    size_t begin = text->length;
    loongi_text_append(text, token, length);
    if (*token == '"' || !overflows(token, length)) {
        return;
    }
    if (memchr(token, '.', length) == NULL &&
        memchr(token, 'e', length) == NULL &&
        memchr(token, 'E', length) == NULL) {
        loongi_text_append(text, ".0", 2);
    }
    if (text->status == LOONG_OK &&
        overflows(text->data + begin, text->length - begin)) {
        text->length = begin;
        loongi_text_printf(text, "%s%.17g", *token == '-' ? "-" : "", DBL_MAX);
    }
}

/* Python writes integers of any size ("model_max_length" of many tokenizers)
 * and reads reals of any size: integers beyond 64 bits are decoded as reals,
 * what is beyond those as the largest one, which no use of a number takes. */
static json_t *decode_wide(loong_context_t *ctx, const char *text,
                           size_t length, json_error_t *error)
{
    const char *end = text + length;
    loong_text_t real = loongi_text_begin(ctx);
    while (text < end) {
        size_t token = token_length(text, end);
        append_token(&real, text, token);
        text += token;
    }
    json_t *json = NULL;
    if (real.status == LOONG_OK) {
        json = decode(real.data, real.length, error);
    }
    loongi_text_free(&real);
    return json;
}

loong_status_t loongi_json_parse(loong_context_t *ctx, const char *text,
                                 size_t length, const char *where,
                                 loong_json_t **json_p)
{
    json_error_t error;
    json_t *json = decode(text, length, &error);
    if (json == NULL &&
        json_error_code(&error) == json_error_numeric_overflow) {
        json = decode_wide(ctx, text, length, &error);
    }
    bool more = json == NULL &&
                json_error_code(&error) == json_error_end_of_input_expected;
    const char *why =
        more ? "more behind the value, one is wanted" : error.text;
    if (json == NULL && memchr(text, '\n', length) == NULL) {
        return LOONG_FAIL(ctx, LOONG_ERR_FORMAT, "%s: column %d: %s", where,
                          error.column, why);
    }
    LOONG_CHECK(ctx, json != NULL, LOONG_ERR_FORMAT,
                "%s: line %d, column %d: %s", where, error.line, error.column,
                why);
    *json_p = (loong_json_t *)json;
    return LOONG_OK;
}

loong_status_t loongi_json_load(loong_context_t *ctx, const char *path,
                                loong_json_t **json_p)
{
    char *text = NULL;
    size_t length = 0;
    LOONG_TRY(loongi_file_read(ctx, path, &text, &length));
    loong_status_t status = loongi_json_parse(ctx, text, length, path, json_p);
    loongi_free(ctx, text);
    return status;
}

void loongi_json_destroy(loong_json_t **json)
{
    json_decref(inner_mutable(*json)); /* accepts NULL */
    *json = NULL;
}

loong_json_kind_t loongi_json_kind(const loong_json_t *json)
{
    if (json == NULL) { /* a member that is not there */
        return LOONG_JSON_NULL;
    }
    switch (json_typeof(inner(json))) {
    case JSON_TRUE:
    case JSON_FALSE:
        return LOONG_JSON_BOOL;
    case JSON_INTEGER:
        return LOONG_JSON_INT;
    case JSON_REAL:
        return LOONG_JSON_REAL;
    case JSON_STRING:
        return LOONG_JSON_STRING;
    case JSON_ARRAY:
        return LOONG_JSON_ARRAY;
    case JSON_OBJECT:
        return LOONG_JSON_OBJECT;
    default:
        return LOONG_JSON_NULL;
    }
}

const char *loongi_json_kind_text(const loong_json_t *json)
{
    static const char *const texts[] = {"null",     "a boolean", "an integer",
                                        "a number", "a string",  "an array",
                                        "an object"};
    return texts[loongi_json_kind(json)];
}

const loong_json_t *loongi_json_get(const loong_json_t *json, const char *key)
{
    return (const loong_json_t *)json_object_get(inner(json), key);
}

int64_t loongi_json_count(const loong_json_t *json)
{
    if (json_is_object(inner(json))) {
        return (int64_t)json_object_size(inner(json));
    }
    return (int64_t)json_array_size(inner(json));
}

const loong_json_t *loongi_json_at(const loong_json_t *json, int64_t index)
{
    if (index < 0) {
        return NULL;
    }
    return (const loong_json_t *)json_array_get(inner(json), (size_t)index);
}

const loong_json_member_t *loongi_json_first(const loong_json_t *object)
{
    return json_object_iter(inner_mutable(object));
}

static void *member_iterator(const loong_json_member_t *member)
{
    return (void *)(uintptr_t)member;
}

const loong_json_member_t *loongi_json_next(const loong_json_t *object,
                                            const loong_json_member_t *member)
{
    return json_object_iter_next(inner_mutable(object),
                                 member_iterator(member));
}

const char *loongi_json_member_key(const loong_json_member_t *member)
{
    return json_object_iter_key(member_iterator(member));
}

const loong_json_t *loongi_json_member_value(const loong_json_member_t *member)
{
    return (const loong_json_t *)json_object_iter_value(
        member_iterator(member));
}

int64_t loongi_json_int(const loong_json_t *json)
{
    return json_integer_value(inner(json));
}

double loongi_json_real(const loong_json_t *json)
{
    return json_number_value(inner(json));
}

bool loongi_json_bool(const loong_json_t *json)
{
    return json_is_true(inner(json));
}

const char *loongi_json_string(const loong_json_t *json)
{
    const char *text = json_string_value(inner(json));
    return text != NULL ? text : "";
}

size_t loongi_json_string_length(const loong_json_t *json)
{
    return json_string_length(inner(json));
}

static int append(const char *bytes, size_t length, void *text)
{
    loongi_text_append(text, bytes, length);
    return 0;
}

void loongi_text_json(loong_text_t *text, const loong_json_t *json)
{
    (void)json_dump_callback(inner(json), append, text,
                             JSON_ENCODE_ANY | JSON_COMPACT);
}

const char *loongi_json_brief(loong_context_t *ctx, const loong_json_t *json,
                              char buffer[LOONG_JSON_BRIEF])
{
    loong_text_t text = loongi_text_begin(ctx);
    loongi_text_json(&text, json);
    snprintf(buffer, LOONG_JSON_BRIEF, "%.50s%s", loongi_text_get(&text),
             text.length > 50 ? "..." : "");
    loongi_text_free(&text);
    return buffer;
}

loong_status_t loongi_pairs_set_json(loong_pairs_t *pairs, const char *key,
                                     const loong_json_t *json)
{
    loong_text_t text = loongi_text_begin(pairs->ctx);
    loongi_text_json(&text, json);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_pairs_set(pairs, key, text.data);
    }
    loongi_text_free(&text);
    return status;
}

void loongi_text_json_bytes(loong_text_t *text, const char *bytes,
                            size_t length)
{
    size_t begin = 0;
    loongi_text_append(text, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\' || c < 0x20) {
            loongi_text_append(text, bytes + begin, i - begin);
            loongi_text_printf(text, c < 0x20 ? "\\u%04x" : "\\%c", c);
            begin = i + 1;
        }
    }
    loongi_text_append(text, bytes + begin, length - begin);
    loongi_text_append(text, "\"", 1);
}

void loongi_text_json_string(loong_text_t *text, const char *string)
{
    loongi_text_json_bytes(text, string, strlen(string));
}
