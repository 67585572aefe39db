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
LOONG_NODISCARD loong_status_t loongi_trainer_open_data(loong_trainer_t *t);
void loongi_trainer_close_data(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
