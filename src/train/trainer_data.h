/* SPDX-License-Identifier: Apache-2.0
 *
 * The data sets of a run. */
#ifndef LOONG_TRAINER_DATA_H
#define LOONG_TRAINER_DATA_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How samples become the inputs of the model's components. */
LOONG_NODISCARD loong_status_t loongi_trainer_processors(loong_trainer_t *t);
/* The blends of training and validation, once: whoever comes first opens them,
 * all get the status. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_open_blends(loong_trainer_t *t);
/* And their loaders, for a model that was planned. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_open_data(loong_trainer_t *t);
/* Steps of a training whose length is given in epochs. Collective. */
LOONG_NODISCARD loong_status_t loongi_trainer_set_length(loong_trainer_t *t);
/* Opens a blend, with data.chat where it has conversations. */
LOONG_NODISCARD loong_status_t
loongi_trainer_create_blend(loong_trainer_t *t, loong_blend_params_t *params,
                            loong_blend_t **blend_p);
void loongi_trainer_close_data(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
