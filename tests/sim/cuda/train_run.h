/* SPDX-License-Identifier: Apache-2.0
 *
 * A training of a small model on simulated devices, or the processor. */
#ifndef LOONG_TEST_SIM_TRAIN_RUN_H
#define LOONG_TEST_SIM_TRAIN_RUN_H

#include "test.h"

#include "cudasim.h"
#include "device_overhead.h"
#include "trainer_impl.h"

enum { VOCAB = 61, STEPS = 4 };

typedef struct job {
    const char *device; /* or a list of devices: "[cuda:0, cpu:1]" */
    const char *recipe; /* all of it; NULL: made of what follows */
    const char *extra; /* lines of the recipe */
    const char *model; /* more of its keys */
    bool untied;
    const char *dtype;
    const char *activation;
    const char *train; /* more of the keys of `train` */
    const char *data; /* the data set: data, or short: of texts of few tokens */
    const char *data_keys; /* more lines under `data` */
    int ranks;
    int layers;
    int seq_length;
    int batch; /* micro-batches of one sample, of all ranks */
    int steps;
    double timeout; /* of collectives, seconds; 0: 60 */
    int hidden;     /* channels, 16 */
    int64_t copies; /* cudasim_copies when it begins to train */
    int64_t questions[STEPS + 1]; /* cudasim_questions after each step */
    bool measures; /* the rate of products */
    double roof;   /* of a measurement before */
    const char *export_dir; /* NULL; of Hugging Face files at the end */
    loong_context_params_t context; /* who hears its warnings */
    const struct job *other; /* NULL; has a trainer in the same context */
    bool tf32;               /* its trainer says so at the end */
    double loss[STEPS + 1];
    double norm[STEPS + 1];
    uint64_t waits[STEPS + 1];
    double blocked[STEPS + 1]; /* seconds of rank 0, as in its figures */
    loong_replay_stats_t replayed[STEPS + 1];
    uint64_t collectives; /* of rank 0's data-parallel group */
    int links; /* of rank 0, of edges; */
    int64_t waiting; /* bytes of their areas in host memory, of all ranks */
    int64_t pinned; /* of rank 0, between devices of several kinds; */
    int64_t pinned_planned;
    uint32_t params[4]; /* checksum of the last ones, of each rank */
    int64_t calls; /* cudasim_calls when it had ended, or failed */
    /* Of rank 0's device at the end, beside what was planned. */
    loong_device_usage_t usage;
    double rate; /* of products, as it was measured */
    loong_overhead_plan_t overhead;
    int64_t planned;
    loong_trainer_t *trainer; /* of rank 0 */
} job_t;

/* One rank, two layers, two micro-batches, all steps. */
job_t make_job(const char *device, const char *dtype);
/* With job->ranks threads, a device each. */
loong_status_t try_train(loong_context_t *ctx, job_t *job);
/* It succeeds; nothing is left behind on the devices. */
void train(job_t *job);
/* Losses and norms are equal but for `bound`, relative. */
void compare(const job_t *a, const job_t *b, double bound);

/* Where the data lie, and what else a test writes. */
const char *train_dir(void);
int make_data(void **state);
int remove_data(void **state);

#endif
