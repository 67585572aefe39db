/* SPDX-License-Identifier: Apache-2.0
 *
 * What the modules that run programs ask of a communicator beside loong/comm.h:
 * how it waits, what goes on meanwhile, and calls that a device captures. */
#ifndef LOONG_COMM_RUN_H
#define LOONG_COMM_RUN_H

#include "loong/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a rank waits. */
typedef enum loong_wait_policy {
    LOONG_WAIT_EAGER,  /* it has nothing else to do */
    LOONG_WAIT_BESIDE, /* another thread of it computes: leave it the core */
    LOONG_WAIT_DEVICE, /* its device works: who waits for that rests himself */
    LOONG_WAIT_OVER    /* it gives up */
} loong_wait_policy_t;

/* A call has failed: all that follow do. */
bool loongi_comm_has_failed(const loong_comm_t *comm);
/* Nothing may be under way. LOONG_OK where messages need no room. */
LOONG_NODISCARD loong_status_t loongi_comm_reserve(loong_comm_t *comm,
                                                   int count, size_t bytes);
/* Messages that begin between the two calls go together: none of them stands
 * behind another. They have begun on return of the second one. LOONG_OK where
 * messages do not stand behind each other. */
LOONG_NODISCARD loong_status_t loongi_comm_group_messages(loong_comm_t *comm,
                                                          bool begin);
/* No graph of a device can hold its calls. */
bool loongi_comm_is_on_host(const loong_comm_t *comm);

/* Of the same ranks on memory of the host: of devices, the one beneath, whose
 * calls have nothing to do with theirs. NULL: it is in use, as its ranks have
 * devices of several kinds. */
loong_comm_t *loongi_comm_host(loong_comm_t *comm);

/* How it waits from now on; NULL: as by default. */
void loongi_comm_set_wait_policy(loong_comm_t *comm,
                                 loong_wait_policy_t (*wait_policy)(void *user),
                                 void *user);
/* May other communicators of this rank be used at the same time, by another
 * thread? */
bool loongi_comm_is_concurrent(const loong_comm_t *comm);

/* Lets messages go on that only do so when somebody looks; false: there are
 * none. From any thread when the communicator is concurrent. */
bool loongi_comm_progress(loong_comm_t *comm);

/* Of messages of a device through host memory: adds the seconds that they were
 * under way, and of these, those in which the device had nothing to do. */
void loongi_comm_add_message_times(const loong_comm_t *comm, double times[2]);

/* LOONG_OK when it has nothing to watch. */
LOONG_NODISCARD loong_status_t loongi_comm_watch(loong_comm_t *comm,
                                                 bool waits);

/* What a device captures of the calls between a mark and its rewind is not
 * done: it counts when a graph that holds it is launched (replay, right behind
 * that, on the same stream). Such a graph's calls are watched as one. */
typedef struct loong_comm_mark {
    uint64_t sequence;
    uint64_t history;
    loong_comm_stats_t stats;
} loong_comm_mark_t;
loong_comm_mark_t loongi_comm_mark(const loong_comm_t *comm);
/* *bytes_p: of the calls that were captured; false: there were none. */
bool loongi_comm_rewind(loong_comm_t *comm, const loong_comm_mark_t *mark,
                        int64_t *bytes_p);
LOONG_NODISCARD loong_status_t
loongi_comm_replay(loong_comm_t *comm, int64_t bytes, const char *label);

#ifdef __cplusplus
}
#endif

#endif
