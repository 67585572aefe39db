/* SPDX-License-Identifier: Apache-2.0
 *
 * States of the optimizer, and masters, in checkpoints that are loaded. */
#ifndef LOONG_MOMENTS_H
#define LOONG_MOMENTS_H

#include "model.h"
#include "native.h"
#include "new_params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether all parameters of all components are there in their shapes, and with
 * them the states of their optimizers, where `states` are wanted. Errors:
 * LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t loongi_moments_check(
    const loong_model_t *model, const loong_checkpoint_t *ck, bool states);

/* What parameters are loaded from it. */
loong_origin_t loongi_checkpoint_origin(const loong_checkpoint_t *ck);

/* Says which states, and which masters, are of another type in a checkpoint
 * that is about to be loaded: they are converted. */
void loongi_moments_tell(const loong_component_t *component,
                         const loong_checkpoint_t *ck);

#ifdef __cplusplus
}
#endif

#endif
