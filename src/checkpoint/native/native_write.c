/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion into a native checkpoint: rows go to files of bounded size, each
 * of which is either whole, with its list of pieces beside it, or made
 * again. Called by import.c and convert_files.c. Read native_write.h and
 * workdir.h before. */
#include "native_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "native_dir.h"
#include "native_h5.h"
#include "native_save.h"
#include "workdir.h"

#define DEFAULT_FILE_BYTES INT64_C(2000000000)

/* Rows of a tensor in one file. */
typedef struct part {
    int64_t tensor;
    int64_t row;
    int64_t rows;
    int64_t file;
} part_t;

typedef struct writer {
    loong_context_t *ctx;
    const loong_native_write_params_t *params;
    char tmp_name[80];
    char name[64];
    char tmp_dir[PATH_MAX];
    int64_t count;
    int64_t capacity;
    part_t *parts;
    int64_t files;
} writer_t;

int64_t loongi_tensor_bytes(const loong_checkpoint_tensor_t *tensor)
{
    return loongi_shape_count(tensor->ndim, tensor->shape) *
           (int64_t)loong_dtype_size(tensor->dtype);
}

static int64_t rows_of(const loong_checkpoint_tensor_t *t)
{
    return t->ndim > 0 ? t->shape[0] : 1;
}

static int64_t row_bytes_of(const loong_checkpoint_tensor_t *t)
{
    int64_t rows = rows_of(t);
    return rows > 0 ? loongi_tensor_bytes(t) / rows : 0;
}

/* ---- which rows go where ---- */

static loong_status_t add_part(writer_t *w, int64_t tensor, int64_t row,
                               int64_t rows)
{
    LOONG_TRY(loongi_grow(w->ctx, &w->parts, &w->capacity, w->count + 1,
                          sizeof(*w->parts), "parts of files"));
    part_t *part = &w->parts[w->count++];
    part->tensor = tensor;
    part->row = row;
    part->rows = rows;
    part->file = w->files - 1;
    return LOONG_OK;
}

/* A tensor is cut when it alone is larger than a file. */
static loong_status_t plan(writer_t *w)
{
    int64_t room = w->params->file_bytes > 0 ? w->params->file_bytes
                                             : DEFAULT_FILE_BYTES;
    int64_t used = room;
    for (int64_t i = 0; i < w->params->count; i++) {
        const loong_checkpoint_tensor_t *t = &w->params->tensors[i];
        int64_t row_bytes = row_bytes_of(t);
        int64_t most = LOONG_MAX(room / LOONG_MAX(row_bytes, 1), 1);
        for (int64_t row = 0; row < rows_of(t); row += most) {
            int64_t rows = LOONG_MIN(most, rows_of(t) - row);
            int64_t bytes = rows * row_bytes;
            if (w->files == 0 || bytes > room - used) {
                w->files++;
                used = 0;
            }
            used += bytes;
            LOONG_TRY(add_part(w, i, row, rows));
        }
    }
    return LOONG_OK;
}

static loong_status_t add_piece(writer_t *w, const part_t *part,
                                loong_layout_t *layout)
{
    const loong_checkpoint_tensor_t *t = &w->params->tensors[part->tensor];
    loong_layout_piece_t piece;
    char *dataset = NULL;
    memset(&piece, 0, sizeof(piece));
    piece.tensor = *t;
    memcpy(piece.count, t->shape, sizeof(piece.count));
    if (t->ndim > 0) {
        piece.begin[0] = part->row;
        piece.count[0] = part->rows;
    }
    LOONG_TRY(loongi_arena_printf(layout->arena, &dataset, "/%s/%s", t->kind,
                                  t->name));
    piece.dataset = dataset;
    return loongi_layout_add_piece(layout, &piece);
}

/* ---- one file ---- */

