/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.json, and the list of one rank, which is written like one of
 * version 1: with all pieces in itself. The last member is the checksum of
 * everything before it, so that a changed digit does not go unseen. Called by
 * native_save.c, native_commit.c, native_write.c and native_load.c. Read
 * native_layout.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "native_dir.h"
#include "native_layout.h"

#define FORMAT "loong-checkpoint"
#define CHECKSUM_MARK ",\n\"checksum\":\""
enum { WHOLE_VERSION = 1, VERSION = 2 };
#define PIECES "pieces.json"

static void list_text(loong_text_t *text, const char *name, int ndim,
                      const int64_t *values)
{
    loongi_text_printf(text, ",\"%s\":[", name);
    for (int d = 0; d < ndim; d++) {
        loongi_text_printf(text, "%s%" PRId64, d > 0 ? "," : "", values[d]);
    }
    loongi_text_printf(text, "]");
}

static void piece_text(const loong_layout_piece_t *piece, loong_text_t *text)
{
    const loong_checkpoint_tensor_t *tensor = &piece->tensor;
    loongi_text_printf(text, "{\"kind\":");
    loongi_text_json_string(text, tensor->kind);
    loongi_text_printf(text, ",\"name\":");
    loongi_text_json_string(text, tensor->name);
    loongi_text_printf(text, ",\"dtype\":\"%s\"",
                       loong_dtype_name(tensor->dtype));
    list_text(text, "shape", tensor->ndim, tensor->shape);
    list_text(text, "begin", tensor->ndim, piece->begin);
    list_text(text, "count", tensor->ndim, piece->count);
    loongi_text_printf(
        text, ",\"file\":%" PRId64 ",\"offset\":%" PRId64 ",\"dataset\":",
        piece->file, piece->offset);
    loongi_text_json_string(text, piece->dataset);
    loongi_text_printf(text, "}");
}

static const loong_json_t *member(const loong_json_t *object, const char *name,
                                  loong_json_kind_t kind)
{
    const loong_json_t *value = loongi_json_get(object, name);
    return value != NULL && loongi_json_kind(value) == kind ? value : NULL;
}

static bool parse_list(const loong_json_t *object, const char *name, int *ndim,
                       int64_t values[LOONG_TENSOR_MAX_DIMS])
{
    const loong_json_t *list = member(object, name, LOONG_JSON_ARRAY);
    if (list == NULL || loongi_json_count(list) > LOONG_TENSOR_MAX_DIMS ||
        (*ndim >= 0 && loongi_json_count(list) != *ndim)) {
        return false;
    }
    *ndim = (int)loongi_json_count(list);
    for (int d = 0; d < *ndim; d++) {
        const loong_json_t *value = loongi_json_at(list, d);
        if (loongi_json_kind(value) != LOONG_JSON_INT) {
            return false;
        }
        values[d] = loongi_json_int(value);
    }
    return true;
}

static bool parse_piece(const loong_json_t *json, loong_layout_piece_t *piece)
{
    const loong_json_t *kind = member(json, "kind", LOONG_JSON_STRING);
    const loong_json_t *name = member(json, "name", LOONG_JSON_STRING);
    const loong_json_t *dtype = member(json, "dtype", LOONG_JSON_STRING);
    const loong_json_t *file = member(json, "file", LOONG_JSON_INT);
    const loong_json_t *offset = member(json, "offset", LOONG_JSON_INT);
    const loong_json_t *dataset = member(json, "dataset", LOONG_JSON_STRING);
    if (kind == NULL || name == NULL || dtype == NULL || file == NULL ||
        offset == NULL || dataset == NULL ||
        !loong_dtype_from_name(loongi_json_string(dtype),
                               &piece->tensor.dtype)) {
        return false;
    }
    piece->tensor.kind = loongi_json_string(kind);
    piece->tensor.name = loongi_json_string(name);
    piece->tensor.ndim = -1;
    piece->file = loongi_json_int(file);
    piece->offset = loongi_json_int(offset);
    piece->dataset = loongi_json_string(dataset);
    return parse_list(json, "shape", &piece->tensor.ndim,
                      piece->tensor.shape) &&
           parse_list(json, "begin", &piece->tensor.ndim, piece->begin) &&
           parse_list(json, "count", &piece->tensor.ndim, piece->count);
}

static loong_status_t parse_pieces(loong_layout_t *layout,
                                   const loong_json_t *list, int64_t first,
                                   const char *where)
{
    LOONG_CHECK(layout->ctx,
                list != NULL && loongi_json_kind(list) == LOONG_JSON_ARRAY,
                LOONG_ERR_FORMAT, "%s: no list of pieces", where);
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        loong_layout_piece_t piece;
        memset(&piece, 0, sizeof(piece));
        LOONG_CHECK(layout->ctx, parse_piece(loongi_json_at(list, i), &piece),
                    LOONG_ERR_FORMAT, "%s: piece %" PRId64 " is malformed",
                    where, i);
        piece.file += first;
        LOONG_TRY(loongi_layout_add_piece(layout, &piece));
    }
    return LOONG_OK;
}

