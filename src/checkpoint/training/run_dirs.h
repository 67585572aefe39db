/* SPDX-License-Identifier: Apache-2.0
 *
 * The directories that a run reads its weights from and writes into. */
#ifndef LOONG_RUN_DIRS_H
#define LOONG_RUN_DIRS_H

#include "loong/recipe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rank 0: makes checkpoint.save and log.dir and keeps other runs out of them;
 * locks: -1 before, and where there is none.
 * Errors: LOONG_ERR_IO, LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t loongi_run_dirs_open(
    loong_context_t *ctx, const loong_recipe_t *recipe, int locks[2]);
void loongi_run_dirs_close(int locks[2]);

/* Whether the directory of a key can be written into.
 * Errors: LOONG_ERR_CANNOT_WRITE. */
LOONG_NODISCARD loong_status_t loongi_check_output(loong_context_t *ctx,
                                                   const loong_recipe_t *recipe,
                                                   const char *key);

/* What init.from_hf, checkpoint.load and checkpoint.save say of the weights;
 * *load_p: a native checkpoint to go on from, "auto" for the newest of
 * checkpoint.save; NULL: none. */
LOONG_NODISCARD loong_status_t loongi_find_weights(loong_context_t *ctx,
                                                   const loong_recipe_t *recipe,
                                                   bool evaluate_only,
                                                   const char **load_p);

/* A run that begins anew does not save among the checkpoints of another.
 * Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_check_unused(loong_context_t *ctx, const loong_recipe_t *recipe);

#ifdef __cplusplus
}
#endif

#endif
