/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests by signal: the threads that compute receive none. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "loong/launch.h"
#include "test.h"

static bool all_blocked(void)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};
    bool all = true;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int64_t i = 0; i < LOONG_COUNT_OF(numbers); i++) {
        all = all && sigismember(&mask, numbers[i]) == 1;
    }
    return all;
}

static void ask(int number, unsigned wanted)
{
    unsigned flags = 0;
    assert_int_equal(kill(getpid(), number), 0);
    for (int i = 0; i < 5000 && flags == 0; i++) {
        flags = loong_signals_get();
        usleep(1000);
    }
    assert_int_equal(flags, wanted);
}

static void test_requests(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    bool workers = true;
    for (int i = 0; i < 2; i++) { /* the second changes nothing */
        assert_int_equal(loong_signals_install(ctx), LOONG_OK);
        assert_true(all_blocked());
    }
#pragma omp parallel num_threads(3) reduction(&& : workers)
    workers = all_blocked();
    assert_true(workers);
    assert_int_equal(loong_signals_get(), 0);
    ask(SIGUSR1, LOONG_SIGNAL_SAVE);
    assert_int_equal(loong_signals_get(), 0);
    ask(SIGUSR2, LOONG_SIGNAL_STOP);
    assert_int_equal(loong_signals_get(), LOONG_SIGNAL_STOP);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
