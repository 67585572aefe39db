/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats as of "%s of %d" % values. Called by arithmetic.c and the filter
 * format. Read format.h before. */
#include <math.h>
#include <string.h>

#include "format.h"
#include "unicode_text.h"

typedef struct percent {
    run_t *r;
    const char *at, *end;
    value_t values;
    jinja_list_t *tuple; /* NULL: one value, or a mapping */
    int64_t used;
    bool named; /* a value was asked for by its name */
} percent_t;

static loong_status_t next_value(percent_t *p, value_t *value_p)
{
    if (p->named) {
        return LOONG_OK; /* it is there already */
    }
    int64_t count = p->tuple != NULL ? p->tuple->count : 1;
    if (p->used >= count) {
        return jinja_fail(p->r, "too few values for a format (%lld)",
                          (long long)count);
    }
    *value_p = p->tuple != NULL ? p->tuple->items[p->used] : p->values;
    p->used++;
    return LOONG_OK;
}

/* (name) */
static loong_status_t find_named(percent_t *p, value_t *value_p)
{
    const char *begin = ++p->at;
    int depth = 1;
    for (; p->at < p->end; p->at++) {
        depth += (*p->at == '(') - (*p->at == ')');
        if (depth == 0) {
            break;
        }
    }
    value_t key = loongi_jinja_string(begin, (size_t)(p->at - begin));
    if (p->at == p->end) {
        return jinja_fail(p->r, "a format with '%%(' and no ')'");
    }
    if (p->values.kind != JINJA_DICT) {
        return jinja_fail(p->r, "a format with names needs a dict, not %s",
                          jinja_type_name(p->values));
    }
    const jinja_entry_t *entry = jinja_dict_find(jinja_dict_of(p->values), key);
    if (entry == NULL) {
        return jinja_fail(p->r, "a format asks for '%.*s', which is not there",
                          (int)LOONG_MIN(key.length, (size_t)60), key.as.text);
    }
    *value_p = entry->value;
    p->at++;
    p->named = true;
    return LOONG_OK;
}

static void read_flags(percent_t *p, jinja_spec_t *spec)
{
    for (; p->at < p->end && strchr("-+ #0", *p->at) != NULL && *p->at != 0;
         p->at++) {
        switch (*p->at) {
        case '-':
            spec->align = '<';
            break;
        case '+':
            spec->sign = '+';
            break;
        case ' ':
            spec->sign = spec->sign == '+' ? '+' : ' ';
            break;
        case '#':
            spec->alternate = true;
            break;
        default:
            spec->zero = true;
            break;
        }
    }
}

/* Digits, or * for a value. */
static loong_status_t read_number(percent_t *p, int64_t *number)
{
    value_t value = {0};
    if (p->at >= p->end || *p->at != '*') {
        *number = jinja_spec_number(&p->at, p->end);
        return LOONG_OK;
    }
    p->at++;
    LOONG_TRY(next_value(p, &value));
    if (!jinja_is_int(value)) {
        return jinja_fail(p->r, "'*' in a format needs an int");
    }
    *number = LOONG_MIN(jinja_int_of(value), (int64_t)1000000000);
    return LOONG_OK;
}

static loong_status_t show_number(percent_t *p, jinja_spec_t *spec,
                                  value_t value)
{
    char type = spec->type;
    if (spec->zero && spec->align == 0) {
        spec->fill[0] = '0';
        spec->align = '=';
    }
    spec->align = spec->align == 0 ? '>' : spec->align;
    if (!jinja_is_number(value)) {
        return jinja_fail(p->r, "%%%c formats a number, not %s", type,
                          jinja_type_name(value));
    }
    if (strchr("eEfFgG", type) != NULL) {
        return jinja_format_real(p->r, jinja_real_of(value), spec);
    }
    if (value.kind == JINJA_REAL) {
        if (strchr("diu", type) == NULL || !(fabs(value.as.real) < 9e18)) {
            return jinja_fail(p->r, "%%%c formats an integer, not a float",
                              type);
        }
        value = loongi_jinja_int((int64_t)value.as.real);
    }
    if (spec->precision >= 0) {
        return jinja_fail(p->r, "a precision of an integer is not offered");
    }
    spec->type = strchr("diu", type) != NULL ? 'd' : type;
    return jinja_format_int(p->r, jinja_int_of(value), spec);
}

