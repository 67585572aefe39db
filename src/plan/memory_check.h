/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan needs of memory, beside what there is. */
#ifndef LOONG_MEMORY_CHECK_H
#define LOONG_MEMORY_CHECK_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compares what all ranks need with what their machines have. Collective. */
LOONG_NODISCARD loong_status_t loongi_memory_measure(loong_plan_t *plan);
bool loongi_memory_suffices(const loong_plan_t *plan);
/* "needs 1.1 TiB ..., this machine has ...". */
void loongi_memory_explain(const loong_plan_t *plan, loong_text_t *text);
/* Of a card that nothing names, and that is not judged: true, and what a rank
 * needs more than it has and how it would be, or false and nothing. */
bool loongi_memory_doubt(const loong_plan_t *plan, loong_text_t *text);
/* See loong_trainer_check_memory. */
LOONG_NODISCARD loong_status_t loongi_memory_check(loong_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
