/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the text of a template into pieces: text, the marks of tags and what
 * stands in them, with trim_blocks and lstrip_blocks. Called by parse.c. Read
 * parse.h before. */
#include <stdio.h>
#include <string.h>

#include "parse.h"
#include "unicode_text.h"
#include "utf8.h"

typedef struct lexer {
    jinja_parser_t *p;
    const char *text;
    size_t length;
    size_t at;
    size_t counted; /* line and column are those of this byte */
    int line, column;
    char open[JINJA_MAX_OPEN]; /* brackets that are not closed */
    int num_open;
} lexer_t;

static bool starts(const lexer_t *x, size_t at, const char *with)
{
    size_t length = strlen(with);
    return x->length - at >= length && memcmp(x->text + at, with, length) == 0;
}

static size_t skip_space(const lexer_t *x, size_t at)
{
    while (at < x->length) {
        size_t length = 0;
        if (!jinja_is_space(loongi_utf8_get(x->text + at, &length))) {
            break;
        }
        at += length;
    }
    return at;
}

/* Where white space begins that ends at `at`. */
static size_t space_before(const lexer_t *x, size_t begin, size_t at)
{
    while (at > begin) {
        size_t length = 0;
        size_t back = at;
        do {
            back--;
        } while (back > begin && ((unsigned char)x->text[back] & 0xC0) == 0x80);
        if (!jinja_is_space(loongi_utf8_get(x->text + back, &length))) {
            break;
        }
        at = back;
    }
    return at;
}

/* Places only go forward, so that counting is linear. */
static void find_place(lexer_t *x, size_t at)
{
    for (; x->counted < at; x->counted++) {
        if (x->text[x->counted] == '\n') {
            x->line++;
            x->column = 1;
        } else if (((unsigned char)x->text[x->counted] & 0xC0) != 0x80) {
            x->column++;
        }
    }
}

static loong_status_t fail(lexer_t *x, size_t at, const char *what)
{
    find_place(x, at);
    return jinja_fail_at(x->p->jinja, x->p->ctx,
                         (const int[2]){x->line, x->column}, "%s", what);
}

static loong_status_t add(lexer_t *x, jinja_piece_kind_t kind, size_t at,
                          value_t value)
{
    jinja_parser_t *p = x->p;
    LOONG_TRY(loongi_grow(p->ctx, &p->pieces, &p->room, p->count + 1,
                          sizeof(*p->pieces), "pieces of a template"));
    find_place(x, at);
    jinja_piece_t *piece = &p->pieces[p->count++];
    piece->kind = kind;
    piece->line = x->line;
    piece->column = x->column;
    piece->value = value;
    return LOONG_OK;
}

static loong_status_t add_data(lexer_t *x, size_t begin, size_t end)
{
    if (begin == end) {
        return LOONG_OK;
    }
    return add(x, JINJA_P_DATA, begin,
               loongi_jinja_string(x->text + begin, end - begin));
}

/* Where the text before a tag ends: `-` takes white space away, a tag that is
 * the first thing of a line what is before it, `+` keeps all. */
static size_t strip_before(const lexer_t *x, size_t begin, size_t tag,
                           bool strip_line)
{
    char sign = tag + 2 < x->length ? x->text[tag + 2] : '\0';
    if (sign == '-') {
        return space_before(x, begin, tag);
    }
    if (sign == '+' || !strip_line) {
        return tag;
    }
    size_t line = tag;
    while (line > begin && x->text[line - 1] != '\n') {
        line--;
    }
    bool first = line > begin || begin == 0 || x->text[begin - 1] == '\n';
    return first && space_before(x, line, tag) == line ? line : tag;
}

/* The end of a tag at `at`, with what it takes away behind it; 0: none. */
static size_t tag_end(const lexer_t *x, size_t at, const char *mark)
{
    bool variable = mark[0] == '}';
    if (starts(x, at, "-") && starts(x, at + 1, mark)) {
        return skip_space(x, at + 3);
    }
    if (!variable && starts(x, at, "+") && starts(x, at + 1, mark)) {
        return at + 3;
    }
    if (!starts(x, at, mark)) {
        return 0;
    }
    return at + 2 + (!variable && starts(x, at + 2, "\n"));
}