/* ---- writing ------------------------------------------------------------- */

static void files_text(const loong_layout_file_t *files, int64_t count,
                       loong_text_t *text)
{
    for (int64_t i = 0; i < count; i++) {
        const char *slash = strchr(files[i].name, '/');
        loongi_text_printf(text, "%s\n{\"name\":", i > 0 ? "," : "");
        loongi_text_json_string(text,
                                slash != NULL ? slash + 1 : files[i].name);
        loongi_text_printf(text,
                           ",\"bytes\":%" PRId64 ",\"xxh3\":\"%016" PRIx64
                           "\"}",
                           files[i].bytes, files[i].xxh3);
    }
}

static void compose_head(const loong_layout_t *layout, int version,
                         int64_t step, const loong_pairs_t *metadata,
                         loong_text_t *text)
{
    loongi_text_printf(text,
                       "{\"format\":\"" FORMAT "\",\"version\":%d,\"step\":"
                       "%" PRId64 ",\n\"metadata\":{",
                       version, step);
    for (int64_t i = 0; metadata != NULL && i < metadata->count; i++) {
        loongi_text_printf(text, "%s\n", i > 0 ? "," : "");
        loongi_text_json_string(text, metadata->items[i].key);
        loongi_text_printf(text, ":");
        loongi_text_json_string(text, metadata->items[i].value);
    }
    loongi_text_printf(text, "},\n\"files\":[");
    files_text(layout->files, layout->file_count, text);
}

/* Frees the text. */
static loong_status_t write_text(loong_context_t *ctx, loong_text_t *text,
                                 const char *path)
{
    loong_status_t status = text->status;
    if (status == LOONG_OK) {
        uint64_t sum = loongi_checksum(text->data, text->length);
        loongi_text_printf(text, CHECKSUM_MARK "%016" PRIx64 "\"}\n", sum);
        status = text->status;
    }
    if (status == LOONG_OK) {
        status = loongi_file_write(ctx, path, text->data, text->length);
    }
    loongi_text_free(text);
    return status;
}

loong_status_t loongi_layout_write_list(loong_context_t *ctx,
                                        const loong_layout_t *layout,
                                        int64_t step, const char *path)
{
    loong_text_t text = loongi_text_begin(ctx);
    compose_head(layout, WHOLE_VERSION, step, NULL, &text);
    loongi_text_printf(&text, "],\n\"pieces\":[");
    for (int64_t i = 0; i < layout->piece_count; i++) {
        loongi_text_printf(&text, "%s\n", i > 0 ? "," : "");
        piece_text(&layout->pieces[i], &text);
    }
    loongi_text_printf(&text, "]");
    return write_text(ctx, &text, path);
}

static void tensor_text(const loong_layout_tensor_t *t, loong_text_t *text)
{
    loongi_text_printf(text, "{\"kind\":");
    loongi_text_json_string(text, t->tensor.kind);
    loongi_text_printf(text, ",\"name\":");
    loongi_text_json_string(text, t->tensor.name);
    loongi_text_printf(text, ",\"dtype\":\"%s\"",
                       loong_dtype_name(t->tensor.dtype));
    list_text(text, "shape", t->tensor.ndim, t->tensor.shape);
    loongi_text_printf(text,
                       ",\"pieces\":%" PRId64 ",\"offset\":%" PRId64
                       ",\"bytes\":%" PRId64 ",\"xxh3\":\"%016" PRIx64 "\"}",
                       t->count, t->offset, t->bytes, t->xxh3);
}

loong_status_t loongi_layout_write_index(loong_layout_t *layout, int64_t step,
                                         const loong_pairs_t *metadata,
                                         const char *dir)
{
    loong_context_t *ctx = layout->ctx;
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/" PIECES, dir);
    loong_status_t status =
        path.status != LOONG_OK ? path.status
                                : loongi_pieces_write(layout, path.data);
    loongi_text_free(&path);
    LOONG_TRY(status);
    loong_text_t text = loongi_text_begin(ctx);
    compose_head(layout, VERSION, step, metadata, &text);
    loongi_text_printf(&text, "],\n\"hf\":[");
    files_text(layout->hf_files, layout->hf_count, &text);
    loongi_text_printf(&text, "],\n\"tensors\":[");
    for (int64_t i = 0; i < layout->tensor_count; i++) {
        loongi_text_printf(&text, "%s\n", i > 0 ? "," : "");
        tensor_text(&layout->tensors[i], &text);
    }
    loongi_text_printf(&text, "]");
    path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/" LOONG_MANIFEST, dir);
    status = path.status;
    if (status == LOONG_OK) {
        status = write_text(ctx, &text, path.data);
    } else {
        loongi_text_free(&text);
    }
    loongi_text_free(&path);
    return status;
}

