/* SPDX-License-Identifier: Apache-2.0
 *
 * Heartbeats. A thread of each rank looks on the board whom the rank waits for.
 * Where that is a rank of another machine it asks now and then, and the other
 * one's thread answers, whatever that rank does itself; so one that is slow is
 * told from one that cannot be reached. Nobody who does not wait asks. Called
 * by mpi_world.c. Read src/comm/board.h before. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "loong/exit_code.h"
#include "mpi_impl.h"
#include "pulse.h"

enum { QUESTION, ANSWER }; /* tags */
enum { HOST_TEXT = 32, SENDS = 32, TURN_NANOSECONDS = 50000000 };
/* Questions within the time limit, so that one that is lost does not count. */
static const double QUESTIONS = 8.0;
/* Of a thread that has not run for so long; the silence was its own. */
static const double SUSPENDED_SECONDS = 1.0;

/* About one wait of this rank. */
typedef struct ask {
    int rank;     /* -1: nobody is asked */
    double asked; /* last; 0: not yet */
    double heard; /* last, or when first asked */
    bool judged;
    char text[LOONG_BOARD_TEXT]; /* the last answer; "" */
} ask_t;

/* A question names a group; the answer says where the rank's device stands in
 * it, and what the rank does. */
typedef struct letter {
    loong_board_stand_t stand;
    char text[LOONG_BOARD_TEXT];
} letter_t;

typedef struct sending {
    MPI_Request request;
    letter_t letter;
} sending_t;

struct mpi_heartbeat {
    mpi_world_t *world;
    MPI_Comm comm;
    double limit;
    double interval; /* of questions */
    double looked;
    loong_board_slot_t *slot;
    char (*hosts)[HOST_TEXT]; /* by rank */
    ask_t ask[LOONG_BOARD_WAITS];
    sending_t send[SENDS];
    bool over; /* atomic */
    bool started;
    pthread_t thread;
};

static const loong_board_stand_t nothing = {0, 0, 0};

/* False when too many are under way; whoever waits asks again. */
static bool post(mpi_heartbeat_t *h, int rank, int tag, const letter_t *letter)
{
    for (int i = 0; i < SENDS; i++) {
        sending_t *s = &h->send[i];
        int done = 0;
        if (MPI_Test(&s->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            done != 0) {
            s->letter = *letter;
            return MPI_Isend(&s->letter, (int)sizeof(s->letter), MPI_BYTE, rank,
                             tag, h->comm, &s->request) == MPI_SUCCESS;
        }
    }
    return false;
}

/* The next one that came with the tag; false: there is none. */
static bool receive(mpi_heartbeat_t *h, int tag, int *rank_p,
                    letter_t *letter_p)
{
    MPI_Status status;
    int found = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, h->comm, &found, &status) !=
            MPI_SUCCESS ||
        found == 0) {
        return false;
    }
    *rank_p = status.MPI_SOURCE;
    return MPI_Recv(letter_p, (int)sizeof(*letter_p), MPI_BYTE, *rank_p, tag,
                    h->comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void answer(mpi_heartbeat_t *h, double now)
{
    int rank = 0;
    int me = h->world->rank;
    letter_t letter;
    while (receive(h, QUESTION, &rank, &letter)) {
        char what[LOONG_BOARD_TEXT];
        loongi_slot_describe(h->slot, now, what, sizeof(what));
        snprintf(letter.text, sizeof(letter.text), "%.*s on %s",
                 LOONG_BOARD_TEXT - HOST_TEXT - 5, what, h->hosts[me]);
        letter.stand =
            loongi_board_stand(h->world->board, me, letter.stand.group);
        (void)post(h, rank, ANSWER, &letter);
    }
}

static void listen(mpi_heartbeat_t *h, double now)
{
    int rank = 0;
    letter_t letter;
    while (receive(h, ANSWER, &rank, &letter)) {
        for (int i = 0; i < LOONG_BOARD_WAITS; i++) {
            ask_t *ask = &h->ask[i];
            if (ask->rank == rank) {
                ask->heard = now;
                memcpy(ask->text, letter.text, sizeof(ask->text));
                loongi_slot_hear(h->slot, i, rank, ask->text, &letter.stand);
            }
        }
    }
}

/* Ends the job of this machine; who waits elsewhere hears it from those. */
static void judge(mpi_heartbeat_t *h, int i, double now)
{
    ask_t *ask = &h->ask[i];
    char text[3 * LOONG_BOARD_TEXT];
    loong_board_verdict_t verdict = {LOONG_EXIT_LOST, ask->rank, {0}};
    snprintf(text, sizeof(text),
             "rank %d (on %s, which has not answered for %.1f s: the machine, "
             "or the link to it, is down%s%s)",
             ask->rank, h->hosts[ask->rank], now - ask->heard,
             ask->text[0] != '\0' ? "; before: " : "", ask->text);
    loongi_slot_hear(h->slot, i, ask->rank, text, &nothing);
    loongi_board_text(verdict.text, sizeof(verdict.text), text);
    loongi_board_judge(h->world->board, &verdict);
}

/* Record i of what this rank waits for. */
static void look_after(mpi_heartbeat_t *h, int i, double now)
{
    ask_t *ask = &h->ask[i];
    loong_board_wait_t wait;
    const int *node_of = h->world->node_of;
    if (!loongi_slot_waits(h->slot, i, &wait) ||
        node_of[wait.world_rank] == node_of[h->world->rank] ||
        now - wait.since < h->interval) {
        if (ask->rank >= 0) {
            ask->rank = -1;
            loongi_slot_hear(h->slot, i, -1, "", &nothing);
        }
        return;
    }
    if (ask->rank != wait.world_rank) {
        ask_t fresh = {wait.world_rank, 0.0, now, false, {0}};
        *ask = fresh;
    }
    letter_t question = {{wait.group, 0, 0}, ""};
    if (now - ask->asked > h->interval &&
        post(h, ask->rank, QUESTION, &question)) {
        ask->asked = now;
    }
    if (now - ask->heard > h->limit && !ask->judged) {
        ask->judged = true;
        judge(h, i, now);
    }
}

static void *beat(void *user)
{
    mpi_heartbeat_t *h = user;
    struct timespec nap = {0, TURN_NANOSECONDS};
    prctl(PR_SET_NAME, LOONG_PULSE_APART);
    h->looked = loongi_now();
    while (!__atomic_load_n(&h->over, __ATOMIC_ACQUIRE)) {
        double now = loongi_now();
        double asleep = now - h->looked;
        h->looked = now;
        for (int i = 0; i < LOONG_BOARD_WAITS && asleep > SUSPENDED_SECONDS;
             i++) {
            h->ask[i].heard += asleep;
        }
        answer(h, now);
        listen(h, now);
        for (int i = 0; i < LOONG_BOARD_WAITS; i++) {
            look_after(h, i, now);
        }
        nanosleep(&nap, NULL);
    }
    return NULL;
}

/* ---- starting and ending ------------------------------------------------- */

static bool one_machine(const mpi_world_t *world)
{
    for (int r = 1; r < world->size; r++) {
        if (world->node_of[r] != world->node_of[0]) {
            return false;
        }
    }
    return true;
}

/* Signals are for the rank's own thread. */
static bool start_thread(mpi_heartbeat_t *h)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    h->started = pthread_create(&h->thread, NULL, beat, h) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return h->started;
}

