/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings and numbers of a template. Called by lex.c. Read parse.h before. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"
#include "unicode_text.h"
#include "utf8.h"

static loong_status_t refuse(jinja_parser_t *p, const jinja_piece_t *piece,
                             const char *what)
{
    return jinja_fail_at(p->jinja, p->ctx,
                         (const int[2]){piece->line, piece->column}, "%s",
                         what);
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* Digits of a base from *at on, between least and most of them. */
static bool digits(const char **at, const char *end, const int want[3],
                   uint32_t *point)
{
    int count = 0;
    *point = 0;
    while (*at < end && count < want[2] && digit_of(**at) < want[0]) {
        *point = *point * (uint32_t)want[0] + (uint32_t)digit_of(*(*at)++);
        count++;
    }
    return count >= want[1];
}

/* Behind a backslash at *at; what it stands for goes to *out. */
static const char *escape(const char **at, const char *end, char **out)
{
    static const char names[] = "\\'\"abfnrtv";
    static const char values[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = **at;
    const char *name = c == '\0' ? NULL : strchr(names, c);
    uint32_t point = 0;
    if (name != NULL) {
        *(*out)++ = values[name - names];
        ++*at;
        return NULL;
    }
    if (c == '\n') {
        ++*at;
        return NULL;
    }
    if (c == 'N') {
        return "a character by its name (\\N) is not offered";
    }
    int width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (width > 0) {
        ++*at;
        if (!digits(at, end, (const int[3]){16, width, width}, &point)) {
            return "an escape (\\x, \\u, \\U) with too few digits";
        }
    } else if (!digits(at, end, (const int[3]){8, 1, 3}, &point)) {
        *(*out)++ = '\\';               /* no escape: the backslash stays */
        if ((unsigned char)c >= 0x80) { /* what Python makes of these */
            size_t length = 0;
            point = loongi_utf8_get(*at, &length);
            *out += sprintf(*out,
                            point < 0x100     ? "x%02x"
                            : point < 0x10000 ? "u%04x"
                                              : "U%08x",
                            point);
            *at += length;
        }
        return NULL;
    }
    int length = jinja_put_point(point, *out);
    *out += length;
    return length > 0 ? NULL : "an escape for something that is no character";
}

loong_status_t jinja_cut_string(jinja_parser_t *p, const char *text,
                                size_t length, jinja_piece_t *piece)
{
    const char *end = text + length;
    char *copy = NULL;
    /* The longest that grows: a backslash and a character of 4 bytes. */
    LOONG_TRY(jinja_new(p->jinja->heap, 2 * length + 16, &copy));
    char *out = copy;
    while (text < end) {
        if (*text != '\\') {
            *out++ = *text++;
            continue;
        }
        text++;
        const char *wrong = escape(&text, end, &out);
        if (wrong != NULL) {
            return refuse(p, piece, wrong);
        }
    }
    piece->value = loongi_jinja_string(copy, (size_t)(out - copy));
    return LOONG_OK;
}

/* Digits of base, single underscores between them; their end. */
static const char *run_of(const char *at, const char *end, int base)
{
    if (at >= end || digit_of(*at) >= base) {
        return at;
    }
    while (at < end && (digit_of(*at) < base || (*at == '_' && at + 1 < end &&
                                                 digit_of(at[1]) < base))) {
        at++;
    }
    return at;
}

/* The end of a number with a fraction or an exponent; NULL: it has none. */
static const char *real_end(const char *at, const char *end)
{
    const char *p = run_of(at, end, 10);
    const char *found = NULL;
    if (p + 1 < end && *p == '.' && run_of(p + 1, end, 10) > p + 1) {
        p = found = run_of(p + 1, end, 10);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1;
        e += e < end && (*e == '+' || *e == '-');
        if (run_of(e, end, 10) > e) {
            found = run_of(e, end, 10);
        }
    }
    return found;
}

static const char *integer_end(const char *at, const char *end, int *base)
{
    char c = at + 1 < end ? at[1] : '\0';
    *base = 10;
    if (*at == '0') {
        int b = strchr("bB", c) && c   ? 2
                : strchr("oO", c) && c ? 8
                : strchr("xX", c) && c ? 16
                                       : 0;
        const char *digits_at =
            at + 2 + (b > 0 && at + 2 < end && at[2] == '_');
        if (b > 0 && run_of(digits_at, end, b) > digits_at) {
            *base = b;
            return run_of(digits_at, end, b);
        }
        return run_of(at, end, 1);
    }
    return run_of(at, end, 10);
}

loong_status_t jinja_cut_number(jinja_parser_t *p, const char *at,
                                const char *end, jinja_piece_t *piece,
                                size_t *length_p)
{
    char digits_only[128];
    size_t n = 0;
    int base = 10;
    const jinja_piece_t *before = piece > p->pieces ? piece - 1 : NULL;
    /* a.1.5 has two numbers: there is no fraction behind a dot. */
    bool behind_dot = before != NULL && before->kind == JINJA_P_DOT;
    const char *stop = behind_dot ? NULL : real_end(at, end);
    bool real = stop != NULL;
    stop = real ? stop : integer_end(at, end, &base);
    for (const char *c = at + (base != 10 ? 2 : 0); c < stop; c++) {
        if (*c != '_' && n < sizeof(digits_only) - 1) {
            digits_only[n++] = *c;
        }
    }
    digits_only[n] = '\0';
    if (n == sizeof(digits_only) - 1) {
        return refuse(p, piece, "a number of more than 126 digits");
    }
    errno = 0;
    if (real) {
        piece->kind = JINJA_P_REAL;
        piece->value = loongi_jinja_real(strtod(digits_only, NULL));
    } else {
        piece->value = loongi_jinja_int(strtoll(digits_only, NULL, base));
        if (errno == ERANGE) {
            return refuse(p, piece, "an integer that does not fit 64 bits");
        }
    }
    *length_p = (size_t)(stop - at);
    return LOONG_OK;
}
