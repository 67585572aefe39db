/* SPDX-License-Identifier: Apache-2.0
 *
 * The host waits for its device: no longer than others would wait for this
 * rank, or than there is a job. Messages go on meanwhile. Called by the other
 * staged_*.c. Read staged_impl.h before. */
#include <time.h>

#include "loong/exit_code.h"
#include "staged_impl.h"

/* Who has waited less asks nobody. */
static const double LOOK_SECONDS = 0.02;
enum { SPIN_TURNS = 2000, NAP_NANOSECONDS = 20000 };

static int world_rank(const staged_t *s)
{
    return s->host->world_ranks[s->host->rank];
}

/* The others hear of it: they wait for this rank, or for their own devices. */
static loong_status_t does_not_come(staged_t *s, const char *call,
                                    double seconds)
{
    loong_comm_t *host = s->host;
    loong_board_verdict_t verdict = {LOONG_EXIT_LOST, world_rank(s), {0}};
    LOONG_FAIL(s->root->ctx, LOONG_ERR_COMM,
               "%s: rank %d has waited %.1f s for its device (limit %.1f s)",
               call, verdict.world_rank, seconds, host->timeout);
    if (host->board != NULL) {
        loongi_board_text(verdict.text, sizeof(verdict.text),
                          loong_context_error(s->root->ctx));
        loongi_board_judge(host->board, &verdict);
    }
    return LOONG_ERR_COMM;
}

static loong_status_t is_lost(const staged_t *s, const char *call,
                              double seconds,
                              const loong_board_verdict_t *verdict)
{
    return LOONG_FAIL(s->root->ctx, LOONG_ERR_COMM,
                      "%s: rank %d has waited %.1f s for its device, and the "
                      "job is lost: %s",
                      call, world_rank(s), seconds, verdict->text);
}

/* Also while another thread of the rank makes calls: what is told is told by
 * who is first. */
loong_status_t loongi_staged_check(staged_t *s, const loong_collective_t *call,
                                   double seconds)
{
    char text[LOONG_BOARD_TEXT];
    loong_board_verdict_t verdict;
    (void)loongi_comm_progress(s->host);
    if (loongi_staged_is_lost(s->root)) {
        return LOONG_ERR_COMM;
    }
    bool judged = s->host->board != NULL && seconds > LOOK_SECONDS &&
                  loongi_board_verdict(s->host->board, &verdict);
    if (!judged && seconds < s->host->timeout) {
        return LOONG_OK;
    }
    if (__atomic_exchange_n(&s->root->lost, true, __ATOMIC_ACQ_REL)) {
        return LOONG_ERR_COMM;
    }
    loongi_call_text(s->comm, call, text, sizeof(text));
    return judged ? is_lost(s, text, seconds, &verdict)
                  : does_not_come(s, text, seconds);
}

bool loongi_staged_is_lost(const staged_root_t *root)
{
    return __atomic_load_n(&root->lost, __ATOMIC_ACQUIRE);
}

static bool is_in(const loong_comm_t *comm, loong_wait_policy_t wait_policy)
{
    return comm->wait_policy != NULL &&
           comm->wait_policy(comm->wait_policy_user) == wait_policy;
}

void loongi_staged_waited(staged_t *s, double since)
{
    if (!is_in(s->comm, LOONG_WAIT_BESIDE)) {
        s->comm->stats.wait += loongi_now() - since;
    }
}

static loong_status_t check(staged_t *s, double seconds)
{
    const loong_comm_t *comm = s->comm;
    if (is_in(comm, LOONG_WAIT_OVER)) {
        return LOONG_FAIL(comm->ctx, LOONG_ERR_COMM,
                          "%s: given up, this rank does not go on",
                          comm->name);
    }
    return loongi_staged_check(s, comm->current, seconds);
}

loong_status_t loongi_staged_await(staged_t *s, void *event, const char *what)
{
    struct timespec nap = {0, NAP_NANOSECONDS};
    double since = 0.0;
    bool done = false;
    for (int64_t turn = 0;; turn++) {
        LOONG_TRY(loong_device_event_is_done(s->root->device, event, &done));
        if (done) {
            return LOONG_OK;
        }
        since = turn == 0 ? loongi_now() : since;
        loong_status_t status = check(s, loongi_now() - since);
        if (status != LOONG_OK) {
            loongi_error_note(s->root->ctx, "waiting for %s", what);
            return status;
        }
        if (turn > SPIN_TURNS) {
            nanosleep(&nap, NULL);
        }
    }
}
