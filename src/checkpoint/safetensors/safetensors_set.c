/* SPDX-License-Identifier: Apache-2.0
 *
 * A model directory of safetensors files: model.safetensors, or shards and
 * model.safetensors.index.json. Called by hf_weights.c, view.c, convert_files.c
 * and draft.c. Read safetensors.h before. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "safetensors.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

typedef struct shard {
    char *name;
    char *path;
    loong_safetensors_t *file;
} shard_t;

typedef struct entry {
    const loong_safetensor_t *tensor;
    const shard_t *shard;
} entry_t;

struct loong_safetensors_set {
    loong_context_t *ctx;
    loong_arena_t *arena;
    int64_t shard_count;
    shard_t *shards;
    int64_t count;
    entry_t *entries; /* by name */
};

static loong_status_t open_shard(loong_safetensors_set_t *set, const char *dir,
                                 const char *name)
{
    shard_t *shard = &set->shards[set->shard_count];
    LOONG_CHECK(set->ctx, name[0] != '\0' && strchr(name, '/') == NULL,
                LOONG_ERR_FORMAT,
                "%s/" INDEX_NAME ": '%s' is not a file name in this directory",
                dir, name);
    LOONG_TRY(loongi_arena_strdup(set->arena, name, &shard->name));
    LOONG_TRY(
        loongi_arena_printf(set->arena, &shard->path, "%s/%s", dir, name));
    LOONG_TRY(loongi_safetensors_open(set->ctx, shard->path, &shard->file));
    set->shard_count++;
    return LOONG_OK;
}

static const shard_t *find_shard(const loong_safetensors_set_t *set,
                                 const char *name)
{
    for (int64_t i = 0; i < set->shard_count; i++) {
        if (strcmp(set->shards[i].name, name) == 0) {
            return &set->shards[i];
        }
    }
    return NULL;
}

static loong_status_t open_indexed(loong_safetensors_set_t *set,
                                   const char *dir, const char *index_path,
                                   const loong_json_t *map)
{
    LOONG_CHECK(set->ctx,
                map != NULL && loongi_json_kind(map) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: no weight_map object", index_path);
    size_t room = (size_t)loongi_json_count(map);
    LOONG_TRY(loongi_arena_alloc(set->arena, room * sizeof(*set->shards),
                                 &set->shards));
    for (const loong_json_member_t *m = loongi_json_first(map); m != NULL;
         m = loongi_json_next(map, m)) {
        const loong_json_t *value = loongi_json_member_value(m);
        const char *tensor = loongi_json_member_key(m);
        LOONG_CHECK(set->ctx, loongi_json_kind(value) == LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT, "%s: tensor '%s' has no file name",
                    index_path, tensor);
        const char *name = loongi_json_string(value);
        if (find_shard(set, name) == NULL) {
            LOONG_TRY(open_shard(set, dir, name));
        }
        LOONG_CHECK(set->ctx,
                    loongi_safetensors_find(find_shard(set, name)->file,
                                            tensor) != NULL,
                    LOONG_ERR_FORMAT, "%s: tensor '%s' is not in '%s'",
                    index_path, tensor, name);
    }
    return LOONG_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry_t *)a)->tensor->name,
                  ((const entry_t *)b)->tensor->name);
}

static loong_status_t collect(loong_safetensors_set_t *set, const char *dir)
{
    int64_t total = 0;
    for (int64_t i = 0; i < set->shard_count; i++) {
        total += loongi_safetensors_count(set->shards[i].file);
    }
    LOONG_TRY(loongi_arena_alloc(
        set->arena, (size_t)total * sizeof(*set->entries), &set->entries));
    for (int64_t i = 0; i < set->shard_count; i++) {
        const shard_t *shard = &set->shards[i];
        for (int64_t t = 0; t < loongi_safetensors_count(shard->file); t++) {
            entry_t *entry = &set->entries[set->count++];
            entry->tensor = loongi_safetensors_get(shard->file, t);
            entry->shard = shard;
        }
    }
    qsort(set->entries, (size_t)set->count, sizeof(*set->entries), by_name);
    for (int64_t i = 1; i < set->count; i++) {
        LOONG_CHECK(set->ctx, by_name(&set->entries[i - 1], &set->entries[i]),
                    LOONG_ERR_FORMAT, "%s: tensor '%s' is in '%s' and in '%s'",
                    dir, set->entries[i].tensor->name,
                    set->entries[i - 1].shard->name,
                    set->entries[i].shard->name);
    }
    return LOONG_OK;
}

