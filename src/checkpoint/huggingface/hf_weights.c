/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a model directory and hands out rows of its weights. Called by
 * stage_load.c, import.c, verify.c and view.c. Read hf_weights.h and
 * hf_impl.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert.h"
#include "hf_composite.h"
#include "hf_foreign.h"
#include "hf_config.h"
#include "hf_impl.h"
#include "hf_merged.h"
#include "hf_names.h"
#include "mapped.h"

enum {
    TURN_ROWS = 64,
    SCALED = 512, /* elements of e4m3 at a time */
    RELEASE_BYTES = 64 << 10 /* pages are given back from this much on */
};

/* With the prefix of the base model or, as files saved from the base model
 * itself have it, without. */
static const loong_safetensor_t *search(const loong_hf_t *hf,
                                        const loong_hf_param_t *param,
                                        const char *name, const char *ending)
{
    char full[512];
    const char *prefix = loongi_hf_param_prefix(hf->map, param);
    int length =
        snprintf(full, sizeof(full), "%s%s%s", prefix, name, ending);
    const loong_safetensor_t *tensor =
        length < (int)sizeof(full)
            ? loongi_safetensors_set_find(hf->set, full)
            : NULL;
    if (tensor != NULL || hf->map->composite != NULL) {
        return tensor;
    }
    return length < (int)sizeof(full)
               ? loongi_safetensors_set_find(hf->set, full + strlen(prefix))
               : NULL;
}

/* A piece's tensor, or the words that it is packed in, and what stands
 * beside. */
static loong_status_t find_piece(loong_hf_t *hf, const loong_hf_param_t *p,
                                 int64_t k)
{
    const char *name = loongi_hf_piece_name(p, k);
    const loong_safetensor_t *tensor = search(hf, p, name, "");
    int64_t piece = p->first_piece + k;
    if (tensor == NULL) {
        tensor = search(hf, p, name, "_packed");
        hf->tensors[piece] = tensor;
        return tensor == NULL
                   ? LOONG_OK
                   : loongi_hf_packed_find(hf->ctx, hf->set, tensor,
                                           &hf->quant.packing,
                                           &hf->packed[piece]);
    }
    hf->tensors[piece] = tensor;
    hf->scales[piece] = tensor->dtype == LOONG_F8_E4M3
                            ? loongi_hf_quant_scale(hf->set, tensor)
                            : NULL;
    return loongi_hf_codes_find(hf->ctx, hf->set, tensor, &hf->codes[piece]);
}

static loong_status_t find_all(loong_hf_t *hf)
{
    size_t pieces = (size_t)loongi_hf_map_pieces(hf->map);
    LOONG_TRY(loongi_calloc(hf->ctx, pieces, sizeof(*hf->tensors),
                            "tensors of a model", &hf->tensors));
    LOONG_TRY(loongi_calloc(hf->ctx, pieces, sizeof(*hf->scales),
                            "tensors of a model", &hf->scales));
    LOONG_TRY(loongi_calloc(hf->ctx, pieces, sizeof(*hf->codes),
                            "tensors of a model", &hf->codes));
    LOONG_TRY(loongi_calloc(hf->ctx, pieces, sizeof(*hf->packed),
                            "tensors of a model", &hf->packed));
    for (int64_t i = 0; i < loongi_hf_map_count(hf->map); i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(hf->map, i);
        for (int64_t k = 0; k < p->pieces; k++) {
            LOONG_TRY(find_piece(hf, p, k));
        }
    }
    return LOONG_OK;
}

static loong_status_t open_all(loong_hf_t *hf,
                               const loong_hf_open_params_t *params)
{
    loong_context_t *ctx = hf->ctx;
    LOONG_TRY(loongi_strdup(ctx, params->dir, &hf->dir));
    LOONG_TRY(params->model != NULL
                  ? loongi_hf_model_read(ctx, params->model, &hf->model)
                  : loongi_hf_config_trace(ctx, params->dir, params->role, NULL,
                                           &hf->model));
    LOONG_TRY(loongi_hf_map_load(ctx, hf->model, params->map, &hf->map));
    LOONG_TRY(loongi_safetensors_set_open(ctx, params->dir, &hf->set));
    if (params->model == NULL && params->map == NULL) {
        const loong_hf_composite_t *whole = NULL;
        LOONG_TRY(loongi_hf_composite_of(ctx, params->dir, &whole));
        if (whole != NULL) {
            LOONG_TRY(loongi_hf_composite_place(
                whole, loongi_hf_composite_part(whole, params->role), hf->set,
                hf->map));
        }
    }
    LOONG_TRY(loongi_hf_quant_read(ctx, params->dir, &hf->quant));
    LOONG_TRY(find_all(hf));
    LOONG_TRY(loongi_hf_compare(hf));
    return params->adapters != NULL ? loongi_hf_merge(hf, params->adapters)
                                    : LOONG_OK;
}

