/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job tells the supervisor that started it (loong-supervise), through
 * two small texts in a directory that the supervisor names in the environment:
 *
 *   progress   by rank 0, written over after every step:
 *              "from 4 step 17 saved 16 first 812.250 last 840.125"
 *   verdict    by the first parent that learns why the job is lost:
 *              "code 4 rank 1 time 841.500" and the reason in a second line
 *
 * Times are CLOCK_MONOTONIC, so both sides must be on one machine; a rank 0 or
 * a parent on another one tells nothing. Not collective.
 */
#ifndef LOONG_JOB_H
#define LOONG_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The directory, and the number of this attempt, from 1. */
#define LOONG_JOB_DIR_ENV "LOONG_JOB_DIR"
#define LOONG_JOB_ATTEMPT_ENV "LOONG_ATTEMPT"

typedef struct loong_job_progress {
    int64_t from_step;  /* where it began: 0, or the checkpoint's step */
    int64_t step;       /* steps done, those before from_step included */
    int64_t saved_step; /* of the newest whole checkpoint; 0: none */
    double first_time;  /* when its first step was done; 0: none is */
    double last_time;   /* likewise its last */
} loong_job_progress_t;

enum { LOONG_JOB_TEXT = 256 };

typedef struct loong_job_verdict {
    int code; /* exit code */
    int rank; /* whose fault it is taken to be; -1: unknown */
    double time;
    char text[LOONG_JOB_TEXT];
} loong_job_verdict_t;

/* ---- The job's side ------------------------------------------------------ */

/* 1 when nobody supervises. */
LOONG_API int loong_job_attempt(void);

typedef struct loong_job loong_job_t;

/* Sets *job_p to NULL when nobody supervises, or the supervisor is on another
 * machine. Errors: LOONG_ERR_IO. */
LOONG_API LOONG_NODISCARD loong_status_t loong_job_open(loong_context_t *ctx,
                                                        loong_job_t **job_p);
/* job may be NULL. A text that cannot be written is told once as a warning:
 * the run goes on. */
LOONG_API void loong_job_tell(loong_job_t *job,
                              const loong_job_progress_t *progress);
LOONG_API void loong_job_close(loong_job_t **job_p);

/* The first verdict stays. Does nothing when nobody supervises. */
LOONG_API void loong_job_tell_verdict(const loong_job_verdict_t *verdict);

/* ---- The supervisor's side ----------------------------------------------- */

/* False when the job has told nothing yet. */
LOONG_API bool loong_job_read_progress(const char *dir,
                                       loong_job_progress_t *progress_p);
LOONG_API bool loong_job_read_verdict(const char *dir,
                                      loong_job_verdict_t *verdict_p);
/* Forgets what an earlier job told. */
LOONG_API void loong_job_clear(const char *dir);

#ifdef __cplusplus
}
#endif

#endif
