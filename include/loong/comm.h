/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator: a group of ranks that take part in the same collectives.
 *
 * Collectives block, work in place, and are reduced in rank order, so that a
 * result is the same bits on every rank and in every run. Each is checked:
 * ranks that call different things are told what both sides called, and a
 * rank that does not come is named, with what it last did, once the time
 * limit is over. Both end in LOONG_ERR_COMM, after which the communicator
 * refuses everything but loong_comm_destroy.
 *
 * Counts are in elements, sizes in bytes. `label` says in logs and messages
 * what a call is for; it may be NULL. Messages name the line of a call, too.
 * Nothing is allocated inside a collective. A communicator is used by one
 * thread at a time.
 *
 * How to add a communicator: comm_backend.h.
 */
#ifndef LOONG_COMM_H
#define LOONG_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/dtype.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_comm loong_comm_t;

/* X(name, text) */
#define LOONG_REDUCE_LIST(X) \
    X(SUM, "sum")            \
    X(MAX, "max")            \
    X(MIN, "min")

/* SUM wraps around for integers and is refused for bool. MAX and MIN of
 * floating types give NaN where a rank holds NaN. bf16 and fp16 are summed in
 * fp32 and rounded once. */
typedef enum loong_reduce {
#define LOONG_REDUCE_ENUM(name_, text_) LOONG_REDUCE_##name_,
    LOONG_REDUCE_LIST(LOONG_REDUCE_ENUM)
#undef LOONG_REDUCE_ENUM
        LOONG_REDUCE_COUNT
} loong_reduce_t;

LOONG_API const char *loong_reduce_name(loong_reduce_t reduce);

/* ---- Making one -------------------------------------------------------- */

typedef struct loong_comm_params {
    /* Seconds a collective waits for the others; 0: 600. */
    double timeout;
    /* For tests: pretend that every so many ranks are a machine of their own
     * (no shared memory between them); 0: as it is. */
    int ranks_per_node;
    /* Seconds after which a rank on another machine that is waited for and
     * does not answer is lost, and a call in which the devices of all its ranks
     * stand does not end any more; 0: 40. Other ranks are waited for to the
     * timeout. */
    double heartbeat_timeout;
} loong_comm_params_t;

/* The communicator of one rank. params may be NULL. Owned by the caller. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_create_self(loong_context_t *ctx, const loong_comm_params_t *params,
                       loong_comm_t **comm_p);

/* All ranks of the MPI job: initialises MPI if nobody has, and then also
 * finalises it when this communicator is destroyed. Refuses a job whose
 * launcher started several processes that MPI sees as single ones
 * (LOONG_ERR_CONFIG), and a library built without MPI (LOONG_ERR_UNSUPPORTED).
 * Once per process. Collective on: the job. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_create_mpi(loong_context_t *ctx, const loong_comm_params_t *params,
                      loong_comm_t **comm_p);

/* What the environment asks for: MPI when a launcher started this process,
 * else the communicator of one rank. Collective on: the job. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_create_world(loong_context_t *ctx, const loong_comm_params_t *params,
                        loong_comm_t **comm_p);

/* What one rank of loong_threads_run does. ctx and comm belong to the run. */
typedef loong_status_t (*loong_threads_fn)(loong_context_t *ctx,
                                           loong_comm_t *comm, void *user);

typedef struct loong_threads_params {
    int size; /* ranks, 1 or more */
    loong_comm_params_t comm;
    loong_context_params_t context; /* of every rank's own context */
} loong_threads_params_t;

/* Runs fn on params->size ranks, each a thread with its own context, and
 * waits for all. Returns the status of the lowest rank that failed, with the
 * trail of each failed rank noted in ctx. A rank that ends early makes the
 * collectives of the others fail. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_threads_run(loong_context_t *ctx, const loong_threads_params_t *params,
                  loong_threads_fn fn, void *user);

/* Groups of ranks with equal color, ordered by key, then by rank. A negative
 * color takes part and gets NULL. name (up to 31 characters) is used in
 * messages. Destroy the group before comm. Collective on: comm. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_split(loong_comm_t *comm, int color, int key, const char *name,
                 loong_comm_t **group_p);

/* NULL is accepted; *comm_p becomes NULL. Waits for nobody if the
 * communicator has failed. Collective on: comm. */
