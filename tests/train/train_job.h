/* SPDX-License-Identifier: Apache-2.0
 *
 * Small trainings for tests: a recipe with overrides, run on some ranks
 * (threads of this process), with what it logged and where it wrote. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "test.h"

#include "loong/trainer.h"

enum { JOB_VOCAB = 61, JOB_LOG = 1 << 16 };

/* A directory with a data set "data", to be removed at the end. */
typedef struct job_place {
    loong_context_t *ctx;
    char dir[64];
} job_place_t;

job_place_t job_begin(void);
void job_end(job_place_t *place);

typedef struct job_result {
    loong_status_t status;
    loong_trainer_state_t state; /* of rank 0 */
    char log[JOB_LOG];           /* of all ranks */
    char error[4096];            /* the trail */
} job_result_t;

/* A Qwen3 of 2 layers in f64 on documents of 61 tokens: 12 samples of 16
 * tokens a step, log.dir <dir>/log, checkpoint.save <dir>/save. `overrides`
 * are lines "a.b=c"; $DIR stands for the directory. */
void job_run(const job_place_t *place, int ranks, const char *overrides,
             job_result_t *result);
/* The same, but loong_trainer_evaluate instead of the run. */
void job_evaluate(const job_place_t *place, int ranks, const char *overrides,
                  job_result_t *result);

/* The numbers of a key in metrics.jsonl, in order; NAN where a line lacks it
 * or has null. Lines of evaluations only when `set` names theirs. */
int job_metrics(const job_place_t *place, const char *set, const char *key,
                double *values, int room);

/* Likewise of the lines about checkpoints. */
int job_saves(const job_place_t *place, const char *key, double *values,
              int room);

/* A tensor of the newest checkpoint in <dir>/<save> as f64, to be freed;
 * returns its elements. */
int64_t job_tensor(const job_place_t *place, const char *save,
                   const char *kind, const char *name, double **values_p);

#endif
