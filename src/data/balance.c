/* SPDX-License-Identifier: Apache-2.0
 *
 * Deals the micro-batches of a step. Called by deals.c. Read balance.h
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

/* ---- exchanges ----------------------------------------------------------- */

/* While it is dealt, `order` has places in the sorted micro-batches. */
static int32_t *micro_batch(const loong_balance_t *b, int64_t k, int rank)
{
    return &b->order[k * b->ranks + rank];
}

/* The micro-batches of two ranks whose exchange takes most of the difference
 * between them; false: there are none. */
static bool exchange(loong_balance_t *b, loong_share_t *most,
                     loong_share_t *least)
{
    int64_t each = b->count / b->ranks;
    int64_t gap = most->cost - least->cost;
    int64_t best = gap; /* how far they are apart then */
    int32_t *from = NULL;
    int32_t *to = NULL;
    for (int64_t k = 0; k < each; k++) {
        for (int64_t j = 0; j < each; j++) {
            int32_t *x = micro_batch(b, k, most->number);
            int32_t *y = micro_batch(b, j, least->number);
            int64_t moved = b->micro[*x].cost - b->micro[*y].cost;
            int64_t apart =
                gap > 2 * moved ? gap - 2 * moved : 2 * moved - gap;
            if (moved > 0 && apart < best) {
                best = apart;
                from = x;
                to = y;
            }
        }
    }
    if (from == NULL) {
        return false;
    }
    int64_t moved = b->micro[*from].cost - b->micro[*to].cost;
    int32_t swap = *from;
    *from = *to;
    *to = swap;
    most->cost -= moved;
    least->cost += moved;
    return true;
}

static void exchange_all(loong_balance_t *b)
{
    loong_share_t *most = NULL;
    loong_share_t *least = NULL;
    int64_t left = b->count;
    do {
        most = least = b->load;
        for (int r = 1; r < b->ranks; r++) {
            most = b->load[r].cost > most->cost ? &b->load[r] : most;
            least = b->load[r].cost < least->cost ? &b->load[r] : least;
        }
    } while (left-- > 0 && exchange(b, most, least));
}

/* Each rank's dearest first, so that those that run at one time stay about as
 * dear. */
static void sort_ranks(loong_balance_t *b)
{
    int64_t each = b->count / b->ranks;
    for (int r = 0; r < b->ranks; r++) {
        for (int64_t k = 1; k < each; k++) {
            int32_t own = *micro_batch(b, k, r);
            int64_t j = k;
            for (; j > 0 && *micro_batch(b, j - 1, r) < own; j--) {
                *micro_batch(b, j, r) = *micro_batch(b, j - 1, r);
            }
            *micro_batch(b, j, r) = own;
        }
    }
}

void loongi_balance_deal(loong_balance_t *balance)
{
    loong_balance_t *b = balance;
    size_t ranks = (size_t)b->ranks;
    measure_drawn(b);
    qsort(b->micro, (size_t)b->count, sizeof(*b->micro), by_cost);
    clear_loads(b);
    for (int64_t round = 0; round < b->count / b->ranks; round++) {
        int64_t dearest = b->count - 1 - round * b->ranks;
        qsort(b->load, ranks, sizeof(*b->load), by_cost);
        for (int i = 0; i < b->ranks; i++) { /* the least loaded first */
            loong_share_t *load = &b->load[i];
            load->cost += b->micro[dearest - i].cost;
            *micro_batch(b, round, load->number) = (int32_t)(dearest - i);
        }
    }
    exchange_all(b);
    sort_ranks(b);
    for (int64_t m = 0; m < b->count; m++) {
        b->order[m] = b->micro[b->order[m]].number;
    }
    b->dealt = most_over_mean(b);
}
