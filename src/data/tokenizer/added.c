/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens: found in text before anything is merged, the leftmost first,
 * at one place the longest. Called by load_model.c and encode.c. Read
 * tokenizer_impl.h before. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

loong_status_t loongi_added_add(loong_tokenizer_t *t, added_set_t *set,
                                const added_token_t *token)
{
    LOONG_TRY(loongi_grow(t->ctx, &set->tokens, &set->capacity, set->count + 1,
                          sizeof(*set->tokens), "added tokens"));
    set->tokens[set->count++] = *token;
    return LOONG_OK;
}

static int by_text(const void *a, const void *b)
{
    const added_token_t *x = a;
    const added_token_t *y = b;
    int order = memcmp(x->text, y->text, LOONG_MIN(x->length, y->length));
    return order != 0 ? order
                      : (x->length > y->length) - (x->length < y->length);
}

loong_status_t loongi_added_finish(loong_tokenizer_t *t, added_set_t *set)
{
    if (set->count > 0) {
        qsort(set->tokens, (size_t)set->count, sizeof(*set->tokens), by_text);
    }
    for (int64_t i = 0; i < set->count; i++) {
        set->first[(unsigned char)set->tokens[i].text[0] + 1]++;
        LOONG_CHECK(t->ctx,
                    i == 0 ||
                        by_text(set->tokens + i - 1, set->tokens + i) != 0,
                    LOONG_ERR_FORMAT, "added token '%s' stands twice",
                    set->tokens[i].text);
    }
    for (int b = 0; b < 256; b++) {
        set->first[b + 1] += set->first[b];
    }
    return LOONG_OK;
}

/* The longest token that text begins with: the tokens that agree so far are
 * neighbours, and get fewer with every byte. */
static const added_token_t *match(const added_set_t *set, const char *text,
                                  size_t length)
{
    const added_token_t *found = NULL;
    int64_t low = set->first[(unsigned char)text[0]];
    int64_t high = set->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low].length == depth) {
            found = &set->tokens[low++];
        }
        if (depth == length) {
            break;
        }
        unsigned char byte = (unsigned char)text[depth];
        while (low < high &&
               (unsigned char)set->tokens[low].text[depth] < byte) {
            low++;
        }
        while (low < high &&
               (unsigned char)set->tokens[high - 1].text[depth] > byte) {
            high--;
        }
    }
    return found;
}

static bool has(const loong_tokenizer_t *t, const char *text, int bit)
{
    size_t length = 0;
    return t->chars[loongi_utf8_get(text, &length)] & bit;
}

/* False when the token wants to be a word of its own, and is none. */
static bool stands_alone(const loong_tokenizer_t *t, const char *text,
                         size_t length, const size_t span[2])
{
    return (span[0] == 0 ||
            !has(t, text + loongi_utf8_back(text, span[0]), LOONG_CHAR_WORD)) &&
           (span[1] == length || !has(t, text + span[1], LOONG_CHAR_WORD));
}

static void strip(const loong_tokenizer_t *t, const added_token_t *token,
                  const char *text, size_t length, size_t done, size_t span[2])
{
    while (token->lstrip && span[0] > done) {
        size_t before = loongi_utf8_back(text, span[0]);
        if (!has(t, text + before, LOONG_CHAR_SPACE)) {
            break;
        }
        span[0] = before;
    }
    while (token->rstrip && span[1] < length &&
           has(t, text + span[1], LOONG_CHAR_SPACE)) {
        (void)loongi_utf8_get(text + span[1], &span[1]);
    }
}

loong_status_t loongi_added_split(loong_text_encoder_t *e,
                                  const added_set_t *set, const char *text,
                                  size_t length, bool first, between_fn between)
{
    size_t done = 0;
    size_t at = 0;
    while (set->count > 0 && at < length) {
        int byte = (unsigned char)text[at];
        if (set->first[byte] == set->first[byte + 1]) {
            at++;
            continue;
        }
        const added_token_t *token = match(set, text + at, length - at);
        if (token == NULL) {
            at++;
            continue;
        }
        size_t span[2] = {at, at + token->length};
        at = span[1];
        if (token->single_word &&
            !stands_alone(e->tokenizer, text, length, span)) {
            continue;
        }
        strip(e->tokenizer, token, text, length, done, span);
        if (done < span[0]) {
            LOONG_TRY(
                between(e, text + done, span[0] - done, first && done == 0));
        }
        LOONG_TRY(loongi_ids_room(e, 1));
        e->ids[e->count++] = token->id;
        done = span[1];
    }
    if (done < length) {
        LOONG_TRY(between(e, text + done, length - done, first && done == 0));
    }
    return LOONG_OK;
}
