/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding of one word: of all pairs of neighbours the one with the
 * lowest rank is merged, the leftmost first. Words met before come out of a
 * cache. Called by stage.c. Read tokenizer_impl.h before. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tokenizer_impl.h"

enum { NO_RANK = -1 };

static void push(uint64_t *heap, int64_t n, uint64_t key)
{
    while (n > 0 && heap[(n - 1) / 2] > key) {
        heap[n] = heap[(n - 1) / 2];
        n = (n - 1) / 2;
    }
    heap[n] = key;
}

/* Takes the smallest of n away. */
static uint64_t pop(uint64_t *heap, int64_t n)
{
    uint64_t top = heap[0];
    uint64_t key = heap[n - 1];
    int64_t at = 0;
    for (int64_t child = 1; child < n - 1; child = 2 * at + 1) {
        child += child + 1 < n - 1 && heap[child + 1] < heap[child];
        if (heap[child] >= key) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
    return top;
}

static void look_up(const merges_t *merges, symbol_t *symbols, int32_t at)
{
    symbol_t *s = &symbols[at];
    const merge_t *merge =
        s->next < 0 ? NULL
                    : loongi_merges_find(merges, s->id, symbols[s->next].id);
    s->rank = merge != NULL ? merge->rank : (uint32_t)NO_RANK;
    s->merged = merge != NULL ? merge->id : -1;
}

/* Merges symbols 0 .. n-1. Each merge removes a symbol and adds at most two
 * entries, so the heap holds 3n at most. */
static loong_status_t merge_all(loong_text_encoder_t *e, int32_t n)
{
    const merges_t *merges = &e->tokenizer->merges;
    symbol_t *s = e->symbols;
    int64_t entries = 0;
    LOONG_TRY(loongi_grow(e->ctx, &e->heap, &e->heap_capacity, 3 * (int64_t)n,
                          sizeof(*e->heap), "merge queue"));
    for (int32_t i = 0; i < n; i++) {
        s[i].prev = i - 1;
        s[i].next = i + 1 < n ? i + 1 : -1;
        look_up(merges, s, i);
        if (s[i].rank != (uint32_t)NO_RANK) {
            push(e->heap, entries++, (uint64_t)s[i].rank << 32 | (uint32_t)i);
        }
    }
    while (entries > 0) {
        uint64_t key = pop(e->heap, entries--);
        int32_t at = (int32_t)(key & 0xFFFFFFFF);
        if (s[at].id < 0 || s[at].rank != (uint32_t)(key >> 32)) {
            continue; /* one of the two has been merged with another */
        }
        int32_t gone = s[at].next;
        s[at].id = s[at].merged;
        s[at].next = s[gone].next;
        s[gone].id = -1;
        if (s[at].next >= 0) {
            s[s[at].next].prev = at;
        }
        int32_t around[2] = {s[at].prev, at};
        for (int k = 0; k < 2; k++) {
            int32_t i = around[k];
            if (i < 0) {
                continue;
            }
            look_up(merges, s, i);
            if (s[i].rank != (uint32_t)NO_RANK) {
                push(e->heap, entries++,
                     (uint64_t)s[i].rank << 32 | (uint32_t)i);
            }
        }
    }
    return LOONG_OK;
}

/* A character that is no token: its bytes, or the unknown token. */
static int32_t fall_back(loong_text_encoder_t *e, const char *text, int length,
                         int32_t n)
{
    const loong_tokenizer_t *t = e->tokenizer;
    bool all = t->byte_fallback;
    for (int i = 0; all && i < length; i++) {
        all = t->byte_ids[(unsigned char)text[i]] >= 0;
    }
    for (int i = 0; all && i < length; i++) {
        e->symbols[n++].id = t->byte_ids[(unsigned char)text[i]];
    }
    if (all || t->unk_id < 0 ||
        (t->fuse_unk && n > 0 && e->symbols[n - 1].id == t->unk_id)) {
        return n;
    }
    e->symbols[n++].id = t->unk_id;
    return n;
}

/* The token of the character in text[begin, end) when its bytes are sure to
 * become that, else -1. */
static int32_t whole_char(const whole_t *w, const char *text, size_t length,
                          size_t begin, size_t end, uint32_t point)
{
    const unsigned char *u = (const unsigned char *)text;
    if (w->chars == NULL || point >= LOONG_WHOLE_POINTS) {
        return -1;
    }
    const whole_char_t *c = &w->chars[point];
    if (c->id < 0 ||
        (begin > 0 && w->before[u[begin - 1] << 8 | u[begin]] <= c->rank) ||
        (end < length && w->behind[u[end - 1] << 8 | u[end]] <= c->rank)) {
        return -1;
    }
    return c->id;
}

/* The bytes of a word as symbols, or whole characters; their number. */
static int32_t begin_bytes(loong_text_encoder_t *e, const char *text,
                           size_t length)
{
    const loong_tokenizer_t *t = e->tokenizer;
    int32_t n = 0;
    for (size_t at = 0; at < length;) {
        size_t end = at;
        uint32_t point = loongi_utf8_get(text + at, &end);
        int32_t id = point < 0x80 ? -1
                                  : whole_char(&t->whole, text, length, at,
                                               end, point);
        if (id >= 0) {
            e->symbols[n++].id = id;
            at = end;
        }
        for (; at < end; at++) {
            id = t->byte_ids[(unsigned char)text[at]];
            if (id >= 0) {
                e->symbols[n++].id = id;
            } else {
                n = fall_back(e, text + at, 1, n);
            }
        }
    }
    return n;
}

/* The characters of a word as symbols; their number. */
static int32_t begin_chars(loong_text_encoder_t *e, const char *text,
                           size_t length)
{
    const loong_tokenizer_t *t = e->tokenizer;
    int32_t n = 0;
    for (size_t at = 0; at < length;) {
        size_t begin = at;
        uint32_t point = loongi_utf8_get(text + at, &at);
        int32_t id = point < LOONG_WHOLE_POINTS
                         ? t->whole.chars[point].id
                         : loongi_vocab_find(&t->vocab, text + begin,
                                             at - begin);
        if (id >= 0 && t->vocab.tokens[id].in_model) {
            e->symbols[n++].id = id;
        } else {
            n = fall_back(e, text + begin, (int)(at - begin), n);
        }
    }
    return n;
}

/* The whole word as one token; -1: it is none. */
static loong_status_t find_whole(loong_text_encoder_t *e, const char *text,
                                 size_t length, int32_t *id_p)
{
    const vocab_t *vocab = &e->tokenizer->vocab;
    loong_buffer_t *b = &e->spelled;
    if (e->tokenizer->byte_level) {
        b->length = 0;
        LOONG_TRY(loongi_buffer_room(e->ctx, b, 2 * length));
        for (size_t i = 0; i < length; i++) {
            b->length += (size_t)loongi_utf8_put(
                loongi_byte_to_point((unsigned char)text[i]),
                b->data + b->length);
        }
        text = b->data;
        length = b->length;
    }
    *id_p = loongi_vocab_find(vocab, text, length);
    if (*id_p >= 0 && !vocab->tokens[*id_p].in_model) {
        *id_p = -1;
    }
    return LOONG_OK;
}

static loong_status_t merge_word(loong_text_encoder_t *e, const char *text,
                                 size_t length)
{
    const loong_tokenizer_t *t = e->tokenizer;
    LOONG_CHECK(e->ctx, length < INT32_MAX / 4, LOONG_ERR_UNSUPPORTED,
                "a word of %zu bytes, at most %d are allowed", length,
                INT32_MAX / 4);
    if (t->ignore_merges) {
        int32_t id = -1;
        LOONG_TRY(find_whole(e, text, length, &id));
        if (id >= 0) {
            LOONG_TRY(loongi_ids_room(e, 1));
            e->ids[e->count++] = id;
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(e->ctx, &e->symbols, &e->symbol_capacity,
                          (int64_t)length, sizeof(*e->symbols), "symbols"));
    int32_t n = t->byte_level ? begin_bytes(e, text, length)
                              : begin_chars(e, text, length);
    LOONG_TRY(merge_all(e, n));
    LOONG_TRY(loongi_ids_room(e, n));
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = e->symbols[i].next) {
        e->ids[e->count++] = e->symbols[i].id;
    }
    return LOONG_OK;
}

loong_status_t loongi_bpe_word(loong_text_encoder_t *e, const char *text,
                               size_t length)
{
    if (length == 0) {
        return LOONG_OK;
    }
    if (length > LOONG_CACHE_TEXT) {
        return merge_word(e, text, length);
    }
    cache_entry_t *entry =
        &e->cache[XXH3_64bits(text, length) >> (64 - LOONG_CACHE_BITS)];
    if (entry->length == length && memcmp(entry->text, text, length) == 0) {
        LOONG_TRY(loongi_ids_room(e, LOONG_CACHE_IDS));
        memcpy(e->ids + e->count, entry->ids, sizeof(entry->ids));
        e->count += entry->count;
        return LOONG_OK;
    }
    int64_t begin = e->count;
    LOONG_TRY(merge_word(e, text, length));
    int64_t count = e->count - begin;
    if (count <= LOONG_CACHE_IDS) {
        memcpy(entry->text, text, length);
        memcpy(entry->ids, e->ids + begin, (size_t)count * sizeof(*e->ids));
        entry->length = (uint8_t)length;
        entry->count = (uint8_t)count;
    }
    return LOONG_OK;
}
