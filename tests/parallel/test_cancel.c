/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that give up with messages under way: their memory goes, and a peer
 * that comes to its end of the messages afterwards finds nobody. An address
 * sanitizer sees what is touched all the same. */
#include "comm_impl.h"
#include "loong/register.h"
#include "staged_comm.h"
#include "test.h"
#include "transfer.h"

enum { RANKS = 2, BYTES = 64 << 10, MESSAGES = 3 };

typedef loong_status_t (*side_t)(loong_context_t *ctx, loong_comm_t *comm,
                                 char *memory, bool sends);

/* Rank 0 begins, gives up and goes; then rank 1 does. */
typedef struct plan {
    side_t side;
    int sender;
} plan_t;

static loong_status_t in_turn(loong_comm_t *comm, bool before)
{
    return before == (loong_comm_rank(comm) == 1)
               ? loong_comm_barrier(comm, "the other is gone")
               : LOONG_OK;
}

static loong_status_t run_rank(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    const plan_t *plan = user;
    int rank = loong_comm_rank(comm);
    char *memory = malloc(BYTES * MESSAGES);
    assert_non_null(memory);
    memset(memory, 1 + rank, BYTES * MESSAGES);
    loong_status_t status =
        plan->side(ctx, comm, memory, rank == plan->sender);
    for (int i = 0; i < BYTES * MESSAGES; i++) {
        assert_int_equal(memory[i], 1 + rank);
    }
    free(memory);
    return status == LOONG_OK ? in_turn(comm, false) : status;
}

static void try_both(side_t side)
{
    for (int sender = 0; sender < RANKS; sender++) {
        loong_context_t *ctx = test_context();
        plan_t plan = {side, sender};
        loong_threads_params_t params = {0};
        params.size = RANKS;
        params.comm.timeout = 10.0;
        assert_ok(ctx, loong_threads_run(ctx, &params, run_rank, &plan));
        test_context_end(&ctx);
    }
}

/* ---- through host memory ------------------------------------------------- */

static loong_status_t begin_staged(loong_comm_t *comm, char *memory,
                                   bool sends)
{
    loong_comm_request_t request[MESSAGES];
    int peer = 1 - loong_comm_rank(comm);
    LOONG_TRY(loongi_comm_reserve(comm, MESSAGES, BYTES));
    for (int i = 0; i < MESSAGES; i++) {
        char *at = memory + i * BYTES;
        LOONG_TRY(sends ? loong_comm_isend(comm, at, BYTES, peer, 0,
                                           &request[i])
                        : loong_comm_irecv(comm, at, BYTES, peer, 0,
                                           &request[i]));
    }
    return LOONG_OK; /* and nobody waits */
}

static loong_status_t open_staged(loong_context_t *ctx, loong_comm_t *comm,
                                  loong_device_t **device_p,
                                  loong_comm_t **staged_p)
{
    /* Messages of four parts. */
    const loong_staged_params_t params = {true, BYTES};
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(loong_device_create(ctx, "cpu", 0, device_p));
    return loongi_staged_create(ctx, *device_p, comm, &params, staged_p);
}

static loong_status_t staged_side(loong_context_t *ctx, loong_comm_t *comm,
                                  char *memory, bool sends)
{
    loong_device_t *device = NULL;
    loong_comm_t *staged = NULL;
    loong_status_t status = open_staged(ctx, comm, &device, &staged);
    status = status == LOONG_OK ? in_turn(comm, true) : status;
    status = status == LOONG_OK ? begin_staged(staged, memory, sends) : status;
    loong_comm_destroy(&staged);
    loong_device_destroy(&device);
    return status;
}

static void test_staged(void **state)
{
    (void)state;
    try_both(staged_side);
}