loong_status_t loongi_hf_open_as(loong_context_t *ctx,
                                 const loong_hf_open_params_t *params,
                                 loong_hf_t **hf_p)
{
    loong_hf_t *hf = NULL;
    if (params->model != NULL) { /* else config.json itself is read */
        LOONG_TRY(loongi_hf_check_foreign_dir(ctx, params->dir));
    }
    LOONG_TRY(loongi_alloc(ctx, sizeof(*hf), "Hugging Face directory", &hf));
    hf->ctx = ctx;
    loong_status_t status = open_all(hf, params);
    if (status != LOONG_OK) {
        loongi_hf_close(&hf);
        return status;
    }
    *hf_p = hf;
    return LOONG_OK;
}

loong_status_t loongi_hf_open(loong_context_t *ctx, const char *dir,
                              loong_hf_t **hf_p)
{
    const loong_hf_open_params_t params = {.dir = dir};
    return loongi_hf_open_as(ctx, &params, hf_p);
}

void loongi_hf_close(loong_hf_t **hf)
{
    if (*hf == NULL) {
        return;
    }
    loongi_peft_terms_destroy((*hf)->ctx, &(*hf)->merged);
    loongi_safetensors_set_close(&(*hf)->set);
    loongi_hf_map_destroy(&(*hf)->map);
    loongi_pairs_destroy(&(*hf)->model);
    loongi_free((*hf)->ctx, (*hf)->is_merged);
    loongi_free((*hf)->ctx, (*hf)->packed);
    loongi_free((*hf)->ctx, (*hf)->codes);
    loongi_free((*hf)->ctx, (*hf)->scales);
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

static loong_dtype_t type_of_piece(const loong_hf_t *hf, int64_t piece)
{
    loong_dtype_t dtype = hf->tensors[piece]->dtype;
    bool codes = hf->codes[piece].quant != LOONG_QUANT_NONE ||
                 hf->packed[piece].bits > 0;
    return dtype == LOONG_F8_E4M3 || codes ? hf->quant.dtype : dtype;
}

loong_dtype_t loongi_hf_dtype(const loong_hf_t *hf, const char *name)
{
    const loong_hf_param_t *param = loongi_hf_map_find(hf->map, name);
    loong_dtype_t all = type_of_piece(hf, param->first_piece);
    for (int64_t i = 1; i < param->pieces; i++) {
        all = loongi_hf_wider(all, type_of_piece(hf, param->first_piece + i));
    }
    return all;
}

loong_dtype_t loongi_hf_wider(loong_dtype_t a, loong_dtype_t b)
{
    size_t x = loong_dtype_size(a);
    size_t y = loong_dtype_size(b);
    return a == b ? a : x > y ? a : y > x ? b : LOONG_F32; /* bf16, fp16 */
}

/* ---- rows ---- */

/* What is asked for, and where it lies. */
typedef struct reading {
    const loong_hf_t *hf;
    const loong_hf_param_t *param;
    loong_dtype_t dtype;
} reading_t;

/* Elements of one row of e4m3: the product in the type that config.json names,
 * whatever is asked for, as an import has it. */
static loong_status_t read_scaled(const reading_t *r, loong_hf_stretch_t s,
                                  char *dst)
{
    const loong_hf_t *hf = r->hf;
    char block[SCALED * 8];
    for (int64_t left = s.count; left > 0; left -= s.count) {
        s.count = LOONG_MIN((int64_t)SCALED, left);
        LOONG_TRY(loongi_hf_quant_widen(hf->ctx, &hf->quant, &s,
                                        hf->quant.dtype, block));
        LOONG_TRY(loongi_convert(hf->ctx, hf->quant.dtype, block, r->dtype,
                                 dst, s.count));
        dst += (size_t)s.count * loong_dtype_size(r->dtype);
        s.column += s.count;
    }
    return LOONG_OK;
}

/* Elements [at, at + count) of a piece's tensor. */
static loong_status_t read_run(const reading_t *r, int64_t piece, int64_t at,
                               int64_t count, char *dst)
{
    const loong_hf_t *hf = r->hf;
    const loong_safetensor_t *tensor =
        hf->tensors[r->param->first_piece + piece];
    const loong_safetensor_t *scale = hf->scales[r->param->first_piece + piece];
    const loong_hf_codes_t *codes = &hf->codes[r->param->first_piece + piece];
    const loong_hf_packed_t *packed =
        &hf->packed[r->param->first_piece + piece];
    size_t size = loong_dtype_size(r->dtype);
    if (packed->bits > 0) {
        return loongi_hf_packed_widen(hf->ctx, packed, at, count, r->dtype,
                                      dst);
    }
    if (codes->quant != LOONG_QUANT_NONE) {
        return loongi_hf_codes_widen(hf->ctx, codes, at, count, r->dtype, dst);
    }
    if (scale == NULL) {
        size_t from = loong_dtype_size(tensor->dtype);
        const char *src = (const char *)tensor->data + (size_t)at * from;
        LOONG_TRY(loongi_convert(hf->ctx, tensor->dtype, src, r->dtype, dst,
                                 count));
        if ((size_t)count * from >= RELEASE_BYTES) {
            loongi_mapped_release(src, (size_t)count * from);
        }
        return LOONG_OK;
    }
    int64_t width = tensor->shape[tensor->ndim - 1];
    for (int64_t done = 0; done < count;) {
        loong_hf_stretch_t stretch = {tensor, scale, (at + done) / width,
                                      (at + done) % width, 0};
        stretch.count = LOONG_MIN(width - stretch.column, count - done);
        LOONG_TRY(read_scaled(r, stretch, dst + (size_t)done * size));
        done += stretch.count;
    }
    if (count >= RELEASE_BYTES) {
        loongi_mapped_release((const char *)tensor->data + at, (size_t)count);
    }
    return LOONG_OK;
}

/* First element of the expert's part of a stacked tensor. */
static int64_t slab_begin(const loong_hf_param_t *param, int64_t piece)
{
    int64_t columns = param->ndim > 1 ? param->shape[1] : 1;
    return param->stacked ? piece / param->units *
                                loongi_hf_file_rows(param) * columns
                          : 0;
}

static int64_t file_row(const loong_hf_param_t *param, int64_t piece,
                        int64_t row)
{
    return loongi_hf_file_row(param, row) + param->shift[piece % param->units];
}

int64_t loongi_hf_tensor_row(const loong_hf_param_t *param, int64_t row,
                             int64_t *piece_p)
{
    int64_t each = param->shape[0] / param->pieces;
    *piece_p = row / each;
    return slab_begin(param, *piece_p) / param->shape[1] +
           file_row(param, *piece_p, row % each);
}

/* Rows of ours are columns in the file: takes the columns of each file row in
 * blocks, converts them, and spreads them over the destination. */
static loong_status_t read_transposed(const reading_t *r, int64_t piece,
                                      int64_t row, int64_t rows, char *dst)
{
    const loong_hf_param_t *param = r->param;
    int64_t columns = param->shape[1];
    int64_t width = loongi_hf_file_rows(param);
    int64_t begin = slab_begin(param, piece);
    size_t size = loong_dtype_size(r->dtype);
    for (int64_t done = 0; done < rows; done += TURN_ROWS) {
        int64_t n = LOONG_MIN((int64_t)TURN_ROWS, rows - done);
        int64_t first = file_row(param, piece, row + done);
        for (int64_t c = 0; c < columns; c++) {
            char block[TURN_ROWS * 8];
            LOONG_TRY(
                read_run(r, piece, begin + c * width + first, n, block));
            for (int64_t i = 0; i < n; i++) {
                char *to = dst + (size_t)((done + i) * columns + c) * size;
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
    const loong_safetensor_t *tensor =
        r->hf->tensors[param->first_piece + piece];
    if (tensor->bytes >= RELEASE_BYTES) {
        loongi_mapped_release(tensor->data, tensor->bytes);
    }
    return LOONG_OK;
}

/* Rows, in place, from the order of columns that the file has. */
static loong_status_t turn_places(const reading_t *r, int64_t rows, char *data)
{
    int64_t columns = r->param->shape[1];
    size_t size = loong_dtype_size(r->dtype);
    char *row = NULL;
    LOONG_TRY(loongi_alloc(r->hf->ctx, (size_t)columns * size, "a row", &row));
    for (int64_t i = 0; i < rows; i++, data += (size_t)columns * size) {
        memcpy(row, data, (size_t)columns * size);
        for (int64_t c = 0; c < columns; c++) {
            memcpy(data + (size_t)loongi_hf_own_column(r->param, c) * size,
                   row + (size_t)c * size, size);
        }
    }
    loongi_free(r->hf->ctx, row);
    return LOONG_OK;
}

static loong_status_t check_rows(const loong_hf_t *hf,
                                 const loong_hf_param_t *param,
                                 const char *name, int64_t row, int64_t rows)
{
    LOONG_CHECK(hf->ctx, param != NULL, LOONG_ERR_NOT_FOUND,
                "'%s' has no parameter '%s'", hf->dir, name);
    LOONG_CHECK(hf->ctx,
                row >= 0 && rows >= 0 && rows <= param->shape[0] - row,
                LOONG_ERR_ARG,
                "rows %" PRId64 " to %" PRId64 " of '%s', which has %" PRId64,
                row, row + rows, name, param->shape[0]);
    return LOONG_OK;
}

static loong_status_t read_rows(const loong_hf_t *hf,
                                const loong_hf_param_t *param,
                                int64_t row_begin, int64_t rows,
                                loong_dtype_t dtype, void *dst)
{
    reading_t reading = {hf, param, dtype};
    int64_t each = param->shape[0] / param->pieces;
    size_t row_bytes = (size_t)param->shape[1] * loong_dtype_size(dtype);
    for (int64_t row = row_begin; row < row_begin + rows;) {
        int64_t piece = row / each;
        int64_t end = row / param->run * param->run + param->run;
        int64_t n = LOONG_MIN(end, row_begin + rows) - row;
        char *to = (char *)dst + (size_t)(row - row_begin) * row_bytes;
        if (param->transposed) {
            LOONG_TRY(
                read_transposed(&reading, piece, row - piece * each, n, to));
        } else {
            int64_t at = slab_begin(param, piece) +
                         file_row(param, piece, row - piece * each) *
                             param->shape[1];
            LOONG_TRY(
                read_run(&reading, piece, at, n * param->shape[1], to));
        }
        row += n;
    }
    return param->places > 0 ? turn_places(&reading, rows, dst) : LOONG_OK;
}

static loong_status_t read_merged(const loong_hf_t *hf,
                                  const loong_hf_param_t *param, int64_t row,
                                  int64_t rows, loong_dtype_t dtype, void *dst)
{
    int64_t count = rows * (param->ndim > 1 ? param->shape[1] : 1);
    double *w = NULL;
    LOONG_TRY(loongi_calloc(hf->ctx, (size_t)count, sizeof(*w), "merged rows",
                            &w));
    loong_status_t status = read_rows(hf, param, row, rows, LOONG_F64, w);
    if (status == LOONG_OK) {
        status = loongi_hf_add_merged(hf, param, row, rows, w);
    }
    if (status == LOONG_OK) {
        status = loongi_convert(hf->ctx, LOONG_F64, w, dtype, dst, count);
    }
    loongi_free(hf->ctx, w);
    return status;
}

loong_status_t loongi_hf_read(const loong_hf_t *hf, const char *name,
                              int64_t row_begin, int64_t rows,
                              loong_dtype_t dtype, void *dst)
{
    const loong_hf_param_t *param = loongi_hf_map_find(hf->map, name);
    LOONG_TRY(check_rows(hf, param, name, row_begin, rows));
    LOONG_CHECK(hf->ctx, loongi_dtype_is_float(dtype), LOONG_ERR_UNSUPPORTED,
                "'%s' cannot be read as %s", name, loong_dtype_name(dtype));
    return (loongi_hf_is_merged(hf, param) ? read_merged : read_rows)(
        hf, param, row_begin, rows, dtype, dst);
}

bool loongi_hf_lend(const loong_hf_t *hf, const char *name, int64_t row,
                    int64_t rows, loong_borrowed_t *borrowed)
{
    const loong_hf_param_t *param = loongi_hf_map_find(hf->map, name);
    int64_t each = param->shape[0] / param->pieces;
    int64_t piece = row / each;
    const loong_safetensor_t *tensor =
        hf->tensors[param->first_piece + piece];
    size_t size = loong_dtype_size(tensor->dtype);
    if (param->transposed || param->places > 0 ||
        tensor->dtype == LOONG_F8_E4M3 ||
        hf->codes[param->first_piece + piece].quant != LOONG_QUANT_NONE ||
        hf->packed[param->first_piece + piece].bits > 0 ||
        row % param->run + rows > param->run ||
        loongi_hf_is_merged(hf, param)) {
        return false;
    }
    int64_t at = slab_begin(param, piece) +
                 file_row(param, piece, row - piece * each) * param->shape[1];
    borrowed->dtype = tensor->dtype;
    borrowed->bytes = (size_t)(rows * param->shape[1]) * size;
    borrowed->data = (const char *)tensor->data + (size_t)at * size;
    borrowed->hole = loongi_safetensors_set_is_hole(
        hf->set, tensor, borrowed->data, borrowed->bytes);
    return true;
}
