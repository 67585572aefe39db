/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file, written as its data arrives. Called by
 * safetensors_set_write.c. Read safetensors.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "json.h"
#include "safetensors.h"
#include "safetensors_dtype.h"

struct loong_safetensors_writer {
    loong_context_t *ctx;
    loong_arena_t *arena; /* names, paths */
    char *path;
    char *temporary;
    int fd;            /* -1 until it is filled */
    size_t data_begin; /* of the file */
    size_t bytes;      /* of all tensors */
    bool full;
    int64_t count;
    int64_t capacity;
    loong_safetensor_t *items;
};

loong_status_t loongi_safetensors_create(loong_context_t *ctx, const char *path,
                                         loong_safetensors_writer_t **writer_p)
{
    loong_safetensors_writer_t *writer = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(
        loongi_alloc(ctx, sizeof(*writer), "safetensors writer", &writer));
    writer->ctx = ctx;
    writer->fd = -1;
    LOONG_TRY_GOTO(
        loongi_arena_create(ctx, "safetensors writer", &writer->arena), status,
        err_writer);
    LOONG_TRY_GOTO(loongi_arena_strdup(writer->arena, path, &writer->path),
                   status, err_writer);
    LOONG_TRY_GOTO(
        loongi_arena_printf(writer->arena, &writer->temporary, "%s.tmp", path),
        status, err_writer);
    *writer_p = writer;
    return LOONG_OK;
err_writer:
    loongi_safetensors_destroy(&writer);
    return status;
}

loong_status_t loongi_safetensors_declare(loong_safetensors_writer_t *writer,
                                          const char *name, loong_dtype_t dtype,
                                          int ndim, const int64_t *shape,
                                          int64_t *index_p)
{
    char *copy = NULL;
    LOONG_CHECK(writer->ctx, writer->fd < 0, LOONG_ERR_ARG,
                "tensor '%s' declared after the first write", name);
    LOONG_CHECK(writer->ctx, ndim >= 0 && ndim <= LOONG_TENSOR_MAX_DIMS,
                LOONG_ERR_ARG,
                "tensor '%s' has %d dimensions, 0 to %d are "
                "allowed",
                name, ndim, (int)LOONG_TENSOR_MAX_DIMS);
    LOONG_TRY(loongi_grow(writer->ctx, &writer->items, &writer->capacity,
                          writer->count + 1, sizeof(*writer->items),
                          "safetensors tensors"));
    LOONG_TRY(loongi_arena_strdup(writer->arena, name, &copy));
    loong_safetensor_t *tensor = &writer->items[writer->count];
    tensor->name = copy;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        tensor->shape[i] = shape[i];
    }
    tensor->bytes =
        (size_t)loongi_shape_count(ndim, shape) * loong_dtype_size(dtype);
    *index_p = writer->count++;
    return LOONG_OK;
}

/* Wide elements first, so that every tensor is aligned to its own type. */
static void place(loong_safetensors_writer_t *writer)
{
    size_t end = 0;
    for (size_t width = 8; width > 0; width /= 2) {
        for (int64_t i = 0; i < writer->count; i++) {
            loong_safetensor_t *tensor = &writer->items[i];
            if (loong_dtype_size(tensor->dtype) == width) {
                tensor->offset = end;
                end += tensor->bytes;
            }
        }
    }
    writer->bytes = end;
}

static void header_text(const loong_safetensors_writer_t *writer,
                        loong_text_t *text)
{
    loongi_text_append(text, "\0\0\0\0\0\0\0\0", 8);
    loongi_text_printf(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < writer->count; i++) {
        const loong_safetensor_t *tensor = &writer->items[i];
        loongi_text_printf(text, ",");
        loongi_text_json_string(text, tensor->name);
        loongi_text_printf(text, ":{\"dtype\":\"%s\",\"shape\":[",
                           loongi_safetensors_dtype(tensor->dtype));
        for (int d = 0; d < tensor->ndim; d++) {
            loongi_text_printf(text, "%s%" PRId64, d > 0 ? "," : "",
                               tensor->shape[d]);
        }
        loongi_text_printf(text, "],\"data_offsets\":[%zu,%zu]}",
                           tensor->offset, tensor->offset + tensor->bytes);
    }
    loongi_text_printf(text, "}");
    while (text->status == LOONG_OK && text->length % 8 != 0) {
        loongi_text_append(text, " ", 1);
    }
}

