/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters as Python's str sees them, by the tables of utf8proc. Called by
 * all of src/jinja that reads texts. Read unicode_text.h before. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "unicode_text.h"
#include "utf8.h"

/* Digits that are no decimal digits: superscripts, circled ones ... */
static const jinja_span_t digits[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},
    {0x19da, 0x19da},   {0x2070, 0x2070},   {0x2074, 0x2079},
    {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},
    {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792},   {0x10a40, 0x10a43}, {0x10e60, 0x10e68},
    {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

/* Unicode's Other_Lowercase and Other_Uppercase. */
static const jinja_span_t other_lower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},
    {0x2c0, 0x2c1},     {0x2e0, 0x2e4},     {0x345, 0x345},
    {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},
    {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
    {0x2090, 0x209c},   {0x2170, 0x217f},   {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},
    {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},   {0x10780, 0x10780},
    {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
};
static const jinja_span_t other_upper[] = {
    {0x2160, 0x216f},   {0x24b6, 0x24cf},   {0x1f130, 0x1f149},
    {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};

static int before_span(const void *key, const void *span)
{
    const uint32_t point = *(const uint32_t *)key;
    const jinja_span_t *s = span;
    return point < s->first ? -1 : point > s->last;
}

#define IS_IN(table_, point_)                                         \
    (bsearch(&(point_), table_, sizeof(table_) / sizeof((table_)[0]), \
             sizeof((table_)[0]), before_span) != NULL)

int jinja_put_point(uint32_t point, char *out)
{
    if (point >= 0xD800 && point < 0xE000) {
        return 0;
    }
    if (point > 0x10FFFF) {
        return 0;
    }
    return (int)utf8proc_encode_char((utf8proc_int32_t)point,
                                     (utf8proc_uint8_t *)out);
}

int64_t jinja_count_points(const char *text, size_t length)
{
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) {
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t jinja_find_point(const char *text, size_t length, int64_t n)
{
    size_t at = 0;
    while (n > 0 && at < length) {
        loongi_utf8_get(text + at, &at);
        n--;
    }
    return at;
}

bool jinja_is_space(uint32_t point)
{
    if (point < 0x80) {
        return point == ' ' || (point >= 9 && point <= 13) ||
               (point >= 0x1C && point <= 0x1F);
    }
    return point == 0x85 || point == 0xA0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200A) || point == 0x2028 ||
           point == 0x2029 || point == 0x202F || point == 0x205F ||
           point == 0x3000;
}

bool jinja_is_name_point(uint32_t point, bool inside)
{
    if (point < 0x80) {
        return point == '_' || (point >= 'a' && point <= 'z') ||
               (point >= 'A' && point <= 'Z') ||
               (inside && point >= '0' && point <= '9');
    }
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
    bool letter = (category >= UTF8PROC_CATEGORY_LU &&
                   category <= UTF8PROC_CATEGORY_LO) ||
                  category == UTF8PROC_CATEGORY_NL;
    return letter || (inside && (category == UTF8PROC_CATEGORY_MN ||
                                 category == UTF8PROC_CATEGORY_MC ||
                                 category == UTF8PROC_CATEGORY_ND ||
                                 category == UTF8PROC_CATEGORY_PC));
}

static int classify_wide(uint32_t point)
{
    int bits = 0;
    switch (utf8proc_category((utf8proc_int32_t)point)) {
    case UTF8PROC_CATEGORY_LU:
        bits = JINJA_C_ALPHA | JINJA_C_UPPER;
        break;
    case UTF8PROC_CATEGORY_LL:
        bits = JINJA_C_ALPHA | JINJA_C_LOWER;
        break;
    case UTF8PROC_CATEGORY_LT:
        bits = JINJA_C_ALPHA | JINJA_C_TITLE;
        break;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        bits = JINJA_C_ALPHA;
        bits |= bsearch(&point, jinja_numeric_letters,
                        (size_t)jinja_num_numeric_letters, sizeof(jinja_span_t),
                        before_span) != NULL
                    ? JINJA_C_NUMERIC
                    : 0;
        break;
    case UTF8PROC_CATEGORY_ND:
        bits = JINJA_C_DECIMAL | JINJA_C_DIGIT | JINJA_C_NUMERIC;
        break;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        bits = JINJA_C_NUMERIC;
        break;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return 0;
    default:
        break;
    }
    bits |= IS_IN(other_lower, point) ? JINJA_C_LOWER : 0;
    bits |= IS_IN(other_upper, point) ? JINJA_C_UPPER : 0;
    bits |= IS_IN(digits, point) ? JINJA_C_DIGIT : 0;
    bits |= bits & (JINJA_C_ALPHA | JINJA_C_NUMERIC) ? JINJA_C_WORD : 0;
    return bits | JINJA_C_PRINTABLE;
}

int jinja_classify(uint32_t point)
{
    if (point >= 0x80) {
        return classify_wide(point);
    }
    if (point >= 'a' && point <= 'z') {
        return JINJA_C_ALPHA | JINJA_C_LOWER | JINJA_C_WORD | JINJA_C_PRINTABLE;
    }
    if (point >= 'A' && point <= 'Z') {
        return JINJA_C_ALPHA | JINJA_C_UPPER | JINJA_C_WORD | JINJA_C_PRINTABLE;
    }
    if (point >= '0' && point <= '9') {
        return JINJA_C_DECIMAL | JINJA_C_DIGIT | JINJA_C_NUMERIC |
               JINJA_C_WORD | JINJA_C_PRINTABLE;
    }
    return (point >= ' ' && point < 0x7F ? JINJA_C_PRINTABLE : 0) |
           (point == '_' ? JINJA_C_WORD : 0);
}

static int before_case(const void *key, const void *row)
{
    const uint32_t point = *(const uint32_t *)key;
    const uint32_t other = ((const jinja_special_case_t *)row)->point;
    return (point > other) - (point < other);
}

int jinja_change_case(uint32_t point, jinja_case_t to,
                      char out[JINJA_CASE_BYTES])
{
    if (point < 0x80) {
        bool lower = point >= 'a' && point <= 'z';
        bool upper = point >= 'A' && point <= 'Z';
        bool change = to == JINJA_LOWERCASE ? upper : lower;
        out[0] = (char)(change ? point ^ 0x20 : point);
        return 1;
    }
    if (to == JINJA_LOWERCASE) {
        if (point == 0x130) { /* a capital i with a dot: i and the dot */
            memcpy(out, "i\xcc\x87", 3);
            return 3;
        }
        return jinja_put_point(
            (uint32_t)utf8proc_tolower((utf8proc_int32_t)point), out);
    }
    const jinja_special_case_t *special =
        bsearch(&point, jinja_special_cases, (size_t)jinja_num_special_cases,
                sizeof(jinja_special_cases[0]), before_case);
    if (special != NULL) {
        const char *text =
            to == JINJA_UPPERCASE ? special->upper : special->title;
        memcpy(out, text, strlen(text));
        return (int)strlen(text);
    }
    return jinja_put_point((uint32_t)utf8proc_toupper((utf8proc_int32_t)point),
                           out);
}

/* Characters that stand in words without being letters (Case_Ignorable). */
static bool is_ignored(uint32_t point)
{
    static const char *const punctuation = "'.:^`\xa8";
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)point);
    if (point < 0x100 && point != 0 && strchr(punctuation, (int)point)) {
        return true;
    }
    return category == UTF8PROC_CATEGORY_MN ||
           category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF ||
           category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK || point == 0xB7 ||
           point == 0x387 || point == 0x2018 || point == 0x2019 ||
           point == 0x2024 || point == 0x2027;
}

bool jinja_is_final_sigma(const char *text, size_t length, size_t at)
{
    size_t back = at;
    bool before = false;
    while (back > 0) {
        size_t ignored = 0;
        do {
            back--;
        } while (((unsigned char)text[back] & 0xC0) == 0x80);
        uint32_t point = loongi_utf8_get(text + back, &ignored);
        if (!is_ignored(point)) {
            before = (jinja_classify(point) & JINJA_C_CASED) != 0;
            break;
        }
    }
    if (!before) {
        return false;
    }
    loongi_utf8_get(text + at, &at);
    while (at < length) {
        uint32_t point = loongi_utf8_get(text + at, &at);
        if (!is_ignored(point)) {
            return (jinja_classify(point) & JINJA_C_CASED) == 0;
        }
    }
    return true;
}