static loong_status_t show(percent_t *p, jinja_spec_t *spec, value_t value)
{
    char point[4];
    value_t text = value;
    size_t mark = jinja_mark(p->r);
    spec->align =
        spec->align == 0 && strchr("srac", spec->type) ? '>' : spec->align;
    switch (spec->type) {
    case 's':
        LOONG_TRY(jinja_to_text(p->r, value, &text));
        return jinja_format_text(p->r, text, spec);
    case 'r':
        LOONG_TRY(jinja_print_repr(p->r, value));
        LOONG_TRY(jinja_take(p->r, mark, &text));
        return jinja_format_text(p->r, text, spec);
    case 'a':
        LOONG_TRY(jinja_to_ascii(p->r, value, &text));
        return jinja_format_text(p->r, text, spec);
    case 'c':
        if (jinja_is_int(value) && jinja_int_of(value) >= 0 &&
            jinja_int_of(value) <= 0x10FFFF) {
            int n = jinja_put_point((uint32_t)jinja_int_of(value), point);
            text = loongi_jinja_string(point, (size_t)n);
        }
        if (text.kind != JINJA_STRING ||
            jinja_count_points(text.as.text, text.length) != 1) {
            return jinja_fail(p->r, "%%c formats one character");
        }
        spec->precision = -1;
        return jinja_format_text(p->r, text, spec);
    default:
        return show_number(p, spec, value);
    }
}

/* Behind a percent sign. */
static loong_status_t one(percent_t *p)
{
    jinja_spec_t spec;
    value_t value = {0};
    int64_t width = 0;
    int64_t precision = -1;
    jinja_spec_init(&spec);
    p->named = false;
    if (p->at < p->end && *p->at == '(') {
        LOONG_TRY(find_named(p, &value));
    }
    read_flags(p, &spec);
    LOONG_TRY(read_number(p, &width));
    if (width < -1) {
        spec.align = '<';
        width = -width;
    }
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        LOONG_TRY(read_number(p, &precision));
        precision = LOONG_MAX(precision, (int64_t)0);
    }
    p->at += p->at < p->end && strchr("hlL", *p->at) != NULL && *p->at != 0;
    spec.width = LOONG_MAX(width, (int64_t)0);
    spec.precision = (int)LOONG_MIN(precision, (int64_t)1000000000);
    if (p->at >= p->end) {
        return jinja_fail(p->r, "a format that ends behind '%%'");
    }
    spec.type = *p->at++;
    if (spec.type == '%') {
        return jinja_emit(p->r, "%", 1);
    }
    if (spec.type == 0 || strchr("diouxXeEfFgGcrsa", spec.type) == NULL) {
        return jinja_fail(p->r, "'%%%c' is no format", spec.type);
    }
    LOONG_TRY(next_value(p, &value));
    return show(p, &spec, value);
}

loong_status_t jinja_percent(run_t *r, value_t format, value_t values,
                             value_t *text_p)
{
    percent_t p = {.r = r,
                   .at = format.as.text,
                   .end = format.as.text + format.length,
                   .values = values};
    size_t mark = jinja_mark(r);
    bool any_named = false;
    p.tuple = values.kind == JINJA_TUPLE ? jinja_list_of(values) : NULL;
    while (p.at < p.end) {
        const char *percent = memchr(p.at, '%', (size_t)(p.end - p.at));
        const char *stop = percent != NULL ? percent : p.end;
        LOONG_TRY(jinja_emit(r, p.at, (size_t)(stop - p.at)));
        p.at = stop + (percent != NULL);
        if (percent != NULL) {
            LOONG_TRY(one(&p));
            any_named = any_named || p.named;
        }
    }
    /* Mappings, lists and the like may stay unused; others may not. */
    bool spare = p.tuple == NULL &&
                 (values.kind == JINJA_DICT || values.kind == JINJA_LIST ||
                  values.kind == JINJA_RANGE || values.kind == JINJA_UNDEFINED);
    int64_t count = p.tuple != NULL ? p.tuple->count : 1;
    if (!any_named && !spare && p.used < count) {
        return jinja_fail(r, "a format leaves %lld of its values over",
                          (long long)(count - p.used));
    }
    LOONG_TRY(jinja_take(r, mark, text_p));
    text_p->markup = format.markup;
    return LOONG_OK;
}
