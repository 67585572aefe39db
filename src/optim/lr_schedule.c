/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of a step: warm-up, then constant, linear, cosine or WSD.
 * Called by the training step. Read lr_schedule.h before. */
#include "lr_schedule.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* Share of lr - min_lr that is left after the fraction r of a WSD decay. */
static double wsd_share(loong_wsd_style_t style, double r)
{
    switch (style) {
    case LOONG_WSD_COSINE:
        return 0.5 * (cos(pi * r) + 1.0);
    case LOONG_WSD_EXPONENTIAL:
        return 2.0 * pow(0.5, r) - 1.0;
    case LOONG_WSD_MINUS_SQRT:
        return 1.0 - sqrt(r);
    case LOONG_WSD_LINEAR:
        break;
    }
    return 1.0 - r;
}

double loongi_lr(const loong_lr_schedule_t *schedule, int64_t step)
{
    const loong_lr_schedule_t *s = schedule;
    int64_t at = step + 1;
    int64_t warmup =
        s->warmup_fraction > 0.0
            ? (int64_t)ceil(s->warmup_fraction * (double)s->decay_iters)
            : s->warmup_iters;
    if (at < warmup) {
        return s->lr * (double)at / (double)warmup;
    }
    if (s->style == LOONG_LR_CONSTANT) {
        return s->lr;
    }
    if (at > s->decay_iters) {
        return s->min_lr;
    }
    double share = 1.0;
    double span = (double)LOONG_MAX(s->decay_iters - warmup, 1);
    double r = (double)(at - warmup) / span;
    if (s->style == LOONG_LR_LINEAR) {
        share = 1.0 - r;
    } else if (s->style == LOONG_LR_COSINE) {
        share = 0.5 * (cos(pi * r) + 1.0);
    } else {
        int64_t start = s->decay_iters - s->wsd_decay_iters;
        if (at > start) {
            share = wsd_share(s->wsd_style, (double)(at - start) /
                                                (double)s->wsd_decay_iters);
        }
    }
    return s->min_lr + share * (s->lr - s->min_lr);
}
