/* SPDX-License-Identifier: Apache-2.0
 *
 * Characters as Python's str sees them: what they are, and their upper and
 * lower case. Texts are valid UTF-8.
 */
#ifndef LOONG_JINJA_UNICODE_TEXT_H
#define LOONG_JINJA_UNICODE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the character, 0 when point is none; out holds 4. */
int jinja_put_point(uint32_t point, char *out);

/* Characters in length bytes. */
int64_t jinja_count_points(const char *text, size_t length);
/* The byte at which character number n begins, or length. */
size_t jinja_find_point(const char *text, size_t length, int64_t n);

bool jinja_is_space(uint32_t point);
/* Of a name: its first character, or (inside) a later one. */
bool jinja_is_name_point(uint32_t point, bool inside);

/* Bits of what a character is. */
enum {
    JINJA_C_ALPHA = 1,
    JINJA_C_DECIMAL = 2,
    JINJA_C_DIGIT = 4,
    JINJA_C_NUMERIC = 8,
    JINJA_C_LOWER = 16,
    JINJA_C_UPPER = 32,
    JINJA_C_TITLE = 64,
    JINJA_C_PRINTABLE = 128, /* repr() shows it as it is */
    JINJA_C_WORD = 256,      /* \w of Python's re */
    JINJA_C_CASED = JINJA_C_LOWER | JINJA_C_UPPER | JINJA_C_TITLE
};
int jinja_classify(uint32_t point);

typedef enum jinja_case {
    JINJA_LOWERCASE,
    JINJA_UPPERCASE,
    JINJA_TITLECASE
} jinja_case_t;
enum { JINJA_CASE_BYTES = 16 }; /* of one character in another case */
/* The bytes of point in another case; returns their number. Without what
 * depends on other characters (the sigma that ends a word). */
int jinja_change_case(uint32_t point, jinja_case_t to,
                      char out[JINJA_CASE_BYTES]);
/* Whether the sigma at `at` ends a word, and so has a form of its own. */
bool jinja_is_final_sigma(const char *text, size_t length, size_t at);

/* unicode_cases.c: characters whose upper or title case is more than one
 * character, or is not what the simple tables say; ordered. */
typedef struct jinja_special_case {
    uint32_t point;
    const char *upper, *title;
} jinja_special_case_t;
extern const jinja_special_case_t jinja_special_cases[];
extern const int jinja_num_special_cases;

typedef struct jinja_span {
    uint32_t first, last;
} jinja_span_t;
/* Ideographs that are numbers. */
extern const jinja_span_t jinja_numeric_letters[];
extern const int jinja_num_numeric_letters;

#ifdef __cplusplus
}
#endif

#endif
