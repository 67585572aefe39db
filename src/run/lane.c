/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs stand in a ring, in the order in which they were begun: `reaped` of them
 * are forgotten, `finished` complete, `started` have run or run now. Either
 * thread may run the next one, but only one at a time does. Called by
 * executor.c. Read lane.h before. */
#include "lane.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { RING = LOONG_LANE_JOBS, POLL_NANOSECONDS = 200000 };

struct loong_lane {
    loong_context_t *ctx;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* the thread waits for it */
    pthread_cond_t done; /* the rank waits for it */
    loong_lane_job_t ring[RING];
    uint64_t issued;
    uint64_t started;
    uint64_t finished;
    uint64_t reaped;
    int64_t complete[LOONG_LANE_TRACKS];
    uint64_t wanted; /* jobs up to this one are the thread's to begin */
    bool running;    /* somebody runs job started - 1 */
    bool polling;
    bool stop;
    _Atomic bool over;
    _Atomic bool beside;
    loong_lane_poll poll;
    void *poll_user;
    loong_status_t status; /* of the first job that failed */
    loong_lane_stats_t stats;
};

static loong_lane_job_t *job_at(loong_lane_t *l, uint64_t n)
{
    return &l->ring[n % RING];
}

/* Runs the next job; the lock is held before and after. */
static void run_next(loong_lane_t *l, bool beside)
{
    loong_lane_job_t *job = job_at(l, l->started++);
    loong_status_t status = l->status;
    l->running = true;
    atomic_store(&l->beside, beside);
    pthread_mutex_unlock(&l->lock);
    job->begin = loongi_now();
    if (status == LOONG_OK && job->run != NULL) {
        status = job->run(job);
    }
    job->end = loongi_now();
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->beside, false);
    l->running = false;
    l->finished++;
    l->complete[job->track] = job->number;
    l->status = l->status == LOONG_OK ? status : l->status;
    pthread_cond_signal(&l->done);
}

/* ---- the thread ---------------------------------------------------------- */

static void sleep_a_little(loong_lane_t *l)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_NANOSECONDS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&l->work, &l->lock, &until);
}

static void *work(void *argument)
{
    loong_lane_t *l = argument;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (!l->running && l->started < l->wanted) {
            run_next(l, true);
        } else if (l->polling) {
            l->polling = l->poll(l->poll_user);
            sleep_a_little(l);
        } else {
            pthread_cond_wait(&l->work, &l->lock);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

loong_status_t loongi_lane_create(loong_context_t *ctx, loong_lane_t **lane_p)
{
    loong_lane_t *l = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*l), "lane of communication", &l));
    l->ctx = ctx;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    int error = pthread_create(&l->thread, NULL, work, l);
    if (error != 0) {
        loongi_free(ctx, l);
        return LOONG_FAIL(ctx, LOONG_ERR_MEMORY,
                          "cannot start the thread of communication: %s",
                          strerror(error));
    }
    *lane_p = l;
    return LOONG_OK;
}

void loongi_lane_destroy(loong_lane_t **lane_p)
{
    loong_lane_t *l = *lane_p;
    if (l == NULL) {
        return;
    }
    loongi_lane_abandon(l);
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    loongi_free(l->ctx, l);
    *lane_p = NULL;
}

void loongi_lane_set_poll(loong_lane_t *lane, loong_lane_poll poll, void *user)
{
    pthread_mutex_lock(&lane->lock);
    lane->poll = poll;
    lane->poll_user = user;
    lane->polling = false;
    pthread_mutex_unlock(&lane->lock);
}

void loongi_lane_wake(loong_lane_t *lane)
{
    if (lane == NULL || lane->poll == NULL) {
        return;
    }
    pthread_mutex_lock(&lane->lock);
    lane->polling = true;
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&lane->lock);
}

bool loongi_lane_is_beside(const loong_lane_t *lane)
{
    return atomic_load_explicit(&lane->beside, memory_order_relaxed);
}

