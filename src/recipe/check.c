/* SPDX-License-Identifier: Apache-2.0
 *
 * A tree against the schema. Called by recipe.c and together.c, for numbers by
 * read.c and compare.c. Read recipe_impl.h before. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe_impl.h"

enum { PATH_SIZE = LOONG_RECIPE_PATH, HINT_LIMIT = 4, SHORTEST_START = 8 };
static const double LARGEST_WHOLE = 9e15; /* all below are exact */

/* What may stand behind a number, by type. */
typedef struct suffix {
    loong_recipe_type_t type;
    const char *text;
    double factor;
} suffix_t;

static const suffix_t suffixes[] = {
    {LOONG_RECIPE_SECONDS, "ms", 1e-3},
    {LOONG_RECIPE_SECONDS, "s", 1.0},
    {LOONG_RECIPE_SECONDS, "m", 60.0},
    {LOONG_RECIPE_SECONDS, "h", 3600.0},
    {LOONG_RECIPE_SECONDS, "d", 86400.0},
    {LOONG_RECIPE_AMOUNT, "k", 1e3},
    {LOONG_RECIPE_AMOUNT, "M", 1e6},
    {LOONG_RECIPE_AMOUNT, "B", 1e9},
    {LOONG_RECIPE_AMOUNT, "T", 1e12},
    {LOONG_RECIPE_BYTES, "B", 1.0},
    {LOONG_RECIPE_BYTES, "kB", 1e3},
    {LOONG_RECIPE_BYTES, "MB", 1e6},
    {LOONG_RECIPE_BYTES, "GB", 1e9},
    {LOONG_RECIPE_BYTES, "KiB", 1024.0},
    {LOONG_RECIPE_BYTES, "MiB", 1048576.0},
    {LOONG_RECIPE_BYTES, "GiB", 1073741824.0},
};

bool loongi_recipe_is_whole(loong_recipe_type_t type)
{
    return type == LOONG_RECIPE_INT || type == LOONG_RECIPE_AMOUNT ||
           type == LOONG_RECIPE_BYTES || type == LOONG_RECIPE_INTS;
}

bool loongi_recipe_is_number(loong_recipe_type_t type)
{
    return loongi_recipe_is_whole(type) || type == LOONG_RECIPE_REAL ||
           type == LOONG_RECIPE_SECONDS;
}

bool loongi_recipe_number(loong_recipe_type_t type, const char *text,
                          double *value_p)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno == ERANGE || value != value) {
        return false;
    }
    for (int64_t i = 0; *end != '\0' && i < LOONG_COUNT_OF(suffixes); i++) {
        if (suffixes[i].type == type && strcmp(suffixes[i].text, end) == 0) {
            value *= suffixes[i].factor;
            end += strlen(end);
        }
    }
    if (*end != '\0' || value > 1e300 || value < -1e300 ||
        (loongi_recipe_is_whole(type) && value != floor(value))) {
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
    loong_problems_t *problems;
} check_t;

/* What is looked at: a value, and the line where its key stands. */
typedef struct place {
    loong_tree_t *node;
    int line;
    const char *path;
} place_t;

/* One problem, behind the place where it is. */
static void problem(check_t *c, const place_t *at, const char *fmt, ...)
    LOONG_PRINTF(3, 4);

