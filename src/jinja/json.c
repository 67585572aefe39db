/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as Python's json.dumps writes them. Called by the filter tojson.
 * Read run.h before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "unicode_text.h"
#include "utf8.h"

static loong_status_t emit(run_t *r, const char *text)
{
    return jinja_emit(r, text, strlen(text));
}

static loong_status_t print_escape(run_t *r, uint32_t point)
{
    static const char names[] = "\"\\\n\r\t\f\b";
    static const char letters[] = "\"\\nrtfb";
    char text[16];
    const char *name =
        point > 0 && point < 0x80 ? strchr(names, (int)point) : NULL;
    if (name != NULL) {
        snprintf(text, sizeof(text), "\\%c", letters[name - names]);
    } else if (point < 0x10000) {
        snprintf(text, sizeof(text), "\\u%04x", point);
    } else {
        snprintf(text, sizeof(text), "\\u%04x\\u%04x",
                 0xD800 + ((point - 0x10000) >> 10),
                 0xDC00 + ((point - 0x10000) & 0x3FF));
    }
    return emit(r, text);
}

static loong_status_t print_string(run_t *r, value_t value, bool ascii)
{
    const char *text = value.as.text;
    size_t plain = 0;
    LOONG_TRY(emit(r, "\""));
    for (size_t at = 0; at < value.length;) {
        size_t begin = at;
        uint32_t point = loongi_utf8_get(text + at, &at);
        if (point < 0x20 || point == '"' || point == '\\' ||
            (ascii && point >= 0x7F)) {
            LOONG_TRY(jinja_emit(r, text + plain, begin - plain));
            LOONG_TRY(print_escape(r, point));
            plain = at;
        }
    }
    LOONG_TRY(jinja_emit(r, text + plain, value.length - plain));
    return emit(r, "\"");
}

static loong_status_t print_plain(run_t *r, value_t value)
{
    char text[JINJA_REAL_BYTES];
    switch (value.kind) {
    case JINJA_NONE:
        return emit(r, "null");
    case JINJA_BOOL:
        return emit(r, value.as.truth ? "true" : "false");
    case JINJA_REAL:
        if (!isfinite(value.as.real)) {
            return emit(r, isnan(value.as.real)  ? "NaN"
                           : value.as.real > 0.0 ? "Infinity"
                                                 : "-Infinity");
        }
        jinja_real_text(value.as.real, text);
        return emit(r, text);
    default:
        snprintf(text, sizeof(text), "%lld", (long long)value.as.integer);
        return emit(r, text);
    }
}

static loong_status_t new_line(run_t *r, const jinja_json_style_t *s, int level)
{
    if (s->indent == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(emit(r, "\n"));
    for (int i = 0; i < level; i++) {
        LOONG_TRY(jinja_emit(r, s->indent, s->indent_length));
    }
    return LOONG_OK;
}

static loong_status_t print_list(run_t *r, const jinja_list_t *list,
                                 const jinja_json_style_t *s, int level)
{
    LOONG_TRY(emit(r, "["));
    for (int64_t i = 0; i < list->count; i++) {
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(i > 0 ? jinja_print(r, s->item) : LOONG_OK);
        LOONG_TRY(new_line(r, s, level + 1));
        LOONG_TRY(jinja_print_json(r, list->items[i], s, level + 1));
    }
    LOONG_TRY(list->count > 0 ? new_line(r, s, level) : LOONG_OK);
    return emit(r, "]");
}

/* A key is a string; numbers, bools and none become one. */
static loong_status_t print_key(run_t *r, value_t key, bool ascii)
{
    if (key.kind == JINJA_STRING) {
        return print_string(r, key, ascii);
    }
    if (key.kind != JINJA_NONE && !jinja_is_number(key)) {
        return jinja_fail(r, "%s cannot be a key of JSON",
                          jinja_type_name(key));
    }
    LOONG_TRY(emit(r, "\""));
    LOONG_TRY(print_plain(r, key));
    return emit(r, "\"");
}

static int compare_keys(const void *a, const void *b)
{
    value_t x = ((const jinja_entry_t *)a)->key;
    value_t y = ((const jinja_entry_t *)b)->key;
    if (x.kind != JINJA_STRING) {
        return jinja_compare_numbers(x, y);
    }
    size_t length = LOONG_MIN(x.length, y.length);
    int order = length == 0 ? 0 : memcmp(x.as.text, y.as.text, length);
    return order != 0 ? order : (x.length > y.length) - (x.length < y.length);
}

static loong_status_t sort_entries(run_t *r, const jinja_dict_t *dict,
                                   const jinja_entry_t **entries_p)
{
    jinja_entry_t *entries = NULL;
    size_t size = (size_t)dict->count * sizeof(*entries);
    LOONG_TRY(jinja_new(r->heap, size, &entries));
    if (dict->count > 0) {
        memcpy(entries, dict->entries, size);
    }
    for (int64_t i = 0; i < dict->count; i++) {
        bool text = entries[i].key.kind == JINJA_STRING;
        if (text != (entries[0].key.kind == JINJA_STRING) ||
            (!text && dict->count > 1 && !jinja_is_number(entries[i].key))) {
            return jinja_fail(r, "keys of several kinds have no order");
        }
    }
    qsort(entries, (size_t)dict->count, sizeof(*entries), compare_keys);
    *entries_p = entries;
    return LOONG_OK;
}

static loong_status_t print_dict(run_t *r, const jinja_dict_t *dict,
                                 const jinja_json_style_t *s, int level)
{
    const jinja_entry_t *entries = dict->entries;
    if (s->sorted) {
        LOONG_TRY(sort_entries(r, dict, &entries));
    }
    LOONG_TRY(emit(r, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(i > 0 ? jinja_print(r, s->item) : LOONG_OK);
        LOONG_TRY(new_line(r, s, level + 1));
        LOONG_TRY(print_key(r, entries[i].key, s->ascii));
        LOONG_TRY(jinja_print(r, s->key));
        LOONG_TRY(jinja_print_json(r, entries[i].value, s, level + 1));
    }
    LOONG_TRY(dict->count > 0 ? new_line(r, s, level) : LOONG_OK);
    return emit(r, "}");
}

loong_status_t jinja_print_json(run_t *r, value_t value,
                                const jinja_json_style_t *s, int level)
{
    loong_status_t status = LOONG_OK;
    if (value.kind == JINJA_STRING) {
        return print_string(r, value, s->ascii);
    }
    if (value.kind == JINJA_NONE || jinja_is_number(value)) {
        return print_plain(r, value);
    }
    LOONG_TRY(jinja_enter(r));
    if (value.kind == JINJA_LIST || value.kind == JINJA_TUPLE) {
        status = print_list(r, jinja_list_of(value), s, level);
    } else if (value.kind == JINJA_DICT) {
        status = print_dict(r, jinja_dict_of(value), s, level);
    } else {
        status = jinja_fail(r, "%s cannot be written as JSON",
                            jinja_type_name(value));
    }
    r->depth--;
    return status;
}
