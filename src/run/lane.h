/* SPDX-License-Identifier: Apache-2.0
 *
 * The lane of communication of a rank: its collectives run one after the other
 * in the order in which programs begin them, on a thread of the lane while the
 * rank computes, or on the rank's own thread where it would only wait. The
 * order is all that results depend on.
 */
#ifndef LOONG_LANE_H
#define LOONG_LANE_H

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_lane loong_lane_t;

/* One collective. Programs that run together have a track each. */
typedef struct loong_lane_job {
    loong_status_t (*run)(const struct loong_lane_job *job);
    void (*done)(const struct loong_lane_job *job); /* (optional) */
    const void *owner;   /* of the job, as are program and frames */
    const loong_program_t *program;
    const loong_frame_t *frame;
    const loong_frame_t *device_frame;
    int64_t index; /* step */
    int track;
    int64_t number; /* in its track, from 1 and without gaps */
    bool beside;    /* there is something to compute before it is awaited */
    double begin;   /* when it ran; the rest is the lane's */
    double end;
    double blocked; /* of that, the rank had nothing else to do */
} loong_lane_job_t;

/* Under way at one time: who begins more waits. */
enum { LOONG_LANE_TRACKS = 2, LOONG_LANE_JOBS = 64 };

/* Since creation. */
typedef struct loong_lane_stats {
    uint64_t jobs;
    double seconds; /* in flight */
    double blocked;
} loong_lane_stats_t;

/* Messages that only go on when somebody looks (MPI): called while the lane
 * has no job, until it says false. */
typedef bool (*loong_lane_poll)(void *user);

/* Starts the thread. Not collective. */
LOONG_NODISCARD loong_status_t loongi_lane_create(loong_context_t *ctx,
                                                  loong_lane_t **lane_p);
/* A job that runs is told to give up. NULL is accepted. */
void loongi_lane_destroy(loong_lane_t **lane_p);

void loongi_lane_set_poll(loong_lane_t *lane, loong_lane_poll poll,
                          void *user);
/* There is something to poll. lane may be NULL. */
void loongi_lane_wake(loong_lane_t *lane);

/* How the communicators of jobs wait: does the rank compute beside a job, has
 * it given up? From any thread. */
bool loongi_lane_is_beside(const loong_lane_t *lane);
bool loongi_lane_is_over(const loong_lane_t *lane);

/* Begins a job. What a job that ended before has said comes back. */
LOONG_NODISCARD loong_status_t loongi_lane_begin(loong_lane_t *lane,
                                                 const loong_lane_job_t *job);
/* Waits until the first `number` jobs of a track are complete. */
LOONG_NODISCARD loong_status_t loongi_lane_await(loong_lane_t *lane, int track,
                                                 int64_t number);
/* Waits for all. */
LOONG_NODISCARD loong_status_t loongi_lane_settle(loong_lane_t *lane);
/* Waits for all, and begins the numbers of all tracks anew. */
LOONG_NODISCARD loong_status_t loongi_lane_drain(loong_lane_t *lane);
/* Nobody waits for the jobs that have begun: those that have not run are
 * forgotten, one that runs gives up, and so do all that follow. */
void loongi_lane_abandon(loong_lane_t *lane);

loong_lane_stats_t loongi_lane_stats(const loong_lane_t *lane);

#ifdef __cplusplus
}
#endif

#endif
