/* SPDX-License-Identifier: Apache-2.0
 *
 * Where loongrun writes: its log, and on a terminal a bar below it. */
#ifndef LOONGRUN_SCREEN_H
#define LOONGRUN_SCREEN_H

#include <pthread.h>

#include "loong/comm.h"
#include "loong/progress.h"
#include "loong/trainer.h"

/* Standard output or error, and what its reader has not taken yet: a reader
 * that stops must not stop the training. */
enum { SCREEN_BACKLOG = 1 << 16 };
typedef struct screen_stream {
    int fd;
    size_t used;
    int64_t lost; /* lines that found no room */
    char backlog[SCREEN_BACKLOG];
} screen_stream_t;

typedef struct screen {
    pthread_mutex_t lock;
    screen_stream_t out, err;
    loong_comm_t *comm; /* NULL until there is one */
    loong_progress_t bar;
    loong_trainer_progress_t now; /* what the bar shows; total 0: nothing */
    double drawn;                 /* when */
} screen_t;

/* Finds out whether a person is watching. */
void screen_open(screen_t *screen);
/* For loong_context_params_t and loong_trainer_params_t; user: the screen. */
void screen_log(void *user, loong_log_level_t level, const char *line);
void screen_progress(void *user, const loong_trainer_progress_t *now);
/* Takes the bar away. */
void screen_wipe(screen_t *screen);
/* Writes what is left, for a reader that takes some of it every 5 seconds. What
 * is logged behind it is written if it can be. */
void screen_close(screen_t *screen);

#endif
