/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantises rows of a matrix, or takes them as they are. Called by
 * stage_load.c, adapter_load.c and native_source.c. Read hf_quantize.h and
 * hf_impl.h before.
 */
#include "hf_quantize.h"

#include <string.h>

#include "convert.h"
#include "hf_impl.h"

enum { ROOM = 1 << 20 }; /* elements that are read at a time */

struct loong_hf_quantizer {
    const loong_hf_t *hf;
    const loong_hf_param_t *param;
    loong_quant_t quant;
    bool as_is;   /* the files have codes */
    int64_t each; /* rows of a piece: of an expert, or of all there is */
    int64_t step; /* rows that `x` has room for */
    float *x;
    /* With double quantisation, of a piece's blocks, and behind them the nested
     * ones. */
    float *absmax;
    int64_t piece; /* whose they are; -1: none */
    loong_quant_nested_t nested;
};

static loong_status_t check_codes(const loong_hf_quantizer_t *q)
{
    const loong_hf_t *hf = q->hf;
    for (int64_t i = 0; i < q->param->pieces; i++) {
        loong_quant_t there = hf->codes[q->param->first_piece + i].quant;
        LOONG_CHECK(hf->ctx, there == (q->as_is ? q->quant : LOONG_QUANT_NONE),
                    LOONG_ERR_MISMATCH,
                    "%s: %s is quantised as %s, and is asked for as %s "
                    "(finetune.quantization, finetune.double_quantization)",
                    hf->dir, hf->tensors[q->param->first_piece + i]->name,
                    loongi_quant_name(there), loongi_quant_name(q->quant));
    }
    return LOONG_OK;
}

/* bitsandbytes quantises each tensor of the files by itself. */
static loong_status_t nest(loong_hf_quantizer_t *q, int64_t piece)
{
    const loong_hf_param_t *p = q->param;
    int64_t cols = p->shape[1];
    int64_t blocks = q->each * cols / LOONG_QUANT_BLOCK;
    if (q->absmax == NULL || q->piece == piece) {
        return LOONG_OK;
    }
    for (int64_t row = 0; row < q->each; row += q->step) {
        int64_t n = LOONG_MIN(q->step, q->each - row);
        LOONG_TRY(loongi_hf_read(q->hf, p->name, piece * q->each + row, n,
                                 LOONG_F32, q->x));
        loongi_quant_absmax(q->x, n * cols,
                            q->absmax + row * cols / LOONG_QUANT_BLOCK);
    }
    q->nested = loongi_quant_nest(q->absmax, blocks, q->absmax + blocks);
    q->piece = piece;
    return LOONG_OK;
}

static loong_status_t prepare(loong_hf_quantizer_t *q)
{
    const loong_hf_t *hf = q->hf;
    const loong_hf_param_t *p = q->param;
    q->piece = -1;
    q->each = p->shape[0] / p->pieces;
    q->as_is = hf->codes[p->first_piece].quant != LOONG_QUANT_NONE;
    LOONG_TRY(check_codes(q));
    if (q->as_is) {
        return LOONG_OK;
    }
    q->step = LOONG_MAX(ROOM / p->shape[1], 1);
    LOONG_TRY(loongi_calloc(hf->ctx, (size_t)(q->step * p->shape[1]),
                            sizeof(*q->x), "rows to be quantised", &q->x));
    int64_t blocks = q->each * p->shape[1] / LOONG_QUANT_BLOCK;
    return q->quant == LOONG_QUANT_NF4_DOUBLE
               ? loongi_calloc(
                     hf->ctx,
                     (size_t)(blocks + blocks / LOONG_QUANT_NESTED + 1),
                     sizeof(*q->absmax), "scales of a matrix", &q->absmax)
               : LOONG_OK;
}

