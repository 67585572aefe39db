/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices that files keep as integers of 4 or 8 bits in words of 32
 * (compressed-tensors' pack-quantized). Beside the words, NAME_packed, stand
 * NAME_scale, of the whole, of each row or of groups of a row's columns, and
 * NAME_shape. They are read as the products, in fp32 and rounded once. */
#ifndef LOONG_HF_PACKED_H
#define LOONG_HF_PACKED_H

#include "hf_config_read.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What quantization_config says of them. */
typedef struct loong_hf_packing {
    int bits;      /* 0: there are none */
    int64_t group; /* columns of a scale; 0: all of a row */
    loong_dtype_t dtype; /* that the product is stored in */
} loong_hf_packing_t;

typedef struct loong_hf_packed {
    int bits;                        /* 0: the tensor has numbers */
    const loong_safetensor_t *words; /* [rows, columns / what a word holds] */
    const loong_safetensor_t *scale;
    int64_t rows, cols;
    int64_t group; /* columns of a scale */
    int64_t row_scales; /* of a row; 0: all rows have the same */
    loong_dtype_t dtype; /* that the product is stored in */
} loong_hf_packed_t;

/* Of a quantization_config, bf16; NULL in `why_p` where it is read, or has none
 * of these, else what is. */
loong_hf_packing_t loongi_hf_packing_of(const loong_json_t *config,
                                        const char **why_p);

/* The matrix of these words. Errors: LOONG_ERR_MISMATCH (what stands beside
 * lacks or has another shape or type, nobody says of how many bits). */
LOONG_NODISCARD loong_status_t loongi_hf_packed_find(
    loong_context_t *ctx, const loong_safetensors_set_t *set,
    const loong_safetensor_t *words, const loong_hf_packing_t *packing,
    loong_hf_packed_t *packed_p);
/* Words of a matrix, of which `length` bytes of the name are the matrix's. */
bool loongi_hf_packed_is_words(const loong_safetensor_t *tensor,
                               size_t *length);
/* Stands beside words. */
bool loongi_hf_packed_beside(const loong_safetensors_set_t *set,
                             const char *name);

/* Elements [at, at + count) of the matrix, rounded to its own type and then to
 * dtype. */
LOONG_NODISCARD loong_status_t loongi_hf_packed_widen(
    loong_context_t *ctx, const loong_hf_packed_t *packed, int64_t at,
    int64_t count, loong_dtype_t dtype, void *dst);

#ifdef __cplusplus
}
#endif

#endif
