/* SPDX-License-Identifier: Apache-2.0
 *
 * The host model of Kunlun's clusters (cluster.h), for the simulated kernel
 * shim and for tests. */
#ifndef CLUSTERSIM_H
#define CLUSTERSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what the simulated runtime gives, or a test that has none ----------- */
/* Where bytes at a device address really lie; NULL: text says what is wrong
 * with it. */
void *clustersim_device_memory(const void *device, size_t bytes, char *text,
                               size_t size);
/* Takes its turn on the stream: run(arg) returns 0 or an error of the
 * runtime's. */
int clustersim_stream_run(void *stream, int (*run)(void *arg), void *arg);

/* ---- what tests ask of the model ----------------------------------------- */
const char *clustersim_report(void); /* "": nothing was wrong */
void clustersim_reset(void);         /* with the report and the plant */
void clustersim_seed(uint64_t seed);
/* A bug from now on, in kernels whose name has this part: the n-th fence,
 * barrier or copy of each core is left out, from 1; NULL: none. The return of
 * _planted tells whether it was met. */
typedef enum clustersim_plant {
    CLUSTERSIM_NO_FENCE,
    CLUSTERSIM_NO_BARRIER,
    CLUSTERSIM_NO_COPY
} clustersim_plant_t;
void clustersim_plant(const char *kernel, clustersim_plant_t what, int n);
int clustersim_planted(void);

#ifdef __cplusplus
}
#endif

#endif