/* Every tensor of the shards must be in the index as well. */
static loong_status_t check_index(loong_safetensors_set_t *set,
                                  const char *index_path,
                                  const loong_json_t *map)
{
    for (int64_t i = 0; i < set->count; i++) {
        const entry_t *entry = &set->entries[i];
        LOONG_CHECK(set->ctx, loongi_json_get(map, entry->tensor->name) != NULL,
                    LOONG_ERR_FORMAT,
                    "%s: tensor '%s' of '%s' is not in the index", index_path,
                    entry->tensor->name, entry->shard->name);
    }
    return LOONG_OK;
}

/* Shards that lie there without an index. */
static loong_status_t fail_missing(const loong_safetensors_set_t *set,
                                   const char *path)
{
    static const char end[] = ".safetensors";
    char name[256] = "";
    int64_t count = 0;
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (length >= sizeof(end) &&
            strcmp(entry->d_name + length - sizeof(end) + 1, end) == 0) {
            snprintf(name, sizeof(name), "%s", entry->d_name);
            count++;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    LOONG_CHECK(set->ctx, count == 0, LOONG_ERR_NOT_FOUND,
                "'%s' has %" PRId64 " file%s of tensors (%s%s), but not "
                INDEX_NAME ", which says what is in which",
                path, count, count > 1 ? "s" : "", name,
                count > 1 ? " and others" : "");
    return LOONG_FAIL(set->ctx, LOONG_ERR_NOT_FOUND,
                      "'%s' has neither " SINGLE_NAME " nor " INDEX_NAME
                      " (pytorch_model.bin is not read: transformers' "
                      "save_pretrained turns it into safetensors)",
                      path);
}

static loong_status_t open_all(loong_safetensors_set_t *set, const char *dir)
{
    char *index_path = NULL;
    char *single_path = NULL;
    LOONG_TRY(
        loongi_arena_printf(set->arena, &index_path, "%s/" INDEX_NAME, dir));
    LOONG_TRY(
        loongi_arena_printf(set->arena, &single_path, "%s/" SINGLE_NAME, dir));
    if (loongi_file_exists(single_path)) {
        LOONG_TRY(
            loongi_arena_alloc(set->arena, sizeof(shard_t), &set->shards));
        LOONG_TRY(open_shard(set, dir, SINGLE_NAME));
        return collect(set, dir);
    }
    if (!loongi_file_exists(index_path)) {
        return fail_missing(set, dir);
    }
    loong_json_t *index = NULL;
    LOONG_TRY(loongi_json_load(set->ctx, index_path, &index));
    const loong_json_t *map = loongi_json_get(index, "weight_map");
    loong_status_t status = open_indexed(set, dir, index_path, map);
    if (status == LOONG_OK) {
        status = collect(set, dir);
    }
    if (status == LOONG_OK) {
        status = check_index(set, index_path, map);
    }
    loongi_json_destroy(&index);
    return status;
}

loong_status_t loongi_safetensors_set_open(loong_context_t *ctx,
                                           const char *dir,
                                           loong_safetensors_set_t **set_p)
{
    loong_safetensors_set_t *set = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*set), "safetensors set", &set));
    set->ctx = ctx;
    loong_status_t status =
        loongi_arena_create(ctx, "safetensors set", &set->arena);
    if (status == LOONG_OK) {
        status = open_all(set, dir);
    }
    if (status != LOONG_OK) {
        loongi_safetensors_set_close(&set);
        return status;
    }
    *set_p = set;
    return LOONG_OK;
}

void loongi_safetensors_set_close(loong_safetensors_set_t **set)
{
    if (*set == NULL) {
        return;
    }
    for (int64_t i = 0; i < (*set)->shard_count; i++) {
        loongi_safetensors_close(&(*set)->shards[i].file);
    }
    loongi_arena_destroy(&(*set)->arena);
    loongi_free((*set)->ctx, *set);
    *set = NULL;
}

int64_t loongi_safetensors_set_count(const loong_safetensors_set_t *set)
{
    return set->count;
}

const loong_safetensor_t *
loongi_safetensors_set_get(const loong_safetensors_set_t *set, int64_t index)
{
    return set->entries[index].tensor;
}

static const entry_t *find_entry(const loong_safetensors_set_t *set,
                                 const char *name)
{
    loong_safetensor_t tensor = {0};
    entry_t key = {&tensor, NULL};
    tensor.name = name;
    return bsearch(&key, set->entries, (size_t)set->count,
                   sizeof(*set->entries), by_name);
}

const loong_safetensor_t *
loongi_safetensors_set_find(const loong_safetensors_set_t *set,
                            const char *name)
{
    const entry_t *entry = find_entry(set, name);
    return entry != NULL ? entry->tensor : NULL;
}

bool loongi_safetensors_set_is_hole(const loong_safetensors_set_t *set,
                                    const loong_safetensor_t *tensor,
                                    const void *data, size_t bytes)
{
    return loongi_safetensors_is_hole(
        find_entry(set, tensor->name)->shard->file, data, bytes);
}
