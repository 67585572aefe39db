/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a device: the fastest algorithm is found once and stays, in this
 * process and the next; tf32; what is refused and what fails on the way. The
 * simulated library suggests its slowest algorithm first, and each of its
 * algorithms has bits of its own. */
#include "cublaslt/cublaslt.h"

#include <dlfcn.h>

#include "cublaslt/algorithms.h"
#include "cudasim.h"
#include "test_dir.h"

TEST_DIR(dir)

enum { M = 40, N = 24, K = 300 };

static char path[96];
static char said[2048]; /* warnings */

static void keep(void *user, loong_log_level_t level, const char *line)
{
    size_t length = strlen(said);
    (void)user;
    (void)level;
    snprintf(said + length, sizeof(said) - length, "%s\n", line);
}

static loong_kernel_policy_t policy; /* of the products */

static int begin_test(void **state)
{
    static int number = 0;
    (void)state;
    snprintf(path, sizeof(path), "%s/file%d", dir, number++);
    said[0] = '\0';
    memset(&policy, 0, sizeof(policy));
    cudasim_reset();
    cudasim_devices(1, (size_t)16 << 20);
    return 0;
}

static loong_context_t *begin(bool tf32, const char *algorithms)
{
    loong_context_params_t params = {keep, NULL, LOONG_LOG_WARN};
    loong_context_t *ctx = NULL;
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    policy.tf32 = tf32;
    policy.algorithms = algorithms;
    return ctx;
}

static loong_cublaslt_params_t params_of(loong_dtype_t in)
{
    loong_cublaslt_params_t p = loongi_cublaslt_begin(&policy);
    p.m = p.ldc = M;
    p.n = N;
    p.k = p.lda = p.ldb = K;
    p.trans_a = true;
    p.in = in;
    return p;
}

