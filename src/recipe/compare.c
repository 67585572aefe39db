/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs between two recipes, by value and not by the way it is
 * written, and whether a saved run may go on with the changed one. Called by
 * resume_check.c, from_hf.c and trainer_save.c. Read loong/recipe.h before. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pairs.h"
#include "problems.h"
#include "recipe_impl.h"

typedef struct comparison {
    const loong_recipe_t *before;
    const loong_recipe_t *after;
    loong_recipe_meant_t meant;
    loong_recipe_change_fn visit;
    void *user;
} comparison_t;

static const loong_recipe_meant_t none_meant = {NULL, NULL};

static const char *value_of(const loong_pairs_t *all, const char *path)
{
    return all != NULL ? loongi_pairs_get(all, path) : NULL;
}

/* The canonical text of one value: 1e-3 and 0.001 are the same. */
static void put_value(loong_recipe_type_t type, const char *text,
                      loong_text_t *out)
{
    char digits[LOONG_REAL_TEXT];
    double value = 0.0;
    bool flag = false;
    if (type == LOONG_RECIPE_BOOL && loongi_recipe_flag(text, &flag)) {
        loongi_text_printf(out, flag ? "true" : "false");
    } else if (loongi_recipe_is_number(type) &&
               loongi_recipe_number(type, text, &value)) {
        if (loongi_recipe_is_whole(type)) {
            loongi_text_printf(out, "%" PRId64, (int64_t)value);
        } else {
            loongi_text_printf(out, "%s", loongi_real_text(value, digits));
        }
    } else {
        loongi_text_printf(out, "%s", text);
    }
}

bool loongi_recipe_same(const loong_recipe_key_t *key, const char *a,
                        const char *b)
{
    double x = 0.0;
    double y = 0.0;
    if (strcmp(a, b) == 0) {
        return true;
    }
    return key != NULL && loongi_recipe_is_number(key->type) &&
           !loongi_recipe_is_whole(key->type) &&
           loongi_recipe_number(key->type, a, &x) &&
           loongi_recipe_number(key->type, b, &y) &&
           fabs(x - y) <= 4.0 * DBL_EPSILON * fabs(x);
}

/* The value at a path, false when there is none: neither meant nor set nor a
 * default. */
static bool put_text(const loong_recipe_t *recipe, const loong_pairs_t *all,
                     const loong_recipe_key_t *key, const char *path,
                     loong_text_t *out)
{
    const char *meant = value_of(all, path);
    if (meant != NULL) {
        put_value(key->type, meant, out);
        return true;
    }
    const loong_tree_t *node = loongi_tree_find(recipe->root, path);
    if (node != NULL && node->kind == LOONG_TREE_LIST) {
        for (int64_t i = 0; i < node->count; i++) {
            loongi_text_printf(out, i > 0 ? ", " : "[");
            put_value(key->type, node->items[i].value->text, out);
        }
        loongi_text_printf(out, node->count > 0 ? "]" : "");
        return node->count > 0;
    }
    if (node != NULL && !node->is_null) {
        put_value(key->type, node->text, out);
        return true;
    }
    if (key->fallback != NULL && loongi_recipe_exists(recipe, path)) {
        put_value(key->type, key->fallback, out);
        return true;
    }
    return false;
}

static loong_status_t compare_value(const comparison_t *c,
                                    const loong_recipe_key_t *key,
                                    const char *path)
{
    loong_text_t a = loongi_text_begin(c->after->ctx);
    loong_text_t b = loongi_text_begin(c->after->ctx);
    bool has_a = put_text(c->before, c->meant.before, key, path, &a);
    bool has_b = put_text(c->after, c->meant.after, key, path, &b);
    loong_status_t status = a.status != LOONG_OK ? a.status : b.status;
    if (status == LOONG_OK &&
        (has_a != has_b ||
         !loongi_recipe_same(key, loongi_text_get(&a), loongi_text_get(&b)))) {
        loong_recipe_change_t change = {
            path, has_a ? loongi_text_get(&a) : NULL,
            has_b ? loongi_text_get(&b) : NULL, key->resume};
        status = c->visit(c->user, &change);
    }
    loongi_text_free(&a);
    loongi_text_free(&b);
    return status;
}

