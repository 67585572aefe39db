/* SPDX-License-Identifier: Apache-2.0
 *
 * Zero bubble, handcrafted schedule H1 (Qi et al. 2024): as 1F1B, but the
 * gradients of parameters (W) are apart from those that the stage before waits
 * for (B). Rank r puts W off by r micro-batches, which fills what would be its
 * bubble; no rank holds more micro-batches than rank 0 of 1F1B does. Called by
 * schedule.c. Read schedule_impl.h before. */
#include <stdio.h>

#include "schedule_impl.h"

static loong_status_t order(loong_schedule_t *s, int rank)
{
    int total = s->params.micro_batches;
    int forward = LOONG_MIN(s->params.ranks - 1 - rank, total);
    int weights = 0;
    for (int i = 0; i < forward; i++) {
        LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_F, 0, i));
    }
    for (int j = 0; j < total; j++) {
        if (forward < total) {
            LOONG_TRY(
                loongi_schedule_push(s, rank, LOONG_ENTRY_F, 0, forward++));
        }
        LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_B, 0, j));
        if (j >= rank) {
            LOONG_TRY(
                loongi_schedule_push(s, rank, LOONG_ENTRY_W, 0, weights++));
        }
    }
    while (weights < total) {
        LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_W, 0, weights++));
    }
    return LOONG_OK;
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    (void)rank;
    return LOONG_MIN(p->ranks, p->micro_batches);
}

static bool one_chunk(const loong_schedule_params_t *p,
                      char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE, "%d chunks a rank, 1 is allowed",
             p->chunks);
    return p->chunks <= 1;
}

const loong_schedule_kind_t loongi_schedule_zero_bubble_h1 = {
    .name = "zero_bubble_h1",
    .about = "1f1b with the gradients of parameters put off into the bubble",
    .split = true,
    .accepts = one_chunk,
    .order = order,
    .alive = alive,
};
