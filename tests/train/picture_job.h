/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures for small trainings of vision transformers. */
#ifndef PICTURE_JOB_H
#define PICTURE_JOB_H

#include "train_job.h"

/* A place with twelve pictures of several formats in <dir>/pictures, four of
 * each of the classes a, b and c. */
job_place_t pictures_begin(void);

/* Adds one of tests/fixtures/images to <dir>/pictures/<class>. */
void pictures_copy(const job_place_t *place, const char *name,
                   const char *class);

/* Trains tests/golden/vision/<model> on <dir>/pictures, with further lines of
 * overrides: loss and gradient norm of twenty steps of AdamW are those of its
 * train.txt (vision_train.py), to the nine digits of the metrics. */
void pictures_twenty_steps(const job_place_t *place, const char *model,
                           const char *overrides);

#endif
