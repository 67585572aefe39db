/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of a worker. A launcher's stub (launcher.h), or a shell, starts
 * parents; each forks its rank before MPI begins, so that somebody is left to
 * say what happened to it. Parents of a machine share the status board
 * (src/comm/board.h) through a file that carries the job's name until all of
 * them have opened it. Called by loongrun; read both headers before. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#include "board_parent.h"
#include "launcher.h"
#include "loong/exit_code.h"
#include "loong/job.h"
#include "loong/launch.h"
#include "pages.h"
#include "pulse.h"

enum { SLOTS = 512, LINE_BYTES = 1024, EARLIER_EVENTS = 2 };
static const double DEFAULT_GRACE = 5.0;
static const double LOOK_SECONDS = 0.1;
static const double CAUSE_SECONDS = 1.0;
/* Nothing will happen any more when it has not for so long: a worker that is
 * waited for is stopped or stands still, ranks wait for each other. */
static const double HOPELESS_SECONDS = 15.0;
static const double SUSPENDED_SECONDS = 1.0;

typedef struct parent {
    const loong_parent_params_t *params;
    loong_launch_t launch;
    char name[64]; /* of the board's file */
    int file;
    loong_board_t *board;
    loong_board_slot_t *slot;
    pid_t worker;
    double lost_since; /* 0: the job lives */
    double looked;     /* when the board was looked at last */
    loong_pulse_t pulse;  /* of the worker, while it is waited for */
    bool reported;
    bool killed; /* by us, after the grace */
    bool stopping; /* it was asked to */
    int interrupts;
} parent_t;

