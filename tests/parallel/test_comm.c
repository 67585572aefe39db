/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators of one process: every collective against references, and
 * what happens when ranks disagree, stay away or end early. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "board.h"
#include "comm_cases.h"
#include "comm_impl.h"
#include "loong/comm.h"
#include "loong/exit_code.h"
#include "step_header.h"
#include "test.h"

static loong_threads_params_t threads_of(int size, int ranks_per_node,
                                         double timeout)
{
    loong_threads_params_t params = {
        .size = size,
        .comm = {timeout, ranks_per_node},
        .context = {test_log, NULL, LOONG_LOG_WARN},
    };
    return params;
}

/* What a slot has room for ends with a whole word. */
static void test_long_texts(void **state)
{
    (void)state;
    char text[16];
    loongi_board_text(text, sizeof(text), "rank 2 (pid 378)");
    assert_string_equal(text, "rank 2 (pid ...");
    loongi_board_text(text, sizeof(text), "rank 2 (pid 37)");
    assert_string_equal(text, "rank 2 (pid 37)");
    loongi_board_text(text, sizeof(text), "rank 12345 (pid 378)");
    assert_string_equal(text, "rank 12345 ...");
    loongi_board_text(text, sizeof(text), "0123456789abcdefgh");
    assert_string_equal(text, " ...");
    loongi_board_text(text, sizeof(text), NULL);
    assert_string_equal(text, "");
}

static void test_cases_self(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_comm_t *comm = NULL;
    comm_cases_params_t cases = {1, 3000, 3, 0};
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_string_equal(loong_comm_backend(comm), "self");
    assert_ok(ctx, comm_cases(ctx, comm, &cases));
    loong_comm_destroy(&comm);
    assert_null(comm);
    test_context_end(&ctx);
}

static void test_cases_threads(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int size = 1; size <= 8; size++) {
        comm_cases_params_t cases = {(uint64_t)size, 3000, 2, 0};
        loong_threads_params_t params = threads_of(size, 0, 60.0);
        assert_ok(ctx, loong_threads_run(ctx, &params, comm_cases, &cases));
    }
    comm_cases_params_t large = {99, 70001, 1, 0};
    loong_threads_params_t params = threads_of(3, 0, 60.0);
    assert_ok(ctx, loong_threads_run(ctx, &params, comm_cases, &large));
    test_context_end(&ctx);
}

/* Every rank is a machine of its own: collectives are made of messages. */
static void test_cases_messages(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int size = 2; size <= 5; size++) {
        comm_cases_params_t cases = {(uint64_t)size, 3000, 2, 1};
        loong_threads_params_t params = threads_of(size, 1, 60.0);
        assert_ok(ctx, loong_threads_run(ctx, &params, comm_cases, &cases));
    }
    comm_cases_params_t large = {98, 200001, 1, 1};
    loong_threads_params_t params = threads_of(3, 1, 60.0);
    assert_ok(ctx, loong_threads_run(ctx, &params, comm_cases, &large));
    test_context_end(&ctx);
}

/* Several ranks on each of several machines, the last one smaller. */
static void test_cases_machines(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int per_node = 2; per_node <= 3; per_node++) {
        for (int size = per_node + 1; size <= 8; size += 2) {
            comm_cases_params_t cases = {(uint64_t)size, 3000, 2, per_node};
            loong_threads_params_t params = threads_of(size, per_node, 60.0);
            assert_ok(ctx, loong_threads_run(ctx, &params, comm_cases, &cases));
        }
    }
    test_context_end(&ctx);
}

/* ---- ranks that share cores ---------------------------------------------- */

static atomic_int yields;

int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
    atomic_fetch_add(&yields, 1);
    return __real_sched_yield();
}

typedef struct share {
    bool bound; /* each rank to a core of its own */
    bool crowded;
} share_t;

