/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a recipe's schema, found by path. Called by recipe.c, check.c,
 * compare.c and read.c. Read schema.h before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe_impl.h"

enum { PATH_SIZE = LOONG_RECIPE_PATH };

int64_t loongi_recipe_count_keys(const loong_recipe_t *r)
{
    return loong_recipe_num_keys() + r->params.num_keys;
}

const loong_recipe_key_t *loongi_recipe_key_at(const loong_recipe_t *r,
                                               int64_t i)
{
    int64_t builtin = loong_recipe_num_keys();
    return i < builtin ? loong_recipe_key(i) : &r->params.keys[i - builtin];
}

static int by_path(const void *a, const void *b)
{
    const loong_recipe_key_t *const *x = a;
    const loong_recipe_key_t *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

loong_status_t loongi_recipe_sort_keys(loong_recipe_t *r)
{
    int64_t count = loongi_recipe_count_keys(r);
    LOONG_TRY(loongi_arena_alloc(r->arena, sizeof(void *) * (size_t)count,
                                 &r->sorted));
    for (int64_t i = 0; i < count; i++) {
        r->sorted[i] = loongi_recipe_key_at(r, i);
    }
    qsort(r->sorted, (size_t)count, sizeof(void *), by_path);
    for (int64_t i = 1; i < count; i++) {
        const char *path = r->sorted[i]->path;
        LOONG_CHECK(r->ctx, strcmp(r->sorted[i - 1]->path, path) != 0,
                    LOONG_ERR_ARG, "loong_recipe_params_t.keys: %s is a key "
                    "already", path);
    }
    return LOONG_OK;
}

/* The first key in order that does not come before the path. */
static const loong_recipe_key_t *from(const loong_recipe_t *r,
                                      const char *path)
{
    int64_t count = loongi_recipe_count_keys(r);
    int64_t low = 0;
    int64_t high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (strcmp(r->sorted[middle]->path, path) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count ? r->sorted[low] : NULL;
}

void loongi_recipe_generic_path(const char *path, char generic[PATH_SIZE])
{
    static const char videos[] = "model.video_", images[] = "model.image_";
    size_t n = 0;
    bool inside = false;
    if (strncmp(path, videos, sizeof(videos) - 1) == 0) {
        n = sizeof(images) - 1;
        memcpy(generic, images, n);
        path += sizeof(videos) - 1;
    }
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
    loongi_recipe_generic_path(path, generic);
    const loong_recipe_key_t *key = from(recipe, generic);
    return key != NULL && strcmp(key->path, generic) == 0 ? key : NULL;
}

bool loongi_recipe_is_branch(const loong_recipe_t *r, const char *path,
                             const char *separator)
{
    char start[PATH_SIZE + 4];
    loongi_recipe_generic_path(path, start);
    size_t n = strlen(start);
    snprintf(start + n, sizeof(start) - n, "%s", separator);
    const loong_recipe_key_t *key = from(r, start);
    return key != NULL && strncmp(key->path, start, strlen(start)) == 0;
}
