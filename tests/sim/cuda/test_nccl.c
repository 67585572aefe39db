/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on the memory of simulated devices: every kind against what it
 * should give, with pieces of one and of several lengths; messages; and what
 * is said when a rank does not come, or calls something else. */
#include "comm_place.h"
#include "cudasim.h"
#include "progress.h"

#include <unistd.h>

enum { RANKS = 3 };

const char *const place_device = "cuda";

void place_devices(int ranks)
{
    cudasim_devices(ranks, (size_t)16 << 20);
}

static void test_values(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        loong_context_t *ctx = test_context();
        cudasim_seed(seed);
        assert_ok(ctx, run_places(ctx, RANKS, check_own, 30.0, NULL));
        test_context_end(&ctx);
        assert_string_equal(cudasim_report(), "");
        assert_int_equal(cudasim_alive(), 0);
        cudasim_reset();
    }
}

/* The last rank comes late to each of several: the others wait for it, one
 * call after the other, and in the end nobody does. */
static loong_status_t come_late(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    for (int i = 0; i < 4 && status == LOONG_OK; i++) {
        usleep(p->rank == RANKS - 1 ? 100000 : 0);
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F32,
                                       LOONG_REDUCE_SUM, "gradients");
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(p->device, "norm and loss");
    }
    if (status == LOONG_OK) {
        status = loong_comm_barrier(host, "all have waited");
    }
    for (int r = 0; r < RANKS && status == LOONG_OK; r++) {
        int waiter = loongi_board_waiter(host->board, r);
        LOONG_CHECK(ctx, waiter < 0, LOONG_ERR_INTERNAL,
                    "rank %d still waits for rank %d", waiter, r);
    }
    close_place(p);
    return status;
}

static void test_late(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    cudasim_seed(1);
    cudasim_pace(1.0);
    assert_ok(ctx, run_places(ctx, RANKS, come_late, 30.0, NULL));
    test_context_end(&ctx);
    cudasim_reset();
}

/* What becomes of device 1 before the second call; the last rank comes late. */
typedef enum trouble { SLOW, BROKEN, BEHIND, STUCK } trouble_t;

static loong_status_t meet_trouble(place_t *p, trouble_t trouble)
{
    bool first = p->rank == 1;
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                    LOONG_REDUCE_SUM, "first"));
    LOONG_TRY(loong_device_synchronize(p->device, "the first"));
    LOONG_TRY(loong_comm_barrier(p->host, "the first"));
    double limit = trouble == STUCK ? (first ? 1.0 : 0.2) : 0.0;
    LOONG_TRY(loongi_device_set_limit(p->device, limit)); /* others wait */
    if (first && (trouble == SLOW || trouble == STUCK)) {
        cudasim_hang(1, 1); /* before it comes to the call */
    } else if (first) {
        cudasim_cut(1, trouble == BEHIND);
    }
    LOONG_TRY(loong_comm_barrier(p->host, "trouble"));
    usleep(trouble == SLOW && p->rank == RANKS - 1 ? 1500000 : 0);
    if (trouble == BEHIND) { /* ends for the others */
        LOONG_TRY(loong_comm_broadcast(p->comm, p->there, 64, 0, "second"));
    }
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                    LOONG_REDUCE_SUM, "last"));
    if (first && trouble == SLOW) {
        usleep(1500000);
        cudasim_hang(1, 0);
    }
    loong_status_t status = loong_device_synchronize(p->device, "it all");
    cudasim_hang(1, 0); /* what others free waits for all devices here */
    return status;
}

static loong_status_t in_trouble(loong_context_t *ctx, loong_comm_t *host,
                                 void *user)
{
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) {
        status = meet_trouble(p, *(trouble_t *)user);
    }
    close_place(p);
    return status;
}

/* Long before the time limit; who is slow, on the host or on the device, is
 * waited for. */
