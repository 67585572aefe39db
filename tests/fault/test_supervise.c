/* SPDX-License-Identifier: Apache-2.0
 *
 * What loong-supervise decides, from exit codes and progress alone. */
#include <unistd.h>

#include "loong_supervise.h"
#include "test.h"

static const supervise_limits_t limits = {3, 3, 2.0};

static supervise_ending_t ending_of(int code, int64_t from, int64_t step,
                                    int64_t saved)
{
    supervise_ending_t e = {.code = code, .has_progress = true};
    e.progress.from_step = from;
    e.progress.step = step;
    e.progress.saved_step = saved;
    e.progress.first_time = step > from ? 1.0 : 0.0;
    return e;
}

/* The table: again or not, when three steps were done, none, and after a new
 * checkpoint. */
static void test_table(void **state)
{
    (void)state;
    static const struct {
        int code;
        bool begun;
        bool unbegun;
        double pause; /* after a new checkpoint */
    } rows[] = {
        {0, false, false, 0.0},   {75, true, true, 0.0},
        {4, true, true, 2.0},     {1, true, false, 2.0},
        {3, false, false, 0.0},   {74, true, true, 2.0},
        {73, false, false, 0.0},  {66, false, false, 0.0},
        {2, false, false, 0.0},   {126, false, false, 0.0},
        {127, false, false, 0.0}, {137, true, true, 2.0},
        {139, true, true, 2.0},   {200, true, false, 2.0},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(rows); i++) {
        supervise_history_t a = {0};
        supervise_history_t b = {0};
        supervise_history_t c = {0};
        supervise_ending_t begun = ending_of(rows[i].code, 0, 3, 0);
        supervise_ending_t unbegun = ending_of(rows[i].code, 0, 0, 0);
        supervise_ending_t gain = ending_of(rows[i].code, 0, 3, 2);
        unbegun.has_progress = false;
        assert_int_equal(supervise_decide(&limits, &a, &begun).again,
                         rows[i].begun);
        assert_int_equal(supervise_decide(&limits, &b, &unbegun).again,
                         rows[i].unbegun);
        supervise_decision_t d = supervise_decide(&limits, &c, &gain);
        assert_int_equal(d.again, rows[i].begun);
        assert_true(d.wait == rows[i].pause);
        assert_true(d.because[0] != '\0');
        /* Whoever asks for the end gets it. */
        supervise_history_t asked = {0};
        begun.asked = true;
        assert_false(supervise_decide(&limits, &asked, &begun).again);
    }
}

/* Pauses double up to their bound; a new checkpoint starts them anew. */
static void test_pauses(void **state)
{
    (void)state;
    const supervise_limits_t many = {100, 100, 2.0};
    supervise_history_t h = {0};
    double wanted = 2.0;
    for (int i = 0; i < 12; i++) {
        supervise_ending_t e = ending_of(4, 0, 3 + i, 0);
        supervise_decision_t d = supervise_decide(&many, &h, &e);
        assert_true(d.again && d.wait == wanted);
        wanted = wanted < 150.0 ? 2.0 * wanted : SUPERVISE_LONGEST_BACKOFF;
    }
    supervise_ending_t gain = ending_of(4, 0, 9, 8);
    assert_true(supervise_decide(&many, &h, &gain).wait == 2.0);
    /* Going on from a checkpoint is none. */
    supervise_ending_t none = ending_of(4, 8, 9, 8);
    assert_true(supervise_decide(&many, &h, &none).wait == 4.0);
    /* Nor is one that was there before a fall-back. */
    supervise_ending_t again = ending_of(4, 4, 9, 8);
    assert_true(supervise_decide(&many, &h, &again).wait == 8.0);
}

static void test_limits(void **state)
{
    (void)state;
    supervise_history_t h = {0};
    supervise_decision_t d = {false, 0.0, {0}};
    for (int i = 0; i < 3; i++) { /* other steps: three restarts */
        supervise_ending_t e = ending_of(4, 0, 1 + i, 0);
        d = supervise_decide(&limits, &h, &e);
        assert_true(d.again);
    }
    supervise_ending_t e = ending_of(4, 0, 9, 0);
    d = supervise_decide(&limits, &h, &e);
    assert_false(d.again);
    assert_non_null(strstr(d.because, "3 restarts brought no new checkpoint"));

    supervise_history_t same = {0};
    supervise_ending_t seventh = ending_of(4, 4, 7, 4);
    assert_true(supervise_decide(&limits, &same, &seventh).again);
    assert_true(supervise_decide(&limits, &same, &seventh).again);
    /* Another exit code is another way. */
    supervise_ending_t other = ending_of(74, 4, 7, 4);
    assert_true(supervise_decide(&limits, &same, &other).again);
    same.failures = 0;
    assert_true(supervise_decide(&limits, &same, &seventh).again);
    assert_true(supervise_decide(&limits, &same, &seventh).again);
    d = supervise_decide(&limits, &same, &seventh);
    assert_false(d.again);
    assert_non_null(strstr(d.because, "at step 7, 3 times the same"));
    /* Stopping by itself without a gain is a failure like others. */
    supervise_history_t idle = {0};
    supervise_ending_t stopped = ending_of(75, 4, 4, 4);
    assert_true(supervise_decide(&limits, &idle, &stopped).wait > 0.0);
    assert_true(supervise_decide(&limits, &idle, &stopped).wait > 0.0);
    assert_false(supervise_decide(&limits, &idle, &stopped).again);
}

/* What the job tells comes back, the first verdict stays. */
static void test_job(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_job_t *job = NULL;
    char dir[] = "/tmp/loong_test_job_XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_ok(ctx, loong_job_open(ctx, &job));
    assert_null(job); /* nobody supervises */
    assert_int_equal(loong_job_attempt(), 1);
    loong_job_progress_t told = {4, 17, 16, 812.25, 840.125};
    loong_job_progress_t read = {0};
    loong_job_verdict_t verdict = {4, 1, 841.5, "rank 1 is lost"};
    loong_job_verdict_t heard = {0};
    loong_job_tell(job, &told);
    loong_job_tell_verdict(&verdict);
    assert_false(loong_job_read_progress(dir, &read));
    setenv(LOONG_JOB_DIR_ENV, dir, 1);
    setenv(LOONG_JOB_ATTEMPT_ENV, "3", 1);
    assert_int_equal(loong_job_attempt(), 3);
    assert_ok(ctx, loong_job_open(ctx, &job));
    assert_false(loong_job_read_progress(dir, &read));
    loong_job_tell(job, &(loong_job_progress_t){123456, 999999, 0, 0.0, 0.0});
    loong_job_tell(job, &told);
    assert_true(loong_job_read_progress(dir, &read));
    assert_memory_equal(&read, &told, sizeof(told));
    assert_false(loong_job_read_verdict(dir, &heard));
    loong_job_tell_verdict(&verdict);
    loong_job_verdict_t second = {1, 0, 0.0, "another"};
    loong_job_tell_verdict(&second);
    assert_true(loong_job_read_verdict(dir, &heard));
    assert_int_equal(heard.code, 4);
    assert_int_equal(heard.rank, 1);
    assert_true(heard.time == 841.5);
    assert_string_equal(heard.text, "rank 1 is lost");
    loong_job_clear(dir);
    assert_false(loong_job_read_verdict(dir, &heard));
    loong_job_close(&job);
    assert_int_equal(rmdir(dir), 0); /* nothing else is left in it */
    unsetenv(LOONG_JOB_DIR_ENV);
    unsetenv(LOONG_JOB_ATTEMPT_ENV);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
