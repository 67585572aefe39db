/* SPDX-License-Identifier: Apache-2.0
 *
 * A tree against the schema. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe_impl.h"

enum { PATH_SIZE = 256, HINT_LIMIT = 4 };

bool loongi_recipe_number(loong_recipe_type_t type, const char *text,
                          double *value_p)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno == ERANGE || value != value) {
        return false;
    }
    if (type == LOONG_RECIPE_SECONDS && end[0] != '\0' && end[1] == '\0') {
        static const char units[] = "smhd";
        static const double factors[] = {1.0, 60.0, 3600.0, 86400.0};
        const char *unit = strchr(units, end[0]);
        if (unit == NULL) {
            return false;
        }
        value *= factors[unit - units];
        end++;
    }
    bool whole = type == LOONG_RECIPE_INT || type == LOONG_RECIPE_INTS;
    if (*end != '\0' || value > 1e300 || value < -1e300 ||
        (whole && (value > 9.1e15 || value < -9.1e15 ||
                   value != (double)(long long)value))) {
        return false;
    }
    *value_p = value;
    return true;
}

bool loongi_recipe_flag(const char *text, bool *value_p)
{
    *value_p = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
    return *value_p || strcmp(text, "false") == 0 ||
           strcmp(text, "False") == 0;
}

typedef struct check {
    const loong_recipe_t *recipe;
    loong_text_t text;
    int problems;
} check_t;

static void begin_problem(check_t *c, const loong_tree_t *node)
{
    c->problems++;
    loongi_text_printf(&c->text, "\n  %s", node->file);
    if (node->line > 0) {
        loongi_text_printf(&c->text, ":%d", node->line);
    }
    loongi_text_printf(&c->text, ": ");
}

static int64_t count_keys(const loong_recipe_t *r)
{
    return loong_recipe_num_keys() + r->params.num_keys;
}

static const loong_recipe_key_t *key_at(const loong_recipe_t *r, int64_t i)
{
    int64_t builtin = loong_recipe_num_keys();
    return i < builtin ? loong_recipe_key(i) : &r->params.keys[i - builtin];
}

/* "a[3].b" -> "a[].b" */
static void generic_path(const char *path, char generic[PATH_SIZE])
{
    size_t n = 0;
    bool inside = false;
    for (; *path != '\0' && n + 1 < PATH_SIZE; path++) {
        inside = inside && *path != ']';
        if (!inside) {
            generic[n++] = *path;
        }
        inside = inside || *path == '[';
    }
    generic[n] = '\0';
}

const loong_recipe_key_t *loongi_recipe_find(const loong_recipe_t *recipe,
                                             const char *path)
{
    char generic[PATH_SIZE];
    generic_path(path, generic);
    for (int64_t i = 0; i < count_keys(recipe); i++) {
        if (strcmp(key_at(recipe, i)->path, generic) == 0) {
            return key_at(recipe, i);
        }
    }
    return NULL;
}

/* Does any key lie below this path, as a map (".") or list ("[]")? */
static bool is_branch(const loong_recipe_t *r, const char *path,
                      const char *separator)
{
    char generic[PATH_SIZE];
    generic_path(path, generic);
    size_t n = strlen(generic);
    for (int64_t i = 0; i < count_keys(r); i++) {
        const char *key = key_at(r, i)->path;
        if (strncmp(key, generic, n) == 0 &&
            strncmp(key + n, separator, strlen(separator)) == 0) {
            return true;
        }
    }
    return false;
}

static void unknown_key(check_t *c, const loong_tree_t *node, const char *path)
{
    char generic[PATH_SIZE];
    const char *nearest = NULL;
    int best = HINT_LIMIT + 1;
    generic_path(path, generic);
    for (int64_t i = 0; i < count_keys(c->recipe); i++) {
        const char *key = key_at(c->recipe, i)->path;
        int distance = loongi_edit_distance(generic, key, HINT_LIMIT);
        const char *last = strrchr(key, '.');
        const char *mine = strrchr(generic, '.');
        if (last != NULL &&
            strcmp(last + 1, mine != NULL ? mine + 1 : generic) == 0) {
            distance = LOONG_MIN(distance, 1); /* right name, wrong place */
        }
        if (distance < best) {
            best = distance;
            nearest = key;
        }
    }
    begin_problem(c, node);
    loongi_text_printf(&c->text, "unknown key %s", path);
    if (nearest != NULL) {
        loongi_text_printf(&c->text, "; did you mean %s?", nearest);
    }
}

