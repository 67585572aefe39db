/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces: collected, grouped into tensors, checked. Called by native_json.c and
 * by what saves, loads and converts. Read native_layout.h before. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native_layout.h"

loong_status_t loongi_layout_create(loong_context_t *ctx,
                                    loong_layout_t **layout_p)
{
    loong_layout_t *layout = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*layout), "checkpoint layout", &layout));
    layout->ctx = ctx;
    layout->lists_file = -1;
    loong_status_t status =
        loongi_arena_create(ctx, "checkpoint layout", &layout->arena);
    if (status != LOONG_OK) {
        loongi_layout_destroy(&layout);
        return status;
    }
    *layout_p = layout;
    return LOONG_OK;
}

void loongi_layout_destroy(loong_layout_t **layout)
{
    if (*layout == NULL) {
        return;
    }
    loong_context_t *ctx = (*layout)->ctx;
    loongi_free(ctx, (*layout)->files);
    loongi_free(ctx, (*layout)->hf_files);
    loongi_free(ctx, (*layout)->pieces);
    loongi_free(ctx, (*layout)->tensors);
    if ((*layout)->lists_file >= 0) {
        close((*layout)->lists_file);
    }
    loongi_arena_destroy(&(*layout)->arena);
    loongi_free(ctx, *layout);
    *layout = NULL;
}

loong_status_t loongi_layout_add_file(loong_layout_t *layout, const char *name,
                                      int64_t bytes, uint64_t xxh3)
{
    loong_layout_file_t file = {NULL, bytes, xxh3};
    char *copy = NULL;
    LOONG_TRY(loongi_grow(layout->ctx, &layout->files, &layout->file_capacity,
                          layout->file_count + 1, sizeof(*layout->files),
                          "checkpoint files"));
    LOONG_TRY(loongi_arena_strdup(layout->arena, name, &copy));
    file.name = copy;
    layout->files[layout->file_count++] = file;
    return LOONG_OK;
}

loong_status_t loongi_layout_add_hf(loong_layout_t *layout, const char *name,
                                    int64_t bytes, uint64_t xxh3)
{
    loong_layout_file_t file = {NULL, bytes, xxh3};
    char *copy = NULL;
    LOONG_TRY(loongi_grow(layout->ctx, &layout->hf_files,
                          &layout->hf_capacity, layout->hf_count + 1,
                          sizeof(*layout->hf_files), "files of hf/"));
    LOONG_TRY(loongi_arena_printf(layout->arena, &copy, "hf/%s", name));
    file.name = copy;
    layout->hf_files[layout->hf_count++] = file;
    return LOONG_OK;
}

loong_status_t loongi_layout_add_piece(loong_layout_t *layout,
                                       const loong_layout_piece_t *piece)
{
    char *kind = NULL;
    char *name = NULL;
    char *dataset = NULL;
    LOONG_TRY(loongi_grow(layout->ctx, &layout->pieces, &layout->piece_capacity,
                          layout->piece_count + 1, sizeof(*layout->pieces),
                          "checkpoint pieces"));
    LOONG_TRY(loongi_arena_strdup(layout->arena, piece->tensor.kind, &kind));
    LOONG_TRY(loongi_arena_strdup(layout->arena, piece->tensor.name, &name));
    LOONG_TRY(loongi_arena_strdup(layout->arena, piece->dataset, &dataset));
    loong_layout_piece_t *copy = &layout->pieces[layout->piece_count++];
    *copy = *piece;
    copy->tensor.kind = kind;
    copy->tensor.name = name;
    copy->dataset = dataset;
    return LOONG_OK;
}

static int by_tensor(const void *a, const void *b)
{
    const loong_layout_piece_t *x = a;
    const loong_layout_piece_t *y = b;
    int order = strcmp(x->tensor.kind, y->tensor.kind);
    order = order != 0 ? order : strcmp(x->tensor.name, y->tensor.name);
    for (int d = 0; order == 0 && d < LOONG_TENSOR_MAX_DIMS; d++) {
        order = (x->begin[d] > y->begin[d]) - (x->begin[d] < y->begin[d]);
    }
    return order != 0 ? order : (x->file > y->file) - (x->file < y->file);
}