static void test_hang(void **state)
{
    (void)state;
    static const struct {
        trouble_t trouble;
        loong_status_t status;
        const char *text;
    } cases[] = {
        {SLOW, LOONG_OK, ""},
        {BROKEN, LOONG_ERR_COMM,
         "hangs: the devices of all its 3 ranks are in it for 0."},
        {BEHIND, LOONG_ERR_COMM,
         "the device of rank 1 is still in #2 of world, that of rank "},
        {STUCK, LOONG_ERR_DEVICE, "cuda:1: hangs: nothing that was launched"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        trouble_t trouble = cases[i].trouble;
        loong_context_t *ctx = test_context();
        loong_threads_params_t params = {.size = RANKS,
                                         .comm = {.timeout = 100.0,
                                                  .heartbeat_timeout = 0.7}};
        double begin = loongi_now();
        cudasim_seed(1);
        cudasim_devices(RANKS, (size_t)16 << 20);
        loong_status_t status =
            loong_threads_run(ctx, &params, in_trouble, &trouble);
        const char *text = loong_context_error(ctx);
        if (status != cases[i].status ||
            strstr(text, cases[i].text) == NULL) {
            fail_msg("case %d: %s, no \"%s\" in %s", (int)i,
                     loong_status_text(status), cases[i].text, text);
        }
        assert_true(loongi_now() - begin < 20.0);
        test_context_end(&ctx);
        cudasim_reset();
    }
}

/* The last rank leaves one out; the others go on until they wait. */
static loong_status_t leave_out(loong_context_t *ctx, loong_comm_t *host,
                                void *user)
{
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    for (int i = 0; i < 2 && status == LOONG_OK; i++) {
        if (i == 0 || p->rank < RANKS - 1) {
            status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                           LOONG_REDUCE_SUM, "gradients");
        } else {
            sleep(2);
        }
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(p->device, "norm and loss");
    }
    close_place(p);
    return status;
}

static void test_missing(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    cudasim_seed(1);
    loong_status_t status = run_places(ctx, RANKS, leave_out, 1.0, NULL);
    const char *text = loong_context_error(ctx);
    assert_int_equal(status, LOONG_ERR_COMM);
    assert_non_null(strstr(text, "all_reduce #2 'gradients' of world"));
    assert_non_null(strstr(text, "1 of 3 ranks did not come in "));
    assert_non_null(strstr(text, "waiting for norm and loss"));
    assert_non_null(strstr(text, "rank 2 "));
    test_context_end(&ctx);
    cudasim_reset();
}

/* Rank 1 takes another kind for the second call. */
static loong_status_t differ(loong_context_t *ctx, loong_comm_t *host,
                             void *user)
{
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) {
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "first");
    }
    if (status == LOONG_OK && p->rank == 1) {
        status = loong_comm_broadcast(p->comm, p->there, 64, 0, "second");
    } else if (status == LOONG_OK) {
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "second");
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(p->device, "it");
    }
    close_place(p);
    return status;
}

static void test_stranger(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    cudasim_seed(2);
    loong_status_t status = run_places(ctx, RANKS, differ, 30.0, NULL);
    const char *text = loong_context_error(ctx);
    assert_int_equal(status, LOONG_ERR_COMM);
    assert_non_null(strstr(text, "all_reduce #2 'second' of world"));
    assert_non_null(strstr(text, "rank 1 of world called something else"));
    test_context_end(&ctx);
    cudasim_reset();
}

/* Of two messages from rank 0 to rank 1: who leaves the second one out, how
 * long it is where it is received. */
typedef struct lost {
    int idle; /* rank; -1: none */
    size_t received;
    int ranks; /* of the communicator, which may have more than these two */
} lost_t;

