/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs replayed as graphs of the simulated device: the bits of a training
 * that launches step by step, in every layout; an edge that is missing shows; a
 * capture that fails ends the run, or with `auto` leaves it as it was. */
#include "train_run.h"

#define LOCAL ", cuda_graph_impl: local"
#define AUTO ", cuda_graph_impl: auto"

/* ---- what goes wrong on purpose ------------------------------------------ */

static bool drop_waits; /* of a graph, for collectives */
static int64_t dropped;
static int64_t fail_within; /* the n-th call of the runtime, of each capture */
static int64_t fail_at_end; /* likewise, of those that end it */
static int fail_piece = -1; /* the end of this one, where there are several */
static _Thread_local bool capturing;

loong_status_t __real_loongi_replay_begin(loong_replay_t *replay,
                                          const loong_recording_t *recording);
loong_status_t __wrap_loongi_replay_begin(loong_replay_t *replay,
                                          const loong_recording_t *recording);
loong_status_t __wrap_loongi_replay_begin(loong_replay_t *replay,
                                          const loong_recording_t *recording)
{
    capturing = true;
    loong_status_t status = __real_loongi_replay_begin(replay, recording);
    if (fail_within > 0) {
        cudasim_fail_at(fail_within, cudaErrorMemoryAllocation);
    }
    return status;
}

loong_status_t __real_loongi_replay_end(loong_replay_t *replay,
                                        const loong_recording_t *recording,
                                        loong_piece_t *piece,
                                        loong_status_t status, bool *go_on_p);
loong_status_t __wrap_loongi_replay_end(loong_replay_t *replay,
                                        const loong_recording_t *recording,
                                        loong_piece_t *piece,
                                        loong_status_t status, bool *go_on_p);
loong_status_t __wrap_loongi_replay_end(loong_replay_t *replay,
                                        const loong_recording_t *recording,
                                        loong_piece_t *piece,
                                        loong_status_t status, bool *go_on_p)
{
    capturing = false;
    if (recording->num_pieces > 1 &&
        piece - recording->pieces == fail_piece) {
        cudasim_fail_at(1, cudaErrorMemoryAllocation);
    }
    if (fail_at_end > 0) {
        cudasim_fail_at(fail_at_end, cudaErrorMemoryAllocation);
    }
    return __real_loongi_replay_end(replay, recording, piece, status,
                                    go_on_p);
}

loong_status_t __real_loongi_async_await(loong_async_t *async, int track,
                                         int64_t number);
loong_status_t __wrap_loongi_async_await(loong_async_t *async, int track,
                                         int64_t number);
loong_status_t __wrap_loongi_async_await(loong_async_t *async, int track,
                                         int64_t number)
{
    if (drop_waits && capturing) {
        dropped++;
        return LOONG_OK;
    }
    return __real_loongi_async_await(async, track, number);
}

/* Steps of this op need the host. */
static const char *by_host;
static _Thread_local loong_kernel_t host_kernel;

loong_status_t __real_loongi_replay_find(loong_replay_t *replay,
                                         const loong_replay_job_t *job,
                                         loong_recording_t **recording_p);
loong_status_t __wrap_loongi_replay_find(loong_replay_t *replay,
                                         const loong_replay_job_t *job,
                                         loong_recording_t **recording_p);
loong_status_t __wrap_loongi_replay_find(loong_replay_t *replay,
                                         const loong_replay_job_t *job,
                                         loong_recording_t **recording_p)
{
    for (int64_t i = 0; i < job->program[0]->num_steps && by_host; i++) {
        loong_step_t *step = &job->program[0]->steps[i];
        if (strcmp(step->query.op, by_host) == 0) {
            host_kernel =
                step->kernel != &host_kernel ? *step->kernel : host_kernel;
            host_kernel.waits = true;
            step->kernel = &host_kernel;
        }
    }
    return __real_loongi_replay_find(replay, job, recording_p);
}

/* ---- the same bits ------------------------------------------------------- */

typedef struct layout {
    const char *name;
    int ranks;
    const char *dtype;
    const char *model;
    const char *data;
    const char *data_keys;
    const char *extra;
} layout_t;

#define SHARDED                                                     \
    "parallel: {data_parallel_sharding: optim_grads_params,\n"      \
    "  bucket_bytes: 4096}\n"                                       \
    "comm: {overlap_work: 0}\n"

