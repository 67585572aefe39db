/* SPDX-License-Identifier: Apache-2.0
 *
 * What the weights of a Hugging Face directory are, in 16 digits: names, types
 * and shapes of all tensors, and some bytes of each. It costs no reading of the
 * whole; weights that were trained further have another one. adapters: those
 * that are merged into them (peft_terms.h), or NULL. */
#ifndef LOONG_HF_DIGEST_H
#define LOONG_HF_DIGEST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_HF_DIGEST = 17 };

LOONG_NODISCARD loong_status_t loongi_hf_digest(loong_context_t *ctx,
                                                const char *dir,
                                                const char *adapters,
                                                char digest[LOONG_HF_DIGEST]);
/* Errors: LOONG_ERR_MISMATCH, both are told. wanted NULL: any will do. */
LOONG_NODISCARD loong_status_t loongi_hf_digest_check(loong_context_t *ctx,
                                                      const char *dir,
                                                      const char *adapters,
                                                      const char *wanted);

#ifdef __cplusplus
}
#endif

#endif
