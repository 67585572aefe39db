/* SPDX-License-Identifier: Apache-2.0
 *
 * One safetensors file: the header is checked completely before any tensor is
 * handed out, so that readers never look outside the map. Called by
 * safetensors_set.c, for shapes by other files of src/checkpoint. Read
 * safetensors.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "mapped.h"
#include "safetensors.h"
#include "safetensors_dtype.h"

struct loong_safetensors {
    loong_context_t *ctx;
    loong_arena_t *arena; /* names, tensors, path */
    char *path;
    int fd;    /* -1: bytes are borrowed */
    void *map; /* NULL: the same */
    size_t map_size;
    const char *data;
    size_t data_size;
    int64_t count;
    loong_safetensor_t *tensors;        /* by offset */
    const loong_safetensor_t **by_name; /* sorted */
};

int64_t loongi_shape_count(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int i = 0; i < ndim; i++) {
        count *= shape[i];
    }
    return count;
}

const char *loongi_shape_text(int ndim, const int64_t *shape,
                              char buffer[LOONG_SHAPE_TEXT])
{
    size_t used = 0;
    for (int i = 0; i < ndim; i++) {
        used += (size_t)snprintf(buffer + used, LOONG_SHAPE_TEXT - used,
                                 "%s%" PRId64, i == 0 ? "[" : ", ", shape[i]);
    }
    snprintf(buffer + used, LOONG_SHAPE_TEXT - used, ndim == 0 ? "[]" : "]");
    return buffer;
}

static loong_status_t read_dtype(loong_safetensors_t *file,
                                 const loong_json_t *info,
                                 loong_safetensor_t *tensor)
{
    const loong_json_t *json = loongi_json_get(info, "dtype");
    LOONG_CHECK(file->ctx,
                json != NULL && loongi_json_kind(json) == LOONG_JSON_STRING,
                LOONG_ERR_FORMAT, "%s: tensor '%s' has no dtype string",
                file->path, tensor->name);
    const char *text = loongi_json_string(json);
    for (int i = 0; i < LOONG_DTYPE_COUNT; i++) {
        if (i != LOONG_F8_E5M2 && /* no weights are kept so */
            strcmp(text, loongi_safetensors_dtype((loong_dtype_t)i)) == 0) {
            tensor->dtype = (loong_dtype_t)i;
            return LOONG_OK;
        }
    }
    return LOONG_FAIL(file->ctx, LOONG_ERR_UNSUPPORTED,
                      "%s: tensor '%s' has dtype '%s'; supported are F64, F32, "
                      "BF16, F16, F8_E4M3, I64, I32, I16, I8, U16, U8, BOOL",
                      file->path, tensor->name, text);
}

static loong_status_t read_shape(loong_safetensors_t *file,
                                 const loong_json_t *info,
                                 loong_safetensor_t *tensor)
{
    const loong_json_t *json = loongi_json_get(info, "shape");
    LOONG_CHECK(file->ctx,
                json != NULL && loongi_json_kind(json) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "%s: tensor '%s' has no shape list",
                file->path, tensor->name);
    int64_t ndim = loongi_json_count(json);
    LOONG_CHECK(file->ctx, ndim <= LOONG_TENSOR_MAX_DIMS, LOONG_ERR_UNSUPPORTED,
                "%s: tensor '%s' has %" PRId64 " dimensions, at most %d are "
                "supported",
                file->path, tensor->name, ndim, (int)LOONG_TENSOR_MAX_DIMS);
    uint64_t bytes = loong_dtype_size(tensor->dtype);
    tensor->ndim = (int)ndim;
    for (int i = 0; i < tensor->ndim; i++) {
        const loong_json_t *dim = loongi_json_at(json, i);
        int64_t value = loongi_json_int(dim);
        LOONG_CHECK(file->ctx,
                    loongi_json_kind(dim) == LOONG_JSON_INT && value >= 0,
                    LOONG_ERR_FORMAT,
                    "%s: tensor '%s' has a shape that is not a list of counts",
                    file->path, tensor->name);
        LOONG_CHECK(file->ctx,
                    value == 0 || bytes <= INT64_MAX / (uint64_t)value,
                    LOONG_ERR_FORMAT, "%s: the shape of tensor '%s' overflows",
                    file->path, tensor->name);
        bytes *= (uint64_t)value;
        tensor->shape[i] = value;
    }
    tensor->bytes = (size_t)bytes;
    return LOONG_OK;
}

