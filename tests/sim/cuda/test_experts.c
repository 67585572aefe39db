/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts over several simulated devices: trainings in every layout of two and
 * four ranks against one rank of the processor, with the routing that it has
 * recorded, and on their own. */
#include "file.h"
#include "train_run.h"

static const char model[] =
    ", num_experts: 4, moe_router_topk: 2, moe_ffn_hidden_size: 12, "
    "moe_aux_loss_coeff: 0.05, moe_z_loss_coeff: 0.01, "
    "moe_shared_expert_intermediate_size: 8, moe_shared_expert_gate: true";

#define EP "expert_model_parallel_size: "
#define ETP "expert_tensor_parallel_size: "
#define A2A "moe_token_dispatcher_type: alltoall, "
#define ALL "moe_capacity_plan: 0, " /* room for all rows: no rounds */
#define FULL "recompute: {granularity: full}\n"
#define SP "sequence_parallel: true, tensor_model_parallel_size: "

static const struct {
    int ranks;
    const char *parallel; /* its keys, `}`, further lines */
} layouts[] = {
    {2, EP "2}"},
    {2, EP "2, data_parallel_sharding: optim_grads_params}"},
    {2, SP "2, " EP "2}"},
    {2, A2A EP "2}"},
    {2, A2A SP "2, " EP "2}"},
    {2, A2A EP "2, pipeline_model_parallel_layout: 'E|t|tL'}\n"
        "schedule: interleaved"},
    {4, A2A SP "2, " EP "2, " ETP "2}"},
    {4, A2A EP "4, context_parallel_size: 2, data_parallel_sharding: optim}"},
    {4, A2A "pipeline_model_parallel_size: 2, " EP "2}"},
};

/* A step whose weights are equal: sums of tens of products in other orders.
 * Then the weights go apart, as far as in tests/parallel/test_router_replay.c.
 */
static void follow(const job_t *want, const job_t *job)
{
    job_t first = *want;
    first.steps = 1;
    compare(&first, job, 64.0 * 0x1p-24);
    compare(want, job, 1e-5);
}

static job_t make_experts(const char *device, const char *dtype)
{
    job_t job = make_job(device, dtype);
    job.model = model;
    return job;
}

/* `key` of router_replay with a file of this name, after the layout. */
static const char *replayed(const char *parallel, const char *key,
                            const char *file, char text[600])
{
    snprintf(text, 600,
             "parallel: {%s\n"
             "router_replay: {%s: %s/%s}\n", parallel, key, train_dir(), file);
    return text;
}

/* What the others are compared with. */
static job_t one;

static int make_one(void **state)
{
    char extra[600];
    make_data(state);
    one = make_experts("cpu", "fp32");
    one.extra = replayed("}", "record_file", "one", extra);
    train(&one);
    return 0;
}

static void test_layouts(void **state)
{
    (void)state;
    char extra[600];
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_t job = make_experts("cuda", "fp32");
        job.extra = replayed(layouts[i].parallel, "replay_file", "one", extra);
        job.ranks = layouts[i].ranks;
        cudasim_seed((uint64_t)i + 1);
        print_message("%s\n", layouts[i].parallel);
        train(&job);
        follow(&one, &job);
    }
}

/* The same bits in every order of the streams, while tokens and the shared
 * expert's sums are on their way at once; and the record is that of one rank of
 * the processor. */
static void test_orders(void **state)
{
    (void)state;
    char extra[600];
    char path[2][300];
    char *bytes[2];
    size_t size[2];
    char name[8];
    job_t first;
    for (uint64_t seed = 1; seed < 5; seed++) {
        job_t job = make_experts("cuda", "fp32");
        snprintf(name, sizeof(name), "two%d", (int)seed);
        job.extra = replayed(A2A EP "2}", "record_file", name, extra);
        job.ranks = 2;
        cudasim_seed(seed);
        train(&job);
        first = seed == 1 ? job : first;
        assert_memory_equal(job.loss, first.loss, sizeof(job.loss));
        assert_memory_equal(job.norm, first.norm, sizeof(job.norm));
    }
    loong_context_t *ctx = test_context();
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", train_dir(),
                 i > 0 ? name : "one");
        assert_ok(ctx, loongi_file_read(ctx, path[i], &bytes[i], &size[i]));
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    loongi_free(ctx, bytes[0]);
    loongi_free(ctx, bytes[1]);
    test_context_end(&ctx);
}

/* Rank 0 waits once a step for norm and loss, and once a layer of the two for
 * how many rows come (all-to-all) or how many rounds they take, not again in
 * the backward: at most, as another rank's waiting may let its device go on. */
static void test_waits(void **state)
{
    (void)state;
    static const struct {
        const char *extra;
        uint64_t waits;
    } runs[] = {
        {"parallel: {" ALL EP "2}\n", 1},
        {"parallel: {" ALL A2A EP "2}\n", 1 + 2},
        {"parallel: {" ALL A2A EP "2}\n" FULL, 1 + 4},
        {"parallel: {" EP "2}\n", 1 + 2},
        {"parallel: {" EP "2}\n" FULL, 1 + 2},
        {"parallel: {" A2A EP "2}\n", 1 + 2},
        {"parallel: {" A2A EP "2}\n" FULL, 1 + 4},
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
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, make_one, remove_data);
}
