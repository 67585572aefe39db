/* SPDX-License-Identifier: Apache-2.0
 *
 * Turning weights into a periodic sequence of sources: the rule is stated in
 * loong/blend.h. */
#ifndef LOONG_APPORTION_H
#define LOONG_APPORTION_H

#include "base.h"

enum { APPORTION_MAX_PERIOD = 65536, APPORTION_MAX_SOURCES = 4096 };

typedef struct loong_apportion {
    int64_t sources;
    int64_t period;   /* P */
    int64_t *share;   /* [sources], sum P */
    uint16_t *source; /* [P] */
    uint16_t *rank;   /* [P] earlier slots of the same source */
} loong_apportion_t;

/* weights: [sources], all finite and > 0. */
LOONG_NODISCARD loong_status_t
loongi_apportion_create(loong_context_t *ctx, const double *weights,
                        int64_t sources, loong_apportion_t *table);
void loongi_apportion_destroy(loong_context_t *ctx, loong_apportion_t *table);

/* Draws of a source among the first g. */
int64_t loongi_apportion_count(const loong_apportion_t *table, int64_t source,
                               int64_t g);
/* The draw g that is the k-th (from 0) of a source. */
int64_t loongi_apportion_find(const loong_apportion_t *table, int64_t source,
                              int64_t k);

#endif
