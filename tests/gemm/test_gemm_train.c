/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recipe says of products, on simulated devices: algorithms that are
 * measured at the first start and stay; tf32. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "test.h"
#include "train_run.h"

enum { RUNS = 5 };

static char *read_file(const char *path)
{
    loong_context_t *ctx = test_context();
    char *text = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    char *copy = strdup(text);
    loongi_free(ctx, text);
    test_context_end(&ctx);
    return copy;
}

static bool same_bits(const job_t *a, const job_t *b)
{
    return memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
           memcmp(a->norm, b->norm, sizeof(a->norm)) == 0;
}

/* The library's first choice, then two ranks that begin with no file, with the
 * file of these, and in other orders of their streams. */
static void test_algorithms(void **state)
{
    (void)state;
    char path[300];
    char extra[400];
    char *text[RUNS] = {NULL};
    job_t job[RUNS];
    snprintf(path, sizeof(path), "%s/algorithms", train_dir());
    snprintf(extra, sizeof(extra), "gemm: {algorithms_file: %s}\n", path);
    for (int i = 0; i < RUNS; i++) {
        job[i] = make_job("cuda", "fp32");
        job[i].ranks = 2;
        job[i].extra = i > 0 ? extra : "";
        cudasim_seed((uint64_t)i);
        train(&job[i]);
        text[i] = i > 0 ? read_file(path) : NULL;
        if (i > 1) {
            assert_true(same_bits(&job[i], &job[1]));
            assert_string_equal(text[i], text[1]);
        }
    }
    assert_false(same_bits(&job[0], &job[1]));
    compare(&job[0], &job[1], 64.0 * 0x1p-24);
    for (int i = 0; i < RUNS; i++) {
        free(text[i]);
    }
    job_t cpu[2] = {make_job("cpu", "fp32"), make_job("cpu", "fp32")};
    cpu[1].extra = extra; /* warns, and changes nothing */
    train(&cpu[0]);
    train(&cpu[1]);
    assert_true(same_bits(&cpu[0], &cpu[1]));
}

/* No directory, or something there that is no file: said before the first
 * step. */
static void test_no_place(void **state)
{
    static const char *const cases[][2] = {
        {"gemm: {algorithms_file: /nowhere/at/all}\n",
         "cannot lock '/nowhere/at/all.lock'"},
        {"gemm: {algorithms_file: /dev/null}\n",
         "gemm.algorithms_file: '/dev/null' is not a regular file"},
        {"gemm: {algorithms_file: ''}\n",
         "gemm.algorithms_file: '' is not a regular file"},
    };
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        job_t job = make_job("cuda", "fp32");
        job.extra = cases[i][0];
        loong_context_t *ctx = test_context();
        assert_fails(ctx, try_train(ctx, &job), LOONG_ERR_IO, cases[i][1]);
        test_context_end(&ctx);
        cudasim_reset();
    }
}

static int warnings;

static void hear(void *user, loong_log_level_t level, const char *line)
{
    (void)user;
    (void)level;
    warnings += strstr(line, "may not be written: no product is measured") !=
                NULL;
}

/* As a user to whom nothing there belongs. */
static void train_as_nobody(job_t *job)
{
    enum { NOBODY = 65534 };
    bool root = geteuid() == 0;
    warnings = 0;
    assert_int_equal(chmod(train_dir(), 0555), 0);
    assert_int_equal(root ? seteuid(NOBODY) : 0, 0);
    train(job);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(chmod(train_dir(), 0755), 0);
}

/* A file that may be read alone: what it has is taken, for the rest it is as
 * without a file, and it stays as it is; told by one of two ranks. */