/* To the next rank, as a group. */
static loong_status_t go_round(place_t *p, loong_comm_t *link)
{
    loong_comm_request_t request[2];
    int ranks = loong_comm_size(link);
    LOONG_TRY(loongi_comm_group_messages(link, true));
    LOONG_TRY(loong_comm_irecv(link, p->second, 4096,
                               (p->rank + ranks - 1) % ranks, 0, &request[0]));
    LOONG_TRY(loong_comm_isend(link, p->there, 4096, (p->rank + 1) % ranks, 0,
                               &request[1]));
    LOONG_TRY(loongi_comm_group_messages(link, false));
    LOONG_TRY(loong_comm_wait(link, &request[0]));
    return loong_comm_wait(link, &request[1]);
}

static loong_status_t send_two(place_t *p, loong_comm_t *link,
                               const lost_t *lost)
{
    loong_comm_request_t request[2];
    int count = p->rank > 1 ? 0 : p->rank == lost->idle ? 1 : 2;
    loong_comm_set_stream(link, loong_device_stream(p->device));
    if (lost->ranks > 2) { /* all connect */
        LOONG_TRY(go_round(p, link));
    }
    for (int i = 0; i < count; i++) {
        size_t bytes = i == 1 && p->rank == 1 ? lost->received : 4096;
        LOONG_TRY(p->rank == 0 ? loong_comm_isend(link, p->there, bytes, 1, 7,
                                                  &request[i])
                               : loong_comm_irecv(link, p->second, bytes, 0,
                                                  7, &request[i]));
    }
    for (int i = 0; i < count; i++) {
        LOONG_TRY(loong_comm_wait(link, &request[i]));
    }
    if (p->rank == lost->idle) {
        sleep(2);
    }
    loong_device_set_watch(p->device, watch_comm, link);
    return loong_device_synchronize(p->device, "norm and loss");
}

static loong_status_t lose(loong_context_t *ctx, loong_comm_t *host,
                           void *user)
{
    place_t *p = NULL;
    loong_comm_t *link = NULL;
    const lost_t *lost = user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) {
        status = loong_comm_split(p->comm, p->rank < lost->ranks ? 0 : -1,
                                  p->rank,
                                  "stage 0 to 1", &link);
    }
    if (status == LOONG_OK && link != NULL) {
        status = send_two(p, link, lost);
    }
    if (status != LOONG_OK && link != NULL) {
        loong_comm_abort(link, loong_context_error(ctx));
    }
    loong_comm_destroy(&link);
    close_place(p);
    return status;
}

static void test_lost_message(void **state)
{
    (void)state;
    static const struct {
        lost_t lost;
        const char *text[3];
    } cases[] = {
        {{1, 4096, 2}, {"send #2 'to rank 1' of stage 0 to 1 (4096 bytes)",
                     "1 of 2 ranks did not come in ",
                     "waiting for norm and loss"}},
        {{0, 4096, 2}, {"recv #2 'from rank 0' of stage 0 to 1 (4096 bytes)",
                     "1 of 2 ranks did not come in ",
                     "waiting for norm and loss"}},
        {{-1, 2048, 2}, {" #2 '", " of stage 0 to 1 (",
                      " of stage 0 to 1 called something else"}},
        {{1, 4096, 3}, {"send #3 'to rank 1' of stage 0 to 1 (4096 bytes)",
                     "1 of 3 ranks did not come in ",
                     "waiting for norm and loss"}},
        {{-1, 2048, 3}, {" #3 '", " of stage 0 to 1 (",
                      " of stage 0 to 1 called something else"}},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        cudasim_seed((uint64_t)i + 1);
        void *lost = (void *)(uintptr_t)&cases[i].lost;
        loong_status_t status = run_places(ctx, RANKS, lose, 1.0, lost);
        assert_int_equal(status, LOONG_ERR_COMM);
        for (int k = 0; k < 3; k++) {
            if (strstr(loong_context_error(ctx), cases[i].text[k]) == NULL) {
                fail_msg("case %d: no '%s' in: %s", (int)i, cases[i].text[k],
                         loong_context_error(ctx));
            }
        }
        test_context_end(&ctx);
        cudasim_reset();
    }
}

