/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer on simulated XPUs, with the job of the CUDA tests: the curve of
 * the processor, however late the device is; one wait a step; checkpoints that
 * go from any device to any other to the bit; ranks that talk through the
 * host's memory; and what a device lacks. */
#include "test.h"

#include "file.h"
#include "loong/checkpoint.h"
#include "train_run.h"
#include "xpusim.h"

static const double FP32 = 64.0 * 0x1p-24;
static const double BF16 = 4.0 * 0x1p-8;

static void set(const char *name, const char *value)
{
    setenv(name, value, 1);
    xpusim_setup();
}

/* Nothing of it is left either. */
static void train_here(job_t *job)
{
    train(job);
    assert_int_equal(xpusim_alive(), 0);
    assert_string_equal(xpusim_report(), "");
}

static void test_curve(void **state)
{
    (void)state;
    static const char *const seeds[] = {"1", "2", "3"};
    static const char *const paces[] = {"0", "0.5", "1"};
    static const char *const dtypes[] = {"fp32", "bf16"};
    for (int d = 0; d < 2; d++) {
        job_t cpu = make_job("cpu", dtypes[d]);
        job_t first;
        train(&cpu);
        for (int i = 0; i < 3; i++) {
            job_t job = make_job("xpu", d == 0 ? "fp32" : "auto");
            job.extra = d == 0 ? "" : "recompute: {granularity: full}\n";
            set("SIM_XPU_SEED", seeds[i]);
            set("SIM_XPU_PACE", paces[i]);
            set("SIM_XPU_NEG_ERR", i == 1 ? "1" : "0");
            train_here(&job);
            compare(&cpu, &job, d == 0 ? FP32 : BF16);
            first = i == 0 ? job : first;
            assert_memory_equal(job.loss, first.loss, sizeof(job.loss));
            assert_memory_equal(job.norm, first.norm, sizeof(job.norm));
        }
    }
    assert_true(xpusim_calls("wait") > 0);
    assert_int_equal(xpusim_calls("memcpy_inside"), 0);
}

/* Rings of frames and inputs are gone round while the device has not begun;
 * the host waits once a step all the same. */
static void test_ahead(void **state)
{
    (void)state;
    job_t cpu = make_job("cpu", "fp32");
    job_t xpu = make_job("xpu", "fp32");
    cpu.layers = xpu.layers = 1;
    cpu.batch = xpu.batch = 80;
    cpu.steps = xpu.steps = 3;
    train(&cpu);
    set("SIM_XPU_PACE", "0");
    train_here(&xpu);
    compare(&cpu, &xpu, FP32);
    job_t few = make_job("xpu", "fp32");
    set("SIM_XPU_PACE", "0");
    train_here(&few);
    for (int i = 2; i <= STEPS; i++) {
        assert_int_equal(few.waits[i] - few.waits[i - 1], 1);
    }
}

/* ---- checkpoints --------------------------------------------------------- */

static job_t run_saved(const char *name, const char *device, const char *from,
                       const char *dtype, int steps)
{
    char path[2][300];
    char extra[1000];
    char load[320] = "";
    job_t job = make_job(device, dtype);
    bool several = device[0] == '[';
    snprintf(path[0], sizeof(path[0]), "%s/%s_%s", train_dir(), dtype, name);
    snprintf(path[1], sizeof(path[1]), "%.250s_hf", path[0]);
    if (from != NULL) {
        snprintf(load, sizeof(load), ", load: %s/%s_%s", train_dir(), dtype,
                 from);
    }
    snprintf(extra, sizeof(extra),
             "checkpoint: {save: %s%s}\n"
             "resume: {override: [train, device]}\n%s",
             path[0], load,
             several ? "parallel: {data_parallel_shares: [3, 1]}\n" : "");
    job.extra = extra;
    job.steps = steps;
    job.batch = 4;
    job.ranks = several ? 2 : 1;
    job.export_dir = path[1];
    train_here(&job);
    return job;
}

