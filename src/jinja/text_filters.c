/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that give texts. Called by call.c. Read text.h before. */
#define _GNU_SOURCE /* memrchr */
#include <string.h>

#include "format.h"
#include "text.h"
#include "utf8.h"

loong_status_t jinja_not_offered(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    (void)result;
    return LOONG_FAIL(r->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s:%d:%d: '%s' is not offered", r->jinja->where,
                      r->at->line, r->at->column, call->builtin->name);
}

static loong_status_t change(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    value_t text;
    char c = call->builtin->name[0];
    LOONG_TRY(jinja_soft_text(r, call, &text));
    return c == 'c'
               ? jinja_capitalize(r, text, result)
               : jinja_change_text(r, text,
                                   c == 'u' ? JINJA_UPPERCASE : JINJA_LOWERCASE,
                                   result);
}

static bool begins_word(uint32_t point)
{
    return jinja_is_space(point) ||
           (point < 0x80 && point > 0 && strchr("-({[<", (int)point) != NULL);
}

/* White space, brackets and hyphens part words; the first letter of each in
 * upper case. */
static loong_status_t title(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t text;
    char out[JINJA_CASE_BYTES];
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_soft_text(r, call, &text));
    for (size_t at = 0; at < text.length;) {
        size_t end = at;
        uint32_t first = loongi_utf8_get(text.as.text + at, &at);
        for (size_t next = at; next <= text.length;) {
            end = next;
            if (next == text.length ||
                begins_word(loongi_utf8_get(text.as.text + next, &next)) !=
                    begins_word(first)) {
                break;
            }
        }
        int length = jinja_change_case(first, JINJA_UPPERCASE, out);
        LOONG_TRY(jinja_emit(r, out, (size_t)length));
        value_t rest = loongi_jinja_string(text.as.text + at, end - at);
        LOONG_TRY(jinja_emit_lower(r, rest, 0, rest.length));
        at = end;
    }
    return jinja_take(r, mark, result);
}

static loong_status_t trim(run_t *r, const jinja_call_t *call, value_t *result)
{
    value_t text, characters;
    bool given =
        call->arg[0].kind != JINJA_MISSING && call->arg[0].kind != JINJA_NONE;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    if (given) {
        LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &characters));
    }
    *result =
        jinja_strip(text, given ? &characters : NULL, JINJA_LEFT | JINJA_RIGHT);
    return LOONG_OK;
}

static loong_status_t replace(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    value_t text, old, by;
    int64_t most = -1;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    LOONG_TRY(jinja_to_text(r, call->arg[0], &old));
    LOONG_TRY(jinja_to_text(r, call->arg[1], &by));
    LOONG_TRY(jinja_arg_int(r, call, 2, -1, &most));
    return jinja_replace(r, text, old, by, most, result);
}

static loong_status_t string(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    return jinja_soft_text(r, call, result);
}

static loong_status_t safe(run_t *r, const jinja_call_t *call, value_t *result)
{
    LOONG_TRY(jinja_soft_text(r, call, result));
    result->markup = true;
    return LOONG_OK;
}

static loong_status_t escape(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    return jinja_escape(r, call->self, result);
}

static loong_status_t force_escape(run_t *r, const jinja_call_t *call,
                                   value_t *result)
{
    value_t text;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    text.markup = false;
    return jinja_escape(r, text, result);
}

static loong_status_t center(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    value_t text;
    int64_t width = 80;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    LOONG_TRY(jinja_arg_int(r, call, 0, 80, &width));
    return jinja_justify(r, text, width, jinja_text(" "),
                         JINJA_LEFT | JINJA_RIGHT, result);
}

static loong_status_t word_count(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    value_t text;
    int64_t count = 0;
    bool inside = false;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    for (size_t at = 0; at < text.length;) {
        uint32_t point = loongi_utf8_get(text.as.text + at, &at);
        bool word = (jinja_classify(point) & JINJA_C_WORD) != 0;
        count += word && !inside;
        inside = word;
    }
    *result = loongi_jinja_int(count);
    return LOONG_OK;
}

/* The text between lines of indent: width spaces, or a text. */
static loong_status_t indention(run_t *r, const jinja_call_t *call,
                                value_t *indent)
{
    int64_t width = 4;
    size_t mark = jinja_mark(r);
    if (call->arg[0].kind == JINJA_STRING) {
        *indent = call->arg[0];
        return LOONG_OK;
    }
    LOONG_TRY(jinja_arg_int(r, call, 0, 4, &width));
    for (int64_t i = 0; i < width; i++) {
        LOONG_TRY(jinja_emit(r, " ", 1));
    }
    return jinja_take(r, mark, indent);
}

