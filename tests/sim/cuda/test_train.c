/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer on simulated devices: the same losses and norms as on the
 * processor from the same recipe, in every order of a device's streams and in
 * every layout of two ranks; the host waits once a step; checkpoints go from
 * one device to the other. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "cudasim.h"
#include "file.h"
#include "loong/dataset.h"
#include "loong/register.h"
#include "trainer_impl.h"

enum { VOCAB = 61, STEPS = 4 };

typedef struct job {
    const char *device;
    const char *extra; /* lines of the recipe */
    const char *model; /* more of its keys */
    const char *dtype;
    int ranks;
    int steps;
    double loss[STEPS + 1];
    double norm[STEPS + 1];
    uint64_t waits[STEPS + 1];
    loong_trainer_t *trainer; /* of rank 0 */
} job_t;

static char dir[256];

static int make_data(void **state)
{
    loong_context_t *ctx = test_context();
    char prefix[300];
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/loong_cuda_train_XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(prefix, sizeof(prefix), "%s/data", dir);
    loong_dataset_writer_params_t params = {prefix, LOONG_U16, false};
    loong_dataset_writer_t *writer = NULL;
    assert_ok(ctx, loong_dataset_writer_create(ctx, &params, &writer));
    for (int d = 0; d < 12; d++) {
        int32_t ids[64];
        for (int i = 0; i < 64; i++) {
            ids[i] = (d * 7 + i * 5 + i * i * 3) % VOCAB;
        }
        assert_ok(ctx, loong_dataset_writer_add(writer, ids, NULL, 64));
        assert_ok(ctx, loong_dataset_writer_end_document(writer));
    }
    assert_ok(ctx, loong_dataset_writer_commit(writer));
    loong_dataset_writer_destroy(&writer);
    test_context_end(&ctx);
    return 0;
}

static int remove_data(void **state)
{
    loong_context_t *ctx = test_context();
    (void)state;
    assert_ok(ctx, loongi_dir_remove(ctx, dir));
    test_context_end(&ctx);
    return 0;
}

static void note(void *user, const loong_trainer_progress_t *now)
{
    job_t *job = user;
    loong_trainer_state_t s = loong_trainer_get_state(job->trainer);
    assert_true(now->step >= 1 && now->step <= STEPS);
    job->loss[now->step] = s.loss;
    job->norm[now->step] = s.grad_norm;
    job->waits[now->step] = loong_device_waits(job->trainer->device);
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    char text[2048];
    job_t *job = user;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *trainer = NULL;
    snprintf(text, sizeof(text),
             "seed: 11\n"
             "device: %s\n"
             "model:\n"
             "  foundation: {family: qwen3, num_layers: 2, hidden_size: 16,\n"
             "    ffn_hidden_size: 24, num_attention_heads: 2,\n"
             "    num_query_groups: 1, kv_channels: 8, vocab_size: %d,\n"
             "    make_vocab_size_divisible_by: 8, activation: swiglu,\n"
             "    max_position_embeddings: 64%s}\n"
             "precision: {params_dtype: %s}\n"
             "data:\n"
             "  seq_length: 8\n"
             "  train: [{path: %s/data}]\n"
             "train: {micro_batch_size: 1, global_batch_size: 2,\n"
             "  train_iters: %d}\n"
             "optimizer: {lr: 1e-2, lr_warmup_iters: 2,\n"
             "  lr_decay_iters: 4}\n"
             "%s",
             job->device, VOCAB, job->model, job->dtype, dir, job->steps,
             job->extra);
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_recipe_parse(ctx, "test", text, NULL, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .progress = note,
                                     .progress_user = job};
    loong_status_t status = loong_trainer_create(ctx, &params, &trainer);
    if (status == LOONG_OK) { /* which need not measure its products */
        trainer->report.gemm_gflops = 1.0;
        job->trainer = loong_comm_rank(comm) == 0 ? trainer : job->trainer;
        status = loong_trainer_run(trainer);
    }
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    return status;
}

static loong_status_t try_train(loong_context_t *ctx, job_t *job)
{
    loong_threads_params_t params = {0};
    params.size = job->ranks;
    params.comm.timeout = 60.0;
    cudasim_devices(job->ranks, (size_t)64 << 20);
    return loong_threads_run(ctx, &params, run_rank, job);
}

static void train(job_t *job)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, try_train(ctx, job));
    test_context_end(&ctx);
    assert_string_equal(cudasim_report(), "");
    assert_int_equal(cudasim_alive(), 0);
    cudasim_reset();
}

static job_t make_job(const char *device, const char *dtype)
{
    job_t job;
    memset(&job, 0, sizeof(job));
    job.device = device;
    job.dtype = dtype;
    job.extra = "";
    job.model = "";
    job.ranks = 1;
    job.steps = STEPS;
    return job;
}

/* Sums of tens of products of one type in other orders. */
static void compare(const job_t *a, const job_t *b, double bound)
{
    for (int i = 1; i <= a->steps; i++) {
        if (fabs(a->loss[i] - b->loss[i]) > bound * a->loss[i] ||
            fabs(a->norm[i] - b->norm[i]) > bound * a->norm[i]) {
            print_error("step %d: loss %.9g and %.9g, norm %.9g and %.9g\n",
                        i, a->loss[i], b->loss[i], a->norm[i], b->norm[i]);
        }
        assert_true(a->loss[i] > 0.0 && a->norm[i] > 0.0);
        assert_true(fabs(a->loss[i] - b->loss[i]) <= bound * a->loss[i]);
        assert_true(fabs(a->norm[i] - b->norm[i]) <= bound * a->norm[i]);
    }
}

