/* SPDX-License-Identifier: Apache-2.0
 *
 * How long one launch takes. */
#ifndef LOONG_TIMING_H
#define LOONG_TIMING_H

#include "calibrate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does a step find what lies there in a cache? What another program wrote, it
 * does not. */
bool loongi_timing_is_hot(loong_base_t base);
/* Bytes of an operand, its gaps included. */
int64_t loongi_timing_extent(const loong_karg_t *arg);

/* Operations and bytes: what the op says, else the bytes of all operands. */
loong_cost_t loongi_timing_cost(const loong_step_t *step);

/* Bytes that a launch takes, with several sets of the operands that are not
 * in a cache. */
int64_t loongi_timing_bytes(const loong_step_t *step);

typedef struct loong_timing {
    loong_context_t *ctx;
    const loong_step_t *step;
    uint32_t accumulate;
    const loong_frame_t *frame;
    char *memory; /* loongi_timing_bytes for it and for each neighbour */
    char *inputs; /* see loong_calibration_params_t, as the rest */
    void *stream;
    loong_comm_t *const *group;
    int num_neighbours;
    const loong_neighbour_t *neighbours;
} loong_timing_t;

LOONG_NODISCARD loong_status_t loongi_timing_run(const loong_timing_t *timing,
                                                 double *seconds_p);

#ifdef __cplusplus
}
#endif

#endif
