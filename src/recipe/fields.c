/* SPDX-License-Identifier: Apache-2.0
 *
 * From texts to the members of a configuration and back, and from a recipe to
 * those of a struct, by the rows of tables. Called by the families that a
 * recipe names and by whatever takes values from it; read fields.h before. */
#include "fields.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "recipe_impl.h"

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

static double most_of(const loong_recipe_field_t *f)
{
    return f->kind == LOONG_FIELD_INT ? LOONG_MIN(f->key.max, INT_MAX)
                                      : f->key.max;
}

static bool must_be_whole(const loong_recipe_field_t *f)
{
    return f->kind == LOONG_FIELD_WHOLE || loongi_recipe_is_whole(f->key.type);
}

/* The number or flag that a text stands for; false: it is none of the key's. */
static bool read_text(const loong_recipe_field_t *f, const char *text,
                      double *number, bool *yes)
{
    if (f->key.type == LOONG_RECIPE_CHOICE) {
        int index = word_index(f->key.choices, text);
        *yes = index > 0;
        *number = index >= 0 && f->values != NULL ? f->values[index] : index;
        return index >= 0;
    }
    return f->key.type == LOONG_RECIPE_BOOL
               ? loongi_recipe_flag(text, yes)
               : loongi_recipe_number(f->key.type, text, number) &&
                     *number >= f->key.min && *number <= most_of(f) &&
                     (!must_be_whole(f) || *number == floor(*number));
}

static bool put(const loong_recipe_field_t *f, const char *text, void *at)
{
    double number = 0.0;
    bool yes = false;
    if (f->kind == LOONG_FIELD_STRING) {
        *(const char **)at = text;
        return true;
    }
    if (f->kind == LOONG_FIELD_NONE || !read_text(f, text, &number, &yes)) {
        return f->kind == LOONG_FIELD_NONE;
    }
    if (f->kind == LOONG_FIELD_BOOL || f->kind == LOONG_FIELD_NOT) {
        *(bool *)at = yes == (f->kind == LOONG_FIELD_BOOL);
    } else if (f->kind == LOONG_FIELD_REAL || f->kind == LOONG_FIELD_WHOLE) {
        *(double *)at = number;
    } else if (f->kind == LOONG_FIELD_INT64) {
        *(int64_t *)at = (int64_t)number;
    } else {
        *(int *)at = (int)number;
    }
    return true;
}

const loong_recipe_field_t *
loongi_recipe_field_find(const loong_recipe_table_t *table, const char *name)
{
    size_t prefix = strlen(table->prefix);
    for (int64_t i = 0; i < table->count; i++) {
        if (strcmp(table->rows[i].key.path + prefix, name) == 0) {
            return &table->rows[i];
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
    if (put(f, pair->value, (char *)config + f->offset)) {
        return;
    }
    if (f->key.type == LOONG_RECIPE_CHOICE) {
        loongi_problems_add(problems, "%s: found %s, allowed: %s", pair->key,
                            pair->value, f->key.choices);
    } else if (f->key.type == LOONG_RECIPE_BOOL) {
        loongi_problems_add(problems, "%s: found %s, true or false wanted",
                            pair->key, pair->value);
    } else {
        loongi_problems_add(
            problems, "%s: found %s, %s from %g to %.10g wanted", pair->key,
            pair->value, must_be_whole(f) ? "a whole number" : "a number",
            f->key.min, most_of(f));
    }
}

/* The last word that stands for the value. */
static void choice_text(const loong_recipe_field_t *f, const void *at,
                        char text[LOONG_FIELD_TEXT])
{
    int value =
        f->kind == LOONG_FIELD_BOOL ? *(const bool *)at : *(const int *)at;
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
    if (f->key.type == LOONG_RECIPE_CHOICE && f->kind != LOONG_FIELD_NONE) {
        choice_text(f, at, text);
        return;
    }
    switch (f->kind) {
    case LOONG_FIELD_NONE:
    case LOONG_FIELD_CHOICE:
    case LOONG_FIELD_STRING:
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

void loongi_recipe_fields_note(const loong_recipe_t *recipe,
                               const char *component,
                               const loong_pairs_t *keys)
{
    loong_context_t *ctx = recipe->ctx;
    loong_pairs_t *origins = NULL;
    loong_status_t status = loongi_pairs_create(ctx, &origins);
    for (int64_t i = 0; i < keys->count && status == LOONG_OK; i++) {
        char path[LOONG_RECIPE_PATH];
        const char *key = keys->items[i].key;
        snprintf(path, sizeof(path), "%s.%s", component, key);
        status =
            loongi_pairs_set(origins, key, loong_recipe_where(recipe, path));
    }
    if (status == LOONG_OK && !loongi_problems_note_origins(ctx, origins)) {
        loongi_error_note(ctx, "  %s is from %s", component,
                          loong_recipe_where(recipe, component));
    }
    loongi_pairs_destroy(&origins);
}

/* ---- from a recipe ------------------------------------------------------- */

void loongi_recipe_fields_fill(const loong_recipe_t *recipe, const char *prefix,
                               const char *type, void *at)
{
    char generic[LOONG_RECIPE_PATH];
    loongi_recipe_generic_path(prefix, generic);
    size_t length = strlen(generic);
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_field_t *f = (const void *)loong_recipe_key(i);
        char path[LOONG_RECIPE_PATH];
        if (f->type == NULL || strcmp(f->type, type) != 0 ||
            strncmp(f->key.path, generic, length) != 0) {
            continue;
        }
        snprintf(path, sizeof(path), "%s%s", prefix, f->key.path + length);
        const char *text = loong_recipe_text(recipe, path);
        if (text != NULL) { /* which was checked */
            (void)put(f, text, (char *)at + f->offset);
        }
    }
}

void loongi_recipe_fields_fill_item(const loong_recipe_t *recipe,
                                    const char *list, int64_t item,
                                    const char *type, void *at)
{
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "%s[%lld].", list, (long long)item);
    loongi_recipe_fields_fill(recipe, prefix, type, at);
}
