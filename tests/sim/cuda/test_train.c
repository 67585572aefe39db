/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer on simulated devices: the same losses and norms as on the
 * processor from the same recipe, in every order of a device's streams and in
 * every layout of two ranks; the host waits once a step; checkpoints go from
 * one device to the other. */
#include "test.h"

#include <math.h>

#include "file.h"
#include "loong/checkpoint.h"
#include "train_run.h"

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

/* Nothing runs before somebody waits: he does so once a step. Nobody asks the
 * driver what device there is. */
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
        assert_int_equal(job.questions[i], job.questions[1]);
    }
    assert_true(cudasim_ranges("layers.1.mlp") > 0);
    assert_int_equal(cudasim_open_ranges(), 0);
    cudasim_seed(1);
}

/* So many micro-batches that rings of frames and inputs are gone round while
 * the device has not begun. */
static void test_rings(void **state)
{
    (void)state;
    job_t job[3] = {make_job("cpu", "fp32"), make_job("cuda", "fp32"),
                    make_job("cuda", "fp32")};
    job[2].train = ", cuda_graph_impl: local";
    for (int i = 0; i < 3; i++) {
        job[i].layers = 1;
        job[i].batch = 80;
        job[i].steps = 3;
        cudasim_seed((uint64_t)i);
        cudasim_pace(0.0);
        train(&job[i]);
        compare(&job[0], &job[i], 64.0 * 0x1p-24);
    }
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
                 "resume: {override: [train, device]}\n", train_dir(),
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

/* A run of two steps, or of `steps` from the other's checkpoint: it saves and
 * exports under its name. */
typedef struct saved {
    const char *name;
    const char *device;
    const char *from; /* NULL: from the start */
    int steps;
} saved_t;

static void path_of(char path[300], const char *dtype, const char *name,
                    const char *what)
{
    snprintf(path, 300, "%s/%s_%s%s", train_dir(), dtype, name, what);
}

static job_t run_saved(const saved_t *s, const char *dtype)
{
    char path[3][300];
    char extra[1000];
    char load[320] = "";
    job_t job = make_job(s->device, dtype);
    path_of(path[0], dtype, s->name, "");
    path_of(path[1], dtype, s->name, "_hf");
    if (s->from != NULL) {
        path_of(path[2], dtype, s->from, "");
        snprintf(load, sizeof(load), ", load: %s", path[2]);
    }
    snprintf(extra, sizeof(extra),
             "checkpoint: {save: %s%s}\n"
             "resume: {override: [train, device]}\n"
             "parallel: {data_parallel_sharding: optim_grads,\n"
             "  bucket_bytes: 4096}\n", path[0], load);
    job.extra = extra;
    job.ranks = 2;
    job.steps = s->steps;
    job.export_dir = path[1];
    train(&job);
    return job;
}

static void print_line(void *user, const char *line)
{
    (void)user;
    print_message("%s\n", line);
}

/* Parameters, masters and moments, and the exported file, byte by byte. */
static void check_same(loong_context_t *ctx, const char *dtype, const char *a,
                       const char *b)
{
    const char *const names[2] = {a, b};
    char dir[2][300];
    char file[2][300];
    char *bytes[2];
    size_t size[2];
    bool equal = false;
    for (int i = 0; i < 2; i++) {
        path_of(dir[i], dtype, names[i], "");
        path_of(file[i], dtype, names[i], "_hf/model.safetensors");
        assert_ok(ctx, loongi_file_read(ctx, file[i], &bytes[i], &size[i]));
    }
    loong_checkpoint_diff_params_t params = {.a = dir[0], .b = dir[1],
                                             .line = print_line};
    assert_ok(ctx, loong_checkpoint_diff(ctx, &params, &equal));
    assert_true(equal);
    assert_true(size[0] > 1000 && size[0] == size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    loongi_free(ctx, bytes[0]);
    loongi_free(ctx, bytes[1]);
}

/* What a device has saved the processor saves and exports again to the bit,
 * another device what the processor has; each goes on. */
static void test_saved_bits(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"fp32", "bf16"};
    static const double bounds[] = {64.0 * 0x1p-24, 4.0 * 0x1p-8};
    static const saved_t runs[] = {{"first", "cuda", NULL, 2},
                                   {"cpu", "cpu", "first", 2},
                                   {"back", "cuda", "cpu", 2},
                                   {"on_cpu", "cpu", "back", STEPS},
                                   {"on_cuda", "cuda", "cpu", STEPS}};
    enum { RUNS = LOONG_COUNT_OF(runs) };
    for (int d = 0; d < 2; d++) {
        job_t job[RUNS];
        loong_context_t *ctx = test_context();
        for (int i = 0; i < RUNS; i++) {
            job[i] = run_saved(&runs[i], dtypes[d]);
        }
        check_same(ctx, dtypes[d], "first", "cpu");
        check_same(ctx, dtypes[d], "first", "back");
        for (int i = 3; i <= STEPS; i++) {
            double loss = job[3].loss[i];
            double norm = job[3].norm[i];
            assert_true(loss > 0.0 && norm > 0.0);
            assert_true(fabs(job[4].loss[i] - loss) <= bounds[d] * loss);
            assert_true(fabs(job[4].norm[i] - norm) <= bounds[d] * norm);
        }
        test_context_end(&ctx);
    }
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
        snprintf(file, sizeof(file), files[i], train_dir());
        snprintf(extra[i], sizeof(extra[i]), "router_replay: {%s}\n", file);
        job[i] = make_job(i > 0 ? "cuda" : "cpu", "fp32");
        job[i].model = ", num_experts: 4, moe_ffn_hidden_size: 12";
        job[i].extra = extra[i];
        cudasim_seed((uint64_t)i + 1);
        train(&job[i]);
        compare(&job[0], &job[i], 64.0 * 0x1p-24);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", train_dir(),
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
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_saved_bits),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_replay),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
