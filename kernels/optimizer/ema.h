/* SPDX-License-Identifier: Apache-2.0
 *
 * The decay of ema; the contract stands in loong/update.h. */
#ifndef LOONG_EMA_H
#define LOONG_EMA_H

#include "loong/update.h"
#include "port.h"

/* 1 - the decay of an update behind so many others. */
LOONG_EVERYWHERE static inline double
loongi_ema_rest(const loong_update_attr_t *a, int64_t updates)
{
    int64_t n = updates - a->ema_start;
    double most = a->ema_warmup ? (1.0 + (double)n) / (10.0 + (double)n) : 1.0;
    return n <= 0 ? 1.0 : 1.0 - (a->ema_decay < most ? a->ema_decay : most);
}

#endif