/* Numbers of fp32 or bf16 on the device. */
static void *upload(int64_t count, loong_dtype_t dtype, int stream)
{
    size_t size = loong_dtype_size(dtype);
    char *host = malloc((size_t)count * size);
    void *memory = NULL;
    for (int64_t i = 0; i < count; i++) {
        float x = sinf((float)(i * 7 + stream)) * 1.37f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(host + (size_t)i * size,
               size == sizeof(x) ? (void *)&x : (void *)&half, size);
    }
    assert_int_equal(cudaMalloc(&memory, (size_t)count * size), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(memory, host, (size_t)count * size,
                                     cudaMemcpyHostToDevice, NULL),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    free(host);
    return memory;
}

/* n columns of c over k, by a product made for n[0] and k[0], in order of
 * `runs` launches of n[i] and k[i]; what the last one makes. */
typedef struct launches {
    int runs;
    int64_t n[16], k[16];
} launches_t;

static void multiply_sizes(loong_context_t *ctx, loong_dtype_t in,
                           const launches_t *l, float c[M * N])
{
    loong_cublaslt_params_t params = params_of(in);
    loong_cublaslt_t *product = NULL;
    params.n = l->n[0];
    params.k = l->k[0];
    assert_ok(ctx, loongi_cublaslt_create(ctx, &params, &product));
    void *memory[4] = {upload(M * K, in, 1), upload(N * K, in, 2),
                       upload(M * N, LOONG_F32, 3), NULL};
    assert_int_equal(cudaMalloc(&memory[3], LOONG_CUBLASLT_WORKSPACE),
                     cudaSuccess);
    loong_cublaslt_operands_t o = {memory[0], memory[1], memory[2], 0,    0,
                                   false,     memory[3], NULL,      NULL, NULL};
    for (int i = 0; i < l->runs; i++) {
        o.n = l->n[i];
        o.k = l->k[i];
        assert_ok(ctx, loongi_cublaslt_run(ctx, product, &o));
    }
    assert_int_equal(cudaMemcpyAsync(c, memory[2], sizeof(float) * M * N,
                                     cudaMemcpyDeviceToHost, NULL),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    for (int i = 0; i < 4; i++) {
        cudaFree(memory[i]);
    }
    loongi_cublaslt_destroy(ctx, product);
    assert_int_equal(cudasim_alive(), 0);
}

/* What a product of this context makes. */
static void multiply(loong_context_t *ctx, loong_dtype_t in, float c[M * N])
{
    const launches_t whole = {1, {N}, {K}};
    multiply_sizes(ctx, in, &whole, c);
}

static bool same(const float *a, const float *b)
{
    return memcmp(a, b, sizeof(float) * M * N) == 0;
}

/* The file's text; the caller frees it. */
static char *read_file(loong_context_t *ctx)
{
    char *text = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
    char *copy = strdup(text);
    loongi_free(ctx, text);
    return copy;
}

static void test_measured(void **state)
{
    float first[M * N];
    float fastest[M * N];
    float again[M * N];
    (void)state;
    loong_context_t *ctx = begin(false, NULL);
    multiply(ctx, LOONG_F32, first);
    test_context_end(&ctx);
    ctx = begin(false, path);
    int64_t uniform = cudasim_uniform_products();
    multiply(ctx, LOONG_F32, fastest);
    assert_int_equal(cudasim_uniform_products(), uniform);
    assert_false(same(first, fastest));
    char *text = read_file(ctx);
    assert_non_null(strstr(text, "cuBLASLt 130100, fp32 to fp32, m 40 n 24 k "
                                 "300, TN, strides 300 300 40"));
    test_context_end(&ctx);
    for (uint64_t seed = 0; seed < 4; seed++) { /* other orders of events */
        cudasim_seed(seed);
        ctx = begin(false, path);
        int64_t calls = cudasim_calls();
        multiply(ctx, LOONG_F32, again);
        assert_true(cudasim_calls() - calls < 24); /* nothing was measured */
        assert_true(same(fastest, again));
        char *now = read_file(ctx);
        assert_string_equal(now, text);
        free(now);
        test_context_end(&ctx);
    }
    free(text);
    assert_string_equal(said, "");
    assert_string_equal(cudasim_report(), "");
}

/* Whatever an algorithm depends on makes a line of its own, and nothing else
 * does: products that differ in one thing each, twice. */
static void test_keys(void **state)
{
    enum { FIELDS = 16 };
    loong_cublaslt_params_t p[FIELDS];
    (void)state;
    for (int i = 0; i < FIELDS; i++) {
        p[i] = params_of(LOONG_F32);
        p[i].k = 24;
        p[i].trans_b = true; /* one stride serves both ways */
        p[i].lda = p[i].ldb = p[i].ldc = 48;
        p[i].batch = 2;
        for (int j = 0; j < 3; j++) {
            p[i].step[j] = 48 * 48;
        }
    }
    p[1].m = 32;
    p[2].n = 16;
    p[3].k = 16;
    p[4].lda = 56;
    p[5].ldb = 56;
    p[6].ldc = 56;
    p[7].batch = 3;
    p[8].step[0] *= 2;
    p[9].step[1] *= 2;
    p[10].step[2] *= 2;
    p[11].trans_a = false;
    p[12].trans_b = false;
    p[13].in = LOONG_BF16;
    p[14].in = p[14].out = LOONG_BF16;
    p[15].lda = 49; /* no wide loads */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < FIELDS; i++) {
            loong_cublaslt_t *product = NULL;
            loong_context_t *ctx = begin(false, path);
            p[i].policy = policy;
            assert_ok(ctx, loongi_cublaslt_create(ctx, &p[i], &product));
            loongi_cublaslt_destroy(ctx, product);
            char *text = read_file(ctx);
            int lines = 0;
            for (const char *c = text; *c != '\0'; c++) {
                lines += *c == '\n';
            }
            free(text);
            assert_int_equal(lines, 1 + (round == 0 ? i + 1 : FIELDS));
            test_context_end(&ctx);
        }
    }
    assert_string_equal(said, "");
}

/* An algorithm of another library under this one's key. */
static void test_unknown(void **state)
{
    float fastest[M * N];
    float again[M * N];
    char key[512];
    loong_algorithm_t wrong = {{1, 2, 3, 4, 5, 6, 7, 8}};
    (void)state;
    loong_context_t *ctx = begin(false, path);
    multiply(ctx, LOONG_F32, fastest);
    char *text = read_file(ctx);
    const char *line = strchr(text, '\n') + 1;
    snprintf(key, sizeof(key), "%.*s", (int)(strlen(line) - 146), line + 145);
    assert_ok(ctx, loongi_algorithms_put(ctx, path, key, &wrong));
    multiply(ctx, LOONG_F32, again);
    assert_true(same(fastest, again));
    assert_non_null(strstr(said, "cuBLASLt refuses the algorithm for '"));
    assert_non_null(strstr(said, "it is measured again"));
    char *now = read_file(ctx);
    assert_string_equal(now, text);
    free(now);
    free(text);
    test_context_end(&ctx);
}

