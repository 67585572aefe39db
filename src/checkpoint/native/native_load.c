/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading: the layout says where every rectangle lies; files are mapped and
 * copied from. Called by component_native.c, resume.c and loong-ckpt. Read
 * native.h and native_layout.h before. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "mapped.h"
#include "native_dir.h"
#include "native_h5.h"

enum { RELEASE_BYTES = 64 << 10 }; /* pages are given back from here on */

struct loong_checkpoint {
    loong_context_t *ctx;
    loong_arena_t *arena;
    char *dir;
    int64_t step;
    loong_pairs_t *metadata;
    loong_layout_t *layout;
    const char **maps; /* per file; NULL until it is read */
    int *files;        /* their descriptors */
    atomic_int_least64_t bytes_read;
};

static loong_status_t check_files(loong_checkpoint_t *checkpoint, int part,
                                  int parts)
{
    loong_problems_t problems = loongi_problems_begin(checkpoint->ctx);
    for (int64_t i = part;
         parts > 0 && i < checkpoint->layout->file_count; i += parts) {
        const loong_layout_file_t *file = &checkpoint->layout->files[i];
        struct stat info;
        loong_text_t path = loongi_text_begin(checkpoint->ctx);
        loongi_text_printf(&path, "%s/%s", checkpoint->dir, file->name);
        if (stat(loongi_text_get(&path), &info) != 0) {
            loongi_problems_add(&problems, "%s is missing", file->name);
        } else if (info.st_size != file->bytes) {
            loongi_problems_add(
                &problems, "%s has %lld bytes instead of %" PRId64, file->name,
                (long long)info.st_size, file->bytes);
        }
        loongi_text_free(&path);
    }
    return loongi_problems_end(&problems, LOONG_ERR_FORMAT, checkpoint->dir);
}

static loong_status_t open_part(loong_checkpoint_t *checkpoint,
                                const char *path, int part, int parts)
{
    loong_context_t *ctx = checkpoint->ctx;
    char *manifest = NULL;
    LOONG_TRY(loongi_arena_create(ctx, "checkpoint", &checkpoint->arena));
    LOONG_TRY(
        loongi_native_resolve(checkpoint->arena, ctx, path, &checkpoint->dir));
    LOONG_TRY(loongi_arena_printf(checkpoint->arena, &manifest,
                                  "%s/" LOONG_MANIFEST, checkpoint->dir));
    LOONG_TRY(loongi_pairs_create(ctx, &checkpoint->metadata));
    LOONG_TRY(loongi_layout_create(ctx, &checkpoint->layout));
    LOONG_TRY(loongi_layout_read(checkpoint->layout, manifest,
                                 &checkpoint->step, checkpoint->metadata));
    LOONG_TRY(check_files(checkpoint, part, parts));
    LOONG_TRY(loongi_layout_check(checkpoint->layout, part, parts,
                                  checkpoint->dir));
    size_t count = (size_t)checkpoint->layout->file_count;
    LOONG_TRY(loongi_arena_alloc(checkpoint->arena,
                                 count * sizeof(*checkpoint->files),
                                 &checkpoint->files));
    return loongi_arena_alloc(checkpoint->arena,
                              count * sizeof(*checkpoint->maps),
                              &checkpoint->maps);
}

loong_status_t loongi_checkpoint_open(loong_context_t *ctx, const char *path,
                                      loong_checkpoint_t **checkpoint_p)
{
    return loongi_checkpoint_open_part(ctx, path, 0, 1, checkpoint_p);
}

loong_status_t loongi_checkpoint_open_part(loong_context_t *ctx,
                                           const char *path, int part,
                                           int parts,
                                           loong_checkpoint_t **checkpoint_p)
{
    loong_checkpoint_t *checkpoint = NULL;
    LOONG_TRY(
        loongi_alloc(ctx, sizeof(*checkpoint), "checkpoint", &checkpoint));
    checkpoint->ctx = ctx;
    loong_status_t status = open_part(checkpoint, path, part, parts);
    if (status != LOONG_OK) {
        loongi_checkpoint_close(&checkpoint);
        return status;
    }
    *checkpoint_p = checkpoint;
    return LOONG_OK;
}