/* `{% word %}` at `at`: where it ends, 0: it is something else. begin: a raw
 * block begins, and keeps the line end behind the mark. */
static size_t raw_tag(const lexer_t *x, size_t at, const char *word, bool begin)
{
    if (!starts(x, at, "{%")) {
        return 0;
    }
    at += 2;
    at += starts(x, at, "-") || starts(x, at, "+");
    at = skip_space(x, at);
    if (!starts(x, at, word)) {
        return 0;
    }
    at = skip_space(x, at + strlen(word));
    if (begin) {
        return starts(x, at, "%}")    ? at + 2
               : starts(x, at, "-%}") ? skip_space(x, at + 3)
                                      : 0;
    }
    return tag_end(x, at, "%}");
}

static loong_status_t cut_raw(lexer_t *x, size_t tag)
{
    size_t begin = x->at;
    for (size_t at = begin; at < x->length; at++) {
        size_t end = x->text[at] == '{' ? raw_tag(x, at, "endraw", false) : 0;
        if (end > 0) {
            x->at = end;
            return add_data(x, begin, strip_before(x, begin, at, true));
        }
    }
    return fail(x, tag, "a raw block that is not ended by {% endraw %}");
}

static loong_status_t cut_comment(lexer_t *x, size_t tag)
{
    for (size_t at = x->at; at < x->length; at++) {
        size_t end = tag_end(x, at, "#}");
        if (end > 0) {
            x->at = end;
            return LOONG_OK;
        }
    }
    return fail(x, tag, "a comment that is not ended by '#}'");
}

static loong_status_t bracket(lexer_t *x, char c)
{
    const char *pairs = "{}()[]";
    const char *found = strchr(pairs, c);
    if (found == NULL) {
        return LOONG_OK;
    }
    if ((found - pairs) % 2 == 0) {
        if (x->num_open == JINJA_MAX_OPEN) {
            return fail(x, x->at, "too many brackets in each other");
        }
        x->open[x->num_open++] = found[1];
        return LOONG_OK;
    }
    char message[64] = "unexpected 'X'";
    message[12] = c;
    if (x->num_open == 0) {
        return fail(x, x->at, message);
    }
    char expected = x->open[--x->num_open];
    if (expected != c) {
        strcat(message, ", expected 'X'");
        message[26] = expected;
        return fail(x, x->at, message);
    }
    return LOONG_OK;
}

static loong_status_t cut_operator(lexer_t *x)
{
    for (int k = JINJA_P_FLOORDIV; k <= JINJA_P_SEMICOLON; k++) {
        char text[4] = {0};
        const char *quoted = jinja_piece_text((jinja_piece_kind_t)k);
        memcpy(text, quoted + 1, strlen(quoted) - 2);
        if (starts(x, x->at, text)) {
            size_t at = x->at;
            LOONG_TRY(bracket(x, text[0]));
            x->at += strlen(text);
            return add(x, (jinja_piece_kind_t)k, at, jinja_value(0));
        }
    }
    size_t length = 0;
    char message[64];
    loongi_utf8_get(x->text + x->at, &length);
    snprintf(message, sizeof(message), "unexpected character '%.*s'",
             (int)length, x->text + x->at);
    return fail(x, x->at, message);
}

static loong_status_t cut_name(lexer_t *x)
{
    size_t at = x->at;
    size_t length = 0;
    while (at < x->length &&
           jinja_is_name_point(loongi_utf8_get(x->text + at, &length), true)) {
        at += length;
        length = 0;
    }
    length = 0;
    if (!jinja_is_name_point(loongi_utf8_get(x->text + x->at, &length),
                             false)) {
        return fail(x, x->at,
                    "a name that begins with a character that names "
                    "cannot begin with");
    }
    value_t name = loongi_jinja_string(x->text + x->at, at - x->at);
    LOONG_TRY(add(x, JINJA_P_NAME, x->at, name));
    x->at = at;
    return LOONG_OK;
}

static loong_status_t cut_string(lexer_t *x)
{
    char quote = x->text[x->at];
    size_t end = x->at + 1;
    while (end < x->length && x->text[end] != quote) {
        end += x->text[end] == '\\' ? 2 : 1;
    }
    if (end >= x->length) {
        return fail(x, x->at, "a string that is not ended");
    }
    LOONG_TRY(add(x, JINJA_P_STRING, x->at, jinja_value(0)));
    LOONG_TRY(jinja_cut_string(x->p, x->text + x->at + 1, end - x->at - 1,
                               &x->p->pieces[x->p->count - 1]));
    x->at = end + 1;
    return LOONG_OK;
}

