/* SPDX-License-Identifier: Apache-2.0
 *
 * Placing intervals of time in space. Called by memory.c and
 * src/optim/shards_place.c. Read passes.h before. */
#include <stdlib.h>

#include "passes.h"

static int by_size(const void *a, const void *b)
{
    const loong_interval_t *x = *(const loong_interval_t *const *)a;
    const loong_interval_t *y = *(const loong_interval_t *const *)b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x < y ? -1 : x > y;
}

/* Inserts into `placed`, which is sorted by offset. */
static void insert_by_offset(loong_interval_t **placed, int64_t count,
                             loong_interval_t *interval)
{
    int64_t at = count;
    while (at > 0 && placed[at - 1]->offset > interval->offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = interval;
}

/* The smallest gap between intervals that live at the same time, else the
 * end; -1: there is no room below `limit`. */
static int64_t best_gap(loong_interval_t *const *placed, int64_t count,
                        const loong_interval_t *interval, int64_t limit)
{
    int64_t best = -1;
    int64_t best_room = INT64_MAX;
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        const loong_interval_t *other = placed[i];
        if (other->end < interval->begin || other->begin > interval->end) {
            continue;
        }
        int64_t room = other->offset - end;
        if (room >= interval->bytes && room < best_room) {
            best = end;
            best_room = room;
        }
        end = LOONG_MAX(end, loongi_round_up(other->offset + other->bytes,
                                             LOONG_PLACE_ALIGN));
    }
    return best >= 0 || limit - end < interval->bytes ? best : end;
}

loong_status_t loongi_place_intervals(loong_context_t *ctx, int64_t count,
                                      loong_interval_t *intervals,
                                      int64_t *peak_p)
{
    loong_interval_t **sorted = NULL;
    loong_interval_t **placed = NULL;
    LOONG_TRY(loongi_calloc(ctx, (size_t)LOONG_MAX(count, 1) * 2,
                            sizeof(*sorted), "intervals", &sorted));
    placed = sorted + count;
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = &intervals[i];
    }
    qsort(sorted, (size_t)count, sizeof(*sorted), by_size);
    int64_t peak = 0;
    for (int64_t i = 0; i < count; i++) {
        sorted[i]->offset = best_gap(placed, i, sorted[i], INT64_MAX);
        insert_by_offset(placed, i, sorted[i]);
        peak = LOONG_MAX(peak, sorted[i]->offset + sorted[i]->bytes);
    }
    loongi_free(ctx, sorted);
    *peak_p = loongi_round_up(peak, LOONG_PLACE_ALIGN);
    return LOONG_OK;
}

loong_status_t loongi_place_in_gaps(loong_context_t *ctx, int64_t num_placed,
                                    int64_t count,
                                    loong_interval_t *intervals, int64_t limit)
{
    loong_interval_t **sorted = NULL;
    int64_t n = 0;
    LOONG_TRY(loongi_calloc(ctx, (size_t)LOONG_MAX(count, 1) * 2,
                            sizeof(*sorted), "intervals", &sorted));
    loong_interval_t **placed = sorted + count;
    for (int64_t i = 0; i < count; i++) {
        sorted[i] = &intervals[i];
    }
    for (; n < num_placed; n++) {
        insert_by_offset(placed, n, sorted[n]);
    }
    qsort(sorted + num_placed, (size_t)(count - num_placed), sizeof(*sorted),
          by_size);
    for (int64_t i = num_placed; i < count; i++) {
        sorted[i]->offset = best_gap(placed, n, sorted[i], limit);
        if (sorted[i]->offset >= 0) {
            insert_by_offset(placed, n++, sorted[i]);
        }
    }
    loongi_free(ctx, sorted);
    return LOONG_OK;
}
