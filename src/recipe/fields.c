/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to the members of a configuration and back, by the rows of a
 * table. Called by the families that a recipe names; read fields.h before. */
#include "fields.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The index of a text among the words "a b c"; -1: it is none of them. */
static int word_index(const char *words, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *at = words; *at != '\0'; index++) {
        size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, text, word) == 0) {
            return index;
        }
        at += word + strspn(at + word, " ");
    }
    return -1;
}

static void set_choice(loong_problems_t *problems,
                       const loong_recipe_field_t *f, const loong_pair_t *pair,
                       void *at)
{
    int index = word_index(f->key.choices, pair->value);
    if (index < 0) {
        loongi_problems_add(problems, "%s: found %s, allowed: %s", pair->key,
                            pair->value, f->key.choices);
    } else if (f->values == NULL) {
        *(bool *)at = index > 0;
    } else {
        *(int *)at = f->values[index];
    }
}

static void set_flag(loong_problems_t *problems, const loong_recipe_field_t *f,
                     const loong_pair_t *pair, void *at)
{
    bool yes = strcmp(pair->value, "true") == 0;
    if (!yes && strcmp(pair->value, "false") != 0) {
        loongi_problems_add(problems, "%s: found %s, true or false wanted",
                            pair->key, pair->value);
    }
    *(bool *)at = f->kind == LOONG_FIELD_NOT ? !yes : yes;
}

static void set_number(loong_problems_t *problems,
                       const loong_recipe_field_t *f, const loong_pair_t *pair,
                       void *at)
{
    char *end = NULL;
    errno = 0;
    double real = strtod(pair->value, &end);
    bool whole = f->kind != LOONG_FIELD_REAL;
    double most = f->kind == LOONG_FIELD_INT ? LOONG_MIN(f->key.max, INT_MAX)
                                             : f->key.max;
    bool number = end != pair->value && *end == '\0' && errno == 0;
    if (!number || !(real >= f->key.min && real <= most) ||
        (whole && real != floor(real))) {
        loongi_problems_add(
            problems, "%s: found %s, %s from %g to %.10g wanted", pair->key,
            pair->value, whole ? "a whole number" : "a number", f->key.min,
            most);
    } else if (f->kind == LOONG_FIELD_REAL || f->kind == LOONG_FIELD_WHOLE) {
        *(double *)at = real;
    } else if (f->kind == LOONG_FIELD_INT64) {
        *(int64_t *)at = (int64_t)real;
    } else {
        *(int *)at = (int)real;
    }
}

const loong_recipe_field_t *
loongi_recipe_field_find(const loong_recipe_table_t *table, const char *name)
{
    const loong_recipe_field_t *rows = table->rows;
    size_t prefix = strlen(table->prefix);
    for (int64_t i = 0; i < table->count; i++) {
        if (strcmp(rows[i].key.path + prefix, name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

void loongi_recipe_field_set(loong_problems_t *problems,
                             const loong_recipe_table_t *table,
                             const char *what, const loong_pair_t *pair,
                             void *config)
{
    const loong_recipe_field_t *f = loongi_recipe_field_find(table, pair->key);
    if (f == NULL) {
        loongi_problems_add(problems, "%s: no such key of %s", pair->key, what);
        return;
    }
    void *at = (char *)config + f->offset;
    switch (f->kind) {
    case LOONG_FIELD_NONE:
        break;
    case LOONG_FIELD_INT:
    case LOONG_FIELD_INT64:
    case LOONG_FIELD_REAL:
    case LOONG_FIELD_WHOLE:
        set_number(problems, f, pair, at);
        break;
    case LOONG_FIELD_BOOL:
    case LOONG_FIELD_NOT:
        set_flag(problems, f, pair, at);
        break;
    case LOONG_FIELD_CHOICE:
        set_choice(problems, f, pair, at);
        break;
    }
}

/* The last word that stands for the value. */
static void choice_text(const loong_recipe_field_t *f, const void *at,
                        char text[LOONG_FIELD_TEXT])
{
    int value = f->values == NULL ? *(const bool *)at : *(const int *)at;
    int index = 0;
    for (const char *word = f->key.choices; *word != '\0'; index++) {
        size_t length = strcspn(word, " ");
        if ((f->values != NULL ? f->values[index] : index) == value) {
            snprintf(text, LOONG_FIELD_TEXT, "%.*s", (int)length, word);
        }
        word += length + strspn(word + length, " ");
    }
}

void loongi_recipe_field_text(const loong_recipe_field_t *f, const void *config,
                              char text[LOONG_FIELD_TEXT])
{
    const void *at = (const char *)config + f->offset;
    long long whole = 0;
    text[0] = '\0';
    switch (f->kind) {
    case LOONG_FIELD_NONE:
        break;
    case LOONG_FIELD_INT:
    case LOONG_FIELD_INT64:
        whole = f->kind == LOONG_FIELD_INT ? *(const int *)at
                                           : *(const int64_t *)at;
        snprintf(text, LOONG_FIELD_TEXT, "%lld", whole);
        break;
    case LOONG_FIELD_REAL:
    case LOONG_FIELD_WHOLE:
        snprintf(text, LOONG_FIELD_TEXT,
                 f->kind == LOONG_FIELD_REAL ? "%.17g" : "%.0f",
                 *(const double *)at);
        break;
    case LOONG_FIELD_BOOL:
    case LOONG_FIELD_NOT:
        snprintf(text, LOONG_FIELD_TEXT, "%s",
                 *(const bool *)at == (f->kind == LOONG_FIELD_BOOL) ? "true"
                                                                    : "false");
        break;
    case LOONG_FIELD_CHOICE:
        choice_text(f, at, text);
        break;
    }
}

loong_status_t loongi_recipe_fields_each(
    const loong_recipe_table_t *table, const void *config,
    loong_status_t (*add)(void *user, const char *key, const char *value),
    void *user)
{
    const loong_recipe_field_t *rows = table->rows;
    for (int64_t i = 0; i < table->count; i++) {
        char text[LOONG_FIELD_TEXT];
        loongi_recipe_field_text(&rows[i], config, text);
        if (rows[i].kind != LOONG_FIELD_NONE) {
            LOONG_TRY(
                add(user, rows[i].key.path + strlen(table->prefix), text));
        }
    }
    return LOONG_OK;
}

static loong_status_t add_pair(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

loong_status_t loongi_recipe_fields_read(loong_context_t *ctx,
                                         const loong_recipe_t *recipe,
                                         const char *component,
                                         loong_pairs_t **pairs_p)
{
    loong_pairs_t *pairs = NULL;
    LOONG_TRY(loongi_pairs_create(ctx, &pairs));
    loong_status_t status =
        loong_recipe_each_family_key(recipe, component, add_pair, pairs);
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&pairs);
        return status;
    }
    *pairs_p = pairs;
    return LOONG_OK;
}
