/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured streams of the simulated device: a replay does what the streams
 * would have done, whatever the order of what no edge orders; an edge that is
 * missing and each call that must not be captured is found. */
#include <pthread.h>

#include "convert.h"
#include "cudasim.h"
#include "proof.h"
#include "test.h"

enum { ROWS = 13, COLS = 37, SIZE = ROWS * COLS, SEEDS = 16, REPLAYS = 3 };

typedef struct world {
    float *x; /* pinned */
    uint16_t *z; /* pinned */
    float *dev_x;
    uint16_t *dev_z;
    cudaStream_t work;
    cudaStream_t side;
    cudaEvent_t fork;
    cudaEvent_t join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
} world_t;

static void must(cudaError_t error)
{
    if (error != cudaSuccess) {
        fail_msg("%s: %s", cudaGetErrorName(error), cudasim_report());
    }
}

static void begin(world_t *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    cudasim_reset();
    cudasim_seed(seed);
    must(cudaMallocHost((void **)&w->x, SIZE * sizeof(float)));
    must(cudaMallocHost((void **)&w->z, SIZE * sizeof(uint16_t)));
    must(cudaMalloc((void **)&w->dev_x, SIZE * sizeof(float)));
    must(cudaMalloc((void **)&w->dev_z, SIZE * sizeof(uint16_t)));
    must(cudaStreamCreateWithFlags(&w->work, cudaStreamNonBlocking));
    must(cudaStreamCreateWithFlags(&w->side, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&w->fork, cudaEventDisableTiming));
    must(cudaEventCreateWithFlags(&w->join, cudaEventDisableTiming));
}

/* x goes to the device on one stream, is transposed on the other. */
static cudaError_t capture(world_t *w, bool edge)
{
    const proof_shape_t shape = {ROWS, COLS};
    must(cudaStreamBeginCapture(w->work, cudaStreamCaptureModeThreadLocal));
    must(cudaEventRecord(w->fork, w->work));
    must(cudaStreamWaitEvent(w->side, w->fork, 0));
    must(cudaMemcpyAsync(w->dev_x, w->x, SIZE * sizeof(float),
                         cudaMemcpyDefault, w->side));
    must(cudaEventRecord(w->join, w->side));
    if (edge) {
        must(cudaStreamWaitEvent(w->work, w->join, 0));
    }
    proof_transpose(PROOF_RIGHT, w->dev_x, w->dev_z, shape, w->work);
    must(cudaMemcpyAsync(w->z, w->dev_z, SIZE * sizeof(uint16_t),
                         cudaMemcpyDefault, w->work));
    if (!edge) {
        must(cudaStreamWaitEvent(w->work, w->join, 0));
    }
    return cudaStreamEndCapture(w->work, &w->graph);
}

static bool replay_right(world_t *w, int turn)
{
    for (int i = 0; i < SIZE; i++) {
        w->x[i] = (float)((i * 31 + turn * 17) % 251);
        w->z[i] = 0xffff;
    }
    must(cudaGraphLaunch(w->exec, w->work));
    must(cudaStreamSynchronize(w->work));
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            if (w->z[c * ROWS + r] !=
                loongi_f64_to_bf16((double)w->x[r * COLS + c])) {
                return false;
            }
        }
    }
    return true;
}

/* Nothing runs before it is launched, and then again and again. */
static void test_replay(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world_t w;
        size_t nodes = 0;
        size_t total = 0;
        size_t before = 0;
        size_t after = 0;
        begin(&w, seed);
        w.z[0] = 7;
        must(capture(&w, true));
        must(cudaGraphGetNodes(w.graph, NULL, &nodes));
        assert_int_equal(nodes, 3);
        must(cudaMemGetInfo(&before, &total));
        must(cudaGraphInstantiate(&w.exec, w.graph, 0));
        must(cudaMemGetInfo(&after, &total));
        assert_int_equal(before - after, 3 * 512);
        must(cudaGraphDestroy(w.graph));
        must(cudaDeviceSynchronize());
        assert_int_equal(w.z[0], 7);
        for (int turn = 0; turn < REPLAYS; turn++) {
            assert_true(replay_right(&w, turn));
        }
        must(cudaGraphLaunch(w.exec, w.work)); /* and may go while it runs */
        must(cudaGraphExecDestroy(w.exec));
        must(cudaStreamSynchronize(w.work));
        assert_string_equal(cudasim_report(), "");
    }
    cudasim_reset();
    assert_int_equal(cudasim_alive(), 0);
}

static void test_missing_edge(void **state)
{
    (void)state;
    int found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        world_t w;
        bool right = true;
        begin(&w, seed);
        must(capture(&w, false));
        must(cudaGraphInstantiate(&w.exec, w.graph, 0));
        for (int turn = 0; turn < REPLAYS && right; turn++) {
            right = replay_right(&w, turn);
        }
        found += !right;
    }
    print_message("found with %d of %d seeds\n", found, SEEDS);
    assert_true(found > SEEDS / 2);
    cudasim_reset();
}

typedef enum forbidden {
    SYNCHRONIZE,
    SYNCHRONIZE_DEVICE,
    QUERY,
    ALLOCATE,
    ALLOCATE_IN_ORDER,
    FREE,
    PIN,
    ORDINARY_MEMORY,
    DEFAULT_STREAM,
    OUTER_EVENT,
    LAUNCH,
    FORBIDDEN
} forbidden_t;