loong_status_t loongi_hf_quantizer_create(const loong_hf_t *hf,
                                          const char *name, loong_quant_t quant,
                                          loong_hf_quantizer_t **q_p)
{
    loong_hf_quantizer_t *q = NULL;
    const loong_hf_param_t *p = loongi_hf_map_find(hf->map, name);
    LOONG_CHECK(hf->ctx, p != NULL, LOONG_ERR_NOT_FOUND,
                "'%s' has no parameter '%s'", hf->dir, name);
    LOONG_TRY(loongi_alloc(hf->ctx, sizeof(*q), "quantiser", &q));
    q->hf = hf;
    q->param = p;
    q->quant = quant;
    loong_status_t status = prepare(q);
    if (status != LOONG_OK) {
        loongi_hf_quantizer_destroy(&q);
        return status;
    }
    *q_p = q;
    return LOONG_OK;
}

void loongi_hf_quantizer_destroy(loong_hf_quantizer_t **q)
{
    if (*q != NULL) {
        loongi_free((*q)->hf->ctx, (*q)->absmax);
        loongi_free((*q)->hf->ctx, (*q)->x);
        loongi_free((*q)->hf->ctx, *q);
        *q = NULL;
    }
}

static void copy_row(const loong_hf_quantizer_t *q, int64_t row, int64_t begin,
                     int64_t count, void *bytes)
{
    int64_t piece = 0;
    int64_t there = loongi_hf_tensor_row(q->param, row, &piece);
    loongi_hf_codes_row(&q->hf->codes[q->param->first_piece + piece], there,
                        begin, count, bytes);
}

loong_status_t loongi_hf_quantizer_read(loong_hf_quantizer_t *q, int64_t row,
                                        int64_t rows, int64_t begin,
                                        int64_t count, void *bytes)
{
    int64_t size = loongi_quant_row_bytes(q->quant, count);
    int64_t cols = q->param->shape[1];
    char *to = bytes;
    for (int64_t i = 0; i < rows && q->as_is; i++) {
        copy_row(q, row + i, begin, count, to + i * size);
    }
    for (int64_t i = 0, n = 0; i < rows && !q->as_is; i += n) {
        int64_t within = (row + i) % q->each; /* row of the piece */
        n = LOONG_MIN(LOONG_MIN(q->step, rows - i), q->each - within);
        LOONG_TRY(nest(q, (row + i) / q->each));
        LOONG_TRY(
            loongi_hf_read(q->hf, q->param->name, row + i, n, LOONG_F32, q->x));
#pragma omp parallel for schedule(static) if (n > 1)
        for (int64_t r = 0; r < n; r++) {
            loong_quant_row_t of = {q->x + r * cols, within + r, cols, begin,
                                    count};
            loongi_quant_encode(q->quant, &of, &q->nested, to + (i + r) * size);
        }
    }
    return LOONG_OK;
}

/* A row at a time, of which all are read. */
loong_status_t loongi_hf_quantizer_numbers(loong_hf_quantizer_t *q,
                                           const loong_hf_block_t *block,
                                           loong_dtype_t dtype, void *numbers)
{
    int64_t cols = q->param->shape[1];
    int64_t size = loongi_quant_row_bytes(q->quant, cols);
    char *to = numbers;
    char *bytes = NULL;
    LOONG_TRY(loongi_alloc(q->hf->ctx,
                           (size_t)(size + cols * (int64_t)sizeof(float)),
                           "a row of codes", &bytes));
    float *x = (float *)(void *)(bytes + size);
    loong_quant_part_t part = {q->quant, bytes, size, cols, 0, 1, 0, cols};
    loong_status_t status = LOONG_OK;
    for (int64_t r = 0; r < block->rows && status == LOONG_OK; r++) {
        status = loongi_hf_quantizer_read(q, block->row + r, 1, 0, cols, bytes);
        if (status == LOONG_OK) {
            loongi_quant_decode(&part, LOONG_F32, x, cols, 1);
            status = loongi_convert(q->hf->ctx, LOONG_F32, x + block->column,
                                    dtype, to, block->columns);
        }
        to += block->columns * (int64_t)loong_dtype_size(dtype);
    }
    loongi_free(q->hf->ctx, bytes);
    return status;
}
