/* SPDX-License-Identifier: Apache-2.0
 *
 * The moments of the optimizer in checkpoints. */
#ifndef LOONG_MOMENTS_H
#define LOONG_MOMENTS_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_MOMENTS = 2 };
typedef struct loong_moment {
    const char *kind;    /* of its tensors */
    int64_t offset;      /* of a bucket's, in OPTIM */
    loong_dtype_t dtype; /* as it is stored in memory and in checkpoints */
} loong_moment_t;

void loongi_moments_of(const loong_component_params_t *params,
                       const loong_bucket_t *bucket,
                       loong_moment_t moments[LOONG_MOMENTS]);

/* Says which ones, and which masters, are of another type in a checkpoint that
 * is about to be loaded: they are converted. */
void loongi_moments_tell(const loong_trainer_t *t,
                         const loong_checkpoint_t *ck);

#ifdef __cplusplus
}
#endif

#endif