LOONG_API void loong_comm_destroy(loong_comm_t **comm_p);

/* ---- Facts ------------------------------------------------------------- */

LOONG_API int loong_comm_rank(const loong_comm_t *comm);
LOONG_API int loong_comm_size(const loong_comm_t *comm);
/* The rank in the communicator that all others were split from. */
LOONG_API int loong_comm_world_rank(const loong_comm_t *comm, int rank);
LOONG_API const char *loong_comm_name(const loong_comm_t *comm);
/* "self", "threads", "mpi" or the name of a registered table. */
LOONG_API const char *loong_comm_backend(const loong_comm_t *comm);

typedef struct loong_comm_stats {
    uint64_t calls;
    uint64_t bytes; /* of this rank's buffers */
    double seconds; /* inside calls, waiting included */
    double wait;    /* of these: waiting for other ranks */
    /* Sent by this rank to other machines in collectives. */
    uint64_t messages;
    uint64_t message_bytes;
} loong_comm_stats_t;

/* Since creation, of this communicator alone. */
LOONG_API loong_comm_stats_t loong_comm_stats(const loong_comm_t *comm);

/* The training step that the next calls belong to, for messages. */
LOONG_API void loong_comm_set_step(loong_comm_t *comm, int64_t step);

/* The stream that the next collectives go on, of a communicator that works on
 * memory of a device. The others do without. */
LOONG_API void loong_comm_set_stream(loong_comm_t *comm, void *stream);

/* Tells the other ranks that this one cannot go on: what they wait for on
 * this communicator fails at once with this text. Not collective. */
LOONG_API void loong_comm_abort(loong_comm_t *comm, const char *text);

/* ---- Collectives (collective on: comm) ---------------------------------- */

LOONG_API LOONG_NODISCARD loong_status_t loong_comm_barrier(loong_comm_t *comm,
                                                            const char *label);

LOONG_API LOONG_NODISCARD loong_status_t loong_comm_broadcast(
    loong_comm_t *comm, void *data, size_t bytes, int root, const char *label);

LOONG_API LOONG_NODISCARD loong_status_t loong_comm_all_reduce(
    loong_comm_t *comm, void *data, int64_t count, loong_dtype_t dtype,
    loong_reduce_t reduce, const char *label);

/* data holds one piece per rank, one after the other, counts[size] long (a
 * count may be 0). Afterwards this rank's piece holds its reduction; the other
 * pieces are undefined. */
LOONG_API LOONG_NODISCARD loong_status_t loong_comm_reduce_scatter(
    loong_comm_t *comm, void *data, const int64_t *counts, loong_dtype_t dtype,
    loong_reduce_t reduce, const char *label);

/* The same pieces: before, this rank's piece is set; afterwards all are. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_all_gather(loong_comm_t *comm, void *data, const int64_t *counts,
                      loong_dtype_t dtype, const char *label);

/* Blocks one after the other, one per rank; send and receive buffers do not
 * overlap. send_counts[r] of rank q must be receive_counts[q] of rank r. */
typedef struct loong_all_to_all {
    const void *send;
    const int64_t *send_counts;
    void *receive;
    const int64_t *receive_counts;
} loong_all_to_all_t;

LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_all_to_all(loong_comm_t *comm, const loong_all_to_all_t *blocks,
                      loong_dtype_t dtype, const char *label);

/* `bytes` of every rank, in rank order, into `all` (size * bytes) of root;
 * `all` is not read on the other ranks. */
LOONG_API LOONG_NODISCARD loong_status_t loong_comm_gather(loong_comm_t *comm,
                                                           const void *data,
                                                           size_t bytes,
                                                           void *all, int root,
                                                           const char *label);

