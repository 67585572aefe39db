// SPDX-License-Identifier: Apache-2.0
//
// Capture of streams into graphs, and their replay. A captured stream keeps
// what it is given, behind all that it has waited for; a replay runs the
// pieces one by one, a random one of those whose needs are met, so that an
// edge that is missing shows. What CUDA forbids while a thread captures ends
// the capture here too.
#include <csignal>

#include "sim.h"

using namespace cudasim;

enum { BYTES_OF_NODE = 512, YIELD = 16 };

// ---- what is captured -------------------------------------------------------

static capture_t *live_capture(uint64_t id)
{
    auto at = sim.captures.find(id);
    return at != sim.captures.end() ? &at->second : nullptr;
}

bool cudasim::is_captured(const CUstream_st *s)
{
    return s->capture != 0;
}

static capture_t *of_this_thread()
{
    for (auto &c : sim.captures) {
        if (c.second.thread == std::this_thread::get_id()) {
            return &c.second;
        }
    }
    return nullptr;
}

bool cudasim::breaks_capture(const CUstream_st *s)
{
    capture_t *c = s != nullptr ? live_capture(s->capture) : of_this_thread();
    if (c != nullptr) {
        c->broken = true;
    }
    return c != nullptr;
}

bool cudasim::keep(CUstream_st *s, const maker_t &make, bool again)
{
    capture_t *c = live_capture(s->capture);
    if (c == nullptr && s->blocking && of_this_thread() != nullptr) {
        report("%s is used while another is captured",
               s->null ? "the default stream" : "a blocking stream");
        fail(cudaErrorStreamCaptureImplicit);
        return breaks_capture(nullptr);
    }
    if (c == nullptr) {
        return false;
    }
    check_launching(s);
    c->graph->nodes.push_back({make, s->tail, again});
    s->tail = {c->graph->nodes.size() - 1};
    return true;
}

void cudasim::keep_record(CUevent_st *event, const CUstream_st *s)
{
    event->capture = s->capture;
    event->tail = s->tail;
}

cudaError_t cudasim::keep_wait(CUstream_st *s, const CUevent_st *event)
{
    capture_t *c = live_capture(event->capture);
    if (c == nullptr && event->capture != 0) {
        report("waits for an event of a capture that is over");
        breaks_capture(s);
        return cudaErrorCapturedEvent;
    }
    if (c == nullptr || (s->capture != 0 && s->capture != event->capture)) {
        report("a captured stream waits for an event outside of its capture");
        breaks_capture(s);
        return c == nullptr ? cudaErrorStreamCaptureIsolation
                            : cudaErrorStreamCaptureMerge;
    }
    if (s->blocking) {
        report("a blocking stream joins a capture");
        c->broken = true;
        return cudaErrorStreamCaptureImplicit;
    }
    s->capture = event->capture;
    s->tail.insert(event->tail.begin(), event->tail.end());
    return cudaSuccess;
}

// ---- begin and end ----------------------------------------------------------

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                              enum cudaStreamCaptureMode mode)
{
    ENTER("cudaStreamBeginCapture");
    NEED(stream != nullptr && known(stream) && !stream->blocking,
         cudaErrorStreamCaptureUnsupported,
         "cudaStreamBeginCapture: the default stream, or a blocking one");
    NEED(stream->capture == 0 && of_this_thread() == nullptr &&
             mode == cudaStreamCaptureModeThreadLocal,
         cudaErrorIllegalState, "cudaStreamBeginCapture: mode %d, or a "
         "capture within another", (int)mode);
    uint64_t id = ++sim.last_capture;
    sim.captures[id] = {stream, std::this_thread::get_id(), new CUgraph_st,
                        false};
    stream->capture = id;
    stream->tail.clear();
    return cudaSuccess;
}

// All that the nodes of `from` come behind, and these.
static std::set<size_t> reach(const CUgraph_st *g, const std::set<size_t> &from)
{
    std::set<size_t> seen;
    std::vector<size_t> left(from.begin(), from.end());
    while (!left.empty()) {
        size_t n = left.back();
        left.pop_back();
        if (seen.insert(n).second) {
            left.insert(left.end(), g->nodes[n].needs.begin(),
                        g->nodes[n].needs.end());
        }
    }
    return seen;
}

// What was captured, and no stream is any more.
static capture_t end_capture(uint64_t id)
{
    capture_t c = sim.captures[id];
    for (CUstream_st *s : sim.streams) {
        if (s->capture == id) {
            s->capture = 0;
            s->tail.clear();
        }
    }
    sim.captures.erase(id);
    return c;
}

// A capture is over even if its end fails.
extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream,
                                            cudaGraph_t *graph)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    cudaError_t entered = enter("cudaStreamEndCapture");
    *graph = nullptr;
    NEED(stream != nullptr && known(stream) && stream->capture != 0,
         cudaErrorIllegalState, "cudaStreamEndCapture: nothing is captured");
    const capture_t &begun = sim.captures[stream->capture];
    NEED(begun.origin == stream, cudaErrorStreamCaptureUnmatched,
         "cudaStreamEndCapture: of another stream than it began on");
    NEED(begun.thread == std::this_thread::get_id(),
         cudaErrorStreamCaptureWrongThread,
         "cudaStreamEndCapture: on another thread than it began on");
    check_launching(stream);
    size_t all = begun.graph->nodes.size();
    size_t joined = reach(begun.graph, stream->tail).size();
    capture_t c = end_capture(stream->capture);
    if (entered != cudaSuccess || c.broken || joined < all) {
        delete c.graph;
    }
    if (entered != cudaSuccess) {
        return fail(entered);
    }
    NEED(!c.broken, cudaErrorStreamCaptureInvalidated,
         "cudaStreamEndCapture: something forbidden was called");
    NEED(joined == all, cudaErrorStreamCaptureUnjoined,
         "cudaStreamEndCapture: %zu of %zu pieces are not joined",
         all - joined, all);
    sim.graphs.insert(c.graph);
    *graph = c.graph;
    return cudaSuccess;
}

