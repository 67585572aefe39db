/* SPDX-License-Identifier: Apache-2.0
 *
 * The running block: engine.cc schedules its threads, warp.cc has what they do
 * together. */
#ifndef CUDASIM_ENGINE_H
#define CUDASIM_ENGINE_H

#include "fiber.h"
#include "impl.h"

namespace cudasim __attribute__((visibility("hidden"))) {

enum { MOST_THREADS = 1024, LANES = 32, MOST_ARRAYS = 32 };
enum state_t { READY, BARRIER, WARP, DONE };

struct thread_t {
    context_t context;
    int stack; // -1: it has not begun
    state_t state;
    int barriers;     // that it came to
    int syncs;        // of its warp
    cudasim_place at; // where it waits
    dim3 id;
    // The warp operation it waits in.
    int op, arg, width;
    unsigned mask;
    uint64_t value, result;
    void (*together)(void *const *lane);
};

struct warp_t {
    unsigned waiting; // lanes in a warp operation
    unsigned gone;    // lanes that have ended, or do not exist
};

struct shared_t {
    const void *key;
    char *at;
    size_t size;
};

struct engine_t {
    char *stacks;
    char *shared;
    thread_t threads[MOST_THREADS];
    warp_t warps[MOST_THREADS / LANES];
    int ready[MOST_THREADS]; // can run, in no order
    int num_ready;
    int free[MOST_THREADS]; // stacks, the one used last behind
    int num_free;
    context_t scheduler;
    int current; // thread
    int count;   // threads of the block
    int live;
    int waiting; // at the barrier
    cudaError_t fault;
    const cudasim_launch *launch;
    int device;
    const void *arguments;
    shared_t arrays[MOST_ARRAYS];
    int num_arrays;
    size_t shared_used;
};
extern engine_t e;

inline void make_ready(int thread)
{
    e.threads[thread].state = READY;
    e.ready[e.num_ready++] = thread;
}

/* Gives way to others; returns when it is the running thread's turn again. */
void leave();
/* A lane that ends is missed by those that wait for it. */
void check_lane_missed(int thread);

} // namespace cudasim

#endif