static void print_line(void *user, const char *line)
{
    (void)user;
    print_message("%s\n", line);
}

/* The exported file and all that a checkpoint holds, byte by byte. */
static void check_same(const char *dtype, const char *a, const char *b)
{
    loong_context_t *ctx = test_context();
    const char *const names[2] = {a, b};
    char dir[2][300];
    char file[2][340];
    char *bytes[2];
    size_t size[2];
    bool equal = false;
    for (int i = 0; i < 2; i++) {
        snprintf(dir[i], sizeof(dir[i]), "%s/%s_%s", train_dir(), dtype,
                 names[i]);
        snprintf(file[i], sizeof(file[i]), "%.290s_hf/model.safetensors",
                 dir[i]);
        assert_ok(ctx, loongi_file_read(ctx, file[i], &bytes[i], &size[i]));
    }
    loong_checkpoint_diff_params_t params = {
        .a = dir[0], .b = dir[1], .line = print_line};
    assert_ok(ctx, loong_checkpoint_diff(ctx, &params, &equal));
    assert_true(equal);
    assert_true(size[0] > 1000 && size[0] == size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    loongi_free(ctx, bytes[0]);
    loongi_free(ctx, bytes[1]);
    test_context_end(&ctx);
}

/* From each device to the next and on: processor, CUDA, XPU, processor. */
static void test_exchange(void **state)
{
    (void)state;
    static const char *const way[] = {"xpu", "cpu",  "cuda",
                                      "xpu", "cuda", "cpu"};
    static const char *const dtypes[] = {"fp32", "bf16"};
    char name[6][16];
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 6; i++) {
            snprintf(name[i], sizeof(name[i]), "%d_%s", i, way[i]);
            (void)run_saved(name[i], way[i], i > 0 ? name[i - 1] : NULL,
                            dtypes[d], 2);
            if (i > 0) {
                check_same(dtypes[d], name[0], name[i]);
            }
        }
    }
}

/* From CUDA to CUDA and XPU with shares of their own, and back: what was loaded
 * is what was saved, and the steps behind it are those of the processor. */
static void test_exchange_mixed(void **state)
{
    (void)state;
    static const char both[] = "[cuda:0, xpu:1]";
    job_t cpu = make_job("cpu", "fp32");
    cpu.batch = 4;
    train(&cpu);
    (void)run_saved("cuda", "cuda", NULL, "fp32", 1);
    (void)run_saved("same", both, "cuda", "fp32", 1);
    check_same("fp32", "cuda", "same");
    job_t on = run_saved("both", both, "cuda", "fp32", 3);
    (void)run_saved("again", "cuda", "both", "fp32", 3);
    check_same("fp32", "both", "again");
    job_t back = run_saved("back", "cuda", "both", "fp32", 4);
    on.loss[1] = cpu.loss[1];
    on.norm[1] = cpu.norm[1];
    on.loss[4] = back.loss[4];
    on.norm[4] = back.norm[4];
    on.steps = 4;
    compare(&cpu, &on, FP32);
}

/* ---- several ranks ------------------------------------------------------- */

/* Through pinned memory of the host; also with ranks of other kinds. */
static void test_staged(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "parallel: {data_parallel_sharding: optim_grads,\n"
        "  bucket_bytes: 4096}\n",
        "parallel: {pipeline_model_parallel_size: 2}\n",
        "parallel: {pipeline_model_parallel_size: 2}\n"};
    static const char *const devices[] = {"xpu", "[xpu:0, cpu:1]",
                                          "[xpu:0, cuda:1]"};
    job_t one = make_job("cpu", "fp32");
    train(&one);
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char extra[300];
        job_t job = make_job(devices[i], "fp32");
        snprintf(extra, sizeof(extra), "%scomm: {device_backend: staged}\n",
                 layouts[i]);
        job.extra = extra;
        job.ranks = 2;
        print_message("%s: %s", devices[i], layouts[i]);
        train_here(&job);
        compare(&one, &job, FP32);
    }
}