static void bind_to(int which)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all) && which-- == 0) {
            CPU_SET(i, &one);
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static loong_status_t wait_for_last(loong_context_t *ctx, loong_comm_t *comm,
                                    void *user)
{
    const share_t *share = user;
    if (share->bound) {
        bind_to(comm->rank);
        loongi_slot_set_cores(comm->slot);
    }
    LOONG_TRY(loong_comm_barrier(comm, "all are there"));
    bool crowded = loongi_board_is_crowded(comm->board, comm->slot);
    LOONG_CHECK(ctx, crowded == share->crowded, LOONG_ERR_INTERNAL,
                "%d ranks: crowded %d instead of %d", comm->size, crowded,
                share->crowded);
    LOONG_TRY(loong_comm_barrier(comm, "all have looked"));
    if (comm->rank == comm->size - 1) {
        atomic_store(&yields, 0);
        usleep(200000);
    }
    return loong_comm_barrier(comm, "the last one");
}

/* Who waits leaves its core after a moment, where a rank may want it. */
static void test_shared_cores(void **state)
{
    (void)state;
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    int cores = CPU_COUNT(&set);
    loong_context_t *ctx = test_context();
    share_t cases[] = {{false, true}, {false, false}, {true, false}};
    for (int i = 0; i < 3; i++) {
        int size = cores + (cases[i].crowded ? 1 : 0);
        loong_threads_params_t params = threads_of(size, 0, 60.0);
        assert_ok(ctx,
                  loong_threads_run(ctx, &params, wait_for_last, &cases[i]));
        if (cases[i].crowded) { /* old waits made up to 20000 each */
            assert_true(atomic_load(&yields) < 1000 * size);
        }
    }
    test_context_end(&ctx);
}

/* user: int, which disagreement. */
static loong_status_t disagree(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    (void)ctx;
    double value[8] = {0};
    int64_t counts[2] = {4, 4};
    int odd = loong_comm_rank(comm) == 1;
    switch (*(const int *)user) {
    case 0: /* another operation */
        return odd ? loong_comm_barrier(comm, "odd")
                   : loong_comm_all_reduce(comm, value, 8, LOONG_F64,
                                           LOONG_REDUCE_SUM, "even");
    case 1: /* another count */
        return loong_comm_all_reduce(comm, value, 8 - odd, LOONG_F64,
                                     LOONG_REDUCE_SUM, "sizes");
    case 2: /* other pieces, same sum */
        counts[0] -= odd;
        counts[1] += odd;
        return loong_comm_all_gather(comm, value, counts, LOONG_F64, "pieces");
    default: /* another reduction */
        return loong_comm_all_reduce(comm, value, 8, LOONG_F64,
                                     odd ? LOONG_REDUCE_MAX : LOONG_REDUCE_SUM,
                                     "reductions");
    }
}

static void test_disagreement(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char *const texts[] = {"rank 0 calls all_reduce", "(7 fp64",
                                        "other counts per rank", "fp64, max"};
    loong_threads_params_t params = threads_of(2, 0, 30.0);
    for (int i = 0; i < 4; i++) {
        double begin = loongi_now();
        assert_fails(ctx, loong_threads_run(ctx, &params, disagree, &i),
                     LOONG_ERR_COMM, texts[i]);
        assert_true(loongi_now() - begin < 10.0);
    }
    /* Both sides stand in one message. */
    int which = 0;
    assert_int_equal(loong_threads_run(ctx, &params, disagree, &which),
                     LOONG_ERR_COMM);
    const char *text = loong_context_error(ctx);
    assert_non_null(strstr(text, "rank 1 calls barrier #1 'odd'"));
    assert_non_null(strstr(text, "'even'"));
    const char *line = strstr(text, "root 0, test_comm.c:"); /* of both */
    assert_non_null(line);
    assert_non_null(strstr(line + 1, "root 0, test_comm.c:"));
    loong_context_clear_error(ctx);
    /* Messages: another operation is told apart by its tag. */
    params = threads_of(2, 1, 30.0);
    assert_fails(ctx, loong_threads_run(ctx, &params, disagree, &which),
                 LOONG_ERR_COMM, "do not call the same");
    which = 1;
    assert_fails(ctx, loong_threads_run(ctx, &params, disagree, &which),
                 LOONG_ERR_COMM, "bytes");
    test_context_end(&ctx);
}

/* Rank 1 does not come to the second barrier, but lives. */
static loong_status_t stay_away(loong_context_t *ctx, loong_comm_t *comm,
                                void *user)
{
    char byte;
    loong_comm_set_step(comm, 17);
    LOONG_TRY(loong_comm_barrier(comm, "first"));
    if (loong_comm_rank(comm) == 1) {
        double begin = loongi_now();
        while (loongi_now() - begin < 1.0) {
        }
        return LOONG_OK;
    }
    loong_status_t status = user == NULL
                                ? loong_comm_barrier(comm, "second")
                                : loong_comm_recv(comm, &byte, 1, 1, 3);
    /* A communicator that has failed refuses at once. */
    LOONG_CHECK(ctx, loong_comm_barrier(comm, "third") == LOONG_ERR_COMM,
                LOONG_ERR_INTERNAL, "a failed communicator goes on");
    return status;
}

static void test_missing_rank(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int per_node = 0; per_node < 2; per_node++) {
        loong_threads_params_t params = threads_of(3, per_node, 0.3);
        assert_int_equal(loong_threads_run(ctx, &params, stay_away, NULL),
                         LOONG_ERR_COMM);
        const char *text = loong_context_error(ctx);
        assert_non_null(strstr(
            text, "barrier #2 'second' of world (0 bytes, test_comm.c:"));
        assert_non_null(strstr(text, "): 1 of 3 ranks did not come"));
        assert_non_null(strstr(text, "limit 0.3 s"));
        assert_non_null(strstr(text, "rank 1 (pid"));
        assert_non_null(strstr(text, "step 17) finished barrier #1 'first'"));
        assert_int_equal(loong_threads_run(ctx, &params, stay_away, &params),
                         LOONG_ERR_COMM);
        assert_non_null(strstr(loong_context_error(ctx),
                               "'rank 1 tag 3' of world (1 bytes, test_comm"));
        assert_non_null(strstr(text, "(0 bytes, step 17, test_comm.c:"));
        loong_context_clear_error(ctx);
    }
    test_context_end(&ctx);
}

