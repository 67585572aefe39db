/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder's configuration from the model keys of a recipe (relative to the
 * component: "num_layers", "rope_scaling.type"), which are also what a Hugging
 * Face config.json is turned into. */
#ifndef LOONG_DECODER_CONFIG_H
#define LOONG_DECODER_CONFIG_H

#include "decoder.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills every field: defaults first, then the pairs. All problems (unknown
 * keys, texts that are no number, sizes that do not divide) are reported
 * together. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_decoder_configure(loong_context_t *ctx, const loong_pairs_t *pairs,
                         loong_decoder_config_t *config);

/* Adds the keys that `pairs` leaves to defaults and that other programs must
 * be told, with the values of `config`: what a checkpoint states. */
LOONG_NODISCARD loong_status_t loongi_decoder_state(
    const loong_decoder_config_t *config, loong_pairs_t *pairs);

#ifdef __cplusplus
}
#endif

#endif
