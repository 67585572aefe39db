/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens by id and by text, merges by pair, the byte-level alphabet. Called by
 * what loads, trains and merges. Read vocab.h before. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer_impl.h"

static uint64_t slots_for(int64_t count)
{
    uint64_t slots = 64;
    while (slots < 2 * (uint64_t)count) {
        slots *= 2;
    }
    return slots;
}

static void place(vocab_t *v, int64_t id)
{
    const token_t *token = &v->tokens[id];
    uint64_t i = XXH3_64bits(token->text, token->length) & v->mask;
    while (v->slots[i] != 0) {
        i = (i + 1) & v->mask;
    }
    v->slots[i] = (uint32_t)id + 1;
}

loong_status_t loongi_vocab_reserve(loong_context_t *ctx, vocab_t *v,
                                    int64_t count)
{
    uint64_t slots = slots_for(count);
    uint32_t *grown = NULL;
    if (v->slots != NULL && slots <= v->mask + 1) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_calloc(ctx, slots, sizeof(*grown), "vocabulary", &grown));
    loongi_free(ctx, v->slots);
    v->slots = grown;
    v->mask = slots - 1;
    for (int64_t id = 0; id < v->size; id++) {
        if (v->tokens[id].text != NULL) {
            place(v, id);
        }
    }
    return LOONG_OK;
}

int32_t loongi_vocab_find(const vocab_t *v, const char *text, size_t length)
{
    if (v->slots == NULL) {
        return -1;
    }
    for (uint64_t i = XXH3_64bits(text, length) & v->mask; v->slots[i] != 0;
         i = (i + 1) & v->mask) {
        const token_t *token = &v->tokens[v->slots[i] - 1];
        if (token->length == length && memcmp(token->text, text, length) == 0) {
            return (int32_t)(v->slots[i] - 1);
        }
    }
    return -1;
}

loong_status_t loongi_vocab_add(loong_tokenizer_t *t, int64_t id,
                                const char *text, size_t length)
{
    vocab_t *v = &t->vocab;
    char *copy = NULL;
    LOONG_CHECK(t->ctx, id >= 0 && id <= LOONG_MAX_TOKEN_ID, LOONG_ERR_FORMAT,
                "token '%s' has id %lld, allowed is 0 to %d", text,
                (long long)id, LOONG_MAX_TOKEN_ID);
    LOONG_CHECK(t->ctx, id >= v->size || v->tokens[id].text == NULL,
                LOONG_ERR_FORMAT, "tokens '%s' and '%s' both have id %lld",
                v->tokens[id].text, text, (long long)id);
    LOONG_CHECK(t->ctx, loongi_vocab_find(v, text, length) < 0,
                LOONG_ERR_FORMAT, "token '%s' stands twice", text);
    LOONG_TRY(loongi_vocab_reserve(t->ctx, v, v->count + 1));
    LOONG_TRY(loongi_grow(t->ctx, &v->tokens, &v->capacity, id + 1,
                          sizeof(*v->tokens), "vocabulary"));
    LOONG_TRY(loongi_arena_alloc(t->arena, length + 1, &copy));
    memcpy(copy, text, length);
    v->tokens[id].text = copy;
    v->tokens[id].length = (uint32_t)length;
    v->size = LOONG_MAX(v->size, id + 1);
    v->count++;
    place(v, id);
    return LOONG_OK;
}

loong_status_t loongi_merges_create(loong_context_t *ctx, int64_t count,
                                    merges_t *merges)
{
    uint64_t slots = slots_for(count);
    LOONG_TRY(loongi_calloc(ctx, slots, sizeof(*merges->slots), "merges",
                            &merges->slots));
    for (uint64_t i = 0; i < slots; i++) {
        merges->slots[i].id = -1;
    }
    merges->mask = slots - 1;
    loong_status_t status = loongi_calloc(
        ctx, slots / 8, sizeof(*merges->bits), "merges", &merges->bits);
    if (status != LOONG_OK) {
        loongi_merges_destroy(ctx, merges);
    }
    return status;
}

void loongi_merges_destroy(loong_context_t *ctx, merges_t *merges)
{
    loongi_free(ctx, merges->slots);
    loongi_free(ctx, merges->bits);
    merges->slots = NULL;
    merges->bits = NULL;
}

/* A pair that stands twice has its last rank, as in `tokenizers`. */
void loongi_merges_put(merges_t *m, merge_t merge)
{
    uint64_t hash = loongi_pair_hash(merge.pair);
    uint64_t bit = hash & (8 * m->mask + 7);
    uint64_t i = hash & m->mask;
    m->bits[bit / 64] |= UINT64_C(1) << bit % 64;
    while (m->slots[i].id >= 0 && m->slots[i].pair != merge.pair) {
        i = (i + 1) & m->mask;
    }
    m->slots[i] = merge;
}

/* Printable bytes stand for themselves, the others in their order for the
 * characters from U+0100. */
static bool stands_for_itself(uint32_t byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
           (byte >= 0xAE && byte <= 0xFF);
}

uint32_t loongi_byte_to_point(unsigned char byte)
{
    if (stands_for_itself(byte)) {
        return byte;
    }
    return byte <= 0x20   ? 0x100u + byte
           : byte <= 0xA0 ? 0x121u + byte - 0x7Fu
                          : 0x143u;
}

int loongi_point_to_byte(uint32_t point)
{
    if (point < 0x100) {
        return stands_for_itself(point) ? (int)point : -1;
    }
    return point <= 0x120   ? (int)(point - 0x100)
           : point <= 0x142 ? (int)(point - 0x121 + 0x7F)
           : point == 0x143 ? 0xAD
                            : -1;
}
