/* SPDX-License-Identifier: Apache-2.0
 *
 * Values as text, as Python's str() and repr() show them. Called by exec.c
 * and the filters. Read run.h before. */
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

/* The shortest digits that read back as the same number, written as Python
 * does: with an exponent below 1e-4 and from 1e16 on. */
int jinja_real_text(double real, char out[JINJA_REAL_BYTES])
{
    char digits[32];
    if (!isfinite(real)) {
        return snprintf(out, JINJA_REAL_BYTES, "%s",
                        isnan(real) ? "nan"
                        : real > 0  ? "inf"
                                    : "-inf");
    }
    int precision = 0;
    do {
        snprintf(digits, sizeof(digits), "%.*e", precision++, fabs(real));
    } while (strtod(digits, NULL) != fabs(real) && precision < 17);
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    int count = (int)(e - digits) - (e - digits > 1);
    if (count > 1) {
        memmove(digits + 1, digits + 2, (size_t)count - 1); /* the point */
    }
    const char *sign = signbit(real) ? "-" : "";
    if (exponent < -4 || exponent >= 16) {
        return snprintf(out, JINJA_REAL_BYTES, "%s%c%s%.*se%c%02d", sign,
                        digits[0], count > 1 ? "." : "", count - 1, digits + 1,
                        exponent < 0 ? '-' : '+', abs(exponent));
    }
    if (exponent < 0) {
        return snprintf(out, JINJA_REAL_BYTES, "%s0.%.*s%.*s", sign,
                        -exponent - 1, "0000", count, digits);
    }
    int whole = exponent + 1;
    if (count <= whole) {
        return snprintf(out, JINJA_REAL_BYTES, "%s%.*s%.*s.0", sign, count,
                        digits, whole - count, "0000000000000000");
    }
    return snprintf(out, JINJA_REAL_BYTES, "%s%.*s.%.*s", sign, whole, digits,
                    count - whole, digits + whole);
}

static loong_status_t print_number(run_t *r, value_t value)
{
    char text[JINJA_REAL_BYTES];
    if (value.kind == JINJA_BOOL) {
        return emit(r, value.as.truth ? "True" : "False");
    }
    int length =
        value.kind == JINJA_REAL
            ? jinja_real_text(value.as.real, text)
            : snprintf(text, sizeof(text), "%lld", (long long)value.as.integer);
    return jinja_emit(r, text, (size_t)length);
}

/* One character as repr() shows it between quotes. */
static loong_status_t print_escaped(run_t *r, const char *at, size_t length,
                                    char quote)
{
    static const char names[] = "\n\r\t\\";
    static const char letters[] = "nrt\\";
    size_t bytes = 0;
    char text[16];
    uint32_t point = loongi_utf8_get(at, &bytes);
    const char *name =
        point < 0x80 && point > 0 ? strchr(names, (int)point) : NULL;
    if (name != NULL || point == (unsigned char)quote) {
        text[0] = '\\';
        text[1] = name != NULL ? letters[name - names] : quote;
        return jinja_emit(r, text, 2);
    }
    if (jinja_classify(point) & JINJA_C_PRINTABLE) {
        return jinja_emit(r, at, length);
    }
    snprintf(text, sizeof(text),
             point < 0x100     ? "\\x%02x"
             : point < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
             point);
    return emit(r, text);
}

static loong_status_t print_string_repr(run_t *r, value_t value)
{
    const char *text = value.as.text;
    bool single = memchr(text, '\'', value.length) != NULL;
    bool twofold = memchr(text, '"', value.length) != NULL;
    char quote = single && !twofold ? '"' : '\'';
    size_t plain = 0; /* where what can be shown as it is begins */
    LOONG_TRY(emit(r, value.markup ? "Markup(" : ""));
    LOONG_TRY(jinja_emit(r, &quote, 1));
    for (size_t at = 0; at < value.length;) {
        size_t length = 0;
        uint32_t point = loongi_utf8_get(text + at, &length);
        if (point < 0x20 || point >= 0x7F || point == '\\' ||
            point == (unsigned char)quote) {
            LOONG_TRY(jinja_emit(r, text + plain, at - plain));
            LOONG_TRY(print_escaped(r, text + at, length, quote));
            plain = at + length;
        }
        at += length;
    }
    LOONG_TRY(jinja_emit(r, text + plain, value.length - plain));
    LOONG_TRY(jinja_emit(r, &quote, 1));
    return emit(r, value.markup ? ")" : "");
}

