/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of Python's str. Called by methods and filters. Read text.h
 * before. */
#include <string.h>

#include "text.h"
#include "utf8.h"

loong_status_t jinja_arg_int(run_t *r, const jinja_call_t *call, int k,
                             int64_t absent, int64_t *n_p)
{
    value_t value = call->arg[k];
    *n_p = absent;
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, value);
    }
    if (value.kind == JINJA_MISSING || value.kind == JINJA_NONE) {
        return LOONG_OK;
    }
    if (!jinja_is_int(value)) {
        return jinja_fail(r, "%s needs an int, not %s", call->builtin->name,
                          jinja_type_name(value));
    }
    *n_p = jinja_int_of(value);
    return LOONG_OK;
}

loong_status_t jinja_arg_text(run_t *r, const jinja_call_t *call, int k,
                              const char *absent, value_t *text_p)
{
    value_t value = call->arg[k];
    if (value.kind == JINJA_MISSING && absent != NULL) {
        *text_p = jinja_text(absent);
        return LOONG_OK;
    }
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, value);
    }
    if (value.kind != JINJA_STRING) {
        return jinja_fail(r, "%s needs a str, not %s", call->builtin->name,
                          jinja_type_name(value));
    }
    *text_p = value;
    return LOONG_OK;
}

bool jinja_arg_truth(const jinja_call_t *call, int k, bool absent)
{
    return call->arg[k].kind == JINJA_MISSING ? absent
                                              : jinja_truth(call->arg[k]);
}

loong_status_t jinja_soft_text(run_t *r, const jinja_call_t *call,
                               value_t *text_p)
{
    return jinja_to_text(r, call->self, text_p);
}

static bool is_one_of(uint32_t point, const value_t *characters)
{
    if (characters == NULL) {
        return jinja_is_space(point);
    }
    for (size_t at = 0; at < characters->length;) {
        if (loongi_utf8_get(characters->as.text + at, &at) == point) {
            return true;
        }
    }
    return false;
}

value_t jinja_strip(value_t text, const value_t *characters, int sides)
{
    size_t begin = 0;
    size_t end = text.length;
    const char *bytes = text.as.text;
    while ((sides & JINJA_LEFT) && begin < end) {
        size_t next = begin;
        if (!is_one_of(loongi_utf8_get(bytes + begin, &next), characters)) {
            break;
        }
        begin = next;
    }
    while ((sides & JINJA_RIGHT) && end > begin) {
        size_t back = end;
        size_t length = 0;
        do {
            back--;
        } while (((unsigned char)bytes[back] & 0xC0) == 0x80);
        if (!is_one_of(loongi_utf8_get(bytes + back, &length), characters)) {
            break;
        }
        end = back;
    }
    return loongi_jinja_string(bytes + begin, end - begin);
}

/* An empty old text stands before each character and at the end. */
static loong_status_t insert_everywhere(run_t *r, value_t text, value_t by,
                                        int64_t most)
{
    size_t at = 0;
    while (most != 0) {
        size_t begin = at;
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(jinja_emit(r, by.as.text, by.length));
        most--;
        if (at >= text.length) {
            return LOONG_OK;
        }
        loongi_utf8_get(text.as.text + at, &at);
        LOONG_TRY(jinja_emit(r, text.as.text + begin, at - begin));
    }
    return jinja_emit(r, text.as.text + at, text.length - at);
}

loong_status_t jinja_replace(run_t *r, value_t text, value_t old, value_t by,
                             int64_t most, value_t *text_p)
{
    size_t mark = jinja_mark(r);
    size_t at = 0;
    if (old.length == 0) {
        LOONG_TRY(insert_everywhere(r, text, by, most));
        return jinja_take(r, mark, text_p);
    }
    for (; most != 0; most--) {
        int64_t found = jinja_find_text(text, old, at);
        if (found < 0) {
            break;
        }
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(jinja_emit(r, text.as.text + at, (size_t)found - at));
        LOONG_TRY(jinja_emit(r, by.as.text, by.length));
        at = (size_t)found + old.length;
    }
    if (at == 0) { /* nothing was found */
        *text_p = loongi_jinja_string(text.as.text, text.length);
        return LOONG_OK;
    }
    LOONG_TRY(jinja_emit(r, text.as.text + at, text.length - at));
    return jinja_take(r, mark, text_p);
}

static bool ends_line(uint32_t point)
{
    return (point >= 10 && point <= 13) || (point >= 0x1C && point <= 0x1E) ||
           point == 0x85 || point == 0x2028 || point == 0x2029;
}

