/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainings of adapters that begin with a peft directory of
 * tests/golden/lora/, on the samples that lora.py takes. */
#ifndef LORA_JOB_H
#define LORA_JOB_H

#include "safetensors.h"
#include "train_job.h"

#define GOLDEN LOONG_SOURCE_DIR "/tests/golden/"

enum { LORA_STEPS = 20 };

typedef struct lora_case {
    const char *name;
    const char *fixture;
    const char *keys;
} lora_case_t;

/* NULL: behind the last. */
const lora_case_t *lora_case_at(int index);
const lora_case_t *lora_case(const char *name);

/* A directory with the samples. */
job_place_t lora_begin(const lora_case_t *c);

void lora_run(const job_place_t *p, const lora_case_t *c, int ranks,
              const char *keys);

/* which: "" or "kl_", a training with a divergence. The log has nine digits. */
void lora_compare_curve(const job_place_t *p, const lora_case_t *c,
                        const char *which, const char *what, int steps,
                        double bound);

/* Every tensor of peft's is in the export, of the same numbers. */
void lora_compare(const job_place_t *p, const lora_case_t *c, const char *which,
                  const char *what, double bound);

/* Of the checkpoint, to `to` below the place. */
void lora_export(const job_place_t *p, bool merge, const char *to,
                 char path[400]);

double lora_at(const loong_safetensor_t *t, int64_t element);

#endif
