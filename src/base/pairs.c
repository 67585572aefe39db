/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and texts. Called by recipes, model families and checkpoints. Read
 * pairs.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pairs.h"

loong_status_t loongi_pairs_create(loong_context_t *ctx,
                                   loong_pairs_t **pairs_p)
{
    loong_pairs_t *pairs = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*pairs), "pairs", &pairs));
    pairs->ctx = ctx;
    loong_status_t status = loongi_arena_create(ctx, "pairs", &pairs->arena);
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&pairs);
        return status;
    }
    *pairs_p = pairs;
    return LOONG_OK;
}

void loongi_pairs_destroy(loong_pairs_t **pairs)
{
    if (*pairs == NULL) {
        return;
    }
    loongi_free((*pairs)->ctx, (*pairs)->items);
    loongi_arena_destroy(&(*pairs)->arena);
    loongi_free((*pairs)->ctx, *pairs);
    *pairs = NULL;
}

static loong_pair_t *find(const loong_pairs_t *pairs, const char *key)
{
    for (int64_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].key, key) == 0) {
            return &pairs->items[i];
        }
    }
    return NULL;
}

loong_status_t loongi_pairs_set(loong_pairs_t *pairs, const char *key,
                                const char *value)
{
    char *key_copy = NULL;
    char *value_copy = NULL;
    loong_pair_t *pair = find(pairs, key);
    LOONG_TRY(loongi_arena_strdup(pairs->arena, value, &value_copy));
    if (pair == NULL) {
        LOONG_TRY(loongi_arena_strdup(pairs->arena, key, &key_copy));
        LOONG_TRY(loongi_grow(pairs->ctx, &pairs->items, &pairs->capacity,
                              pairs->count + 1, sizeof(*pairs->items),
                              "pairs"));
        pair = &pairs->items[pairs->count++];
        pair->key = key_copy;
    }
    pair->value = value_copy;
    return LOONG_OK;
}

loong_status_t loongi_pairs_copy(loong_context_t *ctx,
                                 const loong_pairs_t *pairs,
                                 loong_pairs_t **copy_p)
{
    loong_pairs_t *copy = NULL;
    LOONG_TRY(loongi_pairs_create(ctx, &copy));
    for (int64_t i = 0; i < pairs->count; i++) {
        loong_status_t status = loongi_pairs_set(copy, pairs->items[i].key,
                                                 pairs->items[i].value);
        if (status != LOONG_OK) {
            loongi_pairs_destroy(&copy);
            return status;
        }
    }
    *copy_p = copy;
    return LOONG_OK;
}

loong_status_t loongi_pairs_set_int(loong_pairs_t *pairs, const char *key,
                                    int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, value);
    return loongi_pairs_set(pairs, key, text);
}

const char *loongi_real_text(double value, char buffer[LOONG_REAL_TEXT])
{
    int digits = 0;
    do {
        snprintf(buffer, LOONG_REAL_TEXT, "%.*e", digits, value);
    } while (strtod(buffer, NULL) != value && ++digits < 17);
    const char *mark = strchr(buffer, 'e');
    int exponent = mark != NULL ? (int)strtol(mark + 1, NULL, 10) : 0;
    if (exponent >= -4 && exponent < 16) {
        snprintf(buffer, LOONG_REAL_TEXT, "%.*f",
                 LOONG_MAX(digits - exponent, 1), value);
    }
    return buffer;
}

loong_status_t loongi_pairs_set_real(loong_pairs_t *pairs, const char *key,
                                     double value)
{
    char text[LOONG_REAL_TEXT];
    return loongi_pairs_set(pairs, key, loongi_real_text(value, text));
}

loong_status_t loongi_pairs_set_bool(loong_pairs_t *pairs, const char *key,
                                     bool value)
{
    return loongi_pairs_set(pairs, key, value ? "true" : "false");
}

const char *loongi_pairs_get(const loong_pairs_t *pairs, const char *key)
{
    const loong_pair_t *pair = find(pairs, key);
    return pair != NULL ? pair->value : NULL;
}

bool loongi_pairs_int(const loong_pairs_t *pairs, const char *key,
                      int64_t *value_p)
{
    const char *text = loongi_pairs_get(pairs, key);
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        return false;
    }
    int64_t value = strtoll(text, &end, 10);
    if (*end != '\0') {
        return false;
    }
    *value_p = value;
    return true;
}

bool loongi_pairs_real(const loong_pairs_t *pairs, const char *key,
                       double *value_p)
{
    const char *text = loongi_pairs_get(pairs, key);
    char *end = NULL;
    if (text == NULL || text[0] == '\0') {
        return false;
    }
    double value = strtod(text, &end);
    if (*end != '\0') {
        return false;
    }
    *value_p = value;
    return true;
}

bool loongi_pairs_true(const loong_pairs_t *pairs, const char *key)
{
    const char *text = loongi_pairs_get(pairs, key);
    return text != NULL && strcmp(text, "true") == 0;
}
