/* SPDX-License-Identifier: Apache-2.0
 *
 * A short training of a recipe in some layout, on ranks that are threads of
 * this process, and how far two of them are apart: what loong-bench parity and
 * the tests of layouts do. */
#ifndef LOONG_LAYOUT_JOB_H
#define LOONG_LAYOUT_JOB_H

#include "loong/context.h"
#include "loong/trainer.h"

/* Writes a data set of `documents` documents, `length` tokens and more each,
 * in which a third of the tokens follows from the one before. */
typedef struct layout_data {
    const char *prefix;
    int64_t vocab_size;
    int documents;
    int length;
    int cycle; /* documents grow by one token over so many; 0: all */
    bool masked; /* every other document has tokens without loss */
    uint32_t seed; /* 0: 7 */
} layout_data_t;
LOONG_NODISCARD loong_status_t layout_data_write(loong_context_t *ctx,
                                                 const layout_data_t *data);

typedef struct layout_job {
    loong_recipe_params_t params; /* overrides, where defaults are */
    const char *path;             /* of the recipe */
    const char *text; /* the recipe itself, path its name; NULL: read it */
    /* Registers what is not built in; NULL: nothing. */
    loong_status_t (*enter)(loong_context_t *ctx);
    int ranks;
    bool plan_only; /* whether it is possible, which costs little */
    /* What is done with the trainer; NULL: loong_trainer_run. */
    loong_status_t (*work)(loong_trainer_t *trainer);
    double *losses;   /* of each step; may be NULL */
    bool refused;     /* when it failed: before the training began */
    int64_t step;     /* that it came to */
    double loss;      /* of that one */
    double grad_norm;
} layout_job_t;

/* One thread of OpenMP for each rank. A request to stop (train.exit_interval)
 * is no error. */
LOONG_NODISCARD loong_status_t layout_job_run(loong_context_t *ctx,
                                              layout_job_t *job);

/* Relative differences by norm of each tensor: the largest of all, and where.
 * Tensors that are zero but for rounding have a least norm. */
typedef struct layout_difference {
    double param;
    double moment;
    char worst[2][192]; /* names of these two; "" while all are equal */
} layout_difference_t;

/* Compares the newest checkpoints of two directories. LOONG_ERR_MISMATCH when
 * they have other tensors. */
LOONG_NODISCARD loong_status_t
layout_job_compare(loong_context_t *ctx, const char *dir, const char *one,
                   layout_difference_t *difference_p);

#endif
