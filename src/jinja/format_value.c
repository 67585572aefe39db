/* SPDX-License-Identifier: Apache-2.0
 *
 * One value by a format: digits, signs, groups, padding. Called by percent.c,
 * braces.c and filters. Read format.h before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "unicode_text.h"
#include "utf8.h"

enum { MAX_PRECISION = 300, DIGITS = 700 };

void jinja_spec_init(jinja_spec_t *spec)
{
    memset(spec, 0, sizeof(*spec));
    spec->fill[0] = ' ';
    spec->fill_length = 1;
    spec->sign = '-';
    spec->precision = -1;
}

int64_t jinja_spec_number(const char **at, const char *end)
{
    int64_t value = *at < end && **at >= '0' && **at <= '9' ? 0 : -1;
    while (*at < end && **at >= '0' && **at <= '9') {
        value = value * 10 + (**at - '0');
        value = LOONG_MIN(value, (int64_t)1000000000);
        ++*at;
    }
    return value;
}

static loong_status_t repeat(run_t *r, const char *text, size_t length,
                             int64_t times)
{
    for (int64_t i = 0; i < times; i++) {
        LOONG_TRY(jinja_step(r));
        LOONG_TRY(jinja_emit(r, text, length));
    }
    return LOONG_OK;
}

/* prefix (sign, 0x), padding of numbers, text, in spec's width. */
static loong_status_t pad(run_t *r, const char *prefix, value_t text,
                          const jinja_spec_t *spec, char align)
{
    int64_t length =
        (int64_t)strlen(prefix) + jinja_count_points(text.as.text, text.length);
    int64_t room = LOONG_MAX(spec->width - length, (int64_t)0);
    int64_t before = align == '>' ? room : align == '^' ? room / 2 : 0;
    int64_t inside = align == '=' ? room : 0;
    const size_t fill = (size_t)spec->fill_length;
    LOONG_TRY(repeat(r, spec->fill, fill, before));
    LOONG_TRY(jinja_emit(r, prefix, strlen(prefix)));
    LOONG_TRY(repeat(r, spec->fill, fill, inside));
    LOONG_TRY(jinja_emit(r, text.as.text, text.length));
    return repeat(r, spec->fill, fill, room - before - inside);
}

loong_status_t jinja_format_text(run_t *r, value_t text,
                                 const jinja_spec_t *spec)
{
    if (spec->precision >= 0) {
        text.length =
            jinja_find_point(text.as.text, text.length, spec->precision);
    }
    return pad(r, "", text, spec, spec->align != 0 ? spec->align : '<');
}

/* Digits with a mark between groups of three (four for hexadecimal ones). */
static value_t group(char *digits, int whole, const jinja_spec_t *spec,
                     char out[2 * DIGITS])
{
    int size = spec->type == 'x' || spec->type == 'X' || spec->type == 'b' ||
                       spec->type == 'o'
                   ? 4
                   : 3;
    size_t length = 0;
    for (int i = 0; digits[i] != '\0'; i++) {
        if (spec->group != 0 && i > 0 && i < whole && (whole - i) % size == 0) {
            out[length++] = spec->group;
        }
        out[length++] = digits[i];
    }
    return loongi_jinja_string(out, length);
}

static loong_status_t format_number(run_t *r, bool negative, const char *base,
                                    char *digits, const jinja_spec_t *spec)
{
    char prefix[8];
    char grouped[2 * DIGITS];
    int whole = (int)strspn(digits, spec->type == 'x' || spec->type == 'X'
                                        ? "0123456789abcdefABCDEF"
                                        : "0123456789");
    if (spec->zero && spec->group != 0 && spec->width > 0) {
        return jinja_fail(r, "zeros before groups of digits are not offered");
    }
    snprintf(prefix, sizeof(prefix), "%s%s",
             negative            ? "-"
             : spec->sign == '-' ? ""
             : spec->sign == '+' ? "+"
                                 : " ",
             base);
    return pad(r, prefix, group(digits, whole, spec, grouped), spec,
               spec->align != 0 ? spec->align
               : spec->zero     ? '='
                                : '>');
}

