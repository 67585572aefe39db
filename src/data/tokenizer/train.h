/* SPDX-License-Identifier: Apache-2.0
 *
 * Training: words (train_words.c), pairs and merges (train_pairs.c), the file
 * (train.c). */
#ifndef LOONG_TOKENIZER_TRAIN_H
#define LOONG_TOKENIZER_TRAIN_H

#include "tokenizer_impl.h"

typedef struct word {
    uint64_t hash;
    int64_t begin;  /* in the text of all words; while merging: first symbol */
    int64_t length; /* in bytes; while merging: in symbols */
    int64_t count;
} word_t;

/* The different words, in the order in which they came. */
typedef struct words {
    word_t *words;
    int64_t count;
    int64_t capacity;
    loong_buffer_t text;
    int64_t *slots; /* by hash, word + 1 */
    uint64_t mask;
} words_t;

LOONG_NODISCARD loong_status_t loongi_words_add(loong_context_t *ctx,
                                                words_t *words,
                                                const char *text,
                                                size_t length);
void loongi_words_free(loong_context_t *ctx, words_t *words);

/* A merge that was learned. */
typedef struct learned {
    int32_t left;
    int32_t right;
    int32_t id; /* an earlier one when the text is known already */
} learned_t;

typedef struct learning {
    words_t *words;
    int64_t min_frequency;
    int64_t wanted; /* size of the vocabulary */
    /* Text to id of what is known; grows. */
    loong_tokenizer_t *known;
    learned_t *merges;
    int64_t num_merges;
    int64_t merge_capacity;
} learning_t;

/* Byte b begins as id byte_ids[b]. */
LOONG_NODISCARD loong_status_t loongi_learn_merges(loong_context_t *ctx,
                                                   learning_t *l,
                                                   const int32_t byte_ids[256]);

#endif
