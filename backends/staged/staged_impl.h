/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOONG_STAGED_IMPL_H
#define LOONG_STAGED_IMPL_H

#include "comm_impl.h"
#include "loong/device.h"
#include "staged_comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A message goes in parts, so that copies run beside it. */
enum { STAGED_PLACES = 2, STAGED_PARTS = 8 };

/* Where pieces wait, of one rank: one call uses it at a time. */
typedef struct staged_ring {
    char *place[STAGED_PLACES];
    void *out[STAGED_PLACES]; /* events: the piece is on the host; */
    void *in[STAGED_PLACES];  /* on the device */
} staged_ring_t;

/* Of one rank, for all its staged communicators. */
typedef struct staged_root {
    loong_context_t *ctx;
    loong_device_t *device;
    bool always;
    size_t piece; /* bytes */
    char (*kinds)[16]; /* of devices, by the rank of the job */
    loong_comm_t *kin_host; /* beneath the device's own of all its ranks */
    staged_ring_t ring;
    size_t held; /* bytes of pinned memory, of all communicators */
    /* Rank 0's clock shows so many seconds more than this one's, give or take
     * `unsure`; compared when the job begins. */
    double ahead, unsure;
    bool lost; /* atomic: nothing waits for the device any more */
} staged_root_t;

/* A message under way. */
typedef struct staged_message {
    bool busy;
    char *memory; /* pinned; NULL: the data itself is the host's */
    void *free;   /* event: the device has it */
    double stamp; /* when its data was ready, by the clock of rank 0 */
    int parts;    /* and the stamp behind them */
    int posted; /* of them, and not known to be complete */
    loong_comm_request_t part[STAGED_PARTS + 1];
} staged_message_t;

/* Of the message that the host waits for. */
typedef struct staged_idle {
    void *event; /* the stream has done what is on it; NULL: nothing is */
    double begin; /* of the waiting */
    double since; /* the stream has nothing to do; 0: it has */
} staged_idle_t;

typedef struct staged {
    loong_comm_t *comm;
    loong_comm_t *host; /* borrowed by the first */
    /* Of the ranks among them that have this rank's kind: the host's, or the
     * device's own; NULL: it has none. What belongs to one job is split from
     * one, so that it is given up together. */
    loong_comm_t *kin;
    bool first; /* of all ranks: has the root */
    staged_root_t *root;
    int64_t *counts; /* [2 size]: of a piece */
    void *copied[STAGED_PARTS]; /* events */
    int num_messages;
    size_t bytes; /* of each */
    double pace;  /* seconds of a byte, of the fastest; 0: not known */
    staged_idle_t idle;
    staged_message_t *messages;
} staged_t;

/* The stream that the communicator's calls are on. */
void *loongi_staged_stream(const staged_t *s);

/* ---- staged_wait.c ---- */
/* What the host looks at when it has waited so long for its device, in a call
 * or elsewhere (NULL). An error ends the waiting. */
LOONG_NODISCARD loong_status_t
loongi_staged_check(staged_t *s, const loong_collective_t *call,
                    double seconds);
/* The device was given up. */
bool loongi_staged_is_lost(const staged_root_t *root);
/* As loong_device_event_await. */
LOONG_NODISCARD loong_status_t loongi_staged_await(staged_t *s, void *event,
                                                   const char *what);

/* Others kept the host since then: a figure, where nothing is computed beside.
 */
void loongi_staged_waited(staged_t *s, double since);

/* ---- staged_times.c ---- */
/* Collective on: host. */
LOONG_NODISCARD loong_status_t
loongi_staged_compare_clocks(staged_root_t *root, loong_comm_t *host);
/* The data of a message is ready, which its stamp tells; now. */
double loongi_staged_ready(const staged_t *s, staged_message_t *m);
/* It is in host memory, ready since then. */
void loongi_staged_copied(staged_t *s, double since);
/* Around the host's waiting for a message, one that comes here or not. */
LOONG_NODISCARD loong_status_t loongi_staged_begin_wait(
    staged_t *s, const staged_message_t *m, bool comes);
void loongi_staged_end_wait(staged_t *s);
/* It and its stamp are there. */
void loongi_staged_arrived(staged_t *s, const staged_message_t *m,
                           size_t bytes);

/* ---- staged_collective.c ---- */
LOONG_NODISCARD loong_status_t
loongi_staged_run(staged_t *s, const loong_collective_t *call);

/* Of the host's communicator. */
LOONG_NODISCARD loong_status_t
loongi_staged_barrier(staged_t *s, const loong_collective_t *call);

/* ---- staged_message.c ---- */
LOONG_NODISCARD loong_status_t loongi_staged_reserve(staged_t *s, int count,
                                                     size_t bytes);
void loongi_staged_release(staged_t *s);
LOONG_NODISCARD loong_status_t
loongi_staged_isend(staged_t *s, const void *data,
                    loong_comm_request_t *request);
LOONG_NODISCARD loong_status_t
loongi_staged_irecv(staged_t *s, loong_comm_request_t *request);
LOONG_NODISCARD loong_status_t
loongi_staged_wait(staged_t *s, loong_comm_request_t *request);
bool loongi_staged_cancel(staged_t *s, loong_comm_request_t *request);

#ifdef __cplusplus
}
#endif

#endif
