/* SPDX-License-Identifier: Apache-2.0
 *
 * How long programs take on a device that is not there: from the operations
 * and bytes of every step and the rates of a kind of device. What takes most of
 * a step, products, attention, passes over memory and what ranks send, has a
 * rate each; nothing of it hides behind another of them, but collectives behind
 * computation where the program lets them. Not collective. */
#ifndef LOONG_RATES_H
#define LOONG_RATES_H

#include "loong/device.h"
#include "loong/mesh.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Those of a card that a kind of device has, of its first one where `name` is
 * NULL; NULL: none is known. */
const loong_device_rates_t *loongi_rates_find(const loong_context_t *ctx,
                                              const char *kind,
                                              const char *name);

/* Seconds of what programs do, added up. */
typedef struct loong_rates_sum {
    double products;
    double attention;
    double passes; /* over memory, also those of products */
    double gaps;
    double collectives; /* under way */
    double exposed;     /* of these, waited for */
    double layers;      /* of all of it, what scopes layers.* take */
    double flops; /* without recomputation, the backward of attention twice
                     its forward */
} loong_rates_sum_t;

/* How a device with these rates runs a program. */
typedef struct loong_rates_params {
    loong_context_t *ctx;
    const loong_device_rates_t *rates;
    const loong_mesh_t *mesh; /* of the rank */
    /* Of what ranks of several kinds exchange, and whether a group has them;
     * NULL: none has. */
    const loong_device_rates_t *between;
    bool crosses[LOONG_GROUP_COUNT];
    bool graphs;            /* the device launches by itself */
    bool tf32;              /* products of fp32 go through it */
    loong_rates_sum_t *sum; /* what programs take is added to it */
} loong_rates_params_t;

/* Adds what a program takes in this frame, so many times, to *seconds_p. */
LOONG_NODISCARD loong_status_t loongi_rates_program(
    const loong_rates_params_t *params, const loong_program_t *program,
    const loong_frame_t *frame, int64_t times, double *seconds_p);

/* Kernels and copies that a program launches in this frame, about. */
double loongi_rates_launches(const loong_program_t *program,
                             const loong_frame_t *frame);

/* Seconds of a message of so many bytes from one rank to another. */
double loongi_rates_message(const loong_device_rates_t *rates, int from, int to,
                            double bytes);

#ifdef __cplusplus
}
#endif

#endif