loong_status_t jinja_split_lines(run_t *r, value_t text, bool keep,
                                 value_t *list_p)
{
    const char *bytes = text.as.text;
    size_t begin = 0;
    value_t list;
    LOONG_TRY(loongi_jinja_list(r->heap, &list));
    for (size_t at = 0; at < text.length;) {
        size_t end = at;
        uint32_t point = loongi_utf8_get(bytes + at, &at);
        if (!ends_line(point)) {
            continue;
        }
        at += point == '\r' && at < text.length && bytes[at] == '\n';
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(loongi_jinja_add(
            r->heap, list,
            loongi_jinja_string(bytes + begin, (keep ? at : end) - begin)));
        begin = at;
    }
    if (begin < text.length) {
        LOONG_TRY(loongi_jinja_add(
            r->heap, list,
            loongi_jinja_string(bytes + begin, text.length - begin)));
    }
    *list_p = list;
    return LOONG_OK;
}

/* strict: as str.join, only texts; else all as texts. */
loong_status_t jinja_join(run_t *r, value_t between, value_t items, bool strict,
                          value_t *text_p)
{
    jinja_iter_t it;
    value_t item;
    bool more = true;
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_iterate(r, items, &it));
    for (int64_t i = 0;; i++) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            return jinja_take(r, mark, text_p);
        }
        if (strict && item.kind != JINJA_STRING) {
            return jinja_fail(r, "join needs texts, not %s",
                              jinja_type_name(item));
        }
        if (i > 0) {
            LOONG_TRY(jinja_emit(r, between.as.text, between.length));
        }
        LOONG_TRY(jinja_print(r, item));
    }
}

/* --- upper and lower case --- */

/* [at, end) of text in lower case; what is around it counts for a sigma. */
loong_status_t jinja_emit_lower(run_t *r, value_t text, size_t at, size_t end)
{
    char out[JINJA_CASE_BYTES];
    while (at < end) {
        size_t begin = at;
        uint32_t point = loongi_utf8_get(text.as.text + at, &at);
        int length = jinja_change_case(point, JINJA_LOWERCASE, out);
        if (point == 0x3A3 &&
            jinja_is_final_sigma(text.as.text, text.length, begin)) {
            length = jinja_put_point(0x3C2, out);
        }
        LOONG_TRY(jinja_emit(r, out, (size_t)length));
    }
    return LOONG_OK;
}

loong_status_t jinja_change_text(run_t *r, value_t text, jinja_case_t to,
                                 value_t *text_p)
{
    char out[JINJA_CASE_BYTES];
    size_t mark = jinja_mark(r);
    if (to == JINJA_LOWERCASE) {
        LOONG_TRY(jinja_emit_lower(r, text, 0, text.length));
        return jinja_take(r, mark, text_p);
    }
    for (size_t at = 0; at < text.length;) {
        uint32_t point = loongi_utf8_get(text.as.text + at, &at);
        int length = jinja_change_case(point, to, out);
        LOONG_TRY(jinja_emit(r, out, (size_t)length));
    }
    return jinja_take(r, mark, text_p);
}

loong_status_t jinja_capitalize(run_t *r, value_t text, value_t *text_p)
{
    char out[JINJA_CASE_BYTES];
    size_t at = 0;
    size_t mark = jinja_mark(r);
    if (text.length > 0) {
        uint32_t point = loongi_utf8_get(text.as.text, &at);
        int length = jinja_change_case(point, JINJA_TITLECASE, out);
        LOONG_TRY(jinja_emit(r, out, (size_t)length));
    }
    LOONG_TRY(jinja_emit_lower(r, text, at, text.length));
    return jinja_take(r, mark, text_p);
}

loong_status_t jinja_justify(run_t *r, value_t text, int64_t width,
                             value_t fill, int sides, value_t *text_p)
{
    size_t mark = jinja_mark(r);
    int64_t room = width - jinja_count_points(text.as.text, text.length);
    if (jinja_count_points(fill.as.text, fill.length) != 1) {
        return jinja_fail(r, "one character fills, not '%.*s'",
                          (int)LOONG_MIN(fill.length, (size_t)60),
                          fill.as.text);
    }
    room = LOONG_MAX(room, (int64_t)0);
    int64_t left = sides == JINJA_LEFT    ? room
                   : sides == JINJA_RIGHT ? 0
                                          : room / 2 + (room & width & 1);
    for (int64_t i = 0; i < left; i++) {
        LOONG_TRY(jinja_emit(r, fill.as.text, fill.length));
    }
    LOONG_TRY(jinja_emit(r, text.as.text, text.length));
    for (int64_t i = left; i < room; i++) {
        LOONG_TRY(jinja_emit(r, fill.as.text, fill.length));
    }
    return jinja_take(r, mark, text_p);
}