static cudaError_t do_forbidden(world_t *w, forbidden_t what)
{
    static char ordinary[16];
    void *p = NULL;
    switch (what) {
    case SYNCHRONIZE:
        return cudaStreamSynchronize(w->side);
    case SYNCHRONIZE_DEVICE:
        return cudaDeviceSynchronize();
    case QUERY:
        return cudaEventQuery(w->fork);
    case ALLOCATE:
        return cudaMalloc(&p, 64);
    case ALLOCATE_IN_ORDER:
        return cudaMallocAsync(&p, 64, w->work);
    case FREE:
        return cudaFree(w->dev_x);
    case PIN:
        return cudaMallocHost(&p, 64);
    case ORDINARY_MEMORY:
        return cudaMemcpyAsync(w->dev_x, ordinary, sizeof(ordinary),
                               cudaMemcpyDefault, w->work);
    case DEFAULT_STREAM:
        cudaMemsetAsync(w->dev_x, 0, 4, NULL);
        return cudaGetLastError();
    case OUTER_EVENT:
        return cudaStreamWaitEvent(w->work, w->join, 0);
    default:
        return cudaGraphLaunch(w->exec, w->work);
    }
}

/* It fails, and so does the end of the capture; the next one is whole. */
static void test_forbidden(void **state)
{
    (void)state;
    for (int what = 0; what < FORBIDDEN; what++) {
        world_t w;
        begin(&w, (uint64_t)what);
        must(capture(&w, true));
        must(cudaGraphInstantiate(&w.exec, w.graph, 0));
        must(cudaGraphDestroy(w.graph));
        must(cudaEventRecord(w.join, w.side)); /* not captured */
        must(cudaStreamBeginCapture(w.work,
                                    cudaStreamCaptureModeThreadLocal));
        must(cudaMemsetAsync(w.dev_x, 0, 4, w.work));
        cudaError_t error = do_forbidden(&w, (forbidden_t)what);
        if (error < cudaErrorStreamCaptureUnsupported) {
            fail_msg("%d: %s", what, cudaGetErrorName(error));
        }
        assert_string_not_equal(cudasim_report(), "");
        assert_int_equal(cudaStreamEndCapture(w.work, &w.graph),
                         cudaErrorStreamCaptureInvalidated);
        assert_null(w.graph);
        must(capture(&w, true));
        must(cudaGraphExecDestroy(w.exec));
        must(cudaGraphInstantiate(&w.exec, w.graph, 0));
        assert_true(replay_right(&w, what));
    }
    cudasim_reset();
}

static void *end_elsewhere(void *user)
{
    world_t *w = user;
    assert_int_equal(cudaStreamEndCapture(w->work, &w->graph),
                     cudaErrorStreamCaptureWrongThread);
    return NULL;
}

static void test_ends(void **state)
{
    (void)state;
    world_t w;
    pthread_t thread;
    begin(&w, 1);
    assert_int_equal(cudaStreamEndCapture(w.work, &w.graph),
                     cudaErrorIllegalState);
    assert_int_equal(
        cudaStreamBeginCapture(NULL, cudaStreamCaptureModeThreadLocal),
        cudaErrorStreamCaptureUnsupported);
    must(cudaStreamBeginCapture(w.work, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(
        cudaStreamBeginCapture(w.side, cudaStreamCaptureModeThreadLocal),
        cudaErrorIllegalState);
    must(cudaEventRecord(w.fork, w.work));
    must(cudaStreamWaitEvent(w.side, w.fork, 0));
    assert_int_equal(cudaStreamEndCapture(w.side, &w.graph),
                     cudaErrorStreamCaptureUnmatched);
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    must(cudaMemsetAsync(w.dev_x, 0, 4, w.side));
    assert_int_equal(cudaStreamEndCapture(w.work, &w.graph),
                     cudaErrorStreamCaptureUnjoined);
    assert_non_null(strstr(cudasim_report(), "nothing is captured"));
    /* What was recorded in it is of no use behind it. */
    assert_int_equal(cudaStreamWaitEvent(w.side, w.fork, 0),
                     cudaErrorCapturedEvent);
    assert_int_equal(cudaEventQuery(w.fork), cudaErrorCapturedEvent);
    cudasim_reset();
}

/* The n-th call fails: nothing is left of the capture. */
static void test_injected(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        world_t w;
        begin(&w, 1);
        cudasim_fail_at(n, cudaErrorMemoryAllocation);
        cudaError_t error = cudaStreamBeginCapture(
            w.work, cudaStreamCaptureModeThreadLocal);
        error = error == cudaSuccess ? cudaStreamEndCapture(w.work, &w.graph)
                                     : error;
        error = error == cudaSuccess
                    ? cudaGraphInstantiate(&w.exec, w.graph, 0)
                    : error;
        assert_int_equal(error, cudaErrorMemoryAllocation);
        assert_null(w.exec);
        must(cudaMemsetAsync(w.dev_x, 0, 4, w.work)); /* at once again */
        must(cudaStreamSynchronize(w.work));
    }
    cudasim_reset();
    assert_int_equal(cudasim_alive(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay),    cmocka_unit_test(test_missing_edge),
        cmocka_unit_test(test_forbidden), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_injected),
    };
    cudasim_quiet(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