static int by_offset(const void *a, const void *b)
{
    const loong_stream_item_t *x = a;
    const loong_stream_item_t *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static loong_status_t stream(writer_t *w, const part_t *parts,
                             const loong_layout_t *layout, const char *path,
                             int fd, loong_stream_item_t *items)
{
    struct stat info;
    loong_stream_params_t stream = {0};
    for (int64_t i = 0; i < layout->piece_count; i++) {
        items[i].offset = layout->pieces[i].offset;
        items[i].index = parts[i].tensor;
        items[i].first = parts[i].row;
        items[i].rows = parts[i].rows;
        items[i].row_bytes =
            row_bytes_of(&w->params->tensors[parts[i].tensor]);
    }
    qsort(items, (size_t)layout->piece_count, sizeof(*items), by_offset);
    LOONG_CHECK(w->ctx, fstat(fd, &info) == 0, LOONG_ERR_IO,
                "cannot inspect '%s': %s", path, strerror(errno));
    stream.path = path;
    stream.fd = fd;
    stream.bytes = layout->files[0].bytes = info.st_size;
    stream.count = layout->piece_count;
    stream.items = items;
    stream.source = w->params->source;
    stream.user = w->params->user;
    stream.meter = w->params->meter;
    LOONG_TRY(loongi_stream_fill(w->ctx, &stream, &layout->files[0].xxh3));
    return loongi_file_sync(w->ctx, fd, path);
}

static loong_status_t write_file(writer_t *w, const part_t *parts,
                                 loong_layout_t *layout, const char *path)
{
    loong_stream_item_t *items = NULL;
    LOONG_TRY(loongi_h5_create_rank(w->ctx, path, layout->pieces,
                                    layout->piece_count, true));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    LOONG_CHECK(w->ctx, fd >= 0, LOONG_ERR_IO, "cannot open '%s': %s", path,
                strerror(errno));
    loong_status_t status =
        loongi_calloc(w->ctx, (size_t)layout->piece_count, sizeof(*items),
                      "stretches of a file", &items);
    if (status == LOONG_OK) {
        status = stream(w, parts, layout, path, fd, items);
    }
    loongi_free(w->ctx, items);
    close(fd);
    return status;
}

static bool same_piece(const loong_layout_piece_t *a,
                       const loong_layout_piece_t *b)
{
    size_t size = (size_t)a->tensor.ndim * sizeof(*a->begin);
    return strcmp(a->dataset, b->dataset) == 0 &&
           a->tensor.dtype == b->tensor.dtype &&
           a->tensor.ndim == b->tensor.ndim &&
           memcmp(a->tensor.shape, b->tensor.shape, size) == 0 &&
           memcmp(a->begin, b->begin, size) == 0 &&
           memcmp(a->count, b->count, size) == 0;
}

/* Its list is there and true, and of the pieces that are wanted. The list is
 * written when the file is synced. */
static bool is_whole(writer_t *w, const loong_layout_t *wanted,
                     const char *path, const char *list)
{
    loong_layout_t *layout = NULL;
    struct stat info;
    int64_t step = 0;
    if (!loongi_file_exists(list) || stat(path, &info) != 0 ||
        loongi_layout_create(w->ctx, &layout) != LOONG_OK) {
        return false;
    }
    bool whole =
        loongi_layout_read(layout, list, &step, NULL) == LOONG_OK &&
        layout->file_count == 1 && layout->files[0].bytes == info.st_size &&
        layout->piece_count == wanted->piece_count;
    for (int64_t i = 0; whole && i < wanted->piece_count; i++) {
        whole = same_piece(&layout->pieces[i], &wanted->pieces[i]);
    }
    if (!whole) {
        loong_context_clear_error(w->ctx);
    }
    loongi_layout_destroy(&layout);
    return whole;
}

/* An old list goes first: it would tell of what is half written. */
static loong_status_t make_anew(writer_t *w, const part_t *parts,
                                loong_layout_t *layout, const char *path,
                                const char *list)
{
    (void)unlink(list);
    loong_status_t status = write_file(w, parts, layout, path);
    if (status != LOONG_OK) {
        (void)unlink(path); /* half of it is of no use */
        return status;
    }
    return loongi_layout_write_list(w->ctx, layout, w->params->step, list);
}

static loong_status_t make_file(writer_t *w, const part_t *parts,
                                int64_t count)
{
    char name[32], path[PATH_MAX + 40], list[PATH_MAX + 40];
    loong_layout_t *layout = NULL;
    int number = (int)parts[0].file;
    int64_t bytes = 0;
    snprintf(name, sizeof(name), LOONG_RANK_FORMAT, number);
    snprintf(path, sizeof(path), "%s/%s", w->tmp_dir, name);
    snprintf(list, sizeof(list), "%s/" LOONG_LIST_FORMAT, w->tmp_dir, number);
    for (int64_t i = 0; i < count; i++) {
        bytes += parts[i].rows *
                 row_bytes_of(&w->params->tensors[parts[i].tensor]);
    }
    LOONG_TRY(loongi_layout_create(w->ctx, &layout));
    loong_status_t status = loongi_layout_add_file(layout, name, 0, 0);
    for (int64_t i = 0; i < count && status == LOONG_OK; i++) {
        status = add_piece(w, &parts[i], layout);
    }
    if (status == LOONG_OK && is_whole(w, layout, path, list)) {
        loongi_meter_add(w->params->meter, bytes);
    } else if (status == LOONG_OK) {
        status = make_anew(w, parts, layout, path, list);
    }
    loongi_layout_destroy(&layout);
    return status;
}

static loong_status_t make_files(writer_t *w)
{
    char manifest[PATH_MAX + 40];
    snprintf(manifest, sizeof(manifest), "%s/" LOONG_MANIFEST, w->tmp_dir);
    if (loongi_file_exists(manifest)) { /* interrupted at the very end */
        loongi_meter_add(w->params->meter, w->params->meter->total);
        return LOONG_OK;
    }
    for (int64_t i = 0; i < w->count;) {
        int64_t end = i;
        while (end < w->count && w->parts[end].file == w->parts[i].file) {
            end++;
        }
        LOONG_TRY(make_file(w, &w->parts[i], end - i));
        i = end;
    }
    return LOONG_OK;
}

static loong_status_t run(writer_t *w)
{
    const loong_native_write_params_t *p = w->params;
    loong_workdir_t work;
    LOONG_TRY(plan(w));
    LOONG_TRY(loongi_dir_make(w->ctx, p->dir));
    LOONG_TRY(loongi_workdir_open(w->ctx, w->tmp_dir, p->key, &work));
    loong_status_t status = make_files(w);
    if (status == LOONG_OK) {
        loong_native_files_t files = {p->dir,   w->tmp_dir, w->tmp_name,
                                      w->name,  p->step,    w->files,
                                      p->metadata, p->files};
        status = loongi_native_assemble(w->ctx, &files);
    }
    loongi_workdir_close(&work);
    return status;
}

loong_status_t loongi_native_write(loong_context_t *ctx,
                                   const loong_native_write_params_t *params)
{
    writer_t w = {0};
    w.ctx = ctx;
    w.params = params;
    snprintf(w.name, sizeof(w.name), LOONG_STEP_FORMAT,
             (long long)params->step);
    snprintf(w.tmp_name, sizeof(w.tmp_name), LOONG_TMP_PREFIX "%s", w.name);
    int length = snprintf(w.tmp_dir, sizeof(w.tmp_dir), "%s/%s", params->dir,
                          w.tmp_name);
    LOONG_CHECK(ctx, length < (int)sizeof(w.tmp_dir), LOONG_ERR_ARG,
                "'%s' is too long a path", params->dir);
    loong_status_t status = run(&w);
    loongi_free(ctx, w.parts);
    return status;
}
