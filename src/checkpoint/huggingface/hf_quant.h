/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that files keep as e4m3 with scales beside them: for the whole
 * tensor, for each row, or for blocks (DeepSeek-V3: 128 x 128); where experts
 * are stacked, for each of them likewise. They are read as the product, in
 * fp32 and rounded once. */
#ifndef LOONG_HF_QUANT_H
#define LOONG_HF_QUANT_H

#include "hf_config_read.h"
#include "hf_packed.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_hf_quant {
    int64_t block[2];
    loong_dtype_t dtype; /* that the product is stored in */
    loong_hf_packing_t packing;
} loong_hf_quant_t;

/* Of DIR/config.json, or of its part for texts; without one, or where it says
 * nothing: blocks of 128, bf16. */
LOONG_NODISCARD loong_status_t loongi_hf_quant_read(loong_context_t *ctx,
                                                    const char *dir,
                                                    loong_hf_quant_t *quant_p);

/* Refuses a quantization_config of another kind. */
void loongi_hf_check_quant(loong_hf_reader_t *r, const loong_json_t *value);

/* The tensor's scales: its name with _scale_inv or _scale behind; NULL when
 * there are none. */
const loong_safetensor_t *
loongi_hf_quant_scale(const loong_safetensors_set_t *set,
                      const loong_safetensor_t *tensor);
/* The scales have a shape that fits the tensor. */
bool loongi_hf_quant_fits(const loong_hf_quant_t *quant,
                          const loong_safetensor_t *tensor,
                          const loong_safetensor_t *scale);
/* What inference multiplies activations by. */
bool loongi_hf_quant_of_activations(const char *name);
/* A scale of some e4m3 tensor, or of what inference does with it. */
bool loongi_hf_quant_is_scale(const loong_safetensors_set_t *set,
                              const char *name);

/* A stretch of one row, converted to dtype. */
typedef struct loong_hf_stretch {
    const loong_safetensor_t *tensor;
    const loong_safetensor_t *scale;
    int64_t row;
    int64_t column;
    int64_t count;
} loong_hf_stretch_t;

LOONG_NODISCARD loong_status_t loongi_hf_quant_widen(
    loong_context_t *ctx, const loong_hf_quant_t *quant,
    const loong_hf_stretch_t *stretch, loong_dtype_t dtype, void *dst);

#ifdef __cplusplus
}
#endif

#endif
