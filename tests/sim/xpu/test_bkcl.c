/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on the memory of simulated XPUs by BKCL: what is asked of every
 * communicator of devices (comm_place.h), and what is said when a rank does not
 * come, calls something else, a call fails, or numbers are those of another
 * library. */
#include "comm_place.h"

#include <stdio.h>
#include <unistd.h>

#include "xpusim.h"

enum { RANKS = 3 };

const char *const place_device = "xpu";

void place_devices(int ranks)
{
    char count[16];
    snprintf(count, sizeof(count), "%d", ranks);
    setenv("SIM_XPU_COUNT", count, 1);
    xpusim_setup();
}

static void test_values(void **state)
{
    (void)state;
    static const char *const errors[] = {"0", "1"};
    for (int k = 0; k < 2; k++) {
        loong_context_t *ctx = test_context();
        setenv("SIM_XPU_NEG_ERR", errors[k], 1);
        assert_ok(ctx, run_places(ctx, RANKS, check_own, 30.0, NULL));
        assert_string_equal(xpusim_report(), "");
        test_context_end(&ctx);
        xpusim_forget();
    }
    unsetenv("SIM_XPU_NEG_ERR");
    /* Calls in pieces, and messages in place of one that is not there. */
    loong_context_t *ctx = test_context();
    setenv("SIM_XPU_DEVIATES", "no_all_to_all_v", 1);
    setenv("LOONG_BKCL_PIECE", "1000", 1);
    assert_ok(ctx, run_places(ctx, RANKS, check_own, 30.0, NULL));
    assert_string_equal(xpusim_report(), "");
    unsetenv("SIM_XPU_DEVIATES");
    unsetenv("LOONG_BKCL_PIECE");
    test_context_end(&ctx);
}

/* What rank 1 does in place of the second all-reduce. */
typedef enum odd { LEAVES_OUT, BROADCASTS, FAILS } odd_t;

static loong_status_t act_oddly(place_t *p, odd_t odd)
{
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                    LOONG_REDUCE_SUM, "first"));
    if (p->rank == 1 && odd == LEAVES_OUT) {
        sleep(2);
        return LOONG_OK;
    }
    LOONG_TRY(p->rank == 1 && odd == BROADCASTS
                  ? loong_comm_broadcast(p->comm, p->there, 64, 0, "second")
                  : loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                          LOONG_REDUCE_SUM, "second"));
    return loong_device_synchronize(p->device, "norm and loss");
}

static loong_status_t run_oddly(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    status = status == LOONG_OK ? act_oddly(p, *(odd_t *)user) : status;
    if (p->comm != NULL && status != LOONG_OK) {
        loong_comm_abort(p->comm, loong_context_error(ctx));
    }
    close_place(p);
    return status;
}

static void test_odd(void **state)
{
    (void)state;
    static const struct {
        odd_t odd;
        double timeout;
        const char *fail;
        const char *text[3];
    } cases[] = {
        {LEAVES_OUT, 1.0, "",
         {"all_reduce #2 'second' of world", "1 of 3 ranks did not come in ",
          "waiting for norm and loss"}},
        {BROADCASTS, 30.0, "",
         {"all_reduce #2 'second' of world",
          "rank 1 of world called something else", ""}},
        {FAILS, 30.0, "bkcl_all_reduce:30:3",
         {"bkcl_all_reduce of world, rank ", "error 3 (system error)", ""}},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        odd_t odd = cases[i].odd;
        loong_context_t *ctx = test_context();
        xpusim_quiet(1);
        setenv("SIM_XPU_FAIL", cases[i].fail, 1);
        loong_status_t status =
            run_places(ctx, RANKS, run_oddly, cases[i].timeout, &odd);
        assert_int_equal(status, LOONG_ERR_COMM);
        for (int k = 0; k < 3; k++) {
            if (strstr(loong_context_error(ctx), cases[i].text[k]) == NULL) {
                fail_msg("case %d: no '%s' in: %s", (int)i, cases[i].text[k],
                         loong_context_error(ctx));
            }
        }
        unsetenv("SIM_XPU_FAIL");
        test_context_end(&ctx);
        xpusim_forget();
        xpusim_quiet(0);
    }
}

