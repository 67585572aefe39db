/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a model directory: tensors are declared first, cut into shards in
 * that order, and the shards written as data arrives. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "file.h"
#include "json.h"
#include "safetensors.h"

typedef struct planned {
    loong_safetensor_t tensor;
    int64_t shard;
    int64_t index; /* within the shard */
} planned_t;

typedef struct planned_shard {
    char *name;
    loong_safetensors_writer_t *writer;
} planned_shard_t;

struct loong_safetensors_set_writer {
    loong_context_t *ctx;
    loong_arena_t *arena;
    char *dir;
    int64_t max_shard_bytes;
    int64_t total_bytes;
    int64_t shard_bytes; /* of the last shard */
    int64_t count;
    int64_t capacity;
    planned_t *items;
    int64_t shard_count;
    planned_shard_t *shards; /* NULL until the first write */
};

loong_status_t
loongi_safetensors_set_create(loong_context_t *ctx, const char *dir,
                              int64_t max_shard_bytes,
                              loong_safetensors_set_writer_t **writer_p)
{
    loong_safetensors_set_writer_t *writer = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_CHECK(ctx, max_shard_bytes > 0, LOONG_ERR_ARG,
                "the largest shard must have a positive size, not %" PRId64,
                max_shard_bytes);
    LOONG_TRY(loongi_dir_make(ctx, dir));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*writer), "safetensors set", &writer));
    writer->ctx = ctx;
    writer->max_shard_bytes = max_shard_bytes;
    LOONG_TRY_GOTO(loongi_arena_create(ctx, "safetensors set", &writer->arena),
                   status, err_writer);
    LOONG_TRY_GOTO(loongi_arena_strdup(writer->arena, dir, &writer->dir),
                   status, err_writer);
    *writer_p = writer;
    return LOONG_OK;
err_writer:
    loongi_safetensors_set_destroy(&writer);
    return status;
}

loong_status_t
loongi_safetensors_set_declare(loong_safetensors_set_writer_t *writer,
                               const char *name, loong_dtype_t dtype, int ndim,
                               const int64_t *shape, int64_t *index_p)
{
    int64_t bytes =
        loongi_shape_count(ndim, shape) * (int64_t)loong_dtype_size(dtype);
    char *copy = NULL;
    LOONG_CHECK(writer->ctx, writer->shards == NULL, LOONG_ERR_ARG,
                "tensor '%s' declared after the first write", name);
    LOONG_TRY(loongi_grow(writer->ctx, &writer->items, &writer->capacity,
                          writer->count + 1, sizeof(*writer->items),
                          "safetensors tensors"));
    LOONG_TRY(loongi_arena_strdup(writer->arena, name, &copy));
    if (writer->shard_count == 0 ||
        (writer->shard_bytes > 0 &&
         bytes > writer->max_shard_bytes - writer->shard_bytes)) {
        writer->shard_count++;
        writer->shard_bytes = 0;
    }
    writer->shard_bytes += bytes;
    writer->total_bytes += bytes;
    planned_t *item = &writer->items[writer->count];
    item->tensor.name = copy;
    item->tensor.dtype = dtype;
    item->tensor.ndim = ndim;
    memcpy(item->tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    item->shard = writer->shard_count - 1;
    *index_p = writer->count++;
    return LOONG_OK;
}

static loong_status_t open_shard(loong_safetensors_set_writer_t *writer,
                                 int64_t number)
{
    planned_shard_t *shard = &writer->shards[number];
    char *path = NULL;
    if (writer->shard_count == 1) {
        LOONG_TRY(loongi_arena_strdup(writer->arena, "model.safetensors",
                                      &shard->name));
    } else {
        LOONG_TRY(loongi_arena_printf(writer->arena, &shard->name,
                                      "model-%05" PRId64 "-of-%05" PRId64
                                      ".safetensors",
                                      number + 1, writer->shard_count));
    }
    LOONG_TRY(loongi_arena_printf(writer->arena, &path, "%s/%s", writer->dir,
                                  shard->name));
    LOONG_TRY(loongi_safetensors_create(writer->ctx, path, &shard->writer));
    for (int64_t i = 0; i < writer->count; i++) {
        planned_t *item = &writer->items[i];
        if (item->shard == number) {
            LOONG_TRY(loongi_safetensors_declare(
                shard->writer, item->tensor.name, item->tensor.dtype,
                item->tensor.ndim, item->tensor.shape, &item->index));
        }
    }
    return LOONG_OK;
}

static loong_status_t open_shards(loong_safetensors_set_writer_t *writer)
{
    if (writer->shards != NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_arena_alloc(
        writer->arena, (size_t)writer->shard_count * sizeof(*writer->shards),
        &writer->shards));
    for (int64_t i = 0; i < writer->shard_count; i++) {
        LOONG_TRY(open_shard(writer, i));
    }
    return LOONG_OK;
}

loong_status_t
loongi_safetensors_set_write(loong_safetensors_set_writer_t *writer,
                             int64_t index, const void *bytes, size_t length)
{
    LOONG_TRY(open_shards(writer));
    const planned_t *item = &writer->items[index];
    return loongi_safetensors_write(writer->shards[item->shard].writer,
                                    item->index, bytes, length);
}

static bool is_stale(const loong_safetensors_set_writer_t *writer,
                     const char *name)
{
    static const char index_name[] = "model.safetensors.index.json";
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name);
    if (strcmp(name, index_name) == 0) {
        return writer->shard_count == 1;
    }
    if (strncmp(name, "model", 5) != 0 || length < sizeof(suffix) ||
        strcmp(name + length - (sizeof(suffix) - 1), suffix) != 0) {
        return false;
    }
    for (int64_t i = 0; i < writer->shard_count; i++) {
        if (strcmp(writer->shards[i].name, name) == 0) {
            return false;
        }
    }
    return true;
}