static loong_status_t read_offsets(loong_safetensors_t *file,
                                   const loong_json_t *info,
                                   loong_safetensor_t *tensor)
{
    char shape[LOONG_SHAPE_TEXT];
    const loong_json_t *json = loongi_json_get(info, "data_offsets");
    const loong_json_t *begin = json ? loongi_json_at(json, 0) : NULL;
    const loong_json_t *end = json ? loongi_json_at(json, 1) : NULL;
    LOONG_CHECK(file->ctx,
                begin != NULL && end != NULL && loongi_json_count(json) == 2 &&
                    loongi_json_kind(begin) == LOONG_JSON_INT &&
                    loongi_json_kind(end) == LOONG_JSON_INT,
                LOONG_ERR_FORMAT,
                "%s: tensor '%s' has no data_offsets [begin, end]", file->path,
                tensor->name);
    int64_t b = loongi_json_int(begin);
    int64_t e = loongi_json_int(end);
    LOONG_CHECK(file->ctx, b >= 0 && b <= e && (uint64_t)e <= file->data_size,
                LOONG_ERR_FORMAT,
                "%s: tensor '%s' is at bytes %" PRId64 " to %" PRId64
                ", the file holds %zu bytes of data",
                file->path, tensor->name, b, e, file->data_size);
    LOONG_CHECK(file->ctx, (size_t)(e - b) == tensor->bytes, LOONG_ERR_FORMAT,
                "%s: tensor '%s' %s %s needs %zu bytes, data_offsets give "
                "%" PRId64,
                file->path, tensor->name, loong_dtype_name(tensor->dtype),
                loongi_shape_text(tensor->ndim, tensor->shape, shape),
                tensor->bytes, e - b);
    tensor->offset = (size_t)b;
    tensor->data = file->data + b;
    return LOONG_OK;
}

static loong_status_t read_tensor(loong_safetensors_t *file, const char *name,
                                  const loong_json_t *info,
                                  loong_safetensor_t *tensor)
{
    char *copy = NULL;
    LOONG_CHECK(file->ctx, name[0] != '\0', LOONG_ERR_FORMAT,
                "%s: a tensor has an empty name", file->path);
    LOONG_CHECK(file->ctx,
                loongi_json_kind(info) == LOONG_JSON_OBJECT &&
                    loongi_json_count(info) == 3,
                LOONG_ERR_FORMAT,
                "%s: tensor '%s' must have exactly dtype, shape and "
                "data_offsets",
                file->path, name);
    LOONG_TRY(loongi_arena_strdup(file->arena, name, &copy));
    tensor->name = copy;
    LOONG_TRY(read_dtype(file, info, tensor));
    LOONG_TRY(read_shape(file, info, tensor));
    return read_offsets(file, info, tensor);
}

static loong_status_t check_metadata(loong_safetensors_t *file,
                                     const loong_json_t *metadata)
{
    LOONG_CHECK(file->ctx, loongi_json_kind(metadata) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: __metadata__ is %s, not an object",
                file->path, loongi_json_kind_text(metadata));
    for (const loong_json_member_t *m = loongi_json_first(metadata); m != NULL;
         m = loongi_json_next(metadata, m)) {
        LOONG_CHECK(file->ctx,
                    loongi_json_kind(loongi_json_member_value(m)) ==
                        LOONG_JSON_STRING,
                    LOONG_ERR_FORMAT, "%s: __metadata__ '%s' is not a string",
                    file->path, loongi_json_member_key(m));
    }
    return LOONG_OK;
}

