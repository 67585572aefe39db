/* SPDX-License-Identifier: Apache-2.0 */
#include "loongrun_screen.h"

#include <fcntl.h>
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

static void draw_bar(screen_t *screen)
{
    char text[LOONG_PROGRESS_SIZE];
    char note[32];
    const loong_trainer_progress_t *now = &screen->now;
    if (now->total_steps == 0 || !screen->bar.shown) {
        return;
    }
    snprintf(note, sizeof(note), "loss %.4f", now->loss);
    fputs(loong_progress_draw(&screen->bar, now->step, now->total_steps,
                              now->seconds_left, note, text),
          stdout);
    fflush(stdout);
    screen->drawn = seconds();
}

void screen_progress(void *user, const loong_trainer_progress_t *now)
{
    screen_t *screen = user;
    screen->now = *now;
    if (seconds() - screen->drawn >= 0.1) {
        draw_bar(screen);
    }
}

static void wipe(const screen_t *screen)
{
    if (screen->now.total_steps > 0) {
        fputs(loong_progress_wipe(&screen->bar), stdout);
        fflush(stdout);
    }
}

void screen_wipe(screen_t *screen)
{
    wipe(screen);
    screen->now.total_steps = 0;
}

void screen_log(void *user, loong_log_level_t level, const char *line)
{
    screen_t *screen = user;
    if (screen->comm != NULL && loong_comm_rank(screen->comm) > 0 &&
        level > LOONG_LOG_WARN) {
        return; /* progress is told once */
    }
    wipe(screen);
    fprintf(level <= LOONG_LOG_WARN ? stderr : stdout, "%s%s\n",
            level == LOONG_LOG_WARN ? "warning: " : "", line);
    fflush(stdout);
    draw_bar(screen);
}
