/* SPDX-License-Identifier: Apache-2.0
 *
 * What every checkpoint of a run keeps beside its state. */
#ifndef LOONG_ARTIFACTS_H
#define LOONG_ARTIFACTS_H

#include "file_set.h"
#include "loong/recipe.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_artifacts {
    loong_pairs_t *hf_fields; /* for exports (hf_tokens.h); NULL: not read */
    loong_file_set_t *files;
} loong_artifacts_t;

/* Rank 0: reads what the recipe names, else what the checkpoint has that the
 * run goes on from. */
LOONG_NODISCARD loong_status_t
loongi_artifacts_read(loong_context_t *ctx, const loong_recipe_t *recipe,
                      loong_artifacts_t *artifacts);
void loongi_artifacts_clear(loong_artifacts_t *artifacts);

/* Adds LOONG_HF_AUTO_MAP (hf_code.h) when one of them has Python files of the
 * model. */
LOONG_NODISCARD loong_status_t loongi_artifacts_code(
    loong_context_t *ctx, const loong_recipe_t *recipe, loong_pairs_t *pairs);

#ifdef __cplusplus
}
#endif

#endif
