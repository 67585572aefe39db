/* SPDX-License-Identifier: Apache-2.0
 *
 * States of the optimizer, and masters, in checkpoints that are loaded. */
#ifndef LOONG_MOMENTS_H
#define LOONG_MOMENTS_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether all parameters are there in their shapes, and with them the states
 * of their optimizers, unless these begin anew. Errors: LOONG_ERR_MISMATCH. */
LOONG_NODISCARD loong_status_t
loongi_moments_check(loong_trainer_t *t, const loong_checkpoint_t *ck);

/* Says which states, and which masters, are of another type in a checkpoint
 * that is about to be loaded: they are converted. */
void loongi_moments_tell(const loong_trainer_t *t,
                         const loong_checkpoint_t *ck);

#ifdef __cplusplus
}
#endif

#endif
