/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether bytes are UTF-8. */
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

#ifdef __cplusplus
}
#endif

#endif
