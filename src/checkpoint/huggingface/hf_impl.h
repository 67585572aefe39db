/* SPDX-License-Identifier: Apache-2.0
 *
 * An open model directory, shared by hf_weights.c (rows) and hf_check.c (is it
 * what the configuration says). */
#ifndef LOONG_HF_IMPL_H
#define LOONG_HF_IMPL_H

#include "hf_codes.h"
#include "hf_packed.h"
#include "hf_quant.h"
#include "hf_weights.h"
#include "peft_terms.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loong_hf {
    loong_context_t *ctx;
    char *dir;
    loong_pairs_t *model;
    loong_hf_map_t *map;
    loong_safetensors_set_t *set;
    const loong_safetensor_t **tensors; /* per piece; NULL: not there */
    const loong_safetensor_t **scales;  /* beside them; NULL: none */
    loong_hf_codes_t *codes; /* per piece: what bitsandbytes quantised */
    loong_hf_packed_t *packed; /* per piece: integers in words */
    loong_hf_quant_t quant;
    loong_peft_terms_t *merged; /* hf_merged.h; NULL: none, */
    bool *is_merged;            /* per parameter: one of them is beside it */
};

/* The row of the tensor that has a row of ours, and which piece that is; not of
 * what is transposed. */
int64_t loongi_hf_tensor_row(const loong_hf_param_t *param, int64_t row,
                             int64_t *piece_p);

/* Every difference between the files and the map, with what may have been
 * meant. Errors: LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_hf_compare(const loong_hf_t *hf);

#ifdef __cplusplus
}
#endif

#endif