/* Without room the first one is taken, now and from then on. */
static void test_no_room(void **state)
{
    float c[M * N];
    float first[M * N];
    (void)state;
    loong_context_t *ctx = begin(false, NULL);
    multiply(ctx, LOONG_F32, first);
    test_context_end(&ctx);
    ctx = begin(false, path);
    loong_cublaslt_params_t params = params_of(LOONG_F32);
    loong_cublaslt_t *product = NULL;
    cudasim_devices(1, 4096);
    assert_ok(ctx, loongi_cublaslt_create(ctx, &params, &product));
    loongi_cublaslt_destroy(ctx, product);
    assert_int_equal(cudasim_alive(), 0);
    assert_non_null(strstr(said, "no memory to measure m 40, n 24, k 300"));
    cudasim_devices(1, (size_t)16 << 20);
    multiply(ctx, LOONG_F32, c);
    assert_true(same(c, first));
    test_context_end(&ctx);
}

/* Every call fails in its turn: an error, nothing is left behind, and the next
 * start measures. */
static void test_failures(void **state)
{
    loong_cublaslt_t *product = NULL;
    loong_status_t status = LOONG_ERR_DEVICE;
    loong_context_t *ctx = begin(false, path);
    loong_cublaslt_params_t params = params_of(LOONG_BF16);
    int failures = 0;
    (void)state;
    cudasim_quiet(1);
    for (int n = 1; status != LOONG_OK; n++) {
        cudasim_fail_at(n, cudaErrorIllegalAddress);
        status = loongi_cublaslt_create(ctx, &params, &product);
        cudasim_fail_at(0, cudaSuccess);
        if (status != LOONG_OK) { /* else what freed did fail */
            failures++;
            assert_int_equal(cudasim_alive(), 0);
            assert_non_null(strstr(loong_context_error(ctx), "cuBLASLt"));
            assert_false(loongi_file_exists(path));
            loong_context_clear_error(ctx);
        }
        cudaGetLastError();
    }
    assert_true(failures > 20);
    loongi_cublaslt_destroy(ctx, product);
    cudasim_quiet(0);
    test_context_end(&ctx);
}

/* 10 bits of mantissa: other bits, near those of fp32. bf16 has fewer. */
static void test_tf32(void **state)
{
    float wide[M * N];
    float narrow[M * N];
    (void)state;
    for (int half = 0; half < 2; half++) {
        loong_dtype_t in = half ? LOONG_BF16 : LOONG_F32;
        loong_context_t *ctx = begin(false, NULL);
        multiply(ctx, in, wide);
        test_context_end(&ctx);
        ctx = begin(true, NULL);
        multiply(ctx, in, narrow);
        test_context_end(&ctx);
        double error = 0.0;
        double norm = 0.0;
        for (int i = 0; i < M * N; i++) {
            error += pow((double)narrow[i] - (double)wide[i], 2.0);
            norm += pow((double)wide[i], 2.0);
        }
        assert_int_equal(same(wide, narrow), half);
        assert_true(sqrt(error) <= 0x1p-10 * sqrt(norm));
    }
}

/* A smaller size has the measured algorithm where that runs, as it does for
 * even ones, and the library's first one otherwise, in whatever order sizes
 * come and however often. */
static void test_sizes(void **state)
{
    static float made[M * N];
    static float wanted[M * N];
    static const int64_t sizes[][2] = {{22, K}, {23, K},     {N, 298},
                                       {7, 11}, {N, K - 1}, {1, 1}};
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        int64_t n = sizes[i][0];
        int64_t k = sizes[i][1];
        bool even = n % 2 == 0 && k % 2 == 0;
        const launches_t alone = {1, {n}, {k}};
        launches_t many = {16, {N, n, 2}, {K, k, 2}};
        for (int j = 3; j < 15; j++) { /* more than are remembered */
            many.n[j] = j;
            many.k[j] = K - j;
        }
        many.n[15] = n;
        many.k[15] = k;
        loong_context_t *ctx = begin(false, even ? path : NULL);
        multiply_sizes(ctx, LOONG_F32, &alone, wanted);
        test_context_end(&ctx);
        ctx = begin(false, path);
        multiply_sizes(ctx, LOONG_F32, &many, made);
        test_context_end(&ctx);
        for (int64_t j = 0; j < n * M; j++) {
            assert_memory_equal(&made[j], &wanted[j], sizeof(made[j]));
        }
    }
    assert_string_equal(cudasim_report(), "");
}

