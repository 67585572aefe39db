/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a complete Hugging Face model directory. */
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_config.h"
#include "hf_tokens.h"
#include "hf_weights.h"
#include "native.h"
#include "safetensors.h"

enum { STREAM_BYTES = 16 << 20 };
#define DEFAULT_SHARD_BYTES INT64_C(5000000000)

typedef struct exporter {
    loong_context_t *ctx;
    const loong_hf_export_params_t *params;
    loong_hf_map_t *map;
    loong_safetensors_set_writer_t *out;
    int64_t *handles; /* per piece; parts of one tensor share theirs */
} exporter_t;

static loong_dtype_t type_of(const exporter_t *e, const loong_hf_param_t *p)
{
    loong_dtype_t dtype = e->params->dtype;
    return p->exact && dtype != LOONG_F64 ? LOONG_F32 : dtype;
}

static loong_status_t declare(exporter_t *e, const loong_hf_param_t *p,
                              int64_t piece)
{
    int64_t rows = loongi_hf_file_rows(p);
    int64_t shape[2] = {rows, p->shape[1]};
    loong_text_t name = loongi_text_begin(e->ctx);
    if (p->transposed) {
        shape[0] = p->shape[1];
        shape[1] = rows;
    }
    if (p->flat) {
        shape[0] = 1;
        shape[1] = rows;
    }
    loongi_text_printf(&name, "%s%s",
                       p->prefixed ? loongi_hf_map_prefix(e->map) : "",
                       loongi_hf_piece_name(p, piece));
    loong_status_t status = name.status;
    if (status == LOONG_OK) {
        status = loongi_safetensors_set_declare(
            e->out, name.data, type_of(e, p), p->flat ? 2 : p->ndim, shape,
            &e->handles[p->first_piece + piece]);
    }
    loongi_text_free(&name);
    return status;
}

/* Parts follow each other in the map, the first opens the tensor. */
static loong_status_t declare_all(exporter_t *e)
{
    for (int64_t i = 0; i < loongi_hf_map_count(e->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(e->map, i);
        if (p->part > 0) {
            e->handles[p->first_piece] = e->handles[p->first_piece - 1];
            continue;
        }
        for (int64_t k = 0; k < p->pieces; k++) {
            LOONG_TRY(declare(e, p, k));
        }
    }
    return LOONG_OK;
}

static loong_status_t source(exporter_t *e, const loong_hf_param_t *p,
                             int64_t row, int64_t rows, void *dst)
{
    return e->params->source(e->params->user, p->name, row, rows,
                             type_of(e, p), dst);
}

/* Appends one run of rows to its tensor. */
static loong_status_t stream(exporter_t *e, const loong_hf_param_t *p,
                             int64_t run)
{
    int64_t begin = p->run * run;
    int64_t end = begin + p->run;
    int64_t handle = e->handles[p->first_piece + (p->pieces > 1 ? run : 0)];
    size_t row_bytes = (size_t)p->shape[1] * loong_dtype_size(type_of(e, p));
    int64_t step = LOONG_MAX((int64_t)(STREAM_BYTES / row_bytes), 1);
    void *buffer = NULL;
    loong_status_t status = LOONG_OK;
    step = LOONG_MIN(step, end - begin);
    LOONG_TRY(
        loongi_calloc(e->ctx, (size_t)step, row_bytes, "export rows", &buffer));
    for (int64_t row = begin; row < end && status == LOONG_OK; row += step) {
        int64_t rows = LOONG_MIN(step, end - row);
        status = source(e, p, row, rows, buffer);
        if (status == LOONG_OK) {
            status = loongi_safetensors_set_write(e->out, handle, buffer,
                                                  (size_t)rows * row_bytes);
        }
    }
    loongi_free(e->ctx, buffer);
    return status;
}

/* The parts of a tensor (or the pieces of a parameter), run after run. */
static loong_status_t interleave(exporter_t *e, int64_t first)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->map, first);
    for (int64_t run = 0; run < p->shape[0] / p->run; run++) {
        for (int i = 0; i < p->parts; i++) {
            LOONG_TRY(stream(e, loongi_hf_map_get(e->map, first + i), run));
        }
    }
    return LOONG_OK;
}

/* dst[column][offset + row] = src[row][column] */
static void turn(const loong_hf_param_t *p, const char *src, char *dst,
                 size_t size)
{
    size_t rows = (size_t)p->shape[0];
    size_t columns = (size_t)p->shape[1];
    size_t width = rows * (size_t)p->parts;
    size_t offset = rows * (size_t)p->part;
    for (size_t c = 0; c < columns; c++) {
        char *to = dst + (c * width + offset) * size;
        for (size_t r = 0; r < rows; r++) {
            memcpy(to + r * size, src + (r * columns + c) * size, size);
        }
    }
}

