/* SPDX-License-Identifier: Apache-2.0
 *
 * The special tokens of a Hugging Face directory. As metadata of a native
 * checkpoint, and here, an id is JSON text: "2", or "[2, 5]" where a file has
 * several. */
#ifndef LOONG_HF_TOKENS_H
#define LOONG_HF_TOKENS_H

#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_HF_TOKENS = 3 };
/* "bos_token_id", "eos_token_id", "pad_token_id" */
extern const char *const loongi_hf_token_names[LOONG_HF_TOKENS];

/* Adds the ids that DIR/config.json states. Errors: those of reading it. */
LOONG_NODISCARD loong_status_t loongi_hf_tokens_read(loong_context_t *ctx,
                                                     const char *dir,
                                                     loong_pairs_t *ids);

/* Writes DIR/tokenizer_config.json: the texts of the tokens that DIR's
 * config.json names, and the class that takes tokenizer.json as it is. Nothing
 * when there is no tokenizer.json, or a tokenizer_config.json already. */
LOONG_NODISCARD loong_status_t loongi_hf_tokenizer_config_write(
    loong_context_t *ctx, const char *dir, const loong_pairs_t *model);

#ifdef __cplusplus
}
#endif

#endif