/* What is complete has no room any more: another message may have it. */
static loong_status_t receive_two(loong_comm_t *comm, loong_comm_t *staged)
{
    char first[MESSAGES];
    char second[MESSAGES] = {0};
    loong_comm_request_t request[2];
    LOONG_TRY(loong_comm_irecv(staged, first, MESSAGES, 0, 0, &request[0]));
    LOONG_TRY(loong_comm_wait(staged, &request[0]));
    LOONG_TRY(loong_comm_irecv(staged, second, MESSAGES, 0, 1, &request[1]));
    assert_true(loong_comm_cancel(staged, &request[0]));
    LOONG_TRY(loong_comm_barrier(comm, "the second is awaited"));
    LOONG_TRY(loong_comm_wait(staged, &request[1]));
    assert_memory_equal(second, "two", MESSAGES);
    return LOONG_OK;
}

static loong_status_t run_two(loong_context_t *ctx, loong_comm_t *comm,
                              void *user)
{
    loong_device_t *device = NULL;
    loong_comm_t *staged = NULL;
    (void)user;
    LOONG_TRY(open_staged(ctx, comm, &device, &staged));
    loong_status_t status = loongi_comm_reserve(staged, 1, MESSAGES);
    if (status == LOONG_OK && loong_comm_rank(comm) == 1) {
        status = receive_two(comm, staged);
    } else if (status == LOONG_OK) {
        status = loong_comm_send(staged, "one", MESSAGES, 1, 0);
        status = status == LOONG_OK
                     ? loong_comm_barrier(comm, "the second is awaited")
                     : status;
        status = status == LOONG_OK
                     ? loong_comm_send(staged, "two", MESSAGES, 1, 1)
                     : status;
    }
    loong_comm_destroy(&staged);
    loong_device_destroy(&device);
    return status;
}

static void test_complete(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_threads_params_t params = {0};
    params.size = RANKS;
    params.comm.timeout = 2.0;
    assert_ok(ctx, loong_threads_run(ctx, &params, run_two, NULL));
    test_context_end(&ctx);
}

/* ---- between stages ------------------------------------------------------ */

static loong_status_t begin_transfer(const loong_model_chunk_t *chunk,
                                     loong_comm_t *comm, char *memory,
                                     bool sends)
{
    loong_binding_t run;
    loong_transfer_t *transfer = NULL;
    const loong_transfer_params_t params = {chunk, comm, NULL, sends ? 0 : 1,
                                            0, MESSAGES};
    memset(&run, 0, sizeof(run));
    LOONG_TRY(loongi_transfer_create(&params, &transfer));
    loong_status_t status = in_turn(comm, true);
    for (int i = 0; i < MESSAGES && status == LOONG_OK; i++) {
        loong_entry_t entry = loongi_entry(
            sends ? LOONG_ENTRY_SEND_FORWARD : LOONG_ENTRY_RECV_FORWARD, 0, i);
        entry.slot = i;
        entry.peer = 1 - loong_comm_rank(comm);
        run.base[LOONG_BASE_SLOT] = memory + i * BYTES;
        status = loongi_transfer_begin(transfer, &run, &entry);
    }
    assert_true(loongi_transfer_cancel(transfer));
    loongi_transfer_destroy(&transfer);
    return status;
}

static loong_status_t transfer_side(loong_context_t *ctx, loong_comm_t *comm,
                                    char *memory, bool sends)
{
    loong_model_chunk_t chunk;
    memset(&chunk, 0, sizeof(chunk));
    loong_port_t *port = sends ? chunk.outputs : chunk.inputs;
    port->name = "x";
    port->dtype = LOONG_U8;
    port->shape = loong_shape_1d(BYTES);
    port->operand.base = LOONG_BASE_SLOT;
    port->boundary = true;
    chunk.ctx = ctx;
    chunk.num_outputs = sends;
    chunk.num_inputs = !sends;
    return begin_transfer(&chunk, comm, memory, sends);
}

static void test_transfer(void **state)
{
    (void)state;
    try_both(transfer_side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
