/* SPDX-License-Identifier: Apache-2.0
 *
 * A training of two steps in which call number n of the runtime fails, for
 * every n (with "long"), or some of them: each ends with an error that names
 * what failed and an exit code, hangs nowhere and leaves nothing behind. What
 * frees may fail without a word. */
#include "test.h"

#include <string.h>

#include "loong/exit_code.h"
#include "loong/register.h"
#include "progress.h"
#include "train_run.h"

static int64_t stride = 23; /* from call to call */

/* A call that ends something, or chooses the device for one that does. */
static bool frees(const char *report)
{
    static const char *const names[] = {
        "cudaFree", "cudaEventDestroy", "cudaStreamDestroy",
        "cudaGraphDestroy", "cudaGraphExecDestroy"};
    const char *then = strstr(report, ", before ");
    if (strncmp(report, "cudaSetDevice ", 14) == 0 && then != NULL) {
        report = then + strlen(", before ");
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        if (strncmp(report, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

static job_t small(const char *extra)
{
    job_t job = make_job("cuda", "fp32");
    job.layers = 1;
    job.batch = 1;
    job.steps = 2;
    job.train = extra;
    cudasim_quiet(1);
    cudasim_seed(3);
    return job;
}

/* *end_p: of the run itself; what comes after frees. */
static int64_t count_calls(const char *extra, int64_t *end_p)
{
    job_t job = small(extra);
    int64_t before = cudasim_calls();
    train(&job);
    *end_p = job.calls - before;
    return cudasim_calls() - before;
}

/* passes: it frees. Did the run fail? */
static bool fail_call(const char *extra, int64_t n, cudaError_t error,
                      bool passes)
{
    loong_context_t *ctx = test_context();
    job_t job = small(extra);
    char call[200];
    cudasim_fail_at(n, error);
    loong_status_t status = try_train(ctx, &job);
    cudasim_fail_at(0, cudaSuccess);
    snprintf(call, sizeof(call), "%.190s", cudasim_report());
    const char *text = loong_context_error(ctx);
    if (strstr(call, "fails as told") == NULL) {
        fail_msg("call %lld: first '%s' was reported", (long long)n, call);
    }
    passes = passes || frees(call);
    if (status == LOONG_OK && !passes) {
        fail_msg("call %lld, %s: nobody noticed", (long long)n, call);
    }
    if (status != LOONG_OK) {
        /* The error by its name; a library has its own, and is named. */
        bool told = strstr(text, cudaGetErrorName(error)) != NULL ||
                    strstr(text, "cublasLt") != NULL;
        loong_exit_code_t code = loong_exit_code_from_status(status);
        if (!told ||
            (code != LOONG_EXIT_FAILED && code != LOONG_EXIT_NO_INPUT)) {
            fail_msg("call %lld, %s: status %d, exit code %d, said: %s",
                     (long long)n, call, (int)status, (int)code, text);
        }
    }
    int64_t alive = cudasim_alive();
    if (alive > (passes ? 1 : 0)) {
        fail_msg("call %lld, %s: %lld left, said: %s", (long long)n, call,
                 (long long)alive, text);
    }
    test_context_end(&ctx);
    cudasim_reset();
    return status != LOONG_OK;
}

static void every(const char *extra, cudaError_t error)
{
    int64_t end = 0;
    int64_t calls = count_calls(extra, &end);
    int64_t tried = 0;
    int64_t failed = 0;
    for (int64_t n = 1; n <= calls; n += stride) {
        failed += fail_call(extra, n, error, n > end);
        tried++;
    }
    print_message("%lld calls, %lld of them failed in turn, %lld runs ended\n",
                  (long long)calls, (long long)tried, (long long)failed);
    assert_true(calls > 200 && failed * 2 > tried);
}

static void test_launch(void **state)
{
    (void)state;
    every("", cudaErrorLaunchFailure);
}

static void test_memory(void **state)
{
    (void)state;
    every("", cudaErrorMemoryAllocation);
}

static void test_graphs(void **state)
{
    (void)state;
    every(", cuda_graph_impl: local", cudaErrorIllegalAddress);
}

/* At the start, on one of two ranks: the other one gives the same reason, for
 * no recipe is wrong, unless there is no such device at all. */
static void test_ranks(void **state)
{
    int found = 0;
    (void)state;
    for (int64_t n = 7; n <= 14; n++) {
        loong_context_t *ctx = test_context();
        job_t job = small("");
        job.ranks = 2;
        job.batch = 2;
        cudasim_fail_at(n, cudaErrorMemoryAllocation);
        loong_status_t status = try_train(ctx, &job);
        cudasim_fail_at(0, cudaSuccess);
        const char *text = loong_context_error(ctx);
        bool there = strstr(text, "no device cuda:") == NULL;
        if (there ? status != LOONG_ERR_MEMORY && status != LOONG_ERR_DEVICE
                  : status != LOONG_ERR_NOT_FOUND) {
            fail_msg("call %lld: status %d, said: %s", (long long)n,
                     (int)status, text);
        }
        assert_non_null(strstr(text, "cannot start"));
        found += there;
        test_context_end(&ctx);
        cudasim_reset();
    }
    assert_true(found >= 3);
}

/* By its name; libraries have their own. */
static bool names_it(const char *text)
{
    return strstr(text, "cudaErrorLaunchFailure") != NULL ||
           strstr(text, "cublasLt") != NULL ||
           strstr(text, "unhandled cuda error") != NULL;
}

/* Later, while memory is taken or kernels are loaded, or in a step: the rank
 * says what failed, the other one by whom it is given up, and why. */
static void test_lost(void **state)
{
    enum { FROM = 241, TO = 2000 };
    int told = 0;
    (void)state;
    for (int64_t n = FROM; n <= TO; n += 19 * stride + 5) {
        loong_context_t *ctx = test_context();
        job_t job = small("");
        job.ranks = job.batch = 2;
        job.extra = "parallel: {data_parallel_sharding: optim_grads_params}\n";
        cudasim_fail_at(n, cudaErrorLaunchFailure);
        loong_status_t status = try_train(ctx, &job);
        cudasim_fail_at(0, cudaSuccess);
        const char *call = cudasim_report();
        const char *text = loong_context_error(ctx);
        bool other = status == LOONG_ERR_COMM; /* the lowest rank's */
        bool fits =
            other ? strstr(text, "given up by rank 1: ") != NULL ||
                        strstr(text, "rank 1 (pid ") != NULL
                  : status == LOONG_ERR_DEVICE;
        if (!frees(call) && !(fits && names_it(text))) {
            fail_msg("call %lld, %s: status %d, said: %s", (long long)n,
                     call, (int)status, text);
        }
        told += fits;
        test_context_end(&ctx);
        cudasim_reset();
    }
    assert_true(told >= 2);
}

/* ---- a device that hangs, with nobody else to end the process ------------ */

/* Many more launches than marks. */
static void launch_many(loong_context_t *ctx, loong_device_t *device, void *to)
{
    for (int i = 0; i < 20000; i++) {
        loong_device_range_begin(device, "fill");
        assert_ok(ctx, loong_device_fill(device, to, i, 64));
        loong_device_range_end(device);
    }
}

/* One that goes on is waited for, for longer than the limit. One that does not
 * is named, and nothing waits for it then. */
static void test_hangs(void **state)
{
    static const double limit = 0.4;
    (void)state;
    loong_context_t *ctx = test_context();
    loong_device_t *device = NULL;
    void *to = NULL;
    void *pinned = NULL;
    void *stream = NULL;
    cudasim_seed(3);
    cudasim_pace(0.0); /* a launch runs when somebody asks */
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_device_create(ctx, "cuda", 0, &device));
    assert_ok(ctx, loongi_device_set_limit(device, limit));
    assert_ok(ctx, loong_device_alloc(device, 64, "bytes", &to));
    assert_ok(ctx, loong_device_host_alloc(device, 64, "bytes", &pinned));
    assert_ok(ctx, loong_device_stream_create(device, &stream));
    launch_many(ctx, device, to);
    double begin = loongi_now();
    assert_ok(ctx, loong_device_synchronize(device, "many launches"));
    assert_true(loongi_now() - begin > limit);
    launch_many(ctx, device, to);
    cudasim_hang(0, 1);
    begin = loongi_now();
    assert_fails(ctx, loong_device_synchronize(device, "norm and loss"),
                 LOONG_ERR_DEVICE, "cuda:0: hangs: nothing that was launched "
                                   "has ended for 0.");
    assert_true(loongi_now() - begin > limit);
    begin = loongi_now();
    assert_fails(ctx, loong_device_synchronize(device, "the end"),
                 LOONG_ERR_DEVICE, "cuda:0 hangs");
    loong_device_stream_destroy(device, stream);
    loong_device_host_free(device, pinned);
    loong_device_free(device, to, 64);
    loong_device_destroy(&device);
    assert_true(loongi_now() - begin < 60.0); /* it would wait for ever */
    loong_context_destroy(&ctx); /* what the device has stays */
    cudasim_reset();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_graphs),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_hangs),
    };
    stride = argc > 1 && strcmp(argv[1], "long") == 0 ? 1 : stride;
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