void loongi_checkpoint_close(loong_checkpoint_t **checkpoint)
{
    loong_checkpoint_t *c = *checkpoint;
    if (c == NULL) {
        return;
    }
    for (int64_t i = 0; c->maps != NULL && i < c->layout->file_count; i++) {
        if (c->maps[i] != NULL) {
            munmap((void *)(uintptr_t)c->maps[i],
                   (size_t)c->layout->files[i].bytes);
            close(c->files[i]);
        }
    }
    loongi_layout_destroy(&c->layout);
    loongi_pairs_destroy(&c->metadata);
    loongi_arena_destroy(&c->arena);
    loongi_free(c->ctx, c);
    *checkpoint = NULL;
}

const char *loongi_checkpoint_path(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->dir;
}

int64_t loongi_checkpoint_step(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->step;
}

int loongi_checkpoint_ranks(const loong_checkpoint_t *checkpoint)
{
    return (int)checkpoint->layout->file_count - 1; /* and the index */
}

int64_t loongi_checkpoint_bytes(const loong_checkpoint_t *checkpoint)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < checkpoint->layout->tensor_count; i++) {
        const loong_checkpoint_tensor_t *t = loongi_checkpoint_get(checkpoint,
                                                                   i);
        bytes += loongi_shape_count(t->ndim, t->shape) *
                 (int64_t)loong_dtype_size(t->dtype);
    }
    return bytes;
}

int64_t loongi_checkpoint_bytes_read(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->bytes_read;
}

int64_t loongi_checkpoint_index_bytes(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->layout->index_bytes;
}

const loong_pairs_t *
loongi_checkpoint_metadata(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->metadata;
}

int64_t loongi_checkpoint_count(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->layout->tensor_count;
}

const loong_checkpoint_tensor_t *
loongi_checkpoint_get(const loong_checkpoint_t *checkpoint, int64_t index)
{
    return &checkpoint->layout->tensors[index].tensor;
}

/* Index of the tensor, or -1. */
static int64_t find(const loong_checkpoint_t *checkpoint, const char *kind,
                    const char *name)
{
    int64_t low = 0;
    int64_t high = checkpoint->layout->tensor_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(checkpoint, middle);
        int order = strcmp(kind, t->kind);
        order = order != 0 ? order : strcmp(name, t->name);
        if (order == 0) {
            return middle;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return -1;
}

const loong_checkpoint_tensor_t *
loongi_checkpoint_find(const loong_checkpoint_t *checkpoint, const char *kind,
                       const char *name)
{
    int64_t index = find(checkpoint, kind, name);
    return index >= 0 ? loongi_checkpoint_get(checkpoint, index) : NULL;
}

static loong_status_t map_file(loong_checkpoint_t *checkpoint, int64_t number)
{
    const loong_layout_file_t *file = &checkpoint->layout->files[number];
    loong_text_t path = loongi_text_begin(checkpoint->ctx);
    void *map = MAP_FAILED;
    struct stat info = {.st_size = file->bytes};
    if (checkpoint->maps[number] != NULL) {
        return LOONG_OK;
    }
    loongi_text_printf(&path, "%s/%s", checkpoint->dir, file->name);
    int fd = open(loongi_text_get(&path), O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size == file->bytes) {
        map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_SHARED, fd, 0);
    }
    loongi_text_free(&path);
    if (map == MAP_FAILED) {
        int code = errno;
        if (fd >= 0) {
            close(fd);
        }
        LOONG_CHECK(checkpoint->ctx, info.st_size == file->bytes,
                    LOONG_ERR_FORMAT, "'%s/%s' has %lld bytes instead of %lld",
                    checkpoint->dir, file->name, (long long)info.st_size,
                    (long long)file->bytes);
        return LOONG_FAIL(checkpoint->ctx, LOONG_ERR_IO,
                          "cannot map '%s/%s': %s", checkpoint->dir,
                          file->name, strerror(code));
    }
    checkpoint->files[number] = fd;
    checkpoint->maps[number] = map;
    return LOONG_OK;
}

loong_status_t loongi_checkpoint_map(loong_checkpoint_t *checkpoint)
{
    loong_layout_t *layout = checkpoint->layout;
    for (int64_t t = 0; t < layout->tensor_count; t++) {
        LOONG_TRY(loongi_layout_load(layout, t, checkpoint->dir));
        for (int64_t i = 0; i < layout->tensors[t].count; i++) {
            LOONG_TRY(map_file(checkpoint, layout->tensors[t].pieces[i].file));
        }
    }
    return LOONG_OK;
}

/* ---- rectangles ---- */

