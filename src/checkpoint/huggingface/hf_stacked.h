/* SPDX-License-Identifier: Apache-2.0
 *
 * Which way round the stacked experts of a Qwen3-VL lie: [experts, in, out] as
 * Qwen published them, [experts, out, in] as transformers 5 saves its modules.
 * transformers reads both: it turns a stack whose shape is not the module's, so
 * never one of square matrices. */
#ifndef LOONG_HF_STACKED_H
#define LOONG_HF_STACKED_H

#include "hf_names.h"
#include "safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Maps of a composite; of other models they are left as they are. Errors:
 * LOONG_ERR_UNSUPPORTED, transformers would take square matrices to lie
 * otherwise. */
LOONG_NODISCARD loong_status_t loongi_hf_stacked_place(
    loong_hf_map_t *map, const loong_safetensors_set_t *set);
/* For writing: as kept (NULL: not), else as published; either way so that
 * transformers reads the same. */
void loongi_hf_stacked_place_as(loong_hf_map_t *map, const loong_pairs_t *kept);
/* Keeps the way of the set for an export. */
LOONG_NODISCARD loong_status_t loongi_hf_stacked_keep(
    const loong_safetensors_set_t *set, loong_pairs_t *pairs);

#ifdef __cplusplus
}
#endif

#endif
