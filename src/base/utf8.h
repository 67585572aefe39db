/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8: whether bytes are, and the characters of those that are. */
#ifndef LOONG_UTF8_H
#define LOONG_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the whole valid character at p, which has length > 0 bytes. 0:
 * there is none, and *bad_p bytes count as one replacement character; when
 * they are all there is and the first may begin a character, more bytes could
 * complete it. */
int loongi_utf8_check(const char *p, size_t length, int *bad_p);

/* Where the first byte at or behind `at` stands that is not ASCII. */
size_t loongi_utf8_skip_ascii(const char *text, size_t at, size_t length);

/* True when all of it is UTF-8. */
bool loongi_utf8_valid(const char *text, size_t length);

/* The character at p of valid UTF-8; its bytes are added to *length. */
static inline uint32_t loongi_utf8_get(const char *p, size_t *length)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *length += 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *length += 2;
        return (uint32_t)(u[0] & 0x1F) << 6 | (uint32_t)(u[1] & 0x3F);
    }
    if (u[0] < 0xF0) {
        *length += 3;
        return (uint32_t)(u[0] & 0x0F) << 12 | (uint32_t)(u[1] & 0x3F) << 6 |
               (uint32_t)(u[2] & 0x3F);
    }
    *length += 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3F) << 12 |
           (uint32_t)(u[2] & 0x3F) << 6 | (uint32_t)(u[3] & 0x3F);
}

/* Where the character that ends before `at` begins. */
static inline size_t loongi_utf8_back(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

#ifdef __cplusplus
}
#endif

#endif