static bool in_choices(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *at = choices; n > 0 && (at = strstr(at, text)) != NULL;
         at += n) {
        if ((at == choices || at[-1] == ' ') &&
            (at[n] == ' ' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static const char *type_text(loong_recipe_type_t type)
{
    switch (type) {
    case LOONG_RECIPE_INT:
        return "a whole number";
    case LOONG_RECIPE_REAL:
        return "a number";
    case LOONG_RECIPE_BOOL:
        return "true or false";
    case LOONG_RECIPE_SECONDS:
        return "a time such as 90, 15m or 2h";
    case LOONG_RECIPE_INTS:
        return "a list of whole numbers";
    case LOONG_RECIPE_TEXTS:
        return "a list of texts";
    case LOONG_RECIPE_TEXT:
    case LOONG_RECIPE_CHOICE:
        break;
    }
    return "a text";
}

static void wrong_type(check_t *c, const loong_tree_t *node, const char *path,
                       const loong_recipe_key_t *key)
{
    begin_problem(c, node);
    loongi_text_printf(&c->text, "%s: found %s%s, %s wanted", path,
                       node->kind == LOONG_TREE_MAP    ? "a map"
                       : node->kind == LOONG_TREE_LIST ? "a list"
                                                       : "",
                       node->kind == LOONG_TREE_SCALAR ? node->text : "",
                       type_text(key->type));
}

static void check_scalar(check_t *c, const loong_tree_t *node,
                         const char *path, const loong_recipe_key_t *key)
{
    double value = 0.0;
    bool flag = false;
    if (node->is_null || key->type == LOONG_RECIPE_TEXT ||
        key->type == LOONG_RECIPE_TEXTS) {
        return;
    }
    if (key->type == LOONG_RECIPE_BOOL) {
        if (!loongi_recipe_flag(node->text, &flag)) {
            wrong_type(c, node, path, key);
        }
        return;
    }
    if (key->type == LOONG_RECIPE_CHOICE) {
        if (!in_choices(key->choices, node->text)) {
            begin_problem(c, node);
            loongi_text_printf(&c->text, "%s: found %s, allowed: %s", path,
                               node->text, key->choices);
        }
        return;
    }
    if (!loongi_recipe_number(key->type, node->text, &value)) {
        wrong_type(c, node, path, key);
    } else if ((key->min != 0.0 || key->max != 0.0) &&
               (value < key->min || value > key->max)) {
        begin_problem(c, node);
        loongi_text_printf(&c->text, "%s: found %s, allowed %g to %g", path,
                           node->text, key->min, key->max);
    }
}

static void check_node(check_t *c, const loong_tree_t *node, const char *path);

static void check_list(check_t *c, const loong_tree_t *node, const char *path,
                       const loong_recipe_key_t *key)
{
    for (int64_t i = 0; i < node->count; i++) {
        char item[PATH_SIZE];
        const loong_tree_t *value = node->items[i].value;
        snprintf(item, sizeof(item), "%s[%lld]", path, (long long)i);
        if (key == NULL) {
            check_node(c, value, item);
        } else if (value->kind != LOONG_TREE_SCALAR) {
            wrong_type(c, value, item, key);
        } else {
            check_scalar(c, value, item, key);
        }
    }
}

static void check_node(check_t *c, const loong_tree_t *node, const char *path)
{
    const loong_recipe_key_t *key = loongi_recipe_find(c->recipe, path);
    bool list_key = key != NULL && (key->type == LOONG_RECIPE_INTS ||
                                    key->type == LOONG_RECIPE_TEXTS);
    if (node->kind == LOONG_TREE_MAP && key == NULL &&
        (path[0] == '\0' || is_branch(c->recipe, path, "."))) {
        for (int64_t i = 0; i < node->count; i++) {
            char child[PATH_SIZE];
            int n = snprintf(child, sizeof(child), "%s%s%s", path,
                             path[0] != '\0' ? "." : "", node->items[i].key);
            if (n >= (int)sizeof(child)) {
                begin_problem(c, node->items[i].value);
                loongi_text_printf(&c->text, "a key is longer than %d",
                                   PATH_SIZE - 1);
                continue;
            }
            check_node(c, node->items[i].value, child);
        }
    } else if (node->kind == LOONG_TREE_LIST &&
               (list_key ||
                (key == NULL && is_branch(c->recipe, path, "[]")))) {
        check_list(c, node, path, key);
    } else if (key == NULL &&
               (is_branch(c->recipe, path, ".") ||
                is_branch(c->recipe, path, "[]"))) {
        if (!node->is_null) {
            begin_problem(c, node);
            loongi_text_printf(&c->text, "%s: found %s, %s wanted", path,
                               node->kind == LOONG_TREE_SCALAR ? node->text
                                                               : "a list",
                               is_branch(c->recipe, path, ".") ? "a map"
                                                               : "a list");
        }
    } else if (key == NULL) {
        unknown_key(c, node, path);
    } else if (node->kind != LOONG_TREE_SCALAR ||
               (list_key && !node->is_null)) {
        wrong_type(c, node, path, key);
    } else {
        check_scalar(c, node, path, key);
    }
}

loong_status_t loongi_recipe_check(const loong_recipe_t *recipe)
{
    check_t c = {recipe, loongi_text_begin(recipe->ctx), 0};
    loong_status_t status = LOONG_OK;
    check_node(&c, recipe->root, "");
    if (c.problems > 0) {
        status = LOONG_FAIL(recipe->ctx, LOONG_ERR_CONFIG,
                            "%d problem%s in the recipe:%s", c.problems,
                            c.problems == 1 ? "" : "s",
                            loongi_text_get(&c.text));
    }
    loongi_text_free(&c.text);
    return status;
}
