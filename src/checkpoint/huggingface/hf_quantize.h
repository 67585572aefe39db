/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix of a model directory as rows of codes (src/base/quant.h): those that
 * the files have, or quantised here from the numbers of the files in fp32.
 */
#ifndef LOONG_HF_QUANTIZE_H
#define LOONG_HF_QUANTIZE_H

#include "hf_weights.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_quantizer loong_hf_quantizer_t;

/* With double quantisation a whole matrix is looked at before its first row is
 * read; of experts each one's. The directory stays borrowed. Errors:
 * LOONG_ERR_MISMATCH (the files have other codes). */
LOONG_NODISCARD loong_status_t
loongi_hf_quantizer_create(const loong_hf_t *hf, const char *name,
                           loong_quant_t quant, loong_hf_quantizer_t **q_p);
void loongi_hf_quantizer_destroy(loong_hf_quantizer_t **q);

/* Rows row .. row + rows - 1 of the matrix, columns begin .. begin + count - 1
 * of them, as rows of loongi_quant_row_bytes(quant, count). */
LOONG_NODISCARD loong_status_t
loongi_hf_quantizer_read(loong_hf_quantizer_t *q, int64_t row, int64_t rows,
                         int64_t begin, int64_t count, void *bytes);
/* A block of the matrix, dense, as the numbers that its codes stand for, in
 * fp32 and rounded to dtype. The name is not looked at. */
LOONG_NODISCARD loong_status_t loongi_hf_quantizer_numbers(
    loong_hf_quantizer_t *q, const loong_hf_block_t *block, loong_dtype_t dtype,
    void *numbers);

#ifdef __cplusplus
}
#endif

#endif
