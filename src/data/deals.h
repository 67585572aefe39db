/* SPDX-License-Identifier: Apache-2.0
 *
 * The micro-batches of a step, dealt to data-parallel ranks by what their
 * samples cost: a pure function of (samples consumed, sizes, costs). */
#ifndef LOONG_DEALS_H
#define LOONG_DEALS_H

#include "balance.h"
#include "loong/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_deals {
    loong_context_t *ctx;
    loong_loader_params_t params;
    loong_items_t items; /* of the sample that is looked at */
    /* Of the step that runs and of the one that is read ahead. */
    loong_balance_t balance[2];
    int64_t consumed[2]; /* -1: none */
    int newest;
} loong_deals_t;

/* Of a loader with costs. */
LOONG_NODISCARD loong_status_t
loongi_deals_create(loong_context_t *ctx, const loong_loader_params_t *params,
                    loong_deals_t *deals);
void loongi_deals_destroy(loong_deals_t *deals);

/* The deal of a step of so many samples, borrowed until the next but one is
 * asked for. Not on several threads. Errors: those of blend and sources. */
LOONG_NODISCARD loong_status_t
loongi_deals_get(loong_deals_t *deals, int64_t consumed, int64_t samples,
                 const loong_balance_t **balance_p);

/* Adds the parts of a micro-batch's cost, of samples g and behind. */
LOONG_NODISCARD loong_status_t loongi_deals_measure(
    loong_deals_t *deals, int64_t g, int64_t parts[LOONG_COST_PARTS]);

#ifdef __cplusplus
}
#endif

#endif
