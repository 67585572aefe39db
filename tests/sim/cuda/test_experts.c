/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts over several simulated devices: trainings in every layout of two and
 * four ranks against one rank of the processor, with the routing that it has
 * recorded, and on their own. */
#include "train_run.h"

#include <math.h>

static const char model[] =
    ", num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 12, "
    "moe_aux_loss_coeff: 0.05, moe_z_loss_coeff: 0.01, "
    "moe_shared_expert_intermediate_size: 8, moe_shared_expert_gate: true";

#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define A2A "moe_token_dispatcher_type: alltoall, "
#define SP "sequence_parallel: true, tensor_model_parallel_size: "

static const struct {
    int ranks;
    const char *parallel;
} layouts[] = {
    {2, EP "2"},
    {2, EP "2, data_parallel_sharding: optim_grads_params"},
    {2, SP "2, " EP "2"},
    {2, A2A EP "2"},
    {2, A2A SP "2, " EP "2"},
    {4, A2A SP "2, " EP "2, " ETP "2"},
    {4, A2A "context_parallel_size: 2, " EP "4, data_parallel_sharding: optim"},
    {4, A2A "pipeline_model_parallel_size: 2, " EP "2"},
};

/* A step whose weights are equal: sums of tens of products in other orders.
 * Then the weights go apart, as far as in tests/parallel/test_router_replay.c.
 */
static void follow(const job_t *one, const job_t *job)
{
    job_t first = *one;
    first.steps = 1;
    compare(&first, job, 64.0 * 0x1p-24);
    compare(one, job, 1e-5);
}

static job_t make_experts(const char *device, const char *dtype)
{
    job_t job = make_job(device, dtype);
    job.model = model;
    return job;
}

static void test_layouts(void **state)
{
    (void)state;
    char extra[600];
    char record[300];
    job_t one = make_experts("cpu", "fp32");
    snprintf(record, sizeof(record), "router_replay: {record_file: %s/one}\n",
             train_dir());
    one.extra = record;
    train(&one);
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_t job = make_experts("cuda", "fp32");
        snprintf(extra, sizeof(extra),
                 "parallel: {%s}\n"
                 "router_replay: {replay_file: %s/one}\n",
                 layouts[i].parallel, train_dir());
        job.extra = extra;
        job.ranks = layouts[i].ranks;
        cudasim_seed((uint64_t)i + 1);
        print_message("%s\n", layouts[i].parallel);
        train(&job);
        follow(&one, &job);
    }
}

/* Rank 0 waits once a step for norm and loss, and with all-to-all once a layer
 * of the two for how many rows come, not again in the backward: at most, as
 * another rank's waiting may let its device go on. */
static void test_waits(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        uint64_t waits;
    } runs[] = {
        {"parallel: {" EP "2}\n", 1},
        {"parallel: {" A2A EP "2}\n", 1 + 2},
        {"parallel: {" A2A EP "2}\nrecompute: {granularity: full}\n", 1 + 4},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(runs); i++) {
        job_t job = make_experts("cuda", "fp32");
        job.extra = runs[i].extra;
        job.ranks = 2;
        job.steps = 3;
        cudasim_seed((uint64_t)i + 1);
        cudasim_pace(0.0);
        train(&job);
        for (int s = 2; s <= job.steps; s++) {
            assert_true(job.waits[s] - job.waits[s - 1] <= runs[i].waits);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
