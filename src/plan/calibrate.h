/* SPDX-License-Identifier: Apache-2.0
 *
 * How long programs take, from kernels timed one by one at the shapes of the
 * plan: each distinct launch (kernel, shapes, types, flags) is measured once,
 * with parameters, gradients and saved values out of the caches, as a step
 * finds them, and beside neighbours that do the same, as the ranks of a machine
 * are. Not collective. */
#ifndef LOONG_CALIBRATE_H
#define LOONG_CALIBRATE_H

#include "loong/device.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_calibration loong_calibration_t;

/* A rank of the same machine, as far as timing goes: it launches the same
 * beside the one that is timed, on a thread of its own. */
typedef struct loong_neighbour {
    loong_context_t *ctx; /* of this neighbour alone, as its communicators */
    loong_comm_t *const *group;
} loong_neighbour_t;

typedef struct loong_calibration_params {
    loong_device_t *device; /* borrowed */
    char *inputs; /* base INPUT, filled with what a loader gives; NULL: too
                     large, what reads it is not timed */
    double budget;  /* seconds of measuring, about */
    int64_t memory; /* bytes that a launch may take, its operands included */
    double work;    /* flops above which a launch is timed on fewer rows */
    loong_precision_t precision; /* of the chunks */
    /* By loong_group_t, communicators of one rank: what a kernel exchanges in
     * the middle of its work takes no time. */
    loong_comm_t *const *group;
    int num_neighbours; /* fewer where memory does not suffice for all */
    const loong_neighbour_t *neighbours;
} loong_calibration_params_t;

LOONG_NODISCARD loong_status_t
loongi_calibration_create(loong_context_t *ctx,
                          const loong_calibration_params_t *params,
                          loong_calibration_t **calibration_p);
void loongi_calibration_destroy(loong_calibration_t **calibration_p);

/* Adds the seconds that the steps of a program take in this frame, so many
 * times, to *seconds_p. Collectives are left out. A launch that is too large
 * is timed on fewer rows and scaled by its work; where that cannot be, and
 * beyond the budget, it is scaled from others. */
LOONG_NODISCARD loong_status_t
loongi_calibration_program(loong_calibration_t *calibration,
                           const loong_program_t *program,
                           const loong_frame_t *frame, int64_t times,
                           double *seconds_p);

typedef struct loong_calibration_counts {
    int64_t measured;    /* distinct launches */
    int64_t shrunk;      /* of these, on fewer rows */
    int64_t scaled;      /* distinct launches that were not timed */
    int64_t collectives; /* steps left out */
    double seconds;      /* that measuring took */
} loong_calibration_counts_t;
loong_calibration_counts_t
loongi_calibration_get(const loong_calibration_t *calibration);

#ifdef __cplusplus
}
#endif

#endif
