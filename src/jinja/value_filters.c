/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters of numbers and of any value; finds filters by name. Called by
 * call.c. Read text.h before. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

const jinja_builtin_t *jinja_find_filter(value_t name)
{
    const jinja_builtin_t *const tables[] = {
        jinja_text_filters, jinja_value_filters, jinja_list_filters,
        jinja_select_filters};
    for (int64_t k = 0; k < LOONG_COUNT_OF(tables); k++) {
        const jinja_builtin_t *row = jinja_find_row(tables[k], name);
        if (row != NULL) {
            return row;
        }
    }
    return NULL;
}

static loong_status_t absolute(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    value_t value = call->self;
    if (!jinja_is_number(value)) {
        return value.kind == JINJA_UNDEFINED
                   ? jinja_fail_undefined(r, value)
                   : jinja_fail(r, "abs needs a number, not %s",
                                jinja_type_name(value));
    }
    if (value.kind == JINJA_REAL) {
        *result = loongi_jinja_real(fabs(value.as.real));
        return LOONG_OK;
    }
    return jinja_sign(r, jinja_int_of(value) < 0, value, result);
}

/* As x.name, but never a key of a mapping. */
static loong_status_t attribute(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    value_t name;
    value_t of = call->self;
    LOONG_TRY(jinja_arg_text(r, call, 0, NULL, &name));
    if (of.kind == JINJA_DICT && jinja_find_method(of, name) == NULL) {
        *result = jinja_undefined("there is no such attribute");
        return LOONG_OK;
    }
    return jinja_getattr(r, of, name, result);
}

static loong_status_t otherwise(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    bool falsy = jinja_arg_truth(call, 1, false);
    (void)r;
    *result = call->self;
    if (call->self.kind == JINJA_UNDEFINED ||
        (falsy && !jinja_truth(call->self))) {
        *result = call->arg[0].kind != JINJA_MISSING
                      ? call->arg[0]
                      : loongi_jinja_string("", 0);
    }
    return LOONG_OK;
}

static loong_status_t length(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    int64_t count = 0;
    LOONG_TRY(jinja_length(r, call->self, &count));
    *result = loongi_jinja_int(count);
    return LOONG_OK;
}

/* The text without white space around it and underscores between digits, as
 * int() and float() read it; false: it is none. */
static bool plain_number(value_t text, char out[64])
{
    size_t n = 0;
    text = jinja_strip(text, NULL, JINJA_LEFT | JINJA_RIGHT);
    for (size_t i = 0; i < text.length; i++) {
        char c = text.as.text[i];
        if (c == '_') {
            if (i == 0 || i + 1 == text.length || text.as.text[i - 1] == '_' ||
                text.as.text[i + 1] == '_') {
                return false;
            }
            continue;
        }
        if (n == 63 || c == '\0') {
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return n > 0;
}

static bool read_real(value_t text, double *real)
{
    char plain[64];
    char *end = NULL;
    if (!plain_number(text, plain) || strpbrk(plain, "xX(") != NULL) {
        return false; /* C reads more than Python */
    }
    *real = strtod(plain, &end);
    return *end == '\0' && end != plain;
}

static bool read_int(value_t text, int64_t base, int64_t *n, bool *too_large)
{
    char plain[64];
    char *end = NULL;
    if (!plain_number(text, plain)) {
        return false;
    }
    const char *digits = plain + (plain[0] == '-' || plain[0] == '+');
    char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : '\0';
    int64_t prefix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    char joined[64];
    snprintf(joined, sizeof(joined), "%s%s", plain[0] == '-' ? "-" : "",
             digits + (prefix != 0 && (prefix == base || base == 0) ? 2 : 0));
    if (base == 0) {
        base = prefix != 0 ? prefix : 10;
    }
    if (strpbrk(joined + (joined[0] == '-'), "+-xX \t\n") != NULL &&
        base <= 33) {
        return false;
    }
    errno = 0;
    *n = strtoll(joined, &end, (int)base);
    *too_large = errno == ERANGE;
    return *end == '\0' && end != joined && end[-1] != '-';
}

static loong_status_t to_int(run_t *r, const jinja_call_t *call,
                             value_t *result)
{
    value_t value = call->self;
    int64_t n = 0;
    int64_t base = 10;
    double real = 0;
    bool too_large = false;
    LOONG_TRY(jinja_arg_int(r, call, 1, 10, &base));
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, value);
    }
    if (jinja_is_int(value)) {
        *result = loongi_jinja_int(jinja_int_of(value));
        return LOONG_OK;
    }
    *result =
        call->arg[0].kind != JINJA_MISSING ? call->arg[0] : loongi_jinja_int(0);
    bool is = base == 0 || (base >= 2 && base <= 36);
    if (is && value.kind == JINJA_STRING &&
        read_int(value, base, &n, &too_large)) {
        *result = loongi_jinja_int(n);
        return too_large ? jinja_fail(r, "an integer that does not fit 64 bits")
                         : LOONG_OK;
    }
    if (value.kind == JINJA_REAL) {
        real = value.as.real;
        if (isinf(real)) {
            return jinja_fail(r, "infinity is no integer");
        }
    } else if (value.kind != JINJA_STRING || !read_real(value, &real)) {
        return LOONG_OK;
    }
    if (!isfinite(real)) {
        return LOONG_OK;
    }
    if (fabs(real) >= 0x1p63) {
        return jinja_fail(r, "an integer that does not fit 64 bits");
    }
    *result = loongi_jinja_int((int64_t)real);
    return LOONG_OK;
}