typedef struct copy {
    loong_context_t *ctx;
    const loong_layout_piece_t *piece;
    const char *src; /* the piece's elements */
    const int64_t *begin;
    const int64_t *count; /* of the rectangle asked for */
    loong_dtype_t dtype;
    char *dst;
    int64_t low[LOONG_TENSOR_MAX_DIMS]; /* what both have in common */
    int64_t extent[LOONG_TENSOR_MAX_DIMS];
} copy_t;

static bool intersect(copy_t *c)
{
    for (int d = 0; d < c->piece->tensor.ndim; d++) {
        int64_t low = LOONG_MAX(c->piece->begin[d], c->begin[d]);
        int64_t high = LOONG_MIN(c->piece->begin[d] + c->piece->count[d],
                                 c->begin[d] + c->count[d]);
        if (high <= low) {
            return false;
        }
        c->low[d] = low;
        c->extent[d] = high - low;
    }
    return true;
}

/* From this dimension on the elements lie together on both sides. */
static int dense_from(const copy_t *c)
{
    int d = c->piece->tensor.ndim;
    while (d > 0 &&
           (d == c->piece->tensor.ndim || (c->extent[d] == c->piece->count[d] &&
                                           c->extent[d] == c->count[d]))) {
        d--;
    }
    return d;
}

static loong_status_t copy_from(const copy_t *c, int dim, int dense,
                                int64_t from, int64_t to)
{
    if (dim == c->piece->tensor.ndim || dim == dense) {
        int64_t run = 1;
        for (int d = dim; d < c->piece->tensor.ndim; d++) {
            from = from * c->piece->count[d] + c->low[d] - c->piece->begin[d];
            to = to * c->count[d] + c->low[d] - c->begin[d];
            run *= c->extent[d];
        }
        loong_dtype_t dtype = c->piece->tensor.dtype;
        size_t size = loong_dtype_size(dtype);
        const char *src = c->src + (size_t)from * size;
        LOONG_TRY(loongi_convert(
            c->ctx, dtype, src, c->dtype,
            c->dst + (size_t)to * loong_dtype_size(c->dtype), run));
        if ((size_t)run * size >= RELEASE_BYTES) {
            loongi_mapped_release(src, (size_t)run * size);
        }
        return LOONG_OK;
    }
    for (int64_t i = 0; i < c->extent[dim]; i++) {
        LOONG_TRY(
            copy_from(c, dim + 1, dense,
                      from * c->piece->count[dim] + c->low[dim] + i -
                          c->piece->begin[dim],
                      to * c->count[dim] + c->low[dim] + i - c->begin[dim]));
    }
    return LOONG_OK;
}

loong_status_t loongi_checkpoint_read(loong_checkpoint_t *checkpoint,
                                      const loong_checkpoint_tensor_t *tensor,
                                      const int64_t *begin,
                                      const int64_t *count, loong_dtype_t dtype,
                                      void *dst)
{
    loong_layout_t *layout = checkpoint->layout;
    int64_t index = find(checkpoint, tensor->kind, tensor->name);
    LOONG_CHECK(checkpoint->ctx, index >= 0, LOONG_ERR_NOT_FOUND,
                "'%s' has no %s %s", checkpoint->dir, tensor->kind,
                tensor->name);
    for (int d = 0; d < tensor->ndim; d++) {
        LOONG_CHECK(checkpoint->ctx,
                    begin[d] >= 0 && count[d] >= 0 &&
                        count[d] <= tensor->shape[d] - begin[d],
                    LOONG_ERR_ARG,
                    "%s: %" PRId64 " + %" PRId64 " of %" PRId64
                    " in dimension %d",
                    tensor->name, begin[d], count[d], tensor->shape[d], d);
    }
    LOONG_TRY(loongi_layout_load(layout, index, checkpoint->dir));
    const loong_layout_tensor_t *found = &layout->tensors[index];
    for (int64_t i = 0; i < found->count; i++) {
        copy_t copy = {0};
        copy.ctx = checkpoint->ctx;
        copy.piece = &found->pieces[i];
        copy.begin = begin;
        copy.count = count;
        copy.dtype = dtype;
        copy.dst = dst;
        if (!intersect(&copy)) {
            continue;
        }
        LOONG_TRY(map_file(checkpoint, copy.piece->file));
        copy.src = checkpoint->maps[copy.piece->file] + copy.piece->offset;
        LOONG_TRY(copy_from(&copy, 0, dense_from(&copy), 0, 0));
        checkpoint->bytes_read +=
            loongi_shape_count(tensor->ndim, copy.extent) *
            (int64_t)loong_dtype_size(tensor->dtype);
    }
    return LOONG_OK;
}

