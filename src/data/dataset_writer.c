/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing an indexed data set as a stream. Everything goes to PREFIX.*.tmp;
 * the commit removes an old index first and puts the new one in place last,
 * so that an index never stands beside token files of another data set. Called
 * by indexer.c and dataset_merge.c. Read index_format.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base.h"
#include "file.h"
#include "index_format.h"
#include "loong/dataset.h"

enum { BUFFER_SIZE = 1 << 20, MAX_ELEMENT = 8 };

/* One file under its temporary name. */
typedef struct output {
    char *path;
    char *temporary;
    int fd; /* -1: not open */
    int64_t written;
    size_t filled;
    uint8_t *buffer; /* [BUFFER_SIZE] */
} output_t;

enum { OUT_BIN, OUT_MASK, OUT_IDX, OUT_COUNT };
static const char *const out_suffix[] = {".bin", ".mask.bin", ".idx"};

struct loong_dataset_writer {
    loong_context_t *ctx;
    loong_dtype_t dtype;
    int element;
    bool with_mask;
    bool committed;
    output_t out[OUT_COUNT];
    int32_t *lengths;
    int64_t sequences;
    int64_t lengths_capacity;
    int64_t *ends; /* sequences at the end of each document */
    int64_t documents;
    int64_t ends_capacity;
};

static loong_status_t output_flush(loong_context_t *ctx, output_t *out)
{
    LOONG_TRY(loongi_file_pwrite(ctx, out->fd, out->temporary, out->buffer,
                                 out->filled, (off_t)out->written));
    out->written += (int64_t)out->filled;
    out->filled = 0;
    return LOONG_OK;
}

static loong_status_t output_put(loong_context_t *ctx, output_t *out, int size,
                                 uint64_t value)
{
    if (out->filled + MAX_ELEMENT > BUFFER_SIZE) {
        LOONG_TRY(output_flush(ctx, out));
    }
    index_put(out->buffer + out->filled, size, value);
    out->filled += (size_t)size;
    return LOONG_OK;
}

static loong_status_t output_open(loong_context_t *ctx, const char *prefix,
                                  const char *suffix, output_t *out)
{
    size_t size = strlen(prefix) + strlen(suffix) + sizeof(".tmp");
    LOONG_TRY(loongi_alloc(ctx, size, "data set path", &out->path));
    snprintf(out->path, size, "%s%s", prefix, suffix);
    LOONG_TRY(loongi_alloc(ctx, size, "data set path", &out->temporary));
    snprintf(out->temporary, size, "%s%s.tmp", prefix, suffix);
    LOONG_TRY(loongi_alloc(ctx, BUFFER_SIZE, "write buffer", &out->buffer));
    int fd = open(out->temporary, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    LOONG_CHECK(ctx, fd >= 0, LOONG_ERR_IO, "cannot create '%s': %s",
                out->temporary, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return LOONG_FAIL(ctx, LOONG_ERR_IO,
                          "'%s' is being written by another process",
                          out->path);
    }
    out->fd = fd; /* from here on the temporary file is ours */
    LOONG_CHECK(ctx, ftruncate(fd, 0) == 0, LOONG_ERR_IO,
                "cannot empty '%s': %s", out->temporary, strerror(errno));
    return LOONG_OK;
}

static void output_close(loong_context_t *ctx, output_t *out, bool keep)
{
    if (out->fd >= 0) {
        if (!keep) {
            unlink(out->temporary);
        }
        close(out->fd);
    }
    loongi_free(ctx, out->buffer);
    loongi_free(ctx, out->temporary);
    loongi_free(ctx, out->path);
}

static loong_status_t output_finish(loong_context_t *ctx, output_t *out)
{
    LOONG_TRY(output_flush(ctx, out));
    return loongi_file_sync(ctx, out->fd, out->temporary);
}

static loong_status_t writer_open(loong_dataset_writer_t *writer,
                                  const char *prefix)
{
    for (int i = 0; i < OUT_COUNT; i++) {
        if (i != OUT_MASK || writer->with_mask) {
            LOONG_TRY(output_open(writer->ctx, prefix, out_suffix[i],
                                  &writer->out[i]));
        }
    }
    return LOONG_OK;
}

static int dtype_code(loong_dtype_t dtype)
{
    for (int code = 1; code < LOONG_COUNT_OF(index_dtypes); code++) {
        if (index_dtypes[code] == dtype) {
            return code;
        }
    }
    return 0;
}

loong_status_t
loong_dataset_writer_create(loong_context_t *ctx,
                            const loong_dataset_writer_params_t *params,
                            loong_dataset_writer_t **writer_p)
{
    loong_dataset_writer_t *writer = NULL;
    LOONG_CHECK(ctx,
                dtype_code(params->dtype) != 0 && params->dtype != LOONG_F32 &&
                    params->dtype != LOONG_F64,
                LOONG_ERR_ARG, "data set '%s': cannot hold token ids as %s",
                params->prefix, loong_dtype_name(params->dtype));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*writer), "data set writer", &writer));
    writer->ctx = ctx;
    writer->dtype = params->dtype;
    writer->element = (int)loong_dtype_size(params->dtype);
    writer->with_mask = params->with_mask;
    for (int i = 0; i < OUT_COUNT; i++) {
        writer->out[i].fd = -1;
    }
    loong_status_t status = writer_open(writer, params->prefix);
    if (status != LOONG_OK) {
        loong_dataset_writer_destroy(&writer);
        return status;
    }
    *writer_p = writer;
    return LOONG_OK;
}