/* Each of three ranks receives of the one before what that sends behind what it
 * receives itself: parts of no order of all. */
static loong_status_t send_around(place_t *p, loong_comm_t *edge)
{
    loong_comm_request_t request[2];
    int behind = (p->rank + 1) % RANKS;
    int before = (p->rank + RANKS - 1) % RANKS;
    LOONG_TRY(
        loong_comm_irecv(edge, p->second, 4096, before, 0, &request[0]));
    LOONG_TRY(loong_comm_isend(edge, p->there, 4096, behind, 0, &request[1]));
    LOONG_TRY(loong_comm_wait(edge, &request[0]));
    LOONG_TRY(loong_comm_wait(edge, &request[1]));
    loong_device_set_watch(p->device, watch_comm, edge);
    return loong_device_synchronize(p->device, "norm and loss");
}

static loong_status_t turn_round(loong_context_t *ctx, loong_comm_t *host,
                                 void *user)
{
    place_t *p = NULL;
    loong_comm_t *edge = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) {
        status = loong_comm_split(p->comm, 0, p->rank, "an edge", &edge);
    }
    status = status == LOONG_OK ? send_around(p, edge) : status;
    if (status != LOONG_OK && edge != NULL) {
        loong_comm_abort(edge, loong_context_error(ctx));
    }
    loong_comm_destroy(&edge);
    close_place(p);
    return status;
}

static void test_wrong_order(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    cudasim_seed(1);
    loong_status_t status = run_places(ctx, RANKS, turn_round, 1.0, NULL);
    assert_int_equal(status, LOONG_ERR_COMM);
    assert_non_null(strstr(loong_context_error(ctx), "recv #1 'from rank "));
    assert_non_null(strstr(loong_context_error(ctx),
                           "called it, but it did not end on the device"));
    test_context_end(&ctx);
    cudasim_reset();
}

typedef struct replay {
    bool missing; /* the last rank launches once less */
    bool hasty;   /* it gives up before its graph goes: a mistake */
} replay_t;

/* Captured once, launched `times` times: each adds up what the one before has
 * left. */
static loong_status_t replay(place_t *p, int times, bool hasty)
{
    void *graph = NULL;
    int64_t launches = 0;
    int64_t bytes = 0;
    loong_comm_mark_t mark = loongi_comm_mark(p->comm);
    LOONG_TRY(loong_device_capture_begin(p->device));
    LOONG_TRY(loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                    LOONG_REDUCE_SUM, "kept"));
    LOONG_TRY(loong_device_capture_end(p->device, &graph, &launches));
    bool any = loongi_comm_rewind(p->comm, &mark, &bytes);
    loong_status_t status = LOONG_OK;
    if (!any || launches != 1 || bytes != N * 8) {
        status = LOONG_FAIL(p->ctx, LOONG_ERR_INTERNAL,
                            "%lld launches, %lld bytes", (long long)launches,
                            (long long)bytes);
    }
    for (int i = 0; i < times && status == LOONG_OK; i++) {
        status = loong_device_graph_launch(p->device, graph);
        status = status == LOONG_OK
                     ? loongi_comm_replay(p->comm, bytes, "step")
                     : status;
    }
    if (status == LOONG_OK) {
        status = loong_device_synchronize(p->device, "norm and loss");
    }
    if (hasty) {
        loong_comm_abort(p->comm, "hasty");
    }
    loong_device_graph_destroy(p->device, graph);
    if (status != LOONG_OK) {
        loong_comm_abort(p->comm, loong_context_error(p->ctx));
    }
    return status;
}

