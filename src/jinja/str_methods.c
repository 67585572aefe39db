/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of str that give texts, lists and places. Called by call.c. Read
 * text.h before. */
#include <string.h>

#include "format.h"
#include "text.h"
#include "utf8.h"

static loong_status_t strip(run_t *r, const jinja_call_t *call, value_t *result)
{
    const char *name = call->builtin->name;
    int sides = name[0] == 'l'   ? JINJA_LEFT
                : name[0] == 'r' ? JINJA_RIGHT
                                 : JINJA_LEFT | JINJA_RIGHT;
    value_t characters;
    bool given =
        call->arg[0].kind != JINJA_MISSING && call->arg[0].kind != JINJA_NONE;
    if (given) {
        LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &characters));
    }
    *result = jinja_strip(call->self, given ? &characters : NULL, sides);
    return LOONG_OK;
}

static loong_status_t add_part(run_t *r, value_t list, value_t text,
                               const size_t part[2])
{
    LOONG_TRY(jinja_step(r));
    return loongi_jinja_add(
        r->heap, list,
        loongi_jinja_string(text.as.text + part[0], part[1] - part[0]));
}

static loong_status_t split_space(run_t *r, value_t text, int64_t most,
                                  value_t list)
{
    value_t rest = jinja_strip(text, NULL, JINJA_LEFT);
    while (rest.length > 0) {
        size_t end = 0;
        if (most == 0) {
            return add_part(r, list, rest, (const size_t[2]){0, rest.length});
        }
        while (end < rest.length) {
            size_t next = end;
            if (jinja_is_space(loongi_utf8_get(rest.as.text + end, &next))) {
                break;
            }
            end = next;
        }
        LOONG_TRY(add_part(r, list, rest, (const size_t[2]){0, end}));
        rest = jinja_strip(
            loongi_jinja_string(rest.as.text + end, rest.length - end), NULL,
            JINJA_LEFT);
        most--;
    }
    return LOONG_OK;
}

/* From the right, parts come in reverse. */
static loong_status_t split_space_right(run_t *r, value_t text, int64_t most,
                                        value_t list)
{
    value_t rest = jinja_strip(text, NULL, JINJA_RIGHT);
    while (rest.length > 0) {
        size_t begin = rest.length;
        if (most == 0) {
            return add_part(r, list, rest, (const size_t[2]){0, rest.length});
        }
        while (begin > 0) {
            size_t back = begin;
            size_t length = 0;
            do {
                back--;
            } while (((unsigned char)rest.as.text[back] & 0xC0) == 0x80);
            if (jinja_is_space(loongi_utf8_get(rest.as.text + back, &length))) {
                break;
            }
            begin = back;
        }
        LOONG_TRY(
            add_part(r, list, rest, (const size_t[2]){begin, rest.length}));
        rest = jinja_strip(loongi_jinja_string(rest.as.text, begin), NULL,
                           JINJA_RIGHT);
        most--;
    }
    return LOONG_OK;
}

static int64_t find_last(value_t text, value_t needle, size_t end)
{
    for (size_t at = end >= needle.length ? end - needle.length + 1 : 0;
         at-- > 0;) {
        if (memcmp(text.as.text + at, needle.as.text, needle.length) == 0) {
            return (int64_t)at;
        }
    }
    return -1;
}

static loong_status_t split_right(run_t *r, value_t text, value_t by,
                                  int64_t most, value_t list)
{
    size_t end = text.length;
    while (most-- != 0) {
        int64_t at = find_last(text, by, end);
        if (at < 0) {
            break;
        }
        LOONG_TRY(add_part(r, list, text,
                           (const size_t[2]){(size_t)at + by.length, end}));
        end = (size_t)at;
    }
    return add_part(r, list, text, (const size_t[2]){0, end});
}

static loong_status_t split_left(run_t *r, value_t text, value_t by,
                                 int64_t most, value_t list)
{
    size_t begin = 0;
    while (most-- != 0) {
        int64_t at = jinja_find_text(text, by, begin);
        if (at < 0) {
            break;
        }
        LOONG_TRY(
            add_part(r, list, text, (const size_t[2]){begin, (size_t)at}));
        begin = (size_t)at + by.length;
    }
    return add_part(r, list, text, (const size_t[2]){begin, text.length});
}

static void reverse_list(jinja_list_t *list)
{
    for (int64_t i = 0, k = list->count - 1; i < k; i++, k--) {
        value_t item = list->items[i];
        list->items[i] = list->items[k];
        list->items[k] = item;
    }
}

static loong_status_t split(run_t *r, const jinja_call_t *call, value_t *result)
{
    bool right = call->builtin->name[0] == 'r';
    int64_t most = -1;
    value_t by;
    LOONG_TRY(jinja_arg_int(r, call, 1, -1, &most));
    LOONG_TRY(loongi_jinja_list(r->heap, result));
    if (!jinja_arg_given(call, 0) && call->arg[0].kind != JINJA_UNDEFINED) {
        LOONG_TRY(right ? split_space_right(r, call->self, most, *result)
                        : split_space(r, call->self, most, *result));
    } else {
        LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &by));
        if (by.length == 0) {
            return jinja_fail(r, "split by an empty text");
        }
        LOONG_TRY(right ? split_right(r, call->self, by, most, *result)
                        : split_left(r, call->self, by, most, *result));
    }
    if (right) {
        reverse_list(jinja_list_of(*result));
    }
    return LOONG_OK;
}

