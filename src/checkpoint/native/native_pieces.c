/* SPDX-License-Identifier: Apache-2.0
 *
 * pieces.json: a list of lists, with one line for each tensor of
 * checkpoint.json, which knows where the line begins, its bytes and checksum. A
 * piece is a row of numbers: file, offset, number of the data set ("/KIND/NAME"
 * has 0, "/KIND/NAME@3" has 3), then begin and count of each dimension. Called
 * by native_json.c and native_layout.c. Read native_layout.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "native_layout.h"

/* ---- writing ------------------------------------------------------------- */

/* False: it is no data set of the tensor. */
static bool dataset_number(const loong_layout_piece_t *piece, int64_t *number_p)
{
    const char *text = piece->dataset;
    const char *parts[] = {"/", piece->tensor.kind, "/", piece->tensor.name};
    for (int i = 0; i < 4; i++) {
        size_t length = strlen(parts[i]);
        if (strncmp(text, parts[i], length) != 0) {
            return false;
        }
        text += length;
    }
    *number_p = *text == '@' ? strtoll(text + 1, NULL, 10) : 0;
    return *text == '@' || *text == '\0';
}

static void numbers_text(loong_text_t *text, int ndim, const int64_t *values)
{
    for (int d = 0; d < ndim; d++) {
        loongi_text_printf(text, ",%" PRId64, values[d]);
    }
}

static loong_status_t add_line(loong_layout_t *layout,
                               const loong_layout_tensor_t *t,
                               loong_text_t *text)
{
    for (int64_t i = 0; i < t->count; i++) {
        const loong_layout_piece_t *p = &t->pieces[i];
        int64_t number = 0;
        LOONG_CHECK(layout->ctx, dataset_number(p, &number), LOONG_ERR_INTERNAL,
                    "data set '%s' of %s %s", p->dataset, t->tensor.kind,
                    t->tensor.name);
        loongi_text_printf(text,
                           "%s[%" PRId64 ",%" PRId64 ",%" PRId64,
                           i > 0 ? "," : "[", p->file, p->offset, number);
        numbers_text(text, t->tensor.ndim, p->begin);
        numbers_text(text, t->tensor.ndim, p->count);
        loongi_text_printf(text, "]");
    }
    loongi_text_printf(text, "]");
    return text->status;
}

loong_status_t loongi_pieces_write(loong_layout_t *layout, const char *path)
{
    loong_text_t text = loongi_text_begin(layout->ctx);
    loong_status_t status = LOONG_OK;
    loongi_text_printf(&text, "[");
    for (int64_t i = 0; i < layout->tensor_count && status == LOONG_OK; i++) {
        loong_layout_tensor_t *t = &layout->tensors[i];
        loongi_text_printf(&text, "%s\n", i > 0 ? "," : "");
        t->offset = (int64_t)text.length;
        status = add_line(layout, t, &text);
        t->bytes = (int64_t)text.length - t->offset;
        if (status == LOONG_OK) {
            t->xxh3 = loongi_checksum(text.data + t->offset, (size_t)t->bytes);
        }
    }
    loongi_text_printf(&text, "\n]\n");
    status = status == LOONG_OK ? text.status : status;
    if (status == LOONG_OK) {
        status = loongi_file_write(layout->ctx, path, text.data, text.length);
    }
    loongi_text_free(&text);
    return status;
}

/* ---- reading ------------------------------------------------------------- */

static bool parse_row(const loong_json_t *row, loong_layout_piece_t *piece,
                      int64_t *number_p)
{
    int ndim = piece->tensor.ndim;
    int64_t values[3 + 2 * LOONG_TENSOR_MAX_DIMS];
    if (loongi_json_kind(row) != LOONG_JSON_ARRAY ||
        loongi_json_count(row) != 3 + 2 * ndim) {
        return false;
    }
    for (int i = 0; i < 3 + 2 * ndim; i++) {
        const loong_json_t *value = loongi_json_at(row, i);
        if (loongi_json_kind(value) != LOONG_JSON_INT) {
            return false;
        }
        values[i] = loongi_json_int(value);
    }
    piece->file = values[0];
    piece->offset = values[1];
    *number_p = values[2];
    memcpy(piece->begin, values + 3, (size_t)ndim * sizeof(*values));
    memcpy(piece->count, values + 3 + ndim, (size_t)ndim * sizeof(*values));
    return true;
}