static loong_status_t cut_inside(lexer_t *x)
{
    char c = x->text[x->at];
    size_t length = 0;
    if (c >= '0' && c <= '9') {
        LOONG_TRY(add(x, JINJA_P_INTEGER, x->at, jinja_value(0)));
        LOONG_TRY(jinja_cut_number(x->p, x->text + x->at, x->text + x->length,
                                   &x->p->pieces[x->p->count - 1], &length));
        x->at += length;
        return LOONG_OK;
    }
    if (c == '\'' || c == '"') {
        return cut_string(x);
    }
    uint32_t point = loongi_utf8_get(x->text + x->at, &length);
    return jinja_is_name_point(point, true) ? cut_name(x) : cut_operator(x);
}

/* The pieces of `{{ ... }}` or `{% ... %}`. */
static loong_status_t cut_tag(lexer_t *x, bool variable)
{
    size_t begin = x->at - 2;
    x->num_open = 0;
    LOONG_TRY(add(x, variable ? JINJA_P_VARIABLE_BEGIN : JINJA_P_BLOCK_BEGIN,
                  begin, jinja_value(0)));
    x->at += starts(x, x->at, "-") || starts(x, x->at, "+");
    for (;;) {
        x->at = skip_space(x, x->at);
        if (x->at >= x->length) {
            break;
        }
        size_t end =
            x->num_open > 0 ? 0 : tag_end(x, x->at, variable ? "}}" : "%}");
        if (end > 0) {
            size_t at = x->at;
            x->at = end;
            return add(x, variable ? JINJA_P_VARIABLE_END : JINJA_P_BLOCK_END,
                       at, jinja_value(0));
        }
        LOONG_TRY(cut_inside(x));
    }
    return fail(x, x->length,
                variable ? "the template ends inside of '{{'"
                         : "the template ends inside of '{%'");
}

static loong_status_t cut_all(lexer_t *x)
{
    size_t begin = 0;
    for (size_t at = 0; at + 1 < x->length; at++) {
        char next = x->text[at + 1];
        if (x->text[at] != '{' || strchr("{%#", next) == NULL || next == '\0') {
            continue;
        }
        LOONG_TRY(add_data(x, begin, strip_before(x, begin, at, next != '{')));
        size_t raw = raw_tag(x, at, "raw", true);
        if (raw > 0) {
            x->at = raw;
            LOONG_TRY(cut_raw(x, at));
        } else if (next == '#') {
            x->at = at + 2;
            x->at += starts(x, x->at, "-") || starts(x, x->at, "+");
            LOONG_TRY(cut_comment(x, at));
        } else {
            x->at = at + 2;
            LOONG_TRY(cut_tag(x, next == '{'));
        }
        begin = x->at;
        at = begin - 1;
    }
    LOONG_TRY(add_data(x, begin, x->length));
    return add(x, JINJA_P_END, x->length, jinja_value(0));
}

/* All ways to end a line become one, and the last one is dropped. */
static loong_status_t normalize(jinja_parser_t *p, const char *text,
                                size_t length, lexer_t *x)
{
    char *copy = NULL;
    size_t out = 0;
    LOONG_TRY(jinja_new(p->jinja->heap, length + 1, &copy));
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '\r') {
            copy[out++] = '\n';
            i += i + 1 < length && text[i + 1] == '\n';
        } else {
            copy[out++] = text[i];
        }
    }
    out -= out > 0 && copy[out - 1] == '\n';
    copy[out] = '\0';
    x->text = copy;
    x->length = out;
    return LOONG_OK;
}

loong_status_t jinja_cut(jinja_parser_t *p, const char *text, size_t length)
{
    lexer_t x = {.p = p, .line = 1, .column = 1};
    if (!loongi_utf8_valid(text, length)) {
        return jinja_fail_at(p->jinja, p->ctx, (const int[2]){1, 1},
                             "the template is not UTF-8");
    }
    LOONG_TRY(normalize(p, text, length, &x));
    return cut_all(&x);
}
