/* SPDX-License-Identifier: Apache-2.0
 *
 * All forwards, then all backwards (Huang et al. 2019, GPipe): of components
 * that others read, whose computations a join places among those of the last
 * one. Called by schedule.c. Read schedule_impl.h before. */
#include "schedule_impl.h"

/* As many micro-batches as there are ranks pass the chunks of a rank one after
 * the other, forwards through the first chunk first. */
static loong_status_t push_all(loong_schedule_t *s, int rank,
                               loong_entry_kind_t kind)
{
    const loong_schedule_params_t *p = &s->params;
    bool back = kind == LOONG_ENTRY_B;
    for (int first = 0; first < p->micro_batches; first += p->ranks) {
        int end = LOONG_MIN(first + p->ranks, p->micro_batches);
        for (int c = 0; c < p->chunks; c++) {
            int chunk = back ? p->chunks - 1 - c : c;
            for (int i = first; i < end; i++) {
                LOONG_TRY(loongi_schedule_push(s, rank, kind, chunk, i));
            }
        }
    }
    return LOONG_OK;
}

static loong_status_t order(loong_schedule_t *s, int rank)
{
    LOONG_TRY(push_all(s, rank, LOONG_ENTRY_F));
    return push_all(s, rank, LOONG_ENTRY_B);
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    (void)rank;
    return (int64_t)p->chunks * p->micro_batches;
}

const loong_schedule_kind_t loongi_schedule_gpipe = {
    .name = "gpipe",
    .about = "all forwards, then all backwards",
    .order = order,
    .alive = alive,
};
