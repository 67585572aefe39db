/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a complete Hugging Face model directory. Rows of the files are asked
 * for in blocks, by several threads; each is put together from rows of
 * parameters. Called by export.c. Read hf_weights.h and safetensors.h
 * before. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_files.h"
#include "hf_tokens.h"
#include "hf_weights.h"
#include "safetensors.h"

#define DEFAULT_SHARD_BYTES INT64_C(5000000000)

/* A tensor of the files: matrices of `height` rows, one for each slab. */
typedef struct made {
    int part;      /* of the exporter */
    int64_t first; /* parameter of the map; parts follow it */
    int64_t piece; /* of the first slab */
    int64_t height;
    loong_dtype_t dtype;
} made_t;

typedef struct exporter {
    loong_context_t *ctx;
    const loong_hf_export_params_t *params;
    int num_parts; /* components: 1, but of a composite */
    loong_hf_map_t *maps[LOONG_HF_PARTS];
    void *users[LOONG_HF_PARTS];
    loong_safetensors_set_writer_t *out;
    int64_t capacity;
    made_t *tensors; /* by handle */
} exporter_t;

/* Rows of a parameter that lie together in a tensor of the files. */
typedef struct span {
    const loong_hf_param_t *param;
    int64_t row;  /* of the parameter */
    int64_t rows;
    int64_t at; /* row within the slab */
} span_t;

static loong_dtype_t type_of(const exporter_t *e, int part,
                             const loong_hf_param_t *p)
{
    loong_dtype_t dtype = e->params->dtype;
    if (e->params->type != NULL) {
        return e->params->type(e->users[part], p->name);
    }
    return p->exact && dtype != LOONG_F64 ? LOONG_F32 : dtype;
}

/* That holds what any of the parameters holds that a tensor is made of. */
static loong_dtype_t type_of_all(const exporter_t *e, int part,
                                 const loong_hf_param_t *p)
{
    loong_dtype_t dtype = type_of(e, part, p);
    for (int i = 1; i < p->parts; i++) {
        dtype = loongi_hf_wider(dtype, type_of(e, part, p + i));
    }
    return dtype;
}

/* ---- which tensors there are ---- */

static loong_status_t declare(exporter_t *e, const loong_hf_map_t *map,
                              const loong_hf_param_t *p,
                              const loong_safetensor_t *tensor,
                              int64_t *handle_p)
{
    loong_text_t name = loongi_text_begin(e->ctx);
    loongi_text_printf(&name, "%s%s", loongi_hf_param_prefix(map, p),
                       tensor->name);
    loong_status_t status = name.status;
    if (status == LOONG_OK) {
        status = loongi_safetensors_set_declare(e->out, name.data,
                                                tensor->dtype, tensor->ndim,
                                                tensor->shape, handle_p);
    }
    loongi_text_free(&name);
    return status;
}

static loong_status_t declare_piece(exporter_t *e, int part, int64_t first,
                                    int64_t piece)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[part], first);
    loong_safetensor_t tensor = {.name = loongi_hf_piece_name(p, piece),
                                 .dtype = type_of_all(e, part, p)};
    int64_t handle = 0;
    tensor.ndim = loongi_hf_file_shape(p, tensor.shape);
    LOONG_TRY(declare(e, e->maps[part], p, &tensor, &handle));
    LOONG_TRY(loongi_grow(e->ctx, &e->tensors, &e->capacity, handle + 1,
                          sizeof(*e->tensors), "tensors of an export"));
    e->tensors[handle].part = part;
    e->tensors[handle].first = first;
    e->tensors[handle].piece = piece;
    e->tensors[handle].height = loongi_hf_file_rows(p);
    e->tensors[handle].dtype = tensor.dtype;
    return LOONG_OK;
}

/* Nobody asks for their rows: they stand behind all others. */
static loong_status_t declare_hollow(exporter_t *e, const loong_hf_map_t *map)
{
    int64_t count =
        e->params->map == NULL ? loongi_hf_map_hollow_count(map) : 0;
    for (int64_t i = 0; i < count; i++) {
        const loong_hf_param_t *p = loongi_hf_map_hollow(map, i);
        loong_safetensor_t tensor = {.name = p->hf_name,
                                     .dtype = e->params->dtype,
                                     .ndim = p->ndim,
                                     .shape = {p->shape[0], p->shape[1]}};
        int64_t handle = 0;
        LOONG_TRY(declare(e, map, p, &tensor, &handle));
    }
    return LOONG_OK;
}