/* Between machines: the one that is missing is named by all, not the ones
 * that wait for it themselves. user: the rank that stays away. */
static loong_status_t one_stays_away(loong_context_t *ctx, loong_comm_t *comm,
                                     void *user)
{
    int away = *(const int *)user;
    char name[32];
    LOONG_TRY(loong_comm_barrier(comm, "first"));
    if (loong_comm_rank(comm) == away) {
        struct timespec nap = {4, 0};
        nanosleep(&nap, NULL);
        return LOONG_OK;
    }
    loong_status_t status = loong_comm_barrier(comm, "second");
    LOONG_CHECK(ctx, status == LOONG_ERR_COMM, LOONG_ERR_INTERNAL,
                "rank %d came alone", loong_comm_rank(comm));
    snprintf(name, sizeof(name), "rank %d (", away);
    LOONG_CHECK(ctx, strstr(loong_context_error(ctx), name) != NULL,
                LOONG_ERR_INTERNAL, "rank %d is not named", away);
    return status;
}

static void test_missing_between_machines(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int away = 5;
    for (int per_node = 1; per_node < 3; per_node++) {
        loong_threads_params_t params = threads_of(8, per_node, 0.5);
        double begin = loongi_now();
        assert_int_equal(loong_threads_run(ctx, &params, one_stays_away, &away),
                         LOONG_ERR_COMM);
        const char *text = loong_context_error(ctx);
        assert_non_null(strstr(text, per_node == 1 ? "1 of 8 ranks did not come"
                                                   : "given up by rank 4: "));
        assert_non_null(strstr(text, "rank 5 ("));
        assert_null(strstr(text, "is not named"));
        loong_context_clear_error(ctx);
        assert_true(loongi_now() - begin < 30.0);
    }
    test_context_end(&ctx);
}

