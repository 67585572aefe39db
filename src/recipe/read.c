/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading values by path. Who reads a value marks it, so that keys nobody
 * reads can be named. Called by whatever takes values from a recipe. Read
 * loong/recipe.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "recipe_impl.h"

/* The key whose value stands at a path, also of an item of a list of numbers
 * or texts. */
static const loong_recipe_key_t *key_of(const loong_recipe_t *recipe,
                                        const char *path)
{
    char list[LOONG_RECIPE_PATH];
    const loong_recipe_key_t *key = loongi_recipe_find(recipe, path);
    const char *index = strrchr(path, '[');
    size_t length = strlen(path);
    if (key != NULL || index == NULL || path[length - 1] != ']' ||
        length >= sizeof(list)) {
        return key;
    }
    snprintf(list, sizeof(list), "%.*s", (int)(index - path), path);
    key = loongi_recipe_find(recipe, list);
    return loongi_recipe_lists(key) ? key : NULL;
}

bool loongi_recipe_exists(const loong_recipe_t *recipe, const char *path)
{
    return loongi_tree_is_path(path) &&
           (key_of(recipe, path) != NULL ||
            loongi_recipe_is_branch(recipe, path, ".") ||
            loongi_recipe_is_branch(recipe, path, "[]"));
}

/* A mistake of the program: told once in the trail, kept for
 * loong_recipe_status. */
static void misuse(const loong_recipe_t *recipe, const char *path,
                   const char *wanted)
{
    if (*recipe->status == LOONG_OK) {
        *recipe->status =
            LOONG_FAIL(recipe->ctx, LOONG_ERR_INTERNAL,
                       "'%s' is read as %s, which it is not in the schema of "
                       "the recipe",
                       path, wanted);
    }
}

/* What was set, else the default; NULL: neither. */
static const char *text_at(const loong_recipe_t *recipe, const char *path,
                           const loong_recipe_key_t *key)
{
    loong_tree_t *node = loongi_tree_find(recipe->root, path);
    if (node != NULL) {
        node->is_read = true;
    }
    if (node != NULL && node->kind == LOONG_TREE_SCALAR && !node->is_null &&
        !node->is_wrong) {
        return node->text;
    }
    return key->fallback;
}

const char *loong_recipe_text(const loong_recipe_t *recipe, const char *path)
{
    const loong_recipe_key_t *key = key_of(recipe, path);
    if (key == NULL) {
        misuse(recipe, path, "a text");
        return NULL;
    }
    return text_at(recipe, path, key);
}

static double number(const loong_recipe_t *recipe, const char *path, bool whole)
{
    const loong_recipe_key_t *key = key_of(recipe, path);
    double value = 0.0;
    if (key == NULL || !loongi_recipe_is_number(key->type) ||
        (whole && !loongi_recipe_is_whole(key->type))) {
        misuse(recipe, path, whole ? "a whole number" : "a number");
        return 0.0;
    }
    const char *text = text_at(recipe, path, key);
    if (text != NULL) {
        loongi_recipe_number(key->type, text, &value);
    }
    return value;
}

double loong_recipe_real(const loong_recipe_t *recipe, const char *path)
{
    return number(recipe, path, false);
}

int64_t loong_recipe_int(const loong_recipe_t *recipe, const char *path)
{
    return (int64_t)number(recipe, path, true);
}

bool loong_recipe_bool(const loong_recipe_t *recipe, const char *path)
{
    const loong_recipe_key_t *key = key_of(recipe, path);
    bool value = false;
    if (key == NULL || key->type != LOONG_RECIPE_BOOL) {
        misuse(recipe, path, "true or false");
        return false;
    }
    const char *text = text_at(recipe, path, key);
    if (text != NULL) {
        loongi_recipe_flag(text, &value);
    }
    return value;
}

int64_t loongi_recipe_items(const loong_recipe_t *recipe, const char *path)
{
    const loong_tree_t *node = loongi_tree_find(recipe->root, path);
    return node != NULL && node->kind == LOONG_TREE_LIST ? node->count : 0;
}

int64_t loong_recipe_count(const loong_recipe_t *recipe, const char *path)
{
    const loong_recipe_key_t *key = loongi_recipe_find(recipe, path);
    loong_tree_t *node = loongi_tree_find(recipe->root, path);
    bool list = key != NULL ? loongi_recipe_lists(key)
                            : loongi_recipe_is_branch(recipe, path, "[]");
    if (!list) {
        misuse(recipe, path, "a list");
    } else if (node != NULL) {
        node->is_read = true;
    }
    return loongi_recipe_items(recipe, path);
}

bool loong_recipe_is_set(const loong_recipe_t *recipe, const char *path)
{
    const loong_tree_t *node = loongi_tree_find(recipe->root, path);
    if (!loongi_recipe_exists(recipe, path)) {
        misuse(recipe, path, "a key");
    }
    return node != NULL && !node->is_null;
}

loong_status_t loong_recipe_status(const loong_recipe_t *recipe)
{
    return *recipe->status;
}

const char *loong_recipe_where(const loong_recipe_t *recipe, const char *path)
{
    const loong_tree_t *node = loongi_tree_find(recipe->root, path);
    if (node == NULL || node->is_null) {
        return "default";
    }
    char *where = NULL;
    if (node->line == 0 ||
        loongi_arena_printf(recipe->arena, &where, "%s:%d", node->file,
                            node->line) != LOONG_OK) {
        return node->file;
    }
    return where;
}

