/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders in Hugging Face files. */
#ifndef LOONG_HF_DECODER_H
#define LOONG_HF_DECODER_H

#include "hf_kind.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const loong_hf_kind_t loongi_hf_decoder;

/* ---- hf_decoder_types.c ---- */
extern const loong_hf_type_t loongi_hf_decoder_types[];

/* ---- hf_decoder_names.c ---- */
extern const loong_hf_names_t loongi_hf_decoder_names[];
LOONG_NODISCARD loong_status_t
loongi_hf_decoder_size(loong_hf_map_t *map, const loong_pairs_t *model);

#ifdef __cplusplus
}
#endif

#endif
