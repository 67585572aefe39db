/* SPDX-License-Identifier: Apache-2.0
 *
 * A number of equal things shared out in proportion to weights. */
#ifndef LOONG_SHARES_H
#define LOONG_SHARES_H

#include <stdint.h>

enum { LOONG_MAX_WEIGHT = 1000000000 };

/* of[i]: what i of n gets of `count` things. No other way has a smaller largest
 * of[i] / weight[i] (d'Hondt's method); of equals the first one gets more, and
 * nobody gets less when count grows. Weights are 1 to LOONG_MAX_WEIGHT, as is
 * count at most. */
void loongi_shares(int n, const int64_t *weight, int64_t count, int64_t *of);

#endif
