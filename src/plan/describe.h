/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of a plan. */
#ifndef LOONG_DESCRIBE_H
#define LOONG_DESCRIBE_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Adds to plan->text: parameters, batch and ranks. */
void loongi_describe_layout(loong_plan_t *plan);

/* Adds the rest of loong_trainer_describe, plans the peers of a plan of several
 * ranks for it. */
LOONG_NODISCARD loong_status_t loongi_describe_memory(loong_plan_t *plan,
                                                      const char **text_p);

/* See loong_trainer_explain. */
LOONG_NODISCARD loong_status_t loongi_describe_programs(loong_plan_t *plan,
                                                        const char **text_p);

#ifdef __cplusplus
}
#endif

#endif
