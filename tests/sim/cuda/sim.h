/* SPDX-License-Identifier: Apache-2.0
 *
 * State of the simulated runtime and what its calls share: stream.cc keeps the
 * queues, runtime.cc holds the other calls. */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "impl.h"

namespace cudasim {

struct piece_t {
    std::function<cudaError_t()> run; // empty: waits for the event
    CUevent_st *event;                // waited for, or recorded
    uint64_t version; // of the event
    bool again = false; // cudaErrorNotReady: to be tried once more
};

struct sim_t {
    std::recursive_mutex mutex;
    std::list<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::map<const void *, size_t> shared; // limits of kernels
    std::set<std::pair<int, int>> peers[2]; // of pools: [1]
    uint64_t chance;
    uint64_t turns; // pieces run, the device's clock
    double pace;
    int64_t calls;
    int64_t fail_at;
    cudaError_t fail_with;
    cudaError_t last;   // of cudaGetLastError
    cudaError_t sticky; // a kernel went wrong: the device is lost
    int devices;
    size_t bytes;
    bool quiet;
    char report[1024];
    bool begun;
};

extern sim_t sim;
/* As in CUDA, a thread's own. */
extern thread_local int current_device;

void begin(); /* reads the environment, once */
cudaError_t enter(const char *name);
/* The given stream, or the default one of the current device. */
CUstream_st *stream_of(cudaStream_t stream);
bool known(CUstream_st *s);
void enqueue(CUstream_st *s, std::function<cudaError_t()> run,
             CUevent_st *recorded = nullptr);
// A piece that needs others who are not here.
void enqueue_again(CUstream_st *s, std::function<cudaError_t()> run);
void step_any(); // some stream's next piece
/* Runs s until its first `count` pieces are done, and of others only what they
 * wait for. */
void drain(CUstream_st *s, size_t count);
void drain_all();

} // namespace cudasim

struct CUstream_st {
    std::list<cudasim::piece_t> queue;
    int device;
    bool blocking;
    bool null; // the default stream of a device
};

struct CUevent_st {
    CUstream_st *stream; // that records it
    uint64_t recorded;   // times
    uint64_t reached;
    uint64_t when; // in turns
    bool timed;
};

/* Every call begins with this. */
#define ENTER(name_)                                                          \
    std::lock_guard<std::recursive_mutex> guard(cudasim::sim.mutex);          \
    cudaError_t entered = cudasim::enter(name_);                              \
    if (entered != cudaSuccess) {                                             \
        return cudasim::fail(entered);                                        \
    }

#define NEED(cond_, error_, ...)                                              \
    do {                                                                      \
        if (!(cond_)) {                                                       \
            cudasim::report(__VA_ARGS__);                                     \
            return cudasim::fail(error_);                                     \
        }                                                                     \
    } while (0)

#endif