static loong_status_t indent(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    bool first = jinja_arg_truth(call, 1, false);
    bool blank = jinja_arg_truth(call, 2, false);
    value_t text, before, lines;
    if (call->self.kind != JINJA_STRING) {
        return call->self.kind == JINJA_UNDEFINED
                   ? jinja_fail_undefined(r, call->self)
                   : jinja_fail(r, "indent needs a str, not %s",
                                jinja_type_name(call->self));
    }
    LOONG_TRY(indention(r, call, &before));
    LOONG_TRY(jinja_concat(r->heap, call->self, jinja_text("\n"), &text));
    LOONG_TRY(jinja_split_lines(r, text, false, &lines));
    size_t mark = jinja_mark(r);
    const jinja_list_t *list = jinja_list_of(lines);
    for (int64_t i = 0; i < list->count; i++) {
        bool shift = i == 0 ? first : blank || list->items[i].length > 0;
        LOONG_TRY(i > 0 ? jinja_emit(r, "\n", 1) : LOONG_OK);
        LOONG_TRY(shift ? jinja_print(r, before) : LOONG_OK);
        LOONG_TRY(jinja_print(r, list->items[i]));
    }
    LOONG_TRY(jinja_take(r, mark, result));
    result->markup = call->self.markup;
    return LOONG_OK;
}

static loong_status_t truncate(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    int64_t length = 255;
    int64_t leeway = 5;
    int64_t count = 0;
    value_t end;
    value_t text = call->self;
    LOONG_TRY(jinja_arg_int(r, call, 0, 255, &length));
    LOONG_TRY(jinja_arg_text(r, call, 2, "...", &end));
    LOONG_TRY(jinja_arg_int(r, call, 3, 5, &leeway));
    int64_t tail = jinja_count_points(end.as.text, end.length);
    if (length < tail || leeway < 0) {
        return jinja_fail(r,
                          "truncate to %lld characters with an end of %lld "
                          "and a leeway of %lld",
                          (long long)length, (long long)tail,
                          (long long)leeway);
    }
    LOONG_TRY(jinja_length(r, text, &count));
    if (count <= length + leeway) {
        *result = text;
        return LOONG_OK;
    }
    if (text.kind != JINJA_STRING) {
        return jinja_fail(r, "truncate needs a str, not %s",
                          jinja_type_name(text));
    }
    text.length = jinja_find_point(text.as.text, text.length, length - tail);
    const char *space = text.length == 0 || jinja_arg_truth(call, 1, false)
                            ? NULL
                            : memrchr(text.as.text, ' ', text.length);
    if (space != NULL) {
        text.length = (size_t)(space - text.as.text);
    }
    return jinja_concat(r->heap, text, end, result);
}

static loong_status_t format(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    value_t text, values;
    const jinja_args_t *args = call->args;
    LOONG_TRY(jinja_soft_text(r, call, &text));
    if (args->named != NULL && args->count > 0) {
        return jinja_fail(r, "format takes arguments by position or by name, "
                             "not both");
    }
    if (args->named != NULL) {
        values = jinja_object(JINJA_DICT, args->named);
    } else {
        LOONG_TRY(jinja_list_new(r->heap, JINJA_TUPLE, args->count, &values));
        for (int64_t i = 0; i < args->count; i++) {
            jinja_list_of(values)->items[i] = args->items[i];
        }
    }
    return jinja_percent(r, text, values, result);
}

static loong_status_t emit_quoted(run_t *r, value_t text, bool query)
{
    static const char plain[] = "_.-~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.length; i++) {
        unsigned char c = (unsigned char)text.as.text[i];
        if (c == ' ' && query) {
            LOONG_TRY(jinja_emit(r, "+", 1));
        } else if (c != 0 && (strchr(plain, c) || (c == '/' && !query))) {
            LOONG_TRY(jinja_emit(r, text.as.text + i, 1));
        } else {
            LOONG_TRY(jinja_emit(
                r, (const char[]){'%', hex[c >> 4], hex[c & 15]}, 3));
        }
    }
    return LOONG_OK;
}

static loong_status_t quote_pairs(run_t *r, value_t pairs)
{
    jinja_iter_t it;
    value_t pair, text;
    bool more = true;
    jinja_view_t view = {.dict = jinja_dict_of(pairs), .what = JINJA_ITEMS};
    if (pairs.kind == JINJA_DICT) {
        pairs = jinja_object(JINJA_VIEW, &view);
    }
    LOONG_TRY(jinja_iterate(r, pairs, &it));
    for (int64_t i = 0;; i++) {
        LOONG_TRY(jinja_iter_next(r, &it, &pair, &more));
        if (!more) {
            return LOONG_OK;
        }
        LOONG_TRY(jinja_to_list(r, pair, &pair));
        if (jinja_list_of(pair)->count != 2) {
            return jinja_fail(r, "urlencode needs pairs");
        }
        LOONG_TRY(i > 0 ? jinja_emit(r, "&", 1) : LOONG_OK);
        LOONG_TRY(jinja_to_text(r, jinja_list_of(pair)->items[0], &text));
        LOONG_TRY(emit_quoted(r, text, true));
        LOONG_TRY(jinja_emit(r, "=", 1));
        LOONG_TRY(jinja_to_text(r, jinja_list_of(pair)->items[1], &text));
        LOONG_TRY(emit_quoted(r, text, true));
    }
}

