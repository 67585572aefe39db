/* SPDX-License-Identifier: Apache-2.0
 *
 * loong-supervise: running the command (loong_supervise_job.c), deciding what
 * follows (loong_supervise_policy.c), telling it (loong_supervise_log.c). */
#ifndef LOONG_SUPERVISE_H
#define LOONG_SUPERVISE_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "loong/job.h"

/* How one attempt ended. */
typedef struct supervise_ending {
    int code;   /* exit code; 128 + n when signal n ended it */
    bool asked; /* a request to end was passed on */
    double begin; /* CLOCK_MONOTONIC */
    double end;
    bool has_progress;
    loong_job_progress_t progress;
    bool has_verdict;
    loong_job_verdict_t verdict;
} supervise_ending_t;

/* ---- policy -------------------------------------------------------------- */

typedef struct supervise_limits {
    int restarts;   /* without a new checkpoint between them */
    int same;       /* failures at one step with one code */
    double backoff; /* seconds before the first of these restarts */
} supervise_limits_t;

/* All zero before the first attempt. */
typedef struct supervise_history {
    int failures; /* since the last new checkpoint */
    int same;
    int code; /* of the last failure */
    int64_t step;
    int64_t saved_step;
} supervise_history_t;

enum { SUPERVISE_TEXT = 160 };
static const double SUPERVISE_LONGEST_BACKOFF = 300.0;

typedef struct supervise_decision {
    bool again;
    double wait; /* seconds */
    char because[SUPERVISE_TEXT];
} supervise_decision_t;

supervise_decision_t supervise_decide(const supervise_limits_t *limits,
                                      supervise_history_t *history,
                                      const supervise_ending_t *ending);
/* Of an exit code, or of the signal in it. */
const char *supervise_meaning(int code);

/* ---- the job ------------------------------------------------------------- */

/* Before the first job: the signals that are passed on are blocked, orphans
 * become children of this process. */
bool supervise_begin(sigset_t *set_p);
/* Runs the command and waits for it and all that it leaves behind. False when
 * no process could be made. */
bool supervise_run(char *const *command, const sigset_t *set,
                   supervise_ending_t *ending_p);
/* True when a request to end came meanwhile. */
bool supervise_wait(const sigset_t *set, double seconds);
double supervise_now(void);

/* ---- the log ------------------------------------------------------------- */

/* One line of JSON about an attempt; before: the one before it, or NULL. */
void supervise_log(FILE *file, int attempt, const supervise_ending_t *before,
                   const supervise_ending_t *ending,
                   const supervise_decision_t *decision);
/* The same for people. */
void supervise_tell(FILE *file, int attempt, const supervise_ending_t *before,
                    const supervise_ending_t *ending,
                    const supervise_decision_t *decision);

#endif