// ---- graphs -----------------------------------------------------------------

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph,
                                         cudaGraphNode_t *nodes,
                                         size_t *count)
{
    ENTER("cudaGraphGetNodes");
    NEED(sim.graphs.count(graph) > 0 && nodes == nullptr,
         cudaErrorInvalidValue, "cudaGraphGetNodes: unknown graph");
    *count = graph->nodes.size();
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ENTER("cudaGraphDestroy");
    NEED(sim.graphs.erase(graph) > 0, cudaErrorInvalidValue,
         "cudaGraphDestroy: unknown graph");
    delete graph;
    return cudaSuccess;
}

size_t cudasim::graph_bytes(int device)
{
    size_t bytes = 0;
    for (const CUgraphExec_st *e : sim.execs) {
        bytes += e->device == device ? e->nodes->size() * BYTES_OF_NODE : 0;
    }
    return bytes;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec,
                                            cudaGraph_t graph,
                                            unsigned long long flags)
{
    ENTER_IDLE("cudaGraphInstantiate");
    NEED(sim.graphs.count(graph) > 0 && flags == 0, cudaErrorInvalidValue,
         "cudaGraphInstantiate: unknown graph or flag");
    size_t bytes = graph->nodes.size() * BYTES_OF_NODE;
    NEED(used_bytes(current_device) + graph_bytes(current_device) + bytes <=
             sim.bytes,
         cudaErrorMemoryAllocation, "cudaGraphInstantiate: %zu bytes", bytes);
    *exec = new CUgraphExec_st{
        std::make_shared<std::vector<node_t>>(graph->nodes), current_device};
    sim.execs.insert(*exec);
    return cudaSuccess;
}

// A launch that is under way keeps what it needs.
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ENTER("cudaGraphExecDestroy");
    NEED(sim.execs.erase(exec) > 0, cudaErrorInvalidValue,
         "cudaGraphExecDestroy: unknown graph");
    delete exec;
    return cudaSuccess;
}

// ---- replay -----------------------------------------------------------------

namespace {

struct replay_t {
    std::shared_ptr<std::vector<node_t>> nodes;
    std::vector<std::function<cudaError_t()>> run;
    std::vector<bool> done;
    size_t left;

    bool ready(size_t i) const
    {
        bool met = !done[i];
        for (size_t need : (*nodes)[i].needs) {
            met = met && done[need];
        }
        return met;
    }

    // A random piece that may run and has not said that it cannot.
    size_t choose(const std::set<size_t> &stuck) const
    {
        size_t chosen = run.size();
        uint64_t seen = 0;
        for (size_t i = 0; i < run.size(); i++) {
            if (ready(i) && stuck.count(i) == 0 && below(++seen) == 0) {
                chosen = i;
            }
        }
        return chosen;
    }

    // NotReady: others have to go on first, or may.
    cudaError_t advance()
    {
        std::set<size_t> stuck;
        while (left > 0) {
            size_t i = choose(stuck);
            if (i == run.size()) {
                return cudaErrorNotReady;
            }
            cudaError_t error = run[i]();
            if (error == cudaErrorNotReady && (*nodes)[i].again) {
                stuck.insert(i);
                continue;
            }
            if (error != cudaSuccess) {
                return error;
            }
            done[i] = true;
            left--;
            if (below(YIELD) == 0) {
                return left > 0 ? cudaErrorNotReady : cudaSuccess;
            }
        }
        return cudaSuccess;
    }
};

} // namespace

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec,
                                       cudaStream_t stream)
{
    ENTER("cudaGraphLaunch");
    CUstream_st *s = stream_of(stream);
    NEED(sim.execs.count(exec) > 0 && known(s), cudaErrorInvalidValue,
         "cudaGraphLaunch: unknown graph or stream");
    NEED(!is_captured(s) || !breaks_capture(s),
         cudaErrorStreamCaptureUnsupported,
         "cudaGraphLaunch on a stream that is captured");
    NEED(exec->device == s->device, cudaErrorInvalidValue,
         "cudaGraphLaunch: of device %d on device %d", exec->device,
         s->device);
    if (sim.kill_at > 0 && --sim.kill_at == 0) {
        raise(SIGKILL);
    }
    auto nodes = exec->nodes;
    enqueue_again(s, [nodes]() -> std::function<cudaError_t()> {
        auto r = std::make_shared<replay_t>();
        r->nodes = nodes;
        for (const node_t &n : *nodes) {
            r->run.push_back(n.make());
        }
        r->left = nodes->size();
        r->done.assign(r->left, false);
        return [r] { return r->advance(); };
    });
    return cudaSuccess;
}

// ---- control ----------------------------------------------------------------

void cudasim::forget_graphs()
{
    for (auto &c : sim.captures) {
        delete c.second.graph;
    }
    for (CUgraph_st *g : sim.graphs) {
        delete g;
    }
    for (CUgraphExec_st *e : sim.execs) {
        delete e;
    }
    sim.captures.clear();
    sim.graphs.clear();
    sim.execs.clear();
}

int64_t cudasim::alive_graphs()
{
    return (int64_t)(sim.captures.size() + sim.graphs.size() +
                     sim.execs.size());
}