static loong_status_t parse(loong_layout_t *layout, loong_layout_tensor_t *t,
                            const loong_json_t *list)
{
    loong_layout_piece_t *pieces = NULL;
    char *first = NULL; /* most are the only ones of their file */
    LOONG_CHECK(layout->ctx,
                loongi_json_kind(list) == LOONG_JSON_ARRAY &&
                    loongi_json_count(list) == t->count,
                LOONG_ERR_FORMAT,
                "%s: %s %s has %" PRId64 " pieces instead of %" PRId64,
                layout->lists, t->tensor.kind, t->tensor.name,
                loongi_json_count(list), t->count);
    LOONG_TRY(loongi_arena_alloc(layout->arena,
                                 (size_t)t->count * sizeof(*pieces), &pieces));
    LOONG_TRY(loongi_arena_printf(layout->arena, &first, "/%s/%s",
                                  t->tensor.kind, t->tensor.name));
    for (int64_t i = 0; i < t->count; i++) {
        int64_t number = 0;
        char *dataset = first;
        pieces[i].tensor = t->tensor;
        LOONG_CHECK(layout->ctx,
                    parse_row(loongi_json_at(list, i), &pieces[i], &number),
                    LOONG_ERR_FORMAT,
                    "%s: piece %" PRId64 " of %s %s is malformed",
                    layout->lists, i, t->tensor.kind, t->tensor.name);
        if (number != 0) {
            LOONG_TRY(loongi_arena_printf(layout->arena, &dataset,
                                          "%s@%" PRId64, first, number));
        }
        pieces[i].dataset = dataset;
    }
    t->pieces = pieces;
    return LOONG_OK;
}

loong_status_t loongi_pieces_parse(loong_layout_t *layout, int64_t tensor,
                                   const char *text, size_t bytes)
{
    loong_json_t *json = NULL;
    LOONG_TRY(
        loongi_json_parse(layout->ctx, text, bytes, layout->lists, &json));
    loong_status_t status = parse(layout, &layout->tensors[tensor], json);
    loongi_json_destroy(&json);
    return status;
}

static loong_status_t open_lists(loong_layout_t *layout)
{
    if (layout->lists_file < 0) {
        layout->lists_file = open(layout->lists, O_RDONLY | O_CLOEXEC);
    }
    LOONG_CHECK(layout->ctx, layout->lists_file >= 0, LOONG_ERR_FORMAT,
                "%s is missing or cannot be read: %s", layout->lists,
                strerror(errno));
    return LOONG_OK;
}

static loong_status_t read_line(loong_layout_t *layout, int64_t tensor,
                                char *text)
{
    const loong_layout_tensor_t *t = &layout->tensors[tensor];
    LOONG_TRY(loongi_file_pread(layout->ctx, layout->lists_file, layout->lists,
                                text, (size_t)t->bytes, (off_t)t->offset));
    uint64_t found = loongi_checksum(text, (size_t)t->bytes);
    LOONG_CHECK(layout->ctx, found == t->xxh3, LOONG_ERR_FORMAT,
                "%s: pieces of %s %s: checksum %016" PRIx64
                " instead of %016" PRIx64 ": the file was changed",
                layout->lists, t->tensor.kind, t->tensor.name, found, t->xxh3);
    layout->index_bytes += t->bytes;
    return loongi_pieces_parse(layout, tensor, text, (size_t)t->bytes);
}

loong_status_t loongi_pieces_read(loong_layout_t *layout, int64_t tensor)
{
    const loong_layout_tensor_t *t = &layout->tensors[tensor];
    struct stat info;
    char *text = NULL;
    LOONG_TRY(open_lists(layout));
    LOONG_CHECK(layout->ctx,
                fstat(layout->lists_file, &info) == 0 &&
                    info.st_size >= t->offset + t->bytes,
                LOONG_ERR_FORMAT,
                "%s has %lld bytes, the pieces of %s %s end at %" PRId64
                ": truncated or changed",
                layout->lists, (long long)info.st_size, t->tensor.kind,
                t->tensor.name, t->offset + t->bytes);
    LOONG_TRY(loongi_calloc(layout->ctx, (size_t)t->bytes, 1,
                            "pieces of a tensor", &text));
    loong_status_t status = read_line(layout, tensor, text);
    loongi_free(layout->ctx, text);
    return status;
}
