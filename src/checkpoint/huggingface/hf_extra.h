/* SPDX-License-Identifier: Apache-2.0
 *
 * What config.json says beside the language model as it is trained: of the
 * part that sees images, of the ids that stand for them, of texts longer than
 * those of the training. The engine has no place for that, so the fields are
 * kept with a checkpoint as JSON text, under their names, and stand in
 * config.json of its exports again. */
#ifndef LOONG_HF_EXTRA_H
#define LOONG_HF_EXTRA_H

#include "json.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "vision_config", "image_token_id", ...; ends with NULL. */
extern const char *const loongi_hf_extra_names[];

/* What some do with texts beyond the length that they were trained with, which
 * concerns no training: "use_dynamic_ntk", "use_logn_attn" of the first Qwen,
 * "dual_chunk_attention_config" of Qwen2.5-1M; ends with NULL. */
extern const char *const loongi_hf_switch_names[];

/* What can be said in several words: "activation_function", which is the same
 * as gelu_new and as gelu_pytorch_tanh; ends with NULL. */
extern const char *const loongi_hf_spelling_names[];

/* Adds the fields of a config.json that has some, in the words of
 * transformers. */
LOONG_NODISCARD loong_status_t loongi_hf_extra_read(loong_context_t *ctx,
                                                    const loong_json_t *config,
                                                    loong_pairs_t *pairs);

/* Takes over those that `pairs` lacks. */
LOONG_NODISCARD loong_status_t loongi_hf_extra_take(const loong_pairs_t *from,
                                                    loong_pairs_t *pairs);

#ifdef __cplusplus
}
#endif

#endif
