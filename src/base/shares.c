/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares by weights. Called by the loader and by plans of layouts. Read
 * shares.h before. */
#include "shares.h"

/* Would i, with one more, be done before k with one more? */
static int is_before(const int64_t *weight, const int64_t *of, int i, int k)
{
    return (of[i] + 1) * weight[k] < (of[k] + 1) * weight[i];
}

void loongi_shares(int n, const int64_t *weight, int64_t count, int64_t *of)
{
    int64_t sum = 0;
    int64_t left = count;
    for (int i = 0; i < n; i++) {
        sum += weight[i];
    }
    for (int i = 0; i < n; i++) { /* nobody gets less than the whole part */
        of[i] = count * weight[i] / sum;
        left -= of[i];
    }
    for (; left > 0; left--) {
        int next = 0;
        for (int i = 1; i < n; i++) {
            next = is_before(weight, of, i, next) ? i : next;
        }
        of[next]++;
    }
}
