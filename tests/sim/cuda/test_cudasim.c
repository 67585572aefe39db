/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated CUDA device: kernels that are right give right results in
 * every order of threads and streams, and each mistake is found. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "convert.h"
#include "cudasim.h"
#include "proof.h"
#include "test.h"

enum { ROWS = 45, COLS = 203, SIZE = ROWS * COLS, SEEDS = 12 };

/* What the host gives, and where the device has it. */
typedef struct world {
    float *x; /* pinned */
    float *y; /* pinned */
    uint16_t *z; /* pinned */
    float *dev_x;
    float *dev_w;
    float *dev_y;
    uint16_t *dev_z;
    float *dev_sum;
    float *sum; /* pinned */
    cudaStream_t copies;
    cudaStream_t work;
    cudaEvent_t there;
} world_t;

static void must(cudaError_t error)
{
    if (error != cudaSuccess) {
        fail_msg("%s: %s", cudaGetErrorName(error), cudasim_report());
    }
}

static void *pinned(size_t size)
{
    void *p = NULL;
    must(cudaMallocHost(&p, size));
    return p;
}

static void *device(size_t size)
{
    void *p = NULL;
    must(cudaMalloc(&p, size));
    return p;
}

static float input(int i)
{
    return (float)((i * 7919) % 1009 - 504) / 128.0f;
}

static void begin(world_t *w)
{
    w->x = pinned(SIZE * sizeof(float));
    w->y = pinned(SIZE * sizeof(float));
    w->z = pinned(SIZE * sizeof(uint16_t));
    w->sum = pinned(sizeof(float));
    w->dev_x = device(SIZE * sizeof(float));
    w->dev_w = device(COLS * sizeof(float));
    w->dev_y = device(SIZE * sizeof(float));
    w->dev_z = device(SIZE * sizeof(uint16_t));
    w->dev_sum = device(sizeof(float));
    must(cudaStreamCreateWithFlags(&w->copies, cudaStreamNonBlocking));
    must(cudaStreamCreateWithFlags(&w->work, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&w->there, cudaEventDisableTiming));
    for (int i = 0; i < SIZE; i++) {
        w->x[i] = input(i);
        w->y[i] = -1.0f;
        w->z[i] = 1;
    }
}

/* All three kernels: what they need on one stream, they on another. */
static cudaError_t run_all(world_t *w, proof_bug_t bug)
{
    const proof_shape_t shape = {ROWS, COLS};
    float weight[COLS];
    for (int c = 0; c < COLS; c++) {
        weight[c] = 1.0f + (float)(c % 8) / 8.0f;
    }
    must(cudaMemcpyAsync(w->dev_w, weight, sizeof(weight), cudaMemcpyDefault,
                         w->copies));
    must(cudaMemcpyAsync(w->dev_x, w->x, SIZE * sizeof(float),
                         cudaMemcpyDefault, w->copies));
    must(cudaEventRecord(w->there, w->copies));
    if (bug != PROOF_NO_WAIT) {
        must(cudaStreamWaitEvent(w->work, w->there, 0));
    }
    must(cudaMemsetAsync(w->dev_sum, 0, sizeof(float), w->work));
    proof_rmsnorm(bug, w->dev_x, w->dev_w, w->dev_y, shape, w->work);
    proof_sum(bug, w->dev_x, SIZE, w->dev_sum, w->work);
    proof_transpose(bug, w->dev_x, w->dev_z, shape, w->work);
    cudaMemcpyAsync(w->y, w->dev_y, SIZE * sizeof(float), cudaMemcpyDefault,
                    w->work);
    cudaMemcpyAsync(w->z, w->dev_z, SIZE * sizeof(uint16_t),
                    cudaMemcpyDefault, w->work);
    cudaMemcpyAsync(w->sum, w->dev_sum, sizeof(float), cudaMemcpyDefault,
                    w->work);
    return cudaStreamSynchronize(w->work);
}

static bool close_to(double got, double want, double bound)
{
    return fabs(got - want) <= bound; /* not with NaN */
}

/* In rows of up to 256 numbers below 4, all in multiples of 1/128, sums of
 * inputs are exact; a square root and two products round. */
static bool right(const world_t *w)
{
    double total = 0.0;
    for (int r = 0; r < ROWS; r++) {
        double squares = 0.0;
        for (int c = 0; c < COLS; c++) {
            double v = (double)input(r * COLS + c);
            squares += v * v;
            total += v;
        }
        double factor = 1.0 / sqrt(squares / COLS + 1e-5);
        for (int c = 0; c < COLS; c++) {
            double v = (double)input(r * COLS + c);
            double y = v * factor * (1.0 + (double)(c % 8) / 8.0);
            if (!close_to((double)w->y[r * COLS + c], y,
                          0x1p-20 * (fabs(y) + 1e-3)) ||
                w->z[c * ROWS + r] != loongi_f64_to_bf16(v)) {
                return false;
            }
        }
    }
    return close_to((double)*w->sum, total, 0.0);
}