static int64_t dtype_max(loong_dtype_t dtype)
{
    switch (dtype) {
    case LOONG_U8:
        return UINT8_MAX;
    case LOONG_I8:
        return INT8_MAX;
    case LOONG_U16:
        return UINT16_MAX;
    case LOONG_I16:
        return INT16_MAX;
    default:
        return INT32_MAX;
    }
}

static loong_status_t add_checked(loong_dataset_writer_t *writer,
                                  const int32_t *ids, const uint8_t *mask,
                                  int64_t count)
{
    loong_context_t *ctx = writer->ctx;
    int64_t limit = dtype_max(writer->dtype);
    for (int64_t i = 0; i < count; i++) {
        LOONG_CHECK(ctx, ids[i] >= 0 && ids[i] <= limit, LOONG_ERR_ARG,
                    "'%s', sequence %" PRId64 ", position %" PRId64
                    ": id %d, %s holds 0 to %" PRId64,
                    writer->out[OUT_BIN].path, writer->sequences, i, ids[i],
                    loong_dtype_name(writer->dtype), limit);
        LOONG_CHECK(ctx, mask == NULL || mask[i] <= 1, LOONG_ERR_ARG,
                    "'%s', sequence %" PRId64 ", position %" PRId64
                    ": mask value %d, allowed is 0 or 1",
                    writer->out[OUT_MASK].path, writer->sequences, i, mask[i]);
    }
    for (int64_t i = 0; i < count; i++) {
        LOONG_TRY(output_put(ctx, &writer->out[OUT_BIN], writer->element,
                             (uint64_t)ids[i]));
    }
    for (int64_t i = 0; mask != NULL && i < count; i++) {
        LOONG_TRY(output_put(ctx, &writer->out[OUT_MASK], 1, mask[i]));
    }
    writer->lengths[writer->sequences++] = (int32_t)count;
    return LOONG_OK;
}

loong_status_t loong_dataset_writer_add(loong_dataset_writer_t *writer,
                                        const int32_t *ids, const uint8_t *mask,
                                        int64_t count)
{
    LOONG_CHECK(writer->ctx, (mask != NULL) == writer->with_mask, LOONG_ERR_ARG,
                "'%s': mask %s, the data set is written %s one",
                writer->out[OUT_BIN].path, mask != NULL ? "given" : "missing",
                writer->with_mask ? "with" : "without");
    LOONG_CHECK(writer->ctx, count >= 0 && count <= INT32_MAX, LOONG_ERR_ARG,
                "'%s': sequence %" PRId64 " of %" PRId64
                " tokens, allowed are up to %d",
                writer->out[OUT_BIN].path, writer->sequences, count, INT32_MAX);
    LOONG_TRY(loongi_grow(writer->ctx, &writer->lengths,
                          &writer->lengths_capacity, writer->sequences + 1,
                          sizeof(*writer->lengths), "sequence lengths"));
    return add_checked(writer, ids, mask, count);
}

loong_status_t loong_dataset_writer_end_document(loong_dataset_writer_t *writer)
{
    LOONG_TRY(loongi_grow(writer->ctx, &writer->ends, &writer->ends_capacity,
                          writer->documents + 1, sizeof(*writer->ends),
                          "document ends"));
    writer->ends[writer->documents++] = writer->sequences;
    return LOONG_OK;
}

