/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading with defaults and overrides; values. Called by the tools and by what
 * plans a run. Read loong/recipe.h and tree.h before. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "recipe_impl.h"
#include "rng.h"

enum { PATH_LENGTH = 1024, FILE_LENGTH = 2 * PATH_LENGTH + 2, MAX_CHAIN = 16 };

/* Files being loaded, innermost last: a file cannot be its own default, by
 * whatever name. */
typedef struct chain {
    int depth;
    int placed; /* files put at some place of a recipe, "@place" */
    struct {
        dev_t device;
        ino_t inode;
    } files[MAX_CHAIN];
} chain_t;

static loong_status_t load_file(loong_recipe_t *r, const char *path,
                                chain_t *chain, loong_tree_t **tree_p);

/* ---- defaults ----------------------------------------------------------- */

/* Beside the file that asks, else in the directory of configurations. */
static bool resolve(const loong_recipe_t *r, const char *asking,
                    const char *wanted, char found[FILE_LENGTH])
{
    const char *slash = strrchr(asking, '/');
    if (wanted[0] == '/' || slash == NULL) {
        snprintf(found, FILE_LENGTH, "%s", wanted);
    } else {
        snprintf(found, FILE_LENGTH, "%.*s/%s", (int)(slash - asking), asking,
                 wanted);
    }
    if (access(found, R_OK) == 0) {
        return true;
    }
    if (r->params.config_dir == NULL) {
        return false;
    }
    snprintf(found, FILE_LENGTH, "%s/%s", r->params.config_dir, wanted);
    return access(found, R_OK) == 0;
}

/* One line of defaults: "file" or "file@place". */
static loong_status_t load_default(loong_recipe_t *r, const char *asking,
                                   const loong_tree_t *item, chain_t *chain,
                                   loong_tree_t **under_p)
{
    char wanted[PATH_LENGTH];
    char found[FILE_LENGTH];
    const char *text = item->text;
    const char *at = strrchr(text, '@');
    size_t n = at != NULL ? (size_t)(at - text) : strlen(text);
    LOONG_CHECK(r->ctx,
                item->kind == LOONG_TREE_SCALAR && n > 0 && n < PATH_LENGTH &&
                    (at == NULL || loongi_tree_is_path(at + 1)),
                LOONG_ERR_CONFIG,
                "%s:%d: defaults: found %s, file or file@place.in.recipe "
                "wanted",
                item->file, item->line,
                item->kind == LOONG_TREE_SCALAR ? text : "no text");
    snprintf(wanted, sizeof(wanted), "%.*s", (int)n, text);
    LOONG_CHECK(r->ctx, resolve(r, asking, wanted, found), LOONG_ERR_NOT_FOUND,
                "%s:%d: defaults: no file '%s' beside this one%s%s",
                item->file, item->line, wanted,
                r->params.config_dir != NULL ? " or in " : "",
                r->params.config_dir != NULL ? r->params.config_dir : "");
    loong_tree_t *tree = NULL;
    chain->placed += at != NULL;
    loong_status_t status = load_file(r, found, chain, &tree);
    chain->placed -= at != NULL;
    if (status != LOONG_OK) {
        loongi_error_note(r->ctx, "among the defaults of %s:%d", item->file,
                          item->line);
        return status;
    }
    if (at != NULL) {
        LOONG_TRY(loongi_tree_edit(r->ctx, r->arena, NULL, at + 1, tree,
                                   &tree));
    }
    return loongi_tree_merge(r->arena, *under_p, tree, under_p);
}

/* ---- short forms: "model: qwen3/qwen3_8b", "foundation:", "finetune: lora" */

static bool is_preset(const loong_tree_t *model)
{
    return model != NULL && model->kind == LOONG_TREE_SCALAR &&
           !model->is_null;
}

#define METHOD "finetune.method"

