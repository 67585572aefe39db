/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a model directory: tensors are declared first, cut into shards in
 * that order, and the shards filled one after the other in a hidden directory.
 * What makes a set readable (model.safetensors, or the index) leaves the place
 * first and comes to it last. Called by hf_export.c and convert_files.c. Read
 * safetensors.h and workdir.h before. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "safetensors.h"
#include "workdir.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
/* Stands in the hidden directory when everything else does. */
#define WHOLE_NAME "whole"

typedef struct planned {
    loong_safetensor_t tensor;
    int64_t shard;
} planned_t;

struct loong_safetensors_set_writer {
    loong_context_t *ctx;
    loong_arena_t *arena;
    const char *dir;
    const char *work; /* the hidden directory */
    bool made; /* dir, for this set */
    loong_workdir_t lock;
    int64_t max_shard_bytes;
    int64_t total_bytes;
    int64_t shard_bytes; /* of the last shard */
    int64_t count;
    int64_t capacity;
    planned_t *items;
    int64_t shard_count;
};

/* A shard's source: handles of a shard follow one another. */
typedef struct shard_source {
    const loong_safetensors_source_t *source;
    int64_t first;
} shard_source_t;

static loong_status_t open_all(loong_safetensors_set_writer_t *writer,
                               const loong_safetensors_set_params_t *params)
{
    char *text = NULL;
    writer->max_shard_bytes = params->max_shard_bytes;
    LOONG_TRY(
        loongi_arena_create(writer->ctx, "safetensors set", &writer->arena));
    LOONG_TRY(loongi_arena_strdup(writer->arena, params->dir, &text));
    writer->dir = text;
    LOONG_TRY(loongi_arena_printf(writer->arena, &text, "%s/.tmp_model",
                                  params->dir));
    writer->work = text;
    writer->made = !loongi_dir_exists(params->dir);
    return loongi_workdir_open(writer->ctx, writer->work, params->key,
                               &writer->lock);
}

loong_status_t
loongi_safetensors_set_create(loong_context_t *ctx,
                              const loong_safetensors_set_params_t *params,
                              loong_safetensors_set_writer_t **writer_p)
{
    loong_safetensors_set_writer_t *writer = NULL;
    LOONG_CHECK(ctx, params->max_shard_bytes > 0, LOONG_ERR_ARG,
                "the largest shard must have a positive size, not %" PRId64,
                params->max_shard_bytes);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*writer), "safetensors set", &writer));
    writer->ctx = ctx;
    writer->lock.fd = -1;
    loong_status_t status = open_all(writer, params);
    if (status != LOONG_OK) {
        loongi_safetensors_set_destroy(&writer);
        return status;
    }
    *writer_p = writer;
    return LOONG_OK;
}

const char *
loongi_safetensors_set_workdir(const loong_safetensors_set_writer_t *writer)
{
    return writer->work;
}

int64_t
loongi_safetensors_set_bytes(const loong_safetensors_set_writer_t *writer)
{
    return writer->total_bytes;
}

loong_status_t
loongi_safetensors_set_declare(loong_safetensors_set_writer_t *writer,
                               const char *name, loong_dtype_t dtype, int ndim,
                               const int64_t *shape, int64_t *index_p)
{
    int64_t bytes =
        loongi_shape_count(ndim, shape) * (int64_t)loong_dtype_size(dtype);
    char *copy = NULL;
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
    item->tensor.bytes = (size_t)bytes;
    memcpy(item->tensor.shape, shape, (size_t)ndim * sizeof(*shape));
    item->shard = writer->shard_count - 1;
    *index_p = writer->count++;
    return LOONG_OK;
}

static loong_status_t path_in(loong_safetensors_set_writer_t *writer,
                              const char *dir, const char *name,
                              char **path_p)
{
    return loongi_arena_printf(writer->arena, path_p, "%s/%s", dir, name);
}

enum { NAME_BYTES = 64 };

static const char *shard_name(const loong_safetensors_set_writer_t *writer,
                              int64_t number, char name[NAME_BYTES])
{
    if (writer->shard_count == 1) {
        return SINGLE_NAME;
    }
    snprintf(name, NAME_BYTES, "model-%05" PRId64 "-of-%05" PRId64
             ".safetensors", number + 1, writer->shard_count);
    return name;
}

static loong_status_t read_shard(void *user, int64_t index, int64_t row,
                                 int64_t rows, void *buffer,
                                 const void **data_p)
{
    const shard_source_t *s = user;
    return s->source->read(s->source->user, s->first + index, row, rows,
                           buffer, data_p);
}

