/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights to shares, shares to the table of one period. The earliest-deadline
 * rule meets all windows of a single machine whenever the shares add up to 1
 * (Baruah, Cohen, Plaxton, Varvel 1996: proportionate progress). Called by
 * blend.c. Read apportion.h before. */
#include <math.h>

#include "apportion.h"

/* True when every weight is a whole number of P-ths, up to the rounding of
 * the weights themselves. */
static bool fits(const double *weights, int64_t sources, double sum,
                 int64_t period)
{
    for (int64_t s = 0; s < sources; s++) {
        double share = weights[s] / sum * (double)period;
        if (share < 0.5 || fabs(share - round(share)) > 1e-9 * share) {
            return false;
        }
    }
    return true;
}

/* Largest remainders on top of max(1, floor); `left` is what is still to be
 * given, or taken back from the largest shares where the ones exceed it. */
static void round_shares(const double *weights, double sum,
                         loong_apportion_t *table)
{
    int64_t left = table->period;
    for (int64_t s = 0; s < table->sources; s++) {
        double share = weights[s] / sum * (double)table->period;
        table->share[s] = LOONG_MAX((int64_t)share, 1);
        left -= table->share[s];
    }
    while (left != 0) {
        int64_t best = 0;
        double best_gap = -INFINITY;
        for (int64_t s = 0; s < table->sources; s++) {
            double gap = weights[s] / sum * (double)table->period -
                         (double)table->share[s];
            gap = left > 0 ? gap : -gap;
            if (gap > best_gap && (left > 0 || table->share[s] > 1)) {
                best = s;
                best_gap = gap;
            }
        }
        table->share[best] += left > 0 ? 1 : -1;
        left += left > 0 ? -1 : 1;
    }
}

static void choose_shares(const double *weights, loong_apportion_t *table)
{
    double sum = 0;
    for (int64_t s = 0; s < table->sources; s++) {
        sum += weights[s];
    }
    for (int64_t p = table->sources; p <= APPORTION_MAX_PERIOD; p++) {
        if (fits(weights, table->sources, sum, p)) {
            table->period = p;
            for (int64_t s = 0; s < table->sources; s++) {
                table->share[s] = llround(weights[s] / sum * (double)p);
            }
            return;
        }
    }
    table->period = APPORTION_MAX_PERIOD;
    round_shares(weights, sum, table);
}

static void fill_period(loong_apportion_t *table, int64_t *count)
{
    for (int64_t g = 0; g < table->period; g++) {
        int64_t best = -1;
        for (int64_t s = 0; s < table->sources; s++) {
            bool free = count[s] * table->period < (g + 1) * table->share[s];
            if (free && (best < 0 || (count[s] + 1) * table->share[best] <
                                         (count[best] + 1) * table->share[s])) {
                best = s;
            }
        }
        table->source[g] = (uint16_t)best;
        table->rank[g] = (uint16_t)count[best]++;
    }
}

loong_status_t loongi_apportion_create(loong_context_t *ctx,
                                       const double *weights, int64_t sources,
                                       loong_apportion_t *table)
{
    int64_t *count = NULL;
    size_t n = (size_t)sources;
    table->sources = sources;
    LOONG_TRY(loongi_calloc(ctx, n, sizeof(*table->share), "blend shares",
                            &table->share));
    choose_shares(weights, table);
    size_t period = (size_t)table->period;
    LOONG_TRY(loongi_calloc(ctx, period, sizeof(*table->source), "blend period",
                            &table->source));
    LOONG_TRY(loongi_calloc(ctx, period, sizeof(*table->rank), "blend period",
                            &table->rank));
    LOONG_TRY(loongi_calloc(ctx, n, sizeof(*count), "blend counts", &count));
    fill_period(table, count);
    loongi_free(ctx, count);
    return LOONG_OK;
}

void loongi_apportion_destroy(loong_context_t *ctx, loong_apportion_t *table)
{
    loongi_free(ctx, table->share);
    loongi_free(ctx, table->source);
    loongi_free(ctx, table->rank);
}

int64_t loongi_apportion_count(const loong_apportion_t *table, int64_t source,
                               int64_t g)
{
    int64_t count = g / table->period * table->share[source];
    for (int64_t i = g % table->period - 1; i >= 0; i--) {
        if (table->source[i] == source) {
            return count + table->rank[i] + 1;
        }
    }
    return count;
}

int64_t loongi_apportion_find(const loong_apportion_t *table, int64_t source,
                              int64_t k)
{
    int64_t rank = k % table->share[source];
    int64_t slot = 0;
    while (table->source[slot] != source || table->rank[slot] != rank) {
        slot++;
    }
    return k / table->share[source] * table->period + slot;
}
