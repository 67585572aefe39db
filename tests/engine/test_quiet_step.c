/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training step must not do: allocate, open files, look strings up. The
 * linker sends the library's calls of the functions below through wrappers
 * (engine.cmake), which count while a step runs. Calls inside shared libraries
 * are not seen: oneDNN allocates on its own, in matmul execution its argument
 * map and, with several threads, what its scratchpad mode leaves to it. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_run.h"
#include "trainer_impl.h"

/* X(type, name, parameters, arguments) */
#define WRAPPED(X)                                                            \
    X(void *, malloc, (size_t n), (n))                                        \
    X(void *, calloc, (size_t n, size_t s), (n, s))                           \
    X(void *, realloc, (void *p, size_t n), (p, n))                           \
    X(void *, aligned_alloc, (size_t a, size_t n), (a, n))                    \
    X(int, posix_memalign, (void **p, size_t a, size_t n), (p, a, n))         \
    X(void *, mmap,                                                           \
      (void *p, size_t n, int prot, int flags, int fd, off_t at),             \
      (p, n, prot, flags, fd, at))                                            \
    X(char *, strdup, (const char *s), (s))                                   \
    X(FILE *, fopen, (const char *p, const char *m), (p, m))                  \
    X(int, strcmp, (const char *a, const char *b), (a, b))                    \
    X(int, strncmp, (const char *a, const char *b, size_t n), (a, b, n))      \
    X(int, strcasecmp, (const char *a, const char *b), (a, b))                \
    X(char *, strstr, (const char *a, const char *b), (a, b))                 \
    X(char *, getenv, (const char *name), (name))

static struct {
    bool on;
    int count;
    char names[1024];
} seen;

static void note(const char *name)
{
    if (seen.on) {
        size_t used = strlen(seen.names);
        seen.count++;
        snprintf(seen.names + used, sizeof(seen.names) - used, " %s", name);
    }
}

#define WRAP(type_, name_, parameters_, arguments_)                           \
    type_ __real_##name_ parameters_;                                         \
    type_ __wrap_##name_ parameters_;                                         \
    type_ __wrap_##name_ parameters_                                          \
    {                                                                         \
        note(#name_);                                                         \
        return __real_##name_ arguments_;                                     \
    }
WRAPPED(WRAP)
#undef WRAP

/* The mode is only read when a file may be created. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, int mode);
int __wrap_open(const char *path, int flags, int mode)
{
    note(path);
    return __real_open(path, flags, mode);
}

typedef struct job {
    char dir[64];
    const char *dtype;
    const char *extra;
} job_t;

static loong_status_t make_recipe(loong_context_t *ctx, const job_t *job,
                                  loong_recipe_t **recipe_p)
{
    char text[2048];
    snprintf(text, sizeof(text),
             "model:\n"
             "  foundation: {family: qwen3, num_layers: 2, hidden_size: 48,\n"
             "    ffn_hidden_size: 80, num_attention_heads: 3,\n"
             "    num_query_groups: 1, kv_channels: 16, vocab_size: %d,\n"
             "    max_position_embeddings: 64, qk_layernorm: true,\n"
             "    hidden_dropout: 0.1, activation: swiglu}\n"
             "precision: {params_dtype: %s}\n"
             "data: {seq_length: 32, train: [{path: %s/data}]}\n"
             "train: {micro_batch_size: 2, global_batch_size: 8,\n"
             "  train_iters: 50}\n"
             "optimizer: {lr: 1e-3}\n"
             "log: {dir: %s/log}\n"
             "%s",
             ENGINE_VOCAB, job->dtype, job->dir, job->dir, job->extra);
    return loong_recipe_parse(ctx, "test", text, NULL, recipe_p);
}

/* Steps after the second are like each other: rank 0 counts those. */
static loong_status_t steps(loong_context_t *ctx, loong_comm_t *comm,
                            void *user)
{
    const job_t *job = user;
    loong_recipe_t *recipe = NULL;
    loong_trainer_t *t = NULL;
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(make_recipe(ctx, job, &recipe));
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe};
    loong_status_t status = loong_trainer_create(ctx, &params, &t);
    for (int i = 0; i < 6 && status == LOONG_OK; i++) {
        uint64_t before = loong_context_alloc_count(ctx);
        status = loong_comm_barrier(comm, "before the step");
        seen.on = seen.on || (i > 1 && loong_comm_rank(comm) == 0);
        if (status == LOONG_OK) {
            status = loongi_train_begin(t);
        }
        if (status == LOONG_OK) {
            status = loongi_train_step(t);
        }
        seen.count += loong_context_alloc_count(ctx) != before;
    }
    seen.on = false;
    loong_trainer_destroy(&t);
    loong_recipe_destroy(&recipe);
    return status;
}