static loong_status_t split_lines(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    return jinja_split_lines(r, call->self, jinja_arg_truth(call, 0, false),
                             result);
}

static loong_status_t partition(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    bool right = call->builtin->name[0] == 'r';
    value_t text = call->self;
    value_t by;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &by));
    if (by.length == 0) {
        return jinja_fail(r, "partition by an empty text");
    }
    int64_t at =
        right ? find_last(text, by, text.length) : jinja_find_text(text, by, 0);
    size_t begin = at < 0 ? (right ? 0 : text.length) : (size_t)at;
    size_t end = at < 0 ? begin : begin + by.length;
    LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, 3, result));
    value_t *items = jinja_list_of(*result)->items;
    items[0] = loongi_jinja_string(text.as.text, begin);
    items[1] = loongi_jinja_string(text.as.text + begin, end - begin);
    items[2] = loongi_jinja_string(text.as.text + end, text.length - end);
    return LOONG_OK;
}

static loong_status_t replace(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    value_t old, by;
    int64_t most = -1;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &old));
    LOONG_TRY(jinja_arg_text(r, call, 1, NULL, &by));
    LOONG_TRY(jinja_arg_int(r, call, 2, -1, &most));
    return jinja_replace(r, call->self, old, by, most, result);
}

static loong_status_t join(run_t *r, const jinja_call_t *call, value_t *result)
{
    return jinja_join(r, call->self, call->arg[0], true, result);
}

/* The part of self that arguments first and first + 1 select, in characters
 * and bytes. False: nothing can be found there. */
static loong_status_t window(run_t *r, const jinja_call_t *call, int first,
                             size_t byte[2], bool *inside)
{
    value_t text = call->self;
    int64_t count = jinja_count_points(text.as.text, text.length);
    int64_t at[2];
    LOONG_TRY(jinja_arg_int(r, call, first, 0, &at[0]));
    LOONG_TRY(jinja_arg_int(r, call, first + 1, count, &at[1]));
    *inside = at[0] <= count;
    for (int k = 0; k < 2; k++) {
        at[k] = at[k] < 0 ? LOONG_MAX(at[k] + count, (int64_t)0)
                          : LOONG_MIN(at[k], count);
        byte[k] = jinja_find_point(text.as.text, text.length, at[k]);
    }
    *inside = *inside && byte[0] <= byte[1];
    return LOONG_OK;
}

static loong_status_t find(run_t *r, const jinja_call_t *call, value_t *result)
{
    bool right = call->builtin->name[0] == 'r';
    value_t needle;
    value_t text = call->self;
    size_t byte[2];
    bool inside = false;
    int64_t at = -1;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &needle));
    LOONG_TRY(window(r, call, 1, byte, &inside));
    text.length = byte[1];
    if (inside) {
        at = right ? find_last(text, needle, byte[1])
                   : jinja_find_text(text, needle, byte[0]);
        at = at >= 0 && (size_t)at < byte[0] ? -1 : at;
    }
    if (at < 0 && strstr(call->builtin->name, "index") != NULL) {
        return jinja_fail(r, "the text has no '%.*s'",
                          (int)LOONG_MIN(needle.length, (size_t)60),
                          needle.as.text);
    }
    *result = loongi_jinja_int(
        at < 0 ? -1 : jinja_count_points(text.as.text, (size_t)at));
    return LOONG_OK;
}

static loong_status_t count(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t needle;
    value_t text = call->self;
    size_t byte[2];
    bool inside = false;
    int64_t n = 0;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &needle));
    LOONG_TRY(window(r, call, 1, byte, &inside));
    text.length = byte[1];
    if (inside && needle.length == 0) {
        n = jinja_count_points(text.as.text + byte[0], byte[1] - byte[0]) + 1;
    } else if (inside) {
        for (size_t at = byte[0];;) {
            int64_t found = jinja_find_text(text, needle, at);
            if (found < 0) {
                break;
            }
            LOONG_TRY(jinja_step(r));
            n++;
            at = (size_t)found + needle.length;
        }
    }
    *result = loongi_jinja_int(n);
    return LOONG_OK;
}