/* A transposed tensor is put together in memory from all of its parts. */
static loong_status_t assemble(exporter_t *e, int64_t first)
{
    const loong_hf_param_t *p = loongi_hf_map_get(e->map, first);
    size_t size = loong_dtype_size(e->params->dtype);
    size_t bytes = (size_t)(p->shape[0] * p->shape[1]) * size;
    char *whole = NULL;
    char *part = NULL;
    loong_status_t status = LOONG_OK;
    LOONG_TRY_GOTO(
        loongi_calloc(e->ctx, (size_t)p->parts, bytes, "export tensor", &whole),
        status, out_buffers);
    LOONG_TRY_GOTO(loongi_alloc(e->ctx, bytes, "export part", &part), status,
                   out_buffers);
    for (int i = 0; i < p->parts; i++) {
        const loong_hf_param_t *q = loongi_hf_map_get(e->map, first + i);
        LOONG_TRY_GOTO(source(e, q, 0, q->shape[0], part), status, out_buffers);
        turn(q, part, whole, size);
    }
    status = loongi_safetensors_set_write(e->out, e->handles[p->first_piece],
                                          whole,
                                          bytes * (size_t)p->parts);
out_buffers:
    loongi_free(e->ctx, part);
    loongi_free(e->ctx, whole);
    return status;
}

static loong_status_t write_all(exporter_t *e)
{
    for (int64_t i = 0; i < loongi_hf_map_count(e->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(e->map, i);
        if (p->part == 0) {
            LOONG_TRY(p->transposed ? assemble(e, i) : interleave(e, i));
        }
    }
    return loongi_safetensors_set_commit(e->out);
}

static loong_status_t run(exporter_t *e)
{
    const loong_hf_export_params_t *params = e->params;
    loong_hf_config_params_t config = {params->dir, params->model,
                                       params->dtype, params->tokens};
    LOONG_CHECK(e->ctx,
                params->dtype == LOONG_F64 || params->dtype == LOONG_F32 ||
                    params->dtype == LOONG_BF16 || params->dtype == LOONG_F16,
                LOONG_ERR_ARG, "weights cannot be exported as %s",
                loong_dtype_name(params->dtype));
    LOONG_TRY(loongi_hf_map_create(e->ctx, params->model, &e->map));
    LOONG_TRY(loongi_dir_make(e->ctx, params->dir));
    if (params->files_dir != NULL) {
        LOONG_TRY(loongi_hf_copy_files(e->ctx, params->files_dir, params->dir));
    }
    LOONG_TRY(loongi_hf_config_write(e->ctx, &config));
    LOONG_TRY(loongi_hf_tokenizer_config_write(e->ctx, params->dir,
                                               params->model));
    LOONG_TRY(loongi_calloc(e->ctx, (size_t)loongi_hf_map_pieces(e->map),
                            sizeof(*e->handles), "export", &e->handles));
    int64_t shard = params->max_shard_bytes;
    LOONG_TRY(loongi_safetensors_set_create(
        e->ctx, params->dir, shard > 0 ? shard : DEFAULT_SHARD_BYTES, &e->out));
    LOONG_TRY(declare_all(e));
    return write_all(e);
}

loong_status_t loongi_hf_export(loong_context_t *ctx,
                                const loong_hf_export_params_t *params)
{
    exporter_t exporter = {ctx, params, NULL, NULL, NULL};
    LOONG_CHECK(ctx, !loongi_checkpoint_is_native(params->dir),
                LOONG_ERR_CONFIG,
                "'%s' is a native checkpoint: another directory is wanted for "
                "an export",
                params->dir);
    loong_status_t status = run(&exporter);
    loongi_safetensors_set_destroy(&exporter.out);
    loongi_free(ctx, exporter.handles);
    loongi_hf_map_destroy(&exporter.map);
    return status;
}

loong_status_t loongi_hf_copy_files(loong_context_t *ctx, const char *from,
                                    const char *to)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    const char *slash = strrchr(from, '/');
    int beside = slash != NULL ? (int)(slash - from) + 1 : 0;
    bool directory = loongi_dir_exists(from);
    loong_status_t status = LOONG_OK;
    LOONG_TRY(loongi_dir_make(ctx, to));
    for (int64_t i = 0; i < LOONG_COUNT_OF(names) && status == LOONG_OK; i++) {
        loong_text_t source_path = loongi_text_begin(ctx);
        loong_text_t target_path = loongi_text_begin(ctx);
        if (i == 0 || directory) {
            loongi_text_printf(&source_path, "%s%s%s", from,
                               directory ? "/" : "", directory ? names[i] : "");
        } else {
            loongi_text_printf(&source_path, "%.*s%s", beside, from, names[i]);
        }
        loongi_text_printf(&target_path, "%s/%s", to, names[i]);
        if (source_path.status != LOONG_OK || target_path.status != LOONG_OK) {
            status = LOONG_ERR_MEMORY;
        } else if (loongi_file_exists(source_path.data)) {
            status = loongi_file_copy(ctx, source_path.data, target_path.data);
        }
        loongi_text_free(&source_path);
        loongi_text_free(&target_path);
    }
    return status;
}