/* A text in the place of a map is the map's first key. */
static loong_status_t place_method(loong_recipe_t *r, loong_tree_t *method,
                                   loong_tree_t **root_p)
{
    if (loongi_tree_get(*root_p, "finetune") != NULL) {
        LOONG_TRY(loongi_tree_edit(r->ctx, r->arena, *root_p, "finetune", NULL,
                                   root_p));
    }
    return loongi_tree_edit(r->ctx, r->arena, *root_p, METHOD, method, root_p);
}

static loong_status_t no_preset(loong_recipe_t *r, const loong_tree_t *item)
{
    char where[32] = "";
    const char *dir = r->params.config_dir;
    loong_text_t text = loongi_text_begin(r->ctx);
    if (item->line > 0) {
        snprintf(where, sizeof(where), ":%d", item->line);
    }
    loongi_text_printf(&text, "%s%s: model: no preset '%s': no file "
                       "models/%s.yaml beside this one%s%s",
                       item->file, where, item->text, item->text,
                       dir != NULL ? " or in " : "", dir != NULL ? dir : "");
    if (dir != NULL) {
        loongi_recipe_suggest_preset(dir, item->text, &text);
    }
    loong_status_t status = LOONG_FAIL(r->ctx, LOONG_ERR_NOT_FOUND, "%s",
                                       loongi_text_get(&text));
    loongi_text_free(&text);
    return status;
}

/* Puts the file of a preset in place of the model of a recipe: one of several
 * components names them, another is a language model. */
static loong_status_t load_preset(loong_recipe_t *r, const char *asking,
                                  const loong_tree_t *item, chain_t *chain,
                                  loong_tree_t **root_p)
{
    char wanted[PATH_LENGTH];
    char found[FILE_LENGTH];
    loong_tree_t *tree = NULL;
    int n = snprintf(wanted, sizeof(wanted), "models/%s.yaml", item->text);
    if (n >= PATH_LENGTH || !resolve(r, asking, wanted, found)) {
        return no_preset(r, item);
    }
    chain->placed++;
    LOONG_TRY(load_file(r, found, chain, &tree));
    chain->placed--;
    if (loongi_tree_get(*root_p, "model") != NULL) {
        LOONG_TRY(loongi_tree_edit(r->ctx, r->arena, *root_p, "model", NULL,
                                   root_p));
    }
    const char *place = loongi_tree_get(tree, "foundation") != NULL
                            ? "model"
                            : "model.foundation";
    return loongi_tree_edit(r->ctx, r->arena, *root_p, place, tree, root_p);
}

static loong_status_t place_part(loong_recipe_t *r, const char *role,
                                 loong_tree_t **tree_p)
{
    char path[64];
    loong_tree_t *part = loongi_tree_get(*tree_p, role);
    if (part == NULL) {
        return LOONG_OK;
    }
    snprintf(path, sizeof(path), "model.%s", role);
    const loong_tree_t *whole = loongi_tree_find(*tree_p, path);
    LOONG_CHECK(r->ctx, whole == NULL, LOONG_ERR_CONFIG,
                "%s:%d: %s: %s in line %d is the same, one of them wanted",
                part->file, part->line, role, path, whole->line);
    (void)loongi_tree_remove(*tree_p, role);
    return loongi_tree_edit(r->ctx, r->arena, *tree_p, path, part, tree_p);
}

/* Of a file that is a whole recipe. */
static loong_status_t expand(loong_recipe_t *r, const char *path,
                             loong_tree_t **tree_p, chain_t *chain,
                             loong_tree_t **under_p)
{
    loong_tree_t *tree = *tree_p;
    const loong_tree_t *model = loongi_tree_get(tree, "model");
    if (is_preset(model)) {
        LOONG_TRY(load_preset(r, path, model, chain, under_p));
        (void)loongi_tree_remove(tree, "model");
    }
    if (is_preset(loongi_tree_get(tree, "finetune"))) {
        LOONG_TRY(place_method(r, loongi_tree_get(tree, "finetune"), tree_p));
        tree = *tree_p;
    }
    for (int i = 0; i < LOONG_MODEL_ROLES; i++) {
        LOONG_TRY(place_part(r, loong_recipe_roles[i], tree_p));
    }
    return LOONG_OK;
}

