/* SPDX-License-Identifier: Apache-2.0
 *
 * What generators use. */
#ifndef LOONG_SCHEDULE_IMPL_H
#define LOONG_SCHEDULE_IMPL_H

#include "schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Appends one computation to the list of a rank. */
LOONG_NODISCARD loong_status_t loongi_schedule_push(loong_schedule_t *s,
                                                    int rank,
                                                    loong_entry_kind_t kind,
                                                    int chunk,
                                                    int micro_batch);
/* Makes the last two computations a pair. */
void loongi_schedule_pair_last(loong_schedule_t *s, int rank);

/* Gives every entry of a rank its slot, away area and host area. */
LOONG_NODISCARD loong_status_t loongi_schedule_colour(loong_schedule_t *s,
                                                      int rank);

extern const loong_schedule_kind_t loongi_schedule_one_stage;
extern const loong_schedule_kind_t loongi_schedule_1f1b;
extern const loong_schedule_kind_t loongi_schedule_interleaved;
extern const loong_schedule_kind_t loongi_schedule_zero_bubble_h1;
extern const loong_schedule_kind_t loongi_schedule_zero_bubble_v;
extern const loong_schedule_kind_t loongi_schedule_evaluate;

#ifdef __cplusplus
}
#endif

#endif
