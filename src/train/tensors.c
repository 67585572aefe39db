/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor logging: in chosen steps the statistics of chosen tensors, over all
 * micro-batches and ranks, go to metrics.jsonl and TensorBoard. The programs
 * measure (pass/watch.c), here they are brought together and told. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer_impl.h"

/* Only data parallel layouts log tensors: one stage has the whole model. */
static int64_t num_watches(const loong_trainer_t *t)
{
    const loong_chunk_t *chunk =
        t->component->stages[0]->chunk[LOONG_STAGE_TRAIN];
    return chunk != NULL ? chunk->num_watches : 0;
}

loong_status_t loongi_tensors_open(loong_trainer_t *t)
{
    return loongi_calloc(t->ctx, (size_t)(3 * num_watches(t)),
                         sizeof(*t->tensors), "statistics of tensors",
                         &t->tensors);
}

bool loongi_tensors_due(const loong_trainer_t *t)
{
    return num_watches(t) > 0 &&
           (t->state.step + 1) % t->set.tensors_interval == 0;
}

/* Sums and counts of all watches, then their maxima. */
static loong_status_t gather(loong_trainer_t *t)
{
    const loong_chunk_t *c = t->component->stages[0]->chunk[LOONG_STAGE_TRAIN];
    const char *base = t->component->stages[0]->run.base[LOONG_BASE_STATE];
    int64_t n = c->num_watches;
    for (int64_t i = 0; i < n; i++) {
        double stats[3];
        memcpy(stats, base + c->watches[i].offset, sizeof(stats));
        t->tensors[i] = stats[0];
        t->tensors[n + i] = stats[2];
        t->tensors[2 * n + i] = stats[1];
    }
    LOONG_TRY(loong_comm_all_reduce(t->comm, t->tensors, 2 * n, LOONG_F64,
                                    LOONG_REDUCE_SUM, "logged tensors"));
    return loong_comm_all_reduce(t->comm, t->tensors + 2 * n, n, LOONG_F64,
                                 LOONG_REDUCE_MAX, "logged tensors");
}

static loong_status_t tell_board(loong_trainer_t *t, const loong_watch_t *w,
                                 double unix_time, const double figures[3])
{
    static const char *const names[3] = {"norm", "max", "not_finite"};
    char tag[LOONG_METRICS_LINE];
    for (int k = 0; k < 3; k++) {
        snprintf(tag, sizeof(tag), "tensors/%s/%s%s", w->name,
                 w->gradient ? "gradient_" : "", names[k]);
        LOONG_TRY(loongi_tensorboard_scalar(t->report.board, t->state.step + 1,
                                            unix_time, tag, figures[k]));
    }
    return LOONG_OK;
}

static loong_status_t tell(loong_trainer_t *t, int64_t i, double unix_time)
{
    int64_t n = num_watches(t);
    const loong_watch_t *w =
        &t->component->stages[0]->chunk[LOONG_STAGE_TRAIN]->watches[i];
    const double figures[3] = {sqrt(t->tensors[i]), t->tensors[2 * n + i],
                               t->tensors[n + i]};
    char line[LOONG_METRICS_LINE];
    snprintf(line, sizeof(line),
             "{\"step\": %lld, \"tensor\": \"%s\", \"of\": \"%s\", "
             "\"norm\": %.9g, \"max\": %.9g, \"not_finite\": %.0f}",
             (long long)t->state.step + 1, w->name,
             w->gradient ? "gradient" : "output", figures[0], figures[1],
             figures[2]);
    LOONG_TRY(loongi_jsonl_add(t->report.jsonl, line));
    return t->report.board != NULL ? tell_board(t, w, unix_time, figures)
                                   : LOONG_OK;
}

loong_status_t loongi_tensors_report(loong_trainer_t *t)
{
    double now = loongi_unix_time();
    LOONG_TRY(gather(t));
    for (int64_t i = 0; i < num_watches(t) && t->report.jsonl != NULL; i++) {
        LOONG_TRY(tell(t, i, now));
    }
    return LOONG_OK;
}
