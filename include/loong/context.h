/* SPDX-License-Identifier: Apache-2.0
 *
 * The context: allocation, logging and the error trail of one rank. Every
 * object of the library hangs off a context, and nothing else is shared, so
 * several ranks can live in one process (one context each).
 *
 * A context is used by one thread at a time. Not collective.
 */
#ifndef LOONG_CONTEXT_H
#define LOONG_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_context loong_context_t;

typedef enum loong_log_level {
    LOONG_LOG_ERROR,
    LOONG_LOG_WARN,
    LOONG_LOG_INFO,
    LOONG_LOG_DEBUG
} loong_log_level_t;

/* Receives one line without a newline. The library itself never prints. */
typedef void (*loong_log_fn)(void *user, loong_log_level_t level,
                             const char *line);

typedef struct loong_context_params {
    loong_log_fn log; /* NULL: silent */
    void *log_user;
    loong_log_level_t log_level; /* the last level that is passed on */
} loong_context_params_t;

/* Creates a context. params may be NULL (silent). *ctx_p is set on success
 * and owned by the caller. Errors: LOONG_ERR_MEMORY. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_context_create(const loong_context_params_t *params,
                     loong_context_t **ctx_p);

/* Destroys *ctx_p and sets it to NULL; NULL is accepted. Allocations that are
 * still alive are named in a log line of level LOONG_LOG_WARN. */
LOONG_API void loong_context_destroy(loong_context_t **ctx_p);

/* The error trail since the last clear: one line per entry, oldest first,
 * each "file:line: message"; "" when there is none. Borrowed, valid until the
 * next call that uses the context. */
LOONG_API const char *loong_context_error(const loong_context_t *ctx);

/* Forgets the error trail. */
LOONG_API void loong_context_clear_error(loong_context_t *ctx);

/* Number of allocations made through the context so far. Does not grow during
 * a training step. */
LOONG_API uint64_t loong_context_alloc_count(const loong_context_t *ctx);

/* Bytes allocated through the context now, and the most there ever were. */
LOONG_API size_t loong_context_alloc_bytes(const loong_context_t *ctx);
LOONG_API size_t loong_context_alloc_peak(const loong_context_t *ctx);

/* Fault injection: the n-th allocation from now fails with
 * LOONG_ERR_MEMORY (1 = the next one); 0 switches it off. */
LOONG_API void loong_context_fail_alloc(loong_context_t *ctx, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