bool loongi_checkpoint_lend(loong_checkpoint_t *checkpoint,
                            const loong_checkpoint_tensor_t *tensor,
                            int64_t row, int64_t rows,
                            loong_borrowed_t *borrowed)
{
    const loong_layout_tensor_t *found =
        &checkpoint->layout
             ->tensors[find(checkpoint, tensor->kind, tensor->name)];
    int64_t length = loongi_shape_count(tensor->ndim, tensor->shape) /
                     LOONG_MAX(tensor->shape[0], 1);
    size_t size = loong_dtype_size(tensor->dtype);
    for (int64_t i = 0; i < found->count; i++) {
        const loong_layout_piece_t *p = &found->pieces[i];
        int64_t before = row - p->begin[0];
        if (before < 0 || before + rows > p->count[0] ||
            loongi_shape_count(tensor->ndim, p->count) / p->count[0] !=
                length) {
            continue;
        }
        int64_t offset = p->offset + before * length * (int64_t)size;
        borrowed->dtype = tensor->dtype;
        borrowed->bytes = (size_t)(rows * length) * size;
        borrowed->data = checkpoint->maps[p->file] + offset;
        borrowed->hole = loongi_file_is_hole(checkpoint->files[p->file], offset,
                                             (int64_t)borrowed->bytes);
        checkpoint->bytes_read += (int64_t)borrowed->bytes;
        return true;
    }
    return false;
}

loong_status_t loongi_checkpoint_read_rows(
    loong_checkpoint_t *checkpoint, const loong_checkpoint_tensor_t *tensor,
    int64_t row, int64_t rows, loong_dtype_t dtype, void *dst)
{
    int64_t begin[LOONG_TENSOR_MAX_DIMS] = {0};
    int64_t count[LOONG_TENSOR_MAX_DIMS];
    memcpy(count, tensor->shape, sizeof(count));
    begin[0] = row;
    count[0] = rows;
    return loongi_checkpoint_read(checkpoint, tensor, begin, count, dtype, dst);
}

/* ---- comparing and verifying ---- */

/* kind_wanted: of its component, which the name begins with. */
static const loong_checkpoint_tensor_t *
find_wanted(const loong_checkpoint_tensor_t *wanted, int64_t count,
            const loong_checkpoint_tensor_t *tensor, bool *kind_wanted)
{
    size_t component = strcspn(tensor->name, ".") + 1;
    *kind_wanted = false;
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(wanted[i].kind, tensor->kind) == 0 &&
            strncmp(wanted[i].name, tensor->name, component) == 0) {
            *kind_wanted = true;
            if (strcmp(wanted[i].name, tensor->name) == 0) {
                return &wanted[i];
            }
        }
    }
    return NULL;
}

loong_status_t loongi_checkpoint_check(const loong_checkpoint_t *checkpoint,
                                       const loong_checkpoint_tensor_t *wanted,
                                       int64_t count)
{
    char found[LOONG_SHAPE_TEXT], needed[LOONG_SHAPE_TEXT];
    loong_problems_t problems = loongi_problems_begin(checkpoint->ctx);
    for (int64_t i = 0; i < count; i++) {
        const loong_checkpoint_tensor_t *w = &wanted[i];
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_find(checkpoint, w->kind, w->name);
        loongi_shape_text(w->ndim, w->shape, needed);
        if (t == NULL) {
            loongi_problems_add(&problems, "missing: %s %s %s", w->kind,
                                w->name, needed);
        } else if (t->ndim != w->ndim ||
                   memcmp(t->shape, w->shape,
                          (size_t)t->ndim * sizeof(*t->shape)) != 0) {
            loongi_problems_add(
                &problems,
                "shape: %s %s is %s in the checkpoint, %s in the model",
                w->kind, w->name, loongi_shape_text(t->ndim, t->shape, found),
                needed);
        }
    }
    for (int64_t i = 0; i < loongi_checkpoint_count(checkpoint); i++) {
        bool kind_wanted = false;
        const loong_checkpoint_tensor_t *t =
            loongi_checkpoint_get(checkpoint, i);
        if (find_wanted(wanted, count, t, &kind_wanted) == NULL &&
            kind_wanted) {
            loongi_problems_add(&problems, "unexpected: %s %s %s", t->kind,
                                t->name,
                                loongi_shape_text(t->ndim, t->shape, found));
        }
    }
    return loongi_problems_end(&problems, LOONG_ERR_MISMATCH, checkpoint->dir);
}