loong_status_t loongi_mpi_heartbeat_start(loong_context_t *ctx,
                                          mpi_world_t *world)
{
    mpi_heartbeat_t *h = NULL;
    char host[HOST_TEXT] = "";
    if (one_machine(world) || world->thread_level < MPI_THREAD_MULTIPLE) {
        return LOONG_OK;
    }
    size_t hosts = (size_t)world->size * sizeof(*h->hosts);
    LOONG_TRY(loongi_alloc(ctx, sizeof(*h) + hosts, "heartbeat", &h));
    world->heartbeat = h;
    h->world = world;
    h->comm = MPI_COMM_NULL;
    h->hosts = (char(*)[HOST_TEXT])(h + 1);
    h->limit = loongi_board_heartbeat(world->board);
    h->interval = h->limit / QUESTIONS;
    h->slot = loongi_board_find(world->board, world->rank);
    for (int i = 0; i < LOONG_BOARD_WAITS; i++) {
        h->ask[i].rank = -1;
    }
    for (int i = 0; i < SENDS; i++) {
        h->send[i].request = MPI_REQUEST_NULL;
    }
    gethostname(host, sizeof(host) - 1);
    LOONG_TRY_MPI(ctx, MPI_Allgather(host, HOST_TEXT, MPI_CHAR, h->hosts,
                                     HOST_TEXT, MPI_CHAR, MPI_COMM_WORLD));
    LOONG_TRY_MPI(ctx, MPI_Comm_dup(MPI_COMM_WORLD, &h->comm));
    LOONG_TRY_MPI(ctx, MPI_Comm_set_errhandler(h->comm, MPI_ERRORS_RETURN));
    loong_status_t status =
        start_thread(h) ? LOONG_OK
                        : LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                                     "cannot start the thread of heartbeats");
    return loongi_mpi_agree(ctx, MPI_COMM_WORLD, status, "heartbeat");
}

void loongi_mpi_heartbeat_end(loong_context_t *ctx, mpi_world_t *world,
                              bool failed)
{
    mpi_heartbeat_t *h = world->heartbeat;
    world->heartbeat = NULL;
    if (h == NULL) {
        return;
    }
    if (h->started) {
        __atomic_store_n(&h->over, true, __ATOMIC_RELEASE);
        pthread_join(h->thread, NULL);
    }
    for (int i = 0; i < SENDS && !failed; i++) {
        MPI_Wait(&h->send[i].request, MPI_STATUS_IGNORE);
    }
    if (!failed) { /* freeing waits for the others */
        MPI_Comm_free(&h->comm);
    }
    loongi_free(ctx, h);
}
