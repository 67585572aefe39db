/* SPDX-License-Identifier: Apache-2.0
 *
 * Deals the micro-batches of a step. Called by loader.c. Read balance.h
 * before. */
#include "balance.h"

#include <stdlib.h>
#include <string.h>

loong_status_t loongi_balance_create(loong_context_t *ctx, int64_t count,
                                     int ranks, loong_balance_t *balance)
{
    memset(balance, 0, sizeof(*balance));
    balance->count = count;
    balance->ranks = ranks;
    balance->dealt = balance->drawn = 1.0;
    LOONG_TRY(loongi_calloc(ctx, (size_t)count, sizeof(*balance->micro),
                            "micro-batches of a step", &balance->micro));
    LOONG_TRY(loongi_calloc(ctx, (size_t)count, sizeof(*balance->order),
                            "micro-batches of a step", &balance->order));
    return loongi_calloc(ctx, (size_t)ranks, sizeof(*balance->load),
                         "loads of ranks", &balance->load);
}

void loongi_balance_destroy(loong_context_t *ctx, loong_balance_t *balance)
{
    loongi_free(ctx, balance->micro);
    loongi_free(ctx, balance->order);
    loongi_free(ctx, balance->load);
    memset(balance, 0, sizeof(*balance));
}

static int by_cost(const void *a, const void *b)
{
    const loong_share_t *x = a;
    const loong_share_t *y = b;
    return x->cost != y->cost ? (x->cost > y->cost) - (x->cost < y->cost)
                              : x->number - y->number;
}

static double most_over_mean(const loong_balance_t *b)
{
    double sum = 0.0;
    int64_t most = 0;
    for (int r = 0; r < b->ranks; r++) {
        most = LOONG_MAX(most, b->load[r].cost);
        sum += (double)b->load[r].cost;
    }
    return sum > 0.0 ? (double)most * b->ranks / sum : 1.0;
}

static void clear_loads(loong_balance_t *b)
{
    for (int r = 0; r < b->ranks; r++) {
        b->load[r] = (loong_share_t){0, r};
    }
}

static void measure_drawn(loong_balance_t *b)
{
    clear_loads(b);
    for (int64_t m = 0; m < b->count; m++) {
        b->micro[m].number = (int32_t)m;
        b->load[m % b->ranks].cost += b->micro[m].cost;
    }
    b->drawn = most_over_mean(b);
}

void loongi_balance_deal(loong_balance_t *balance)
{
    loong_balance_t *b = balance;
    size_t ranks = (size_t)b->ranks;
    measure_drawn(b);
    qsort(b->micro, (size_t)b->count, sizeof(*b->micro), by_cost);
    clear_loads(b);
    for (int64_t round = 0; round < b->count / b->ranks; round++) {
        const loong_share_t *dearest =
            &b->micro[b->count - 1 - round * b->ranks];
        qsort(b->load, ranks, sizeof(*b->load), by_cost);
        for (int i = 0; i < b->ranks; i++) { /* the least loaded first */
            loong_share_t *load = &b->load[i];
            load->cost += dearest[-i].cost;
            b->order[round * b->ranks + load->number] = dearest[-i].number;
        }
    }
    b->dealt = most_over_mean(b);
}