static loong_status_t write_index(loong_dataset_writer_t *writer)
{
    loong_context_t *ctx = writer->ctx;
    output_t *out = &writer->out[OUT_IDX];
    const char *magic = INDEX_MAGIC;
    for (int i = 0; i < INDEX_MAGIC_SIZE; i++) {
        LOONG_TRY(output_put(ctx, out, 1, (uint8_t)magic[i]));
    }
    LOONG_TRY(output_put(ctx, out, 8, INDEX_VERSION));
    LOONG_TRY(output_put(ctx, out, 1, (uint64_t)dtype_code(writer->dtype)));
    LOONG_TRY(output_put(ctx, out, 8, (uint64_t)writer->sequences));
    LOONG_TRY(output_put(ctx, out, 8, (uint64_t)writer->documents + 1));
    for (int64_t i = 0; i < writer->sequences; i++) {
        LOONG_TRY(output_put(ctx, out, 4, (uint64_t)writer->lengths[i]));
    }
    int64_t offset = 0;
    for (int64_t i = 0; i < writer->sequences; i++) {
        LOONG_TRY(output_put(ctx, out, 8, (uint64_t)offset));
        offset += (int64_t)writer->lengths[i] * writer->element;
    }
    LOONG_TRY(output_put(ctx, out, 8, 0));
    for (int64_t i = 0; i < writer->documents; i++) {
        LOONG_TRY(output_put(ctx, out, 8, (uint64_t)writer->ends[i]));
    }
    return LOONG_OK;
}

static loong_status_t remove_old(loong_context_t *ctx, const char *path)
{
    LOONG_CHECK(ctx, unlink(path) == 0 || errno == ENOENT, LOONG_ERR_IO,
                "cannot replace '%s': %s", path, strerror(errno));
    return LOONG_OK;
}

/* The mask of an older data set goes even when the new one has none. */
static loong_status_t remove_old_mask(loong_dataset_writer_t *writer)
{
    const char *bin = writer->out[OUT_BIN].path;
    size_t size = strlen(bin) + sizeof(".mask");
    char *path = NULL;
    LOONG_TRY(loongi_alloc(writer->ctx, size, "data set path", &path));
    snprintf(path, size, "%.*s%s", (int)(strlen(bin) - strlen(".bin")), bin,
             out_suffix[OUT_MASK]);
    loong_status_t status = remove_old(writer->ctx, path);
    loongi_free(writer->ctx, path);
    return status;
}

loong_status_t loong_dataset_writer_commit(loong_dataset_writer_t *writer)
{
    loong_context_t *ctx = writer->ctx;
    int64_t ended =
        writer->documents > 0 ? writer->ends[writer->documents - 1] : 0;
    LOONG_CHECK(ctx, !writer->committed, LOONG_ERR_ARG,
                "'%s' was committed before", writer->out[OUT_BIN].path);
    LOONG_CHECK(ctx, ended == writer->sequences, LOONG_ERR_ARG,
                "'%s': the last document has not been ended",
                writer->out[OUT_BIN].path);
    LOONG_TRY(write_index(writer));
    for (int i = 0; i < OUT_COUNT; i++) {
        if (writer->out[i].fd >= 0) {
            LOONG_TRY(output_finish(ctx, &writer->out[i]));
        }
    }
    LOONG_TRY(remove_old(ctx, writer->out[OUT_IDX].path));
    LOONG_TRY(remove_old_mask(writer));
    for (int i = 0; i < OUT_COUNT; i++) {
        if (writer->out[i].fd >= 0) {
            LOONG_TRY(loongi_file_rename(ctx, writer->out[i].temporary,
                                         writer->out[i].path));
        }
    }
    writer->committed = true;
    return LOONG_OK;
}

void loong_dataset_writer_destroy(loong_dataset_writer_t **writer_p)
{
    loong_dataset_writer_t *writer = *writer_p;
    if (writer == NULL) {
        return;
    }
    for (int i = 0; i < OUT_COUNT; i++) {
        output_close(writer->ctx, &writer->out[i], writer->committed);
    }
    loongi_free(writer->ctx, writer->lengths);
    loongi_free(writer->ctx, writer->ends);
    loongi_free(writer->ctx, writer);
    *writer_p = NULL;
}
