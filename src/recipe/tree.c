/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes of a YAML document: make, find, change, free. Called by the parser, by
 * recipe.c and by name maps of checkpoints. Read tree.h before. */
#include "tree.h"

#include <stdlib.h>
#include <string.h>

loong_status_t loongi_tree_map(loong_arena_t *arena, const char *file,
                               int line, loong_tree_t **tree_p)
{
    loong_tree_t *node = NULL;
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*node), &node));
    node->kind = LOONG_TREE_MAP;
    node->text = "";
    node->file = file;
    node->line = line;
    *tree_p = node;
    return LOONG_OK;
}

loong_status_t loongi_tree_scalar(loong_arena_t *arena, const char *file,
                                  const char *text, loong_tree_t **tree_p)
{
    loong_tree_t *node = NULL;
    char *copy = NULL;
    LOONG_TRY(loongi_arena_alloc(arena, sizeof(*node), &node));
    LOONG_TRY(loongi_arena_strdup(arena, text, &copy));
    node->kind = LOONG_TREE_SCALAR;
    node->text = copy;
    node->file = file;
    *tree_p = node;
    return LOONG_OK;
}

static loong_tree_item_t *find_item(const loong_tree_t *map, const char *key)
{
    if (map == NULL || map->kind != LOONG_TREE_MAP) {
        return NULL;
    }
    for (int64_t i = 0; i < map->count; i++) {
        if (strcmp(map->items[i].key, key) == 0) {
            return &map->items[i];
        }
    }
    return NULL;
}

loong_tree_t *loongi_tree_get(const loong_tree_t *map, const char *key)
{
    const loong_tree_item_t *item = find_item(map, key);
    return item != NULL ? item->value : NULL;
}

static loong_status_t append(loong_arena_t *arena, loong_tree_t *node,
                             loong_tree_item_t item)
{
    if (node->count == node->capacity) {
        int64_t capacity = LOONG_MAX(node->capacity * 2, 8);
        loong_tree_item_t *items = NULL;
        LOONG_TRY(loongi_arena_alloc(arena, (size_t)capacity * sizeof(*items),
                                     &items));
        if (node->count > 0) {
            memcpy(items, node->items, (size_t)node->count * sizeof(*items));
        }
        node->items = items;
        node->capacity = capacity;
    }
    node->items[node->count++] = item;
    return LOONG_OK;
}

loong_status_t loongi_tree_add(loong_arena_t *arena, loong_tree_t *list,
                               loong_tree_t *value)
{
    loong_tree_item_t item = {NULL, value->line, value};
    return append(arena, list, item);
}

loong_status_t loongi_tree_put(loong_arena_t *arena, loong_tree_t *map,
                               const char *key, int line, loong_tree_t *value)
{
    loong_tree_item_t *item = find_item(map, key);
    if (item != NULL) {
        item->value = value;
        item->line = line;
        return LOONG_OK;
    }
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(arena, key, &copy));
    loong_tree_item_t added = {copy, line, value};
    return append(arena, map, added);
}

bool loongi_tree_remove(loong_tree_t *map, const char *key)
{
    loong_tree_item_t *item = find_item(map, key);
    if (item == NULL) {
        return false;
    }
    int64_t at = item - map->items;
    memmove(item, item + 1, (size_t)(map->count - at - 1) * sizeof(*item));
    map->count--;
    return true;
}

loong_status_t loongi_tree_merge(loong_arena_t *arena,
                                 const loong_tree_t *under, loong_tree_t *over,
                                 loong_tree_t **merged_p)
{
    loong_tree_t *merged = NULL;
    if (under == NULL || under->kind != LOONG_TREE_MAP ||
        over->kind != LOONG_TREE_MAP) {
        *merged_p = over;
        return LOONG_OK;
    }
    LOONG_TRY(loongi_tree_map(arena, over->file, over->line, &merged));
    for (int64_t i = 0; i < under->count; i++) {
        const loong_tree_item_t *item = &under->items[i];
        LOONG_TRY(loongi_tree_put(arena, merged, item->key, item->line,
                                  item->value));
    }
    for (int64_t i = 0; i < over->count; i++) {
        const loong_tree_item_t *item = &over->items[i];
        loong_tree_t *value = NULL;
        LOONG_TRY(loongi_tree_merge(arena, loongi_tree_get(under, item->key),
                                    item->value, &value));
        LOONG_TRY(
            loongi_tree_put(arena, merged, item->key, item->line, value));
    }
    *merged_p = merged;
    return LOONG_OK;
}

