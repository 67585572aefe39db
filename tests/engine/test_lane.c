/* SPDX-License-Identifier: Apache-2.0
 *
 * The lane of communication: order, waiting, figures, errors. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "lane.h"
#include "passes.h"

enum { JOBS = 300 };

typedef struct log {
    pthread_t rank;
    int64_t count;
    int64_t track[JOBS];
    int64_t number[JOBS];
    int elsewhere; /* jobs that another thread than the rank's ran */
    int told;
    double blocked;
    _Atomic bool hold; /* jobs go on only without it */
    loong_lane_t *lane;
    loong_status_t fails; /* what job number 2 of track 1 says */
} log_t;

static void rest(void)
{
    struct timespec nap = {0, 20000};
    nanosleep(&nap, NULL);
}

static loong_status_t run(const loong_lane_job_t *job)
{
    log_t *log = (log_t *)(uintptr_t)job->owner;
    while (atomic_load(&log->hold)) {
        if (loongi_lane_is_over(log->lane)) {
            return LOONG_ERR_COMM;
        }
        rest();
    }
    log->track[log->count] = job->track;
    log->number[log->count++] = job->number;
    log->elsewhere += !pthread_equal(pthread_self(), log->rank);
    return job->track == 1 && job->number == 2 ? log->fails : LOONG_OK;
}

static void tell(const loong_lane_job_t *job)
{
    log_t *log = (log_t *)(uintptr_t)job->owner;
    assert_true(job->end >= job->begin && job->blocked >= 0.0);
    log->told++;
    log->blocked += job->blocked;
}

static void begin(loong_context_t *ctx, log_t *log, int track, int64_t number,
                  bool beside)
{
    loong_lane_job_t job = {.run = run,
                            .done = tell,
                            .owner = log,
                            .track = track,
                            .number = number,
                            .beside = beside};
    assert_ok(ctx, loongi_lane_begin(log->lane, &job));
}

static loong_context_t *open_lane(log_t *log)
{
    loong_context_t *ctx = test_context();
    memset(log, 0, sizeof(*log));
    log->rank = pthread_self();
    assert_ok(ctx, loongi_lane_create(ctx, &log->lane));
    return ctx;
}

static void close_lane(loong_context_t *ctx, log_t *log)
{
    loongi_lane_destroy(&log->lane);
    loong_context_destroy(&ctx);
}

/* More jobs than the ring has places, of two tracks, begun in any mixture:
 * each runs once, in the order of beginning, and before its await returns. */
static void order(void **state)
{
    (void)state;
    log_t log;
    loong_context_t *ctx = open_lane(&log);
    int64_t numbers[2] = {0, 0};
    for (int i = 0; i < JOBS; i++) {
        int track = i * 7 % 3 == 0;
        begin(ctx, &log, track, ++numbers[track], i % 5 > 1);
        if (i % 11 == 0) {
            assert_ok(ctx,
                      loongi_lane_await(log.lane, track, numbers[track]));
            assert_true(log.count == i + 1);
        }
    }
    assert_ok(ctx, loongi_lane_drain(log.lane));
    assert_int_equal(log.count, JOBS);
    assert_int_equal(log.told, JOBS);
    numbers[0] = numbers[1] = 0;
    for (int i = 0; i < JOBS; i++) {
        int track = i * 7 % 3 == 0;
        assert_int_equal(log.track[i], track);
        assert_int_equal(log.number[i], ++numbers[track]);
    }
    assert_int_equal(loongi_lane_stats(log.lane).jobs, JOBS);
    close_lane(ctx, &log);
}

/* A job beside computation runs without anybody waiting, on another thread;
 * one that is awaited at once runs on the rank's own. */
static void threads(void **state)
{
    (void)state;
    log_t log;
    loong_context_t *ctx = open_lane(&log);
    begin(ctx, &log, 0, 1, false);
    assert_ok(ctx, loongi_lane_await(log.lane, 0, 1));
    assert_int_equal(log.elsewhere, 0);
    assert_true(log.blocked > 0.0);
    double blocked = log.blocked;
    atomic_store(&log.hold, true);
    begin(ctx, &log, 0, 2, true);
    while (!loongi_lane_is_beside(log.lane)) {
        rest();
    }
    atomic_store(&log.hold, false);
    while (loongi_lane_is_beside(log.lane)) {
        rest();
    }
    assert_ok(ctx, loongi_lane_drain(log.lane));
    assert_int_equal(log.elsewhere, 1);
    assert_true(log.blocked == blocked);
    loong_lane_stats_t stats = loongi_lane_stats(log.lane);
    assert_true(stats.blocked == blocked && stats.seconds > stats.blocked);
    close_lane(ctx, &log);
}

/* What a job says comes back where it is awaited; nothing behind it runs. */
static void failure(void **state)
{
    (void)state;
    log_t log;
    loong_context_t *ctx = open_lane(&log);
    log.fails = LOONG_ERR_IO;
    begin(ctx, &log, 0, 1, false);
    begin(ctx, &log, 1, 1, false);
    begin(ctx, &log, 1, 2, true);
    begin(ctx, &log, 0, 2, false);
    assert_int_equal(loongi_lane_await(log.lane, 1, 2), LOONG_ERR_IO);
    assert_int_equal(loongi_lane_drain(log.lane), LOONG_ERR_IO);
    assert_int_equal(log.count, 3);
    close_lane(ctx, &log);
}

/* A rank that cannot go on does not wait for the others. */
static void abandon(void **state)
{
    (void)state;
    log_t log;
    loong_context_t *ctx = open_lane(&log);
    atomic_store(&log.hold, true);
    begin(ctx, &log, 0, 1, true);
    begin(ctx, &log, 0, 2, true);
    while (!loongi_lane_is_beside(log.lane)) {
        rest();
    }
    loongi_lane_abandon(log.lane);
    assert_true(loongi_lane_is_over(log.lane));
    assert_int_equal(log.count, 0);
    close_lane(ctx, &log);
}

/* A step of hollow entries alone does not run in others: who comes behind it
 * awaits what it awaits. */
static void awaits_behind_hollow_steps(void **state)
{
    (void)state;
    static const loong_kernel_t sum = {.communicates = true};
    static const loong_kernel_t move = {.name = "move"};
    const loong_operand_t place = {LOONG_BASE_COMM, 0};
    loong_step_t steps[4];
    loong_program_t program = {.num_steps = 4, .steps = steps};
    memset(steps, 0, sizeof(steps));
    for (int i = 0; i < 4; i++) {
        steps[i].kernel = i == 0 ? &sum : &move;
        steps[i].query.num_out = 1;
        steps[i].query.arg[0] = (loong_karg_t){LOONG_F32, 1, {8, 0, 0, 0}, 8};
        steps[i].operand[0] = place;
    }
    steps[1].hollow = LOONG_HOLLOW_ONLY;
    loongi_pass_lanes(&program, 0);
    assert_int_equal(steps[1].await, 1);
    assert_int_equal(steps[2].await, 1);
    assert_int_equal(steps[3].await, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order),
        cmocka_unit_test(threads),
        cmocka_unit_test(failure),
        cmocka_unit_test(abandon),
        cmocka_unit_test(awaits_behind_hollow_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