static loong_status_t write_header(loong_safetensors_writer_t *writer)
{
    loong_text_t text = loongi_text_begin(writer->ctx);
    place(writer);
    header_text(writer, &text);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        size_t length = text.length - 8;
        for (int i = 0; i < 8; i++) {
            text.data[i] = (char)(length >> (8 * i) & 0xff);
        }
        writer->data_begin = text.length;
        writer->fd = open(writer->temporary,
                          O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        status = writer->fd >= 0
                     ? loongi_file_pwrite(writer->ctx, writer->fd, writer->path,
                                          text.data, text.length, 0)
                     : LOONG_FAIL(writer->ctx, LOONG_ERR_IO,
                                  "cannot create '%s': %s", writer->temporary,
                                  strerror(errno));
    }
    loongi_text_free(&text);
    return status;
}

static int by_offset(const void *a, const void *b)
{
    const loong_stream_item_t *x = a;
    const loong_stream_item_t *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* A row is what the last dimension counts; of a vector it is an element. */
static loong_status_t list_items(const loong_safetensors_writer_t *writer,
                                 loong_stream_item_t **items_p)
{
    loong_stream_item_t *items = NULL;
    LOONG_TRY(loongi_calloc(writer->ctx, (size_t)writer->count,
                            sizeof(*items), "safetensors tensors", &items));
    for (int64_t i = 0; i < writer->count; i++) {
        const loong_safetensor_t *t = &writer->items[i];
        items[i].offset = (int64_t)(writer->data_begin + t->offset);
        items[i].index = i;
        items[i].row_bytes = loongi_safetensors_row(t->ndim, t->shape) *
                             (int64_t)loong_dtype_size(t->dtype);
        items[i].rows = items[i].row_bytes > 0
                            ? (int64_t)t->bytes / items[i].row_bytes
                            : 0;
    }
    if (writer->count > 0) {
        qsort(items, (size_t)writer->count, sizeof(*items), by_offset);
    }
    *items_p = items;
    return LOONG_OK;
}

loong_status_t
loongi_safetensors_fill(loong_safetensors_writer_t *writer,
                        const loong_safetensors_source_t *source)
{
    loong_stream_params_t stream = {0};
    loong_stream_item_t *items = NULL;
    LOONG_CHECK(writer->ctx, writer->fd < 0, LOONG_ERR_ARG,
                "'%s' was filled before", writer->path);
    LOONG_TRY(write_header(writer));
    stream.path = writer->path;
    stream.fd = writer->fd;
    stream.bytes = (int64_t)(writer->data_begin + writer->bytes);
    LOONG_CHECK(writer->ctx, ftruncate(writer->fd, (off_t)stream.bytes) == 0,
                LOONG_ERR_IO, "cannot write '%s' (%" PRId64 " bytes): %s",
                writer->path, stream.bytes, strerror(errno));
    LOONG_TRY(list_items(writer, &items));
    stream.count = writer->count;
    stream.items = items;
    stream.source = source->read;
    stream.user = source->user;
    stream.meter = source->meter;
    loong_status_t status = loongi_stream_fill(writer->ctx, &stream, NULL);
    loongi_free(writer->ctx, items);
    writer->full = status == LOONG_OK;
    return status;
}

loong_status_t loongi_safetensors_commit(loong_safetensors_writer_t *writer)
{
    LOONG_CHECK(writer->ctx, writer->full, LOONG_ERR_ARG,
                "'%s' was not filled", writer->path);
    LOONG_TRY(loongi_file_sync(writer->ctx, writer->fd, writer->temporary));
    LOONG_TRY(loongi_file_rename(writer->ctx, writer->temporary, writer->path));
    close(writer->fd);
    writer->fd = -1;
    return LOONG_OK;
}

void loongi_safetensors_destroy(loong_safetensors_writer_t **writer)
{
    if (*writer == NULL) {
        return;
    }
    if ((*writer)->fd >= 0) {
        close((*writer)->fd);
        unlink((*writer)->temporary);
    }
    loongi_free((*writer)->ctx, (*writer)->items);
    loongi_arena_destroy(&(*writer)->arena);
    loongi_free((*writer)->ctx, *writer);
    *writer = NULL;
}
