/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads weights of a model directory: checks them against the map, then hands
 * out rows. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "problems.h"
#include "safetensors.h"

struct loong_hf {
    loong_context_t *ctx;
    char *dir;
    loong_pairs_t *model;
    loong_hf_map_t *map;
    loong_safetensors_set_t *set;
    const loong_safetensor_t **tensors; /* per piece; NULL: not there */
};

/* With the prefix of the base model or, as files saved from the base model
 * itself have it, without. */
static const loong_safetensor_t *search(const loong_hf_t *hf,
                                        const loong_hf_param_t *param,
                                        const char *name)
{
    char full[512];
    if (param->prefixed) {
        int length = snprintf(full, sizeof(full), "%s%s",
                              loongi_hf_map_prefix(hf->map), name);
        const loong_safetensor_t *tensor =
            length < (int)sizeof(full)
                ? loongi_safetensors_set_find(hf->set, full)
                : NULL;
        if (tensor != NULL) {
            return tensor;
        }
    }
    return loongi_safetensors_set_find(hf->set, name);
}

static loong_status_t find_all(loong_hf_t *hf)
{
    LOONG_TRY(loongi_calloc(hf->ctx, (size_t)loongi_hf_map_pieces(hf->map),
                            sizeof(*hf->tensors), "tensors of a model",
                            &hf->tensors));
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(hf->map, i);
        for (int64_t k = 0; k < p->pieces; k++) {
            hf->tensors[p->first_piece + k] =
                search(hf, p, loongi_hf_piece_name(p, k));
        }
    }
    return LOONG_OK;
}

/* The first piece of a parameter. */
static const loong_safetensor_t *find_tensor(const loong_hf_t *hf,
                                             const loong_hf_param_t *param)
{
    return hf->tensors[param->first_piece];
}

/* The shape that the file must have. */
static int file_shape(const loong_hf_param_t *param, int64_t shape[2])
{
    int64_t rows = loongi_hf_file_rows(param);
    shape[0] = param->transposed ? param->shape[1] : rows;
    shape[1] = param->transposed ? rows : param->shape[1];
    if (param->flat) {
        shape[0] = 1;
        shape[1] = rows;
    }
    return param->flat ? 2 : param->ndim;
}

static bool same_shape(int ndim, const int64_t *a, int other_ndim,
                       const int64_t *b)
{
    return ndim == other_ndim && memcmp(a, b, (size_t)ndim * sizeof(*a)) == 0;
}

static void check_piece(const loong_hf_t *hf, const loong_hf_param_t *param,
                        int64_t piece, loong_problems_t *problems)
{
    const loong_safetensor_t *tensor = hf->tensors[param->first_piece + piece];
    char found[LOONG_SHAPE_TEXT], wanted[LOONG_SHAPE_TEXT];
    int64_t shape[2];
    int ndim = file_shape(param, shape);
    loongi_shape_text(ndim, shape, wanted);
    if (tensor == NULL) {
        loongi_problems_add(problems, "missing: %s%s %s",
                            param->prefixed ? loongi_hf_map_prefix(hf->map)
                                            : "",
                            loongi_hf_piece_name(param, piece), wanted);
    } else if (!same_shape(ndim, shape, tensor->ndim, tensor->shape)) {
        loongi_problems_add(
            problems, "shape: %s is %s, config.json says %s", tensor->name,
            loongi_shape_text(tensor->ndim, tensor->shape, found), wanted);
    } else if (!loongi_dtype_is_float(tensor->dtype)) {
        loongi_problems_add(problems, "type: %s is %s, not a float",
                            tensor->name, loong_dtype_name(tensor->dtype));
    }
}

static void check_params(const loong_hf_t *hf, loong_problems_t *problems)
{
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *param = loongi_hf_map_get(hf->map, i);
        for (int64_t k = 0; k < param->pieces; k++) {
            check_piece(hf, param, k, problems);
        }
    }
}

