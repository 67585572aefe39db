/* SPDX-License-Identifier: Apache-2.0 */
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

loong_status_t loongi_tree_put(loong_arena_t *arena, loong_tree_t *map,
                               const char *key, int line, loong_tree_t *value)
{
    loong_tree_item_t *item = find_item(map, key);
    if (item != NULL) {
        item->value = value;
        item->line = line;
        return LOONG_OK;
    }
    if (map->count == map->capacity) {
        int64_t capacity = LOONG_MAX(map->capacity * 2, 8);
        loong_tree_item_t *items = NULL;
        LOONG_TRY(loongi_arena_alloc(arena, (size_t)capacity * sizeof(*items),
                                     &items));
        if (map->count > 0) {
            memcpy(items, map->items, (size_t)map->count * sizeof(*items));
        }
        map->items = items;
        map->capacity = capacity;
    }
    char *copy = NULL;
    LOONG_TRY(loongi_arena_strdup(arena, key, &copy));
    item = &map->items[map->count++];
    item->key = copy;
    item->line = line;
    item->value = value;
    return LOONG_OK;
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

/* ---- printing ------------------------------------------------------------------ */

static bool is_plain(const char *text)
{
    if (text[0] == '\0' || strpbrk(text, "\n\t\"'\\#{}[],&*!|>%@`") != NULL ||
        strstr(text, ": ") != NULL || text[0] == '-' || text[0] == '?' ||
        text[0] == ' ' || text[strlen(text) - 1] == ' ' ||
        text[strlen(text) - 1] == ':') {
        char *end = NULL;
        (void)(strtod(text, &end)); /* "-1" needs no quotes */
        return text[0] == '-' && end != text && *end == '\0';
    }
    return true;
}

static void print_scalar(const loong_tree_t *node, loong_text_t *text)
{
    if (node->is_null) {
        loongi_text_printf(text, "null");
    } else if (is_plain(node->text)) {
        loongi_text_printf(text, "%s", node->text);
    } else {
        loongi_text_printf(text, "\"");
        for (const char *c = node->text; *c != '\0'; c++) {
            if (*c == '\n') {
                loongi_text_printf(text, "\\n");
            } else if (*c == '\t') {
                loongi_text_printf(text, "\\t");
            } else {
                loongi_text_printf(text, *c == '"' || *c == '\\' ? "\\%c"
                                                                 : "%c",
                                   *c);
            }
        }
        loongi_text_printf(text, "\"");
    }
}

static void print_node(const loong_tree_t *node, int depth, bool origins,
                       loong_text_t *text);

static void print_value(const loong_tree_t *node, int depth, bool origins,
                        loong_text_t *text)
{
    if (node->kind != LOONG_TREE_SCALAR && node->count > 0) {
        loongi_text_printf(text, "\n");
        print_node(node, depth + 1, origins, text);
        return;
    }
    loongi_text_printf(text, " ");
    if (node->kind == LOONG_TREE_SCALAR) {
        print_scalar(node, text);
    } else {
        loongi_text_printf(text, node->kind == LOONG_TREE_MAP ? "{}" : "[]");
    }
    if (origins && node->line > 0) {
        loongi_text_printf(text, "  # %s:%d", node->file, node->line);
    } else if (origins) {
        loongi_text_printf(text, "  # %s", node->file);
    }
    loongi_text_printf(text, "\n");
}

static void print_node(const loong_tree_t *node, int depth, bool origins,
                       loong_text_t *text)
{
    for (int64_t i = 0; i < node->count; i++) {
        loongi_text_printf(text, "%*s", depth * 2, "");
        if (node->kind == LOONG_TREE_MAP) {
            loongi_text_printf(text, "%s:", node->items[i].key);
        } else {
            loongi_text_printf(text, "-");
        }
        print_value(node->items[i].value, depth, origins, text);
    }
}

void loongi_tree_print(const loong_tree_t *tree, bool origins,
                       loong_text_t *text)
{
    if (tree->kind == LOONG_TREE_SCALAR) {
        print_scalar(tree, text);
        loongi_text_printf(text, "\n");
    } else {
        print_node(tree, 0, origins, text);
    }
}