/* True when something was found. */
static bool caught(proof_bug_t bug, uint64_t seed)
{
    world_t w;
    cudasim_reset();
    cudasim_seed(seed);
    begin(&w);
    cudaError_t error = run_all(&w, bug);
    bool found = error != cudaSuccess || !right(&w);
    if (error != cudaSuccess) {
        assert_true(strlen(cudasim_report()) > 0);
    }
    cudasim_reset();
    return found;
}

static void test_right(void **state)
{
    (void)state;
    cudasim_quiet(0);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_false(caught(PROOF_RIGHT, seed));
    }
    cudasim_quiet(1);
}

/* A wait that is missing shows when the device lags; all others always. */
static void test_bugs(void **state)
{
    (void)state;
    for (int bug = PROOF_RIGHT + 1; bug < PROOF_BUGS; bug++) {
        int found = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            found += caught((proof_bug_t)bug, seed);
        }
        print_message("bug %d: found with %d of %d seeds\n", bug, found,
                      SEEDS);
        assert_true(found >= (bug == PROOF_NO_WAIT ? 1 : SEEDS));
    }
}

static void test_wrong(void **state)
{
    (void)state;
    static const char *const texts[WRONG_COUNT] = {
        "thread (5,0,0): read of 4 bytes out of bounds: device allocation 1 "
        "of device 0, byte 400 of 400",
        "write of 4 bytes out of bounds",
        "read of 4 bytes after it was freed: device allocation 1 of device 0 "
        "(freed)",
        "access of 16 bytes at an address that is no multiple of it: device "
        "allocation 1 of device 0, byte 4",
        "read of 4 bytes of pageable host memory",
        "read of 4 bytes outside of the shared arrays",
        "waits at line",
        "for ever: 16 of 32 threads are at a barrier, 0 ended",
        "lane 7 of the mask ffffffff has ended",
        " names the lanes ffffffff, lane ",
        " ffffffff", /* names it, or is missed by those that do */
        "is not in its own mask 0000ffff",
        ", which is not in the mask 0000ffff",
        "lane 3 of the mask ffffffff has ended"};
    for (int i = 0; i < SEEDS * WRONG_COUNT; i++) {
        int wrong = i % WRONG_COUNT;
        cudasim_seed((uint64_t)i);
        cudaStream_t stream = NULL;
        float *x = device(100 * sizeof(float));
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        must(cudaMemsetAsync(x, 0, 100 * sizeof(float), stream));
        if (wrong == WRONG_FREED) {
            must(cudaFreeAsync(x, stream));
        }
        proof_wrong((proof_wrong_t)wrong, x, 100, stream);
        if (cudaStreamSynchronize(stream) == cudaSuccess) {
            fail_msg("not found: %s", texts[wrong]);
        }
        if (strstr(cudasim_report(), texts[wrong]) == NULL ||
            strstr(cudasim_report(), "kernel (wrong_") == NULL) {
            fail_msg("'%s' is not in: %s", texts[wrong], cudasim_report());
        }
        /* The device is lost. */
        assert_int_not_equal(cudaDeviceSynchronize(), cudaSuccess);
        cudasim_reset();
    }
}

/* ---- functions with errors ----------------------------------------------- */

enum { VALUES = 1000 };

static void evaluate(proof_function_t function, const float *x, float *y)
{
    cudaStream_t stream = NULL;
    float *there = device(2 * VALUES * sizeof(float));
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(cudaMemcpyAsync(there, x, VALUES * sizeof(float), cudaMemcpyDefault,
                         stream));
    proof_function(function, there, there + VALUES, VALUES, stream);
    must(cudaMemcpyAsync(y, there + VALUES, VALUES * sizeof(float),
                         cudaMemcpyDefault, stream));
    must(cudaStreamSynchronize(stream));
    cudasim_reset();
}

static double exact(proof_function_t function, double x)
{
    switch (function) {
    case PROOF_EX2: return exp2(x);
    case PROOF_RCP: return 1.0 / x;
    case PROOF_RSQRT: return 1.0 / sqrt(x);
    case PROOF_EXP: return exp(x);
    case PROOF_LOG: return log(x);
    case PROOF_TANH: return tanh(x);
    default: return erfc(x);
    }
}

/* Functions of the device are off by what its documents say, and not by more;
 * a kernel that takes one for exact is found. */
static void test_inexact(void **state)
{
    static const int units[PROOF_FUNCTIONS] = {2, 1, 2, 2, 1, 2, 4};
    float x[VALUES], y[VALUES], again[VALUES];
    (void)state;
    for (int f = 0; f < PROOF_FUNCTIONS; f++) {
        int off = 0;
        for (int i = 0; i < VALUES; i++) {
            x[i] = 0.01f + (float)(i * 7919 % VALUES) / 128.0f;
        }
        evaluate((proof_function_t)f, x, y);
        evaluate((proof_function_t)f, x, again);
        assert_memory_equal(y, again, sizeof(y));
        for (int i = 0; i < VALUES; i++) {
            float nearest = (float)exact((proof_function_t)f, (double)x[i]);
            float unit = nextafterf(fabsf(nearest), INFINITY) - fabsf(nearest);
            assert_true(fabsf(y[i] - nearest) <= 2.0f * unit * (float)units[f]);
            off += y[i] != nearest;
        }
        print_message("function %d: %d of %d off\n", f, off, VALUES);
        assert_true(off > VALUES / 2);
    }
    x[0] = -INFINITY;
    x[1] = 0.0f;
    x[2] = INFINITY;
    evaluate(PROOF_EX2, x, y);
    assert_true(y[0] == 0.0f && y[1] == 1.0f && y[2] == INFINITY);
    int wrong = 0;
    for (int i = 0; i < VALUES; i++) {
        x[i] = ldexpf(1.0f, i % 40 - 20);
    }
    evaluate(PROOF_POWER, x, y);
    for (int i = 0; i < 40; i++) {
        wrong += y[i] != 1.0f;
    }
    assert_true(wrong > 0);
}

