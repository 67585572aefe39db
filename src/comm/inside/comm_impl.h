/* SPDX-License-Identifier: Apache-2.0
 *
 * What the built-in communicators share: the object, the board they report
 * on, and waiting with a limit. */
#ifndef LOONG_COMM_IMPL_H
#define LOONG_COMM_IMPL_H

#include "base.h"
#include "board.h"
#include "comm_run.h"
#include "loong/comm_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct loong_comm {
    loong_context_t *ctx;
    char name[LOONG_GROUP_NAME];
    int rank;
    int size;
    int *world_ranks;
    bool *missing; /* scratch: who is named when a wait fails */
    const loong_comm_ops_t *ops;
    void *impl;
    struct loong_tiers *tiers; /* NULL: one machine, or one rank on each */
    double timeout;
    bool failed;
    uint64_t sequence;
    uint64_t messages; /* that were begun */
    uint64_t history; /* hash of the calls so far, equal on all ranks */
    const loong_collective_t *current;
    const char *file; /* of the next call; NULL: unknown */
    int line;
    loong_comm_stats_t stats;
    double message_times[2]; /* of loongi_comm_add_message_times */
    uint64_t event; /* of the current call, on the board */
    loong_board_t *board;     /* NULL: nobody to report to */
    loong_board_slot_t *slot; /* this rank's */
    /* (optional) Called while waiting, and by a lane: messages under way go
     * on; false when there are none. */
    bool (*progress)(struct loong_comm *comm);
    /* (optional; default: EAGER) Asked now and then while waiting. */
    loong_wait_policy_t (*wait_policy)(void *user);
    void *wait_policy_user;
    bool lonely; /* no other may be used at the same time */
    void *stream; /* of a device; NULL on a CPU */
    uint64_t group; /* of loong_board_stand_t; 0: no device stands in calls */
    /* (optional) Of a communicator whose calls return before they are done:
     * as loong_device_watch_fn. */
    loong_status_t (*watch)(struct loong_comm *comm, bool waits);
    /* (optional) Room for so many messages under way, of up to so many bytes.
     */
    loong_status_t (*reserve)(struct loong_comm *comm, int count,
                              size_t bytes);
    /* (optional) As loongi_comm_group_messages. */
    loong_status_t (*group_messages)(struct loong_comm *comm, bool begin);
    bool on_host; /* memory of a device, but the host makes the calls */
    struct loong_comm *host; /* of devices: that of the same ranks on memory of
                                the host; NULL: there is none */
};

/* Reports on this board from now on. The board outlives the object. */
void loongi_comm_set_board(loong_comm_t *comm, loong_board_t *board);

/* A wait that gives up: begin, then loongi_wait_step in the polling loop. */
typedef struct loong_wait {
    loong_comm_t *comm;
    double begin;
    double limit; /* 0: the clock has not been looked at yet */
    double told;  /* when the board heard last */
    uint32_t turns;
    int record;   /* on the board; -1: none */
    bool crowded; /* ranks share cores: who is waited for may want this one */
} loong_wait_t;

loong_wait_t loongi_wait_begin(loong_comm_t *comm);
/* Spins, then yields (not beside a computation, and only for a moment where
 * ranks share cores), then sleeps 0.05 ms. `peer` is the first rank that is
 * missing. True: go on; false: the limit is over, the board says that nobody
 * will come, or this rank gives up. */
bool loongi_wait_step(loong_wait_t *wait, int peer);
/* Adds the time to the figures. */
void loongi_wait_end(loong_wait_t *wait);
/* Writes the message that names the ranks in comm->missing and returns
 * LOONG_ERR_COMM. */
loong_status_t loongi_wait_failed(loong_wait_t *wait);
/* The same for one rank. */
loong_status_t loongi_wait_failed_on(loong_wait_t *wait, int peer);

/* "all_reduce #12 'grad' of dp (4096 bytes, train_step.c:12)" */
void loongi_call_text(const loong_comm_t *comm, const loong_collective_t *call,
                      char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