static void problem(check_t *c, const place_t *at, const char *fmt, ...)
{
    char text[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    at->node->is_wrong = true;
    if (at->line > 0) {
        loongi_problems_add(c->problems, "%s:%d: %s", at->node->file,
                            at->line, text);
    } else {
        loongi_problems_add(c->problems, "%s: %s", at->node->file, text);
    }
}

const loong_recipe_key_t *loongi_recipe_nearest(const loong_recipe_t *recipe,
                                                const char *path)
{
    char generic[PATH_SIZE];
    const loong_recipe_key_t *nearest = loong_recipe_meant(path);
    if (nearest != NULL) {
        return nearest;
    }
    loongi_recipe_generic_path(path, generic);
    const char *mine = strrchr(generic, '.');
    mine = mine != NULL ? mine + 1 : generic;
    /* A short name is near to everything. */
    int best = LOONG_MIN((int)strlen(mine) / 2, HINT_LIMIT) + 1;
    for (int64_t i = 0; i < loongi_recipe_count_keys(recipe); i++) {
        const loong_recipe_key_t *key = loongi_recipe_key_at(recipe, i);
        const char *last = strrchr(key->path, '.');
        last = last != NULL ? last + 1 : key->path;
        int distance = loongi_edit_distance(generic, key->path, HINT_LIMIT);
        if (strcmp(last, mine) == 0) {
            distance = LOONG_MIN(distance, 1); /* right name, wrong place */
        } else if (strlen(generic) >= SHORTEST_START &&
                   strncmp(key->path, generic, strlen(generic)) == 0) {
            distance = LOONG_MIN(distance, 2); /* the rest of it is missing */
        }
        if (distance < best) {
            best = distance;
            nearest = key;
        }
    }
    return nearest;
}

/* The likest name of a map on the way to a key: "trian" is "train". */
static bool nearest_branch(const loong_recipe_t *recipe, const char *path,
                           char branch[PATH_SIZE])
{
    int best = LOONG_MIN((int)strlen(path) / 2, HINT_LIMIT) + 1;
    bool found = false;
    for (int64_t i = 0; i < loongi_recipe_count_keys(recipe); i++) {
        const char *key = loongi_recipe_key_at(recipe, i)->path;
        for (const char *dot = strchr(key, '.'); dot != NULL;
             dot = strchr(dot + 1, '.')) {
            char name[PATH_SIZE];
            snprintf(name, sizeof(name), "%.*s", (int)(dot - key), key);
            int distance = loongi_edit_distance(path, name, HINT_LIMIT);
            if (distance < best) {
                best = distance;
                found = true;
                memcpy(branch, name, sizeof(name));
            }
        }
    }
    return found;
}

static void unknown_key(check_t *c, const place_t *at)
{
    char branch[PATH_SIZE];
    const char *near = NULL;
    if (at->node->kind == LOONG_TREE_SCALAR ||
        loong_recipe_meant(at->path) != NULL) {
        const loong_recipe_key_t *key =
            loongi_recipe_nearest(c->recipe, at->path);
        near = key != NULL ? key->path : NULL;
    } else if (nearest_branch(c->recipe, at->path, branch)) {
        near = branch;
    }
    const char *dot = strrchr(at->path, '.');
    bool number = dot != NULL && dot[1] >= '0' && dot[1] <= '9';
    problem(c, at, "unknown key %s%s%s%s%s", at->path,
            near != NULL ? "; did you mean " : "", near != NULL ? near : "",
            near != NULL ? "?" : "",
            number ? "; in {...} a comma ends a value that has no quotes" : "");
}

static bool in_choices(const char *choices, const char *text)
{
    size_t n = strlen(text);
    while (*choices != '\0') {
        size_t word = strcspn(choices, " ");
        if (word == n && memcmp(choices, text, n) == 0) {
            return true;
        }
        choices += word + (choices[word] == ' ');
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
    case LOONG_RECIPE_AMOUNT:
        return "a whole number such as 2000, 2k or 30M";
    case LOONG_RECIPE_BYTES:
        return "a size such as 4096, 32MiB or 1GB";
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

static const char *found_text(const loong_tree_t *node)
{
    switch (node->kind) {
    case LOONG_TREE_MAP:
        return "a map";
    case LOONG_TREE_LIST:
        return "a list";
    case LOONG_TREE_SCALAR:
        break;
    }
    return node->text[0] != '\0' ? node->text : "nothing";
}

static void wrong_type(check_t *c, const place_t *at, const char *wanted)
{
    problem(c, at, "%s: found %s, %s wanted", at->path, found_text(at->node),
            wanted);
}

static void check_scalar(check_t *c, const place_t *at,
                         const loong_recipe_key_t *key)
{
    double value = 0.0;
    double min = key->min;
    double max = key->max;
    bool flag = false;
    const char *text = at->node->text;
    if (min == 0.0 && max == 0.0 && loongi_recipe_is_whole(key->type)) {
        max = LARGEST_WHOLE;
        min = -max;
    }
    switch (key->type) {
    case LOONG_RECIPE_TEXT:
    case LOONG_RECIPE_TEXTS:
        return;
    case LOONG_RECIPE_BOOL:
        if (!loongi_recipe_flag(text, &flag)) {
            wrong_type(c, at, type_text(key->type));
        }
        return;
    case LOONG_RECIPE_CHOICE:
        if (!in_choices(key->choices, text)) {
            problem(c, at, "%s: found %s, allowed: %s", at->path,
                    found_text(at->node), key->choices);
        }
        return;
    case LOONG_RECIPE_INT:
    case LOONG_RECIPE_REAL:
    case LOONG_RECIPE_SECONDS:
    case LOONG_RECIPE_AMOUNT:
    case LOONG_RECIPE_BYTES:
    case LOONG_RECIPE_INTS:
        break;
    }
    if (!loongi_recipe_number(key->type, text, &value)) {
        wrong_type(c, at, type_text(key->type == LOONG_RECIPE_INTS
                                        ? LOONG_RECIPE_INT
                                        : key->type));
    } else if ((min != 0.0 || max != 0.0) && (value < min || value > max)) {
        problem(c, at, "%s: found %s, allowed %.12g to %.12g", at->path, text,
                min, max);
    }
}

/* The one wanted is of the key's items, or of maps. */
static void wrong_list(check_t *c, const place_t *at,
                       const loong_recipe_key_t *key)
{
    bool text = at->node->kind == LOONG_TREE_SCALAR;
    problem(
        c, at, "%s: found %s, %s wanted%s%s%s", at->path, found_text(at->node),
        key != NULL ? type_text(key->type) : "a list of maps",
        text ? ", as in [" : "", text ? at->node->text : "", text ? "]" : "");
}

static void check_node(check_t *c, const place_t *at);

/* key: of a list of numbers or texts; NULL: the items are maps. */
static void check_list(check_t *c, const place_t *list,
                       const loong_recipe_key_t *key)
{
    for (int64_t i = 0; i < list->node->count; i++) {
        char path[PATH_SIZE + 24];
        loong_tree_t *value = list->node->items[i].value;
        place_t at = {value, value->line, path};
        snprintf(path, sizeof(path), "%s[%lld]", list->path, (long long)i);
        if (key == NULL && value->kind != LOONG_TREE_MAP) {
            wrong_type(c, &at, "a map");
        } else if (key == NULL) {
            check_node(c, &at);
        } else if (value->kind != LOONG_TREE_SCALAR || value->is_null) {
            wrong_type(c, &at,
                       key->type == LOONG_RECIPE_INTS ? "a whole number"
                                                      : "a text");
        } else {
            check_scalar(c, &at, key);
        }
    }
}

static void check_map(check_t *c, const place_t *map)
{
    for (int64_t i = 0; i < map->node->count; i++) {
        char path[PATH_SIZE];
        const loong_tree_item_t *item = &map->node->items[i];
        place_t at = {item->value, item->line, path};
        int n = snprintf(path, sizeof(path), "%s%s%s", map->path,
                         map->path[0] != '\0' ? "." : "", item->key);
        if (n >= (int)sizeof(path)) {
            problem(c, &at, "a key is longer than %d", PATH_SIZE - 1);
        } else if (item->key[0] == '\0' ||
                   strpbrk(item->key, ".[]") != NULL) {
            problem(c, &at,
                    "key '%s': a name without . [ ] wanted; a.b is written as "
                    "b inside a",
                    item->key);
        } else {
            check_node(c, &at);
        }
    }
}

/* A list of a model, which families read as a text: [16, 24, 24] is
 * "[16,24,24]". */
static void join_list(check_t *c, const place_t *at)
{
    loong_tree_t *node = at->node;
    loong_text_t text = loongi_text_begin(c->recipe->ctx);
    char *joined = NULL;
    bool scalars = true;
    for (int64_t i = 0; i < node->count; i++) {
        const loong_tree_t *item = node->items[i].value;
        scalars = scalars && item->kind == LOONG_TREE_SCALAR;
        loongi_text_printf(&text, "%s%s", i > 0 ? "," : "[", item->text);
    }
    loongi_text_printf(&text, "]");
    if (scalars && node->count > 0 &&
        loongi_arena_strdup(c->recipe->arena, loongi_text_get(&text),
                            &joined) == LOONG_OK) {
        node->kind = LOONG_TREE_SCALAR;
        node->text = joined;
        node->count = 0;
    }
    loongi_text_free(&text);
}

static void check_node(check_t *c, const place_t *at)
{
    const loong_tree_t *node = at->node;
    const loong_recipe_key_t *key = loongi_recipe_find(c->recipe, at->path);
    if (key != NULL && key->type == LOONG_RECIPE_TEXT &&
        node->kind == LOONG_TREE_LIST &&
        strncmp(at->path, "model.", 6) == 0) {
        join_list(c, at);
    }
    bool lists = loongi_recipe_lists(key);
    bool maps = key == NULL &&
                (at->path[0] == '\0' ||
                 loongi_recipe_is_branch(c->recipe, at->path, "."));
    bool items = key == NULL && !maps &&
                 loongi_recipe_is_branch(c->recipe, at->path, "[]");
    if (key == NULL && !maps && !items) {
        unknown_key(c, at);
    } else if (node->is_null) {
        return; /* as if it were not there */
    } else if (key == NULL && maps) {
        if (node->kind == LOONG_TREE_MAP) {
            check_map(c, at);
        } else {
            wrong_type(c, at, "a map");
        }
    } else if (key == NULL || lists) {
        if (node->kind == LOONG_TREE_LIST) {
            check_list(c, at, key);
        } else {
            wrong_list(c, at, key);
        }
    } else if (node->kind != LOONG_TREE_SCALAR) {
        wrong_type(c, at, type_text(key->type));
    } else {
        check_scalar(c, at, key);
    }
}

void loongi_recipe_judge_schema(const loong_recipe_t *recipe,
                                loong_problems_t *problems)
{
    check_t c = {recipe, problems};
    place_t all = {recipe->root, recipe->root->line, ""};
    check_map(&c, &all);
    loongi_scope_keys_check(recipe, problems);
}

loong_status_t loongi_recipe_check_schema(const loong_recipe_t *recipe)
{
    loong_problems_t problems = loongi_problems_begin(recipe->ctx);
    loongi_recipe_judge_schema(recipe, &problems);
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "the recipe");
}