/* Rank 2 fails on its own; user: whether with an error. */
static loong_status_t leave(loong_context_t *ctx, loong_comm_t *comm,
                            void *user)
{
    if (loong_comm_rank(comm) == 2) {
        LOONG_CHECK(ctx, !*(const bool *)user, LOONG_ERR_IO,
                    "cannot read shard 7");
        return LOONG_OK;
    }
    return loong_comm_barrier(comm, "wait");
}

static void test_early_return(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int with_error = 0; with_error < 2; with_error++) {
        bool error = with_error != 0;
        loong_threads_params_t params = threads_of(3, 0, 60.0);
        double begin = loongi_now();
        assert_int_equal(loong_threads_run(ctx, &params, leave, &error),
                         LOONG_ERR_COMM);
        /* Long before the time limit. */
        assert_true(loongi_now() - begin < 20.0);
        const char *text = loong_context_error(ctx);
        assert_non_null(strstr(text, error ? "failed: " : "ended"));
        assert_true(!error || strstr(text, "cannot read shard 7") != NULL);
        loong_context_clear_error(ctx);
    }
    test_context_end(&ctx);
}

static loong_status_t wrong_message(loong_context_t *ctx, loong_comm_t *comm,
                                    void *user)
{
    (void)ctx;
    (void)user;
    char bytes[8] = {0};
    return loong_comm_rank(comm) == 0 ? loong_comm_send(comm, bytes, 8, 1, 3)
                                      : loong_comm_recv(comm, bytes, 4, 0, 3);
}

static void test_arguments(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_comm_t *comm = NULL;
    char byte = 0;
    int64_t count = -1;
    loong_comm_request_t request;
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    assert_fails(ctx,
                 loong_comm_all_reduce(comm, &byte, 1, LOONG_BOOL,
                                       LOONG_REDUCE_SUM, NULL),
                 LOONG_ERR_ARG, "bool has no sum");
    assert_fails(ctx, loong_comm_broadcast(comm, &byte, 1, 1, NULL),
                 LOONG_ERR_ARG, "rank 1 is outside 0...0");
    assert_fails(ctx,
                 loong_comm_all_gather(comm, &byte, &count, LOONG_U8, NULL),
                 LOONG_ERR_ARG, "count -1 of rank 0");
    assert_fails(ctx, loong_comm_isend(comm, &byte, 1, 0, 40000, &request),
                 LOONG_ERR_ARG, "tag 40000");
    /* Refusals leave it usable. */
    assert_ok(ctx, loong_comm_barrier(comm, NULL));
    loong_comm_destroy(&comm);
    loong_threads_params_t params = threads_of(2, 0, 30.0);
    assert_fails(ctx, loong_threads_run(ctx, &params, wrong_message, NULL),
                 LOONG_ERR_COMM, "8 bytes");
    test_context_end(&ctx);
}

/* user: int[size], each rank's code. */
static loong_status_t agree(loong_context_t *ctx, loong_comm_t *comm,
                            void *user)
{
    int rank = loong_comm_rank(comm);
    int code = -1;
    int who = -1;
    loong_exit_code_agree(comm, ((const int *)user)[rank], &code, &who);
    LOONG_CHECK(ctx, code == 74 && who == 1, LOONG_ERR_INTERNAL,
                "code %d of rank %d", code, who);
    return LOONG_OK;
}

