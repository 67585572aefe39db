/* SPDX-License-Identifier: Apache-2.0
 *
 * What programs leave behind in a step: losses of rows and squares of
 * gradients. They are copied to the host behind the programs, which nobody
 * waits for, and added up once the step is over. */
#ifndef LOONG_STEP_METRICS_H
#define LOONG_STEP_METRICS_H

#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of the device that are added to an exact record. */
typedef struct loong_metric_copy {
    int64_t *record;     /* borrowed */
    loong_dtype_t dtype; /* I64: records themselves */
    int64_t count;
    int64_t at; /* bytes */
} loong_metric_copy_t;

typedef struct loong_step_metrics {
    loong_context_t *ctx;
    loong_device_t *device; /* borrowed */
    char *memory;
    int64_t bytes, used;
    loong_metric_copy_t *copies;
    int64_t num_copies, max_copies;
} loong_step_metrics_t;

LOONG_NODISCARD loong_status_t
loongi_step_metrics_open(loong_step_metrics_t *metrics,
                         const loong_model_t *model, loong_device_t *device);
void loongi_step_metrics_close(loong_step_metrics_t *metrics);

/* The losses of the rows of a chunk, or an exact record, as they are behind
 * the programs so far, are to be added to record. port may be NULL. */
LOONG_NODISCARD loong_status_t loongi_step_metrics_add_losses(
    loong_step_metrics_t *metrics, const loong_binding_t *run,
    const loong_port_t *port, int64_t *record);
LOONG_NODISCARD loong_status_t loongi_step_metrics_add_record(
    loong_step_metrics_t *metrics, const loong_binding_t *run,
    loong_operand_t from, int64_t *record);
/* Waits for the device and adds all of it. */
LOONG_NODISCARD loong_status_t
loongi_step_metrics_finish(loong_step_metrics_t *metrics, const char *what);

#ifdef __cplusplus
}
#endif

#endif
