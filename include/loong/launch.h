/* SPDX-License-Identifier: Apache-2.0
 *
 * How a process of a job was started, the small parent that watches over it,
 * and the signals that ask a run to stop or to save.
 *
 *   loong_parent_run(ctx, &params, &role, &code);   before anything else
 *   if (role == LOONG_ROLE_PARENT) return code;
 *   loong_signals_install(ctx);
 *   loong_comm_create_world(ctx, NULL, &comm);
 *   ... train; between steps look at loong_signals_get() ...
 */
#ifndef LOONG_LAUNCH_H
#define LOONG_LAUNCH_H

#include "loong/context.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the launcher put into the environment. */
typedef struct loong_launch {
    const char *launcher; /* "Open MPI", "srun", ...; NULL: none */
    int rank;             /* 0 without a launcher, as the next three */
    int size;             /* 1 without a launcher */
    int local_rank;
    int local_size; /* 1; 0: the launcher does not say */
} loong_launch_t;

/* Reads the environment. Not collective. */
LOONG_API void loong_launch_detect(loong_launch_t *launch_p);

/* Refuses (LOONG_ERR_CONFIG) when the launcher started more processes than the
 * communicator sees: each would train alone on the same data. */
LOONG_API LOONG_NODISCARD loong_status_t loong_launch_check(
    loong_context_t *ctx, const loong_launch_t *launch, int comm_size);

/* How many threads this process should have: its share of the machine's cores,
 * at most those that it is bound to, at least 1. Not collective. */
LOONG_API int loong_launch_threads(const loong_launch_t *launch);

/* Writes what will make this launch slow, one sentence a line, or "": more
 * ranks x threads than cores, and threads bound to fewer cores than there are
 * (what mpirun does with two ranks). Not collective. */
LOONG_API void loong_launch_advice(const loong_launch_t *launch, int threads,
                                   char *text, size_t size);

/* ---- The parent ---------------------------------------------------------- */

typedef enum loong_role { LOONG_ROLE_WORKER, LOONG_ROLE_PARENT } loong_role_t;

typedef struct loong_parent_params {
    /* Receives one line without a newline when a worker is lost. */
    void (*report)(void *user, const char *line);
    void *user;
    /* Seconds that a worker has to end by itself once the job is lost; 0: 5.*/
    double grace;
} loong_parent_params_t;

/* Forks: the child returns as LOONG_ROLE_WORKER and goes on to be the rank; it
 * dies with its parent. Under a launcher the parent is forked itself, by a
 * process that returns as LOONG_ROLE_PARENT too, with its exit code: a launcher
 * that kills what it started asks the worker to stop.
 *
 * The parent forwards USR1, USR2, TERM, INT and HUP to it, watches the status
 * board of the machine, and returns with the exit code when the worker is gone.
 * A worker that dies by a signal, exits with an unknown code, or does not come
 * to a collective in time is reported by rank, process, and what it last did,
 * and makes every parent of the machine end its worker and return
 * LOONG_EXIT_LOST. Call it before MPI, threads, signal handlers. Not
 * collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_parent_run(loong_context_t *ctx, const loong_parent_params_t *params,
                 loong_role_t *role_p, int *exit_code_p);

/* ---- Signals ------------------------------------------------------------- */

enum {
    /* USR2, TERM, INT, a launcher that is gone: finish the step, save, exit. */
    LOONG_SIGNAL_STOP = 1,
    LOONG_SIGNAL_SAVE = 2  /* USR1: save and go on */
};

/* Installs the handlers for the whole process; a second INT, 0.3 s or more
 * behind the first request to stop, ends it at once. From a request to stop
 * on, SIGPIPE is ignored. The handlers run on a thread of their own: the
 * signals are blocked in the calling thread and in those it starts from then
 * on, also for programs that it executes. Call it before MPI and before
 * anything computes. A program with handlers of its own does likewise, or lets
 * them run on a sigaltstack: products of oneDNN 2.6 keep the stack pointer in
 * the heap. Errors: LOONG_ERR_MEMORY when the thread cannot start.
 * The flags are the one exception to "no mutable data at file scope": a
 * handler has nothing else to write to. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_signals_install(loong_context_t *ctx);

/* The flags so far. SAVE is forgotten by the call, STOP stays. They are this
 * rank's: the step header makes all ranks agree. */
LOONG_API unsigned loong_signals_get(void);

#ifdef __cplusplus
}
#endif

#endif