/* Of stacked experts the first piece opens the tensor, of fused matrices the
 * first of each expert. */
static loong_status_t declare_part(exporter_t *e, int part)
{
    const loong_hf_map_t *map = e->maps[part];
    for (int64_t i = 0; i < loongi_hf_map_count(map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        int64_t end = p->stacked ? p->units : p->pieces;
        for (int64_t k = 0; k < end && p->part == 0; k++) {
            if (!p->fused || k % p->units == 0) {
                LOONG_TRY(declare_piece(e, part, i, k));
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t declare_all(exporter_t *e)
{
    for (int i = 0; i < e->num_parts; i++) {
        LOONG_TRY(declare_part(e, i));
    }
    for (int i = 0; i < e->num_parts; i++) {
        LOONG_TRY(declare_hollow(e, e->maps[i]));
    }
    return LOONG_OK;
}

/* ---- where its rows come from ---- */

/* The span that begins with row `at` of a slab. */
static span_t find_span(const exporter_t *e, const made_t *t, int64_t slab,
                        int64_t at)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[t->part], t->first);
    int64_t within = at % p->stride;
    int64_t run = at / p->stride;
    span_t span = {p, 0, 0, at};
    for (int i = 0; i < p->parts; i++) {
        const loong_hf_param_t *q = p + i;
        for (int u = 0; u < (q->fused ? q->units : 1); u++) {
            int64_t before = within - q->offset - q->shift[u];
            if (before >= 0 && before < q->run) {
                int64_t piece = t->piece + slab * q->units + u;
                span.param = q;
                span.row = piece * (q->shape[0] / q->pieces) + run * q->run +
                           before;
                span.rows = q->run - before;
            }
        }
    }
    return span;
}

static loong_status_t read_rows(const exporter_t *e, const made_t *t,
                                const span_t *span, int64_t rows, void *dst)
{
    loong_hf_block_t block = {span->param->name, span->row, rows, 0,
                              span->param->shape[1]};
    return e->params->source(e->users[t->part], &block, t->dtype, dst);
}

/* Rows of the files that are rows of parameters. */
static loong_status_t copy_rows(const exporter_t *e, const made_t *t,
                                int64_t row, int64_t rows, char *dst)
{
    for (int64_t done = 0; done < rows;) {
        int64_t slab = (row + done) / t->height;
        span_t span = find_span(e, t, slab, (row + done) % t->height);
        int64_t n = LOONG_MIN(span.rows, rows - done);
        LOONG_TRY(read_rows(e, t, &span, n, dst));
        dst += (size_t)(n * span.param->shape[1]) * loong_dtype_size(t->dtype);
        done += n;
    }
    return LOONG_OK;
}

typedef struct turning {
    int64_t columns; /* of ours: rows of the tensor */
    int64_t width;   /* of the tensor */
    size_t size;
} turning_t;

/* dst[column][at + row] = src[row][column] */
static void turn(const turning_t *t, const char *src, int64_t rows, char *dst)
{
    for (int64_t c = 0; c < t->columns; c++) {
        char *to = dst + (size_t)(c * t->width) * t->size;
        const char *from = src + (size_t)c * t->size;
        for (int64_t r = 0; r < rows; r++) {
            memcpy(to + (size_t)r * t->size,
                   from + (size_t)(r * t->columns) * t->size, t->size);
        }
    }
}

/* Rows [column, column + columns) of a slab's matrix, which are columns of
 * parameters. */
static loong_status_t turn_columns(const exporter_t *e, const made_t *t,
                                   int64_t slab, const int64_t columns[2],
                                   char *dst)
{
    turning_t turning = {columns[1], t->height, loong_dtype_size(t->dtype)};
    loong_status_t status = LOONG_OK;
    for (int64_t at = 0; at < t->height && status == LOONG_OK;) {
        span_t span = find_span(e, t, slab, at);
        loong_hf_block_t block = {span.param->name, span.row, span.rows,
                                  columns[0], columns[1]};
        char *part = NULL;
        LOONG_TRY(loongi_calloc(e->ctx, (size_t)(span.rows * columns[1]),
                                turning.size, "export part", &part));
        status = e->params->source(e->users[t->part], &block, t->dtype, part);
        if (status == LOONG_OK) {
            turn(&turning, part, span.rows, dst + (size_t)at * turning.size);
        }
        loongi_free(e->ctx, part);
        at += span.rows;
    }
    return status;
}

static loong_status_t copy_transposed(const exporter_t *e, const made_t *t,
                                      int64_t row, int64_t rows, char *dst)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[t->part], t->first);
    size_t row_bytes = (size_t)t->height * loong_dtype_size(t->dtype);
    for (int64_t done = 0; done < rows;) {
        int64_t slab = (row + done) / p->shape[1];
        int64_t columns[2] = {(row + done) % p->shape[1], 0};
        columns[1] = LOONG_MIN(p->shape[1] - columns[0], rows - done);
        LOONG_TRY(turn_columns(e, t, slab, columns,
                               dst + (size_t)done * row_bytes));
        done += columns[1];
    }
    return LOONG_OK;
}

static bool lend(const exporter_t *e, const made_t *t, int64_t row,
                 int64_t rows, const void **data_p)
{
    loong_borrowed_t borrowed;
    span_t span = find_span(e, t, row / t->height, row % t->height);
    if (e->params->lend == NULL || span.rows < rows ||
        !e->params->lend(e->users[t->part], span.param->name, span.row, rows,
                         &borrowed)) {
        return false;
    }
    if (!borrowed.hole && borrowed.dtype != t->dtype) {
        return false;
    }
    *data_p = borrowed.hole ? NULL : borrowed.data;
    return true;
}

/* Elements of a tensor in other dimensions than ours, which it has in order. */
static loong_status_t copy_elements(const exporter_t *e, const made_t *t,
                                    int64_t at, int64_t count, char *dst)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[t->part], t->first);
    int64_t width = p->shape[1];
    for (int64_t n = 0; count > 0; count -= n, at += n) {
        n = LOONG_MIN(count, width - at % width);
        loong_hf_block_t block = {p->name, at / width, 1, at % width, n};
        LOONG_TRY(e->params->source(e->users[t->part], &block, t->dtype, dst));
        dst += (size_t)n * loong_dtype_size(t->dtype);
    }
    return LOONG_OK;
}