static loong_status_t write_shard(loong_safetensors_set_writer_t *writer,
                                  const char *path, int64_t first, int64_t end,
                                  const loong_safetensors_source_t *source)
{
    shard_source_t shard = {source, first};
    loong_safetensors_source_t of_shard = {read_shard, &shard, source->meter};
    loong_safetensors_writer_t *file = NULL;
    LOONG_TRY(loongi_safetensors_create(writer->ctx, path, &file));
    loong_status_t status = LOONG_OK;
    for (int64_t i = first; i < end && status == LOONG_OK; i++) {
        const loong_safetensor_t *t = &writer->items[i].tensor;
        int64_t handle = 0;
        status = loongi_safetensors_declare(file, t->name, t->dtype, t->ndim,
                                            t->shape, &handle);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_fill(file, &of_shard);
    }
    if (status == LOONG_OK) {
        status = loongi_safetensors_commit(file);
    }
    loongi_safetensors_destroy(&file);
    return status;
}

static loong_status_t write_index(loong_safetensors_set_writer_t *writer)
{
    loong_text_t text = loongi_text_begin(writer->ctx);
    char *path = NULL;
    loong_status_t status = path_in(writer, writer->work, INDEX_NAME, &path);
    loongi_text_printf(&text,
                       "{\n  \"metadata\": {\n    \"total_size\": %" PRId64
                       "\n  },\n  \"weight_map\": {",
                       writer->total_bytes);
    for (int64_t i = 0; i < writer->count && status == LOONG_OK; i++) {
        const planned_t *item = &writer->items[i];
        char name[NAME_BYTES];
        loongi_text_printf(&text, "%s\n    ", i > 0 ? "," : "");
        loongi_text_json_string(&text, item->tensor.name);
        loongi_text_printf(&text, ": \"%s\"",
                           shard_name(writer, item->shard, name));
    }
    loongi_text_printf(&text, "\n  }\n}\n");
    status = status == LOONG_OK ? text.status : status;
    if (status == LOONG_OK) {
        status = loongi_file_write(writer->ctx, path, text.data, text.length);
    }
    loongi_text_free(&text);
    return status;
}

static loong_status_t is_whole(loong_safetensors_set_writer_t *writer,
                               bool *whole_p)
{
    char *path = NULL;
    LOONG_TRY(path_in(writer, writer->work, WHOLE_NAME, &path));
    *whole_p = loongi_file_exists(path);
    return LOONG_OK;
}

/* A shard has its name when all of it is on the disk. */
static loong_status_t fill_shards(loong_safetensors_set_writer_t *writer,
                                  const loong_safetensors_source_t *source)
{
    int64_t end = 0;
    for (int64_t first = 0; first < writer->count; first = end) {
        int64_t number = writer->items[first].shard;
        int64_t bytes = 0;
        char name[NAME_BYTES];
        char *path = NULL;
        for (end = first;
             end < writer->count && writer->items[end].shard == number; end++) {
            bytes += (int64_t)writer->items[end].tensor.bytes;
        }
        LOONG_TRY(path_in(writer, writer->work,
                          shard_name(writer, number, name), &path));
        if (loongi_file_exists(path)) {
            loongi_meter_add(source->meter, bytes);
        } else {
            LOONG_TRY(write_shard(writer, path, first, end, source));
        }
    }
    return LOONG_OK;
}

loong_status_t
loongi_safetensors_set_fill(loong_safetensors_set_writer_t *writer,
                            const loong_safetensors_source_t *source)
{
    bool whole = false;
    char *path = NULL;
    LOONG_CHECK(writer->ctx, writer->count > 0, LOONG_ERR_ARG,
                "no tensor to write to '%s'", writer->dir);
    LOONG_TRY(is_whole(writer, &whole));
    if (whole) { /* it was interrupted on its way to its place */
        loongi_meter_add(source->meter, writer->total_bytes);
        return LOONG_OK;
    }
    LOONG_TRY(fill_shards(writer, source));
    if (writer->shard_count > 1) {
        LOONG_TRY(write_index(writer));
    }
    LOONG_TRY(path_in(writer, writer->work, WHOLE_NAME, &path));
    return loongi_file_write(writer->ctx, path, "\n", 1);
}

/* ---- to its place ---- */

static bool is_entry_point(const char *name)
{
    return strcmp(name, SINGLE_NAME) == 0 || strcmp(name, INDEX_NAME) == 0;
}

static bool is_model_file(const char *name)
{
    static const char suffix[] = ".safetensors";
    size_t length = strlen(name);
    return strncmp(name, "model", 5) == 0 && length >= sizeof(suffix) &&
           strcmp(name + length - (sizeof(suffix) - 1), suffix) == 0;
}