static void put_digits(uint64_t value, unsigned base, bool upper, char *out)
{
    char reversed[72];
    int n = 0;
    do {
        unsigned digit = (unsigned)(value % base);
        reversed[n++] =
            (char)(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
        value /= base;
    } while (value > 0);
    while (n > 0) {
        *out++ = reversed[--n];
    }
    *out = '\0';
}

loong_status_t jinja_format_int(run_t *r, int64_t value,
                                const jinja_spec_t *spec)
{
    char digits[DIGITS];
    char base_text[4] = "";
    bool negative = value < 0;
    uint64_t size = negative ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned base = 10;
    switch (spec->type) {
    case 'x':
    case 'X':
        base = 16;
        break;
    case 'o':
        base = 8;
        break;
    case 'b':
        base = 2;
        break;
    case 0:
    case 'd':
    case 'n':
        break;
    default:
        return jinja_fail(r, "'%c' does not format an int", spec->type);
    }
    put_digits(size, base, spec->type == 'X', digits);
    if (spec->alternate && base != 10) {
        snprintf(base_text, sizeof(base_text), "0%c", spec->type);
    }
    return format_number(r, negative, base_text, digits, spec);
}

/* What a type that is not given means: as repr(), or of so many digits. */
static void plain_real(double value, int precision, char digits[DIGITS])
{
    if (precision < 0) {
        jinja_real_text(value, digits);
        return;
    }
    precision = LOONG_MAX(precision, 1);
    snprintf(digits, DIGITS, "%.*g", precision, value);
    if (strpbrk(digits, ".en") == NULL) {
        if ((int)strlen(digits) >= precision) {
            snprintf(digits, DIGITS, "%.*e", precision - 1, value);
        } else {
            strcat(digits, ".0");
        }
    }
}

loong_status_t jinja_format_real(run_t *r, double value,
                                 const jinja_spec_t *spec)
{
    char digits[DIGITS];
    char pattern[16];
    char type = spec->type;
    bool negative = signbit(value) && !isnan(value);
    int precision = spec->precision >= 0 ? spec->precision : 6;
    if (precision > MAX_PRECISION) {
        return jinja_fail(r, "a precision beyond %d", MAX_PRECISION);
    }
    value = fabs(value);
    if (type == 0) {
        plain_real(value, spec->precision, digits);
    } else if (strchr("eEfFgG%", type) == NULL) {
        return jinja_fail(r, "'%c' does not format a float", type);
    } else {
        snprintf(pattern, sizeof(pattern), "%%%s.*%c",
                 spec->alternate ? "#" : "", type == '%' ? 'f' : type);
        snprintf(digits, sizeof(digits), pattern, precision,
                 type == '%' ? value * 100 : value);
        strcat(digits, type == '%' ? "%" : "");
    }
    return format_number(r, negative, "", digits, spec);
}

loong_status_t jinja_to_ascii(run_t *r, value_t value, value_t *text_p)
{
    value_t shown;
    size_t mark = jinja_mark(r);
    LOONG_TRY(jinja_print_repr(r, value));
    LOONG_TRY(jinja_take(r, mark, &shown));
    for (size_t at = 0; at < shown.length;) {
        char text[16];
        size_t begin = at;
        uint32_t point = loongi_utf8_get(shown.as.text + at, &at);
        int length = point < 0x80      ? snprintf(text, 16, "%c", (int)point)
                     : point < 0x100   ? snprintf(text, 16, "\\x%02x", point)
                     : point < 0x10000 ? snprintf(text, 16, "\\u%04x", point)
                                       : snprintf(text, 16, "\\U%08x", point);
        LOONG_TRY(jinja_emit(r, point == 0 ? shown.as.text + begin : text,
                             point == 0 ? 1 : (size_t)length));
    }
    return jinja_take(r, mark, text_p);
}