bool loongi_lane_is_over(const loong_lane_t *lane)
{
    return atomic_load_explicit(&lane->over, memory_order_relaxed);
}

/* ---- the rank ------------------------------------------------------------ */

/* Tells of the jobs that are complete; the lock is held. Each that ended after
 * `since`, when the rank began to wait, kept it waiting until then. */
static void reap(loong_lane_t *l, double since)
{
    for (; l->reaped < l->finished; l->reaped++) {
        loong_lane_job_t *job = job_at(l, l->reaped);
        job->blocked = LOONG_MAX(job->end - since, 0.0);
        since = LOONG_MAX(since, job->end);
        if (job->run != NULL) {
            l->stats.jobs++;
            l->stats.seconds += job->end - job->begin;
            l->stats.blocked += job->blocked;
        }
        if (job->run != NULL && job->done != NULL && l->status == LOONG_OK) {
            job->done(job);
        }
    }
}

/* Until job `n` (from 1) is complete; the lock is held. A job that nobody runs
 * yet is run here: the rank would only wait. */
static void wait_until(loong_lane_t *l, uint64_t n)
{
    if (l->finished >= n) {
        return;
    }
    double since = loongi_now();
    reap(l, since);
    while (l->finished < n) {
        atomic_store(&l->beside, false);
        if (l->running) {
            pthread_cond_wait(&l->done, &l->lock);
        } else {
            run_next(l, false);
        }
    }
    reap(l, since);
}

loong_status_t loongi_lane_begin(loong_lane_t *lane,
                                 const loong_lane_job_t *job)
{
    loong_lane_t *l = lane;
    pthread_mutex_lock(&l->lock);
    if (l->issued - l->reaped == RING) {
        wait_until(l, l->reaped + 1);
        reap(l, loongi_now());
    }
    *job_at(l, l->issued++) = *job;
    if (job->beside) {
        l->wanted = l->issued;
        pthread_cond_signal(&l->work);
    }
    loong_status_t status = l->status;
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* The job that is the last of the first `number` of a track; 0: complete. */
static uint64_t find(loong_lane_t *l, int track, int64_t number)
{
    for (uint64_t n = l->issued; n > l->finished; n--) {
        const loong_lane_job_t *job = job_at(l, n - 1);
        if (job->track == track && job->number <= number) {
            return n;
        }
    }
    return 0;
}

loong_status_t loongi_lane_await(loong_lane_t *lane, int track, int64_t number)
{
    loong_lane_t *l = lane;
    pthread_mutex_lock(&l->lock);
    if (l->complete[track] < number) {
        wait_until(l, find(l, track, number));
    }
    loong_status_t status = l->status;
    pthread_mutex_unlock(&l->lock);
    return status;
}

loong_status_t loongi_lane_settle(loong_lane_t *lane)
{
    loong_lane_t *l = lane;
    pthread_mutex_lock(&l->lock);
    wait_until(l, l->issued);
    loong_status_t status = l->status;
    pthread_mutex_unlock(&l->lock);
    return status;
}

loong_status_t loongi_lane_drain(loong_lane_t *lane)
{
    loong_lane_t *l = lane;
    pthread_mutex_lock(&l->lock);
    wait_until(l, l->issued);
    reap(l, loongi_now());
    memset(l->complete, 0, sizeof(l->complete));
    loong_status_t status = l->status;
    pthread_mutex_unlock(&l->lock);
    return status;
}

void loongi_lane_abandon(loong_lane_t *lane)
{
    loong_lane_t *l = lane;
    pthread_mutex_lock(&l->lock);
    bool idle = l->finished == l->issued;
    atomic_store(&l->over, l->over || !idle);
    l->issued = l->wanted = l->started;
    while (l->running) {
        pthread_cond_wait(&l->done, &l->lock);
    }
    l->reaped = l->finished;
    pthread_mutex_unlock(&l->lock);
}

loong_lane_stats_t loongi_lane_stats(const loong_lane_t *lane)
{
    return lane->stats;
}
