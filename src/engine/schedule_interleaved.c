/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): a rank holds several
 * chunks, so that a micro-batch passes each rank several times and the bubble
 * shrinks by their number. Micro-batches go in groups of as many as there are
 * ranks: all of the group through one chunk, then through the next. Called by
 * schedule.c. Read schedule_impl.h before. */
#include <stdio.h>

#include "schedule_impl.h"

static int64_t total(const loong_schedule_params_t *p)
{
    return (int64_t)p->chunks * p->micro_batches;
}

static int64_t ahead(const loong_schedule_params_t *p, int rank)
{
    int64_t n = 2 * (int64_t)(p->ranks - 1 - rank) +
                (int64_t)(p->chunks - 1) * p->ranks + (p->pair ? 1 : 0);
    return LOONG_MIN(n, total(p));
}

/* The k-th forward or backward of a rank. */
static loong_status_t push(loong_schedule_t *s, int rank,
                           loong_entry_kind_t kind, int64_t k)
{
    const loong_schedule_params_t *p = &s->params;
    int64_t group = k / ((int64_t)p->ranks * p->chunks);
    int64_t within = k % ((int64_t)p->ranks * p->chunks);
    int chunk = (int)(within / p->ranks);
    int64_t micro_batch = group * p->ranks + within % p->ranks;
    if (kind == LOONG_ENTRY_B) {
        chunk = p->chunks - 1 - chunk;
    }
    return loongi_schedule_push(s, rank, kind, chunk, (int)micro_batch);
}

static loong_status_t order(loong_schedule_t *s, int rank)
{
    int64_t forward = ahead(&s->params, rank);
    for (int64_t k = 0; k < forward; k++) {
        LOONG_TRY(push(s, rank, LOONG_ENTRY_F, k));
    }
    for (int64_t k = 0; k < total(&s->params); k++) {
        bool both = forward < total(&s->params);
        if (both) {
            LOONG_TRY(push(s, rank, LOONG_ENTRY_F, forward++));
        }
        LOONG_TRY(push(s, rank, LOONG_ENTRY_B, k));
        if (both && s->params.pair) {
            loongi_schedule_pair_last(s, rank);
        }
    }
    return LOONG_OK;
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    return LOONG_MIN(ahead(p, rank) + 1, total(p));
}

static bool chunks_in_groups(const loong_schedule_params_t *p,
                             char reason[LOONG_REASON_SIZE])
{
    if (p->chunks < 2) {
        snprintf(reason, LOONG_REASON_SIZE,
                 "%d chunk a rank, 2 or more are wanted; with 1 it would be "
                 "1f1b", p->chunks);
        return false;
    }
    snprintf(reason, LOONG_REASON_SIZE,
             "%d micro-batches, a multiple of the %d ranks is allowed",
             p->micro_batches, p->ranks);
    return p->micro_batches % p->ranks == 0;
}

const loong_schedule_kind_t loongi_schedule_interleaved = {
    .name = "interleaved",
    .about = "1f1b with several chunks a rank",
    .pairs = true,
    .accepts = chunks_in_groups,
    .order = order,
    .alive = alive,
};
