/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices that files keep as bitsandbytes' codes (src/base/quant.h): NAME of
 * uint8 with NAME.absmax, .quant_map, .quant_state and, with double
 * quantisation, .nested_absmax and .nested_quant_map beside it; or LAYER.weight
 * of int8 with LAYER.SCB. They are read as they are, or as the numbers that
 * they stand for, rounded once.
 */
#ifndef LOONG_HF_CODES_H
#define LOONG_HF_CODES_H

#include "hf_config_read.h"
#include "quant.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_codes {
    loong_quant_t quant; /* none: the tensor has numbers */
    const loong_safetensor_t *codes;
    const loong_safetensor_t *absmax; /* of blocks, or of rows */
    const loong_safetensor_t *nested; /* of double quantisation */
    float offset;
    int64_t rows, cols;
} loong_hf_codes_t;

/* What a tensor of uint8 or int8 is. Errors: LOONG_ERR_MISMATCH (a tensor
 * beside it lacks, or has another size), LOONG_ERR_UNSUPPORTED (other blocks or
 * numbers than those of quant.h). */
LOONG_NODISCARD loong_status_t loongi_hf_codes_find(
    loong_context_t *ctx, const loong_safetensors_set_t *set,
    const loong_safetensor_t *tensor, loong_hf_codes_t *codes_p);

/* Stands beside codes. */
bool loongi_hf_codes_beside(const loong_safetensors_set_t *set,
                            const char *name);

/* Whether a quantization_config of bitsandbytes is read. */
bool loongi_hf_codes_known(const loong_json_t *config);

/* Columns begin .. begin + count - 1 of a row of the matrix as a row of bytes;
 * both are whole blocks. */
void loongi_hf_codes_row(const loong_hf_codes_t *codes, int64_t row,
                         int64_t begin, int64_t count, void *bytes);

/* Elements [at, at + count) of the matrix, in fp32 and rounded to dtype. */
LOONG_NODISCARD loong_status_t loongi_hf_codes_widen(
    loong_context_t *ctx, const loong_hf_codes_t *codes, int64_t at,
    int64_t count, loong_dtype_t dtype, void *dst);

#ifdef __cplusplus
}
#endif

#endif
