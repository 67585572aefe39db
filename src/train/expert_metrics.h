/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers with experts count in the states of their programs
 * (LOONG_MOE_METRIC_LIST): nothing of it goes to the host or between ranks but
 * at a log line. */
#ifndef LOONG_EXPERT_METRICS_H
#define LOONG_EXPERT_METRICS_H

#include "trainer_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* t->expert_metrics stays NULL where no stage of any rank has experts. Not
 * collective. */
LOONG_NODISCARD loong_status_t loongi_expert_metrics_open(loong_trainer_t *t);
void loongi_expert_metrics_close(loong_trainer_t *t);

/* Of all ranks since the last call: sums up the layers in m, and keeps each
 * for .._tell. A sum over the ranks of a stage, of `experts` and up to two more
 * numbers a layer, and one over the stages, of five numbers a layer.
 * Collective. */
LOONG_NODISCARD loong_status_t
loongi_expert_metrics_measure(loong_trainer_t *t, loong_metrics_t *m);
/* A line of metrics.jsonl, and TensorBoard's scalars, for each layer. */
LOONG_NODISCARD loong_status_t
loongi_expert_metrics_tell(loong_trainer_t *t, const loong_metrics_t *m);

#ifdef __cplusplus
}
#endif

#endif
