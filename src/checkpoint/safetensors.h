/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: one file (reader over a memory map, streaming writer) and a
 * model directory of one or several of them with an index.
 *
 * File: u64 little-endian header length, JSON header, then the tensors, row
 * major and little-endian, without holes.
 */
#ifndef LOONG_SAFETENSORS_H
#define LOONG_SAFETENSORS_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LOONG_TENSOR_MAX_DIMS = 8,
    LOONG_SAFETENSORS_MAX_HEADER = 100000000 /* the cap of the format */
};

/* One tensor of a file. A scalar has ndim 0. */
typedef struct loong_safetensor {
    const char *name;
    loong_dtype_t dtype;
    int ndim;
    int64_t shape[LOONG_TENSOR_MAX_DIMS];
    size_t offset; /* from the end of the header */
    size_t bytes;
    const void *data; /* in the map; not aligned */
} loong_safetensor_t;

int64_t loongi_shape_count(int ndim, const int64_t *shape);
/* "[2, 3]" into the caller's buffer, for messages. */
#define LOONG_SHAPE_TEXT 192
const char *loongi_shape_text(int ndim, const int64_t *shape,
                              char buffer[LOONG_SHAPE_TEXT]);

/* ---- one file, reading ---- */
typedef struct loong_safetensors loong_safetensors_t;

/* Maps a file and checks all of its header: lengths, types, shapes, and that
 * the tensors fill the file without holes or overlaps.
 * Errors: LOONG_ERR_NOT_FOUND, LOONG_ERR_IO, LOONG_ERR_FORMAT,
 * LOONG_ERR_UNSUPPORTED (an element type that the library lacks). */
LOONG_NODISCARD loong_status_t loongi_safetensors_open(
    loong_context_t *ctx, const char *path, loong_safetensors_t **file_p);
/* The same over bytes in memory, which stay borrowed. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_parse(loong_context_t *ctx, const void *bytes, size_t size,
                         const char *path, loong_safetensors_t **file_p);
void loongi_safetensors_close(loong_safetensors_t **file);
int64_t loongi_safetensors_count(const loong_safetensors_t *file);
/* In the order of the data. */
const loong_safetensor_t *
loongi_safetensors_get(const loong_safetensors_t *file, int64_t index);
/* NULL when absent. */
const loong_safetensor_t *
loongi_safetensors_find(const loong_safetensors_t *file, const char *name);

/* ---- one file, writing ---- */
typedef struct loong_safetensors_writer loong_safetensors_writer_t;

/* declare all tensors, then write their bytes, then commit. The file appears
 * under its name at commit only, durable; destroy without commit leaves
 * nothing. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_create(loong_context_t *ctx, const char *path,
                          loong_safetensors_writer_t **writer_p);
/* Copies name and shape; *index_p is the handle for writing. */
LOONG_NODISCARD loong_status_t loongi_safetensors_declare(
    loong_safetensors_writer_t *writer, const char *name, loong_dtype_t dtype,
    int ndim, const int64_t *shape, int64_t *index_p);
/* Appends bytes to one tensor. Tensors may be written in any order. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_write(loong_safetensors_writer_t *writer, int64_t index,
                         const void *bytes, size_t length);
/* Errors: LOONG_ERR_ARG when a tensor is incomplete (named). */
LOONG_NODISCARD loong_status_t
loongi_safetensors_commit(loong_safetensors_writer_t *writer);
void loongi_safetensors_destroy(loong_safetensors_writer_t **writer);

/* ---- a model directory, reading ---- */
typedef struct loong_safetensors_set loong_safetensors_set_t;

/* Opens model.safetensors, or every shard that model.safetensors.index.json
 * names; the index and the shards must agree on every tensor. */
LOONG_NODISCARD loong_status_t loongi_safetensors_set_open(
    loong_context_t *ctx, const char *dir, loong_safetensors_set_t **set_p);
void loongi_safetensors_set_close(loong_safetensors_set_t **set);
int64_t loongi_safetensors_set_count(const loong_safetensors_set_t *set);
const loong_safetensor_t *
loongi_safetensors_set_get(const loong_safetensors_set_t *set, int64_t index);
const loong_safetensor_t *
loongi_safetensors_set_find(const loong_safetensors_set_t *set,
                            const char *name);
/* The file that holds the tensor, for messages. */
const char *loongi_safetensors_set_path(const loong_safetensors_set_t *set,
                                        const loong_safetensor_t *tensor);

/* ---- a model directory, writing ---- */
typedef struct loong_safetensors_set_writer loong_safetensors_set_writer_t;

/* Shards take at most max_shard_bytes each (one larger tensor still makes a
 * shard of its own); a single shard is model.safetensors without an index. */
LOONG_NODISCARD loong_status_t loongi_safetensors_set_create(
    loong_context_t *ctx, const char *dir, int64_t max_shard_bytes,
    loong_safetensors_set_writer_t **writer_p);
LOONG_NODISCARD loong_status_t loongi_safetensors_set_declare(
    loong_safetensors_set_writer_t *writer, const char *name,
    loong_dtype_t dtype, int ndim, const int64_t *shape, int64_t *index_p);
LOONG_NODISCARD loong_status_t
loongi_safetensors_set_write(loong_safetensors_set_writer_t *writer,
                             int64_t index, const void *bytes, size_t length);
/* Commits all shards, removes older model*.safetensors files that are not
 * part of the new set, writes the index. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_set_commit(loong_safetensors_set_writer_t *writer);
void loongi_safetensors_set_destroy(loong_safetensors_set_writer_t **writer);

#ifdef __cplusplus
}
#endif

#endif
