/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranges of the simulated device's profiler; see cudasim.h. */
#ifndef CUDASIM_NVTX_H
#define CUDASIM_NVTX_H

#ifdef __cplusplus
extern "C" {
#endif

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

#ifdef __cplusplus
}
#endif

#endif
