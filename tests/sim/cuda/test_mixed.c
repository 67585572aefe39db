/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainings whose ranks have devices of two kinds, against one rank of the
 * processor: losses and norms of all steps, in every way of sharing the work
 * between a simulated device and the processor. */
#include "train_run.h"

#include <stdlib.h>

#define TP "tensor_model_parallel_size: "
#define PP "pipeline_model_parallel_size: "
#define CP "context_parallel_size: "
#define ZERO "bucket_bytes: 4096, data_parallel_sharding: "
#define PAIRS "overlap_moe_expert_parallel_comm: true, "

#define GRAPHS ", cuda_graph_impl: local"
#define STAGED "comm: {device_backend: staged}\n"

enum { SHORT = 3 }; /* steps */

typedef struct layout {
    int ranks;
    int layers;
    int batch;
    const char *devices;
    const char *parallel;
    const char *more; /* lines of the recipe */
    const char *train; /* more of its keys */
} layout_t;

static const layout_t dense[] = {
    {2, 2, 4, "[cuda:0, cpu:1]", PP "2", "", ""},
    {2, 2, 4, "[cpu:0, cuda:1]", PP "2", "schedule: zero_bubble_h1\n", ""},
    {2, 2, 4, "[cuda:0, cpu:1]", ZERO "none", "", ""},
    {2, 2, 4, "[cpu:0, cuda:1]", ZERO "optim_grads", "", ""},
    {2, 2, 4, "[cuda:0, cpu:1]", ZERO "optim_grads_params", "", ""},
    {2, 2, 4, "[cuda:0, cpu:1]", PAIRS ZERO "optim_grads_params", "", ""},
    {2, 2, 2, "[cuda:0, cpu:1]", TP "2, sequence_parallel: true", "", ""},
    {4, 2, 4, "[cuda:0-1, cpu:2-]", PP "2, " TP "2", "", ""},
    {4, 4, 8, "[cuda:0, cpu:1-2, cuda:3]", PP "4", "", ""},
    {4, 2, 4, "[cuda:0-1, cpu:2-]", PP "2", "", GRAPHS},
    {2, 2, 4, "[cuda:0, cpu:1]", ZERO "optim", "", GRAPHS},
    {2, 2, 4, "[cuda:0-1]", ZERO "optim_grads_params", STAGED, GRAPHS},
    {2, 2, 4, "[cuda:0-1]", PP "2", STAGED, ""},
};

static void train_one(const layout_t *l, int steps, job_t *job_p)
{
    static job_t last;
    if (last.steps != steps || last.layers != l->layers ||
        last.batch != l->batch) {
        last = make_job("cpu", "fp32");
        last.layers = l->layers;
        last.batch = l->batch;
        last.untied = true;
        last.steps = steps;
        train(&last);
    }
    *job_p = last;
}

/* Rank 0: the memory of the plan; what communicates stays out of graphs. */
static void check_rank(const layout_t *l, const job_t *job, int steps)
{
    const loong_replay_stats_t *r = &job->replayed[steps];
    bool device = strncmp(l->devices, "[cuda:0", 7) == 0;
    assert_true(job->pinned == job->pinned_planned);
    assert_true((job->pinned > 0) == device);
    if (l->train[0] != '\0') {
        assert_true(r->graphs > 0 && r->launches > 0 && !r->off);
    }
}

/* As near as layouts of one kind are, test_layouts.c. */
static void near_processor(const layout_t *l, int steps, uint64_t seed)
{
    char extra[600];
    job_t one;
    job_t job = make_job(l->devices, "fp32");
    train_one(l, steps, &one);
    job.ranks = l->ranks;
    job.layers = l->layers;
    job.batch = l->batch;
    job.untied = true;
    job.train = l->train;
    job.steps = steps;
    snprintf(extra, sizeof(extra), "parallel: {%s}\n%s", l->parallel, l->more);
    job.extra = extra;
    print_message("%s, seed %d, %s", l->devices, (int)seed, extra);
    cudasim_seed(seed);
    train(&job);
    compare(&one, &job, 64.0 * 0x1p-24);
    check_rank(l, &job, steps);
}

static void test_dense(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(dense); i++) {
        near_processor(&dense[i], SHORT, (uint64_t)i + 1);
    }
}

/* ---- experts ------------------------------------------------------------- */

static const char experts[] =
    ", num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 12, "
    "moe_aux_loss_coeff: 0.05, moe_z_loss_coeff: 0.01, "
    "moe_shared_expert_intermediate_size: 8, moe_shared_expert_gate: true";

#define EP "expert_model_parallel_size: "
#define A2A "moe_token_dispatcher_type: alltoall, "

static const layout_t routed[] = {
    {2, 2, 2, "[cuda:0, cpu:1]", EP "2", "", ""},
    {2, 2, 2, "[cpu:0, cuda:1]", A2A EP "2", "", ""},
    {2, 2, 2, "[cuda:0, cpu:1]", A2A "sequence_parallel: true, " TP "2, " EP
     "2", "", ""},
    {4, 2, 2, "[cuda:0, cpu:1, cpu:2, cuda:3]", A2A PP "2, " EP "2", "", ""},
};

static void set_extra(const char *parallel, const char *key, char extra[600])
{
    snprintf(extra, 600, "parallel: {%s}\nrouter_replay: {%s: %s/routes}\n",
             parallel, key, train_dir());
}

/* With the routing of one rank of the processor, as in test_experts.c: a step
 * of equal weights, then as far as they go apart. */
static void test_experts(void **state)
{
    (void)state;
    char extra[600];
    job_t one = make_job("cpu", "fp32");
    one.model = experts;
    one.steps = SHORT;
    set_extra("", "record_file", extra);
    one.extra = extra;
    train(&one);
    for (int64_t i = 0; i < LOONG_COUNT_OF(routed); i++) {
        const layout_t *l = &routed[i];
        job_t job = make_job(l->devices, "fp32");
        job_t first = one;
        job.model = experts;
        job.steps = SHORT;
        job.ranks = l->ranks;
        set_extra(l->parallel, "replay_file", extra);
        job.extra = extra;
        print_message("%s, %s", l->devices, extra);
        cudasim_seed((uint64_t)i + 1);
        train(&job);
        first.steps = 1;
        compare(&first, &job, 64.0 * 0x1p-24);
        compare(&one, &job, 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
