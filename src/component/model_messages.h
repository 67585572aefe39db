/* SPDX-License-Identifier: Apache-2.0
 *
 * What carries the messages of a model that is allocated. */
#ifndef LOONG_MODEL_MESSAGES_H
#define LOONG_MODEL_MESSAGES_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of all lists; edges also when these have changed. */
LOONG_NODISCARD loong_status_t
loongi_model_create_transfers(loong_model_t *model);
LOONG_NODISCARD loong_status_t loongi_model_create_edges(loong_model_t *model);
/* Of a run that failed: none was left otherwise. */
void loongi_model_cancel_messages(loong_model_t *model);

#ifdef __cplusplus
}
#endif

#endif