/* Kernels of the library that a graph knows may not go with it. */
static int loads;
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
    loads++;
    assert_true((flags & RTLD_NODELETE) != 0);
    return __real_dlopen(name, flags);
}

/* Products that come and go share one library, and one handle a device. */
static void test_one_library(void **state)
{
    const loong_cublaslt_params_t params = params_of(LOONG_BF16);
    (void)state;
    cudasim_devices(2, (size_t)16 << 20);
    loong_context_t *ctx = begin(false, NULL);
    int64_t made = cudasim_cublaslt_handles(0);
    loads = 0;
    for (int i = 0; i < 6; i++) {
        loong_cublaslt_t *product = NULL;
        assert_int_equal(cudaSetDevice(i / 3), cudaSuccess);
        assert_ok(ctx, loongi_cublaslt_create(ctx, &params, &product));
        loongi_cublaslt_destroy(ctx, product);
        assert_int_equal(cudasim_cublaslt_handles(0) - made, 1 + i / 3);
    }
    assert_int_equal(loads, 1);
    test_context_end(&ctx);
    assert_int_equal(cudasim_cublaslt_handles(1), 0);
    assert_string_equal(cudasim_report(), "");
}

/* Operands of two types that begin at any element of theirs. */
static void test_unaligned(void **state)
{
    loong_cublaslt_params_t params = params_of(LOONG_BF16);
    loong_cublaslt_t *product = NULL;
    bool can = false;
    (void)state;
    params.out = LOONG_F32;
    params.ldc = M + 1;
    loong_context_t *ctx = begin(false, NULL);
    assert_ok(ctx, loongi_cublaslt_create(ctx, &params, &product));
    assert_ok(ctx, loongi_cublaslt_can(ctx, product, NULL, &can));
    assert_true(can);
    loongi_cublaslt_destroy(ctx, product);
    test_context_end(&ctx);
}

/* A device that fails while algorithms are looked for is no lack of them. */
static void test_device_lost(void **state)
{
    const loong_cublaslt_params_t params = params_of(LOONG_BF16);
    loong_cublaslt_t *product = NULL;
    (void)state;
    loong_context_t *ctx = begin(false, NULL);
    cudasim_quiet(1);
    cudasim_fail_at(2, cudaErrorIllegalAddress);
    assert_fails(ctx, loongi_cublaslt_create(ctx, &params, &product),
                 LOONG_ERR_DEVICE, "MatmulAlgoGetHeuristic: internal error");
    assert_non_null(strstr(cudasim_report(), "AlgoGetHeuristic fails as told"));
    loong_context_clear_error(ctx);
    cudasim_lose(cudaErrorIllegalAddress);
    assert_fails(ctx, loongi_cublaslt_create(ctx, &params, &product),
                 LOONG_ERR_DEVICE, "cudaErrorIllegalAddress");
    cudasim_quiet(0);
    test_context_end(&ctx);
}

static void test_fp8(void **state)
{
    (void)state;
    loong_context_t *ctx = begin(false, NULL);
    loong_cublaslt_params_t params = params_of(LOONG_F8_E4M3);
    loong_cublaslt_t *product = NULL;
    assert_fails(ctx, loongi_cublaslt_create(ctx, &params, &product),
                 LOONG_ERR_UNSUPPORTED,
                 "made of fp32 and bf16, not of fp8_e4m3 to fp32");
    assert_null(product);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_measured, begin_test),
        cmocka_unit_test_setup(test_keys, begin_test),
        cmocka_unit_test_setup(test_unknown, begin_test),
        cmocka_unit_test_setup(test_no_room, begin_test),
        cmocka_unit_test_setup(test_failures, begin_test),
        cmocka_unit_test_setup(test_tf32, begin_test),
        cmocka_unit_test_setup(test_sizes, begin_test),
        cmocka_unit_test_setup(test_one_library, begin_test),
        cmocka_unit_test_setup(test_unaligned, begin_test),
        cmocka_unit_test_setup(test_device_lost, begin_test),
        cmocka_unit_test_setup(test_fp8, begin_test),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
