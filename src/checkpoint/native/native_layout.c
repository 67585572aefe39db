/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces: collected, grouped into tensors, checked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "native_layout.h"

loong_status_t loongi_layout_create(loong_context_t *ctx,
                                    loong_layout_t **layout_p)
{
    loong_layout_t *layout = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*layout), "checkpoint layout", &layout));
    layout->ctx = ctx;
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
    loongi_free(ctx, (*layout)->pieces);
    loongi_free(ctx, (*layout)->first);
    loongi_arena_destroy(&(*layout)->arena);
    loongi_free(ctx, *layout);
    *layout = NULL;
}

loong_status_t loongi_layout_add_file(loong_layout_t *layout, const char *name,
                                      int64_t bytes, uint64_t xxh3)
{
    char *copy = NULL;
    LOONG_TRY(loongi_grow(layout->ctx, &layout->files, &layout->file_capacity,
                          layout->file_count + 1, sizeof(*layout->files),
                          "checkpoint files"));
    LOONG_TRY(loongi_arena_strdup(layout->arena, name, &copy));
    loong_layout_file_t *file = &layout->files[layout->file_count++];
    file->name = copy;
    file->bytes = bytes;
    file->xxh3 = xxh3;
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

static loong_status_t group(loong_layout_t *layout)
{
    if (layout->piece_count > 0) {
        qsort(layout->pieces, (size_t)layout->piece_count,
              sizeof(*layout->pieces), by_tensor);
    }
    LOONG_TRY(loongi_calloc(layout->ctx, (size_t)layout->piece_count + 1,
                            sizeof(*layout->first), "checkpoint tensors",
                            &layout->first));
    for (int64_t i = 0; i < layout->piece_count; i++) {
        if (i == 0 ||
            !same_tensor(&layout->pieces[i - 1], &layout->pieces[i])) {
            layout->first[layout->tensor_count++] = i;
        }
    }
    layout->first[layout->tensor_count] = layout->piece_count;
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

/* The piece's own numbers: positive, inside the tensor, inside the file. */
static bool check_piece(const loong_layout_t *layout,
                        const loong_layout_piece_t *p,
                        loong_problems_t *problems)
{
    int64_t bytes = (int64_t)loong_dtype_size(p->tensor.dtype);
    for (int d = 0; d < p->tensor.ndim; d++) {
        if (p->tensor.shape[d] <= 0 || p->begin[d] < 0 || p->count[d] <= 0 ||
            p->count[d] > p->tensor.shape[d] - p->begin[d] ||
            p->tensor.shape[d] > INT64_MAX / 8 / bytes) {
            loongi_problems_add(problems,
                                "%s %s: a piece of file %" PRId64
                                " lies outside of the tensor",
                                p->tensor.kind, p->tensor.name, p->file);
            return false;
        }
        bytes *= p->tensor.shape[d]; /* bounds the piece as well */
    }
    bytes = loongi_shape_count(p->tensor.ndim, p->count) *
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

static void check_tensor(const loong_layout_t *layout, int64_t tensor,
                         loong_problems_t *problems)
{
    const loong_layout_piece_t *begin = layout->pieces + layout->first[tensor];
    const loong_layout_piece_t *end =
        layout->pieces + layout->first[tensor + 1];
    int64_t covered = 0;
    char text[LOONG_SHAPE_TEXT];
    for (const loong_layout_piece_t *p = begin; p < end; p++) {
        if (!check_piece(layout, p, problems) ||
            !check_agree(begin, p, problems)) {
            return;
        }
        covered += loongi_shape_count(p->tensor.ndim, p->count);
        for (const loong_layout_piece_t *q = begin; q < p; q++) {
            if (overlap(p, q)) {
                loongi_problems_add(problems,
                                    "%s %s: pieces of files %" PRId64
                                    " and %" PRId64 " overlap",
                                    p->tensor.kind, p->tensor.name, q->file,
                                    p->file);
                return;
            }
        }
    }
    int64_t all = loongi_shape_count(begin->tensor.ndim, begin->tensor.shape);
    if (covered != all) {
        loongi_problems_add(
            problems, "%s %s %s: %" PRId64 " of %" PRId64 " elements are there",
            begin->tensor.kind, begin->tensor.name,
            loongi_shape_text(begin->tensor.ndim, begin->tensor.shape, text),
            covered, all);
    }
}

loong_status_t loongi_layout_check(loong_layout_t *layout, const char *where)
{
    loong_problems_t problems = loongi_problems_begin(layout->ctx);
    LOONG_TRY(group(layout));
    for (int64_t i = 0; i < layout->tensor_count; i++) {
        check_tensor(layout, i, &problems);
    }
    return loongi_problems_end(&problems, LOONG_ERR_MISMATCH, where);
}
