/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of ranks that have a device each: collectives on memory of the
 * device, in the order of a stream (loong_comm_set_stream); a call puts its
 * work there and returns. A communicator stands on one of the ranks' processes,
 * which carries a unique id and barriers. What differs from one vendor's
 * library to another is a table (device_calls_t); what is the same is here:
 * which calls are under way, who has not made one or made another, what hangs,
 * messages. */
#ifndef LOONG_DEVICE_COMM_H
#define LOONG_DEVICE_COMM_H

#include "comm_impl.h"
#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls that are under way at one time, unless more were asked for
 * (loongi_comm_reserve): whoever makes one more waits on the host. A peer may
 * be so many ahead of what is judged, and is writing the next: calls are
 * remembered for longer than that. */
enum {
    DEVICE_COMM_PENDING = 64,
    DEVICE_COMM_HISTORY = 2 * DEVICE_COMM_PENDING
};

/* What a rank has called, of all ranks together or of messages with one of
 * them, where its peers of the machine see it. */
typedef struct device_progress {
    uint64_t sequence;                     /* of the last call; atomic */
    uint64_t history[DEVICE_COMM_HISTORY]; /* of calls, by sequence */
} device_progress_t;

/* On the stream, and not known to be complete. */
typedef struct device_pending {
    loong_collective_t call;
    char label[LOONG_EVENT_LABEL];
    void *reached; /* event: what stands before it is done, */
    void *event;   /* and it is */
} device_pending_t;

/* One end of a message of a rank to itself, until the other one is there. */
typedef struct device_end {
    loong_comm_request_t *request;
    void *data;
} device_end_t;

typedef struct device_comm device_comm_t;

/* The calls of a vendor's library. */
typedef struct device_calls {
    const char *name; /* of the communicators */
    /* Loads the library and connects the ranks: sets `handle`. Collective on:
     * comm. */
    loong_status_t (*connect)(device_comm_t *n);
    /* Puts a collective on the stream, a message on that of messages. */
    loong_status_t (*enqueue)(device_comm_t *n, const loong_collective_t *call);
    /* (optional) Messages between the two calls are one. */
    loong_status_t (*group)(device_comm_t *n, bool begin);
    /* Gives the handle back, what is under way with it where it is `abort`. */
    void (*disconnect)(device_comm_t *n, bool abort);
    /* Aborts the whole ring. No graph may hold their calls but those whose
     * launch is under way. */
    void (*give_up)(device_comm_t *n);
    /* LOONG_ERR_COMM with the reason when the library has failed by itself. */
    loong_status_t (*check)(device_comm_t *n);
} device_calls_t;

struct device_comm {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_comm_t *host;
    bool owns_host;
    /* A ring: what was split from one another. One graph may have calls of all
     * of them, so they are given up together. */
    device_comm_t *next;
    device_comm_t *before;
    loong_device_t *device;
    const device_calls_t *calls;
    loong_comm_ops_t ops; /* with the name of calls */
    void *library; /* the table's own, freed here; NULL: there was none yet */
    void *handle;  /* the library's; NULL: not connected */
    /* By rank: of messages with it; this rank's own: of collectives. */
    device_progress_t *progress;
    int room; /* of both rings */
    device_pending_t *pending;
    uint64_t begun; /* of pending; */
    uint64_t ended;
    loong_wait_t wait; /* for pending `waited` - 1 */
    uint64_t waited;
    /* For that one too: where devices stand, and the first that stands
     * elsewhere, since when nothing of this has changed. */
    loong_board_stand_t stand;
    int elsewhere; /* rank; -1: none */
    uint64_t elsewhere_in;
    double since;
    bool grouping;  /* messages wait for the end of their group, */
    int grouped;    /* so many of pending, behind those that have begun */
    void *messages; /* stream; NULL: there was none yet */
    void *computed; /* event: what a message is behind */
    device_end_t *end;
    uint64_t ends; /* that came first; */
    uint64_t met;
};

/* Of the ranks of `host` (borrowed). The library is loaded, and ranks are
 * connected, when the first collective of several ranks is called. Collective
 * on: host. */
LOONG_NODISCARD loong_status_t loongi_device_comm_create(
    loong_context_t *ctx, loong_device_t *device, loong_comm_t *host,
    const device_calls_t *calls, loong_comm_t **comm_p);

static inline bool device_is_message(const loong_collective_t *call)
{
    return call->kind == LOONG_COLLECTIVE_SEND ||
           call->kind == LOONG_COLLECTIVE_RECV;
}

device_pending_t *loongi_device_comm_pending(device_comm_t *n, uint64_t i);
void loongi_device_comm_describe(device_pending_t *pending,
                                 const loong_collective_t *call);
/* Every rank says what it calls, the n-th time: `what` is the same on all. */
void loongi_device_comm_publish(device_comm_t *n,
                                const loong_collective_t *call, uint64_t what);
/* For one more call. */
LOONG_NODISCARD loong_status_t loongi_device_comm_make_room(device_comm_t *n);
/* Events of all pending calls, which a table makes when it connects. */
LOONG_NODISCARD loong_status_t loongi_device_comm_events(device_comm_t *n);

/* ---- device_message.c ---- */
LOONG_NODISCARD loong_status_t loongi_device_comm_isend(
    loong_comm_t *comm, const void *data, loong_comm_request_t *request);
LOONG_NODISCARD loong_status_t
loongi_device_comm_irecv(loong_comm_t *comm, loong_comm_request_t *request);
LOONG_NODISCARD loong_status_t
loongi_device_comm_wait(loong_comm_t *comm, loong_comm_request_t *request);
LOONG_NODISCARD loong_status_t
loongi_device_comm_group_messages(loong_comm_t *comm, bool begin);

/* ---- device_hang.c ---- */
uint64_t loongi_device_comm_group(const loong_comm_t *comm);
/* Where the device has come to the call, or to a graph that may hold it, it
 * waits for other ranks, which is judged here: it does not hang by itself. */
LOONG_NODISCARD loong_status_t
loongi_device_comm_excuse(device_comm_t *n, const device_pending_t *pending);
/* Where the devices stand, of a call that the host waits for. *next_p, when the
 * device has come to it: the first rank that is not known to stand there, -1:
 * all are. *hangs_p: long enough. */
LOONG_NODISCARD loong_status_t
loongi_device_comm_stand(device_comm_t *n, const device_pending_t *pending,
                         int *next_p, bool *hangs_p);
void loongi_device_comm_stand_nowhere(device_comm_t *n);
/* LOONG_ERR_COMM, which says so, on the board as well. */
LOONG_NODISCARD loong_status_t
loongi_device_comm_hangs(device_comm_t *n, const loong_collective_t *call);

#ifdef __cplusplus
}
#endif

#endif
