/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulator's files share: engine.cc runs kernels, memory.cc knows
 * what may be touched, stream.cc decides when something runs. */
#ifndef CUDASIM_IMPL_H
#define CUDASIM_IMPL_H

#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"
#include "cudasim.h"

namespace cudasim __attribute__((visibility("hidden"))) {

/* ---- chance -------------------------------------------------------------- */
extern uint64_t chance;
inline uint64_t draw() /* 64 random bits */
{
    uint64_t z = chance += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
/* n below 2^32 */
inline uint64_t below(uint64_t n) { return (draw() >> 32) * n >> 32; }

/* ---- engine.cc ----------------------------------------------------------- */
cudaError_t run_kernel(const cudasim_launch &launch, const void *arguments,
                       size_t size, int device);
/* The running kernel, for the checks of its accesses. */
struct live_t {
    uintptr_t stacks; /* of the fibers: so many bytes from here on */
    size_t stack_bytes;
    uintptr_t shared; /* memory of the block */
};
extern live_t live;
/* It runs on this thread: others do the host's work meanwhile. */
extern thread_local bool running __attribute__((tls_model("initial-exec")));
inline bool in_kernel() { return running; }
int kernel_device();
int current_thread(); /* of the block */
/* Ends the running kernel: text and who it was go into the report. */
[[noreturn]] void kernel_fault(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
inline bool in_fiber_stack(uintptr_t at)
{
    return at - live.stacks < live.stack_bytes;
}
enum { SHARED_ROOM = 1024 * 1024 };
inline bool is_shared(uintptr_t at) { return at - live.shared < SHARED_ROOM; }
/* Within one array of the block, which is from *begin_p to *end_p. */
bool in_shared(uintptr_t at, size_t size, uintptr_t *begin_p,
               uintptr_t *end_p);
enum { STATIC_SHARED = 48 * 1024 };
size_t most_shared(); /* of a block, static and dynamic */

/* ---- tensor.cc ----------------------------------------------------------- */
void forget_copies(); /* a block begins */

/* ---- memory.cc ----------------------------------------------------------- */
enum kind_t { DEVICE, PINNED, POOLED }; /* POOLED: of a device's pool */
void *allocate(kind_t kind, size_t size, int device); /* NULL: full */
bool release(kind_t kind, void *ptr);
size_t used_bytes(int device);
struct pool_t {
    size_t used, kept; /* kept: with what was freed and not trimmed */
    size_t most;       /* used at one time, since it was last reset */
};
pool_t *pool_of(int device);
int64_t alive_ranges();
void forget_memory();
bool is_device(const void *ptr);
bool is_pinned(const void *ptr);
bool is_pooled(const void *ptr);
/* size bytes from ptr are within one live allocation, or are of the host. */
bool range_ok(const void *ptr, size_t size);
int device_of(const void *ptr); /* -1: of the host */
const char *where(uintptr_t at); /* in words */
/* A read of the running kernel, at a multiple of its size. */
void check_read(const void *ptr, size_t size);
/* A block begins: its shared arrays, and what is alive, may be others. */
void forget_checks();
/* While the device works its memory can be touched. */
void unlock();
void lock();
/* Access to the pool of `other`, or to its other memory. */
bool peer_allowed(int device, int other, bool pooled);

/* ---- plant.cc: is a bug planted here? ------------------------------------ */
bool plant_barrier(const char *kernel, int number); /* of the thread, from 1 */
bool plant_sync(const char *kernel, int number);    /* of the lane, from 1 */
bool plant_block(const char *kernel, uint64_t block, uint64_t blocks);

/* ---- stream.cc ----------------------------------------------------------- */
void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
cudaError_t fail(cudaError_t error); /* remembered for cudaGetLastError */
size_t shared_limit(const void *kernel);

} // namespace cudasim

#endif
