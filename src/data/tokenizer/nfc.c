/* SPDX-License-Identifier: Apache-2.0
 *
 * Normalisation form C. Most text has it already; only the stretches that
 * may not have it go through utf8proc. Called by encode.c. Read unicode.h
 * before. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "unicode.h"

/* Marks and compositions that are newer than the normaliser of `tokenizers`,
 * which leaves them where they stand (probed with 0.23.3); and U+11A7, the
 * place before the first Hangul final, which utf8proc drops behind a syllable
 * without a final. */
static const int32_t unknown[][2] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},
    {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x11a7, 0x11a7},   {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070},
    {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0},
    {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}};

static bool is_unknown(int32_t c)
{
    if (c >= 0x1E00 && c < 0xA800) {
        return false; /* most text that comes here: none of them */
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(unknown); i++) {
        if (c >= unknown[i][0] && c <= unknown[i][1]) {
            return true;
        }
    }
    return false;
}

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
        if (!is_border(c) && !is_unknown(c)) {
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

/* Notes that text[begin, end) became what stands behind out[at]. */
static loong_status_t note_run(loong_context_t *ctx, size_t begin, size_t end,
                               size_t at, size_t to, nfc_runs_t *runs)
{
    LOONG_TRY(loongi_grow(ctx, &runs->run, &runs->room, runs->count + 1,
                          sizeof(*runs->run), "normalised stretches"));
    runs->run[runs->count++] = (nfc_run_t){{begin, end}, {at, to}};
    return LOONG_OK;
}

loong_status_t loongi_nfc(loong_context_t *ctx, const uint8_t *table,
                          const char *text, size_t length, loong_buffer_t *out,
                          nfc_runs_t *runs)
{
    size_t copied = 0; /* what is in out already */
    size_t last = 0;   /* the last border */
    size_t at = 0;
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
            last = is_unknown((int32_t)c) ? at : begin;
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
        size_t from = out->length;
        LOONG_TRY(compose(ctx, text + last, at - last, out));
        LOONG_TRY(note_run(ctx, last, at, from, out->length, runs));
        copied = at;
        last = at;
    }
    if (copied > 0) {
        LOONG_TRY(loongi_buffer_add(ctx, out, text + copied, length - copied));
    }
    return LOONG_OK;
}
