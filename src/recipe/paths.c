/* SPDX-License-Identifier: Apache-2.0
 *
 * Other ways of writing values: lists of data sets whose items are paths alone,
 * ranks as a list. Called by recipe.c when all overrides are in. Read
 * recipe_impl.h before. */
#include <stdio.h>

#include "recipe_impl.h"

/* The keys that the text stands for end with NULL. */
static loong_status_t expand_item(loong_recipe_t *r, const char *list,
                                  int64_t i, const char *const *keys,
                                  loong_tree_t *text)
{
    char path[64];
    loong_tree_t *map = NULL;
    snprintf(path, sizeof(path), "%s[%lld]", list, (long long)i);
    LOONG_TRY(loongi_tree_map(r->arena, text->file, text->line, &map));
    for (; *keys != NULL; keys++) {
        LOONG_TRY(loongi_tree_put(r->arena, map, *keys, text->line, text));
    }
    return loongi_tree_edit(r->ctx, r->arena, r->root, path, map, &r->root);
}

/* "ranks: [0, 2, 4-7]" of a component becomes "0,2,4-7". */
static loong_status_t join_ranks(loong_recipe_t *r, const char *role)
{
    char path[64];
    loong_tree_t *joined = NULL;
    loong_text_t text = loongi_text_begin(r->ctx);
    snprintf(path, sizeof(path), "model.%s.ranks", role);
    const loong_tree_t *list = loongi_tree_find(r->root, path);
    bool plain = list != NULL && list->kind == LOONG_TREE_LIST;
    for (int64_t i = 0; plain && i < list->count; i++) {
        const loong_tree_t *item = list->items[i].value;
        plain = item->kind == LOONG_TREE_SCALAR && !item->is_null;
        loongi_text_printf(&text, "%s%s", i > 0 ? "," : "",
                           plain ? item->text : "");
    }
    loong_status_t status = text.status;
    if (status == LOONG_OK && plain && list->count > 0) {
        status = loongi_tree_scalar(r->arena, list->file, text.data, &joined);
    }
    loongi_text_free(&text);
    if (status != LOONG_OK || joined == NULL) {
        return status;
    }
    joined->line = list->line;
    return loongi_tree_edit(r->ctx, r->arena, r->root, path, joined, &r->root);
}

loong_status_t loongi_recipe_expand_paths(loong_recipe_t *recipe)
{
    static const char *const lists[] = {"data.train", "data.validation"};
    static const char *const keys[][3] = {{"path", NULL},
                                          {"path", "name", NULL}};
    for (int l = 0; l < 2; l++) {
        const loong_tree_t *list = loongi_tree_find(recipe->root, lists[l]);
        bool is_list = list != NULL && list->kind == LOONG_TREE_LIST;
        for (int64_t i = 0; is_list && i < list->count; i++) {
            loong_tree_t *item = list->items[i].value;
            if (item->kind == LOONG_TREE_SCALAR && !item->is_null) {
                LOONG_TRY(expand_item(recipe, lists[l], i, keys[l], item));
            }
        }
    }
    for (int64_t i = 0; loong_recipe_component(recipe, i) != NULL; i++) {
        LOONG_TRY(join_ranks(recipe, loong_recipe_component(recipe, i)));
    }
    return LOONG_OK;
}
