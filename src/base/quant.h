/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a matrix as codes with scales, in the numbers of bitsandbytes
 * (Dettmers et al. 2022, 2023). A row of bytes has the codes of its elements
 * and behind them the scales of the same row, so that whatever cuts between
 * rows cuts no block:
 *
 *   nf4         x = normal[code4] absmax, blocks of 64 elements
 *   nf4 double  likewise, absmax = dynamic[code8] nested + offset, nested being
 *               of 256 blocks in the order of the matrix, offset of all
 *   int8        x = code8 absmax / 127, a block is a row (no outliers are set
 *               apart)
 *
 * all of it in fp32, as in `dequantize_4bit` and `int8_vectorwise_dequant`.
 *
 *   nf4         codes [cols/2] | f32 absmax [cols/64]
 *   nf4 double  codes [cols/2] | u8 absmax [cols/64], to a multiple of 4 |
 *               f32 offset | i32 blocks before the second nested | f32 nested
 *   int8        codes [cols], to a multiple of 4 | f32 absmax
 *
 * and zeros up to a multiple of 16. Of two codes in a byte the first has the
 * upper bits.
 */
#ifndef LOONG_QUANT_H
#define LOONG_QUANT_H

#include "base.h"
#include "loong/dtype.h"
#include "quant_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "none", "nf4", "nf4_double", "int8". */
const char *loongi_quant_name(loong_quant_t quant);
/* None where no kind has the name, which may be NULL. */
loong_quant_t loongi_quant_named(const char *name);

/* Columns begin and end with blocks at multiples of this. */
static inline int64_t loongi_quant_columns(loong_quant_t quant)
{
    return quant == LOONG_QUANT_INT8 || quant == LOONG_QUANT_NONE
               ? 1
               : LOONG_QUANT_BLOCK;
}

/* Bytes of a row of `cols` elements. */
int64_t loongi_quant_row_bytes(loong_quant_t quant, int64_t cols);

/* The numbers of codes, ascending: 16 of 4 bits, and 256 of 8. */
extern const float loongi_quant_normal[16];
void loongi_quant_dynamic(float map[256]);

/* ---- quantising ---- */

/* What the rows of a matrix share in nf4 double. */
typedef struct loong_quant_nested {
    float offset;
    const float *scale; /* of each LOONG_QUANT_NESTED blocks */
} loong_quant_nested_t;

/* Largest magnitudes of the blocks of `count` elements, a multiple of 64. */
void loongi_quant_absmax(const float *x, int64_t count, float *absmax);
/* Of a matrix with so many blocks: its offset, their mean, and nested scales.
 * room: one for each LOONG_QUANT_NESTED, the last one smaller. */
loong_quant_nested_t loongi_quant_nest(const float *absmax, int64_t blocks,
                                       float *room);

/* Elements begin .. begin + count - 1 of row `number` of a matrix of `cols`
 * columns, x being the whole row, to a row of bytes. nested: of nf4 double. */
typedef struct loong_quant_row {
    const float *x;
    int64_t number, cols;
    int64_t begin, count;
} loong_quant_row_t;
void loongi_quant_encode(loong_quant_t quant, const loong_quant_row_t *row,
                         const loong_quant_nested_t *nested, void *bytes);
/* Puts the offset and nested scales of `blocks` blocks from `first` on into a
 * row of nf4 double. */
void loongi_quant_put_nested(const loong_quant_nested_t *nested, int64_t first,
                             int64_t blocks, void *at);

/* ---- back ---- */

/* A part of a matrix of rows of bytes that have `cols` elements each. */
typedef struct loong_quant_part {
    loong_quant_t quant;
    const void *rows;
    int64_t ld;   /* bytes from row to row */
    int64_t cols; /* of all of a row */
    int64_t row, num_rows;
    int64_t col, num_cols; /* multiples of loongi_quant_columns */
} loong_quant_part_t;
/* To fp64, fp32 or bf16, rows `ld` elements apart. */
void loongi_quant_decode(const loong_quant_part_t *part, loong_dtype_t dtype,
                         void *to, int64_t ld, int threads);

#ifdef __cplusplus
}
#endif

#endif
