/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats as of "{} of {name:>5}".format(...). Called by the methods of str.
 * Read format.h before. */
#include <string.h>

#include "format.h"
#include "unicode_text.h"
#include "utf8.h"

typedef struct braces {
    run_t *r;
    const jinja_args_t *args;
    int64_t next; /* of fields without a number; -1: they have numbers */
    int depth;    /* of formats in formats */
} braces_t;

static loong_status_t format_all(braces_t *b, value_t format);

static loong_status_t by_number(braces_t *b, int64_t number, value_t *value_p)
{
    if (number >= b->args->count) {
        return jinja_fail(b->r, "a format asks for value %lld of %lld",
                          (long long)number, (long long)b->args->count);
    }
    *value_p = b->args->items[number];
    return LOONG_OK;
}

static loong_status_t first_of_field(braces_t *b, value_t name,
                                     value_t *value_p)
{
    const char *at = name.as.text;
    const char *end = at + name.length;
    int64_t number = jinja_spec_number(&at, end);
    if (name.length == 0) {
        if (b->next < 0) {
            return jinja_fail(b->r, "a format with numbers has '{}'");
        }
        return by_number(b, b->next++, value_p);
    }
    if (number >= 0 && at == end) {
        if (b->next > 0) {
            return jinja_fail(b->r, "a format with '{}' has numbers");
        }
        b->next = -1;
        return by_number(b, number, value_p);
    }
    const jinja_entry_t *entry =
        b->args->named == NULL ? NULL : jinja_dict_find(b->args->named, name);
    if (entry == NULL) {
        return jinja_fail(b->r, "a format asks for '%.*s', which is not there",
                          (int)LOONG_MIN(name.length, (size_t)60),
                          name.as.text);
    }
    *value_p = entry->value;
    return LOONG_OK;
}

/* name.attribute[key] ... */
static loong_status_t find_field(braces_t *b, value_t field, value_t *value_p)
{
    const char *at = field.as.text;
    const char *end = at + field.length;
    const char *stop = at;
    while (stop < end && *stop != '.' && *stop != '[') {
        stop++;
    }
    LOONG_TRY(first_of_field(b, loongi_jinja_string(at, (size_t)(stop - at)),
                             value_p));
    for (at = stop; at < end; at = stop) {
        bool item = *at++ == '[';
        for (stop = at; stop < end &&
                        (item ? *stop != ']' : *stop != '.' && *stop != '[');) {
            stop++;
        }
        value_t name = loongi_jinja_string(at, (size_t)(stop - at));
        int64_t number = jinja_spec_number(&at, stop);
        if (name.length == 0 || (item && stop == end)) {
            return jinja_fail(b->r, "a format with an empty attribute");
        }
        if (!item) {
            LOONG_TRY(jinja_getattr(b->r, *value_p, name, value_p));
            continue;
        }
        LOONG_TRY(jinja_getitem(
            b->r, *value_p,
            number >= 0 && at == stop ? loongi_jinja_int(number) : name,
            value_p));
        stop++;
    }
    return LOONG_OK;
}

static loong_status_t read_spec(braces_t *b, value_t text, jinja_spec_t *spec)
{
    const char *at = text.as.text;
    const char *end = at + text.length;
    size_t fill = 0;
    bool own_fill = false;
    jinja_spec_init(spec);
    if (at < end) {
        loongi_utf8_get(at, &fill);
    }
    if (at + fill < end && fill > 0 && strchr("<>=^", at[fill]) != NULL) {
        memcpy(spec->fill, at, fill);
        spec->fill_length = (int)fill;
        spec->align = at[fill];
        at += fill + 1;
        own_fill = true;
    } else if (at < end && *at != 0 && strchr("<>=^", *at) != NULL) {
        spec->align = *at++;
    }
    if (at < end && *at != 0 && strchr("+- ", *at) != NULL) {
        spec->sign = *at++;
    }
    if (at < end && *at == '#') {
        spec->alternate = true;
        at++;
    }
    if (at < end && *at == '0') {
        at++;
        spec->zero = true;
        if (!own_fill) {
            spec->fill[0] = '0';
            spec->fill_length = 1;
        }
    }
    int64_t width = jinja_spec_number(&at, end);
    spec->width = LOONG_MAX(width, (int64_t)0);
    if (at < end && (*at == ',' || *at == '_')) {
        spec->group = *at++;
    }
    if (at < end && *at == '.') {
        at++;
        spec->precision = (int)jinja_spec_number(&at, end);
        if (spec->precision < 0) {
            return jinja_fail(b->r, "a format with '.' and no precision");
        }
    }
    if (at < end) {
        spec->type = *at++;
    }
    return at == end ? LOONG_OK
                     : jinja_fail(b->r, "'%.*s' is no format",
                                  (int)LOONG_MIN(text.length, (size_t)60),
                                  text.as.text);
}

