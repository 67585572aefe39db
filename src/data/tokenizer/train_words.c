/* SPDX-License-Identifier: Apache-2.0
 *
 * The first half of training: documents to different words and how often each
 * stands there. Called by train.c. Read train.h before. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "train.h"

static loong_status_t widen(loong_context_t *ctx, words_t *w)
{
    int64_t *slots = NULL;
    uint64_t size = w->slots == NULL ? 1 << 16 : 2 * (w->mask + 1);
    LOONG_TRY(loongi_calloc(ctx, size, sizeof(*slots), "word table", &slots));
    loongi_free(ctx, w->slots);
    w->slots = slots;
    w->mask = size - 1;
    for (int64_t i = 0; i < w->count; i++) {
        uint64_t at = w->words[i].hash & w->mask;
        while (slots[at] != 0) {
            at = (at + 1) & w->mask;
        }
        slots[at] = i + 1;
    }
    return LOONG_OK;
}

loong_status_t loongi_words_add(loong_context_t *ctx, words_t *w,
                                const char *text, size_t length)
{
    uint64_t hash = XXH3_64bits(text, length);
    if (w->slots == NULL || 2 * (uint64_t)w->count > w->mask) {
        LOONG_TRY(widen(ctx, w));
    }
    uint64_t at = hash & w->mask;
    for (; w->slots[at] != 0; at = (at + 1) & w->mask) {
        word_t *word = &w->words[w->slots[at] - 1];
        if (word->hash == hash && word->length == (int64_t)length &&
            memcmp(w->text.data + word->begin, text, length) == 0) {
            word->count++;
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(ctx, &w->words, &w->capacity, w->count + 1,
                          sizeof(*w->words), "words"));
    word_t word = {hash, (int64_t)w->text.length, (int64_t)length, 1};
    LOONG_TRY(loongi_buffer_add(ctx, &w->text, text, length));
    w->words[w->count++] = word;
    w->slots[at] = w->count;
    return LOONG_OK;
}

void loongi_words_free(loong_context_t *ctx, words_t *w)
{
    loongi_free(ctx, w->text.data);
    loongi_free(ctx, w->words);
    loongi_free(ctx, w->slots);
}
