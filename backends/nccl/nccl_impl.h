/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator of GPUs stands on a communicator of their processes, which
 * carries the unique id and barriers. */
#ifndef LOONG_NCCL_IMPL_H
#define LOONG_NCCL_IMPL_H

#include "comm_impl.h"
#include "loong/device.h"
#include "nccl_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name after nccl): every function that is called. */
#define LOONG_NCCL_FUNCTIONS(X) \
    X(GetVersion)               \
    X(GetErrorString)           \
    X(GetUniqueId)              \
    X(CommInitRankConfig)       \
    X(CommDestroy)              \
    X(CommAbort)                \
    X(CommGetAsyncError)        \
    X(GroupStart)               \
    X(GroupEnd)                 \
    X(AllReduce)                \
    X(Reduce)                   \
    X(ReduceScatter)            \
    X(AllGather)                \
    X(Broadcast)                \
    X(Send)                     \
    X(Recv)

typedef struct nccl_library {
    void *handle;
#define LOONG_NCCL_POINTER(name_) __typeof__(&nccl##name_) name_;
    LOONG_NCCL_FUNCTIONS(LOONG_NCCL_POINTER)
#undef LOONG_NCCL_POINTER
} nccl_library_t;

/* Calls that are under way at one time, unless more were asked for
 * (loongi_comm_reserve): whoever makes one more waits on the host. A peer may
 * be so many ahead of what is judged, and is writing the next: calls are
 * remembered for longer than that. */
enum { NCCL_PENDING = 64, NCCL_HISTORY = 2 * NCCL_PENDING };

/* What a rank has called, where its peers of the machine see it. */
typedef struct nccl_progress {
    uint64_t sequence; /* of the last call; atomic */
    uint64_t history[NCCL_HISTORY]; /* of calls, by sequence */
} nccl_progress_t;

/* On the stream, and not known to be complete. */
typedef struct nccl_pending {
    loong_collective_t call;
    char label[LOONG_EVENT_LABEL];
    void *reached; /* event: what stands before it is done, */
    void *event;   /* and it is */
} nccl_pending_t;

/* One end of a message of a rank to itself, until the other one is there. */
typedef struct nccl_end {
    loong_comm_request_t *request;
    void *data;
} nccl_end_t;

typedef struct nccl {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_comm_t *host;
    bool owns_host;
    /* A ring: what was split from one another. One graph may have calls of all
     * of them, so they are given up together. */
    struct nccl *next;
    struct nccl *before;
    loong_device_t *device;
    nccl_library_t lib;
    ncclComm_t handle; /* NULL: not connected */
    nccl_progress_t *progress;
    int room; /* of both rings */
    nccl_pending_t *pending;
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
    void *messages; /* stream; NULL: there was none yet */
    void *computed; /* event: what a message is behind */
    nccl_end_t *end;
    uint64_t ends; /* that came first; */
    uint64_t met;
} nccl_t;

/* ---- nccl_calls.c ---- */
/* Loads the library and connects the ranks. Collective on: comm. */
LOONG_NODISCARD loong_status_t loongi_nccl_connect(nccl_t *n);
/* Puts a collective on the stream, a message on that of messages. */
LOONG_NODISCARD loong_status_t
loongi_nccl_enqueue(nccl_t *n, const loong_collective_t *call);
void loongi_nccl_disconnect(nccl_t *n, bool abort);
/* Aborts the whole ring. No graph may hold their calls but those whose launch
 * is under way: NCCL waits until there are none. */
void loongi_nccl_give_up(nccl_t *n);
/* LOONG_ERR_COMM with the reason when NCCL has failed by itself. */
LOONG_NODISCARD loong_status_t loongi_nccl_check(nccl_t *n);

/* ---- nccl_hang.c ---- */
uint64_t loongi_nccl_group(const loong_comm_t *comm);
/* Where the device has come to the call, or to a graph that may hold it, it
 * waits for other ranks, which is judged here: it does not hang by itself. */
LOONG_NODISCARD loong_status_t
loongi_nccl_excuse(nccl_t *n, const nccl_pending_t *pending);
/* Where the devices stand, of a call that the host waits for. *next_p, when the
 * device has come to it: the first rank that is not known to stand there, -1:
 * all are. *hangs_p: long enough. */
LOONG_NODISCARD loong_status_t
loongi_nccl_stand(nccl_t *n, const nccl_pending_t *pending, int *next_p,
                  bool *hangs_p);
void loongi_nccl_stand_nowhere(nccl_t *n);
/* LOONG_ERR_COMM, which says so, on the board as well. */
LOONG_NODISCARD loong_status_t
loongi_nccl_hangs(nccl_t *n, const loong_collective_t *call);

#ifdef __cplusplus
}
#endif

#endif