static void test_host(void **state)
{
    (void)state;
    for (int write = 0; write < 2; write++) {
        volatile float *x = device(64);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* cmocka's is not wanted */
            if (write) {
                x[2] = 1.0f;
            }
            _exit(x[2] > 0.0f ? 3 : 4);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        cudasim_reset();
    }
}

static void launch_too_large(void)
{
    float *x = device(64);
    cudaStream_t stream = NULL;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    proof_shape_t none = {0, 16};
    proof_rmsnorm(PROOF_RIGHT, x, x, x, none, stream); /* no block */
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_non_null(strstr(cudasim_report(), "grid (0,1,1)"));
}

/* Whoever waits for an event waits for the record that there was then, on its
 * stream, whatever is recorded afterwards and where. */
static void test_events(void **state)
{
    enum { BYTES = 64 };
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudaStream_t stream[3];
        cudaEvent_t event = NULL;
        unsigned char got[2 * BYTES];
        cudasim_reset();
        cudasim_seed(seed);
        unsigned char *a = device(BYTES);
        unsigned char *b = device(2 * BYTES);
        must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        for (int i = 0; i < 3; i++) {
            must(cudaStreamCreateWithFlags(&stream[i],
                                           cudaStreamNonBlocking));
        }
        must(cudaMemsetAsync(a, 7, BYTES, stream[0]));
        must(cudaEventRecord(event, stream[0]));
        must(cudaStreamWaitEvent(stream[2], event, 0));
        must(cudaMemsetAsync(b + BYTES, 9, BYTES, stream[1]));
        must(cudaEventRecord(event, stream[1]));
        must(cudaMemcpyAsync(b, a, BYTES, cudaMemcpyDeviceToDevice,
                             stream[2]));
        must(cudaEventSynchronize(event));
        must(cudaStreamSynchronize(stream[2]));
        must(cudaMemcpyAsync(got, b, 2 * BYTES, cudaMemcpyDeviceToHost,
                             stream[2]));
        must(cudaStreamSynchronize(stream[2]));
        for (int i = 0; i < BYTES; i++) {
            assert_int_equal(got[i], 7);
            assert_int_equal(got[BYTES + i], 9);
        }
        must(cudaEventDestroy(event));
        for (int i = 0; i < 3; i++) {
            must(cudaStreamDestroy(stream[i]));
        }
        must(cudaFree(a));
        must(cudaFree(b));
        assert_int_equal(cudasim_alive(), 0);
    }
    cudasim_reset();
}

static void test_refused(void **state)
{
    (void)state;
    void *p = NULL;
    char bytes[64] = {0};
    launch_too_large();
    cudasim_reset();
    cudasim_devices(1, 1024);
    p = device(1000);
    assert_int_equal(cudaMalloc(&p, 100), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&p, 24), cudaSuccess);
    assert_int_equal(cudaMemcpyAsync(p, bytes, 25, cudaMemcpyDefault, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(
        cudaMemcpyAsync(p, bytes, 24, cudaMemcpyDeviceToHost, NULL),
        cudaErrorInvalidValue);
    assert_int_equal(cudaFree(p), cudaSuccess);
    assert_int_equal(cudaFree(p), cudaErrorInvalidValue);
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    cudasim_reset();
    cudasim_devices(1, (size_t)1 << 30);
}

/* The n-th call fails, for every n until all succeed. */
static void test_injected(void **state)
{
    (void)state;
    int64_t n = 1;
    for (; n < 100; n++) {
        void *p = NULL;
        cudaStream_t stream = NULL;
        cudasim_reset();
        cudasim_fail_at(n, cudaErrorMemoryAllocation);
        if (cudaMalloc(&p, 64) == cudaSuccess &&
            cudaStreamCreateWithFlags(&stream, 0) == cudaSuccess &&
            cudaMemsetAsync(p, 0, 64, stream) == cudaSuccess &&
            cudaStreamSynchronize(stream) == cudaSuccess) {
            break;
        }
        assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    }
    assert_int_equal(n, 5);
    assert_int_equal(cudasim_alive(), 2);
    cudasim_reset();
    assert_int_equal(cudasim_alive(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),    cmocka_unit_test(test_bugs),
        cmocka_unit_test(test_wrong),    cmocka_unit_test(test_host),
        cmocka_unit_test(test_events),   cmocka_unit_test(test_inexact),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_injected),
    };
    cudasim_quiet(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