/* Buffers of the classes that older versions saved: masks and tables. */
static bool is_buffer(const char *name)
{
    static const char *const suffixes[] = {".attn.bias", ".attn.masked_bias",
                                           ".rotary_emb.inv_freq"};
    size_t length = strlen(name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(suffixes); i++) {
        size_t n = strlen(suffixes[i]);
        if (length >= n && strcmp(name + length - n, suffixes[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t) * (const loong_safetensor_t *const *)a;
    uintptr_t y = (uintptr_t) * (const loong_safetensor_t *const *)b;
    return (x > y) - (x < y);
}

/* The tensors that parameters are made of, sorted for look-up. */
static loong_status_t sort_mapped(const loong_hf_t *hf,
                                  const loong_safetensor_t ***sorted_p)
{
    size_t count = (size_t)loongi_hf_map_pieces(hf->map);
    LOONG_TRY(loongi_calloc(hf->ctx, count, sizeof(**sorted_p),
                            "tensors of a model", sorted_p));
    memcpy(*sorted_p, hf->tensors, count * sizeof(**sorted_p));
    qsort(*sorted_p, count, sizeof(**sorted_p), by_address);
    return LOONG_OK;
}

static void check_tied(const loong_hf_t *hf, const loong_safetensor_t *head,
                       loong_problems_t *problems)
{
    const loong_hf_param_t *param =
        loongi_hf_map_find(hf->map, "embed_tokens.weight");
    const loong_safetensor_t *table = find_tensor(hf, param);
    if (table == NULL || head->dtype != table->dtype ||
        !same_shape(head->ndim, head->shape, table->ndim, table->shape) ||
        memcmp(head->data, table->data, head->bytes) != 0) {
        loongi_problems_add(problems,
                            "tied: config.json ties %s to the embedding, but "
                            "the file has a different one", head->name);
    }
}

static loong_status_t check_extra(const loong_hf_t *hf,
                                  loong_problems_t *problems)
{
    const loong_safetensor_t **sorted = NULL;
    size_t count = (size_t)loongi_hf_map_pieces(hf->map);
    int64_t left_out = 0;
    LOONG_TRY(sort_mapped(hf, &sorted));
    for (int64_t i = 0; i < loongi_safetensors_set_count(hf->set); i++) {
        const loong_safetensor_t *tensor =
            loongi_safetensors_set_get(hf->set, i);
        if (is_buffer(tensor->name) ||
            bsearch(&tensor, sorted, count, sizeof(*sorted), by_address) !=
                NULL) {
            continue;
        }
        if (strcmp(tensor->name, loongi_hf_map_head(hf->map)) == 0) {
            check_tied(hf, tensor, problems);
        } else if (loongi_hf_map_predicts(hf->map, tensor->name)) {
            left_out++;
        } else {
            loongi_problems_add(problems, "unexpected: %s", tensor->name);
        }
    }
    loongi_free(hf->ctx, sorted);
    if (left_out > 0) {
        loongi_log(hf->ctx, LOONG_LOG_WARN,
                   "%s: %" PRId64 " tensors of layers that predict further "
                   "tokens are left out", hf->dir, left_out);
    }
    return LOONG_OK;
}

static loong_status_t open_all(loong_hf_t *hf, const char *dir)
{
    LOONG_TRY(loongi_strdup(hf->ctx, dir, &hf->dir));
    LOONG_TRY(loongi_hf_config_read(hf->ctx, dir, &hf->model));
    LOONG_TRY(loongi_hf_map_create(hf->ctx, hf->model, &hf->map));
    LOONG_TRY(loongi_safetensors_set_open(hf->ctx, dir, &hf->set));
    LOONG_TRY(find_all(hf));
    loong_problems_t problems = loongi_problems_begin(hf->ctx);
    check_params(hf, &problems);
    LOONG_TRY(check_extra(hf, &problems));
    return loongi_problems_end(&problems, LOONG_ERR_MISMATCH, dir);
}

loong_status_t loongi_hf_open(loong_context_t *ctx, const char *dir,
                              loong_hf_t **hf_p)
{
    loong_hf_t *hf = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*hf), "Hugging Face directory", &hf));
    hf->ctx = ctx;
    loong_status_t status = open_all(hf, dir);
    if (status != LOONG_OK) {
        loongi_hf_close(&hf);
        return status;
    }
    *hf_p = hf;
    return LOONG_OK;
}

void loongi_hf_close(loong_hf_t **hf)
{
    if (*hf == NULL) {
        return;
    }
    loongi_safetensors_set_close(&(*hf)->set);
    loongi_hf_map_destroy(&(*hf)->map);
    loongi_pairs_destroy(&(*hf)->model);
    loongi_free((*hf)->ctx, (*hf)->tensors);
    loongi_free((*hf)->ctx, (*hf)->dir);
    loongi_free((*hf)->ctx, *hf);
    *hf = NULL;
}

const loong_pairs_t *loongi_hf_model(const loong_hf_t *hf)
{
    return hf->model;
}

const loong_hf_map_t *loongi_hf_get_map(const loong_hf_t *hf)
{
    return hf->map;
}

loong_dtype_t loongi_hf_dtype(const loong_hf_t *hf, const char *name)
{
    return find_tensor(hf, loongi_hf_map_find(hf->map, name))->dtype;
}