/* ---- Point to point (not collective) ------------------------------------ */

/* Lives at one address from isend/irecv until wait has returned, or cancel. The
 * fields are the library's. */
typedef struct loong_comm_request {
    int kind; /* loong_collective_kind_t */
    int peer;
    int tag;
    void *data;
    size_t bytes;
    uint64_t sequence; /* of this rank's messages in comm, from 1 */
    uint64_t backend[6];
} loong_comm_request_t;

/* tag is 0...32767. Messages of one pair and tag arrive in order. The receive
 * size must be the send size. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_isend(loong_comm_t *comm, const void *data, size_t bytes, int peer,
                 int tag, loong_comm_request_t *request);
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_irecv(loong_comm_t *comm, void *data, size_t bytes, int peer,
                 int tag, loong_comm_request_t *request);
LOONG_API LOONG_NODISCARD loong_status_t
loong_comm_wait(loong_comm_t *comm, loong_comm_request_t *request);
/* Gives up a message that nobody will wait for, one whose wait has failed, too;
 * nothing when it is complete. False: it is under way all the same (MPI has it
 * half sent), so data and request must stay until the process ends. */
LOONG_API bool loong_comm_cancel(loong_comm_t *comm,
                                 loong_comm_request_t *request);

LOONG_API LOONG_NODISCARD loong_status_t loong_comm_send(loong_comm_t *comm,
                                                         const void *data,
                                                         size_t bytes, int peer,
                                                         int tag);
LOONG_API LOONG_NODISCARD loong_status_t loong_comm_recv(loong_comm_t *comm,
                                                         void *data,
                                                         size_t bytes, int peer,
                                                         int tag);

/* ---- Memory that peers on the machine read directly ---------------------- */

/* `bytes` of zeroed memory for this rank (may differ between ranks, may be
 * 0), aligned to 2 MiB, huge pages advised. Collectives on data inside it, of
 * comm and of the groups split from comm, read the peers' memory in place;
 * other memory goes through a staging buffer. Collective on: comm. */
LOONG_API LOONG_NODISCARD loong_status_t loong_comm_alloc_shared(
    loong_comm_t *comm, size_t bytes, const char *what, void *ptr_p);

/* Sets *ptr_p to NULL; NULL is accepted on all ranks alike. Collective on:
 * comm, unless comm has failed. */
LOONG_API void loong_comm_free_shared(loong_comm_t *comm, void *ptr_p);

/* Where this process sees the same offset of the peer's allocation; NULL when
 * ptr is not in shared memory or the peer is on another machine. */
LOONG_API void *loong_comm_peer_pointer(loong_comm_t *comm, const void *ptr,
                                        int peer);

/* ---- The line of a call --------------------------------------------------
 */

/* Says where the next call of comm stands; returns comm. The macros below do
 * it for every call that is written out, so that messages name its line. */
LOONG_API loong_comm_t *loong_comm_at(loong_comm_t *comm, const char *file,
                                      int line);
#define LOONG_COMM_HERE(comm_) loong_comm_at(comm_, __FILE__, __LINE__)

#define loong_comm_barrier(comm_, label_) \
    loong_comm_barrier(LOONG_COMM_HERE(comm_), label_)
#define loong_comm_broadcast(comm_, ...) \
    loong_comm_broadcast(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_all_reduce(comm_, ...) \
    loong_comm_all_reduce(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_reduce_scatter(comm_, ...) \
    loong_comm_reduce_scatter(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_all_gather(comm_, ...) \
    loong_comm_all_gather(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_all_to_all(comm_, ...) \
    loong_comm_all_to_all(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_gather(comm_, ...) \
    loong_comm_gather(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_wait(comm_, request_) \
    loong_comm_wait(LOONG_COMM_HERE(comm_), request_)
#define loong_comm_send(comm_, ...) \
    loong_comm_send(LOONG_COMM_HERE(comm_), __VA_ARGS__)
#define loong_comm_recv(comm_, ...) \
    loong_comm_recv(LOONG_COMM_HERE(comm_), __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
