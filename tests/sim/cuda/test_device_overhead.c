/* SPDX-License-Identifier: Apache-2.0
 *
 * What the plan says of a device's memory, arenas and what is beside them,
 * against what the simulated device counts. It has no context, and NCCL no
 * buffers there. */
#include "test.h"

#include "train_run.h"

enum { PIECE = 512 }; /* bytes of a kernel or copy in a graph */

static double beside(const job_t *job)
{
    return (double)job->usage.total - (double)job->usage.available -
           (double)job->usage.pool;
}

static const char *const layouts[] = {
    "",
    "parallel: {data_parallel_sharding: optim_grads_params}\n",
    "parallel: {tensor_model_parallel_size: 2}\n",
    "parallel: {pipeline_model_parallel_size: 2}\n",
};
/* Pipeline: two links, and one for the embedding that both ends hold. */
static const int communicators[] = {0, 1, 1, 3};

/* Without graphs nothing is beside the pool, and the pool has the arenas. */
static void test_arenas(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_t job = make_job("cuda", "fp32");
        job.extra = layouts[i];
        job.ranks = i > 0 ? 2 : 1;
        train(&job);
        const loong_overhead_plan_t *b = &job.overhead;
        print_message("%splanned %lld, allocated %zu, %d communicators\n",
                      layouts[i], (long long)job.planned, job.usage.pool_most,
                      b->communicators);
        assert_true(beside(&job) == 0.0);
        assert_true(b->bytes[0] + b->bytes[1] + b->bytes[2] == 0.0);
        assert_int_equal(b->graphs, 0);
        assert_int_equal(b->communicators, communicators[i]);
        assert_true(job.usage.pool_most >= (size_t)job.planned);
        /* Frames, and what kernels and norms keep. */
        assert_true(job.usage.pool_most < (size_t)job.planned + 65536);
    }
}

/* Parameters and the low halves of their masters are on the device after a copy
 * for each tensor of less than 4 MiB, and few others. */
static void test_upload(void **state)
{
    enum { HIDDEN = 2048, TENSORS = 2 + 2 * 9, OTHERS = 16 };
    (void)state;
    job_t job = make_job("cuda", "bf16");
    job.hidden = HIDDEN;
    job.layers = 2;
    job.steps = 1;
    int64_t copies = cudasim_copies();
    train(&job);
    assert_in_range(job.copies - copies, TENSORS, 2 * TENSORS + OTHERS);
}

/* The matrices of the rate of products are gone when it is known, though the
 * pool keeps what is freed. */
static void test_rate(void **state)
{
    (void)state;
    job_t job = make_job("cuda", "fp32");
    job.measures = true;
    job.roof = 1e-9;
    job.extra = layouts[1]; /* its update leaves collectives under way */
    job.ranks = 2;
    int64_t uniform = cudasim_uniform_products();
    train(&job);
    assert_int_equal(cudasim_uniform_products(), uniform);
    assert_true(job.rate > job.roof);
    assert_true(beside(&job) == 0.0);
    assert_true(job.usage.pool_most < (size_t)job.planned + 65536);
    assert_true(job.usage.pool < (size_t)job.planned + 65536);
}

/* Graphs are as many as planned, also of evaluations that come again; their
 * pieces about so many. */
static void test_graphs(void **state)
{
    (void)state;
    static const int kinds[] = {0, 1, 2, 3, 0, 3};
    for (int64_t n = 0; n < LOONG_COUNT_OF(kinds); n++) {
        int i = kinds[n];
        bool evaluates = n >= LOONG_COUNT_OF(layouts);
        char extra[200];
        snprintf(extra, sizeof(extra), "%s%s", layouts[i],
                 evaluates ? "eval: {interval: 2, iters: 1}\n" : "");
        job_t job = make_job("cuda", "fp32");
        job.extra = extra;
        job.data_keys = "  validation_split: 0.3\n";
        job.train = ", cuda_graph_impl: local";
        job.ranks = i > 0 ? 2 : 1;
        train(&job);
        int64_t graphs = job.replayed[STEPS].graphs;
        print_message("%s%lld graphs, planned %lld, %.0f bytes, planned %.0f\n",
                      layouts[i], (long long)graphs,
                      (long long)job.overhead.graphs, beside(&job),
                      job.overhead.bytes[1]);
        assert_int_equal(job.overhead.graphs, graphs);
        assert_true(beside(&job) == (double)job.replayed[STEPS].bytes);
        assert_true(job.overhead.bytes[1] ==
                    (double)(PIECE * job.overhead.pieces));
        assert_true(beside(&job) > 0.6 * job.overhead.bytes[1]);
        assert_true(beside(&job) < 1.6 * job.overhead.bytes[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_upload),
        cmocka_unit_test(test_graphs),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
