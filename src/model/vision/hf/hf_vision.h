/* SPDX-License-Identifier: Apache-2.0
 *
 * Vision transformers in Hugging Face files: model types vit, clip_vision_model
 * and siglip_vision_model, and the image encoders of clip and siglip, which
 * stand in vision_config. */
#ifndef LOONG_HF_VISION_H
#define LOONG_HF_VISION_H

#include "hf_kind.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_hf_kind_t loongi_hf_vision;

/* ---- hf_vision_types.c ---- */
extern const loong_hf_type_t loongi_hf_vision_types[];

/* ---- hf_vision_names.c ---- */
extern const loong_hf_names_t loongi_hf_vision_names[];
LOONG_NODISCARD loong_status_t
loongi_hf_vision_size(loong_hf_map_t *map, const loong_pairs_t *model);

#ifdef __cplusplus
}
#endif

#endif
