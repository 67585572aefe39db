/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8, and what kind a character is, by the tables of the `tokenizers`
 * library (unicode_table.c). */
#ifndef LOONG_TOKENIZER_UNICODE_H
#define LOONG_TOKENIZER_UNICODE_H

#include <stdint.h>

#include "base.h"
#include "utf8.h"

/* X(name): general categories, in the order of the generated kinds. */
#define LOONG_CATEGORY_LIST(X)                                              \
    X(Cn)                                                                   \
    X(Cc) X(Cf) X(Co) X(Cs) X(Ll) X(Lm) X(Lo) X(Lt) X(Lu) X(Mc) X(Me) X(Mn) \
        X(Nd) X(Nl) X(No) X(Pc) X(Pd) X(Pe) X(Pf) X(Pi) X(Po) X(Ps) X(Sc)   \
            X(Sk) X(Sm) X(So) X(Zl) X(Zp) X(Zs)

enum {
    LOONG_MAX_POINT = 0x10FFFF,
    /* a kind: category, and bits */
    LOONG_KIND_CATEGORY = 31,
    LOONG_KIND_SPACE = 32,
    LOONG_KIND_NUMERIC = 64, /* Rust's is_numeric */
    LOONG_KIND_WORD = 128    /* \w of Rust's regular expressions */
};

extern const uint32_t loongi_unicode_runs[]; /* first point << 8 | kind */
extern const int loongi_unicode_num_runs;

/* What the scanners ask; one byte a code point, in a table made at load. */
enum {
    LOONG_CHAR_L = 1,
    LOONG_CHAR_N = 2,
    LOONG_CHAR_SPACE = 4,
    LOONG_CHAR_M = 8,
    LOONG_CHAR_P = 16,
    LOONG_CHAR_S = 32,
    LOONG_CHAR_NUMERIC = 64,
    LOONG_CHAR_WORD = 128
};

LOONG_NODISCARD loong_status_t loongi_unicode_create(loong_context_t *ctx,
                                                     uint8_t **chars_p);

/* Bytes of the character, 0 when point is none; out holds 4. */
int loongi_utf8_put(uint32_t point, char *out);

/* True for bytes that a character of several bytes can begin with. */
static inline bool loongi_utf8_begins(char byte)
{
    unsigned char u = (unsigned char)byte;
    return u >= 0xC2 && u < 0xF5;
}

/* A buffer that is used again and again. */
typedef struct loong_buffer {
    char *data;
    int64_t capacity;
    size_t length;
} loong_buffer_t;
LOONG_NODISCARD loong_status_t loongi_buffer_room(loong_context_t *ctx,
                                                  loong_buffer_t *b,
                                                  size_t more);
LOONG_NODISCARD loong_status_t loongi_buffer_add(loong_context_t *ctx,
                                                 loong_buffer_t *b,
                                                 const void *bytes,
                                                 size_t length);

/* Bytes that are not UTF-8 become U+FFFD. */
LOONG_NODISCARD loong_status_t loongi_utf8_repair(loong_context_t *ctx,
                                                  const char *text,
                                                  size_t length,
                                                  loong_buffer_t *out);

/* One bit a code point: it may have to change or compose under NFC. */
LOONG_NODISCARD loong_status_t loongi_nfc_create(loong_context_t *ctx,
                                                 uint8_t **table_p);
/* Stretches that came out otherwise: text[from[0], from[1]) stands in
 * out[to[0], to[1]). Ascending. */
typedef struct nfc_run {
    size_t from[2], to[2];
} nfc_run_t;
typedef struct nfc_runs {
    nfc_run_t *run;
    int64_t count, room;
} nfc_runs_t;

/* Appends what changes to the runs; none: the text is in NFC, and nothing was
 * written. */
LOONG_NODISCARD loong_status_t loongi_nfc(
    loong_context_t *ctx, const uint8_t *table, const char *text, size_t length,
    loong_buffer_t *out, nfc_runs_t *runs);

#endif
