/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file, written as its data arrives. */
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

typedef struct declared {
    loong_safetensor_t tensor;
    size_t written;
} declared_t;

struct loong_safetensors_writer {
    loong_context_t *ctx;
    loong_arena_t *arena; /* names, paths */
    char *path;
    char *temporary;
    int fd;            /* -1 until the header is written */
    size_t data_begin; /* of the file */
    int64_t count;
    int64_t capacity;
    declared_t *items;
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
    loong_safetensor_t *tensor = &writer->items[writer->count].tensor;
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
            loong_safetensor_t *tensor = &writer->items[i].tensor;
            if (loong_dtype_size(tensor->dtype) == width) {
                tensor->offset = end;
                end += tensor->bytes;
            }
        }
    }
}

static void header_text(const loong_safetensors_writer_t *writer,
                        loong_text_t *text)
{
    loongi_text_append(text, "\0\0\0\0\0\0\0\0", 8);
    loongi_text_printf(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int64_t i = 0; i < writer->count; i++) {
        const loong_safetensor_t *tensor = &writer->items[i].tensor;
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
                          O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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

loong_status_t loongi_safetensors_write(loong_safetensors_writer_t *writer,
                                        int64_t index, const void *bytes,
                                        size_t length)
{
    declared_t *item = &writer->items[index];
    LOONG_CHECK(writer->ctx, length <= item->tensor.bytes - item->written,
                LOONG_ERR_ARG,
                "%s: tensor '%s' has %zu bytes, %zu are written, %zu more do "
                "not fit",
                writer->path, item->tensor.name, item->tensor.bytes,
                item->written, length);
    if (writer->fd < 0) {
        LOONG_TRY(write_header(writer));
    }
    size_t offset = writer->data_begin + item->tensor.offset + item->written;
    LOONG_TRY(loongi_file_pwrite(writer->ctx, writer->fd, writer->path, bytes,
                                 length, (off_t)offset));
    item->written += length;
    return LOONG_OK;
}

loong_status_t loongi_safetensors_commit(loong_safetensors_writer_t *writer)
{
    for (int64_t i = 0; i < writer->count; i++) {
        const declared_t *item = &writer->items[i];
        LOONG_CHECK(
            writer->ctx, item->written == item->tensor.bytes, LOONG_ERR_ARG,
            "%s: tensor '%s' is incomplete: %zu of %zu bytes", writer->path,
            item->tensor.name, item->written, item->tensor.bytes);
    }
    if (writer->fd < 0) { /* no tensors, or only empty ones */
        LOONG_TRY(write_header(writer));
    }
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
