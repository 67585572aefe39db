/* SPDX-License-Identifier: Apache-2.0
 *
 * Zero bubble, V-shaped (ZB-V of Qi et al. 2024, "Pipeline parallelism with
 * controllable memory"): a rank holds two chunks, the r-th from the front and
 * the r-th from the end, so that forwards run down the ranks and up again and
 * the loss is on rank 0. With equal F, B and W only the way down to a rank is
 * idle, and every rank holds 2 ranks half-sized micro-batches, as rank 0 of
 * 1F1B does.
 *
 * The orders are those of at least 2 ranks - 1 micro-batches; what a shorter
 * step does not have is left out. Called by schedule.c. Read schedule_impl.h
 * before. */
#include <stdio.h>

#include "schedule_impl.h"

/* What a rank has done so far: [F, B, W][chunk]. */
typedef struct progress {
    loong_schedule_t *schedule;
    int rank;
    int done[3][2];
} progress_t;

static loong_status_t push(progress_t *p, loong_entry_kind_t kind, int chunk)
{
    int row = kind == LOONG_ENTRY_F ? 0 : kind == LOONG_ENTRY_B ? 1 : 2;
    int micro_batch = p->done[row][chunk]++;
    return micro_batch < p->schedule->params.micro_batches
               ? loongi_schedule_push(p->schedule, p->rank, kind, chunk,
                                      micro_batch)
               : LOONG_OK;
}

static loong_status_t push_backward(progress_t *p, int chunk)
{
    LOONG_TRY(push(p, LOONG_ENTRY_B, chunk));
    return push(p, LOONG_ENTRY_W, chunk);
}

/* Until the first backwards are through. */
static loong_status_t warm_up(progress_t *p, int ranks)
{
    for (int i = 0; i < 2 * (ranks - p->rank) - 1; i++) {
        LOONG_TRY(push(p, LOONG_ENTRY_F, 0));
    }
    for (int i = 0; i < p->rank; i++) {
        LOONG_TRY(push(p, LOONG_ENTRY_F, 1));
        LOONG_TRY(push(p, LOONG_ENTRY_F, 0));
    }
    for (int i = 0; i < ranks - p->rank; i++) {
        LOONG_TRY(push(p, LOONG_ENTRY_F, 1));
        LOONG_TRY(push_backward(p, 1));
    }
    return LOONG_OK;
}

static loong_status_t run_steadily(progress_t *p, int total)
{
    const int *forward = p->done[0];
    while (forward[1] < forward[0] || forward[0] < total) {
        if (forward[0] < total) {
            LOONG_TRY(push(p, LOONG_ENTRY_F, 0));
        }
        LOONG_TRY(push_backward(p, 0));
        LOONG_TRY(push(p, LOONG_ENTRY_F, 1));
        LOONG_TRY(push_backward(p, 1));
    }
    return LOONG_OK;
}

/* W fills what would be idle, as late as others do not wait. */
static loong_status_t cool_down(progress_t *p, int ranks)
{
    for (int i = 0; i < p->rank; i++) {
        LOONG_TRY(push(p, LOONG_ENTRY_B, 0));
        LOONG_TRY(push(p, LOONG_ENTRY_B, 1));
    }
    for (int i = 0; i < ranks - p->rank; i++) {
        LOONG_TRY(push_backward(p, 0));
    }
    for (int chunk = 1; chunk >= 0; chunk--) {
        while (p->done[2][chunk] < p->done[1][chunk]) {
            LOONG_TRY(push(p, LOONG_ENTRY_W, chunk));
        }
    }
    return LOONG_OK;
}

static loong_status_t order(loong_schedule_t *s, int rank)
{
    int ranks = s->params.ranks;
    progress_t p = {s, rank, {{0}}};
    LOONG_TRY(warm_up(&p, ranks));
    LOONG_TRY(run_steadily(&p, LOONG_MAX(s->params.micro_batches,
                                         2 * ranks - 1)));
    return cool_down(&p, ranks);
}

static int64_t alive(const loong_schedule_params_t *p, int rank)
{
    (void)rank;
    return 2 * (int64_t)LOONG_MIN(p->ranks, p->micro_batches);
}

static bool two_chunks(const loong_schedule_params_t *p,
                       char reason[LOONG_REASON_SIZE])
{
    snprintf(reason, LOONG_REASON_SIZE,
             "%d chunk%s a rank, 2 are wanted: twice as many stages as ranks",
             p->chunks, p->chunks == 1 ? "" : "s");
    return p->chunks == 0 || p->chunks == 2;
}

const loong_schedule_kind_t loongi_schedule_zero_bubble_v = {
    .name = "zero_bubble_v",
    .about = "two chunks a rank in the form of a V, W in what would be idle",
    .split = true,
    .folded = true,
    .accepts = two_chunks,
    .order = order,
    .alive = alive,
};
