/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan needs of memory, beside what there is. */
#ifndef LOONG_ROOM_H
#define LOONG_ROOM_H

#include "plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Compares what all ranks need with what their machines have. Collective. */
LOONG_NODISCARD loong_status_t loongi_room_measure(loong_plan_t *plan);
bool loongi_room_suffices(const loong_plan_t *plan);
/* "needs 1.1 TiB ..., this machine has ...". */
void loongi_room_tell(const loong_plan_t *plan, loong_text_t *text);
/* See loong_trainer_check_room. */
LOONG_NODISCARD loong_status_t loongi_room_check(loong_plan_t *plan);

#ifdef __cplusplus
}
#endif

#endif
