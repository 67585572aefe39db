/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense trainings in layouts of several simulated devices, each against one
 * rank of the processor: losses and norms of all steps. A pipeline alone gives
 * the bits of one rank of the device. */
#include "train_run.h"

#include <stdlib.h>

#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CP "context_parallel_size: "
#define ZERO "bucket_bytes: 4096, data_parallel_sharding: "
#define CHUNKS "num_layers_per_virtual_pipeline_stage: 1"


typedef struct layout {
    int ranks;
    int layers;
    int batch;
    const char *parallel;
    const char *schedule; /* of a pipeline alone; else NULL */
} layout_t;

enum { SHORT = 3 }; /* steps */

static const layout_t of_two[] = {
    {2, 2, 2, TP "2, sequence_parallel: true", NULL},
    {2, 2, 2, TP "2, sequence_parallel: true, tp_comm_overlap: true", NULL},
    {2, 2, 2, CP "2, cp_comm_type: a2a", NULL},
    {2, 4, 4, PP "2", "zero_bubble_h1"},
    {2, 4, 4, PP "2, " CHUNKS, "zero_bubble_v"},
    {2, 4, 4, PP "2, " CHUNKS, "interleaved"},
};

/* A program has more collectives than any ring of calls or events. */
static const layout_t many = {2, 20, 2, ZERO "optim_grads_params", NULL};

static const layout_t of_four[] = {
    {4, 2, 4, TP "2, sequence_parallel: true, " PP "2", NULL},
    {4, 2, 4, TP "2, sequence_parallel: true, " ZERO "optim", NULL},
    {4, 2, 4, TP "2, " ZERO "optim_grads", NULL},
    {4, 2, 4, TP "2, sequence_parallel: true, " ZERO "optim_grads_params",
     NULL},
    {4, 2, 4, CP "4, cp_comm_type: p2p", NULL},
    {4, 2, 4, CP "4, cp_comm_type: a2a+p2p, "
     "hierarchical_context_parallel_sizes: [2, 2]", NULL},
    {4, 2, 4, CP "2, cp_comm_type: p2p, " PP "2", NULL},
    {4, 2, 4, CP "2, cp_comm_type: a2a, " ZERO "optim_grads_params", NULL},
    {4, 2, 8, PP "2, " ZERO "optim", NULL},
    {4, 2, 8, PP "2, " ZERO "optim_grads_params", NULL},
    {4, 4, 8, PP "4", "1f1b"},
    {4, 4, 8, PP "4", "zero_bubble_h1"},
    {4, 8, 8, PP "4, " CHUNKS, "interleaved"},
    {4, 8, 8, PP "4, " CHUNKS, "zero_bubble_v"},
};

/* The same model and batch on one rank. */
static void train_one(const layout_t *l, const char *device,
                      const char *dtype, int steps, job_t *job_p)
{
    static job_t last;
    if (last.steps != steps || last.layers != l->layers ||
        last.batch != l->batch || strcmp(last.device, device) != 0 ||
        strcmp(last.dtype, dtype) != 0) {
        last = make_job(device, dtype);
        last.layers = l->layers;
        last.batch = l->batch;
        last.untied = true;
        last.steps = steps;
        train(&last);
    }
    *job_p = last;
}

static void train_layout(const layout_t *l, const char *dtype, int steps,
                         uint64_t seed, job_t *job_p)
{
    char extra[500];
    job_t job = make_job("cuda", dtype);
    job.ranks = l->ranks;
    job.layers = l->layers;
    job.batch = l->batch;
    job.untied = true;
    job.steps = steps;
    snprintf(extra, sizeof(extra), "parallel: {%s}\nschedule: %s\n",
             l->parallel, l->schedule != NULL ? l->schedule : "auto");
    job.extra = extra;
    print_message("%s%s, seed %d\n", extra, dtype, (int)seed);
    cudasim_seed(seed);
    train(&job);
    *job_p = job;
}

static void near_processor(const layout_t *l, const char *dtype, int steps,
                           uint64_t seed)
{
    job_t one;
    job_t job;
    bool narrow = strcmp(dtype, "bf16") == 0;
    train_one(l, "cpu", dtype, steps, &one);
    train_layout(l, dtype, steps, seed, &job);
    compare(&one, &job, narrow ? 4.0 * 0x1p-8 : 64.0 * 0x1p-24);
}

static void equal_device(const layout_t *l, const char *dtype, int steps,
                         uint64_t seed)
{
    job_t one;
    job_t job;
    train_one(l, "cuda", dtype, steps, &one);
    train_layout(l, dtype, steps, seed, &job);
    assert_memory_equal(job.loss, one.loss, sizeof(job.loss));
    assert_memory_equal(job.norm, one.norm, sizeof(job.norm));
}

static void test_two(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(of_two); i++) {
        near_processor(&of_two[i], "fp32", SHORT, (uint64_t)i + 1);
    }
}

static void test_many(void **state)
{
    (void)state;
    job_t one;
    job_t job;
    train_one(&many, "cpu", "fp32", 1, &one);
    train_layout(&many, "fp32", 1, 4, &job);
    compare(&one, &job, 64.0 * 0x1p-24);
    assert_true(job.collectives > 100);
}

static void test_four(void **state)
{
    (void)state;
    near_processor(&of_four[0], "fp32", SHORT, 3);
}

static void test_bf16(void **state)
{
    (void)state;
    near_processor(&of_two[0], "bf16", SHORT, 5);
    equal_device(&of_two[LOONG_COUNT_OF(of_two) - 1], "bf16", SHORT, 2);
}

static void try_all(int64_t count, const layout_t *layouts, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        const layout_t *l = &layouts[i];
        uint64_t own = 20 * seed + (uint64_t)i;
        near_processor(l, "fp32", STEPS, own);
        if (l->schedule != NULL) {
            equal_device(l, "fp32", STEPS, own);
            equal_device(l, "bf16", STEPS, own);
        } else {
            near_processor(l, "bf16", STEPS, own);
        }
    }
}

/* All of them, in bf16 too. */
static void test_long(void **state)
{
    (void)state;
    try_all(LOONG_COUNT_OF(of_two), of_two, 1);
    try_all(LOONG_COUNT_OF(of_four), of_four, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_four),
        cmocka_unit_test(test_bf16),
    };
    const struct CMUnitTest more[] = {
        cmocka_unit_test(test_long),
    };
    bool all = argc > 1 && strcmp(argv[1], "long") == 0;
    return all ? cmocka_run_group_tests(more, make_data, remove_data)
               : cmocka_run_group_tests(tests, make_data, remove_data);
}