/* The same where our rows have another order of columns. */
static loong_status_t copy_places(const exporter_t *e, const made_t *t,
                                  int64_t at, int64_t count, char *dst)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[t->part], t->first);
    size_t size = loong_dtype_size(t->dtype);
    int64_t width = p->shape[1];
    char *row = NULL;
    LOONG_TRY(loongi_alloc(e->ctx, (size_t)width * size, "a row", &row));
    loong_status_t status = LOONG_OK;
    for (int64_t n = 0; count > 0 && status == LOONG_OK; count -= n, at += n) {
        n = LOONG_MIN(count, width - at % width);
        status = copy_elements(e, t, at / width * width, width, row);
        for (int64_t c = at % width; c < at % width + n; c++, dst += size) {
            memcpy(dst, row + (size_t)loongi_hf_own_column(p, c) * size, size);
        }
    }
    loongi_free(e->ctx, row);
    return status;
}

static loong_status_t give_rows(void *user, int64_t index, int64_t row,
                                int64_t rows, void *buffer,
                                const void **data_p)
{
    const exporter_t *e = user;
    const made_t *t = &e->tensors[index];
    const loong_hf_param_t *p = loongi_hf_map_get(e->maps[t->part], t->first);
    if (p->flat > 0) { /* the rows of the matrix are parts of the vector */
        int64_t each = t->height / p->flat;
        return copy_rows(e, t, row * each, rows * each, buffer);
    }
    if (p->file_ndim > 0) {
        int64_t each = loongi_safetensors_row(p->file_ndim, p->file_shape);
        return (p->places > 0 ? copy_places : copy_elements)(
            e, t, row * each, rows * each, buffer);
    }
    if (p->transposed) {
        return copy_transposed(e, t, row, rows, buffer);
    }
    return lend(e, t, row, rows, data_p) ? LOONG_OK
                                         : copy_rows(e, t, row, rows, buffer);
}