/* Lays a document over its defaults. */
static loong_status_t compose(loong_recipe_t *r, const char *path,
                              loong_tree_t *tree, chain_t *chain,
                              loong_tree_t **tree_p)
{
    if (tree == NULL) {
        return loongi_tree_map(r->arena, path, 0, tree_p);
    }
    LOONG_CHECK(r->ctx, tree->kind == LOONG_TREE_MAP, LOONG_ERR_CONFIG,
                "%s:%d: a recipe is a map of keys", tree->file, tree->line);
    const loong_tree_t *list = loongi_tree_get(tree, "defaults");
    loong_tree_t *under = NULL;
    if (list != NULL) {
        LOONG_CHECK(r->ctx, list->kind == LOONG_TREE_LIST, LOONG_ERR_CONFIG,
                    "%s:%d: defaults: a list of files wanted", list->file,
                    list->line);
        for (int64_t i = 0; i < list->count; i++) {
            LOONG_TRY(load_default(r, path, list->items[i].value, chain,
                                   &under));
        }
        loongi_tree_remove(tree, "defaults");
    }
    if (chain->placed == 0) {
        LOONG_TRY(expand(r, path, &tree, chain, &under));
    }
    return loongi_tree_merge(r->arena, under, tree, tree_p);
}

/* Enters a file, unless it is being loaded already. */
static loong_status_t push(loong_recipe_t *r, const char *path,
                           chain_t *chain)
{
    struct stat info;
    LOONG_CHECK(r->ctx, stat(path, &info) == 0, LOONG_ERR_NOT_FOUND,
                "%s: %s", path, strerror(errno));
    LOONG_CHECK(r->ctx, !S_ISDIR(info.st_mode), LOONG_ERR_CONFIG,
                "%s is a directory, a recipe file wanted", path);
    LOONG_CHECK(r->ctx, chain->depth < MAX_CHAIN, LOONG_ERR_CONFIG,
                "%s: defaults nested deeper than %d", path, MAX_CHAIN);
    for (int i = 0; i < chain->depth; i++) {
        LOONG_CHECK(r->ctx,
                    chain->files[i].device != info.st_dev ||
                        chain->files[i].inode != info.st_ino,
                    LOONG_ERR_CONFIG, "%s is among its own defaults", path);
    }
    chain->files[chain->depth].device = info.st_dev;
    chain->files[chain->depth++].inode = info.st_ino;
    return LOONG_OK;
}

static loong_status_t load_file(loong_recipe_t *r, const char *path,
                                chain_t *chain, loong_tree_t **tree_p)
{
    char *text = NULL;
    size_t length = 0;
    loong_tree_t *tree = NULL;
    char *name = NULL;
    LOONG_TRY(push(r, path, chain));
    LOONG_TRY(loongi_arena_strdup(r->arena, path, &name));
    LOONG_TRY(loongi_file_read(r->ctx, path, &text, &length));
    loong_status_t status =
        loongi_tree_parse(r->ctx, r->arena, path, text, length, &tree);
    loongi_free(r->ctx, text);
    LOONG_TRY(status);
    LOONG_CHECK(r->ctx, tree != NULL, LOONG_ERR_CONFIG,
                "%s:1: no keys in it, a recipe is a map of keys", path);
    LOONG_TRY(compose(r, name, tree, chain, tree_p));
    chain->depth--;
    return LOONG_OK;
}

/* ---- overrides ---------------------------------------------------------- */

static const char command_line[] = "command line";

/* "foundation.x" is short for "model.foundation.x", and so on. */
static void whole_path(const char *text, int length, char path[PATH_LENGTH])
{
    bool is_short = false;
    for (int i = 0; i < LOONG_MODEL_ROLES; i++) {
        size_t n = strlen(loong_recipe_roles[i]);
        is_short = is_short ||
                   (strncmp(text, loong_recipe_roles[i], n) == 0 &&
                    ((size_t)length == n || text[n] == '.'));
    }
    snprintf(path, PATH_LENGTH, "%s%.*s", is_short ? "model." : "", length,
             text);
}