/* Data-parallel ranks of several kinds with shares of their own, and pipelines,
 * against one rank of the processor. */
static void test_mixed(void **state)
{
    (void)state;
    /* No kernel of these devices takes fp64: the processor does all ops. */
    static const char host_ops[] =
        ", host_ops: [adamw, add, add_rmsnorm, attention, attention_grad,\n"
        "    cross_entropy, embedding, embedding_grad, linear, linear_dw,\n"
        "    rmsnorm, rmsnorm_grad, rope, rope_table, sumsq, swiglu,\n"
        "    swiglu_grad]";
    static const struct {
        const char *devices, *layout;
        int ranks;
    } layouts[] = {
        {"[cuda:0, xpu:1]", "data_parallel_shares: [5, 3]", 2},
        {"[cuda:0, xpu:1, cpu:2]",
         "data_parallel_shares: [3, 2, 1], data_parallel_sharding: none", 3},
        {"[cuda:0, xpu:1]", "pipeline_model_parallel_size: 2", 2},
        {"[cuda:0-1, xpu:2-3]",
         "pipeline_model_parallel_size: 2, data_parallel_shares: [1, 3]", 4},
    };
    job_t one = make_job("cpu", "fp64");
    one.batch = 8;
    train(&one);
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char extra[200];
        job_t job = make_job(layouts[i].devices, "fp64");
        snprintf(extra, sizeof(extra), "parallel: {%s}\n", layouts[i].layout);
        job.extra = extra;
        job.batch = 8;
        job.ranks = layouts[i].ranks;
        job.train = host_ops;
        print_message("%s: %s", layouts[i].devices, extra);
        train_here(&job);
        compare(&one, &job, 1e-9);
    }
}

/* The same in bf16, of two vendors, in their own kernels. */
static void test_mixed_bf16(void **state)
{
    (void)state;
    static const char *const layouts[] = {
        "parallel: {data_parallel_shares: [5, 3]}\n",
        "parallel: {pipeline_model_parallel_size: 2}\n"};
    job_t one = make_job("cpu", "bf16");
    one.batch = 8;
    train(&one);
    for (int i = 0; i < 2; i++) {
        job_t job = make_job("[cuda:0, xpu:1]", "bf16");
        job.extra = layouts[i];
        job.batch = 8;
        job.ranks = 2;
        train_here(&job);
        compare(&one, &job, BF16);
    }
}

/* ---- what the device has not --------------------------------------------- */

/* All of it is told before anything runs; the processor does it where the
 * recipe says so, and the curve is the same. */
static void test_lacks(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    job_t cpu = make_job("cpu", "fp32");
    job_t job = make_job("xpu", "fp32");
    train(&cpu);
    set("SIM_XPU_LACKS", "rmsnorm,rope,swiglu_grad");
    assert_fails(ctx, try_train(ctx, &job), LOONG_ERR_CONFIG,
                 "xpu lacks: rmsnorm, rope, swiglu_grad (no kernel of device "
                 "xpu for any of them); added to train.host_ops, they are "
                 "done by the processor");
    test_context_end(&ctx);
    ctx = test_context();
    set("SIM_XPU_LACKS", "adamw");
    assert_fails(ctx, try_train(ctx, &job), LOONG_ERR_CONFIG,
                 "no kernel of device xpu for adamw; see train.host_ops");
    test_context_end(&ctx);
    set("SIM_XPU_LACKS", "rmsnorm,rope,swiglu_grad,adamw");
    job.train = ", host_ops: [rmsnorm, rope, swiglu_grad, linear, adamw]";
    train_here(&job);
    compare(&cpu, &job, FP32);
    unsetenv("SIM_XPU_LACKS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve),    cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_exchange_mixed),
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_mixed_bf16),
        cmocka_unit_test(test_lacks),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
