/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether bytes are UTF-8, character by character and as a whole. Called by the
 * indexer and the tokenizer. Read utf8.h before. */
#include <string.h>

#include "utf8.h"

/* Table 3-7 of the Unicode standard: the second byte's range depends on the
 * first. */
int loongi_utf8_check(const char *p, size_t length, int *bad_p)
{
    const unsigned char *u = (const unsigned char *)p;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    int need = u[0] < 0x80                   ? 1
               : u[0] >= 0xC2 && u[0] < 0xE0 ? 2
               : u[0] >= 0xE0 && u[0] < 0xF0 ? 3
               : u[0] >= 0xF0 && u[0] < 0xF5 ? 4
                                             : 0;
    if (need == 0) {
        *bad_p = 1;
        return 0;
    }
    low = u[0] == 0xE0 ? 0xA0 : u[0] == 0xF0 ? 0x90 : low;
    high = u[0] == 0xED ? 0x9F : u[0] == 0xF4 ? 0x8F : high;
    for (int i = 1; i < need; i++) {
        if ((size_t)i >= length || u[i] < low || u[i] > high) {
            *bad_p = i;
            return 0;
        }
        low = 0x80;
        high = 0xBF;
    }
    return need;
}

size_t loongi_utf8_skip_ascii(const char *text, size_t at, size_t length)
{
    uint64_t word;
    while (at + sizeof(word) <= length) {
        memcpy(&word, text + at, sizeof(word));
        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }
        at += sizeof(word);
    }
    while (at < length && !(text[at] & 0x80)) {
        at++;
    }
    return at;
}

bool loongi_utf8_valid(const char *text, size_t length)
{
    int bad = 0;
    size_t at = 0;
    while ((at = loongi_utf8_skip_ascii(text, at, length)) < length) {
        int n = loongi_utf8_check(text + at, length - at, &bad);
        if (n == 0) {
            return false;
        }
        at += (size_t)n;
    }
    return true;
}