/* ---- reading ------------------------------------------------------------- */

static loong_status_t check_sum(loong_context_t *ctx, const char *path,
                                const char *text, size_t length)
{
    size_t tail = strlen(CHECKSUM_MARK) + 16 + strlen("\"}\n");
    const char *mark = text + (length >= tail ? length - tail : 0);
    LOONG_CHECK(ctx,
                length >= tail &&
                    memcmp(mark, CHECKSUM_MARK, strlen(CHECKSUM_MARK)) == 0,
                LOONG_ERR_FORMAT,
                "%s: no checksum at the end: truncated or changed", path);
    uint64_t stored = strtoull(mark + strlen(CHECKSUM_MARK), NULL, 16);
    uint64_t found = loongi_checksum(text, length - tail);
    LOONG_CHECK(ctx, stored == found, LOONG_ERR_FORMAT,
                "%s: checksum %016" PRIx64 " instead of %016" PRIx64
                ": the file was changed",
                path, found, stored);
    return LOONG_OK;
}

typedef loong_status_t (*add_file_fn)(loong_layout_t *layout,
                                      const char *name, int64_t bytes,
                                      uint64_t xxh3);

static loong_status_t parse_files(loong_layout_t *layout,
                                  const loong_json_t *list, add_file_fn add,
                                  const char *path)
{
    LOONG_CHECK(layout->ctx, list != NULL, LOONG_ERR_FORMAT,
                "%s: no list of files", path);
    for (int64_t i = 0; i < loongi_json_count(list); i++) {
        const loong_json_t *json = loongi_json_at(list, i);
        const loong_json_t *name = member(json, "name", LOONG_JSON_STRING);
        const loong_json_t *bytes = member(json, "bytes", LOONG_JSON_INT);
        const loong_json_t *xxh3 = member(json, "xxh3", LOONG_JSON_STRING);
        LOONG_CHECK(layout->ctx,
                    name != NULL && bytes != NULL && xxh3 != NULL &&
                        strchr(loongi_json_string(name), '/') == NULL,
                    LOONG_ERR_FORMAT, "%s: file %" PRId64 " is malformed", path,
                    i);
        LOONG_TRY(add(layout, loongi_json_string(name),
                      loongi_json_int(bytes),
                      strtoull(loongi_json_string(xxh3), NULL, 16)));
    }
    return LOONG_OK;
}

static bool parse_tensor(const loong_json_t *json, loong_layout_tensor_t *t)
{
    const loong_json_t *kind = member(json, "kind", LOONG_JSON_STRING);
    const loong_json_t *name = member(json, "name", LOONG_JSON_STRING);
    const loong_json_t *dtype = member(json, "dtype", LOONG_JSON_STRING);
    const loong_json_t *pieces = member(json, "pieces", LOONG_JSON_INT);
    const loong_json_t *offset = member(json, "offset", LOONG_JSON_INT);
    const loong_json_t *bytes = member(json, "bytes", LOONG_JSON_INT);
    const loong_json_t *xxh3 = member(json, "xxh3", LOONG_JSON_STRING);
    if (kind == NULL || name == NULL || dtype == NULL || pieces == NULL ||
        offset == NULL || bytes == NULL || xxh3 == NULL ||
        !loong_dtype_from_name(loongi_json_string(dtype), &t->tensor.dtype)) {
        return false;
    }
    t->tensor.kind = loongi_json_string(kind);
    t->tensor.name = loongi_json_string(name);
    t->tensor.ndim = -1;
    t->count = loongi_json_int(pieces);
    t->offset = loongi_json_int(offset);
    t->bytes = loongi_json_int(bytes);
    t->xxh3 = strtoull(loongi_json_string(xxh3), NULL, 16);
    return parse_list(json, "shape", &t->tensor.ndim, t->tensor.shape) &&
           loongi_layout_is_shape(&t->tensor) && t->count > 0 &&
           t->offset >= 0 && t->bytes > 0 && t->offset <= INT64_MAX - t->bytes;
}

static bool ascends(const loong_layout_tensor_t *a,
                    const loong_layout_tensor_t *b)
{
    int order = strcmp(a->tensor.kind, b->tensor.kind);
    return order < 0 ||
           (order == 0 && strcmp(a->tensor.name, b->tensor.name) < 0);
}

