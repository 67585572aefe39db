/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for other ranks: cheap when they are near, fair when ranks share a
 * core, and ended by the time limit or by news on the board. Called by whatever
 * here and in backends/ waits. Read inside/comm_impl.h and board.h before. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm_impl.h"
#include "loong/exit_code.h"

/* CROWDED_TURNS: as YIELD_TURNS, where more ranks than cores are on a machine.
 * Each yield is a call of the system there that changes to another rank. */
enum {
    SPIN_TURNS = 200,
    CROWDED_TURNS = 250,
    YIELD_TURNS = 20000,
    CLOCK_TURNS = 64
};
enum { NAMED_RANKS = 4 };
static const double TELL_SECONDS = 0.02;
/* What a rank sent before it ended may still be under way. */
static const double LAST_SECONDS = 0.5;

loong_wait_t loongi_wait_begin(loong_comm_t *comm)
{
    loong_wait_t wait = {comm, 0.0, 0.0, 0.0, 0, -1, false};
    return wait;
}

static loong_wait_policy_t policy_of(const loong_comm_t *comm)
{
    return comm->wait_policy != NULL ? comm->wait_policy(comm->wait_policy_user)
                                     : LOONG_WAIT_EAGER;
}

static bool will_not_come(const loong_wait_t *wait, int peer)
{
    loong_comm_t *comm = wait->comm;
    loong_board_verdict_t verdict;
    if (loongi_board_verdict(comm->board, &verdict)) {
        return true;
    }
    loong_board_slot_t *slot =
        loongi_board_find(comm->board, comm->world_ranks[peer]);
    if (slot == NULL) {
        return false;
    }
    loong_rank_state_t state = loongi_slot_state(slot);
    return state == LOONG_RANK_ENDED || state == LOONG_RANK_FAILED ||
           state == LOONG_RANK_FINISHED;
}

static bool look_at_clock(loong_wait_t *wait, int peer)
{
    loong_comm_t *comm = wait->comm;
    double now = loongi_now();
    (void)loongi_comm_progress(comm);
    if (wait->limit == 0.0) {
        wait->begin = wait->told = now;
        wait->limit = now + comm->timeout;
    }
    if (comm->board != NULL && now - wait->told > TELL_SECONDS) {
        wait->told = now;
        loong_board_wait_t on = {
            comm->world_ranks[peer], wait->begin, comm->timeout,
            policy_of(comm) != LOONG_WAIT_EAGER, comm->group};
        loongi_slot_wait_for(comm->slot, &on, &wait->record);
        if (will_not_come(wait, peer)) {
            wait->limit = LOONG_MIN(wait->limit, now + LAST_SECONDS);
        }
    }
    return now < wait->limit;
}

bool loongi_wait_step(loong_wait_t *wait, int peer)
{
    wait->turns++;
    if (wait->turns < SPIN_TURNS) {
        return true;
    }
    loong_wait_policy_t wait_policy = policy_of(wait->comm);
    if (wait_policy == LOONG_WAIT_OVER) {
        (void)look_at_clock(wait, peer);
        return false;
    }
    if (wait->turns == CROWDED_TURNS && wait->comm->slot != NULL) {
        wait->crowded =
            loongi_board_is_crowded(wait->comm->board, wait->comm->slot);
    }
    if (wait_policy == LOONG_WAIT_DEVICE ||
        (wait_policy == LOONG_WAIT_EAGER && wait->turns < YIELD_TURNS &&
         !wait->crowded)) {
        sched_yield();
        return wait->turns % CLOCK_TURNS != 0 || look_at_clock(wait, peer);
    }
    struct timespec nap = {0, 50000};
    nanosleep(&nap, NULL);
    return look_at_clock(wait, peer);
}

void loongi_wait_end(loong_wait_t *wait)
{
    if (wait->limit == 0.0) {
        return; /* too short to have looked at the clock */
    }
    loong_comm_t *comm = wait->comm;
    comm->stats.wait += loongi_now() - wait->begin;
    if (comm->slot != NULL) {
        loongi_slot_wait_end(comm->slot, &wait->record);
    }
}

/* The job is over by our judgement, unless the rank told its own reason or a
 * parent was first. */
static void judge(loong_comm_t *comm, int peer, const char *call,
                  const char *text)
{
    loong_board_verdict_t verdict = {
        LOONG_EXIT_LOST, comm->world_ranks[peer], {0}};
    loong_board_slot_t *slot =
        loongi_board_find(comm->board, verdict.world_rank);
    if (slot != NULL && loongi_slot_state(slot) == LOONG_RANK_FAILED) {
        return;
    }
    snprintf(verdict.text, sizeof(verdict.text), "%.100s: %.150s", call, text);
    loongi_board_judge(comm->board, &verdict);
}

loong_status_t loongi_wait_failed(loong_wait_t *wait)
{
    loong_comm_t *comm = wait->comm;
    double now = loongi_now();
    int named = 0;
    int count = 0;
    int first = -1;
    char call[LOONG_BOARD_TEXT];
    loong_text_t text = loongi_text_begin(comm->ctx);
    for (int i = 0; i < comm->size; i++) {
        if (!comm->missing[i]) {
            continue;
        }
        first = first < 0 ? i : first;
        count++;
        if (named < NAMED_RANKS) {
            char line[2 * LOONG_BOARD_TEXT];
            loongi_board_describe(comm->board, comm->world_ranks[i], now, line,
                                  sizeof(line));
            loongi_text_printf(&text, "%s%s", named > 0 ? "; " : "", line);
            named++;
        }
    }
    loongi_wait_end(wait);
    loongi_call_text(comm, comm->current, call, sizeof(call));
    if (policy_of(comm) == LOONG_WAIT_OVER) {
        loongi_text_free(&text);
        return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                          "%s: given up, this rank does not go on", call);
    }
    if (comm->board != NULL && first >= 0) {
        judge(comm, first, call, loongi_text_get(&text));
    }
    LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
               "%s: %d of %d ranks did not come in %.1f s (limit %.1f s): "
               "%s%s",
               call, count, comm->size, now - wait->begin, comm->timeout,
               loongi_text_get(&text), count > named ? "; ..." : "");
    loongi_text_free(&text);
    return LOONG_ERR_COMM;
}

loong_status_t loongi_wait_failed_on(loong_wait_t *wait, int peer)
{
    loong_comm_t *comm = wait->comm;
    memset(comm->missing, 0, (size_t)comm->size * sizeof(*comm->missing));
    comm->missing[peer] = true;
    return loongi_wait_failed(wait);
}
