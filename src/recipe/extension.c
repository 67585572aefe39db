/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the shared objects that a recipe names. Called by loong_recipe_load,
 * when defaults and overrides are in place and nothing is checked yet. Read
 * loong/extension.h before. */
#include "loong/extension.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "crc.h"
#include "file.h"
#include "object.h"
#include "recipe_impl.h"
#include "registry.h"

loong_status_t loong_extension_fail(loong_context_t *ctx, loong_status_t status,
                                    const char *text)
{
    return LOONG_FAIL(ctx, status, "%s", text);
}

/* A file beside the working directory is no library of the system's. */
static loong_status_t open_object(loong_context_t *ctx, const char *path,
                                  const loong_extension_t **extension_p)
{
    char text[LOONG_RECIPE_PATH * 4];
    loong_extension_fn get = NULL;
    snprintf(text, sizeof(text), "%s%s", strchr(path, '/') == NULL ? "./" : "",
             path);
    char why[LOONG_OBJECT_REASON];
    void *object =
        loongi_object_open(text, RTLD_NOW | RTLD_LOCAL, why, sizeof(why));
    LOONG_CHECK(ctx, object != NULL, LOONG_ERR_NOT_FOUND, "%s", why);
    void *symbol = dlsym(object, LOONG_EXTENSION_SYMBOL);
    memcpy(&get, &symbol, sizeof(get)); /* as POSIX has it */
    const loong_extension_t *e = get != NULL ? get() : NULL;
    LOONG_CHECK(ctx, e != NULL, LOONG_ERR_CONFIG,
                "%s: it has no function " LOONG_EXTENSION_SYMBOL
                ", or that gives none", path);
    LOONG_CHECK(ctx,
                e->struct_size == sizeof(*e) && e->name != NULL &&
                    e->enter != NULL && (e->num_keys == 0 || e->keys != NULL),
                LOONG_ERR_CONFIG,
                "%s: its loong_extension_t has %zu bytes, %zu wanted, with "
                "name, keys and enter: it was made for another version",
                path, e->struct_size, sizeof(*e));
    *extension_p = e; /* the object stays open */
    return LOONG_OK;
}

/* Once in a context. */
static loong_status_t enter(loong_context_t *ctx,
                            const loong_extension_t *extension)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_EXTENSIONS);
    for (int64_t i = 0; i < r.count; i++) {
        if (r.items[i] == extension) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_registry_add(ctx, LOONG_REGISTRY_EXTENSIONS, extension));
    return extension->enter(ctx);
}

static loong_status_t add_keys(loong_recipe_t *r,
                               const loong_extension_t *extension)
{
    int64_t count = r->params.num_keys;
    loong_recipe_key_t *keys = NULL;
    LOONG_TRY(loongi_arena_alloc(
        r->arena, (size_t)(count + extension->num_keys) * sizeof(*keys),
        &keys));
    for (int64_t i = 0; i < count + extension->num_keys; i++) {
        keys[i] = i < count ? r->params.keys[i] : extension->keys[i - count];
    }
    r->params.keys = keys;
    r->params.num_keys = count + extension->num_keys;
    return loongi_recipe_sort_keys(r);
}

static loong_status_t add_hash(loong_recipe_t *r, const char *path)
{
    char *bytes = NULL;
    size_t length = 0;
    LOONG_TRY(loongi_file_read(r->ctx, path, &bytes, &length));
    r->extensions_hash = r->extensions_hash * UINT64_C(0x9e3779b97f4a7c15) +
                         loongi_crc(LOONG_CRC32, bytes, length) + 1;
    loongi_free(r->ctx, bytes);
    return LOONG_OK;
}

static loong_status_t load_one(loong_recipe_t *r, const char *own,
                               const loong_tree_t *item)
{
    const loong_extension_t *extension = NULL;
    LOONG_CHECK(r->ctx,
                item->kind == LOONG_TREE_SCALAR && item->text[0] != '\0' &&
                    strlen(item->text) < LOONG_RECIPE_PATH,
                LOONG_ERR_CONFIG,
                "%s:%d: extensions: a list of paths is wanted", item->file,
                item->line);
    LOONG_CHECK(r->ctx,
                strcmp(item->file, own) == 0 ||
                    strcmp(item->file, "command line") == 0,
                LOONG_ERR_CONFIG,
                "%s:%d: extensions: %s: code is named by the recipe itself or "
                "on the command line, not by a file among its defaults",
                item->file, item->line, item->text);
    LOONG_TRY(open_object(r->ctx, item->text, &extension));
    LOONG_TRY(add_keys(r, extension));
    LOONG_TRY(add_hash(r, item->text));
    return enter(r->ctx, extension);
}

loong_status_t loongi_recipe_load_extensions(loong_recipe_t *r,
                                             const char *own)
{
    loong_tree_t *list = loongi_tree_find(r->root, "extensions");
    if (list == NULL || list->kind != LOONG_TREE_LIST) {
        return LOONG_OK; /* the schema tells what else it is */
    }
    list->is_read = true;
    for (int64_t i = 0; i < list->count; i++) {
        loong_status_t status = load_one(r, own, list->items[i].value);
        if (status != LOONG_OK) {
            loongi_error_note(r->ctx, "wanted by extensions[%lld] (%s:%d)",
                              (long long)i, list->items[i].value->file,
                              list->items[i].value->line);
            return status;
        }
    }
    return LOONG_OK;
}
