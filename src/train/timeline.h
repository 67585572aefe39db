/* SPDX-License-Identifier: Apache-2.0
 *
 * The step on a line of time: predicted from costs, or measured. */
#ifndef LOONG_TIMELINE_H
#define LOONG_TIMELINE_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keeps the times of this rank's entries from now on, of the last step. */
LOONG_NODISCARD loong_status_t loongi_timeline_measure(loong_trainer_t *t);
void loongi_timeline_destroy(loong_trainer_t *t);

/* What is measured: the schedule begins; an entry has run from `begin` on. */
void loongi_timeline_begin(loong_trainer_t *t);
void loongi_timeline_mark(loong_trainer_t *t, int64_t index, double begin);

/* Costs of all stages, zero: t->timeline.costs. */
LOONG_NODISCARD loong_status_t loongi_timeline_costs(loong_trainer_t *t);

#ifdef __cplusplus
}
#endif

#endif