static void test_read_only(void **state)
{
    (void)state;
    char path[300];
    char extra[400];
    job_t job[4];
    snprintf(path, sizeof(path), "%s/kept", train_dir());
    snprintf(extra, sizeof(extra), "gemm: {algorithms_file: %s}\n", path);
    for (int i = 0; i < LOONG_COUNT_OF(job); i++) {
        job[i] = make_job("cuda", "fp32");
        job[i].ranks = 2;
        job[i].extra = i > 0 ? extra : "";
        job[i].context.log = hear;
        job[i].context.log_level = LOONG_LOG_WARN;
    }
    train(&job[0]);
    train_as_nobody(&job[1]); /* there is none */
    assert_int_equal(warnings, 1);
    assert_false(loongi_file_exists(path));
    assert_true(same_bits(&job[0], &job[1]));
    train(&job[2]);
    char *text = read_file(path);
    job[3].measures = true; /* of products that it lacks */
    train_as_nobody(&job[3]);
    assert_int_equal(warnings, 1);
    char *after = read_file(path);
    assert_string_equal(text, after);
    assert_true(same_bits(&job[2], &job[3]));
    assert_false(same_bits(&job[0], &job[2]));
    free(text);
    free(after);
}

static void test_tf32(void **state)
{
    (void)state;
    job_t wide = make_job("cuda", "fp32");
    job_t narrow = make_job("cuda", "fp32, tf32: true");
    train(&wide);
    train(&narrow);
    assert_false(same_bits(&wide, &narrow));
    compare(&wide, &narrow, 4.0 * 0x1p-10);
    job_t cpu = make_job("cpu", "fp32, tf32: true");
    loong_context_t *ctx = test_context();
    assert_fails(ctx, try_train(ctx, &cpu), LOONG_ERR_CONFIG,
                 "precision.tf32: device cpu does not multiply tf32");
    test_context_end(&ctx);
    cudasim_reset();
}

/* Two trainers of one context each have what their own recipe says. */
static void test_two_trainers(void **state)
{
    (void)state;
    job_t alone[2] = {make_job("cuda", "fp32"),
                      make_job("cuda", "fp32, tf32: true")};
    for (int i = 0; i < 2; i++) {
        job_t both = alone[i];
        both.other = &alone[1 - i];
        train(&both);
        assert_int_equal(both.tf32, i);
        train(&alone[i]);
        assert_int_equal(alone[i].tf32, i);
        assert_true(same_bits(&both, &alone[i]));
    }
}

/* GELU and biases in the products, on one rank and on two; its other form, and
 * layers that are run again. */
static void test_gelu(void **state)
{
    (void)state;
    static const char *const extra[] = {
        "", "parallel: {tensor_model_parallel_size: 2}\n",
        "recompute: {granularity: full}\n"};
    for (int i = 0; i < 4; i++) {
        for (int half = 0; half < 2; half++) {
            job_t job[2];
            for (int k = 0; k < 2; k++) {
                job[k] = make_job(k > 0 ? "cuda" : "cpu",
                                  half ? "bf16" : "fp32");
                job[k].activation = i < 3 ? "gelu_tanh" : "gelu";
                job[k].model = ", add_bias_linear: true, add_qkv_bias: true,\n"
                               "    add_attn_proj_bias: true";
                job[k].extra = k > 0 ? extra[i % 3] : "";
                job[k].ranks = k > 0 && i == 1 ? 2 : 1;
                train(&job[k]);
            }
            compare(&job[0], &job[1],
                    half ? 4.0 * 0x1p-8 : 64.0 * 0x1p-24);
        }
    }
}

/* Tensors in front of a workspace end anywhere: it is aligned all the same, as
 * the library asks. */
static void test_odd_rows(void **state)
{
    job_t job[2] = {make_job("cpu", "fp32"), make_job("cuda", "fp32")};
    (void)state;
    for (int i = 0; i < 2; i++) {
        job[i].seq_length = 63;
        train(&job[i]);
    }
    compare(&job[0], &job[1], 64.0 * 0x1p-24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_algorithms),   cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_read_only),    cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_two_trainers), cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_odd_rows),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
