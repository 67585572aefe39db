/* SPDX-License-Identifier: Apache-2.0
 *
 * Where loongrun writes: its log, and on a terminal a bar below it. */
#ifndef LOONGRUN_SCREEN_H
#define LOONGRUN_SCREEN_H

#include "loong/comm.h"
#include "loong/progress.h"
#include "loong/trainer.h"

typedef struct screen {
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

#endif