static void test_exit_codes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    int codes[4] = {75, 74, 4, 74};
    loong_threads_params_t params = threads_of(4, 0, 30.0);
    assert_ok(ctx, loong_threads_run(ctx, &params, agree, codes));
    assert_int_equal(loong_exit_code_from_status(LOONG_ERR_COMM), 4);
    assert_int_equal(loong_exit_code_from_status(LOONG_ERR_INTERRUPTED), 75);
    assert_int_equal(loong_exit_code_from_status(LOONG_ERR_MISMATCH), 2);
    assert_string_equal(loong_exit_code_text(99), "unknown exit code");
    test_context_end(&ctx);
}

/* user: int, 0: all well, 1: errors on ranks 2 and 3, 2: another recipe. */
static loong_status_t open_step(loong_context_t *ctx, loong_comm_t *comm,
                                void *user)
{
    int what = *(const int *)user;
    int rank = loong_comm_rank(comm);
    loong_step_exchange_t *exchange = NULL;
    loong_step_report_t report = {.step = 5, .recipe_hash = 77};
    loong_step_header_t agreed;
    report.sums[0][0] = INT64_C(1) << (40 + rank);
    report.sums[LOONG_STEP_SUMS - 1][LOONG_EXACT_WORDS - 1] = -rank;
    report.flags = rank == 1 ? LOONG_STEP_SAVE : 0;
    if (what == 1 && rank >= 2) {
        report.status = LOONG_ERR_IO;
        snprintf(report.message, sizeof(report.message), "shard %d", rank);
    }
    report.recipe_hash += what == 2 && rank == 3;
    LOONG_TRY(
        loongi_step_exchange_create(ctx, comm, LOONG_STEP_SUMS, &exchange));
    uint64_t allocated = loong_context_alloc_count(ctx);
    loong_status_t status =
        loongi_step_exchange_run(exchange, &report, &agreed);
    allocated = loong_context_alloc_count(ctx) - allocated;
    loongi_step_exchange_destroy(&exchange);
    LOONG_TRY(status);
    LOONG_CHECK(ctx,
                allocated == 0 && agreed.sums[0][0] == INT64_C(15) << 40 &&
                    agreed.sums[LOONG_STEP_SUMS - 1][LOONG_EXACT_WORDS - 1] ==
                        -6 &&
                    agreed.flags == LOONG_STEP_SAVE,
                LOONG_ERR_INTERNAL, "wrong sums or flags");
    LOONG_CHECK(ctx,
                what == 1 ? agreed.error_rank == 2 && agreed.error_count == 2 &&
                                agreed.status == LOONG_ERR_IO &&
                                strcmp(agreed.message, "shard 2") == 0
                          : agreed.error_rank == -1 && agreed.error_count == 0,
                LOONG_ERR_INTERNAL, "wrong errors");
    return LOONG_OK;
}

static void test_step_header(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int per_node = 0; per_node < 3; per_node++) {
        loong_threads_params_t params = threads_of(4, per_node, 30.0);
        for (int what = 0; what < 2; what++) {
            assert_ok(ctx, loong_threads_run(ctx, &params, open_step, &what));
        }
        int recipe = 2;
        assert_fails(ctx, loong_threads_run(ctx, &params, open_step, &recipe),
                     LOONG_ERR_MISMATCH,
                     "rank 3 runs another recipe than rank 0");
    }
    test_context_end(&ctx);
}

/* user: uint64_t[2], the most messages and bytes that a rank may send to other
 * machines for a barrier and a step header. */
