/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters of peft's as parameters of the engine beside their base. */
#ifndef LOONG_PEFT_IMPORT_H
#define LOONG_PEFT_IMPORT_H

#include "hf_weights.h"
#include "native.h"
#include "peft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loong_peft_part;
typedef struct loong_peft_import {
    loong_context_t *ctx;
    int64_t count;
    loong_checkpoint_tensor_t *tensors; /* of kind "param" */
    struct loong_peft_part *parts;      /* where each comes from */
} loong_peft_import_t;

/* The directory of the model that adapters are beside: the one that is asked
 * for, else what they say themselves if it is a directory; NULL. One of another
 * name than they say is told in a warning. */
const char *loongi_peft_base(const loong_peft_t *peft, const char *asked);

/* Components of the model that adapters are beside, the one with them last. */
typedef struct loong_peft_beside {
    int count;
    const loong_hf_t *const *hf;
    const char *const *roles;
} loong_peft_beside_t;

/* The tensors of a checkpoint that has the adapters alone, in memory of the
 * arena, and the metadata that goes with them. Errors: LOONG_ERR_MISMATCH lists
 * what the base has no matrix for, or one of another shape. */
LOONG_NODISCARD loong_status_t loongi_peft_import(
    const loong_peft_t *peft, const loong_peft_beside_t *base,
    loong_arena_t *arena, loong_pairs_t *metadata, loong_peft_import_t *import);

/* Rows of a tensor in its own type, as native_write.h wants a source; user is
 * a loong_peft_import_t. */
LOONG_NODISCARD loong_status_t
loongi_peft_import_rows(void *user, int64_t index, int64_t row, int64_t rows,
                        void *buffer, const void **data_p);

#ifdef __cplusplus
}
#endif

#endif