/* startswith and endswith: of a text, or of any in a tuple. */
static loong_status_t has_end(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    bool start = call->builtin->name[0] == 's';
    value_t one = call->arg[0];
    const value_t *affix = &one;
    int64_t num = 1;
    size_t byte[2];
    bool inside = false;
    bool found = false;
    LOONG_TRY(window(r, call, 1, byte, &inside));
    if (one.kind == JINJA_TUPLE) {
        affix = jinja_list_of(one)->items;
        num = jinja_list_of(one)->count;
    }
    for (int64_t i = 0; i < num && !found; i++) {
        if (affix[i].kind != JINJA_STRING) {
            return jinja_fail(r, "%s needs a str or a tuple of them, not %s",
                              call->builtin->name, jinja_type_name(affix[i]));
        }
        size_t length = affix[i].length;
        found =
            inside && byte[1] - byte[0] >= length &&
            memcmp(call->self.as.text + (start ? byte[0] : byte[1] - length),
                   affix[i].as.text, length) == 0;
    }
    *result = loongi_jinja_bool(found);
    return LOONG_OK;
}

static loong_status_t remove_end(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    bool start = strcmp(call->builtin->name, "removeprefix") == 0;
    value_t text = call->self;
    value_t affix;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &affix));
    *result = text;
    size_t rest = text.length - LOONG_MIN(text.length, affix.length);
    if (affix.length <= text.length &&
        memcmp(text.as.text + (start ? 0 : rest), affix.as.text,
               affix.length) == 0) {
        *result = loongi_jinja_string(text.as.text + (start ? affix.length : 0),
                                      rest);
    }
    return LOONG_OK;
}

static loong_status_t justify(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    char c = call->builtin->name[0];
    int64_t width = 0;
    value_t fill;
    LOONG_TRY(jinja_arg_int(r, call, 0, 0, &width));
    LOONG_TRY(jinja_arg_text(r, call, 1, " ", &fill));
    return jinja_justify(r, call->self, width, fill,
                         c == 'l'   ? JINJA_RIGHT
                         : c == 'r' ? JINJA_LEFT
                                    : JINJA_LEFT | JINJA_RIGHT,
                         result);
}

static loong_status_t zfill(run_t *r, const jinja_call_t *call, value_t *result)
{
    int64_t width = 0;
    value_t text = call->self;
    value_t sign, rest;
    bool has_sign =
        text.length > 0 && (text.as.text[0] == '-' || text.as.text[0] == '+');
    LOONG_TRY(jinja_arg_int(r, call, 0, 0, &width));
    sign = loongi_jinja_string(text.as.text, has_sign);
    rest = loongi_jinja_string(text.as.text + has_sign, text.length - has_sign);
    LOONG_TRY(jinja_justify(r, rest, width - has_sign, jinja_text("0"),
                            JINJA_LEFT, &rest));
    return jinja_concat(r->heap, sign, rest, result);
}

static loong_status_t expand_tabs(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    int64_t size = 8;
    int64_t column = 0;
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_arg_int(r, call, 0, 8, &size));
    for (size_t at = 0; at < call->self.length;) {
        size_t begin = at;
        uint32_t point = loongi_utf8_get(call->self.as.text + at, &at);
        if (point != '\t') {
            column = point == '\n' || point == '\r' ? 0 : column + 1;
            LOONG_TRY(jinja_emit(r, call->self.as.text + begin, at - begin));
            continue;
        }
        for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--) {
            LOONG_TRY(jinja_step(r));
            LOONG_TRY(jinja_emit(r, " ", 1));
            column++;
        }
    }
    return jinja_take(r, mark, result);
}

static loong_status_t format(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    return jinja_braces(r, call->self, call->args, result);
}

static loong_status_t format_map(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    jinja_args_t args = {0};
    if (call->arg[0].kind != JINJA_DICT) {
        return jinja_fail(r, "format_map needs a dict, not %s",
                          jinja_type_name(call->arg[0]));
    }
    args.named = jinja_dict_of(call->arg[0]);
    return jinja_braces(r, call->self, &args, result);
}

const jinja_builtin_t jinja_str_methods[] = {
    {"strip", "-", 0, strip},
    {"lstrip", "-", 0, strip},
    {"rstrip", "-", 0, strip},
    {"split", "sep maxsplit", 0, split},
    {"rsplit", "sep maxsplit", 0, split},
    {"splitlines", "keepends", 0, split_lines},
    {"partition", "-", 1, partition},
    {"rpartition", "-", 1, partition},
    {"replace", "- - -", 2, replace},
    {"join", "-", 1, join},
    {"find", "- - -", 1, find},
    {"rfind", "- - -", 1, find},
    {"index", "- - -", 1, find},
    {"rindex", "- - -", 1, find},
    {"count", "- - -", 1, count},
    {"startswith", "- - -", 1, has_end},
    {"endswith", "- - -", 1, has_end},
    {"removeprefix", "-", 1, remove_end},
    {"removesuffix", "-", 1, remove_end},
    {"center", "- -", 1, justify},
    {"ljust", "- -", 1, justify},
    {"rjust", "- -", 1, justify},
    {"zfill", "-", 1, zfill},
    {"expandtabs", "tabsize", 0, expand_tabs},
    {"format", NULL, 0, format},
    {"format_map", "-", 1, format_map},
    {"encode", NULL, 0, jinja_not_offered},
    {"translate", NULL, 0, jinja_not_offered},
    {"maketrans", NULL, 0, jinja_not_offered},
    {0}};
