/* SPDX-License-Identifier: Apache-2.0
 *
 * N ranks as N threads of this process. Called by tests and tools/layout_job.c.
 * Read threads.h and loong/comm.h before. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "threads.h"
#include "tiers.h"

typedef struct runner {
    pthread_t thread;
    const loong_threads_params_t *params;
    const loong_threads_world_t *world;
    loong_threads_group_t *group;
    loong_threads_fn fn;
    void *user;
    loong_board_slot_t *slot;
    loong_context_t *ctx;
    int rank;
    bool started;
    loong_status_t status;
} runner_t;

static void *run_rank(void *argument)
{
    runner_t *runner = argument;
    loong_comm_t *comm = NULL;
    loong_comm_description_t description = {
        .name = "world",
        .rank = runner->rank,
        .size = runner->params->size,
        .timeout = runner->params->comm.timeout,
        .ops = loongi_threads_ops(),
    };
    runner->status = loongi_threads_join(
        runner->ctx, runner->world, runner->group, NULL, &description, &comm);
    if (runner->status == LOONG_OK) {
        loongi_slot_set_state(runner->slot, LOONG_RANK_RUNNING, NULL);
        runner->status = loongi_tiers_create(&comm);
    }
    if (runner->status == LOONG_OK) {
        runner->status = runner->fn(runner->ctx, comm, runner->user);
    }
    if (runner->status != LOONG_OK) {
        loongi_slot_set_state(runner->slot, LOONG_RANK_FAILED,
                              loong_context_error(runner->ctx));
    } else {
        loongi_slot_set_state(runner->slot, LOONG_RANK_ENDED, NULL);
    }
    loong_comm_destroy(&comm);
    return NULL;
}

static loong_status_t start_rank(loong_context_t *ctx, runner_t *runner)
{
    LOONG_CHECK(ctx,
                loong_context_create(&runner->params->context, &runner->ctx) ==
                    LOONG_OK,
                LOONG_ERR_MEMORY, "no memory for the context of rank %d",
                runner->rank);
    int error = pthread_create(&runner->thread, NULL, run_rank, runner);
    LOONG_CHECK(ctx, error == 0, LOONG_ERR_MEMORY,
                "cannot start the thread of rank %d of %d: %s", runner->rank,
                runner->params->size, strerror(error));
    runner->started = true;
    return LOONG_OK;
}

static loong_status_t end_rank(loong_context_t *ctx, runner_t *runner)
{
    loong_status_t status = LOONG_OK;
    if (runner->started) {
        pthread_join(runner->thread, NULL);
        status = runner->status;
        if (status != LOONG_OK) {
            loongi_error_note(ctx, "rank %d: %s", runner->rank,
                              loong_context_error(runner->ctx));
        }
    } else {
        loongi_threads_drop(runner->group);
    }
    loong_context_destroy(&runner->ctx);
    return status;
}

static loong_status_t run_all(loong_context_t *ctx, runner_t *runners, int size)
{
    loong_status_t status = LOONG_OK;
    for (int i = 0; i < size && status == LOONG_OK; i++) {
        status = start_rank(ctx, &runners[i]);
        if (status != LOONG_OK) {
            loongi_slot_set_state(runners[i].slot, LOONG_RANK_FAILED,
                                  "its thread did not start");
        }
    }
    for (int i = 0; i < size; i++) {
        loong_status_t one = end_rank(ctx, &runners[i]);
        status = status == LOONG_OK ? one : status;
    }
    return status;
}

loong_status_t loong_threads_run(loong_context_t *ctx,
                                 const loong_threads_params_t *params,
                                 loong_threads_fn fn, void *user)
{
    int size = params->size;
    loong_threads_world_t world = {size, params->comm, NULL};
    runner_t *runners = NULL;
    void *memory = NULL;
    int *ranks = NULL;
    loong_threads_group_t *group = NULL;
    loong_status_t status;
    LOONG_CHECK(ctx, size >= 1, LOONG_ERR_ARG,
                "%d ranks as threads; at least 1", size);
    LOONG_TRY(
        loongi_alloc(ctx, loongi_board_bytes(size), "status board", &memory));
    world.board = loongi_board_init(memory, size);
    loongi_board_set_heartbeat(world.board, params->comm.heartbeat_timeout);
    LOONG_TRY_GOTO(
        loongi_calloc(ctx, (size_t)size, sizeof(*runners), "threads", &runners),
        status, err_runners);
    LOONG_TRY_GOTO(
        loongi_calloc(ctx, (size_t)size, sizeof(*ranks), "ranks", &ranks),
        status, err_ranks);
    for (int i = 0; i < size; i++) {
        ranks[i] = i;
    }
    group = loongi_threads_group(&world, ranks, size);
    if (group == NULL) {
        status = LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                            "no memory for a group of %d ranks", size);
        goto err_group;
    }
    for (int i = 0; i < size; i++) {
        loong_board_slot_t *slot = loongi_board_slot(world.board, i);
        loongi_slot_claim(slot, i, (int)getpid());
        runner_t runner = {.params = params,
                           .world = &world,
                           .group = group,
                           .fn = fn,
                           .user = user,
                           .slot = slot,
                           .rank = i};
        runners[i] = runner;
    }
    status = run_all(ctx, runners, size);
err_group:
    loongi_free(ctx, ranks);
err_ranks:
    loongi_free(ctx, runners);
err_runners:
    loongi_free(ctx, memory);
    return status;
}
