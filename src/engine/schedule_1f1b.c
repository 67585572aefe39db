/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk per rank: gradient accumulation on one stage, and 1F1B (Narayanan
 * et al. 2021, PipeDream-Flush): each rank runs as many forwards ahead as there
 * are ranks after it, then one forward and one backward in turn.
 *
 * With pairs, a rank runs one forward further ahead, so that the backward of
 * micro-batch j and the forward of j + ranks - rank are independent of each
 * other. Called by schedule.c. Read schedule_impl.h before. */
#include <stdio.h>

#include "schedule_impl.h"

static int ahead(const loong_schedule_params_t *p, int rank)
{
    return LOONG_MIN(p->ranks - 1 - rank + (p->pair ? 1 : 0),
                     p->micro_batches);
}

static loong_status_t order(loong_schedule_t *s, int rank)
{
    int total = s->params.micro_batches;
    int forward = ahead(&s->params, rank);
    for (int i = 0; i < forward; i++) {
        LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_F, 0, i));
    }
    for (int j = 0; j < total; j++) {
        bool both = forward < total;
        if (both) {
            LOONG_TRY(
                loongi_schedule_push(s, rank, LOONG_ENTRY_F, 0, forward++));
        }
        LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_B, 0, j));
        if (both && s->params.pair) {
            loongi_schedule_pair_last(s, rank);
        }
    }
    return LOONG_OK;
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    return LOONG_MIN(ahead(p, rank) + 1, p->micro_batches);
}

static bool one_chunk(const loong_schedule_params_t *p,
                      char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE, "%d chunks a rank, 1 is allowed",
             p->chunks);
    return p->chunks <= 1;
}

static bool one_stage(const loong_schedule_params_t *p,
                      char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE,
             "%d ranks of %d chunks, 1 of 1 is allowed", p->ranks, p->chunks);
    return p->ranks == 1 && p->chunks <= 1;
}

const loong_schedule_kind_t loongi_schedule_one_stage = {
    .name = "one_stage",
    .about = "the whole model on each rank, micro-batches one after the other",
    .pairs = true,
    .accepts = one_stage,
    .order = order,
    .alive = alive,
};

const loong_schedule_kind_t loongi_schedule_1f1b = {
    .name = "1f1b",
    .about = "one forward, one backward in turn",
    .pairs = true,
    .accepts = one_chunk,
    .order = order,
    .alive = alive,
};