static bool same_tensor(const loong_layout_piece_t *a,
                        const loong_layout_piece_t *b)
{
    return strcmp(a->tensor.kind, b->tensor.kind) == 0 &&
           strcmp(a->tensor.name, b->tensor.name) == 0;
}

/* Makes the tensors of the pieces. */
static loong_status_t group(loong_layout_t *layout)
{
    if (layout->lists != NULL || layout->tensor_count > 0) {
        return LOONG_OK;
    }
    if (layout->piece_count > 0) {
        qsort(layout->pieces, (size_t)layout->piece_count,
              sizeof(*layout->pieces), by_tensor);
    }
    for (int64_t i = 0; i < layout->piece_count; i++) {
        loong_layout_piece_t *piece = &layout->pieces[i];
        if (i > 0 && same_tensor(piece - 1, piece)) {
            layout->tensors[layout->tensor_count - 1].count++;
            continue;
        }
        LOONG_TRY(loongi_grow(layout->ctx, &layout->tensors,
                              &layout->tensor_capacity,
                              layout->tensor_count + 1,
                              sizeof(*layout->tensors), "checkpoint tensors"));
        loong_layout_tensor_t *t = &layout->tensors[layout->tensor_count++];
        memset(t, 0, sizeof(*t));
        t->tensor = piece->tensor;
        t->count = 1;
        t->pieces = piece;
    }
    return LOONG_OK;
}

static bool overlap(const loong_layout_piece_t *a,
                    const loong_layout_piece_t *b)
{
    for (int d = 0; d < a->tensor.ndim; d++) {
        if (a->begin[d] >= b->begin[d] + b->count[d] ||
            b->begin[d] >= a->begin[d] + a->count[d]) {
            return false;
        }
    }
    return true;
}

bool loongi_layout_is_shape(const loong_checkpoint_tensor_t *tensor)
{
    int64_t bytes = (int64_t)loong_dtype_size(tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] <= 0 ||
            tensor->shape[d] > INT64_MAX / 8 / bytes) {
            return false;
        }
        bytes *= tensor->shape[d]; /* bounds the pieces as well */
    }
    return true;
}

/* The piece's own numbers: positive, inside the tensor, inside the file. */
static bool check_piece(const loong_layout_t *layout,
                        const loong_layout_piece_t *p,
                        loong_problems_t *problems)
{
    bool inside = loongi_layout_is_shape(&p->tensor);
    for (int d = 0; inside && d < p->tensor.ndim; d++) {
        inside = p->begin[d] >= 0 && p->count[d] > 0 &&
                 p->count[d] <= p->tensor.shape[d] - p->begin[d];
    }
    if (!inside) {
        loongi_problems_add(problems,
                            "%s %s: a piece of file %" PRId64
                            " lies outside of the tensor",
                            p->tensor.kind, p->tensor.name, p->file);
        return false;
    }
    int64_t bytes = loongi_shape_count(p->tensor.ndim, p->count) *
                    (int64_t)loong_dtype_size(p->tensor.dtype);
    if (p->file < 0 || p->file >= layout->file_count || p->offset < 0 ||
        bytes > layout->files[p->file].bytes - p->offset) {
        loongi_problems_add(problems,
                            "%s %s: a piece lies outside of file %" PRId64,
                            p->tensor.kind, p->tensor.name, p->file);
        return false;
    }
    return true;
}