static int by_offset(const void *a, const void *b)
{
    const loong_safetensor_t *x = a;
    const loong_safetensor_t *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) { /* empty tensors first */
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const loong_safetensor_t *const *x = a;
    const loong_safetensor_t *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static loong_status_t check_layout(loong_safetensors_t *file)
{
    size_t end = 0;
    qsort(file->tensors, (size_t)file->count, sizeof(*file->tensors),
          by_offset);
    for (int64_t i = 0; i < file->count; i++) {
        const loong_safetensor_t *tensor = &file->tensors[i];
        LOONG_CHECK(file->ctx, tensor->offset == end, LOONG_ERR_FORMAT,
                    "%s: tensor '%s' begins at byte %zu of the data, %s at "
                    "%zu",
                    file->path, tensor->name, tensor->offset,
                    tensor->offset > end ? "leaving a hole after the data "
                                           "before it, which ends"
                                         : "inside the tensor that ends",
                    end);
        end += tensor->bytes;
        file->by_name[i] = tensor;
    }
    LOONG_CHECK(file->ctx, end == file->data_size, LOONG_ERR_FORMAT,
                "%s: the tensors end at byte %zu of the data, the file has "
                "%zu",
                file->path, end, file->data_size);
    qsort(file->by_name, (size_t)file->count, sizeof(*file->by_name), by_name);
    return LOONG_OK;
}

static loong_status_t read_header(loong_safetensors_t *file,
                                  const loong_json_t *header)
{
    LOONG_CHECK(file->ctx, loongi_json_kind(header) == LOONG_JSON_OBJECT,
                LOONG_ERR_FORMAT, "%s: the header is %s, not an object",
                file->path, loongi_json_kind_text(header));
    size_t room = (size_t)loongi_json_count(header);
    LOONG_TRY(loongi_arena_alloc(file->arena, room * sizeof(*file->tensors),
                                 &file->tensors));
    LOONG_TRY(loongi_arena_alloc(file->arena, room * sizeof(*file->by_name),
                                 &file->by_name));
    for (const loong_json_member_t *m = loongi_json_first(header); m != NULL;
         m = loongi_json_next(header, m)) {
        const char *name = loongi_json_member_key(m);
        const loong_json_t *info = loongi_json_member_value(m);
        if (strcmp(name, "__metadata__") == 0) {
            LOONG_TRY(check_metadata(file, info));
        } else {
            LOONG_TRY(
                read_tensor(file, name, info, &file->tensors[file->count]));
            file->count++;
        }
    }
    return check_layout(file);
}

static loong_status_t parse(loong_safetensors_t *file, const char *bytes,
                            size_t size)
{
    uint64_t length = 0;
    LOONG_CHECK(file->ctx, size >= 8, LOONG_ERR_FORMAT,
                "%s: %zu bytes are too few for a safetensors file", file->path,
                size);
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | (unsigned char)bytes[i];
    }
    LOONG_CHECK(file->ctx, length <= LOONG_SAFETENSORS_MAX_HEADER,
                LOONG_ERR_FORMAT,
                "%s: the header says it has %" PRIu64 " bytes, at most %d are "
                "allowed: not a safetensors file?",
                file->path, length, (int)LOONG_SAFETENSORS_MAX_HEADER);
    LOONG_CHECK(file->ctx, length <= size - 8, LOONG_ERR_FORMAT,
                "%s: the header says it has %" PRIu64 " bytes, the file ends "
                "after %zu: truncated?",
                file->path, length, size - 8);
    LOONG_CHECK(file->ctx, length >= 2 && bytes[8] == '{', LOONG_ERR_FORMAT,
                "%s: the header does not begin with '{'", file->path);
    file->data = bytes + 8 + length;
    file->data_size = size - 8 - (size_t)length;
    loong_json_t *header = NULL;
    LOONG_TRY(loongi_json_parse(file->ctx, bytes + 8, (size_t)length,
                                file->path, &header));
    loong_status_t status = read_header(file, header);
    loongi_json_destroy(&header);
    return status;
}