static loong_status_t parse_tensors(loong_layout_t *layout,
                                    const loong_json_t *list, const char *path)
{
    LOONG_CHECK(layout->ctx, list != NULL && layout->tensor_count == 0,
                LOONG_ERR_FORMAT, "%s: no list of tensors, or a second one",
                path);
    int64_t count = loongi_json_count(list);
    LOONG_TRY(loongi_grow(layout->ctx, &layout->tensors,
                          &layout->tensor_capacity, count,
                          sizeof(*layout->tensors), "checkpoint tensors"));
    for (int64_t i = 0; i < count; i++) {
        loong_layout_tensor_t *t = &layout->tensors[i];
        char *kind = NULL;
        char *name = NULL;
        memset(t, 0, sizeof(*t));
        LOONG_CHECK(layout->ctx, parse_tensor(loongi_json_at(list, i), t),
                    LOONG_ERR_FORMAT, "%s: tensor %" PRId64 " is malformed",
                    path, i);
        LOONG_TRY(loongi_arena_strdup(layout->arena, t->tensor.kind, &kind));
        LOONG_TRY(loongi_arena_strdup(layout->arena, t->tensor.name, &name));
        t->tensor.kind = kind;
        t->tensor.name = name;
        LOONG_CHECK(layout->ctx, i == 0 || ascends(t - 1, t), LOONG_ERR_FORMAT,
                    "%s: tensor %" PRId64 " is not behind the one before it",
                    path, i);
    }
    layout->tensor_count = count;
    return LOONG_OK;
}

/* pieces.json is beside it. */
static loong_status_t set_lists(loong_layout_t *layout, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *lists = NULL;
    LOONG_TRY(loongi_arena_printf(
        layout->arena, &lists, "%.*s" PIECES,
        slash != NULL ? (int)(slash - path) + 1 : 0, path));
    layout->lists = lists;
    return LOONG_OK;
}

static loong_status_t parse(loong_layout_t *layout, const loong_json_t *json,
                            const char *path, int64_t *step_p,
                            loong_pairs_t *metadata)
{
    const loong_json_t *format = member(json, "format", LOONG_JSON_STRING);
    const loong_json_t *version = member(json, "version", LOONG_JSON_INT);
    const loong_json_t *step = member(json, "step", LOONG_JSON_INT);
    const loong_json_t *pairs = member(json, "metadata", LOONG_JSON_OBJECT);
    LOONG_CHECK(layout->ctx,
                format != NULL && step != NULL && pairs != NULL &&
                    strcmp(loongi_json_string(format), FORMAT) == 0,
                LOONG_ERR_FORMAT, "%s: not a checkpoint", path);
    LOONG_CHECK(
        layout->ctx,
        version != NULL && loongi_json_int(version) >= WHOLE_VERSION &&
            loongi_json_int(version) <= VERSION,
        LOONG_ERR_UNSUPPORTED,
        "%s: checkpoint version %" PRId64 ", this library reads %d and %d",
        path, version != NULL ? loongi_json_int(version) : 0,
        (int)WHOLE_VERSION, (int)VERSION);
    for (const loong_json_member_t *m = loongi_json_first(pairs); m != NULL;
         m = loongi_json_next(pairs, m)) {
        LOONG_TRY(
            loongi_pairs_set(metadata, loongi_json_member_key(m),
                             loongi_json_string(loongi_json_member_value(m))));
    }
    int64_t first = layout->file_count;
    *step_p = loongi_json_int(step);
    LOONG_TRY(parse_files(layout, member(json, "files", LOONG_JSON_ARRAY),
                          loongi_layout_add_file, path));
    const loong_json_t *hf = member(json, "hf", LOONG_JSON_ARRAY);
    layout->lists_hf = hf != NULL;
    if (hf != NULL) {
        LOONG_TRY(parse_files(layout, hf, loongi_layout_add_hf, path));
    }
    if (loongi_json_int(version) == WHOLE_VERSION) {
        return parse_pieces(layout, loongi_json_get(json, "pieces"), first,
                            path);
    }
    LOONG_TRY(set_lists(layout, path));
    return parse_tensors(layout, member(json, "tensors", LOONG_JSON_ARRAY),
                         path);
}

loong_status_t loongi_layout_read(loong_layout_t *layout, const char *path,
                                  int64_t *step_p, loong_pairs_t *metadata)
{
    char *text = NULL;
    size_t length = 0;
    loong_json_t *json = NULL;
    LOONG_TRY(loongi_file_read(layout->ctx, path, &text, &length));
    layout->index_bytes += (int64_t)length;
    loong_status_t status = check_sum(layout->ctx, path, text, length);
    if (status == LOONG_OK) {
        status = loongi_json_parse(layout->ctx, text, length, path, &json);
    }
    if (status == LOONG_OK) {
        status = parse(layout, json, path, step_p, metadata);
        loongi_json_destroy(&json);
    }
    loongi_free(layout->ctx, text);
    return status;
}