static const int forwarded[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

static void report(const parent_t *parent, const char *line)
{
    if (parent->params->report != NULL) {
        parent->params->report(parent->params->user, line);
    }
}

/* ---- The board ----------------------------------------------------------- */

/* What only the processes of this job on this machine have in common. */
static void name_board(char *name, size_t size)
{
    static const char *const variables[] = {
        "PMIX_NAMESPACE", "PMIX_SERVER_URI2",    "SLURM_JOB_ID",
        "SLURM_STEP_ID",  "SLURM_RESTART_COUNT", "PMI_PORT"};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    bool found = false;
    for (int64_t i = 0; i < LOONG_COUNT_OF(variables); i++) {
        const char *text = getenv(variables[i]);
        found = found || text != NULL;
        for (; text != NULL && *text != '\0'; text++) {
            hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
        }
    }
    if (!found) { /* the launcher's process on this machine */
        hash ^= (uint64_t)getppid();
    }
    snprintf(name, size, "/loong-board-%d-%016llx", (int)getuid(),
             (unsigned long long)hash);
}

static loong_status_t open_board(loong_context_t *ctx, parent_t *parent)
{
    void *memory = NULL;
    size_t bytes = loongi_board_bytes(SLOTS);
    bool alone = parent->launch.size == 1;
    name_board(parent->name, sizeof(parent->name));
    if (alone) {
        LOONG_TRY(loongi_pages_file(ctx, bytes, "status board", &parent->file));
    } else {
        parent->file = shm_open(parent->name, O_RDWR | O_CREAT, 0600);
        LOONG_CHECK(ctx, parent->file >= 0, LOONG_ERR_IO,
                    "cannot open the status board /dev/shm%s: %s", parent->name,
                    strerror(errno));
        LOONG_CHECK(ctx, ftruncate(parent->file, (off_t)bytes) == 0,
                    LOONG_ERR_IO, "cannot size the status board: %s",
                    strerror(errno));
    }
    LOONG_TRY(loongi_pages_map(ctx, parent->file, bytes, &memory));
    parent->board = loongi_board_init(memory, SLOTS);
    parent->slot = loongi_board_slot(parent->board, parent->launch.local_rank);
    LOONG_CHECK(ctx, parent->slot != NULL, LOONG_ERR_CONFIG,
                "rank %d is number %d on its machine; the status board has "
                "room for %d",
                parent->launch.rank, parent->launch.local_rank, SLOTS);
    return LOONG_OK;
}

/* The name has served once everybody of the machine is on the board. */
static void drop_name(parent_t *parent, bool at_end)
{
    int here = 0;
    if (parent->name[0] == '\0' || parent->launch.size == 1) {
        return;
    }
    for (int i = 0; i < SLOTS; i++) {
        loong_board_slot_t *slot = loongi_board_slot(parent->board, i);
        here += loongi_slot_state(slot) != LOONG_RANK_EMPTY;
    }
    int expected = parent->launch.local_size;
    if (at_end || (expected > 0 && here >= expected)) {
        shm_unlink(parent->name);
        parent->name[0] = '\0';
    }
}

/* ---- Verdicts ------------------------------------------------------------ */

static void who(const parent_t *parent, char *text, size_t size)
{
    char host[64] = "";
    char last[2 * LOONG_BOARD_TEXT];
    gethostname(host, sizeof(host) - 1);
    loongi_board_describe(parent->board, parent->launch.rank, loongi_now(),
                          last, sizeof(last));
    snprintf(text, size, "%s on %s", last, host);
}

/* Ends the job. True when nobody was first. */
static bool judge(parent_t *parent, int code, const char *line)
{
    loong_board_verdict_t verdict = {code, parent->launch.rank, {0}};
    loongi_board_text(verdict.text, sizeof(verdict.text), line);
    return loongi_board_judge(parent->board, &verdict);
}

/* Ends the job because of our worker. */
static void judge_lost(parent_t *parent, const char *line)
{
    judge(parent, LOONG_EXIT_LOST, line);
    if (!parent->reported) {
        parent->reported = true;
        report(parent, line);
    }
}

/* What a rank did last, and before that. */
static void tell_events(const parent_t *parent, int rank)
{
    char text[LINE_BYTES * 2];
    double now = loongi_now();
    int n = snprintf(text, sizeof(text), "  ");
    loongi_board_describe(parent->board, rank, now, text + n, LINE_BYTES);
    for (int back = 1; back <= EARLIER_EVENTS; back++) {
        size_t used = strlen(text);
        char event[LOONG_BOARD_TEXT];
        if (loongi_board_event(parent->board, rank, back, now, event,
                               sizeof(event))) {
            snprintf(text + used, sizeof(text) - used, "%s%s",
                     back == 1 ? "; before: " : ", ", event);
        }
    }
    report(parent, text);
}

/* Once on a machine: who was where when the job was lost. */
static void tell_verdict(const parent_t *parent,
                         const loong_board_verdict_t *verdict)
{
    if (!loongi_board_claim_telling(parent->board)) {
        return;
    }
    loong_job_verdict_t told = {verdict->code, verdict->world_rank,
                                loongi_now(), {0}};
    snprintf(told.text, sizeof(told.text), "%s", verdict->text);
    loong_job_tell_verdict(&told);
    if (verdict->code != LOONG_EXIT_LOST) {
        return;
    }
    report(parent, "what the ranks of this machine did last:");
    for (int i = 0; i < SLOTS; i++) {
        loong_board_slot_t *slot = loongi_board_slot(parent->board, i);
        if (loongi_slot_state(slot) != LOONG_RANK_EMPTY) {
            tell_events(parent, loongi_slot_world_rank(slot));
        }
    }
}

static bool is_known_code(int code)
{
    switch (code) {
#define LOONG_EXIT_CASE(name_, code_, text_) case LOONG_EXIT_##name_:
        LOONG_EXIT_LIST(LOONG_EXIT_CASE)
#undef LOONG_EXIT_CASE
        return true;
    default:
        return false;
    }
}

static void judge_exit(parent_t *parent, int code)
{
    char line[LINE_BYTES];
    char text[2 * LOONG_BOARD_TEXT + 80];
    who(parent, text, sizeof(text));
    if (!is_known_code(code)) {
        snprintf(line, sizeof(line),
                 "lost: rank %d exited with the unknown code %d: %s",
                 parent->launch.rank, code, text);
        judge_lost(parent, line);
    } else if (code != LOONG_EXIT_OK && code != LOONG_EXIT_STOPPED) {
        /* It has said why itself. */
        snprintf(line, sizeof(line), "rank %d exited with code %d (%s)",
                 parent->launch.rank, code, loong_exit_code_text(code));
        judge(parent, code, line);
    }
}

static void judge_signal(parent_t *parent, int number)
{
    char line[LINE_BYTES];
    char text[2 * LOONG_BOARD_TEXT + 80];
    if (number == SIGINT && parent->interrupts > 1) {
        judge(parent, LOONG_EXIT_FAILED, "interrupted twice");
        report(parent, "interrupted twice: ended at once, nothing saved");
        return;
    }
    if (parent->killed) {
        return; /* the verdict was there before */
    }
    if (number == SIGPIPE && parent->launch.size == 1) {
        judge(parent, LOONG_EXIT_FAILED, "nobody reads the output any more");
        report(parent, "nobody reads the output any more");
        return;
    }
    who(parent, text, sizeof(text));
    snprintf(line, sizeof(line),
             "lost: rank %d was killed by signal %d (%s): %s",
             parent->launch.rank, number, strsignal(number), text);
    judge_lost(parent, line);
}

/* Somebody has waited for our worker too long. */
static void judge_hang(parent_t *parent, const char *because)
{
    char line[LINE_BYTES];
    char text[2 * LOONG_BOARD_TEXT + 80];
    bool stopped = loongi_pulse_is_stopped((int)parent->worker);
    who(parent, text, sizeof(text));
    snprintf(line, sizeof(line), "lost: rank %d %s, %s: %s",
             parent->launch.rank, stopped ? "is stopped (SIGSTOP)" : "hangs",
             because, text);
    judge_lost(parent, line);
}

/* A rank that is gone before it joined leaves the others waiting in MPI. */
static void judge_absent(parent_t *parent)
{
    if (loongi_slot_state(parent->slot) != LOONG_RANK_JOINING) {
        return;
    }
    for (int i = 0; i < SLOTS; i++) {
        loong_board_slot_t *slot = loongi_board_slot(parent->board, i);
        if (loongi_slot_state(slot) == LOONG_RANK_ENDED &&
            !loongi_slot_joined(slot)) {
            char line[LINE_BYTES];
            snprintf(line, sizeof(line),
                     "lost: rank %d (pid %d) ended before it joined the job",
                     loongi_slot_world_rank(slot), loongi_slot_pid(slot));
            if (judge(parent, LOONG_EXIT_LOST, line)) {
                report(parent, line);
            }
            return;
        }
    }
}

/* ---- Watching ------------------------------------------------------------ */

/* Every other worker of this machine is stopped, and there are some. */
static bool others_are_stopped(const parent_t *parent)
{
    int others = 0;
    for (int i = 0; i < SLOTS; i++) {
        const loong_board_slot_t *slot = loongi_board_slot(parent->board, i);
        int pid = loongi_slot_pid(slot);
        if (slot != parent->slot && pid > 0 &&
            loongi_slot_state(slot) == LOONG_RANK_RUNNING) {
            others++;
            if (!loongi_pulse_is_stopped(pid)) {
                return false;
            }
        }
    }
    return others > 0;
}

/* Who waits for our worker, as text; false when nobody does. Those on other
 * machines are not seen: there may be some. */
static bool find_waiter(const parent_t *parent, char *text, size_t size)
{
    int waiter = loongi_board_waiter(parent->board, parent->launch.rank);
    if (waiter >= 0) {
        snprintf(text, size, "rank %d waits for it", waiter);
        return true;
    }
    snprintf(text, size, "ranks on other machines may wait for it");
    return parent->launch.local_size > 0 &&
           parent->launch.size > parent->launch.local_size &&
           loongi_slot_state(parent->slot) == LOONG_RANK_RUNNING;
}

/* A worker that is stopped, or in which no thread has run, will not come by
 * itself, so the time limit need not be over. Not when all are stopped: a
 * scheduler has set the job aside. */
static void look_for_stop(parent_t *parent, double now)
{
    char waiter[64];
    char because[160];
    loong_pulse_t *pulse = &parent->pulse;
    bool awake = now - parent->looked < SUSPENDED_SECONDS;
    parent->looked = now;
    if (!awake || !find_waiter(parent, waiter, sizeof(waiter)) ||
        others_are_stopped(parent)) {
        memset(pulse, 0, sizeof(*pulse));
        return;
    }
    loongi_pulse_look(pulse, (int)parent->worker, now);
    if ((pulse->state == LOONG_PULSE_STOPPED ||
         pulse->state == LOONG_PULSE_STILL) &&
        now - pulse->since > HOPELESS_SECONDS) {
        snprintf(because, sizeof(because), "%s and it has done nothing for "
                 "%.1f s", waiter, now - pulse->since);
        judge_hang(parent, because);
    }
}

/* Ranks that wait for each other in a circle have not made the same calls. The
 * lowest of them tells. */
static void look_for_circle(parent_t *parent, double now)
{
    int first = parent->launch.rank;
    int rank = first;
    double youngest = 0.0;
    char line[LINE_BYTES];
    int n = snprintf(line, sizeof(line), "lost: ranks wait for each other");
    for (int i = 0; i < SLOTS; i++) {
        double since = 0.0;
        char event[LOONG_BOARD_TEXT] = "";
        int next = loongi_board_waits_for(parent->board, rank, &since);
        if (next < first) { /* nobody, or not ours to tell */
            return;
        }
        youngest = LOONG_MAX(youngest, since);
        loongi_board_event(parent->board, rank, 0, now, event, sizeof(event));
        n += snprintf(line + n, sizeof(line) - (size_t)n,
                      "; rank %d waits for rank %d, %s", rank, next, event);
        rank = next;
        if (rank == first || n >= LINE_BYTES) {
            break;
        }
    }
    if (rank != first || now - youngest < HOPELESS_SECONDS) {
        return;
    }
    loong_board_verdict_t verdict = {LOONG_EXIT_LOST, -1, {0}};
    snprintf(verdict.text, sizeof(verdict.text), "%.255s", line);
    if (loongi_board_judge(parent->board, &verdict)) {
        report(parent, line);
    }
}

/* Looks at the board: is our worker late, is the job lost. */
static void look(parent_t *parent)
{
    loong_board_verdict_t verdict;
    int waiter = -1;
    double now = loongi_now();
    drop_name(parent, false);
    judge_absent(parent);
    look_for_stop(parent, now);
    look_for_circle(parent, now);
    double over =
        loongi_board_overdue(parent->board, parent->launch.rank, now, &waiter);
    if (over >= 0.0) {
        char because[80];
        snprintf(because, sizeof(because),
                 "rank %d waited for it to the time limit", waiter);
        judge_hang(parent, because);
    }
    if (!loongi_board_verdict(parent->board, &verdict)) {
        return;
    }
    bool ours = verdict.world_rank == parent->launch.rank;
    if (parent->lost_since == 0.0) {
        parent->lost_since = now;
        if (ours && verdict.code == LOONG_EXIT_LOST) {
            judge_hang(parent, "others have given it up");
        }
        tell_verdict(parent, &verdict);
    }
    double grace =
        parent->params->grace > 0.0 ? parent->params->grace : DEFAULT_GRACE;
    /* Whoever hangs will not end by itself. */
    if (!parent->killed && (ours || now - parent->lost_since > grace)) {
        parent->killed = true;
        kill(parent->worker, SIGKILL);
    }
}

/* Once, and by one rank: a step may be long, and a launcher does not wait. */
static void tell_stop(parent_t *parent, int number)
{
    if (number != SIGUSR1 && !parent->stopping && parent->launch.rank == 0) {
        char line[LINE_BYTES];
        snprintf(line, sizeof(line),
                 "asked to stop (%s): the step is finished or given up first, "
                 "also if the launcher ends before that (process %ld)",
                 strsignal(number), (long)parent->worker);
        report(parent, line);
    }
    parent->stopping = parent->stopping || number != SIGUSR1;
}

/* True when the worker is over, with its wait status. */
static bool next_signal(parent_t *parent, const sigset_t *set, int *status_p)
{
    struct timespec limit = {0, (long)(LOOK_SECONDS * 1e9)};
    int number = sigtimedwait(set, NULL, &limit);
    if (number > 0 && number != SIGCHLD) {
        parent->interrupts += number == SIGINT;
        tell_stop(parent, number);
        kill(parent->worker, number);
    }
    pid_t over = waitpid(parent->worker, status_p, WNOHANG);
    return over == parent->worker || (over < 0 && errno == ECHILD);
}

/* A rank whose parent will still say how it ended. */
static bool is_busy(const loong_board_slot_t *slot)
{
    loong_rank_state_t state = loongi_slot_state(slot);
    return state != LOONG_RANK_EMPTY && state != LOONG_RANK_ENDED &&
           kill(loongi_slot_parent(slot), 0) == 0;
}

/* Waits until every rank of the machine is over, somebody judged, or the limit
 * is reached. */
static void wait_for_others(parent_t *parent, const sigset_t *set, double limit)
{
    loong_board_verdict_t verdict;
    double end = loongi_now() + limit;
    bool busy = true;
    while (busy && loongi_now() < end &&
           !loongi_board_verdict(parent->board, &verdict)) {
        struct timespec nap = {0, (long)(LOOK_SECONDS * 1e9 / 4)};
        busy = false;
        for (int i = 0; i < SLOTS; i++) {
            busy = busy || is_busy(loongi_board_slot(parent->board, i));
        }
        if (busy && sigtimedwait(set, NULL, &nap) == SIGTERM) {
            return;
        }
    }
}

static int watch(parent_t *parent, const sigset_t *set)
{
    loong_board_verdict_t verdict;
    int status = 0;
    while (!next_signal(parent, set, &status)) {
        look(parent);
    }
    if (!WIFEXITED(status)) {
        judge_signal(parent, WTERMSIG(status));
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : LOONG_EXIT_LOST;
    if (code == LOONG_EXIT_LOST) {
        /* Whoever was the cause has the better code, in a moment. */
        loongi_slot_set_state(parent->slot, LOONG_RANK_ENDED, NULL);
        wait_for_others(parent, set, CAUSE_SECONDS);
    }
    if (WIFEXITED(status)) {
        judge_exit(parent, code);
    }
    loongi_slot_set_state(parent->slot, LOONG_RANK_ENDED, NULL);
    if (code == LOONG_EXIT_OK) {
        /* The job has one code, also when another is lost after this. */
        wait_for_others(parent, set, HUGE_VAL);
    }
    if (!loongi_board_verdict(parent->board, &verdict)) {
        return code;
    }
    tell_verdict(parent, &verdict);
    return verdict.code;
}

/* ---- Starting ------------------------------------------------------------ */

/* The child becomes the rank. */
static loong_status_t become_worker(loong_context_t *ctx, parent_t *parent,
                                    pid_t parent_pid, const sigset_t *old)
{
    char text[64];
    /* Signals of the terminal or of mpirun reach the parent alone, which
     * passes each on once. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent_pid) {
        raise(SIGKILL); /* it died before the line above */
    }
    sigprocmask(SIG_SETMASK, old, NULL);
    snprintf(text, sizeof(text), "%d,%d,%d", parent->file, SLOTS,
             parent->launch.local_rank);
    LOONG_CHECK(ctx, setenv(LOONG_BOARD_ENV, text, 1) == 0, LOONG_ERR_MEMORY,
                "cannot set " LOONG_BOARD_ENV);
    loongi_pages_free(parent->board, loongi_board_bytes(SLOTS));
    return LOONG_OK;
}

static void block_signals(sigset_t *set, sigset_t *old)
{
    sigemptyset(set);
    sigaddset(set, SIGCHLD);
    for (int64_t i = 0; i < LOONG_COUNT_OF(forwarded); i++) {
        sigaddset(set, forwarded[i]);
    }
    sigprocmask(SIG_BLOCK, set, old);
}

static loong_status_t start(loong_context_t *ctx, parent_t *parent,
                            const sigset_t *old, loong_role_t *role_p)
{
    pid_t self = getpid();
    loongi_slot_set_parent(parent->slot, (int)self);
    loongi_slot_claim(parent->slot, parent->launch.rank, 0);
    pid_t worker = fork();
    LOONG_CHECK(ctx, worker >= 0, LOONG_ERR_MEMORY,
                "cannot start a worker: %s", strerror(errno));
    if (worker == 0) {
        *role_p = LOONG_ROLE_WORKER;
        return become_worker(ctx, parent, self, old);
    }
    setpgid(worker, worker);
    signal(SIGPIPE, SIG_IGN); /* a launcher that is gone reads nothing */
    parent->worker = worker;
    loongi_slot_set_pid(parent->slot, (int)worker);
    *role_p = LOONG_ROLE_PARENT;
    return LOONG_OK;
}

loong_status_t loong_parent_run(loong_context_t *ctx,
                                const loong_parent_params_t *params,
                                loong_role_t *role_p, int *exit_code_p)
{
    parent_t parent = {.params = params, .file = -1};
    loong_role_t role = LOONG_ROLE_PARENT;
    sigset_t set;
    sigset_t old;
    bool is_stub = false;
    loong_launch_detect(&parent.launch);
    LOONG_TRY(open_board(ctx, &parent));
    block_signals(&set, &old);
    if (parent.launch.launcher != NULL) {
        LOONG_TRY(loongi_stub_run(ctx, &set, &is_stub, exit_code_p));
    }
    if (is_stub) {
        *role_p = LOONG_ROLE_PARENT;
        return LOONG_OK;
    }
    LOONG_TRY(start(ctx, &parent, &old, &role));
    if (role == LOONG_ROLE_PARENT) {
        int code = watch(&parent, &set);
        drop_name(&parent, true);
        loongi_pages_free(parent.board, loongi_board_bytes(SLOTS));
        close(parent.file);
        *exit_code_p = code;
    }
    *role_p = role;
    return LOONG_OK;
}
