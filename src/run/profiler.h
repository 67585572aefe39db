/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time goes: a table by op, and a trace that chrome://tracing and
 * Perfetto open. All memory is taken at creation. */
#ifndef LOONG_PROFILER_H
#define LOONG_PROFILER_H

#include "executor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_profiler loong_profiler_t;

/* Keeps at most max_events for the trace; the table counts all. */
LOONG_NODISCARD loong_status_t
loongi_profiler_create(loong_context_t *ctx, int64_t max_events,
                       loong_profiler_t **profiler_p);
void loongi_profiler_destroy(loong_profiler_t **profiler_p);

/* Hooks into a run. */
void loongi_profiler_attach(loong_profiler_t *profiler, loong_run_t *run);

/* Table: op, kernel, count, ms, share of the measured time, GFLOP/s, GB/s. */
void loongi_profiler_table(const loong_profiler_t *profiler,
                           loong_text_t *text);

/* Chrome trace (JSON object format). Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_profiler_write(const loong_profiler_t *profiler, const char *path);

#ifdef __cplusplus
}
#endif

#endif