static void compare_sum(const loong_checkpoint_t *checkpoint,
                        const loong_layout_file_t *file,
                        loong_problems_t *problems)
{
    loong_context_t *ctx = checkpoint->ctx;
    loong_text_t path = loongi_text_begin(ctx);
    uint64_t xxh3 = 0;
    loongi_text_printf(&path, "%s/%s", checkpoint->dir, file->name);
    if (!loongi_file_exists(loongi_text_get(&path))) {
        loongi_problems_add(problems, "%s is missing", file->name);
    } else if (loongi_checksum_file(ctx, loongi_text_get(&path), &xxh3) !=
               LOONG_OK) {
        loongi_problems_add(problems, "%s cannot be read", file->name);
    } else if (xxh3 != file->xxh3) {
        loongi_problems_add(
            problems, "%s: checksum %016" PRIx64 " instead of %016" PRIx64,
            file->name, xxh3, file->xxh3);
    }
    loongi_text_free(&path);
}

loong_status_t loongi_checkpoint_verify(loong_checkpoint_t *checkpoint,
                                        int part, int parts)
{
    loong_context_t *ctx = checkpoint->ctx;
    loong_problems_t problems = loongi_problems_begin(ctx);
    for (int64_t i = part; i < checkpoint->layout->file_count; i += parts) {
        compare_sum(checkpoint, &checkpoint->layout->files[i], &problems);
    }
    LOONG_TRY(
        loongi_problems_end(&problems, LOONG_ERR_FORMAT, checkpoint->dir));
    return part == 0 ? loongi_h5_check(ctx, checkpoint->dir, checkpoint->layout,
                                       parts == 1)
                     : LOONG_OK;
}

static bool lists(const loong_layout_t *layout, const char *name)
{
    int64_t i = 0;
    while (i < layout->hf_count &&
           strcmp(layout->hf_files[i].name + strlen("hf/"), name) != 0) {
        i++;
    }
    return i < layout->hf_count;
}

loong_status_t loongi_checkpoint_read_hf(const loong_checkpoint_t *checkpoint,
                                         loong_file_set_t *files)
{
    char dir[PATH_MAX];
    LOONG_CHECK(checkpoint->ctx,
                snprintf(dir, sizeof(dir), "%s/hf", checkpoint->dir) < PATH_MAX,
                LOONG_ERR_ARG, "the path '%s/hf' is too long", checkpoint->dir);
    return loongi_dir_exists(dir) ? loongi_file_set_read_dir(files, dir, "")
                                  : LOONG_OK;
}

/* Files that came later. */
static loong_status_t add_unlisted(const loong_checkpoint_t *checkpoint,
                                   loong_problems_t *problems)
{
    loong_file_set_t *files = NULL;
    LOONG_TRY(loongi_file_set_create(checkpoint->ctx, &files));
    loong_status_t status = loongi_checkpoint_read_hf(checkpoint, files);
    for (int64_t i = 0; i < loongi_file_set_count(files); i++) {
        const char *bytes = NULL;
        size_t length = 0;
        const char *name = loongi_file_set_get(files, i, &bytes, &length);
        if (!lists(checkpoint->layout, name)) {
            loongi_problems_add(problems,
                                "hf/%s: checkpoint.json does not list it",
                                name);
        }
    }
    loongi_file_set_destroy(&files);
    return status;
}

loong_status_t loongi_checkpoint_verify_hf(const loong_checkpoint_t *checkpoint,
                                           bool others)
{
    const loong_layout_t *layout = checkpoint->layout;
    loong_problems_t problems = loongi_problems_begin(checkpoint->ctx);
    for (int64_t i = 0; i < layout->hf_count; i++) {
        compare_sum(checkpoint, &layout->hf_files[i], &problems);
    }
    loong_status_t status = others && layout->lists_hf
                                ? add_unlisted(checkpoint, &problems)
                                : LOONG_OK;
    loong_status_t found = loongi_problems_end(&problems, LOONG_ERR_FORMAT,
                                               checkpoint->dir);
    return status != LOONG_OK ? status : found;
}

bool loongi_checkpoint_lists_hf(const loong_checkpoint_t *checkpoint)
{
    return checkpoint->layout->lists_hf;
}