static bool is_wanted(const loong_hf_wanted_t *wanted, int64_t count,
                      const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(wanted[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

loong_status_t loongi_hf_check(const loong_hf_t *hf,
                               const loong_hf_wanted_t *wanted, int64_t count)
{
    char found[LOONG_SHAPE_TEXT], needed[LOONG_SHAPE_TEXT];
    loong_problems_t problems = loongi_problems_begin(hf->ctx);
    for (int64_t i = 0; i < count; i++) {
        const loong_hf_wanted_t *w = &wanted[i];
        const loong_hf_param_t *param = loongi_hf_map_find(hf->map, w->name);
        loongi_shape_text(w->ndim, w->shape, needed);
        if (param == NULL) {
            loongi_problems_add(&problems, "missing: %s %s", w->name, needed);
        } else if (!same_shape(w->ndim, w->shape, param->ndim, param->shape)) {
            loongi_problems_add(
                &problems, "shape: %s is %s in the directory, %s in the model",
                w->name, loongi_shape_text(param->ndim, param->shape, found),
                needed);
        }
    }
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *param = loongi_hf_map_get(hf->map, i);
        if (!is_wanted(wanted, count, param->name)) {
            loongi_problems_add(
                &problems, "unexpected: %s %s", param->name,
                loongi_shape_text(param->ndim, param->shape, found));
        }
    }
    return loongi_problems_end(&problems, LOONG_ERR_MISMATCH, hf->dir);
}

enum { TURN_ROWS = 64 };

/* Rows of ours are columns in the file: takes the columns of each file row in
 * blocks, converts them, and spreads them over the destination. */
static loong_status_t read_turned(const loong_hf_t *hf,
                                  const loong_hf_param_t *param,
                                  const loong_safetensor_t *tensor,
                                  int64_t row_begin, int64_t rows,
                                  loong_dtype_t dtype, char *dst)
{
    int64_t columns = param->shape[1];
    int64_t stride = loongi_hf_file_rows(param); /* elements of a file row */
    size_t from_size = loong_dtype_size(tensor->dtype);
    size_t size = loong_dtype_size(dtype);
    for (int64_t r = 0; r < rows; r += TURN_ROWS) {
        int64_t n = LOONG_MIN((int64_t)TURN_ROWS, rows - r);
        int64_t first = loongi_hf_file_row(param, row_begin + r);
        for (int64_t c = 0; c < columns; c++) {
            char block[TURN_ROWS * 8];
            const char *src = (const char *)tensor->data +
                              (size_t)(c * stride + first) * from_size;
            LOONG_TRY(
                loongi_convert(hf->ctx, tensor->dtype, src, dtype, block, n));
            for (int64_t i = 0; i < n; i++) {
                char *to = dst + (size_t)((r + i) * columns + c) * size;
                if (size == 2) {
                    memcpy(to, block + 2 * i, 2);
                } else if (size == 4) {
                    memcpy(to, block + 4 * i, 4);
                } else {
                    memcpy(to, block + 8 * i, 8);
                }
            }
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_read(const loong_hf_t *hf, const char *name,
                              int64_t row_begin, int64_t rows,
                              loong_dtype_t dtype, void *dst)
{
    const loong_hf_param_t *param = loongi_hf_map_find(hf->map, name);
    LOONG_CHECK(hf->ctx, param != NULL, LOONG_ERR_NOT_FOUND,
                "'%s' has no parameter '%s'", hf->dir, name);
    LOONG_CHECK(hf->ctx,
                row_begin >= 0 && rows >= 0 &&
                    rows <= param->shape[0] - row_begin,
                LOONG_ERR_ARG,
                "rows %" PRId64 " to %" PRId64 " of '%s', which has %" PRId64,
                row_begin, row_begin + rows, name, param->shape[0]);
    LOONG_CHECK(hf->ctx, loongi_dtype_is_float(dtype), LOONG_ERR_UNSUPPORTED,
                "'%s' cannot be read as %s", name, loong_dtype_name(dtype));
    const loong_safetensor_t *tensor = find_tensor(hf, param);
    if (param->transposed) {
        return read_turned(hf, param, tensor, row_begin, rows, dtype, dst);
    }
    int64_t each = param->shape[0] / param->pieces;
    for (int64_t row = row_begin; row < row_begin + rows;) {
        int64_t piece = row / each;
        int64_t end = row / param->run * param->run + param->run;
        int64_t n = LOONG_MIN(end, row_begin + rows) - row;
        int64_t first = loongi_hf_file_row(param, row - piece * each);
        tensor = hf->tensors[param->first_piece + piece];
        const char *src =
            (const char *)tensor->data +
            (size_t)(first * param->shape[1]) * loong_dtype_size(tensor->dtype);
        char *to = (char *)dst + (size_t)((row - row_begin) * param->shape[1]) *
                                     loong_dtype_size(dtype);
        LOONG_TRY(loongi_convert(hf->ctx, tensor->dtype, src, dtype, to,
                                 n * param->shape[1]));
        row += n;
    }
    return LOONG_OK;
}