typedef loong_status_t (*entry_fn)(loong_safetensors_set_writer_t *writer,
                                   const char *name);

/* Calls fn for every name in a directory, which fn may move or remove. */
static loong_status_t each_entry(loong_safetensors_set_writer_t *writer,
                                 const char *path, entry_fn fn)
{
    loong_status_t status = LOONG_OK;
    struct dirent *entry = NULL;
    DIR *dir = opendir(path);
    LOONG_CHECK(writer->ctx, dir != NULL, LOONG_ERR_IO,
                "cannot open directory '%s': %s", path, strerror(errno));
    while (status == LOONG_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            status = fn(writer, entry->d_name);
        }
    }
    closedir(dir);
    return status;
}

static loong_status_t drop(loong_safetensors_set_writer_t *writer,
                           const char *name)
{
    char *path = NULL;
    LOONG_TRY(path_in(writer, writer->dir, name, &path));
    return loongi_dir_remove(writer->ctx, path);
}

static loong_status_t move(loong_safetensors_set_writer_t *writer,
                           const char *name)
{
    char *from = NULL;
    char *to = NULL;
    LOONG_TRY(path_in(writer, writer->work, name, &from));
    LOONG_TRY(path_in(writer, writer->dir, name, &to));
    return loongi_file_rename(writer->ctx, from, to);
}

static loong_status_t move_if_plain(loong_safetensors_set_writer_t *writer,
                                    const char *name)
{
    return is_entry_point(name) || strcmp(name, WHOLE_NAME) == 0 ||
                   strcmp(name, LOONG_WORKDIR_KEY) == 0
               ? LOONG_OK
               : move(writer, name);
}

/* Shards of an earlier set. Those of this one have moved before. */
static loong_status_t drop_if_stale(loong_safetensors_set_writer_t *writer,
                                    const char *name)
{
    char ours[NAME_BYTES];
    for (int64_t i = 0; i < writer->shard_count; i++) {
        if (strcmp(shard_name(writer, i, ours), name) == 0) {
            return LOONG_OK;
        }
    }
    return is_model_file(name) ? drop(writer, name) : LOONG_OK;
}

loong_status_t
loongi_safetensors_set_commit(loong_safetensors_set_writer_t *writer)
{
    const char *entry = writer->shard_count > 1 ? INDEX_NAME : SINGLE_NAME;
    char *path = NULL;
    bool whole = false;
    LOONG_TRY(is_whole(writer, &whole));
    LOONG_CHECK(writer->ctx, whole, LOONG_ERR_ARG, "'%s' was not filled",
                writer->dir);
    LOONG_TRY(path_in(writer, writer->work, entry, &path));
    if (loongi_file_exists(path)) {
        LOONG_TRY(loongi_dir_sync(writer->ctx, writer->work));
        LOONG_TRY(drop(writer, INDEX_NAME));
        LOONG_TRY(drop(writer, SINGLE_NAME));
        LOONG_TRY(loongi_dir_sync(writer->ctx, writer->dir));
        LOONG_TRY(each_entry(writer, writer->work, move_if_plain));
        LOONG_TRY(each_entry(writer, writer->dir, drop_if_stale));
        LOONG_TRY(move(writer, entry));
    }
    LOONG_TRY(loongi_dir_remove(writer->ctx, writer->work));
    return loongi_dir_sync(writer->ctx, writer->dir);
}

void loongi_safetensors_set_end(loong_safetensors_set_writer_t **writer,
                                loong_status_t outcome)
{
    const loong_safetensors_set_writer_t *w = *writer;
    if (w != NULL && outcome != LOONG_OK && outcome != LOONG_ERR_IO &&
        outcome != LOONG_ERR_CANNOT_WRITE) {
        if (loongi_dir_remove(w->ctx, w->work) != LOONG_OK) {
            loongi_log(w->ctx, LOONG_LOG_WARN, "'%s' stays", w->work);
        } else if (w->made) {
            (void)rmdir(w->dir);
        }
    }
    loongi_safetensors_set_destroy(writer);
}

void loongi_safetensors_set_destroy(loong_safetensors_set_writer_t **writer)
{
    if (*writer == NULL) {
        return;
    }
    loongi_workdir_close(&(*writer)->lock);
    loongi_free((*writer)->ctx, (*writer)->items);
    loongi_arena_destroy(&(*writer)->arena);
    loongi_free((*writer)->ctx, *writer);
    *writer = NULL;
}
