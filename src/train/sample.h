/* SPDX-License-Identifier: Apache-2.0
 *
 * What sampled texts ask of the rest of the trainer. */
#ifndef LOONG_SAMPLE_H
#define LOONG_SAMPLE_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens of a text that are seen at once. With dynamic scaling no more than the
 * model knows without it, so that the frequencies are those of a text so
 * long. */
int64_t loongi_sample_window(const loong_trainer_t *t);
/* Every prompt has a token to go on from. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_sample_check_prompts(const loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
