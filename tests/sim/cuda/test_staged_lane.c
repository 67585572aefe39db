/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives through host memory beside what a simulated device computes: a
 * call is held until the device has been given more. What comes out is what
 * comes out without the lane, bit for bit; and whatever goes wrong while a call
 * is under way ends the run. */
#include "train_run.h"

#include <stdatomic.h>
#include <unistd.h>

#include "staged_impl.h"

#define ZERO "bucket_bytes: 4096, data_parallel_sharding: "
#define BESIDE "overlap_work: 0"
#define GRAPHS ", cuda_graph_impl: local"

enum { HOLD_TURNS = 100, HOLD_MICROSECONDS = 100, MOST = 24, LATER = 4,
       LATE_MICROSECONDS = 100000 };
#define ENOUGH (8 * atomic_load(&beside) > MOST)

/* What a call of the device's rank does while it is held. */
typedef enum fault {
    NO_FAULT,
    COME_LATE,  /* the other rank does, again and again */
    FAIL_THERE, /* what the rank gives its device meanwhile fails */
    STAY_AWAY   /* the other rank does not come */
} fault_t;

static fault_t fault;
static _Atomic int held;   /* calls of ranks with a device */
static _Atomic int late;   /* calls of the other rank */
static _Atomic int beside; /* of them: the device was given more meanwhile */

/* Calls of the device's runtime that other threads make until then. */
static int64_t hold(int64_t wanted)
{
    int64_t before = cudasim_calls();
    for (int i = 0; i < HOLD_TURNS && cudasim_calls() - before < wanted; i++) {
        usleep(HOLD_MICROSECONDS);
    }
    return cudasim_calls() - before;
}

static void hold_device(void)
{
    int number = atomic_fetch_add(&held, 1);
    bool fails = fault == FAIL_THERE && number >= LATER;
    bool holds = (number < MOST && fault != COME_LATE) || fails;
    int64_t calls = 0;
    do { /* of some calls nobody asks how they ended */
        cudasim_fail_at(fails ? 1 : 0, cudaErrorIllegalState);
        calls = holds ? hold(fails ? 1 : 3) : 0;
    } while (fails && calls > 0);
    atomic_fetch_add(&beside, calls >= 3);
    cudasim_fail_at(0, cudaSuccess);
}

loong_status_t __real_loongi_staged_run(staged_t *s,
                                        const loong_collective_t *call);
loong_status_t __wrap_loongi_staged_run(staged_t *s,
                                        const loong_collective_t *call);
loong_status_t __wrap_loongi_staged_run(staged_t *s,
                                        const loong_collective_t *call)
{
    if (!loong_device_is_host(s->root->device)) {
        hold_device();
    } else if (fault == COME_LATE && atomic_fetch_add(&late, 1) < MOST) {
        usleep(LATE_MICROSECONDS);
    } else if (fault == STAY_AWAY && atomic_load(&held) >= LATER) {
        fault = NO_FAULT; /* once */
        sleep(3);
    }
    return __real_loongi_staged_run(s, call);
}

/* ---- values -------------------------------------------------------------- */

typedef struct layout {
    int ranks;
    const char *devices;
    const char *parallel;
    const char *comm;
    const char *train;
} layout_t;

/* Who makes calls of the runtime is known where one rank has a device. */
static const layout_t layouts[] = {
    {2, "[cuda:0, cpu:1]", ZERO "optim_grads", "", ""},
    {2, "[cpu:0, cuda:1]", ZERO "optim_grads_params", "", ""},
    {2, "[cuda:0, cpu:1]", ZERO "optim_grads_params", "", GRAPHS},
    {2, "[cuda:0-1]", ZERO "optim_grads", "device_backend: staged, ", ""},
    {4, "[cuda:0-1, cpu:2-3]", "tensor_model_parallel_size: 2, " ZERO "optim",
     "", ""},
    {4, "[cuda:0-1, cpu:2-3]", /* NCCL's calls and the host's, to one end */
     "tensor_model_parallel_size: 2, sequence_parallel: true, " ZERO
     "optim_grads_params", "", ""},
};

static job_t job_of(const layout_t *l, const char *overlap, char extra[400])
{
    job_t job = make_job(l->devices, "fp32");
    snprintf(extra, 400, "parallel: {%s}\ncomm: {%s%s}\n", l->parallel,
             l->comm, overlap);
    job.extra = extra;
    job.ranks = l->ranks;
    job.batch = 4;
    job.train = l->train;
    atomic_store(&held, 0);
    atomic_store(&beside, 0);
    return job;
}

static bool one_has_a_device(const layout_t *l)
{
    return l->ranks == 2 && strchr(l->devices, ',') != NULL;
}

static void test_values(void **state)
{
    (void)state;
    char extra[400];
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const layout_t *l = &layouts[i];
        job_t alone = job_of(l, "overlap: false", extra);
        cudasim_seed((uint64_t)i + 1);
        train(&alone);
        assert_true(atomic_load(&held) > 0);
        assert_true(atomic_load(&beside) == 0 || !one_has_a_device(l));
        job_t job = job_of(l, BESIDE, extra);
        /* On a busy machine a call may begin when all has been given. */
        for (int tries = 0; tries < 5 && !ENOUGH; tries++) {
            job = job_of(l, BESIDE, extra);
            cudasim_seed((uint64_t)i + 1);
            train(&job);
        }
        print_message("%s: %d of %d calls beside\n", l->devices,
                      atomic_load(&beside),
                      LOONG_MIN(atomic_load(&held), MOST));
        assert_true(ENOUGH);
        compare(&alone, &job, 0.0);
        assert_memory_equal(alone.params, job.params, sizeof(job.params));
    }
}

/* The log tells of time that a rank waited for others in such calls. */
static void test_figures(void **state)
{
    (void)state;
    char extra[400];
    job_t job = job_of(&layouts[0], "overlap: false", extra);
    double seconds = 1e-6 * LATE_MICROSECONDS * MOST;
    bool told = false; /* a busy machine makes either rank later still */
    for (int tries = 0; tries < 3 && !told; tries++) {
        fault = COME_LATE;
        atomic_store(&late, 0);
        train(&job);
        fault = NO_FAULT;
        assert_true(atomic_load(&late) > MOST);
        print_message("late by %.2f s, told of %.2f s\n", seconds,
                      job.blocked[STEPS]);
        told = job.blocked[STEPS] > 0.9 * seconds &&
               job.blocked[STEPS] < 1.2 * seconds;
    }
    assert_true(told);
}

/* ---- faults -------------------------------------------------------------- */

static void try_fault(fault_t what, loong_status_t wanted, const char *text)
{
    char extra[400];
    loong_context_t *ctx = test_context();
    job_t job = job_of(&layouts[0], BESIDE, extra);
    fault = what;
    cudasim_seed(3);
    job.timeout = what == STAY_AWAY ? 1.0 : 0.0;
    double begin = loongi_now();
    assert_int_equal(try_train(ctx, &job), wanted);
    assert_true(loongi_now() - begin < 20.0);
    fault = NO_FAULT;
    if (strstr(loong_context_error(ctx), text) == NULL) {
        fail_msg("no '%s' in: %s", text, loong_context_error(ctx));
    }
    test_context_end(&ctx);
    cudasim_reset();
}

/* The lane ends the run, or the run ends the lane. */
static void test_faults(void **state)
{
    (void)state;
    try_fault(STAY_AWAY, LOONG_ERR_COMM, "rank 1 (");
    try_fault(FAIL_THERE, LOONG_ERR_DEVICE, "in kernel ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
