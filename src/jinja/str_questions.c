/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of str that ask what its characters are, or change their case.
 * Called by call.c. Read text.h before. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text.h"
#include "utf8.h"

static bool all_are(value_t text, int bits)
{
    for (size_t at = 0; at < text.length;) {
        if (!(jinja_classify(loongi_utf8_get(text.as.text + at, &at)) & bits)) {
            return false;
        }
    }
    return true;
}

static bool all_space(value_t text)
{
    for (size_t at = 0; at < text.length;) {
        if (!jinja_is_space(loongi_utf8_get(text.as.text + at, &at))) {
            return false;
        }
    }
    return text.length > 0;
}

/* Some characters have a case, and none has another one. */
static bool has_case(value_t text, int want)
{
    bool found = false;
    for (size_t at = 0; at < text.length;) {
        int bits = jinja_classify(loongi_utf8_get(text.as.text + at, &at)) &
                   JINJA_C_CASED;
        if (bits & ~want) {
            return false;
        }
        found = found || bits != 0;
    }
    return found;
}

/* Upper or title case begins words, and only there. */
static bool is_title(value_t text)
{
    bool inside = false;
    bool found = false;
    for (size_t at = 0; at < text.length;) {
        int bits = jinja_classify(loongi_utf8_get(text.as.text + at, &at)) &
                   JINJA_C_CASED;
        if (bits & (JINJA_C_UPPER | JINJA_C_TITLE) ? inside
                                                   : bits != 0 && !inside) {
            return false;
        }
        inside = bits != 0;
        found = found || inside;
    }
    return found;
}

static bool is_identifier(value_t text)
{
    for (size_t at = 0; at < text.length;) {
        bool first = at == 0;
        if (!jinja_is_name_point(loongi_utf8_get(text.as.text + at, &at),
                                 !first)) {
            return false;
        }
    }
    return text.length > 0;
}

static bool is_ascii(value_t text)
{
    for (size_t i = 0; i < text.length; i++) {
        if ((unsigned char)text.as.text[i] >= 0x80) {
            return false;
        }
    }
    return true;
}

static loong_status_t question(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    static const struct {
        const char *name;
        int bits;
    } all[] = {{"isalpha", JINJA_C_ALPHA},
               {"isalnum", JINJA_C_ALPHA | JINJA_C_NUMERIC | JINJA_C_DIGIT},
               {"isdigit", JINJA_C_DIGIT | JINJA_C_DECIMAL},
               {"isdecimal", JINJA_C_DECIMAL},
               {"isnumeric", JINJA_C_NUMERIC}};
    const char *name = call->builtin->name;
    value_t text = call->self;
    bool is = false;
    (void)r;
    for (int64_t k = 0; k < LOONG_COUNT_OF(all); k++) {
        if (strcmp(name, all[k].name) == 0) {
            is = text.length > 0 && all_are(text, all[k].bits);
        }
    }
    if (strcmp(name, "isspace") == 0) {
        is = all_space(text);
    } else if (strcmp(name, "isupper") == 0) {
        is = has_case(text, JINJA_C_UPPER);
    } else if (strcmp(name, "islower") == 0) {
        is = has_case(text, JINJA_C_LOWER);
    } else if (strcmp(name, "istitle") == 0) {
        is = is_title(text);
    } else if (strcmp(name, "isidentifier") == 0) {
        is = is_identifier(text);
    } else if (strcmp(name, "isprintable") == 0) {
        is = all_are(text, JINJA_C_PRINTABLE);
    } else if (strcmp(name, "isascii") == 0) {
        is = is_ascii(text);
    }
    *result = loongi_jinja_bool(is);
    return LOONG_OK;
}

static loong_status_t upper(run_t *r, const jinja_call_t *call, value_t *result)
{
    return jinja_change_text(r, call->self, JINJA_UPPERCASE, result);
}

static loong_status_t lower(run_t *r, const jinja_call_t *call, value_t *result)
{
    return jinja_change_text(r, call->self, JINJA_LOWERCASE, result);
}

static loong_status_t capitalize(run_t *r, const jinja_call_t *call,
                                 value_t *result)
{
    return jinja_capitalize(r, call->self, result);
}

/* title: the first letter of each word in title case; swapcase: each letter
 * in the other one. */
static loong_status_t by_letter(run_t *r, const jinja_call_t *call,
                                value_t *result)
{
    bool title = call->builtin->name[0] == 't';
    bool inside = false;
    size_t mark = jinja_mark(r);
    value_t text = call->self;
    for (size_t at = 0; at < text.length;) {
        size_t begin = at;
        char out[JINJA_CASE_BYTES];
        uint32_t point = loongi_utf8_get(text.as.text + at, &at);
        int bits = jinja_classify(point) & JINJA_C_CASED;
        if (title ? inside : (bits & JINJA_C_UPPER) != 0) {
            LOONG_TRY(jinja_emit_lower(r, text, begin, at));
        } else if (title || (bits & JINJA_C_LOWER)) {
            int length = jinja_change_case(
                point, title ? JINJA_TITLECASE : JINJA_UPPERCASE, out);
            LOONG_TRY(jinja_emit(r, out, (size_t)length));
        } else {
            LOONG_TRY(jinja_emit(r, text.as.text + begin, at - begin));
        }
        inside = bits != 0;
    }
    return jinja_take(r, mark, result);
}

static loong_status_t casefold(run_t *r, const jinja_call_t *call,
                               value_t *result)
{
    utf8proc_uint8_t *folded = NULL;
    utf8proc_ssize_t length = utf8proc_map(
        (const utf8proc_uint8_t *)call->self.as.text,
        (utf8proc_ssize_t)call->self.length, &folded, UTF8PROC_CASEFOLD);
    if (length < 0) {
        return jinja_fail(r, "casefold: %s", utf8proc_errmsg(length));
    }
    loong_status_t status =
        jinja_copy(r->heap, (const char *)folded, (size_t)length, result);
    free(folded);
    return status;
}

const jinja_builtin_t jinja_str_questions[] = {
    {"isalpha", "", 0, question},
    {"isalnum", "", 0, question},
    {"isdigit", "", 0, question},
    {"isdecimal", "", 0, question},
    {"isnumeric", "", 0, question},
    {"isspace", "", 0, question},
    {"isupper", "", 0, question},
    {"islower", "", 0, question},
    {"istitle", "", 0, question},
    {"isidentifier", "", 0, question},
    {"isprintable", "", 0, question},
    {"isascii", "", 0, question},
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"capitalize", "", 0, capitalize},
    {"title", "", 0, by_letter},
    {"swapcase", "", 0, by_letter},
    {"casefold", "", 0, casefold},
    {0}};