static loong_status_t count_messages(loong_context_t *ctx, loong_comm_t *comm,
                                     void *user)
{
    const uint64_t *limit = user;
    loong_step_exchange_t *exchange = NULL;
    loong_step_report_t report = {.step = 1, .recipe_hash = 7};
    loong_step_header_t agreed;
    report.sums[0][0] = 1;
    LOONG_TRY(loongi_step_exchange_create(ctx, comm, 1, &exchange));
    loong_comm_stats_t before = loong_comm_stats(comm);
    loong_status_t status =
        loongi_step_exchange_run(exchange, &report, &agreed);
    if (status == LOONG_OK) {
        status = loong_comm_barrier(comm, "behind the step header");
    }
    loong_comm_stats_t after = loong_comm_stats(comm);
    loongi_step_exchange_destroy(&exchange);
    LOONG_TRY(status);
    LOONG_CHECK(ctx, agreed.sums[0][0] == loong_comm_size(comm),
                LOONG_ERR_INTERNAL, "wrong sum");
    uint64_t messages = after.messages - before.messages;
    uint64_t bytes = after.message_bytes - before.message_bytes;
    LOONG_CHECK(ctx, messages <= limit[0] && bytes <= limit[1],
                LOONG_ERR_INTERNAL, "rank %d sends %llu messages, %llu bytes",
                loong_comm_rank(comm), (unsigned long long)messages,
                (unsigned long long)bytes);
    LOONG_CHECK(ctx, messages > 0 || limit[0] == 0 || loong_comm_rank(comm) > 0,
                LOONG_ERR_INTERNAL, "messages are not counted");
    return LOONG_OK;
}

/* log2 of the machines for each of the two all-reduces and the barrier, and
 * 192 bytes for the step header: within 4 log2(ranks) messages and 4 KiB. */
static void test_messages_of_a_step(void **state)
{
    (void)state;
    static const int sizes[] = {4, 64, 256};
    static const uint64_t logs[] = {2, 6, 8};
    loong_context_t *ctx = test_context();
    for (int i = 0; i < 3; i++) {
        uint64_t limit[2] = {3 * logs[i], 192 * logs[i]};
        loong_threads_params_t params = threads_of(sizes[i], 1, 60.0);
        assert_ok(ctx, loong_threads_run(ctx, &params, count_messages, limit));
        limit[0] = sizes[i] > 8 ? 3 * (logs[i] - 3) : 0;
        limit[1] = sizes[i] > 8 ? 192 * (logs[i] - 3) : 0;
        params = threads_of(sizes[i], 8, 60.0);
        assert_ok(ctx, loong_threads_run(ctx, &params, count_messages, limit));
    }
    test_context_end(&ctx);
}

/* Allocations fail one after the other; whatever happens, nothing leaks, and
 * no rank hangs. */
static loong_status_t try_memory(loong_context_t *ctx, loong_comm_t *comm,
                                 void *user)
{
    loong_comm_t *half = NULL;
    void *shared = NULL;
    if (loong_comm_rank(comm) == 1) {
        loong_context_fail_alloc(ctx, *(const uint64_t *)user);
    }
    loong_status_t status =
        loong_comm_split(comm, loong_comm_rank(comm) % 2, 0, "half", &half);
    if (status == LOONG_OK) {
        status = loong_comm_alloc_shared(comm, 1000, "shared", &shared);
        loong_comm_free_shared(comm, &shared);
    }
    loong_comm_destroy(&half);
    loong_context_fail_alloc(ctx, 0);
    return status;
}

static void test_memory(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = threads_of(3, 0, 30.0);
    loong_status_t status = LOONG_ERR_MEMORY;
    uint64_t n = 1;
    for (; status != LOONG_OK && n < 100; n++) {
        loong_context_clear_error(ctx);
        status = loong_threads_run(ctx, &params, try_memory, &n);
        if (status != LOONG_OK) {
            assert_non_null(strstr(loong_context_error(ctx), "allocate"));
        }
    }
    assert_in_range(n, 4, 99);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_cases_self),
        cmocka_unit_test(test_cases_threads),
        cmocka_unit_test(test_cases_messages),
        cmocka_unit_test(test_cases_machines),
        cmocka_unit_test(test_shared_cores),
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_missing_rank),
        cmocka_unit_test(test_missing_between_machines),
        cmocka_unit_test(test_early_return),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_step_header),
        cmocka_unit_test(test_messages_of_a_step),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
