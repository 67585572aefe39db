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
void loongi_profiler_attach(loong_profiler_t *profiler, loong_binding_t *run);

/* Table: op, kernel, count, ms, share of the measured time, GFLOP/s, GB/s. Of
 * collectives the ms are those that the rank waited. Below it, with experts,
 * the shares of routing, of moving rows, and of waiting for those of others. */
void loongi_profiler_table(const loong_profiler_t *profiler,
                           loong_text_t *text);

/* One kind of communication. */
typedef struct loong_traffic {
    const char *name;
    int64_t count;
    double bytes;   /* of this rank's buffers */
    double seconds; /* under way */
    double blocked; /* of these, the rank waited */
} loong_traffic_t;

/* Table of the collectives that were measured and of others: count, MB, ms
 * under way and waited for, the share of the first that was not waited for. */
void loongi_profiler_traffic(const loong_profiler_t *profiler, int num_others,
                             const loong_traffic_t *others,
                             loong_text_t *text);
/* Seconds that were waited for measured collectives. */
double loongi_profiler_blocked(const loong_profiler_t *profiler);

/* Chrome trace (JSON object format). Errors: LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_profiler_write(const loong_profiler_t *profiler, const char *path);

#ifdef __cplusplus
}
#endif

#endif
