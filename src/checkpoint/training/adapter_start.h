/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters before the first step: which layers the names of a recipe mean, and
 * matrices from a directory of peft's. */
#ifndef LOONG_ADAPTER_START_H
#define LOONG_ADAPTER_START_H

#include "component.h"
#include "hf_weights.h"
#include "loong/recipe.h"
#include "native.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds to the targets of adapters what they are called here, and which layers
 * are one module in this family's files. model: the component's keys. A name
 * that no layer has is LOONG_ERR_CONFIG. NULL: there are no adapters. */
LOONG_NODISCARD loong_status_t loongi_adapter_targets(
    loong_context_t *ctx, const loong_recipe_t *recipe,
    const loong_pairs_t *model, loong_arena_t *arena,
    const loong_adapters_t **adapters);

/* Fills a component's adapters, and what was trained beside them, from a
 * directory with adapter_config.json and adapter_model.safetensors; NULL:
 * magnitudes alone are set, to the norms of the rows of hf's matrices. Errors:
 * LOONG_ERR_MISMATCH names what is not there, or not in this shape or scale. */
LOONG_NODISCARD loong_status_t loongi_adapter_load(
    loong_component_t *component, const loong_hf_t *hf, const char *dir);

/* Whether the directory goes into the component's adapters; nothing is set.
 * Errors: as above. */
LOONG_NODISCARD loong_status_t
loongi_adapter_check(const loong_component_t *component, const loong_hf_t *hf,
                     const char *dir);

/* Checkpoints of a run with adapters do not have what is fixed where it can be
 * read again: in the directory that the component began with. */
static inline bool loongi_in_base(const loong_component_params_t *params,
                                  bool frozen, double adapter)
{
    return params->beside_adapters && params->init != NULL && frozen &&
           adapter == 0.0;
}

/* What a checkpoint says of adapters: the scale of each, the directory with the
 * rest and its digest. */
LOONG_NODISCARD loong_status_t
loongi_adapter_metadata(const loong_component_t *component,
                        loong_pairs_t *metadata);
/* The directory has what the checkpoint's adapters were trained beside. Errors:
 * LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_adapter_check_base(
    const loong_component_t *component, const loong_checkpoint_t *ck);

#ifdef __cplusplus
}
#endif

#endif