static const layout_t layouts[] = {
    {"evaluation, logged tensors", 1, "fp32", "", "data",
     "  validation_split: 0.3\n",
     "eval: {interval: 1, iters: 1}\n"
     "log: {tensors: [\"layers.0.*\"], tensors_interval: 3}\n"},
    {"packed texts, dropout, bf16", 1, "auto",
     ", attention_dropout: 0.1, hidden_dropout: 0.1", "short",
     "  reset_position_ids: true\n  reset_attention_mask: true\n",
     "recompute: {granularity: full}\n"},
    {"experts", 1, "fp32", ", num_experts: 4, moe_ffn_hidden_size: 12", "data",
     "", ""},
    {"data parallel, parameters shared out", 2, "fp32", "", "data", "",
     SHARDED},
    {"tensor parallel", 2, "fp32", "", "data", "",
     "parallel: {tensor_model_parallel_size: 2}\n"
     "comm: {overlap_work: 0}\n"},
    {"experts of two ranks, all-to-all", 2, "fp32",
     ", num_experts: 4, moe_ffn_hidden_size: 12, "
     "moe_shared_expert_intermediate_size: 8", "data", "",
     "parallel: {expert_model_parallel_size: 2,\n"
     "  moe_token_dispatcher_type: alltoall}\n"},
    {"the same, in pairs", 2, "fp32",
     ", num_experts: 4, moe_ffn_hidden_size: 12, "
     "moe_shared_expert_intermediate_size: 8", "data", "",
     "parallel: {expert_model_parallel_size: 2, sequence_parallel: true,\n"
     "  tensor_model_parallel_size: 2, moe_token_dispatcher_type: alltoall,\n"
     "  overlap_moe_expert_parallel_comm: true}\n"
     "comm: {overlap_work: 0}\n"},
    {"two stages", 2, "fp32", "", "data", "",
     "parallel: {pipeline_model_parallel_size: 2}\n"},
};

static job_t job_of(const layout_t *l, const char *graphs)
{
    job_t job = make_job("cuda", l->dtype);
    job.ranks = l->ranks;
    job.model = l->model;
    job.data = l->data;
    job.data_keys = l->data_keys;
    job.extra = l->extra;
    job.train = graphs;
    return job;
}

static bool same_bits(const job_t *a, const job_t *b)
{
    return memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
           memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 &&
           memcmp(a->params, b->params, sizeof(a->params)) == 0;
}

/* In the last step nothing is launched by itself, and the host waits once. */
static void check_replayed(const layout_t *layout, const job_t *job)
{
    const loong_replay_stats_t *last = &job->replayed[STEPS];
    const loong_replay_stats_t *before = &job->replayed[STEPS - 1];
    int64_t graphs = last->launches - before->launches;
    print_message("  step 1: %lld operations one by one; step %d: %lld graphs "
                  "of %lld kernels and copies, %lld operations one by one; "
                  "%lld graphs, %lld bytes\n",
                  (long long)job->replayed[1].steps, STEPS,
                  (long long)graphs, (long long)(last->held - before->held),
                  (long long)(last->steps - before->steps),
                  (long long)last->graphs, (long long)last->bytes);
    assert_int_equal(job->replayed[1].launches, 0);
    assert_true(job->replayed[1].graphs > 0); /* between steps, not in them */
    if (strstr(layout->extra, "alltoall") != NULL) { /* with the host */
        assert_true(last->steps > before->steps && graphs > 12);
        return;
    }
    assert_int_equal(last->steps, before->steps);
    assert_true(graphs >= 4 && graphs <= 12);
    assert_true(last->held - before->held >= job->replayed[1].steps);
    if (job->ranks == 1) { /* messages between stages wait as well */
        assert_true(job->waits[STEPS] - job->waits[STEPS - 1] <= 1);
    }
    assert_int_equal(last->bytes % 512, 0); /* of a node of the simulator */
    assert_true(last->bytes > 0 && !last->off);
}

static void test_equal(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_t plain = job_of(&layouts[i], "");
        job_t graphs = job_of(&layouts[i], LOCAL);
        print_message("%s\n", layouts[i].name);
        cudasim_seed((uint64_t)i + 3);
        train(&plain);
        cudasim_seed((uint64_t)i + 5);
        train(&graphs);
        assert_true(same_bits(&plain, &graphs));
        assert_true(graphs.replayed[STEPS].launches > 0);
        if (i > 0) { /* an evaluation waits as well */
            check_replayed(&layouts[i], &graphs);
        }
    }
}

/* Steps that need the host stand between graphs: one in each of two layers. */
static void test_pieces(void **state)
{
    (void)state;
    job_t plain = job_of(&layouts[3], "");
    job_t graphs = job_of(&layouts[3], LOCAL);
    const loong_replay_stats_t *last = &graphs.replayed[STEPS];
    const loong_replay_stats_t *before = &graphs.replayed[STEPS - 1];
    train(&plain);
    by_host = "swiglu";
    train(&graphs);
    by_host = NULL;
    assert_int_equal(last->steps - before->steps, 2);
    assert_int_equal(last->launches - before->launches, 4 + 2);
    assert_true(same_bits(&plain, &graphs));
}