/* Files of an earlier export with another number of shards would be read in
 * place of the new ones. */
static loong_status_t remove_stale(loong_safetensors_set_writer_t *writer)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(writer->dir);
    LOONG_CHECK(writer->ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", writer->dir, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (is_stale(writer, entry->d_name)) {
            char *path = NULL;
            status = loongi_arena_printf(writer->arena, &path, "%s/%s",
                                         writer->dir, entry->d_name);
            if (status == LOONG_OK) {
                status = loongi_dir_remove(writer->ctx, path);
            }
        }
    }
    closedir(dir);
    return status;
}

static loong_status_t write_index(loong_safetensors_set_writer_t *writer)
{
    loong_text_t text = loongi_text_begin(writer->ctx);
    char *path = NULL;
    loong_status_t status = loongi_arena_printf(
        writer->arena, &path, "%s/model.safetensors.index.json", writer->dir);
    loongi_text_printf(&text,
                       "{\n  \"metadata\": {\n    \"total_size\": %" PRId64
                       "\n  },\n  \"weight_map\": {",
                       writer->total_bytes);
    for (int64_t i = 0; i < writer->count; i++) {
        const planned_t *item = &writer->items[i];
        loongi_text_printf(&text, "%s\n    ", i > 0 ? "," : "");
        loongi_text_json_string(&text, item->tensor.name);
        loongi_text_printf(&text, ": \"%s\"", writer->shards[item->shard].name);
    }
    loongi_text_printf(&text, "\n  }\n}\n");
    if (status == LOONG_OK) {
        status = text.status;
    }
    if (status == LOONG_OK) {
        status = loongi_file_write(writer->ctx, path, text.data, text.length);
    }
    loongi_text_free(&text);
    return status;
}

loong_status_t
loongi_safetensors_set_commit(loong_safetensors_set_writer_t *writer)
{
    LOONG_CHECK(writer->ctx, writer->count > 0, LOONG_ERR_ARG,
                "no tensor to write to '%s'", writer->dir);
    LOONG_TRY(open_shards(writer));
    for (int64_t i = 0; i < writer->shard_count; i++) {
        LOONG_TRY(loongi_safetensors_commit(writer->shards[i].writer));
    }
    LOONG_TRY(remove_stale(writer));
    return writer->shard_count > 1 ? write_index(writer) : LOONG_OK;
}

void loongi_safetensors_set_destroy(loong_safetensors_set_writer_t **writer)
{
    if (*writer == NULL) {
        return;
    }
    for (int64_t i = 0; (*writer)->shards && i < (*writer)->shard_count; i++) {
        loongi_safetensors_destroy(&(*writer)->shards[i].writer);
    }
    loongi_free((*writer)->ctx, (*writer)->items);
    loongi_arena_destroy(&(*writer)->arena);
    loongi_free((*writer)->ctx, *writer);
    *writer = NULL;
}
