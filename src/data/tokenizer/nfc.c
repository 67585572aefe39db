/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation form C. Most text has it already; only the stretches that
 * may not have it go through utf8proc. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "unicode.h"

/* A character that neither changes nor composes with the one before it is a
 * border: what stands before it is normalised without it. */
static bool is_border(utf8proc_int32_t c)
{
    const utf8proc_property_t *p = utf8proc_get_property(c);
    utf8proc_int32_t out[8];
    int boundclass = 0;
    if ((c >= 0x1160 && c < 0x1200) || p->combining_class != 0) {
        return false; /* Hangul vowels and finals; marks */
    }
    /* second halves of compositions have an index there too */
    if (p->comb_index != UINT16_MAX && p->comb_index >= 0x8000) {
        return false;
    }
    utf8proc_ssize_t n =
        utf8proc_decompose_char(c, out, 8, UTF8PROC_DECOMPOSE, &boundclass);
    if (n == 1 && out[0] == c) {
        return true;
    }
    n = utf8proc_normalize_utf32(out, n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    return n == 1 && out[0] == c;
}

loong_status_t loongi_nfc_create(loong_context_t *ctx, uint8_t **table_p)
{
    uint8_t *table = NULL;
    LOONG_TRY(
        loongi_alloc(ctx, (LOONG_MAX_POINT + 1) / 8, "NFC table", &table));
    for (int32_t c = 0x300; c <= LOONG_MAX_POINT; c++) {
        if (!is_border(c)) {
            table[c >> 3] |= (uint8_t)(1 << (c & 7));
        }
    }
    *table_p = table;
    return LOONG_OK;
}

static loong_status_t compose(loong_context_t *ctx, const char *text,
                              size_t length, loong_buffer_t *out)
{
    utf8proc_uint8_t *result = NULL;
    utf8proc_ssize_t n = utf8proc_map(
        (const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &result,
        (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n < 0) {
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY, "normalising text: %s",
                          utf8proc_errmsg(n));
    }
    loong_status_t status = loongi_buffer_add(ctx, out, result, (size_t)n);
    free(result);
    return status;
}

loong_status_t loongi_nfc(loong_context_t *ctx, const uint8_t *table,
                          const char *text, size_t length, loong_buffer_t *out,
                          bool *changed_p)
{
    size_t copied = 0; /* what is in out already */
    size_t last = 0;   /* the last border */
    size_t at = 0;
    *changed_p = false;
    out->length = 0;
    while (at < length) {
        size_t begin = at;
        if ((unsigned char)text[at] < 0xCC) { /* below U+0300 */
            last = at;
            at += (unsigned char)text[at] < 0x80 ? 1 : 2;
            continue;
        }
        uint32_t c = loongi_utf8_get(text + at, &at);
        if (!(table[c >> 3] >> (c & 7) & 1)) {
            last = begin;
            continue;
        }
        while (at < length) { /* up to the next border */
            size_t next = at;
            c = loongi_utf8_get(text + at, &next);
            if (c < 0x300 || !(table[c >> 3] >> (c & 7) & 1)) {
                break;
            }
            at = next;
        }
        LOONG_TRY(loongi_buffer_add(ctx, out, text + copied, last - copied));
        LOONG_TRY(compose(ctx, text + last, at - last, out));
        copied = at;
        last = at;
        *changed_p = true;
    }
    if (*changed_p) {
        LOONG_TRY(loongi_buffer_add(ctx, out, text + copied, length - copied));
    }
    return LOONG_OK;
}