/* ---- the directory ---- */

static loong_status_t write_beside(const exporter_t *e)
{
    const loong_hf_export_params_t *p = e->params;
    const char *dir = loongi_safetensors_set_workdir(e->out);
    const loong_hf_config_params_t config = {
        dir, p->model, p->dtype, p->tokens, p->composite, p->models};
    LOONG_TRY(loongi_hf_files_copy(e->ctx, p->files_dir, p->code_dir, dir));
    if (p->map != NULL) {
        loongi_log(e->ctx, LOONG_LOG_WARN,
                   "%s gets no config.json: the names of %s are no model "
                   "type's", p->dir, p->map);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_hf_config_write(e->ctx, &config));
    return loongi_hf_tokenizer_config_write(
        e->ctx, dir,
        p->composite != NULL ? p->models[LOONG_HF_PART_LOSS] : p->model);
}

static loong_status_t check_params(const loong_hf_export_params_t *p,
                                   loong_context_t *ctx)
{
    LOONG_CHECK(ctx,
                p->dtype == LOONG_F64 || p->dtype == LOONG_F32 ||
                    p->dtype == LOONG_BF16 || p->dtype == LOONG_F16,
                LOONG_ERR_ARG, "weights cannot be exported as %s",
                loong_dtype_name(p->dtype));
    if (p->map != NULL) {
        return LOONG_OK;
    }
    const loong_hf_config_params_t config = {
        p->dir, p->model, p->dtype, p->tokens, p->composite, p->models};
    LOONG_TRY(loongi_hf_config_check_as(ctx, &config));
    return loongi_hf_check_replaced(
        ctx, p->dir,
        p->composite != NULL ? p->models[LOONG_HF_PART_LOSS] : p->model);
}

/* The maps of the components. */
static loong_status_t open_parts(exporter_t *e)
{
    const loong_hf_export_params_t *p = e->params;
    e->num_parts = p->composite != NULL ? LOONG_HF_PARTS : 1;
    for (int i = 0; i < e->num_parts; i++) {
        e->users[i] = p->composite != NULL ? p->users[i] : p->user;
        LOONG_TRY(loongi_hf_map_load(
            e->ctx, p->composite != NULL ? p->models[i] : p->model, p->map,
            &e->maps[i]));
        if (p->composite != NULL) {
            LOONG_TRY(loongi_hf_composite_place_as(p->composite, i, p->tokens,
                                                   e->maps[i]));
        }
    }
    return LOONG_OK;
}

static loong_status_t run(exporter_t *e)
{
    const loong_hf_export_params_t *p = e->params;
    loong_meter_t meter = {p->progress, p->progress_user, 0, 0};
    loong_safetensors_source_t source = {give_rows, e, &meter};
    loong_safetensors_set_params_t set = {
        p->dir, p->max_shard_bytes > 0 ? p->max_shard_bytes
                                       : DEFAULT_SHARD_BYTES,
        p->key != NULL ? p->key : ""};
    LOONG_TRY(open_parts(e));
    LOONG_TRY(loongi_safetensors_set_create(e->ctx, &set, &e->out));
    LOONG_TRY(write_beside(e));
    LOONG_TRY(declare_all(e));
    meter.total = loongi_safetensors_set_bytes(e->out);
    LOONG_TRY(loongi_safetensors_set_fill(e->out, &source));
    return loongi_safetensors_set_commit(e->out);
}

loong_status_t loongi_hf_export(loong_context_t *ctx,
                                const loong_hf_export_params_t *params)
{
    exporter_t exporter = {0};
    exporter.ctx = ctx;
    exporter.params = params;
    LOONG_TRY(check_params(params, ctx));
    loong_status_t status = run(&exporter);
    loongi_safetensors_set_end(&exporter.out, status);
    loongi_free(ctx, exporter.tensors);
    for (int i = 0; i < exporter.num_parts; i++) {
        loongi_hf_map_destroy(&exporter.maps[i]);
    }
    return status;
}