static bool check_agree(const loong_layout_piece_t *a,
                        const loong_layout_piece_t *b,
                        loong_problems_t *problems)
{
    const loong_checkpoint_tensor_t *x = &a->tensor;
    const loong_checkpoint_tensor_t *y = &b->tensor;
    char left[LOONG_SHAPE_TEXT], right[LOONG_SHAPE_TEXT];
    if (x->dtype == y->dtype && x->ndim == y->ndim &&
        memcmp(x->shape, y->shape, sizeof(x->shape)) == 0) {
        return true;
    }
    loongi_problems_add(
        problems, "%s %s: %s %s in file %" PRId64 ", %s %s in file %" PRId64,
        x->kind, x->name, loong_dtype_name(x->dtype),
        loongi_shape_text(x->ndim, x->shape, left), a->file,
        loong_dtype_name(y->dtype), loongi_shape_text(y->ndim, y->shape, right),
        b->file);
    return false;
}

/* Pieces are sorted by where they begin, so the search for one that overlaps
 * ends where no earlier one reaches this one's rows. */
static const loong_layout_piece_t *
find_overlap(const loong_layout_piece_t *begin, loong_layout_piece_t *p)
{
    p->reach = p->begin[0] + p->count[0];
    if (p > begin) {
        p->reach = LOONG_MAX(p->reach, p[-1].reach);
    }
    for (const loong_layout_piece_t *q = p; q > begin; q--) {
        if (p->tensor.ndim > 0 && q[-1].reach <= p->begin[0]) {
            return NULL;
        }
        if (overlap(p, q - 1)) {
            return q - 1;
        }
    }
    return NULL;
}

/* False, and problems: they are not a whole tensor. */
static bool check_tensor(const loong_layout_t *layout,
                         const loong_layout_tensor_t *t,
                         loong_problems_t *problems)
{
    int64_t covered = 0;
    char text[LOONG_SHAPE_TEXT];
    for (loong_layout_piece_t *p = t->pieces; p < t->pieces + t->count; p++) {
        if (!check_piece(layout, p, problems) ||
            !check_agree(t->pieces, p, problems)) {
            return false;
        }
        covered += loongi_shape_count(p->tensor.ndim, p->count);
        const loong_layout_piece_t *q = find_overlap(t->pieces, p);
        if (q != NULL) {
            loongi_problems_add(problems,
                                "%s %s: pieces of files %" PRId64
                                " and %" PRId64 " overlap",
                                p->tensor.kind, p->tensor.name, q->file,
                                p->file);
            return false;
        }
    }
    int64_t all = loongi_shape_count(t->tensor.ndim, t->tensor.shape);
    if (covered != all) {
        loongi_problems_add(
            problems, "%s %s %s: %" PRId64 " of %" PRId64 " elements are there",
            t->tensor.kind, t->tensor.name,
            loongi_shape_text(t->tensor.ndim, t->tensor.shape, text), covered,
            all);
    }
    return covered == all;
}

static loong_status_t load(loong_layout_t *layout, int64_t tensor,
                           loong_problems_t *problems)
{
    loong_layout_tensor_t *t = &layout->tensors[tensor];
    if (t->pieces == NULL) {
        LOONG_TRY(loongi_pieces_read(layout, tensor));
        qsort(t->pieces, (size_t)t->count, sizeof(*t->pieces), by_tensor);
    }
    t->checked = t->checked || check_tensor(layout, t, problems);
    return LOONG_OK;
}

loong_status_t loongi_layout_check(loong_layout_t *layout, int part, int parts,
                                   const char *where)
{
    loong_problems_t problems = loongi_problems_begin(layout->ctx);
    LOONG_TRY(group(layout));
    loong_status_t status = LOONG_OK;
    for (int64_t i = part;
         parts > 0 && i < layout->tensor_count && status == LOONG_OK;
         i += parts) {
        status = load(layout, i, &problems);
    }
    if (status != LOONG_OK) {
        loongi_text_free(&problems.text);
        return status;
    }
    return loongi_problems_end(&problems, LOONG_ERR_FORMAT, where);
}

loong_status_t loongi_layout_load(loong_layout_t *layout, int64_t tensor,
                                  const char *where)
{
    if (layout->tensors[tensor].checked) {
        return LOONG_OK;
    }
    return loongi_layout_check(layout, (int)tensor, (int)layout->tensor_count,
                               where);
}
