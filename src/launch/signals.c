/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests by signal. Called by loongrun, the trainer and mpi_launcher.c. Read
 * launcher.h before. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#include "launcher.h"
#include "loong/launch.h"

/* Written by the handler; see loong_signals_install. */
static volatile sig_atomic_t stop_requested;
static volatile sig_atomic_t save_requested;
static volatile sig_atomic_t launcher_lost;
static atomic_llong first_request; /* to stop, in ms */

/* One INT can arrive several times: Slurm sends it to each process of a step,
 * and the parent passes its own on. */
enum { APART_MS = 300 };

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void on_signal(int number)
{
    if (number == SIGUSR1) {
        save_requested = 1;
        return;
    }
    if (number == SIGINT && stop_requested != 0 &&
        now_ms() - atomic_load(&first_request) >= APART_MS) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    if (stop_requested == 0) {
        atomic_store(&first_request, now_ms());
    }
    stop_requested = 1;
    /* What reads the output may be asked to end as well, and must not take the
     * last checkpoint with it. */
    signal(SIGPIPE, SIG_IGN);
}

void loongi_launcher_set_lost(void)
{
    launcher_lost = 1;
    on_signal(SIGTERM);
}

bool loongi_launcher_is_lost(void)
{
    return launcher_lost != 0;
}

static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP};

static sigset_t requests(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (int64_t i = 0; i < LOONG_COUNT_OF(numbers); i++) {
        sigaddset(&set, numbers[i]);
    }
    return set;
}

static void *receive(void *unused)
{
    sigset_t set = requests();
    (void)unused;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (;;) {
        pause();
    }
    return NULL;
}

/* A handler must not run on a thread that computes: an fp32 product of oneDNN
 * 2.6 keeps the stack pointer in a buffer of its own, in the heap, while it
 * runs, and the kernel would write the frame of the handler below it. */
static int start_receiver(void)
{
    static bool started;
    pthread_t thread;
    sigset_t set = requests();
    sigset_t before;
    int error = 0;
    pthread_sigmask(SIG_BLOCK, &set, &before);
    if (!started) {
        error = pthread_create(&thread, NULL, receive, NULL);
        if (error == 0) {
            started = true;
            pthread_detach(thread);
        } else {
            pthread_sigmask(SIG_SETMASK, &before, NULL);
        }
    }
    return error;
}

loong_status_t loong_signals_install(loong_context_t *ctx)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (int64_t i = 0; i < LOONG_COUNT_OF(numbers); i++) {
        LOONG_CHECK(ctx, sigaction(numbers[i], &action, NULL) == 0,
                    LOONG_ERR_INTERNAL, "cannot handle signal %d: %s",
                    numbers[i], strerror(errno));
    }
    /* A file above the size limit is an error of the write, with its path. */
    signal(SIGXFSZ, SIG_IGN);
    int error = start_receiver();
    LOONG_CHECK(ctx, error == 0, LOONG_ERR_MEMORY,
                "cannot start the thread that receives signals: %s",
                strerror(error));
    return LOONG_OK;
}

unsigned loong_signals_get(void)
{
    unsigned flags = stop_requested != 0 ? LOONG_SIGNAL_STOP : 0u;
    if (save_requested != 0) {
        save_requested = 0;
        flags |= LOONG_SIGNAL_SAVE;
    }
    return flags;
}
