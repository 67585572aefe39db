/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that a communicator implementation fills in. The dispatcher
 * (src/comm/comm.c) has checked the arguments, numbered the call, logged it
 * and started the clock before a slot is called. A slot that fails has
 * written its message with loong_comm_fail.
 *
 * Smallest complete example: backends/self/self.c.
 */
#ifndef LOONG_COMM_BACKEND_H
#define LOONG_COMM_BACKEND_H

#include "loong/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, text) */
#define LOONG_COLLECTIVE_LIST(X)        \
    X(BARRIER, "barrier")               \
    X(BROADCAST, "broadcast")           \
    X(ALL_REDUCE, "all_reduce")         \
    X(REDUCE_SCATTER, "reduce_scatter") \
    X(ALL_GATHER, "all_gather")         \
    X(ALL_TO_ALL, "all_to_all")         \
    X(GATHER, "gather")                 \
    X(SEND, "send")                     \
    X(RECV, "recv")                     \
    X(REPLAY, "replay")

typedef enum loong_collective_kind {
#define LOONG_COLLECTIVE_ENUM(name_, text_) LOONG_COLLECTIVE_##name_,
    LOONG_COLLECTIVE_LIST(LOONG_COLLECTIVE_ENUM)
#undef LOONG_COLLECTIVE_ENUM
        LOONG_COLLECTIVE_COUNT
} loong_collective_kind_t;

LOONG_API const char *loong_collective_name(loong_collective_kind_t kind);

/* One call. Which fields are set:
 *   BROADCAST       data count root (bytes: dtype U8)
 *   ALL_REDUCE      data count dtype reduce
 *   REDUCE_SCATTER  data counts dtype reduce, count = their sum
 *   ALL_GATHER      data counts dtype, count = their sum
 *   ALL_TO_ALL      send counts, data receive_counts, dtype; count = sum sent
 *   GATHER          send count root, data on root (bytes: dtype U8)
 *   SEND, RECV      only in logs
 *   REPLAY          count (dtype U8): bytes of the collectives of a device's
 *                   graph that was just launched on the stream */
typedef struct loong_collective {
    loong_collective_kind_t kind;
    loong_dtype_t dtype;
    loong_reduce_t reduce;
    int root;
    void *data;
    const void *send;
    int64_t count;
    const int64_t *counts;
    const int64_t *receive_counts;
    uint64_t sequence; /* of this communicator, from 1 */
    const char *label; /* never NULL */
    const char *file;  /* where the call stands; NULL: unknown */
    int line;
} loong_collective_t;

typedef struct loong_comm_ops {
    const char *name;
    /* Does one collective. */
    loong_status_t (*run)(loong_comm_t *comm, const loong_collective_t *call);
    /* color < 0 gives NULL. The new object comes from loong_comm_create. */
    loong_status_t (*split)(loong_comm_t *comm, int color, int key,
                            const char *name, loong_comm_t **group_p);
    /* (optional; default: all ranks are on one) A number of the machine that
     * the rank is on. Where a group has several ranks on each of several
     * machines, ranks next to each other, its collectives are made of those of
     * the ranks of each machine and those of one rank of every machine. */
    int (*machine)(const loong_comm_t *comm, int rank);
    /* request: peer, tag and bytes are set; backend[] is zero and free. */
    loong_status_t (*isend)(loong_comm_t *comm, const void *data,
                            loong_comm_request_t *request);
    /* Into request->data. */
    loong_status_t (*irecv)(loong_comm_t *comm, loong_comm_request_t *request);
    loong_status_t (*wait)(loong_comm_t *comm, loong_comm_request_t *request);
    /* (optional; default: messages need none) Gives up what isend or irecv
     * began, waited for or not; false: it is under way all the same. */
    bool (*cancel)(loong_comm_t *comm, loong_comm_request_t *request);
    /* (optional, both; default: ranks share no memory) */
    loong_status_t (*alloc_shared)(loong_comm_t *comm, size_t bytes,
                                   const char *what, void **ptr_p);
    void (*free_shared)(loong_comm_t *comm, void *ptr);
    /* (optional; default: no peer's memory is readable) */
    void *(*peer_pointer)(loong_comm_t *comm, const void *ptr, int peer);
    /* (optional; default: the others find out by their time limit) */
    void (*abort)(loong_comm_t *comm, const char *text);
    /* Frees impl. Must not wait for others when `failed`. */
    void (*destroy)(loong_comm_t *comm, bool failed);
} loong_comm_ops_t;

typedef struct loong_comm_description {
    const char *name; /* copied */
    int rank;
    int size;
    const int *world_ranks; /* [size], copied; NULL: 0...size-1 */
    double timeout;         /* seconds; 0: 600 */
    const loong_comm_ops_t *ops;
    void *impl; /* owned by the object from success on */
} loong_comm_description_t;

/* Makes the object around a table. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t loong_comm_create(
    loong_context_t *ctx, const loong_comm_description_t *description,
    loong_comm_t **comm_p);

LOONG_API void *loong_comm_impl(const loong_comm_t *comm);
LOONG_API loong_context_t *loong_comm_context(const loong_comm_t *comm);
LOONG_API double loong_comm_timeout(const loong_comm_t *comm);
LOONG_API void *loong_comm_stream(const loong_comm_t *comm);

/* Writes a message into the context's error trail and returns status. */
LOONG_API loong_status_t loong_comm_fail(loong_comm_t *comm,
                                         loong_status_t status, const char *fmt,
                                         ...) LOONG_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