static loong_status_t replay_all(loong_context_t *ctx, loong_comm_t *host,
                                 void *user)
{
    const replay_t *how = user;
    place_t *p = NULL;
    loong_status_t status = open_place(ctx, host, OWN, &p);
    if (status == LOONG_OK) { /* the ranks are connected */
        status = loong_comm_all_reduce(p->comm, p->second, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "first");
    }
    status = status == LOONG_OK ? put_numbers(p) : status;
    bool less = how->missing && p->rank == RANKS - 1;
    status =
        status == LOONG_OK ? replay(p, less ? 1 : 2, how->hasty) : status;
    if (less) {
        sleep(2);
    }
    status = status == LOONG_OK ? get(p, p->there) : status;
    for (int64_t i = 0; i < N && status == LOONG_OK && !less; i++) {
        status = check(p, i, (double)RANKS * sum_of(p, i));
    }
    close_place(p);
    return status;
}

static loong_status_t run_replay(loong_context_t *ctx, replay_t *how)
{
    cudasim_seed((uint64_t)(how->missing + 2 * how->hasty) + 1);
    return run_places(ctx, RANKS, replay_all, how->missing ? 1.0 : 30.0, how);
}

/* A graph is one call, however often it is launched. */
static void test_replay(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        replay_t how = {k == 1, false};
        loong_context_t *ctx = test_context();
        loong_status_t status = run_replay(ctx, &how);
        if (!how.missing) {
            assert_ok(ctx, status);
            assert_int_equal(cudasim_alive(), 0);
        } else {
            const char *text = loong_context_error(ctx);
            assert_int_equal(status, LOONG_ERR_COMM);
            assert_non_null(
                strstr(text, "replay #3 'step' of world (32008 bytes"));
            assert_non_null(strstr(text, "1 of 3 ranks did not come in 1."));
            assert_non_null(strstr(text, "rank 2 "));
        }
        assert_string_equal(cudasim_report(), "");
        test_context_end(&ctx);
        cudasim_reset();
    }
}

/* NCCL waits for the graph that holds what it shall give up. */
static void test_hasty(void **state)
{
    (void)state;
    replay_t how = {false, true};
    loong_context_t *ctx = test_context();
    cudasim_quiet(1);
    cudasim_patience(0.05);
    assert_ok(ctx, run_replay(ctx, &how));
    cudasim_patience(10.0);
    cudasim_quiet(0);
    assert_non_null(strstr(cudasim_report(), "ncclCommAbort: rank "));
    assert_non_null(strstr(cudasim_report(),
                           " of 3 waits for ever: graphs hold 1 calls of the "
                           "communicator"));
    test_context_end(&ctx);
    cudasim_reset();
}

/* The last rank comes 0.5 s late; the others count that once, here or with the
 * communicator of the job. */
static loong_status_t wait_for_last(loong_context_t *ctx, loong_comm_t *host,
                                    void *user)
{
    place_t *p = NULL;
    (void)user;
    loong_status_t status = open_place(ctx, host, STAGED, &p);
    double begin = loong_comm_stats(host).seconds;
    if (status == LOONG_OK) {
        usleep(p->rank == RANKS - 1 ? 500000 : 0);
        double since = loongi_now();
        status = loong_comm_all_reduce(p->comm, p->there, N, LOONG_F64,
                                       LOONG_REDUCE_SUM, "late");
        double seconds = loongi_now() - since;
        double counted = loong_comm_stats(host).seconds - begin +
                         loong_comm_stats(p->comm).wait;
        LOONG_CHECK(ctx,
                    status != LOONG_OK || p->rank == RANKS - 1 ||
                        (counted > 0.3 && counted < 1.2 * seconds),
                    LOONG_ERR_INTERNAL, "counted %g s of %g", counted,
                    seconds);
    }
    close_place(p);
    return status;
}

static void test_counted_once(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    cudasim_seed(3);
    assert_ok(ctx, run_places(ctx, RANKS, wait_for_last, 30.0, NULL));
    test_context_end(&ctx);
    cudasim_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_hang),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_stranger),
        cmocka_unit_test(test_lost_message),
        cmocka_unit_test(test_wrong_order),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_hasty),
        cmocka_unit_test(test_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