/* ---- times of messages --------------------------------------------------- */

/* Copies take SLOW us each, and a message has eight parts. */
enum { SLOW = 10000, LATE = 150000 };

/* What rank 1 does before it waits for a message. */
typedef enum before { NOTHING, COMPUTES, RESTS, HAS_A_LATE_PEER } before_t;

static int sleep_long(void *data)
{
    (void)data;
    usleep(2 * LATE);
    return 0;
}

static loong_status_t receive(place_t *p, before_t before)
{
    size_t bytes = ALL * sizeof(double);
    loong_comm_request_t request;
    LOONG_TRY(loong_comm_irecv(p->comm, p->second, bytes, 0, 3, &request));
    if (before == COMPUTES) {
        assert_int_equal(xpusim_launch(loong_device_stream(p->device), "long",
                                       sleep_long, NULL),
                         0);
    } else if (before == RESTS) {
        usleep(2 * LATE);
    }
    return loong_comm_wait(p->comm, &request);
}

/* A message, and what the clocks of both ends say of it. */
static loong_status_t time_message(place_t *p, before_t before)
{
    double old[2] = {0.0, 0.0};
    double times[2] = {0.0, 0.0};
    loongi_comm_add_message_times(p->comm, old);
    LOONG_TRY(loong_comm_barrier(p->host, "a message"));
    double begin = loongi_now();
    if (p->rank == 0) { /* the other one waits by then */
        usleep(before == HAS_A_LATE_PEER ? 2 * LATE : LATE / 10);
        LOONG_TRY(loong_comm_send(p->comm, p->there, ALL * sizeof(double), 1,
                                  3));
    } else {
        LOONG_TRY(receive(p, before));
    }
    double all = loongi_now() - begin;
    LOONG_TRY(loong_device_synchronize(p->device, "a message"));
    loongi_comm_add_message_times(p->comm, times);
    double link = times[0] - old[0];
    double exposed = times[1] - old[1];
    bool hidden = p->rank == 1 && (before == COMPUTES || before == RESTS);
    double slow = 8e-6 * SLOW;
    LOONG_CHECK(p->ctx,
                link >= 0.99 * slow && exposed <= link &&
                    (hidden ? exposed < 0.1 * link : exposed >= 0.9 * slow),
                LOONG_ERR_INTERNAL, "rank %d, case %d: %g of %g s exposed",
                p->rank, (int)before, exposed, link);
    LOONG_CHECK(p->ctx,
                before != HAS_A_LATE_PEER || link < all - 1.8e-6 * LATE,
                LOONG_ERR_INTERNAL,
                "rank %d: %g s of %g, though the data was late", p->rank, link,
                all);
    return LOONG_OK;
}

static loong_status_t time_messages(loong_context_t *ctx, loong_comm_t *host,
                                    void *user)
{
    static const before_t cases[] = {NOTHING, COMPUTES, RESTS,
                                     HAS_A_LATE_PEER};
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, STAGED, &p);
    if (status == LOONG_OK) {
        status = loongi_comm_reserve(p->comm, 1, ALL * sizeof(double));
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases) && status == LOONG_OK; i++) {
        status = time_message(p, cases[i]);
    }
    close_place(p);
    return status;
}

static void test_link_times(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char slow[16];
    snprintf(slow, sizeof(slow), "%d", SLOW);
    setenv("SIM_XPU_SLOW", slow, 1);
    assert_ok(ctx, run_places(ctx, 2, time_messages, 30.0, NULL));
    assert_string_equal(xpusim_report(), "");
    unsetenv("SIM_XPU_SLOW");
    test_context_end(&ctx);
    xpusim_setup();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_link_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
