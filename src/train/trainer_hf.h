/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run takes from a Hugging Face directory beside its weights. */
#ifndef LOONG_TRAINER_HF_H
#define LOONG_TRAINER_HF_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The directory that the model is from; NULL: none. */
const char *loongi_trainer_hf_dir(const loong_trainer_t *t);
/* A checkpoint without a recipe, of an import: what its metadata says of the
 * model, against the recipe. Errors: LOONG_ERR_MISMATCH, with every key. */
LOONG_NODISCARD loong_status_t
loongi_trainer_check_import(const loong_trainer_t *t,
                            const loong_pairs_t *meta);
/* Adds LOONG_HF_AUTO_MAP (hf_code.h) when that directory, or the checkpoint
 * that the run goes on from, has Python files of the model. */
LOONG_NODISCARD loong_status_t loongi_trainer_code(loong_trainer_t *t,
                                                   loong_pairs_t *pairs);

/* Rank 0: reads what checkpoints keep, fills tokens and files. */
LOONG_NODISCARD loong_status_t loongi_trainer_keep(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
