/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-written scanners of the patterns that the usual models cut text with.
 * Each does what the regular expression it stands beside would do. Called
 * through the patterns of load_text.c, and by train.c. Read tokenizer_impl.h
 * before. */
#include <string.h>

#include "tokenizer_impl.h"

enum {
    L = LOONG_CHAR_L,
    N = LOONG_CHAR_N,
    SPACE = LOONG_CHAR_SPACE,
    LNS = L | N | SPACE
};

typedef struct text {
    const char *at;
    size_t length;
    const uint8_t *chars;
} text_t;

static inline int char_at(const text_t *t, size_t *at)
{
    return t->chars[loongi_utf8_get(t->at + *at, at)];
}

/* Behind the characters from `at` that have one of the bits. */
static inline size_t run_of(const text_t *t, size_t at, int bits)
{
    while (at < t->length) {
        size_t next = at;
        if (!(char_at(t, &next) & bits)) {
            break;
        }
        at = next;
    }
    return at;
}

/* Behind the characters from `at` that have none of the bits. */
static inline size_t run_without(const text_t *t, size_t at, int bits)
{
    while (at < t->length) {
        size_t next = at;
        if (char_at(t, &next) & bits) {
            break;
        }
        at = next;
    }
    return at;
}

/* 's 't 're 've 'm 'll 'd behind an apostrophe: their length, or 0. With
 * fold, of any case; the long s folds to s. */
static size_t contraction(const text_t *t, size_t at, bool fold)
{
    if (t->at[at] != '\'' || at + 1 >= t->length) {
        return 0;
    }
    int lower = fold ? 0x20 : 0;
    int a = (unsigned char)t->at[at + 1] | lower;
    int b = at + 2 < t->length ? (unsigned char)t->at[at + 2] | lower : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
        (a == 'l' && b == 'l')) {
        return 3;
    }
    if (fold && at + 2 < t->length &&
        memcmp(t->at + at + 1, "\xC5\xBF", 2) == 0) {
        return 3;
    }
    return 0;
}

/* \s+(?!\S)|\s+ from white space at `at`: the last blank is left to the word
 * behind it. */
static size_t blanks(const text_t *t, size_t at)
{
    size_t end = run_of(t, at, SPACE);
    if (end == t->length) {
        return end;
    }
    size_t last = loongi_utf8_back(t->at, end);
    return last > at ? last : end;
}

static size_t gpt2(const text_t *t, size_t at)
{
    size_t next = at;
    size_t after = contraction(t, at, false);
    int c = char_at(t, &next);
    if (after > 0) {
        return at + after;
    }
    size_t begin = at;
    if (t->at[at] == ' ' && next < t->length) {
        size_t second = next;
        int d = char_at(t, &second);
        if (!(d & SPACE)) {
            begin = next;
            next = second;
            c = d;
        }
    }
    if (c & SPACE) {
        return blanks(t, begin);
    }
    return c & L   ? run_of(t, next, L)
           : c & N ? run_of(t, next, N)
                   : run_without(t, next, LNS);
}

/* Qwen 2 and 3, and Llama 3: they differ in how many digits are a word. */
static inline size_t qwen2_llama3(const text_t *t, size_t at, int digits)
{
    size_t next = at;
    size_t after = contraction(t, at, true);
    int c = char_at(t, &next);
    if (after > 0) {
        return at + after;
    }
    if (c & L) {
        return run_of(t, next, L);
    }
    if (c & N) {
        for (int i = 1; i < digits && next < t->length; i++) {
            size_t more = next;
            if (!(char_at(t, &more) & N)) {
                break;
            }
            next = more;
        }
        return next;
    }
    bool line_end = t->at[at] == '\r' || t->at[at] == '\n';
    size_t second = next;
    int d = next < t->length ? char_at(t, &second) : SPACE;
    if (!line_end && d & L) {
        return run_of(t, second, L);
    }
    if (!(c & SPACE) || (t->at[at] == ' ' && !(d & LNS))) {
        size_t end = run_without(t, c & SPACE ? second : next, LNS);
        while (end < t->length && (t->at[end] == '\r' || t->at[end] == '\n')) {
            end++;
        }
        return end;
    }
    size_t end = run_of(t, at, SPACE);
    for (size_t i = end; i > at; i--) {
        if (t->at[i - 1] == '\r' || t->at[i - 1] == '\n') {
            return i;
        }
    }
    return blanks(t, at);
}