/* What the device says of it is left aside. */
static void train_in_spite(job_t *job)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, try_train(ctx, job));
    test_context_end(&ctx);
    assert_int_equal(cudasim_alive(), 0);
    cudasim_reset();
}

/* Of a program whose third piece fails no graph is left, as of one whose first
 * piece does. */
static void test_given_up(void **state)
{
    (void)state;
    job_t job[2];
    double taken[2];
    cudasim_quiet(1);
    by_host = "swiglu";
    for (int i = 0; i < 2; i++) {
        job[i] = job_of(&layouts[0], AUTO);
        fail_piece = 2 * i;
        cudasim_seed(3);
        train_in_spite(&job[i]);
        const loong_device_usage_t *u = &job[i].usage;
        taken[i] = (double)u->total - (double)u->available - (double)u->pool;
        assert_true(job[i].replayed[STEPS].off);
        assert_true(taken[i] == (double)job[i].replayed[STEPS].bytes);
    }
    fail_piece = -1;
    by_host = NULL;
    cudasim_quiet(0);
    assert_true(same_bits(&job[0], &job[1]));
    assert_true(job[0].replayed[STEPS].graphs > 0);
    assert_int_equal(job[0].replayed[STEPS].graphs,
                     job[1].replayed[STEPS].graphs);
    assert_true(taken[0] == taken[1]);
}

/* ---- a missing edge ------------------------------------------------------ */

static void test_missing_edge(void **state)
{
    (void)state;
    enum { SEEDS = 6 };
    const layout_t shared = layouts[3];
    job_t plain = job_of(&shared, "");
    bool found = false;
    train(&plain);
    for (uint64_t seed = 1; seed <= SEEDS && !found; seed++) {
        job_t job = job_of(&shared, LOCAL);
        loong_context_t *ctx = test_context();
        cudasim_seed(seed);
        dropped = 0;
        drop_waits = true;
        loong_status_t status = try_train(ctx, &job);
        drop_waits = false;
        found = status != LOONG_OK || !same_bits(&plain, &job);
        assert_true(dropped > 0);
        test_context_end(&ctx);
        cudasim_reset();
    }
    assert_true(found);
}

/* ---- a capture that fails ------------------------------------------------ */

static void fails(const layout_t *layout, const char *graphs,
                  const char *message)
{
    loong_context_t *ctx = test_context();
    job_t job = job_of(layout, graphs);
    loong_status_t status = try_train(ctx, &job);
    if (status == LOONG_OK ||
        strstr(loong_context_error(ctx), message) == NULL) {
        fail_msg("'%s' is not in: %s", message, loong_context_error(ctx));
    }
    test_context_end(&ctx);
    cudasim_reset();
}

static void goes_on(const job_t *plain)
{
    job_t job = job_of(&layouts[2], AUTO);
    train_in_spite(&job);
    assert_true(job.replayed[STEPS].off);
    assert_int_equal(job.replayed[STEPS].launches, 0);
    assert_true(same_bits(plain, &job));
}

static void test_failures(void **state)
{
    (void)state;
    /* The fourth call is the first product's. */
    static const int64_t calls[][2] = {{4, 0}, {0, 1}, {0, 5}};
    static const char *const texts[] = {
        "cublasLtMatmul", "cudaStreamEndCapture: cudaErrorMemoryAllocation",
        "cudaGraphInstantiate(&graph, captured, 0): "
        "cudaErrorMemoryAllocation"};
    job_t plain = job_of(&layouts[2], "");
    train(&plain);
    cudasim_quiet(1);
    for (int64_t i = 0; i < LOONG_COUNT_OF(calls); i++) {
        fail_within = calls[i][0];
        fail_at_end = calls[i][1];
        fails(&layouts[2], LOCAL, texts[i]);
        fails(&layouts[2], LOCAL,
              "was captured as a graph; train.cuda_graph_impl=none runs "
              "without graphs");
        goes_on(&plain);
    }
    fails(&layouts[4], AUTO,
          "was captured as a graph, which all ranks of its collectives do or "
          "none; train.cuda_graph_impl=none");
    fail_within = fail_at_end = 0;
    cudasim_quiet(0);
}

static void test_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    job_t job = make_job("cpu", "fp32");
    job.train = LOCAL;
    assert_fails(ctx, try_train(ctx, &job), LOONG_ERR_CONFIG,
                 "train.cuda_graph_impl: local, but device cpu has no graphs");
    test_context_end(&ctx);
    job.train = AUTO;
    train(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_missing_edge),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
