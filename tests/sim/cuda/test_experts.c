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
#define SP "sequence_parallel: true, tensor_model_parallel_size: "

static const struct {
    int ranks;
    const char *parallel;
} layouts[] = {
    {2, EP "2"},
    {2, EP "2, data_parallel_sharding: optim_grads_params"},
    {2, SP "2, " EP "2"},
    {2, SP "2, " ETP "2"},
    {2, "context_parallel_size: 2, " EP "2"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