/* A bare text is cut where YAML has a comment, which nobody means here. */
static bool is_cut(const char *text, const loong_tree_t *value)
{
    text += strspn(text, " ");
    return (value == NULL || value->kind == LOONG_TREE_SCALAR) &&
           strchr("'\"", text[0]) == NULL &&
           (text[0] == '#' || strstr(text, " #") != NULL);
}

/* "a.0.b" of a list is "a[0].b". */
static loong_status_t check_index(const loong_recipe_t *r, const char *path)
{
    for (const char *dot = strchr(path, '.'); dot != NULL;
         dot = strchr(dot + 1, '.')) {
        char list[PATH_LENGTH];
        size_t digits = strspn(dot + 1, "0123456789");
        snprintf(list, sizeof(list), "%.*s", (int)(dot - path), path);
        LOONG_CHECK(r->ctx,
                    digits == 0 || strchr(".", dot[1 + digits]) == NULL ||
                        !loongi_recipe_is_branch(r, list, "[]"),
                    LOONG_ERR_CONFIG,
                    "%s: %s is a list; did you mean %s[%.*s]%s?", path, list,
                    list, (int)digits, dot + 1, dot + 1 + digits);
    }
    return LOONG_OK;
}

/* "a.b=value" without its signs. */
static loong_status_t assign(loong_recipe_t *r, const char *text, bool add)
{
    char path[PATH_LENGTH];
    loong_tree_t *value = NULL;
    const char *equal = strchr(text, '=');
    LOONG_CHECK(r->ctx, equal != NULL && equal - text < PATH_LENGTH - 8,
                LOONG_ERR_CONFIG, "a.b=c, +a.b=c, ++a.b=c or ~a.b wanted");
    whole_path(text, (int)(equal - text), path);
    LOONG_TRY(check_index(r, path));
    LOONG_TRY(loongi_tree_parse(r->ctx, r->arena, command_line, equal + 1,
                                strlen(equal + 1), &value));
    LOONG_CHECK(r->ctx, !is_cut(equal + 1, value), LOONG_ERR_CONFIG,
                "a '#' begins a comment: %s='...' in quotation marks keeps it",
                path);
    if (value == NULL) {
        LOONG_TRY(loongi_tree_scalar(r->arena, command_line, "", &value));
    }
    value->line = 0;
    const loong_tree_t *there = loongi_tree_find(r->root, path);
    LOONG_CHECK(r->ctx, !add || there == NULL, LOONG_ERR_CONFIG,
                "the key is set already; %s=... changes it",
                path);
    LOONG_CHECK(r->ctx,
                value->kind != LOONG_TREE_MAP || value->count > 0 ||
                    there == NULL || there->kind != LOONG_TREE_MAP ||
                    there->count == 0,
                LOONG_ERR_CONFIG,
                "a map is added to what is there, an empty one changes "
                "nothing: ~%s takes all of it away", path);
    if (strcmp(path, "model") == 0 && is_preset(value)) {
        chain_t chain = {0};
        return load_preset(r, command_line, value, &chain, &r->root);
    }
    return strcmp(path, "finetune") == 0 && is_preset(value)
               ? place_method(r, value, &r->root)
               : loongi_tree_edit(r->ctx, r->arena, r->root, path, value,
                                  &r->root);
}

static loong_status_t apply_override(loong_recipe_t *r, const char *text)
{
    loong_status_t status;
    if (text[0] == '~') {
        char path[PATH_LENGTH];
        whole_path(text + 1, (int)LOONG_MIN(strlen(text + 1), PATH_LENGTH - 8),
                   path);
        status = loongi_tree_edit(r->ctx, r->arena, r->root, path, NULL,
                                  &r->root);
    } else if (text[0] == '+') {
        bool force = text[1] == '+';
        status = assign(r, text + 1 + force, !force);
    } else {
        status = assign(r, text, false);
    }
    if (status != LOONG_OK) {
        loongi_error_note(r->ctx, "in the override '%s'", text);
    }
    return status;
}

