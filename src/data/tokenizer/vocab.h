/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens by id and by text, merges by pair, the byte-level alphabet. */
#ifndef LOONG_TOKENIZER_VOCAB_H
#define LOONG_TOKENIZER_VOCAB_H

#include "base.h"

typedef struct token {
    const char *text;  /* as the file spells it; NULL: no such id */
    const char *bytes; /* what it decodes to */
    uint32_t length;
    uint32_t num_bytes;
    bool in_model;
    bool special;
} token_t;

/* Text to id, open addressing; ids are stored plus one. */
typedef struct vocab {
    token_t *tokens; /* by id */
    int64_t size;    /* highest id + 1 */
    int64_t capacity;
    uint32_t *slots;
    uint64_t mask;
    int64_t count;
} vocab_t;

typedef struct merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    int32_t id;
} merge_t;

/* Pair to rank and result; an empty slot has id -1. Most pairs asked for are
 * none: a bit for each hash says so from a table that fits a core's cache. */
typedef struct merges {
    merge_t *slots;
    uint64_t *bits; /* [(mask + 1) / 8]: eight bits a slot */
    uint64_t mask;
} merges_t;

LOONG_NODISCARD loong_status_t loongi_vocab_reserve(loong_context_t *ctx,
                                                    vocab_t *vocab,
                                                    int64_t count);
int32_t loongi_vocab_find(const vocab_t *vocab, const char *text,
                          size_t length);
LOONG_NODISCARD loong_status_t loongi_merges_create(loong_context_t *ctx,
                                                    int64_t count,
                                                    merges_t *merges);
void loongi_merges_destroy(loong_context_t *ctx, merges_t *merges);
void loongi_merges_put(merges_t *merges, merge_t merge);

static inline uint64_t loongi_pair_hash(uint64_t pair)
{
    pair *= UINT64_C(0x9E3779B97F4A7C15);
    return pair ^ pair >> 32;
}

static inline const merge_t *loongi_merges_find(const merges_t *m, int32_t left,
                                                int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t hash = loongi_pair_hash(pair);
    uint64_t bit = hash & (8 * m->mask + 7);
    if (!(m->bits[bit / 64] >> bit % 64 & 1)) {
        return NULL;
    }
    for (uint64_t i = hash & m->mask;; i = (i + 1) & m->mask) {
        if (m->slots[i].id < 0) {
            return NULL;
        }
        if (m->slots[i].pair == pair) {
            return &m->slots[i];
        }
    }
}

/* The byte-level alphabet: the code point that stands for a byte, and back
 * (-1: it stands for none). */
uint32_t loongi_byte_to_point(unsigned char byte);
int loongi_point_to_byte(uint32_t point);

#endif
