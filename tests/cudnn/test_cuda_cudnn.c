/* SPDX-License-Identifier: Apache-2.0
 *
 * train.attention_backend on the simulated device, whose cuDNN computes the
 * graphs that it is given: trainings by it, what it refuses, what fails. The
 * kernel alone is in cuda_op_attention. */
#include <math.h>

#include "train_run.h"

#define LOCAL ", attention_backend: local"
#define FUSED ", attention_backend: fused"
#define AUTO ", attention_backend: auto"
#define GRAPHS ", cuda_graph_impl: local"

static char said[8192]; /* warnings, and why own kernels are taken */

static void keep(void *user, loong_log_level_t level, const char *line)
{
    size_t length = strlen(said);
    (void)user;
    if (level <= LOONG_LOG_WARN ||
        strstr(line, "train.attention_backend: auto") != NULL) {
        snprintf(said + length, sizeof(said) - length, "%s\n", line);
    }
}

static job_t job_of(const char *train, const char *dtype)
{
    job_t job = make_job("cuda", dtype);
    job.train = train;
    job.context.log = keep;
    job.context.log_level = LOONG_LOG_INFO;
    said[0] = '\0';
    return job;
}

static bool same_bits(const job_t *a, const job_t *b)
{
    return memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
           memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 &&
           a->params[0] == b->params[0];
}

static void test_training(void **state)
{
    (void)state;
    job_t local = job_of(LOCAL, "bf16");
    job_t fused = job_of(FUSED, "bf16");
    job_t others[] = {job_of(AUTO, "bf16"), job_of("", "bf16"),
                      job_of(FUSED GRAPHS, "bf16")};
    train(&local);
    train(&fused);
    compare(&local, &fused, 4.0 * 0x1p-8);
    assert_false(same_bits(&local, &fused)); /* it was another kernel */
    for (int64_t i = 0; i < LOONG_COUNT_OF(others); i++) {
        cudasim_seed((uint64_t)i + 3);
        train(&others[i]);
        assert_true(same_bits(&fused, &others[i]));
    }
    assert_null(strstr(said, "cuDNN"));
}

/* Texts of many lengths in one row. Two steps: what is rounded otherwise (own
 * kernels round exponentials to bf16, this one probabilities) grows with each.
 */
static void test_packed(void **state)
{
    (void)state;
    job_t job[2];
    for (int i = 0; i < 2; i++) {
        job[i] = job_of(i > 0 ? FUSED : LOCAL, "bf16");
        job[i].data = "short";
        job[i].data_keys = "  reset_attention_mask: true\n"
                           "  reset_position_ids: true\n";
        job[i].steps = 2;
        train(&job[i]);
    }
    compare(&job[0], &job[1], 4.0 * 0x1p-8);
    assert_false(same_bits(&job[0], &job[1]));
}

/* Rows of more tokens than cuDNN takes segments: the data set has 12 texts. */
static void test_packed_few(void **state)
{
    (void)state;
    job_t job = job_of(AUTO, "bf16");
    job.data_keys = "  reset_attention_mask: true\n";
    job.seq_length = 576;
    job.batch = 1;
    job.steps = 1;
    train(&job);
    assert_null(strstr(said, "segments of any length"));
    assert_null(strstr(said, "own kernel"));
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (const char *p = strstr(text, part); p != NULL;
         p = strstr(p + 1, part)) {
        n++;
    }
    return n;
}

/* Of two layers that are alike one line for the forward, with its sums and
 * without, as evaluation has it, and one for the gradient. */
static void test_refusal(void **state)
{
    (void)state;
    job_t local = job_of(LOCAL, "bf16");
    train(&local);
    job_t job = job_of(AUTO, "bf16");
    cudasim_cudnn_refuse("a planted refusal");
    train(&job);
    assert_true(same_bits(&local, &job));
    assert_int_equal(
        count_of(said, "an own kernel takes over from cuDNN: "), 2);
    assert_int_equal(count_of(said, "CUDNN_STATUS_NOT_SUPPORTED, a planted "
                                    "refusal"), 2);
    assert_non_null(strstr(said, "2 heads of 8 channels, 1 of keys"));
    cudasim_cudnn_refuse("");
}

static void fails(job_t job, loong_status_t status, const char *message)
{
    loong_context_t *ctx = test_context();
    loong_status_t got = try_train(ctx, &job);
    if (got != status || strstr(loong_context_error(ctx), message) == NULL) {
        fail_msg("%d, and '%s' is not in: %s", (int)got, message,
                 loong_context_error(ctx));
    }
    test_context_end(&ctx);
    cudasim_reset();
}

static void test_errors(void **state)
{
    (void)state;
    job_t cpu = job_of(FUSED, "bf16");
    cudasim_cudnn_refuse("a planted refusal");
    fails(job_of(FUSED, "bf16"), LOONG_ERR_UNSUPPORTED,
          "none of 4 suggested engines: CUDNN_STATUS_NOT_SUPPORTED, a planted "
          "refusal");
    fails(job_of(FUSED, "bf16"), LOONG_ERR_UNSUPPORTED,
          "train.attention_backend: fused; with auto own kernels take what "
          "cuDNN refuses");
    cudasim_cudnn_refuse("");
    fails(job_of(FUSED, "fp32"), LOONG_ERR_CONFIG,
          "attention_cudnn_cuda: operand 0 is fp32, cuDNN takes bf16; "
          "attention_tiles_cuda: train.attention_backend is fused");
    cpu.device = "cpu";
    fails(cpu, LOONG_ERR_CONFIG,
          "train.attention_backend: fused, but device cpu has no library of "
          "it; auto takes one where it is, local never");
    cpu.train = AUTO;
    train(&cpu);
}

/* Heads of attention that cuDNN does not take are seen before memory is. */
static void test_dropout(void **state)
{
    (void)state;
    job_t job = job_of(AUTO, "bf16");
    job.model = ", attention_dropout: 0.1";
    train(&job);
    assert_int_equal(count_of(said, "auto, attention_grad by "
                                    "attention_grad_tiles_cuda: "
                                    "attention_grad_cudnn_cuda: cuDNN drops by "
                                    "random numbers of its own\n"), 1);
    assert_int_equal(count_of(said, "auto, attention by "), 1);
    job.train = FUSED;
    fails(job, LOONG_ERR_CONFIG,
          "cuDNN drops by random numbers of its own");
}

/* A GPU of another generation has own kernels, and nothing to tell. */
static void test_generation(void **state)
{
    (void)state;
    static const char *const others[] = {"8", "12"};
    job_t local = job_of(LOCAL, "bf16");
    train(&local);
    for (int i = 0; i < LOONG_COUNT_OF(others); i++) {
        setenv("CUDASIM_GENERATION", others[i], 1);
        job_t job = job_of("", "bf16");
        train(&job);
        unsetenv("CUDASIM_GENERATION");
        assert_true(same_bits(&local, &job));
        assert_null(strstr(said, "attention"));
    }
}

/* long: rows that take the simulator half a minute. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_training),   cmocka_unit_test(test_packed),
        cmocka_unit_test(test_refusal),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_dropout),    cmocka_unit_test(test_generation),
    };
    const struct CMUnitTest more[] = {cmocka_unit_test(test_packed_few)};
    return argc > 1 && strcmp(argv[1], "long") == 0
               ? cmocka_run_group_tests(more, make_data, remove_data)
               : cmocka_run_group_tests(tests, make_data, remove_data);
}
