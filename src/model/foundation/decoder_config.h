/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder's configuration from the model keys of a recipe (relative to the
 * component: "num_layers", "rope_scaling.type"), which are also what a Hugging
 * Face config.json is turned into. */
#ifndef LOONG_DECODER_CONFIG_H
#define LOONG_DECODER_CONFIG_H

#include "decoder.h"
#include "fields.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys model.foundation. of a configuration. */
extern const loong_recipe_table_t loongi_decoder_fields;

/* Fills every field: defaults first, then the pairs. All problems (unknown
 * keys, texts that are no number, sizes that do not divide) are reported
 * together. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_decoder_configure(loong_context_t *ctx, const loong_pairs_t *pairs,
                         loong_decoder_config_t *config);

/* Slot of loong_family_t. */
LOONG_NODISCARD loong_status_t
loongi_decoder_state(const void *config, loong_model_state_fn add, void *user);

/* States every key in one way of writing, defaults filled in: two models are
 * the same when the pairs are. Padding of the vocabulary, which no checkpoint
 * has, and the form of latent attention count for nothing. Errors: as
 * loongi_decoder_configure, and then the pairs are as they were. */
LOONG_NODISCARD loong_status_t loongi_decoder_fill(loong_context_t *ctx,
                                                   loong_pairs_t *pairs);

#ifdef __cplusplus
}
#endif

#endif
