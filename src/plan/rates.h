/* SPDX-License-Identifier: Apache-2.0
 *
 * How long programs take on a device that is not there: from the operations
 * and bytes of every step and the rates of a kind of device. What takes most of
 * a step, products, attention, passes over memory and what ranks send, has a
 * rate each; nothing of it hides behind another of them, but collectives behind
 * computation where the program lets them. Not collective. */
#ifndef LOONG_RATES_H
#define LOONG_RATES_H

#include "loong/mesh.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Per second: operations of products as the datasheet has them, dense; bytes
 * that a copy on the device moves, read and written; bytes that a GPU sends to
 * one of its machine, and to another machine. */
typedef struct loong_rates {
    const char *name;
    int generation; /* the first number of its compute capability */
    double bf16, tf32, fp32;
    double products;       /* share of these that a large product reaches */
    double attention;      /* share of the first, our kernel forward */
    double attention_grad; /* and backward */
    double fused;          /* the same of cuDNN's */
    double fused_grad;
    double copy;
    double passes;  /* share of it that our kernels move */
    double gap;     /* seconds from one kernel of a graph to the next */
    double launch;  /* the same where the host launches each */
    double link, network;
    double latency; /* seconds of each step of a collective */
    double memory;  /* bytes */
    int machine;    /* GPUs of one */
} loong_rates_t;

/* Devices of this kind have rates here. */
bool loongi_rates_are_of(const char *kind);
/* NULL: no device of that name is known. */
const loong_rates_t *loongi_rates_find(const char *name);

/* Seconds of what programs do, added up. */
typedef struct loong_rates_sum {
    double products;
    double attention;
    double passes; /* over memory, also those of products */
    double gaps;
    double collectives; /* under way */
    double exposed;     /* of these, waited for */
    double flops; /* without recomputation, the backward of attention twice
                     its forward */
} loong_rates_sum_t;

/* How a device with these rates runs a program. */
typedef struct loong_rates_params {
    loong_context_t *ctx;
    const loong_rates_t *rates;
    const loong_mesh_t *mesh; /* of the rank */
    bool graphs;              /* the device launches by itself */
    bool tf32;                /* products of fp32 go through it */
    loong_rates_sum_t *sum;   /* what programs take is added to it */
} loong_rates_params_t;

/* Adds what a program takes in this frame, so many times, to *seconds_p. */
LOONG_NODISCARD loong_status_t
loongi_rates_program(const loong_rates_params_t *params,
                     const loong_program_t *program,
                     const loong_frame_t *frame, int64_t times,
                     double *seconds_p);

/* Kernels and copies that a program launches in this frame, about. */
double loongi_rates_launches(const loong_program_t *program,
                             const loong_frame_t *frame);

/* Seconds of a message of so many bytes from one rank to another. */
double loongi_rates_message(const loong_rates_t *rates, int from, int to,
                            double bytes);

#ifdef __cplusplus
}
#endif

#endif