static loong_status_t begin(loong_context_t *ctx, const char *path,
                            loong_safetensors_t **file_p)
{
    loong_safetensors_t *file = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*file), "safetensors file", &file));
    file->ctx = ctx;
    file->fd = -1;
    LOONG_TRY_GOTO(loongi_arena_create(ctx, "safetensors header", &file->arena),
                   status, err_file);
    LOONG_TRY_GOTO(loongi_arena_strdup(file->arena, path, &file->path), status,
                   err_file);
    *file_p = file;
    return LOONG_OK;
err_file:
    loongi_safetensors_close(&file);
    return status;
}

loong_status_t loongi_safetensors_parse(loong_context_t *ctx, const void *bytes,
                                        size_t size, const char *path,
                                        loong_safetensors_t **file_p)
{
    loong_safetensors_t *file = NULL;
    LOONG_TRY(begin(ctx, path, &file));
    loong_status_t status = parse(file, bytes, size);
    if (status != LOONG_OK) {
        loongi_safetensors_close(&file);
        return status;
    }
    *file_p = file;
    return LOONG_OK;
}

static loong_status_t map_file(loong_safetensors_t *file)
{
    struct stat info;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    LOONG_CHECK(file->ctx, fd >= 0,
                errno == ENOENT ? LOONG_ERR_NOT_FOUND : LOONG_ERR_IO,
                "cannot open '%s': %s", file->path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 8) {
        close(fd);
        return LOONG_FAIL(file->ctx, LOONG_ERR_FORMAT,
                          "'%s' is not a file of at least 8 bytes", file->path);
    }
    file->map_size = (size_t)info.st_size;
    void *map = mmap(NULL, file->map_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        int code = errno;
        close(fd);
        return LOONG_FAIL(file->ctx, LOONG_ERR_IO, "cannot map '%s': %s",
                          file->path, strerror(code));
    }
    file->fd = fd;
    file->map = map;
    return LOONG_OK;
}

loong_status_t loongi_safetensors_open(loong_context_t *ctx, const char *path,
                                       loong_safetensors_t **file_p)
{
    loong_safetensors_t *file = NULL;
    LOONG_TRY(begin(ctx, path, &file));
    loong_status_t status = map_file(file);
    if (status == LOONG_OK) {
        status = parse(file, file->map, file->map_size);
    }
    if (status != LOONG_OK) {
        loongi_safetensors_close(&file);
        return status;
    }
    *file_p = file;
    return LOONG_OK;
}

void loongi_safetensors_close(loong_safetensors_t **file)
{
    if (*file == NULL) {
        return;
    }
    if ((*file)->map != NULL) {
        munmap((*file)->map, (*file)->map_size);
        close((*file)->fd);
    }
    loongi_arena_destroy(&(*file)->arena);
    loongi_free((*file)->ctx, *file);
    *file = NULL;
}

bool loongi_safetensors_is_hole(const loong_safetensors_t *file,
                                const void *data, size_t bytes)
{
    return file->map != NULL &&
           loongi_file_is_hole(file->fd,
                               (const char *)data - (const char *)file->map,
                               (int64_t)bytes);
}

int64_t loongi_safetensors_count(const loong_safetensors_t *file)
{
    return file->count;
}

const loong_safetensor_t *
loongi_safetensors_get(const loong_safetensors_t *file, int64_t index)
{
    return &file->tensors[index];
}

const loong_safetensor_t *
loongi_safetensors_find(const loong_safetensors_t *file, const char *name)
{
    loong_safetensor_t key = {0};
    const loong_safetensor_t *key_ptr = &key;
    key.name = name;
    const loong_safetensor_t *const *found =
        bsearch(&key_ptr, file->by_name, (size_t)file->count,
                sizeof(*file->by_name), by_name);
    return found != NULL ? *found : NULL;
}
