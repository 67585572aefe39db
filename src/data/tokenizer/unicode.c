/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 and the table of characters. Called by most files here. Read unicode.h
 * before. */
#include "unicode.h"

#include <string.h>

static uint8_t kind_to_char(uint8_t kind)
{
    enum {
#define CATEGORY(name_) name_,
        LOONG_CATEGORY_LIST(CATEGORY)
#undef CATEGORY
    };
    int c = kind & LOONG_KIND_CATEGORY;
    int bits = 0;
    bits |= c >= Ll && c <= Lu ? LOONG_CHAR_L : 0;
    bits |= c >= Mc && c <= Mn ? LOONG_CHAR_M : 0;
    bits |= c >= Nd && c <= No ? LOONG_CHAR_N : 0;
    bits |= c >= Pc && c <= Ps ? LOONG_CHAR_P : 0;
    bits |= c >= Sc && c <= So ? LOONG_CHAR_S : 0;
    bits |= kind & LOONG_KIND_SPACE ? LOONG_CHAR_SPACE : 0;
    bits |= kind & LOONG_KIND_NUMERIC ? LOONG_CHAR_NUMERIC : 0;
    bits |= kind & LOONG_KIND_WORD ? LOONG_CHAR_WORD : 0;
    return (uint8_t)bits;
}

loong_status_t loongi_unicode_create(loong_context_t *ctx, uint8_t **chars_p)
{
    uint8_t *chars = NULL;
    LOONG_TRY(
        loongi_alloc(ctx, LOONG_MAX_POINT + 1, "character table", &chars));
    for (int i = 0; i < loongi_unicode_num_runs; i++) {
        uint32_t begin = loongi_unicode_runs[i] >> 8;
        uint32_t end = i + 1 < loongi_unicode_num_runs
                           ? loongi_unicode_runs[i + 1] >> 8
                           : LOONG_MAX_POINT + 1;
        memset(chars + begin,
               kind_to_char((uint8_t)(loongi_unicode_runs[i] & 0xFF)),
               end - begin);
    }
    *chars_p = chars;
    return LOONG_OK;
}

int loongi_utf8_put(uint32_t point, char *out)
{
    unsigned char *u = (unsigned char *)out;
    if (point < 0x80) {
        u[0] = (unsigned char)point;
        return 1;
    }
    if (point < 0x800) {
        u[0] = (unsigned char)(0xC0 | point >> 6);
        u[1] = (unsigned char)(0x80 | (point & 0x3F));
        return 2;
    }
    if (point >= 0xD800 && point < 0xE000) {
        return 0;
    }
    if (point < 0x10000) {
        u[0] = (unsigned char)(0xE0 | point >> 12);
        u[1] = (unsigned char)(0x80 | (point >> 6 & 0x3F));
        u[2] = (unsigned char)(0x80 | (point & 0x3F));
        return 3;
    }
    if (point > LOONG_MAX_POINT) {
        return 0;
    }
    u[0] = (unsigned char)(0xF0 | point >> 18);
    u[1] = (unsigned char)(0x80 | (point >> 12 & 0x3F));
    u[2] = (unsigned char)(0x80 | (point >> 6 & 0x3F));
    u[3] = (unsigned char)(0x80 | (point & 0x3F));
    return 4;
}

loong_status_t loongi_buffer_room(loong_context_t *ctx, loong_buffer_t *b,
                                  size_t more)
{
    return loongi_grow(ctx, &b->data, &b->capacity, (int64_t)(b->length + more),
                       1, "text");
}

loong_status_t loongi_buffer_add(loong_context_t *ctx, loong_buffer_t *b,
                                 const void *bytes, size_t length)
{
    LOONG_TRY(loongi_buffer_room(ctx, b, length));
    if (length > 0) { /* both may be NULL then */
        memcpy(b->data + b->length, bytes, length);
    }
    b->length += length;
    return LOONG_OK;
}

loong_status_t loongi_utf8_repair(loong_context_t *ctx, const char *text,
                                  size_t length, loong_buffer_t *out)
{
    size_t at = 0;
    out->length = 0;
    while (at < length) {
        int bad = 0;
        size_t begin = at;
        int n = 1;
        while (at < length &&
               (n = loongi_utf8_check(text + at, length - at, &bad)) > 0) {
            at += (size_t)n;
        }
        LOONG_TRY(loongi_buffer_add(ctx, out, text + begin, at - begin));
        if (at < length) {
            LOONG_TRY(loongi_buffer_add(ctx, out, "\xEF\xBF\xBD", 3));
            at += (size_t)bad;
        }
    }
    return LOONG_OK;
}
