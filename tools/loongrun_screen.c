/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the log and, on a terminal, the bar below it, and never waits for
 * whoever reads. Called by loongrun on each rank. Read loong/progress.h
 * before. */
#include "loongrun_screen.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- is somebody watching? ----------------------------------------------- */

/* Name and parent of a process; false when there is none. */
static bool read_process(long pid, char name[64], long *parent_p)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    int n = fscanf(file, "%*d (%63[^)]) %*c %ld", name, parent_p);
    fclose(file);
    return n == 2;
}

static bool is_launcher(const char *name)
{
    static const char *const names[] = {"mpirun", "mpiexec", "orterun",
                                        "prterun", "mpiexec.hydra"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A launcher may give its ranks a terminal of its own making, whatever its own
 * output is: then its output counts. -1: it runs elsewhere. */
static int launcher_output(void)
{
    char name[64];
    char path[64];
    long pid = getppid();
    long parent = 0;
    while (pid > 1 && read_process(pid, name, &parent)) {
        if (is_launcher(name)) {
            snprintf(path, sizeof(path), "/proc/%ld/fd/1", pid);
            return open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        }
        pid = parent;
    }
    return -1;
}

void screen_open(screen_t *screen)
{
    pthread_mutex_init(&screen->lock, NULL);
    screen->out.fd = STDOUT_FILENO;
    screen->err.fd = STDERR_FILENO;
    bool launched = getenv("OMPI_COMM_WORLD_SIZE") != NULL ||
                    getenv("PMI_SIZE") != NULL;
    int fd = launched ? launcher_output() : STDOUT_FILENO;
    if (fd >= 0) {
        loong_progress_detect(fd, &screen->bar);
    }
    if (launched && fd >= 0) {
        close(fd);
    }
}

/* ---- writing ------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Writes what is taken within `ms`. What poll says is ready takes PIPE_BUF
 * bytes without a wait. */
static void drain(screen_stream_t *s, int ms)
{
    struct pollfd ready = {s->fd, POLLOUT, 0};
    while (s->used > 0 && poll(&ready, 1, ms) > 0) {
        size_t most = s->used < PIPE_BUF ? s->used : PIPE_BUF;
        ssize_t n = write(s->fd, s->backlog, most);
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n < 0 && errno != EINTR) {
            n = (ssize_t)s->used; /* nobody will read it */
        }
        s->used -= n > 0 ? (size_t)n : 0;
        memmove(s->backlog, s->backlog + (n > 0 ? n : 0), s->used);
    }
}

static void put(screen_stream_t *s, const char *text)
{
    char note[80] = "";
    if (s->lost > 0) {
        snprintf(note, sizeof(note), "(%lld lines left out: nobody read)\n",
                 (long long)s->lost);
    }
    drain(s, 0);
    if (s->used + strlen(note) + strlen(text) > SCREEN_BACKLOG) {
        s->lost++;
        return;
    }
    s->used += (size_t)snprintf(s->backlog + s->used,
                                SCREEN_BACKLOG - s->used, "%s%s", note, text);
    s->lost = 0;
    drain(s, 0);
}

static void draw_bar(screen_t *screen)
{
    char text[LOONG_PROGRESS_SIZE];
    char note[32];
    const loong_trainer_progress_t *now = &screen->now;
    if (now->total_steps == 0 || !screen->bar.shown || screen->out.used > 0) {
        return;
    }
    snprintf(note, sizeof(note), "loss %.4f", now->loss);
    put(&screen->out,
        loong_progress_draw(&screen->bar, now->step, now->total_steps,
                            now->seconds_left, note, text));
    screen->drawn = seconds();
}

void screen_progress(void *user, const loong_trainer_progress_t *now)
{
    screen_t *screen = user;
    pthread_mutex_lock(&screen->lock);
    screen->now = *now;
    drain(&screen->out, 0);
    drain(&screen->err, 0);
    if (seconds() - screen->drawn >= 0.1) {
        draw_bar(screen);
    }
    pthread_mutex_unlock(&screen->lock);
}

static void wipe(screen_t *screen)
{
    if (screen->now.total_steps > 0) {
        put(&screen->out, loong_progress_wipe(&screen->bar));
    }
}

void screen_wipe(screen_t *screen)
{
    pthread_mutex_lock(&screen->lock);
    wipe(screen);
    screen->now.total_steps = 0;
    pthread_mutex_unlock(&screen->lock);
}

void screen_close(screen_t *screen)
{
    enum { PATIENCE = 5000 };
    drain(&screen->out, PATIENCE);
    drain(&screen->err, PATIENCE);
}

void screen_log(void *user, loong_log_level_t level, const char *line)
{
    screen_t *screen = user;
    if (screen->comm != NULL && loong_comm_rank(screen->comm) > 0 &&
        level > LOONG_LOG_WARN) {
        return; /* progress is told once */
    }
    char text[8192];
    snprintf(text, sizeof(text), "%s%s\n",
             level == LOONG_LOG_WARN ? "warning: " : "", line);
    fflush(stdout); /* what was printed before */
    pthread_mutex_lock(&screen->lock);
    wipe(screen);
    put(level <= LOONG_LOG_WARN ? &screen->err : &screen->out, text);
    draw_bar(screen);
    pthread_mutex_unlock(&screen->lock);
}