static loong_status_t print_items(run_t *r, value_t value)
{
    jinja_iter_t it;
    value_t item;
    bool more = true;
    LOONG_TRY(jinja_iterate(r, value, &it));
    for (int64_t i = 0;; i++) {
        LOONG_TRY(jinja_iter_next(r, &it, &item, &more));
        if (!more) {
            return LOONG_OK;
        }
        LOONG_TRY(emit(r, i > 0 ? ", " : ""));
        LOONG_TRY(jinja_print_repr(r, item));
    }
}

static loong_status_t print_entries(run_t *r, const jinja_dict_t *dict)
{
    LOONG_TRY(emit(r, "{"));
    for (int64_t i = 0; i < dict->count; i++) {
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(emit(r, i > 0 ? ", " : ""));
        LOONG_TRY(jinja_print_repr(r, dict->entries[i].key));
        LOONG_TRY(emit(r, ": "));
        LOONG_TRY(jinja_print_repr(r, dict->entries[i].value));
    }
    return emit(r, "}");
}

static loong_status_t print_range(run_t *r, const jinja_range_t *range)
{
    char text[80];
    int64_t end = range->begin + range->count * range->step;
    int length = snprintf(text, sizeof(text), "range(%lld, %lld",
                          (long long)range->begin, (long long)end);
    if (range->step != 1) {
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           ", %lld", (long long)range->step);
    }
    LOONG_TRY(jinja_emit(r, text, (size_t)length));
    return emit(r, ")");
}

static loong_status_t print_around(run_t *r, value_t value)
{
    static const char *const views[] = {"dict_keys([", "dict_values([",
                                        "dict_items(["};
    switch (value.kind) {
    case JINJA_LIST:
        LOONG_TRY(emit(r, "["));
        LOONG_TRY(print_items(r, value));
        return emit(r, "]");
    case JINJA_TUPLE:
        LOONG_TRY(emit(r, "("));
        LOONG_TRY(print_items(r, value));
        return emit(r, jinja_list_of(value)->count == 1 ? ",)" : ")");
    case JINJA_VIEW:
        LOONG_TRY(emit(r, views[((jinja_view_t *)value.as.object)->what]));
        LOONG_TRY(print_items(r, value));
        return emit(r, "])");
    case JINJA_DICT:
        return print_entries(r, jinja_dict_of(value));
    default:
        LOONG_TRY(emit(r, "<Namespace "));
        LOONG_TRY(print_entries(r, jinja_dict_of(value)));
        return emit(r, ">");
    }
}

static loong_status_t print_loop(run_t *r, value_t value)
{
    char text[64];
    int64_t length = 0;
    const jinja_loop_t *loop = (const jinja_loop_t *)value.as.object;
    LOONG_TRY(jinja_length(r, value, &length));
    snprintf(text, sizeof(text), "<LoopContext %lld/%lld>",
             (long long)loop->index0 + 1, (long long)length);
    return emit(r, text);
}

loong_status_t jinja_print_repr(run_t *r, value_t value)
{
    loong_status_t status = LOONG_OK;
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return emit(r, "Undefined");
    case JINJA_NONE:
        return emit(r, "None");
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_REAL:
        return print_number(r, value);
    case JINJA_STRING:
        return print_string_repr(r, value);
    case JINJA_RANGE:
        return print_range(r, (const jinja_range_t *)value.as.object);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_NAMESPACE:
        LOONG_TRY(jinja_enter(r));
        status = print_around(r, value);
        r->depth--;
        return status;
    case JINJA_LOOP:
        return print_loop(r, value);
    case JINJA_MACRO: {
        const jinja_node_t *node = ((jinja_macro_t *)value.as.object)->node;
        LOONG_TRY(emit(r, "<Macro "));
        LOONG_TRY(node->kind == JINJA_N_MACRO
                      ? print_string_repr(r, node->value)
                      : emit(r, "anonymous"));
        return emit(r, ">");
    }
    default: /* Python would show an address */
        return jinja_fail(r, "%s has no text", jinja_type_name(value));
    }
}

loong_status_t jinja_print(run_t *r, value_t value)
{
    if (value.kind == JINJA_STRING) {
        return jinja_emit(r, value.as.text, value.length);
    }
    return value.kind == JINJA_UNDEFINED ? LOONG_OK
                                         : jinja_print_repr(r, value);
}

loong_status_t jinja_to_text(run_t *r, value_t value, value_t *text_p)
{
    if (value.kind == JINJA_STRING) {
        *text_p = value;
        return LOONG_OK;
    }
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_print(r, value));
    return jinja_take(r, mark, text_p);
}
