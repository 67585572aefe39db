/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules; names and shapes are Megatron's. */
#ifndef LOONG_LR_SCHEDULE_H
#define LOONG_LR_SCHEDULE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_lr_style {
    LOONG_LR_CONSTANT,
    LOONG_LR_COSINE,
    LOONG_LR_LINEAR,
    LOONG_LR_WSD /* warm-up, stable, decay */
} loong_lr_style_t;

typedef enum loong_wsd_style {
    LOONG_WSD_LINEAR,
    LOONG_WSD_COSINE,
    LOONG_WSD_EXPONENTIAL,
    LOONG_WSD_MINUS_SQRT
} loong_wsd_style_t;

typedef struct loong_lr_schedule {
    loong_lr_style_t style;
    loong_wsd_style_t wsd_style;
    double lr;
    double min_lr;
    int64_t warmup_iters;
    double warmup_fraction;  /* above 0: of decay_iters, in place of it */
    int64_t decay_iters;     /* where the decay ends */
    int64_t wsd_decay_iters; /* length of the decay of WSD */
} loong_lr_schedule_t;

/* Learning rate of optimizer step `step` (0-based): linear warm-up reaches lr
 * in step warmup_iters - 1, min_lr holds from decay_iters on. */
double loongi_lr(const loong_lr_schedule_t *schedule, int64_t step);

#ifdef __cplusplus
}
#endif

#endif