static loong_status_t to_real(run_t *r, const jinja_call_t *call,
                              value_t *result)
{
    double real = 0;
    value_t value = call->self;
    if (value.kind == JINJA_UNDEFINED) {
        return jinja_fail_undefined(r, value);
    }
    if (jinja_is_number(value)) {
        *result = loongi_jinja_real(jinja_real_of(value));
    } else if (value.kind == JINJA_STRING && read_real(value, &real)) {
        *result = loongi_jinja_real(real);
    } else {
        *result = call->arg[0].kind != JINJA_MISSING ? call->arg[0]
                                                     : loongi_jinja_real(0);
    }
    return LOONG_OK;
}

/* To the nearest, halves to the even neighbour, of the exact value. */
static loong_status_t round_common(run_t *r, value_t value, int64_t precision,
                                   value_t *result)
{
    char text[400];
    if (jinja_is_int(value)) {
        if (precision >= 0) {
            *result = loongi_jinja_int(jinja_int_of(value));
            return LOONG_OK;
        }
        if (precision < -18) {
            *result = loongi_jinja_int(0);
            return LOONG_OK;
        }
        int64_t unit = 1;
        for (int64_t i = precision; i < 0; i++) {
            unit *= 10;
        }
        int64_t n = jinja_int_of(value);
        int64_t rest = ((n % unit) + unit) % unit;
        int64_t low = n - rest;
        bool up = rest > unit - rest ||
                  (rest == unit - rest && (low / unit) % 2 != 0);
        *result = loongi_jinja_int(low + (up ? unit : 0));
        return LOONG_OK;
    }
    double real = value.as.real;
    if (precision < 0 || precision > 22 || !isfinite(real)) {
        if (precision > 22 || !isfinite(real)) {
            *result = value;
            return LOONG_OK;
        }
        return jinja_fail(r, "a float is not rounded to tens");
    }
    snprintf(text, sizeof(text), "%.*f", (int)precision, real);
    *result = loongi_jinja_real(strtod(text, NULL));
    return LOONG_OK;
}

static loong_status_t round_value(run_t *r, const jinja_call_t *call,
                                  value_t *result)
{
    int64_t precision = 0;
    value_t method;
    value_t value = call->self;
    LOONG_TRY(jinja_arg_int(r, call, 0, 0, &precision));
    LOONG_TRY(jinja_arg_text(r, call, 1, "common", &method));
    if (!jinja_is_number(value)) {
        return value.kind == JINJA_UNDEFINED
                   ? jinja_fail_undefined(r, value)
                   : jinja_fail(r, "round needs a number, not %s",
                                jinja_type_name(value));
    }
    if (jinja_is(method, "common")) {
        return round_common(r, value, precision, result);
    }
    if (!jinja_is(method, "ceil") && !jinja_is(method, "floor")) {
        return jinja_fail(r, "round knows common, ceil and floor, not '%.*s'",
                          (int)LOONG_MIN(method.length, (size_t)60),
                          method.as.text);
    }
    double unit = pow(10, (double)precision);
    double scaled = jinja_real_of(value) * unit;
    scaled = jinja_is(method, "ceil") ? ceil(scaled) : floor(scaled);
    *result = loongi_jinja_real(scaled / unit);
    return LOONG_OK;
}

static loong_status_t file_size(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    static const char prefixes[] = "kMGTPEZY";
    bool binary = jinja_arg_truth(call, 0, false);
    double base = binary ? 1024 : 1000;
    char text[64];
    value_t real;
    LOONG_TRY(to_real(r, call, &real));
    if (!jinja_is_number(call->self) &&
        (call->self.kind != JINJA_STRING ||
         !read_real(call->self, &real.as.real))) {
        return jinja_fail(r, "filesizeformat needs a number, not %s",
                          jinja_type_name(call->self));
    }
    double bytes = real.as.real;
    if (bytes == 1) {
        snprintf(text, sizeof(text), "1 Byte");
    } else if (bytes < base) {
        snprintf(text, sizeof(text), "%lld Bytes", (long long)bytes);
    } else {
        int k = 0;
        double unit = base * base;
        while (k < 7 && bytes >= unit) {
            unit *= base;
            k++;
        }
        char prefix = binary && k == 0 ? 'K' : prefixes[k];
        snprintf(text, sizeof(text), "%.1f %c%sB", base * bytes / unit, prefix,
                 binary ? "i" : "");
    }
    return jinja_copy(r->heap, text, strlen(text), result);
}

const jinja_builtin_t jinja_value_filters[] = {
    {"default", "default_value boolean", 0, otherwise},
    {"d", "default_value boolean", 0, otherwise},
    {"length", "", 0, length},
    {"count", "", 0, length},
    {"int", "default base", 0, to_int},
    {"float", "default", 0, to_real},
    {"abs", "", 0, absolute},
    {"attr", "name", 1, attribute},
    {"round", "precision method", 0, round_value},
    {"filesizeformat", "binary", 0, file_size},
    {0}};