static loong_status_t show_int(braces_t *b, int64_t value,
                               const jinja_spec_t *spec)
{
    char text[4];
    if (spec->type != 0 && strchr("eEfFgG%", spec->type) != NULL) {
        return jinja_format_real(b->r, (double)value, spec);
    }
    if (spec->precision >= 0) {
        return jinja_fail(b->r, "a precision of an integer");
    }
    if (spec->type == 'c') {
        int n = value >= 0 && value <= 0x10FFFF
                    ? jinja_put_point((uint32_t)value, text)
                    : 0;
        return n == 0 ? jinja_fail(b->r, "'c' formats a character")
                      : jinja_format_text(
                            b->r, loongi_jinja_string(text, (size_t)n), spec);
    }
    return jinja_format_int(b->r, value, spec);
}

static loong_status_t show(braces_t *b, value_t value, value_t text)
{
    jinja_spec_t spec;
    if (text.length == 0) {
        return jinja_print(b->r, value);
    }
    LOONG_TRY(read_spec(b, text, &spec));
    if (value.kind == JINJA_REAL) {
        return jinja_format_real(b->r, value.as.real, &spec);
    }
    if (jinja_is_int(value)) {
        return show_int(b, jinja_int_of(value), &spec);
    }
    if (value.kind != JINJA_STRING) {
        return jinja_fail(b->r, "a format with '%.*s' is not defined for %s",
                          (int)LOONG_MIN(text.length, (size_t)60), text.as.text,
                          jinja_type_name(value));
    }
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' ||
        spec.sign != '-' || spec.group != 0 || spec.alternate) {
        return jinja_fail(b->r, "'%.*s' does not format a str",
                          (int)LOONG_MIN(text.length, (size_t)60),
                          text.as.text);
    }
    return jinja_format_text(b->r, value, &spec);
}

static loong_status_t convert(braces_t *b, char how, value_t *value)
{
    size_t mark = jinja_mark(b->r);
    switch (how) {
    case 's':
        return jinja_to_text(b->r, *value, value);
    case 'r':
        LOONG_TRY(jinja_print_repr(b->r, *value));
        return jinja_take(b->r, mark, value);
    case 'a':
        return jinja_to_ascii(b->r, *value, value);
    default:
        return jinja_fail(b->r, "a format with '!%c'", how);
    }
}

/* field!conversion:spec */
static loong_status_t one(braces_t *b, const char *at, const char *end)
{
    value_t value, spec;
    const char *stop = at;
    int brackets = 0;
    while (stop < end && (brackets > 0 || (*stop != '!' && *stop != ':'))) {
        brackets += (*stop == '[') - (*stop == ']');
        stop++;
    }
    LOONG_TRY(
        find_field(b, loongi_jinja_string(at, (size_t)(stop - at)), &value));
    if (stop < end && *stop == '!') {
        if (stop + 1 >= end || (stop + 2 < end && stop[2] != ':')) {
            return jinja_fail(b->r, "a format with '!' and no conversion");
        }
        LOONG_TRY(convert(b, stop[1], &value));
        stop += 2;
    }
    stop += stop < end;
    size_t mark = jinja_mark(b->r);
    LOONG_TRY(format_all(b, loongi_jinja_string(stop, (size_t)(end - stop))));
    LOONG_TRY(jinja_take(b->r, mark, &spec));
    return show(b, value, spec);
}

static loong_status_t field(braces_t *b, const char **at, const char *end)
{
    const char *begin = *at;
    int depth = 1;
    while (*at < end && depth > 0) {
        depth += (**at == '{') - (**at == '}');
        ++*at;
    }
    if (depth > 0) {
        return jinja_fail(b->r, "a format with '{' and no '}'");
    }
    return one(b, begin, *at - 1);
}

static loong_status_t format_all(braces_t *b, value_t format)
{
    const char *at = format.as.text;
    const char *end = at + format.length;
    if (b->depth++ > 2) {
        return jinja_fail(b->r, "a format in a format in a format");
    }
    while (at < end) {
        char c = *at++;
        bool twice = at < end && *at == c;
        if (c != '{' && c != '}') {
            LOONG_TRY(jinja_emit(b->r, &c, 1));
        } else if (twice) {
            LOONG_TRY(jinja_emit(b->r, &c, 1));
            at++;
        } else if (c == '}') {
            return jinja_fail(b->r, "a format with '}' and no '{'");
        } else {
            LOONG_TRY(field(b, &at, end));
        }
    }
    b->depth--;
    return LOONG_OK;
}

loong_status_t jinja_braces(run_t *r, value_t format, const jinja_args_t *args,
                            value_t *text_p)
{
    braces_t b = {.r = r, .args = args};
    size_t mark = jinja_mark(r);
    LOONG_TRY(format_all(&b, format));
    return jinja_take(r, mark, text_p);
}
