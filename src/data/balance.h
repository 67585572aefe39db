/* SPDX-License-Identifier: Apache-2.0
 *
 * Which data-parallel rank runs which micro-batches of a step: as many each,
 * and as much of the planned cost as can be. */
#ifndef LOONG_BALANCE_H
#define LOONG_BALANCE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_share {
    int64_t cost;
    int32_t number;
} loong_share_t;

typedef struct loong_balance {
    int64_t count;        /* micro-batches of a step, of all ranks */
    int ranks;            /* count is a multiple */
    loong_share_t *micro; /* [count] costs, to be filled, in their order */
    loong_share_t *load;  /* [ranks] */
    int32_t *order;       /* [count]: rank r runs order[k * ranks + r] as its
                             micro-batch k */
    /* What the rank with most to do has, over the mean: dealt, and as drawn
     * (rank r runs number k * ranks + r). */
    double dealt, drawn;
} loong_balance_t;

/* Of at most so many micro-batches. */
LOONG_NODISCARD loong_status_t loongi_balance_create(loong_context_t *ctx,
                                                     int64_t count, int ranks,
                                                     loong_balance_t *balance);
void loongi_balance_destroy(loong_context_t *ctx, loong_balance_t *balance);

/* Makes the order, a pure function of the costs. Micro-batches are taken from
 * the dearest on, `ranks` at a time, so that those that run at one time are
 * about as dear; of each such round the dearest goes to the rank that has least
 * to do. Then the rank that has most and the one that has least exchange
 * micro-batches, as long as that brings them together. */
void loongi_balance_deal(loong_balance_t *balance);

#ifdef __cplusplus
}
#endif

#endif
