/* SPDX-License-Identifier: Apache-2.0
 *
 * One attempt: the command, the signals that it is passed, and the processes
 * that it leaves behind. Called by loong_supervise.c. Read loong_supervise.h
 * before. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "loong/exit_code.h"
#include "loong_supervise.h"

enum { CANNOT_RUN = 126, NOT_FOUND = 127, SIGNALS = 128 };
/* What is left of a job has so long to end by itself. */
static const double GRACE_SECONDS = 3.0;
static const double LOOK_SECONDS = 0.1;

double supervise_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool supervise_begin(sigset_t *set_p)
{
    static const int numbers[] = {SIGTERM, SIGINT,  SIGHUP,
                                  SIGUSR1, SIGUSR2, SIGCHLD};
    sigemptyset(set_p);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sigaddset(set_p, numbers[i]);
    }
    return sigprocmask(SIG_BLOCK, set_p, NULL) == 0 &&
           prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) == 0;
}

/* The next of the signals, 0 after the time. */
static int next_signal(const sigset_t *set, double seconds)
{
    struct timespec limit = {(time_t)seconds, 0};
    limit.tv_nsec = (long)(1e9 * (seconds - (double)limit.tv_sec));
    int number = sigtimedwait(set, NULL, &limit);
    return number > 0 ? number : 0;
}

static bool asks_to_end(int number)
{
    return number == SIGTERM || number == SIGINT || number == SIGHUP ||
           number == SIGUSR2;
}

bool supervise_wait(const sigset_t *set, double seconds)
{
    double end = supervise_now() + seconds;
    for (double left = seconds; left > 0.0; left = end - supervise_now()) {
        if (asks_to_end(next_signal(set, left))) {
            return true;
        }
    }
    return false;
}

/* ---- processes that are left --------------------------------------------- */

static long parent_of(const char *pid)
{
    char path[300];
    char text[512];
    long parent = 0;
    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return 0;
    }
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[n] = '\0';
    /* The name stands in brackets and may hold brackets itself. */
    const char *end = strrchr(text, ')');
    return end != NULL && sscanf(end, ") %*c %ld", &parent) == 1 ? parent : 0;
}

static void kill_children(void)
{
    struct dirent *entry = NULL;
    DIR *processes = opendir("/proc");
    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            parent_of(entry->d_name) == (long)getpid()) {
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        }
    }
    if (processes != NULL) {
        closedir(processes);
    }
}

/* What reached a job so far. */
typedef struct requests {
    bool asked; /* to end */
    int interrupts;
} requests_t;

/* mpirun answers TERM and INT by killing ranks, but passes USR2 on, as srun
 * does: so that is what a request to end becomes. INT twice ends all. */
static void pass_on(pid_t job, int number, requests_t *r)
{
    r->interrupts += number == SIGINT;
    if (r->interrupts > 1) {
        kill(job, SIGKILL);
        kill_children();
    } else if (!asks_to_end(number)) {
        kill(job, number);
    } else if (!r->asked) {
        r->asked = true;
        kill(job, SIGUSR2);
    }
}

/* A launcher that is gone leaves ranks, which are our children now: the next
 * attempt shall find neither them nor their locks. Ranks that were asked to end
 * finish their step and save. */
static void clear_up(const sigset_t *set, requests_t *r)
{
    double grace = supervise_now() + GRACE_SECONDS;
    while (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD) {
        int number = next_signal(set, LOOK_SECONDS / 5.0);
        r->interrupts += number == SIGINT;
        r->asked = r->asked || asks_to_end(number);
        if (r->interrupts > 1 || (!r->asked && supervise_now() > grace)) {
            kill_children();
        }
    }
}

/* ---- the command --------------------------------------------------------- */

/* In a group of its own: what a terminal sends reaches the supervisor alone,
 * which passes each signal on once. */
static void become(char *const *command, const sigset_t *set, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGUSR2); /* it stops and saves */
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
    sigprocmask(SIG_UNBLOCK, set, NULL);
    if (getppid() != parent) {
        _exit(CANNOT_RUN); /* the supervisor died before the prctl above */
    }
    execvp(command[0], command);
    int error = errno;
    fprintf(stderr, "loong-supervise: cannot run '%s': %s\n", command[0],
            strerror(error));
    _exit(error == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

/* Reaps what has ended; true when the job itself has. */
static bool reap(pid_t job, int *status_p)
{
    bool over = false;
    int status = 0;
    for (pid_t pid = 1; pid > 0;) {
        pid = waitpid(-1, &status, WNOHANG);
        if (pid == job) {
            *status_p = status;
            over = true;
        }
    }
    return over;
}

bool supervise_run(char *const *command, const sigset_t *set,
                   supervise_ending_t *ending_p)
{
    supervise_ending_t e = {0};
    requests_t requests = {false, 0};
    int status = 0;
    pid_t self = getpid();
    e.begin = supervise_now();
    fflush(NULL);
    pid_t job = fork();
    if (job < 0) {
        fprintf(stderr, "loong-supervise: cannot start a process: %s\n",
                strerror(errno));
        return false;
    }
    if (job == 0) {
        become(command, set, self);
    }
    while (!reap(job, &status)) {
        int number = next_signal(set, LOOK_SECONDS);
        if (number != 0 && number != SIGCHLD) {
            pass_on(job, number, &requests);
        }
    }
    e.end = supervise_now();
    clear_up(set, &requests);
    e.asked = requests.asked;
    e.code = requests.interrupts > 1 ? LOONG_EXIT_FAILED
             : WIFEXITED(status)     ? WEXITSTATUS(status)
                                     : SIGNALS + WTERMSIG(status);
    *ending_p = e;
    return true;
}