loong_tree_t *loongi_tree_find(const loong_tree_t *root, const char *path)
{
    enum { PART = 128 };
    char part[PART];
    const loong_tree_t *node = root;
    while (*path != '\0' && node != NULL) {
        size_t n = strcspn(path, ".[");
        if (n >= PART) {
            return NULL;
        }
        memcpy(part, path, n);
        part[n] = '\0';
        if (n > 0) {
            node = loongi_tree_get(node, part);
        }
        path += n;
        if (*path == '[' && node != NULL) {
            char *end = NULL;
            long long index = strtoll(path + 1, &end, 10);
            if (*end != ']' || node->kind != LOONG_TREE_LIST || index < 0 ||
                index >= node->count) {
                return NULL;
            }
            node = node->items[index].value;
            path = end + 1;
        }
        path += *path == '.';
    }
    return (loong_tree_t *)(uintptr_t)node;
}

/* ---- changes ------------------------------------------------------------- */

bool loongi_tree_is_path(const char *path)
{
    for (;;) {
        size_t n = strcspn(path, ".[]");
        if (n == 0) {
            return false;
        }
        path += n;
        while (*path == '[') {
            n = strspn(path + 1, "0123456789");
            if (n == 0 || n > 9 || path[1 + n] != ']') {
                return false;
            }
            path += n + 2;
        }
        if (*path != '.') {
            return *path == '\0';
        }
        path++;
    }
}

typedef struct edit {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *path; /* whole, for messages */
    loong_tree_t *value;
} edit_t;

static loong_status_t edit(const edit_t *e, const loong_tree_t *node,
                           const char *rest, loong_tree_t **edited_p);

static loong_status_t edit_key(const edit_t *e, const loong_tree_t *node,
                               const char *rest, loong_tree_t **edited_p)
{
    loong_tree_t *map = NULL;
    loong_tree_t *child = NULL;
    char *key = NULL;
    size_t n = strcspn(rest, ".[");
    bool is_map = node != NULL && node->kind == LOONG_TREE_MAP;
    LOONG_TRY(loongi_arena_printf(e->arena, &key, "%.*s", (int)n, rest));
    rest += n;
    const loong_tree_item_t *item = find_item(node, key);
    const loong_tree_t *old = item != NULL ? item->value : NULL;
    LOONG_CHECK(e->ctx, e->value != NULL || old != NULL, LOONG_ERR_CONFIG,
                "%s: the key is not set", e->path);
    LOONG_TRY(edit(e, old, rest + (*rest == '.'), &child));
    const loong_tree_t *origin = is_map ? node : e->value;
    LOONG_TRY(loongi_tree_map(e->arena, origin->file, origin->line, &map));
    if (is_map) {
        LOONG_TRY(loongi_tree_merge(e->arena, node, map, &map));
    }
    if (child == NULL) {
        (void)loongi_tree_remove(map, key);
    } else {
        bool on_the_way = *rest != '\0' && item != NULL;
        LOONG_TRY(loongi_tree_put(e->arena, map, key,
                                  on_the_way ? item->line : child->line,
                                  child));
    }
    *edited_p = map;
    return LOONG_OK;
}

static loong_status_t edit_item(const edit_t *e, const loong_tree_t *node,
                                const char *rest, loong_tree_t **edited_p)
{
    loong_tree_t *list = NULL;
    char *end = NULL;
    int64_t index = strtoll(rest + 1, &end, 10);
    bool is_list = node != NULL && node->kind == LOONG_TREE_LIST;
    LOONG_CHECK(e->ctx, is_list, LOONG_ERR_CONFIG, "%s: there is no list",
                e->path);
    LOONG_CHECK(e->ctx, index < node->count + (e->value != NULL),
                LOONG_ERR_CONFIG, "%s: the list has %lld items", e->path,
                (long long)node->count);
    LOONG_TRY(loongi_tree_map(e->arena, node->file, node->line, &list));
    list->kind = LOONG_TREE_LIST;
    rest = end + 1;
    rest += *rest == '.';
    for (int64_t i = 0; i < node->count || i == index; i++) {
        loong_tree_t *child = i < node->count ? node->items[i].value : NULL;
        if (i == index) {
            LOONG_TRY(edit(e, child, rest, &child));
        }
        if (child != NULL) {
            LOONG_TRY(loongi_tree_add(e->arena, list, child));
        }
    }
    *edited_p = list;
    return LOONG_OK;
}

static loong_status_t edit(const edit_t *e, const loong_tree_t *node,
                           const char *rest, loong_tree_t **edited_p)
{
    if (*rest == '[') {
        return edit_item(e, node, rest, edited_p);
    }
    if (*rest != '\0') {
        return edit_key(e, node, rest, edited_p);
    }
    if (e->value == NULL) {
        *edited_p = NULL;
        return LOONG_OK;
    }
    return loongi_tree_merge(e->arena, node, e->value, edited_p);
}

loong_status_t loongi_tree_edit(loong_context_t *ctx, loong_arena_t *arena,
                                const loong_tree_t *root, const char *path,
                                loong_tree_t *value, loong_tree_t **edited_p)
{
    edit_t e = {ctx, arena, path, value};
    LOONG_CHECK(ctx, loongi_tree_is_path(path), LOONG_ERR_CONFIG,
                "'%s' is no path such as a.b or a.b[0].c", path);
    return edit(&e, root, path, edited_p);
}
