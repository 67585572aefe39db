/* SPDX-License-Identifier: Apache-2.0
 *
 * The one place that knows jansson. loong_json_t is its json_t, and an object
 * member is its iterator, under our names. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
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

/* The length of the string or number at `text`, or 1; *wide_p: it is an
 * integer that does not fit in 64 bits. */
static size_t token_length(const char *text, const char *end, bool *wide_p)
{
    enum { INT64_DIGITS = 19 };
    const char *c = text;
    *wide_p = false;
    if (*c == '"') {
        for (c++; c < end && *c != '"'; c++) {
            c += *c == '\\';
        }
        return c < end ? (size_t)(c - text) + 1 : (size_t)(end - text);
    }
    while (c < end && strchr("+-.0123456789Ee", *c) != NULL && *c != '\0') {
        c++;
    }
    size_t length = (size_t)(c - text);
    if (length >= INT64_DIGITS && memchr(text, '.', length) == NULL &&
        memchr(text, 'e', length) == NULL &&
        memchr(text, 'E', length) == NULL) {
        char digits[INT64_DIGITS + 3] = "";
        memcpy(digits, text, LOONG_MIN(length, sizeof(digits) - 1));
        errno = 0;
        (void)strtoll(digits, NULL, 10);
        *wide_p = errno == ERANGE;
    }
    return LOONG_MAX(length, 1);
}

/* Python writes integers of any size ("model_max_length" of many tokenizers);
 * those beyond 64 bits are decoded as reals. */
static json_t *decode_wide(loong_context_t *ctx, const char *text,
                           size_t length, json_error_t *error)
{
    const char *end = text + length;
    loong_text_t real = loongi_text_begin(ctx);
    while (text < end) {
        bool wide = false;
        size_t token = token_length(text, end, &wide);
        loongi_text_append(&real, text, token);
        if (wide) {
            loongi_text_append(&real, ".0", 2);
        }
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
    if (json == NULL && memchr(text, '\n', length) == NULL) {
        return LOONG_FAIL(ctx, LOONG_ERR_FORMAT, "%s: column %d: %s", where,
                          error.column, error.text);
    }
    LOONG_CHECK(ctx, json != NULL, LOONG_ERR_FORMAT,
                "%s: line %d, column %d: %s", where, error.line, error.column,
                error.text);
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

void loongi_text_json_string(loong_text_t *text, const char *string)
{
    loongi_text_printf(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\') {
            loongi_text_printf(text, "\\%c", *c);
        } else if (*c < 0x20) {
            loongi_text_printf(text, "\\u%04x", (unsigned)*c);
        } else {
            loongi_text_append(text, c, 1);
        }
    }
    loongi_text_printf(text, "\"");
}