/* ---- object ------------------------------------------------------------- */

static loong_status_t create(loong_context_t *ctx,
                             const loong_recipe_params_t *params,
                             loong_recipe_t **recipe_p)
{
    loong_recipe_t *r = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*r), "recipe", &r));
    r->ctx = ctx;
    r->printed = loongi_text_begin(ctx);
    if (params != NULL) {
        r->params = *params;
    }
    loong_status_t status = loongi_arena_create(ctx, "recipe", &r->arena);
    if (status == LOONG_OK) {
        status = loongi_arena_alloc(r->arena, sizeof(*r->status), &r->status);
    }
    if (status == LOONG_OK) {
        status = loongi_recipe_sort_keys(r);
    }
    if (status != LOONG_OK) {
        loong_recipe_destroy(&r);
        return status;
    }
    *recipe_p = r;
    return LOONG_OK;
}

/* Marks what is wrong; a failure unless it is told later. */
static loong_status_t judge(const loong_recipe_t *r)
{
    loong_problems_t problems = loongi_problems_begin(r->ctx);
    if (!r->judged_later) {
        return loongi_recipe_check_schema(r);
    }
    loongi_recipe_judge_schema(r, &problems);
    loongi_text_free(&problems.text);
    return LOONG_OK;
}

/* own: the recipe's file; NULL: it may name no code. */
static loong_status_t finish(loong_recipe_t *r, const char *own,
                             loong_status_t status, loong_recipe_t **recipe_p)
{
    for (int i = 0; i < r->params.num_overrides && status == LOONG_OK; i++) {
        status = apply_override(r, r->params.overrides[i]);
    }
    if (status == LOONG_OK) {
        status = loongi_recipe_expand_paths(r);
    }
    if (status == LOONG_OK && own != NULL) {
        status = loongi_recipe_load_extensions(r, own);
    }
    if (status == LOONG_OK) {
        status = judge(r);
    }
    if (status != LOONG_OK) {
        loong_recipe_destroy(&r);
        return status;
    }
    *recipe_p = r;
    return LOONG_OK;
}

static loong_status_t load(loong_context_t *ctx, const char *path,
                           const loong_recipe_params_t *params,
                           bool judged_later, loong_recipe_t **recipe_p)
{
    loong_recipe_t *r = NULL;
    chain_t *chain = NULL;
    LOONG_TRY(create(ctx, params, &r));
    r->judged_later = judged_later;
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*chain), "recipe files", &chain);
    if (status == LOONG_OK) {
        status = load_file(r, path, chain, &r->root);
        loongi_free(ctx, chain);
    }
    return finish(r, path, status, recipe_p);
}

loong_status_t loong_recipe_load(loong_context_t *ctx, const char *path,
                                 const loong_recipe_params_t *params,
                                 loong_recipe_t **recipe_p)
{
    return load(ctx, path, params, false, recipe_p);
}

loong_status_t loong_recipe_load_unjudged(loong_context_t *ctx,
                                          const char *path,
                                          const loong_recipe_params_t *params,
                                          loong_recipe_t **recipe_p)
{
    return load(ctx, path, params, true, recipe_p);
}

loong_status_t loong_recipe_parse(loong_context_t *ctx, const char *name,
                                  const char *text,
                                  const loong_recipe_params_t *params,
                                  loong_recipe_t **recipe_p)
{
    loong_recipe_t *r = NULL;
    chain_t *chain = NULL;
    loong_tree_t *tree = NULL;
    LOONG_TRY(create(ctx, params, &r));
    loong_status_t status =
        loongi_alloc(ctx, sizeof(*chain), "recipe files", &chain);
    if (status == LOONG_OK) {
        status = loongi_tree_parse(ctx, r->arena, name, text, strlen(text),
                                   &tree);
    }
    if (status == LOONG_OK) {
        status = compose(r, name, tree, chain, &r->root);
    }
    loongi_free(ctx, chain);
    return finish(r, NULL, status, recipe_p);
}