#define LOONG_WHOLE_SCANNER(name_, call_)                              \
    static loong_status_t name_(                                       \
        const stage_t *stage, loong_text_encoder_t *encoder,           \
        const char *bytes, size_t length, size_t from, size_t span[2]) \
    {                                                                  \
        const text_t t = {bytes, length, stage->chars};                \
        (void)encoder;                                                 \
        span[0] = from;                                                \
        span[1] = call_;                                               \
        return LOONG_OK;                                               \
    }

LOONG_WHOLE_SCANNER(find_gpt2, gpt2(&t, from))
LOONG_WHOLE_SCANNER(find_qwen2, qwen2_llama3(&t, from, 1))
LOONG_WHOLE_SCANNER(find_llama3, qwen2_llama3(&t, from, 3))

/* The first run of 1 to `most` characters with the bit. */
static loong_status_t find_run(const stage_t *stage, const char *bytes,
                               size_t length, size_t span[2],
                               const int bit_most[2])
{
    const text_t t = {bytes, length, stage->chars};
    span[0] = run_without(&t, span[0], bit_most[0]);
    span[1] = span[0];
    for (int i = 0; i < bit_most[1] && span[1] < length; i++) {
        size_t next = span[1];
        if (!(char_at(&t, &next) & bit_most[0])) {
            break;
        }
        span[1] = next;
    }
    return LOONG_OK;
}

#define LOONG_RUN_SCANNER(name_, bit_, most_)                          \
    static loong_status_t name_(                                       \
        const stage_t *stage, loong_text_encoder_t *encoder,           \
        const char *bytes, size_t length, size_t from, size_t span[2]) \
    {                                                                  \
        static const int bit_most[2] = {bit_, most_};                  \
        (void)encoder;                                                 \
        span[0] = from;                                                \
        return find_run(stage, bytes, length, span, bit_most);         \
    }

LOONG_RUN_SCANNER(find_numbers3, LOONG_CHAR_N, 3)
LOONG_RUN_SCANNER(find_digit, LOONG_CHAR_NUMERIC, 1)
LOONG_RUN_SCANNER(find_digits, LOONG_CHAR_NUMERIC, INT32_MAX)

static loong_status_t find_literal(const stage_t *stage,
                                   loong_text_encoder_t *encoder,
                                   const char *bytes, size_t length,
                                   size_t from, size_t span[2])
{
    (void)encoder;
    for (; from + stage->literal_length <= length; from++) {
        const char *p = memchr(bytes + from, stage->literal[0], length - from);
        if (p == NULL) {
            break;
        }
        from = (size_t)(p - bytes);
        if (from + stage->literal_length <= length &&
            memcmp(p, stage->literal, stage->literal_length) == 0) {
            span[0] = from;
            span[1] = from + stage->literal_length;
            return LOONG_OK;
        }
    }
    span[0] = length;
    span[1] = length;
    return LOONG_OK;
}

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
    "\\s+(?!\\S)|\\s+";
static const char qwen2_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const struct {
    const char *pattern;
    find_fn find;
} scanners[] = {
    {gpt2_pattern, find_gpt2},
    {qwen2_pattern, find_qwen2},
    {llama3_pattern, find_llama3},
    {"\\p{N}{1,3}", find_numbers3}, /* DeepSeek's first */
};

find_fn loongi_scan_find(const char *pattern)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(scanners); i++) {
        if (strcmp(pattern, scanners[i].pattern) == 0) {
            return scanners[i].find;
        }
    }
    return NULL;
}

find_fn loongi_scan_digits(bool individual)
{
    return individual ? find_digit : find_digits;
}

find_fn loongi_scan_literal(void)
{
    return find_literal;
}

const char *loongi_scan_pattern(loong_pretokenizer_t kind)
{
    return scanners[kind].pattern;
}
