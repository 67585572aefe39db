/* SPDX-License-Identifier: Apache-2.0
 *
 * The exit codes of the tools, and how a job agrees on one.
 */
#ifndef LOONG_EXIT_CODE_H
#define LOONG_EXIT_CODE_H

#include "loong/comm.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, code, text), mildest first: when ranks differ, the job's code is
 * the one that stands lowest here. */
#define LOONG_EXIT_LIST(X)                                               \
    X(OK, 0, "finished")                                                 \
    X(STOPPED, 75, "stopped on request")                                 \
    X(LOST, 4, "a rank was lost or did not come in time")                \
    X(FAILED, 1, "run-time failure, or malformed or corrupt input")      \
    X(DIVERGED, 3, "loss diverged or the NaN policy stopped the run")    \
    X(IO, 74, "reading or writing failed")                               \
    X(CANNOT_WRITE, 73, "an output cannot be written")                   \
    X(NO_INPUT, 66, "an input is missing")                               \
    X(USAGE, 2, "wrong command line or recipe")

typedef enum loong_exit_code {
#define LOONG_EXIT_ENUM(name_, code_, text_) LOONG_EXIT_##name_ = code_,
    LOONG_EXIT_LIST(LOONG_EXIT_ENUM)
#undef LOONG_EXIT_ENUM
} loong_exit_code_t;

/* The code's meaning; "unknown exit code" for one not in the list. */
LOONG_API const char *loong_exit_code_text(int code);

LOONG_API loong_exit_code_t loong_exit_code_from_status(loong_status_t status);

/* The job's code, and the lowest rank that brought it. When the communicator
 * has failed, *agreed_p is LOONG_EXIT_LOST, or the rank's own code when that
 * says more. Never fails: it is the last thing a run does. Collective on:
 * comm. */
LOONG_API void loong_exit_code_agree(loong_comm_t *comm, int code,
                                     int *agreed_p, int *rank_p);

#ifdef __cplusplus
}
#endif

#endif
