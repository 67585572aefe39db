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
#include "tensor_stream.h"

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
/* These bytes of the map are a hole of the file. */
bool loongi_safetensors_is_hole(const loong_safetensors_t *file,
                                const void *data, size_t bytes);

/* ---- one file, writing ---- */
typedef struct loong_safetensors_writer loong_safetensors_writer_t;

/* Where the bytes come from: rows of the tensor of that handle. A row is what
 * the last dimension counts; of a vector or a scalar it is an element. */
typedef struct loong_safetensors_source {
    loong_stream_source_fn read;
    void *user;
    loong_meter_t *meter;
} loong_safetensors_source_t;

/* Elements of a row. */
static inline int64_t loongi_safetensors_row(int ndim, const int64_t *shape)
{
    return ndim > 1 ? shape[ndim - 1] : 1;
}

/* declare all tensors, fill, then commit. The file appears under its name at
 * commit only, durable; destroy without commit leaves nothing. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_create(loong_context_t *ctx, const char *path,
                          loong_safetensors_writer_t **writer_p);
/* Copies name and shape; *index_p is the handle. */
LOONG_NODISCARD loong_status_t loongi_safetensors_declare(
    loong_safetensors_writer_t *writer, const char *name, loong_dtype_t dtype,
    int ndim, const int64_t *shape, int64_t *index_p);
/* Writes all tensors, by several threads. Errors: the source's,
 * LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_fill(loong_safetensors_writer_t *writer,
                        const loong_safetensors_source_t *source);
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
/* These bytes of the tensor are a hole of its file. */
bool loongi_safetensors_set_is_hole(const loong_safetensors_set_t *set,
                                    const loong_safetensor_t *tensor,
                                    const void *data, size_t bytes);

/* ---- a model directory, writing ---- */
typedef struct loong_safetensors_set_writer loong_safetensors_set_writer_t;

typedef struct loong_safetensors_set_params {
    const char *dir;
    int64_t max_shard_bytes; /* one larger tensor makes a shard of its own */
    /* What the set is made from. One that was interrupted is gone on with when
     * its key is the same; shards that are whole are not made again. */
    const char *key;
} loong_safetensors_set_params_t;

/* Everything is put together in a hidden directory in DIR, and comes to its
 * place at commit: a set that is not whole cannot be read. A single shard is
 * model.safetensors without an index. */
LOONG_NODISCARD loong_status_t loongi_safetensors_set_create(
    loong_context_t *ctx, const loong_safetensors_set_params_t *params,
    loong_safetensors_set_writer_t **writer_p);
/* The hidden directory: files written to it come to their place as well. */
const char *
loongi_safetensors_set_workdir(const loong_safetensors_set_writer_t *writer);
LOONG_NODISCARD loong_status_t loongi_safetensors_set_declare(
    loong_safetensors_set_writer_t *writer, const char *name,
    loong_dtype_t dtype, int ndim, const int64_t *shape, int64_t *index_p);
/* Of what is declared. */
int64_t
loongi_safetensors_set_bytes(const loong_safetensors_set_writer_t *writer);
/* Writes the shards that are not there yet. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_set_fill(loong_safetensors_set_writer_t *writer,
                            const loong_safetensors_source_t *source);
/* Moves all files to their place; older model*.safetensors files that are not
 * part of the new set go. */
LOONG_NODISCARD loong_status_t
loongi_safetensors_set_commit(loong_safetensors_set_writer_t *writer);
/* Without commit, what is whole is left for the next attempt. */
/* As destroy; after a failure that is not the disk's, for which another try
 * would go on with it, what it left is removed. */
void loongi_safetensors_set_end(loong_safetensors_set_writer_t **writer,
                                loong_status_t outcome);
void loongi_safetensors_set_destroy(loong_safetensors_set_writer_t **writer);

#ifdef __cplusplus
}
#endif

#endif
