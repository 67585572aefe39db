/* SPDX-License-Identifier: Apache-2.0
 *
 * State of the simulated runtime and what its calls share: stream.cc keeps the
 * queues, graph.cc what is captured, runtime.cc holds the other calls. */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "impl.h"

namespace cudasim {

// By stream, the number of its last piece of work that is over before.
typedef std::map<const CUstream_st *, uint64_t> order_t;

// One record of an event, on one stream. Whoever waits for the event waits for
// the last one that there was then.
struct record_t {
    CUstream_st *stream;
    bool done = false;
    uint64_t when = 0; // in turns
    order_t before = {};
};
typedef std::shared_ptr<record_t> record_ptr_t;

struct piece_t {
    std::function<cudaError_t()> run; // empty: waits for the record
    record_ptr_t record;              // waited for, or made
    bool again = false; // cudaErrorNotReady: to be tried once more
};

// Makes what is run, once for each time that it is.
typedef std::function<std::function<cudaError_t()>()> maker_t;

struct node_t {
    maker_t make;
    std::set<size_t> needs; // other nodes
    bool again; // as of a piece
};

struct capture_t {
    CUstream_st *origin;
    std::thread::id thread;
    CUgraph_st *graph;
    bool broken; // something forbidden was called
};

struct sim_t {
    std::recursive_mutex mutex;
    std::list<CUstream_st *> streams;
    std::set<CUevent_st *> events;
    std::map<const void *, size_t> shared; // limits of kernels
    std::set<std::pair<int, int>> peers[2]; // of pools: [1]
    std::set<std::pair<int, std::string>> loaded; // by device, with products
    bool no_epilogues; // products have none
    bool no_sums;      // none of biases' gradients, for the whole process
    std::map<int, int> communicates; // device: NCCL's operations, not over
    std::set<const CUstream_st *> launching; // NCCL's threads, there
    std::set<int> hanging; // devices
    std::set<int> cut;     // off from the others,
    std::set<int> deaf;    // hear nothing of them
    std::map<uint64_t, capture_t> captures; // under way
    uint64_t last_capture;
    std::set<CUgraph_st *> graphs;
    std::set<CUgraphExec_st *> execs;
    uint64_t turns; // pieces run, the device's clock
    uint64_t works; // pieces of work queued
    double pace;
    int64_t calls;
    int64_t fail_at;
    bool failed; // the call before this one did, as told
    int64_t kill_at; // launch of a graph; 0: none
    const char *hang_file; // null: none
    cudaError_t fail_with;
    cudaError_t last;   // of cudaGetLastError
    cudaError_t sticky; // a kernel went wrong: the device is lost
    int devices;
    size_t bytes;
    size_t most_shared; // memory of a block
    int processors;
    int64_t copies;
    int64_t questions; // what device there is
    int64_t blocks; // of the largest launch
    bool quiet;
    char report[1024];
    bool begun;
};

extern sim_t sim;
/* As in CUDA, a thread's own. */
extern thread_local int current_device;

void begin(); /* reads the environment, once */
cudaError_t enter(const char *name);
bool fails_as_told(const char *name); /* plant.cc: cudasim_fail_at */
/* plant.cc: the wait of a stream for a record is left out. */
bool plant_wait(const CUstream_st *s, const record_t &record);
bool plant_launch(); /* NCCL's call is launched late */
/* The given stream, or the default one of the current device. */
CUstream_st *stream_of(cudaStream_t stream);
bool known(CUstream_st *s);
void enqueue(CUstream_st *s, std::function<cudaError_t()> run,
             const record_ptr_t &record = nullptr);
// A piece that needs others who are not here.
void enqueue_again(CUstream_st *s, const maker_t &make);
/* What a launch or a product needs is loaded now, or was. */
void load_late(const std::string &key, const char *name, int device);
// This thread is one of NCCL's, which launches a call.
extern thread_local bool launches;
void check_launching(const CUstream_st *s); // another one does not use it
void step_any(); // some stream's next piece
/* Runs s until its first `count` pieces are done, and of others only what they
 * wait for. */
void drain(CUstream_st *s, size_t count);
void drain_all();

/* ---- graph.cc ------------------------------------------------------------ */
bool is_captured(const CUstream_st *s);
/* The capture of a stream, or of this thread, comes to nothing; false: there
 * is none. */
bool breaks_capture(const CUstream_st *s);
/* True: nothing is to be queued, s is captured. */
bool keep(CUstream_st *s, const maker_t &make, bool again);
void keep_record(CUevent_st *event, const CUstream_st *s);
cudaError_t keep_wait(CUstream_st *s, const CUevent_st *event);
size_t graph_bytes(int device);
void forget_graphs();
int64_t alive_graphs();

} // namespace cudasim

struct CUstream_st {
    std::list<cudasim::piece_t> queue;
    int device;
    bool blocking;
    bool null; // the default stream of a device
    uint64_t capture = 0; // 0: none
    std::set<size_t> tail = {}; // what the next captured piece comes behind
    cudasim::order_t before = {}; // what the next piece comes behind
    uint64_t passed = 0;          // pieces
};

struct CUevent_st {
    cudasim::record_ptr_t last; // NULL: there was none
    bool timed;
    uint64_t capture = 0; // of its last record; 0: none
    std::set<size_t> tail = {};
};

struct CUgraph_st {
    std::vector<cudasim::node_t> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<cudasim::node_t>> nodes;
    int device;
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

/* A call that no thread makes that captures. */
#define ENTER_IDLE(name_)                                                     \
    ENTER(name_)                                                              \
    NEED(!cudasim::breaks_capture(nullptr),                                   \
         cudaErrorStreamCaptureUnsupported,                                   \
         name_ " while a stream is captured")

#endif