static loong_status_t url_encode(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    value_t text = call->self;
    size_t mark = jinja_mark(r);
    if (text.kind != JINJA_STRING && jinja_is_iterable(text)) {
        LOONG_TRY(quote_pairs(r, text));
    } else {
        LOONG_TRY(jinja_to_text(r, text, &text));
        LOONG_TRY(emit_quoted(r, text, false));
    }
    return jinja_take(r, mark, result);
}

static loong_status_t xml_attributes(run_t *r, const jinja_call_t *call,
                                     value_t *result)
{
    size_t mark = jinja_mark(r);
    bool first = !jinja_arg_truth(call, 0, true);
    if (call->self.kind != JINJA_DICT) {
        return jinja_fail(r, "xmlattr needs a mapping, not %s",
                          jinja_type_name(call->self));
    }
    const jinja_dict_t *dict = jinja_dict_of(call->self);
    for (int64_t i = 0; i < dict->count; i++) {
        value_t key = dict->entries[i].key;
        value_t value = dict->entries[i].value;
        if (value.kind <= JINJA_NONE) {
            continue;
        }
        if (key.kind != JINJA_STRING ||
            memchr(key.as.text, '\0', key.length) != NULL) {
            return jinja_fail(r, "xmlattr needs keys that are texts");
        }
        for (size_t k = 0; k < key.length; k++) {
            if (strchr(" \t\n\r\f\v/>=", key.as.text[k]) != NULL) {
                return jinja_fail(r, "'%.*s' is no name of an attribute",
                                  (int)LOONG_MIN(key.length, (size_t)60),
                                  key.as.text);
            }
        }
        LOONG_TRY(jinja_escape(r, key, &key));
        LOONG_TRY(jinja_escape(r, value, &value));
        LOONG_TRY(first ? LOONG_OK : jinja_emit(r, " ", 1));
        LOONG_TRY(jinja_print(r, key));
        LOONG_TRY(jinja_emit(r, "=\"", 2));
        LOONG_TRY(jinja_print(r, value));
        LOONG_TRY(jinja_emit(r, "\"", 1));
        first = false;
    }
    return jinja_take(r, mark, result);
}

static loong_status_t separators(run_t *r, value_t pair, jinja_json_style_t *s)
{
    s->item = jinja_text(s->indent == NULL ? ", " : ",");
    s->key = jinja_text(": ");
    if (pair.kind == JINJA_MISSING || pair.kind == JINJA_NONE) {
        return LOONG_OK;
    }
    LOONG_TRY(jinja_to_list(r, pair, &pair));
    const jinja_list_t *list = jinja_list_of(pair);
    if (list->count != 2 || list->items[0].kind != JINJA_STRING ||
        list->items[1].kind != JINJA_STRING) {
        return jinja_fail(r, "separators of JSON are two texts");
    }
    s->item = list->items[0];
    s->key = list->items[1];
    return LOONG_OK;
}

static loong_status_t to_json(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    jinja_json_style_t s = {0};
    value_t indent = call->arg[1];
    size_t mark = jinja_mark(r);
    s.ascii = jinja_arg_truth(call, 0, false);
    s.sorted = jinja_arg_truth(call, 3, false);
    if (indent.kind != JINJA_MISSING && indent.kind != JINJA_NONE) {
        if (indent.kind != JINJA_STRING) {
            int64_t width = 0;
            LOONG_TRY(jinja_arg_int(r, call, 1, 0, &width));
            LOONG_TRY(jinja_justify(r, jinja_text(""), width, jinja_text(" "),
                                    JINJA_RIGHT, &indent));
        }
        s.indent = indent.as.text;
        s.indent_length = indent.length;
    }
    LOONG_TRY(separators(r, call->arg[2], &s));
    LOONG_TRY(jinja_print_json(r, call->self, &s, 0));
    return jinja_take(r, mark, result);
}

const jinja_builtin_t jinja_text_filters[] = {
    {"upper", "", 0, change},
    {"lower", "", 0, change},
    {"capitalize", "", 0, change},
    {"title", "", 0, title},
    {"trim", "chars", 0, trim},
    {"replace", "old new count", 2, replace},
    {"string", "", 0, string},
    {"safe", "", 0, safe},
    {"escape", "", 0, escape},
    {"e", "", 0, escape},
    {"forceescape", "", 0, force_escape},
    {"center", "width", 0, center},
    {"wordcount", "", 0, word_count},
    {"indent", "width first blank", 0, indent},
    {"truncate", "length killwords end leeway", 0, truncate},
    {"format", NULL, 0, format},
    {"urlencode", "", 0, url_encode},
    {"xmlattr", "autospace", 0, xml_attributes},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, to_json},
    {"pprint", NULL, 0, jinja_not_offered},
    {"striptags", NULL, 0, jinja_not_offered},
    {"urlize", NULL, 0, jinja_not_offered},
    {"wordwrap", NULL, 0, jinja_not_offered},
    {0}};
