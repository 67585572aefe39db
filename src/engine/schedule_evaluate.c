/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation: micro-batches flow through the stages, nothing is kept. Called by
 * schedule.c. Read schedule_impl.h before. */
#include "schedule_impl.h"

/* So many micro-batches at a time pass the chunks of a rank one after the
 * other. Where stages come back to a rank that would send the next micro-batch
 * before, it would wait for its own slot. */
static loong_status_t order(loong_schedule_t *s, int rank)
{
    const loong_schedule_params_t *p = &s->params;
    int window = p->folded ? 1 : p->ranks;
    for (int first = 0; first < p->micro_batches; first += window) {
        int end = LOONG_MIN(first + window, p->micro_batches);
        for (int c = 0; c < p->chunks; c++) {
            for (int i = first; i < end; i++) {
                LOONG_TRY(loongi_schedule_push(s, rank, LOONG_ENTRY_E, c, i));
            }
        }
    }
    return LOONG_OK;
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    (void)p;
    (void)rank;
    return 1;
}

const loong_schedule_kind_t loongi_schedule_evaluate = {
    .name = "evaluate",
    .about = "forward without gradients",
    .evaluate = true,
    .order = order,
    .alive = alive,
};