loong_status_t loong_recipe_derive(loong_context_t *ctx,
                                   const loong_recipe_t *recipe,
                                   int num_overrides,
                                   const char *const *overrides,
                                   loong_recipe_t **recipe_p)
{
    loong_recipe_t *r = NULL;
    loong_recipe_params_t params = recipe->params;
    params.num_overrides = num_overrides;
    params.overrides = overrides;
    LOONG_TRY(create(ctx, &params, &r));
    r->root = recipe->root;
    r->extensions_hash = recipe->extensions_hash;
    return finish(r, NULL, LOONG_OK, recipe_p);
}

void loong_recipe_destroy(loong_recipe_t **recipe_p)
{
    loong_recipe_t *r = *recipe_p;
    if (r != NULL) {
        loongi_text_free(&r->printed);
        loongi_arena_destroy(&r->arena);
        loongi_free(r->ctx, r);
        *recipe_p = NULL;
    }
}

loong_status_t loong_recipe_set(loong_recipe_t *recipe, const char *path,
                                const char *value, const char *origin)
{
    loong_recipe_t *r = recipe;
    loong_tree_t *node = NULL;
    char *from = NULL;
    LOONG_TRY(loongi_arena_strdup(r->arena, origin, &from));
    LOONG_TRY(loongi_recipe_lists(loongi_recipe_find(r, path))
                  ? loongi_tree_parse(r->ctx, r->arena, from, value,
                                      strlen(value), &node)
                  : loongi_tree_scalar(r->arena, from, value, &node));
    loong_tree_t *before = r->root;
    LOONG_TRY(loongi_tree_edit(r->ctx, r->arena, before, path, node,
                               &r->root));
    loong_status_t status = judge(r);
    if (status != LOONG_OK) {
        r->root = before;
    }
    return status;
}

/* ---- text --------------------------------------------------------------- */

/* The value of a key for the whole recipe: what was set, else its default; of
 * "data.train[].path" the list. NULL: neither. */
static loong_status_t whole_value(loong_recipe_t *r,
                                  const loong_recipe_key_t *key,
                                  char path[PATH_LENGTH],
                                  loong_tree_t **value_p)
{
    snprintf(path, PATH_LENGTH, "%.*s", (int)strcspn(key->path, "["),
             key->path);
    loong_tree_t *node = loongi_tree_find(r->root, path);
    *value_p = node != NULL && !node->is_null ? node : NULL;
    if (*value_p == NULL && key->fallback != NULL &&
        strchr(key->path, '[') == NULL) {
        return loongi_tree_scalar(r->arena, "default", key->fallback, value_p);
    }
    return LOONG_OK;
}

loong_status_t loong_recipe_print(loong_recipe_t *recipe, bool origins,
                                  const char **text_p)
{
    loong_recipe_t *r = recipe;
    loong_tree_t *whole = NULL;
    LOONG_TRY(loongi_tree_map(r->arena, "default", 0, &whole));
    for (int64_t i = 0; i < loongi_recipe_count_keys(r); i++) {
        char path[PATH_LENGTH];
        loong_tree_t *value = NULL;
        LOONG_TRY(whole_value(r, loongi_recipe_key_at(r, i), path, &value));
        if (value != NULL) {
            LOONG_TRY(loongi_tree_edit(r->ctx, r->arena, whole, path, value,
                                       &whole));
        }
    }
    loongi_text_free(&r->printed);
    r->printed = loongi_text_begin(r->ctx);
    loongi_tree_print(whole, origins, &r->printed);
    LOONG_TRY(r->printed.status);
    *text_p = loongi_text_get(&r->printed);
    return LOONG_OK;
}

loong_status_t loong_recipe_hash(loong_recipe_t *recipe, uint64_t *hash_p)
{
    const char *text = NULL;
    LOONG_TRY(loong_recipe_print(recipe, false, &text));
    *hash_p = loongi_rng_name(text) + recipe->extensions_hash;
    return LOONG_OK;
}