static void test_equal(void **state)
{
    (void)state;
    job_t cpu = make_job("cpu", "fp32");
    job_t first = make_job("cuda", "fp32");
    train(&cpu);
    cudasim_seed(1);
    train(&first);
    compare(&cpu, &first, 64.0 * 0x1p-24);
    for (uint64_t seed = 2; seed < 4; seed++) {
        job_t job = make_job("cuda", "fp32");
        cudasim_seed(seed);
        train(&job);
        assert_memory_equal(job.loss, first.loss, sizeof(job.loss));
        assert_memory_equal(job.norm, first.norm, sizeof(job.norm));
    }
}

static void test_bf16(void **state)
{
    (void)state;
    job_t cpu = make_job("cpu", "bf16");
    job_t cuda = make_job("cuda", "auto");
    cuda.extra = "recompute: {granularity: full}\n";
    train(&cpu);
    cudasim_seed(5);
    train(&cuda);
    compare(&cpu, &cuda, 4.0 * 0x1p-8);
}

/* Nothing runs before somebody waits: he does so once a step. */
static void test_ahead(void **state)
{
    (void)state;
    job_t job = make_job("cuda", "fp32");
    cudasim_seed(1);
    cudasim_pace(0.0);
    train(&job);
    for (int i = 2; i <= STEPS; i++) {
        uint64_t waits = job.waits[i] - job.waits[i - 1];
        assert_int_equal(waits, 1);
    }
    assert_true(cudasim_ranges("layers.1.mlp") > 0);
    assert_int_equal(cudasim_open_ranges(), 0);
    cudasim_seed(1);
}

/* Four steps at once, and one, two, one, each on the other device. */
static void test_checkpoints(void **state)
{
    (void)state;
    char extra[3][600];
    job_t whole = make_job("cuda", "fp32");
    train(&whole);
    job_t last;
    for (int i = 0; i < 3; i++) {
        last = make_job(i % 2 == 0 ? "cuda" : "cpu", "fp32");
        snprintf(extra[i], sizeof(extra[i]),
                 "checkpoint: {save: %s/save%s}\n"
                 "resume: {override: [train, device]}\n", dir,
                 i > 0 ? ", load: auto" : "");
        last.extra = extra[i];
        last.steps = i == 2 ? STEPS : 2 * i + 1;
        train(&last);
    }
    assert_true(fabs(last.loss[STEPS] - whole.loss[STEPS]) <=
                64.0 * 0x1p-24 * whole.loss[STEPS]);
    assert_true(fabs(last.norm[STEPS] - whole.norm[STEPS]) <=
                64.0 * 0x1p-24 * whole.norm[STEPS]);
}

/* Two ranks, a device each. */
static void test_layouts(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "parallel: {data_parallel_sharding: none}\n",
        "parallel: {data_parallel_sharding: optim, bucket_bytes: 4096}\n",
        "parallel: {data_parallel_sharding: optim_grads,\n"
        "  bucket_bytes: 4096}\n",
        "parallel: {data_parallel_sharding: optim_grads_params,\n"
        "  bucket_bytes: 4096}\n",
        "parallel: {tensor_model_parallel_size: 2}\n",
        "parallel: {pipeline_model_parallel_size: 2}\n",
        "parallel: {context_parallel_size: 2, cp_comm_type: p2p}\n",
        "parallel: {context_parallel_size: 2, cp_comm_type: all_gather}\n",
    };
    job_t one = make_job("cpu", "fp32");
    train(&one);
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        job_t job = make_job("cuda", "fp32");
        job.extra = layouts[i];
        job.ranks = 2;
        cudasim_seed((uint64_t)i + 1);
        print_message("%s", layouts[i]);
        train(&job);
        compare(&one, &job, 64.0 * 0x1p-24);
    }
}

/* The routing that one device records is another's. */
static void test_replay(void **state)
{
    (void)state;
    char extra[3][400];
    char path[2][300];
    char *bytes[2];
    size_t size[2];
    job_t job[3];
    loong_context_t *ctx = test_context();
    static const char *const files[] = {"record_file: %s/cpu", "replay_file: "
                                        "%s/cpu", "record_file: %s/cuda"};
    for (int i = 0; i < 3; i++) {
        char file[330];
        snprintf(file, sizeof(file), files[i], dir);
        snprintf(extra[i], sizeof(extra[i]), "router_replay: {%s}\n", file);
        job[i] = make_job(i > 0 ? "cuda" : "cpu", "fp32");
        job[i].model = ", num_experts: 4, moe_ffn_hidden_size: 12";
        job[i].extra = extra[i];
        cudasim_seed((uint64_t)i + 1);
        train(&job[i]);
        compare(&job[0], &job[i], 64.0 * 0x1p-24);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", dir,
                 i > 0 ? "cuda" : "cpu");
        assert_ok(ctx, loongi_file_read(ctx, path[i], &bytes[i], &size[i]));
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    loongi_free(ctx, bytes[0]);
    loongi_free(ctx, bytes[1]);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_replay),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
