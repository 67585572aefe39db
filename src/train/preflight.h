/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run needs beside its recipe, judged before it starts. */
#ifndef LOONG_PREFLIGHT_H
#define LOONG_PREFLIGHT_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens tokenizer and data; a judged plan, and one that failed, looks at
 * weights and outputs as well. Tells of everything that is wrong and returns
 * the first of it. t->component is NULL where the plan failed. */
LOONG_NODISCARD loong_status_t loongi_preflight(loong_trainer_t *t);
#ifdef __cplusplus
}
#endif

#endif