/* ---- several keys ---------------------------------------------------------
 */

static loong_status_t
each(loong_tree_t *node, const char *path,
     loong_status_t (*visit)(void *, const char *, const char *), void *user)
{
    if (node->kind == LOONG_TREE_SCALAR) {
        node->is_read = true;
        return node->is_null || node->is_wrong ? LOONG_OK
                                               : visit(user, path, node->text);
    }
    for (int64_t i = 0; i < node->count && node->kind == LOONG_TREE_MAP; i++) {
        char child[LOONG_RECIPE_PATH];
        snprintf(child, sizeof(child), "%s%s%s", path,
                 path[0] != '\0' ? "." : "", node->items[i].key);
        LOONG_TRY(each(node->items[i].value, child, visit, user));
    }
    return LOONG_OK;
}

loong_status_t loong_recipe_each(
    const loong_recipe_t *recipe, const char *prefix,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user)
{
    loong_tree_t *node = loongi_tree_find(recipe->root, prefix);
    return node != NULL ? each(node, "", visit, user) : LOONG_OK;
}

typedef struct family_keys {
    loong_status_t (*visit)(void *user, const char *key, const char *value);
    void *user;
} family_keys_t;

static loong_status_t visit_family_key(void *user, const char *key,
                                       const char *value)
{
    static const char *const own[] = {"freeze",     "init.",  "parallel.",
                                      "ranks",      "train.", "precision.",
                                      "optimizer.", "recompute."};
    const family_keys_t *f = user;
    for (int64_t i = 0; i < LOONG_COUNT_OF(own); i++) {
        if (strncmp(key, own[i], strlen(own[i])) == 0) {
            return LOONG_OK;
        }
    }
    return f->visit(f->user, key, value);
}

loong_status_t loong_recipe_each_family_key(
    const loong_recipe_t *recipe, const char *component,
    loong_status_t (*visit)(void *user, const char *key, const char *value),
    void *user)
{
    family_keys_t f = {visit, user};
    return loong_recipe_each(recipe, component, visit_family_key, &f);
}

const char *loong_recipe_own_path(const loong_recipe_t *recipe,
                                  const char *role, const char *key)
{
    char *path = NULL;
    bool own = loongi_arena_printf(recipe->arena, &path, "model.%s.%s", role,
                                   key) == LOONG_OK &&
               loongi_recipe_find(recipe, path) != NULL &&
               loong_recipe_is_set(recipe, path);
    return own ? path : key;
}

const char *const loong_recipe_roles[LOONG_MODEL_ROLES] = {
    "image_encoder", "image_projector", "video_encoder", "video_projector",
    "foundation"};

const char *loong_recipe_role_kind(const char *role)
{
    return strcmp(role, "video_encoder") == 0     ? "image_encoder"
           : strcmp(role, "video_projector") == 0 ? "image_projector"
                                                  : role;
}

const char *loong_recipe_component(const loong_recipe_t *recipe, int64_t i)
{
    for (int k = 0; k < LOONG_MODEL_ROLES; k++) {
        char path[LOONG_RECIPE_PATH];
        const char *role = loong_recipe_roles[k];
        snprintf(path, sizeof(path), "model.%s", role);
        const loong_tree_t *node = loongi_tree_find(recipe->root, path);
        if (node != NULL && node->count > 0 && i-- == 0) {
            return role;
        }
    }
    return NULL;
}

bool loong_recipe_reads_texts(const loong_recipe_t *recipe)
{
    const char *last = NULL;
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        last = loong_recipe_component(recipe, i);
    }
    return last == NULL || strcmp(last, "foundation") == 0;
}

const char *loong_recipe_init_key(const loong_recipe_t *recipe,
                                  const char *role)
{
    static const char key[] = "init.from_hf";
    const char *last = NULL;
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        last = loong_recipe_component(recipe, i);
    }
    role = role != NULL ? role : last;
    const char *path =
        role != NULL ? loong_recipe_own_path(recipe, role, key) : key;
    bool found = loong_recipe_text(recipe, path) != NULL &&
                 (strcmp(path, key) != 0 || role == last);
    return found ? path : NULL;
}

/* A list of numbers or texts is read as a whole. */
static void warn_unread(const loong_recipe_t *recipe, const loong_tree_t *node,
                        const char *path)
{
    bool maps = node->count > 0 && node->items[0].value->kind == LOONG_TREE_MAP;
    if (node->kind == LOONG_TREE_SCALAR ||
        (node->kind == LOONG_TREE_LIST && !maps)) {
        if (!node->is_read && !node->is_null) {
            loongi_log(recipe->ctx, LOONG_LOG_WARN,
                       "%s: %s is set, but nothing in this run reads it",
                       loong_recipe_where(recipe, path), path);
        }
        return;
    }
    for (int64_t i = 0; i < node->count; i++) {
        char child[LOONG_RECIPE_PATH + 24];
        if (node->items[i].key != NULL) {
            snprintf(child, sizeof(child), "%s%s%s", path,
                     path[0] != '\0' ? "." : "", node->items[i].key);
        } else {
            snprintf(child, sizeof(child), "%s[%" PRId64 "]", path, i);
        }
        warn_unread(recipe, node->items[i].value, child);
    }
}

void loong_recipe_warn_unread(const loong_recipe_t *recipe)
{
    warn_unread(recipe, recipe->root, "");
}
