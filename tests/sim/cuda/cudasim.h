/* SPDX-License-Identifier: Apache-2.0
 *
 * Control of the simulated device, for tests. */
#ifndef CUDASIM_H
#define CUDASIM_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Draws anew: the order of threads, of blocks and of streams, and how far the
 * device lags behind the host. Env CUDASIM_SEED at start. */
void cudasim_seed(uint64_t seed);

/* How far: 0 nothing runs before somebody waits for it, 1 everything runs at
 * once; otherwise drawn with the seed. */
void cudasim_pace(double share);

/* Calls of the runtime until now, and: call number n from here on (1: the
 * next one) fails with this error and does nothing. 0: none does. */
int64_t cudasim_calls(void);
void cudasim_fail_at(int64_t n, cudaError_t error);

/* The device is lost, as by a kernel: from here on every call says so. */
void cudasim_lose(cudaError_t error);

/* Env CUDASIM_KILL_AT_GRAPH: the process is killed when it launches so many.
 * Env CUDASIM_HANG_FILE: its device hangs from when that file is there. */

/* Devices (env CUDASIM_DEVICES, 1), bytes of memory of each (4 GiB). */
void cudasim_devices(int count, size_t bytes);

/* How long NCCL's calls wait for graphs that hold a communicator, where NCCL
 * waits for ever: then that is what was found wrong. 10 s. */
void cudasim_patience(double seconds);

/* Nothing runs on the streams of a device while it hangs: whoever waits for
 * them waits until it does not. */
void cudasim_hang(int device, int on);

/* NCCL's calls on a device begin and do not go on: its links are cut, those
 * inwards alone or both ways. */
void cudasim_cut(int device, int inwards);

/* Bytes of shared memory that a block may have: 227 KiB, as on sm_90; 163 on
 * sm_80, 99 on sm_86 and sm_89. */
void cudasim_shared_limit(size_t bytes);

/* Multiprocessors, 4 at the start; blocks of the largest launch since then. */
void cudasim_processors(int count);
int64_t cudasim_blocks(void);

/* What was found wrong first since the last reset; "" when nothing was. It
 * also goes to stderr unless quiet. */
const char *cudasim_report(void);
void cudasim_quiet(int quiet);

/* Forgets errors, streams, events and memory. */
void cudasim_reset(void);

/* Whether cuBLASLt has products that do more; at the start it has, but none
 * that sum a bias's gradient where env CUDASIM_BIAS_SUMS is 0. */
void cudasim_epilogues(int there);

/* Handles of cuBLASLt that are alive, or that were ever made. */
int64_t cudasim_cublaslt_handles(int alive);

/* Copies asked for so far, of any kind; questions what device there is. */
int64_t cudasim_copies(void);
int64_t cudasim_questions(void);

/* Products so far whose first operand was one number again and again. */
int64_t cudasim_uniform_products(void);

/* Plans of cuDNN are refused for this reason; "": they are not. */
void cudasim_cudnn_refuse(const char *why);

/* Ranges of the profiler whose name holds this text, since the start; those
 * that are open. */
int64_t cudasim_ranges(const char *text);
int cudasim_open_ranges(void);

/* Allocations, streams and events that are alive. */
int64_t cudasim_alive(void);

#ifdef __cplusplus
}
#endif

#endif
