/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads, holds and writes small files. Called by what keeps the files of a
 * tokenizer in checkpoints. Read file_set.h before. */
#include "file_set.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "file.h"

typedef struct held {
    char name[NAME_MAX + 1];
    char *bytes;
    size_t length;
} held_t;

struct loong_file_set {
    loong_context_t *ctx;
    int64_t count;
    int64_t capacity;
    held_t *items;
};

loong_status_t loongi_file_set_create(loong_context_t *ctx,
                                      loong_file_set_t **set_p)
{
    loong_file_set_t *set = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*set), "set of files", &set));
    set->ctx = ctx;
    *set_p = set;
    return LOONG_OK;
}

void loongi_file_set_destroy(loong_file_set_t **set_p)
{
    loong_file_set_t *set = *set_p;
    if (set == NULL) {
        return;
    }
    for (int64_t i = 0; i < set->count; i++) {
        loongi_free(set->ctx, set->items[i].bytes);
    }
    loongi_free(set->ctx, set->items);
    loongi_free(set->ctx, set);
    *set_p = NULL;
}

int64_t loongi_file_set_count(const loong_file_set_t *set)
{
    return set->count;
}

const char *loongi_file_set_get(const loong_file_set_t *set, int64_t index,
                                const char **bytes_p, size_t *length_p)
{
    const held_t *held = &set->items[index];
    *bytes_p = held->bytes;
    *length_p = held->length;
    return held->name;
}

loong_status_t loongi_file_set_read(loong_file_set_t *set, const char *path,
                                    const char *name)
{
    char *bytes = NULL;
    size_t length = 0;
    for (int64_t i = 0; i < set->count; i++) {
        if (strcmp(set->items[i].name, name) == 0) {
            return LOONG_OK;
        }
    }
    LOONG_TRY(loongi_grow(set->ctx, &set->items, &set->capacity, set->count + 1,
                          sizeof(*set->items), "set of files"));
    LOONG_TRY(loongi_file_read(set->ctx, path, &bytes, &length));
    held_t *held = &set->items[set->count++];
    snprintf(held->name, sizeof(held->name), "%s", name);
    held->bytes = bytes;
    held->length = length;
    return LOONG_OK;
}

static loong_status_t path_of(loong_context_t *ctx, const char *dir,
                              const char *name, char path[PATH_MAX])
{
    LOONG_CHECK(ctx, snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX,
                LOONG_ERR_ARG, "the path '%s/%s' is too long", dir, name);
    return LOONG_OK;
}

static bool ends(const char *name, const char *ending)
{
    size_t length = strlen(name);
    size_t tail = strlen(ending);
    return name[0] != '.' && length > tail &&
           strcmp(name + length - tail, ending) == 0;
}

loong_status_t loongi_file_set_read_dir(loong_file_set_t *set, const char *from,
                                        const char *ending)
{
    char path[PATH_MAX];
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(from);
    LOONG_CHECK(set->ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", from, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (!ends(entry->d_name, ending)) {
            continue;
        }
        status = path_of(set->ctx, from, entry->d_name, path);
        if (status == LOONG_OK && loongi_file_exists(path)) {
            status = loongi_file_set_read(set, path, entry->d_name);
        }
    }
    closedir(dir);
    return status;
}

loong_status_t loongi_file_set_write(loong_context_t *ctx,
                                     const loong_file_set_t *set,
                                     const char *dir)
{
    char path[PATH_MAX];
    LOONG_TRY(loongi_dir_make(ctx, dir));
    for (int64_t i = 0; i < set->count; i++) {
        const held_t *held = &set->items[i];
        LOONG_TRY(path_of(ctx, dir, held->name, path));
        LOONG_TRY(loongi_file_write(ctx, path, held->bytes, held->length));
    }
    return LOONG_OK;
}