typedef loong_status_t (*job_fn)(loong_context_t *ctx, loong_comm_t *comm,
                                 void *user);

static void run(job_fn what, const char *dtype, const char *extra, int ranks)
{
    job_t job = {"/tmp/loong-quiet-XXXXXX", dtype, extra};
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = {0};
    params.size = ranks;
    assert_non_null(mkdtemp(job.dir));
    engine_make_data(ctx, job.dir, ENGINE_VOCAB, 1 << 15);
    memset(&seen, 0, sizeof(seen));
    assert_ok(ctx, loong_threads_run(ctx, &params, what, &job));
    if (seen.count != 0) {
        fail_msg("%s, %d ranks: %d calls in four steps:%s", dtype, ranks,
                 seen.count, seen.names);
    }
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", job.dir);
    assert_int_equal(system(command), 0);
    test_context_end(&ctx);
}

static void test_steps(void **state)
{
    (void)state;
    run(steps, "fp32", "", 1);
    run(steps, "bf16", "", 1);
    run(steps, "fp64", "recompute: {granularity: full}\n", 1);
    run(steps, "bf16", "", 2);
}

/* The wrappers see what the library does. */
static void test_wrappers(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    void *memory = NULL;
    memset(&seen, 0, sizeof(seen));
    seen.on = true;
    assert_ok(ctx, loongi_alloc(ctx, 10, "probe", &memory));
    assert_null(loong_find_op(ctx, "nothing"));
    seen.on = false;
    assert_true(seen.count > 0);
    loongi_free(ctx, memory);
    test_context_end(&ctx);
}

/* ---- the executor -------------------------------------------------------- */

static loong_status_t nothing(const loong_kernel_call_t *call)
{
    (void)call;
    return LOONG_OK;
}

/* A step of eight operands whose kernel does nothing costs less than 1 us:
 * the best of many runs, so that a busy machine does not matter. */
static void test_overhead(void **state)
{
    (void)state;
    enum { STEPS = 1000, RUNS = 200 };
    static loong_step_t list[STEPS];
    const loong_kernel_t kernel = {
        .name = "nothing", .op = "nothing", .device = "cpu", .run = nothing};
    char memory[64];
    loong_binding_t bound = {0};
    loong_program_t program = {0};
    loong_frame_t frame = {0};
    double best = 1.0;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        bound.base[b] = memory;
    }
    for (int i = 0; i < STEPS; i++) {
        list[i].kernel = &kernel;
        list[i].scope = "";
        list[i].query.num_in = 6;
        list[i].query.num_out = 2;
        for (int a = 0; a < 8; a++) {
            list[i].operand[a].base = LOONG_BASE_SCRATCH;
        }
    }
    program.steps = list;
    program.num_steps = STEPS;
    for (int r = 0; r < RUNS; r++) {
        double begin = loongi_now();
        assert_int_equal(loongi_program_run(&bound, &program, &frame),
                         LOONG_OK);
        best = fmin(best, loongi_now() - begin);
    }
    print_message("%.1f ns a step\n", 1e9 * best / STEPS);
    assert_true(best / STEPS < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrappers),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_overhead),
    };
    return cmocka_run_group_tests_name("quiet_step", tests, NULL, NULL);
}
