/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_MODEL_MEMORY_H
#define LOONG_MODEL_MEMORY_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was planned: on the device, or, for parameters, gradients and what is
 * exchanged, where peers of the machine read it. Collective on: world. */
LOONG_NODISCARD loong_status_t
loongi_model_take_memory(loong_model_t *model);
/* What there is of it. Collective on: world. */
void loongi_model_give_memory_back(loong_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