/* "data.train[].path" for every item that one of the recipes has. */
static loong_status_t compare_items(const comparison_t *c,
                                    const loong_recipe_key_t *key)
{
    char list[LOONG_RECIPE_PATH];
    char path[LOONG_RECIPE_PATH + 24];
    int length = (int)strcspn(key->path, "[");
    snprintf(list, sizeof(list), "%.*s", length, key->path);
    int64_t count = LOONG_MAX(loongi_recipe_items(c->before, list),
                              loongi_recipe_items(c->after, list));
    for (int64_t i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s[%" PRId64 "]%s", list, i,
                 key->path + length + 2);
        LOONG_TRY(compare_value(c, key, path));
    }
    return LOONG_OK;
}

loong_status_t loongi_recipe_compare(const loong_recipe_t *before,
                                     const loong_recipe_t *after,
                                     const loong_recipe_meant_t *meant,
                                     loong_recipe_change_fn visit, void *user)
{
    comparison_t c = {before, after, *meant, visit, user};
    for (int64_t i = 0; i < loongi_recipe_count_keys(after); i++) {
        const loong_recipe_key_t *key = loongi_recipe_key_at(after, i);
        if (strchr(key->path, '[') != NULL) {
            LOONG_TRY(compare_items(&c, key));
        } else {
            LOONG_TRY(compare_value(&c, key, key->path));
        }
    }
    return LOONG_OK;
}

loong_status_t loong_recipe_compare(const loong_recipe_t *before,
                                    const loong_recipe_t *after,
                                    loong_recipe_change_fn visit, void *user)
{
    return loongi_recipe_compare(before, after, &none_meant, visit, user);
}

/* ---- resuming ------------------------------------------------------------ */

typedef struct resume {
    const loong_recipe_t *after;
    loong_problems_t problems;
} resume_t;

bool loong_recipe_may_change(const loong_recipe_t *recipe, const char *path)
{
    int64_t n = loongi_recipe_items(recipe, "resume.override");
    for (int64_t i = 0; i < n; i++) {
        char item[64];
        snprintf(item, sizeof(item), "resume.override[%" PRId64 "]", i);
        const char *name = loong_recipe_text(recipe, item);
        size_t length = strlen(name);
        if (strncmp(path, name, length) == 0 &&
            (path[length] == '\0' || path[length] == '.' ||
             path[length] == '[')) {
            return true;
        }
    }
    return false;
}

void loongi_recipe_refuse(const loong_recipe_t *after,
                          const loong_recipe_change_t *change,
                          loong_problems_t *problems)
{
    const char *before = change->before;
    bool is_left = before != NULL && !loong_recipe_is_set(after, change->path);
    loongi_problems_add(problems, "%s: %s: %s in the checkpoint, now %s%s%s%s",
                        loong_recipe_where(after, change->path), change->path,
                        before != NULL ? before : "not set",
                        change->after != NULL ? change->after : "not set",
                        is_left ? "; set it to " : "", is_left ? before : "",
                        is_left ? " to go on as before" : "");
}

static loong_status_t judge(void *user, const loong_recipe_change_t *change)
{
    resume_t *r = user;
    bool allowed = loong_recipe_may_change(r->after, change->path);
    if (change->resume == LOONG_RESUME_FREE || allowed) {
        loongi_log(r->after->ctx, LOONG_LOG_INFO,
                   "changed since the checkpoint: %s: %s -> %s%s", change->path,
                   change->before != NULL ? change->before : "not set",
                   change->after != NULL ? change->after : "not set",
                   allowed ? " (resume.override)" : "");
    } else {
        loongi_recipe_refuse(r->after, change, &r->problems);
    }
    return LOONG_OK;
}

loong_status_t loongi_recipe_check_resume(const loong_recipe_t *before,
                                          const loong_recipe_t *after,
                                          const loong_recipe_meant_t *meant)
{
    resume_t r = {after, loongi_problems_begin(after->ctx)};
    loong_status_t status =
        loongi_recipe_compare(before, after, meant, judge, &r);
    loong_status_t problems = loongi_problems_end(
        &r.problems, LOONG_ERR_MISMATCH,
        "the recipe changed; what is meant goes into resume.override");
    return status != LOONG_OK ? status : problems;
}

loong_status_t loong_recipe_check_resume(const loong_recipe_t *before,
                                         const loong_recipe_t *after)
{
    return loongi_recipe_check_resume(before, after, &none_meant);
}
