// SPDX-License-Identifier: Apache-2.0
//
// Calls of NCCL between simulated devices, of threads or of processes of one
// machine. An operation is a piece of its stream that is tried again until the
// other ranks have done their part (nccl_run.cc); meanwhile a thread of the
// simulator lets the streams of this process go on, as a device does whose host
// waits for something else. Ranks that call different things hang, as in NCCL.
// Communicators do not block: a thread of its own launches what a group has,
// and until it has, the stream is its.
#include "nccl_sim.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace cudasim;

// A call in a graph: of what is captured, of what was made of it, and of each
// launch that is under way.
struct hold_t {
    ncclComm *comm;
    explicit hold_t(ncclComm *c) : comm(c) { comm->held++; }
    ~hold_t() { comm->held--; }
    hold_t(const hold_t &) = delete;
    hold_t &operator=(const hold_t &) = delete;
};

// ---- the simulator's own thread ---------------------------------------------

static std::mutex life;
static int users;
static std::atomic<bool> over;
static std::thread *helper;

static void help()
{
    while (!over) {
        {
            std::lock_guard<std::recursive_mutex> guard(sim.mutex);
            step_any();
        }
        usleep(50);
    }
}

static void use(int change)
{
    std::lock_guard<std::mutex> guard(life);
    users += change;
    if (change > 0 && users == 1) {
        over = false;
        helper = new std::thread(help);
    } else if (users == 0) {
        over = true;
        helper->join();
        delete helper;
    }
}

// ---- groups -----------------------------------------------------------------

static thread_local int depth;
static thread_local std::vector<op_t> group;
static thread_local std::vector<ncclComm *> given_up; // in the group

// One message to a peer, or from it, is behind the other.
static bool is_behind(const std::vector<op_t> &ops, const op_t &o)
{
    for (const op_t *p = ops.data(); p < &o && o.kind >= SEND; p++) {
        if (p->kind == o.kind && p->peer == o.peer && !p->done) {
            return true;
        }
    }
    return false;
}

static cudaError_t advance(std::vector<op_t> &ops)
{
    bool complete = true;
    for (op_t &o : ops) {
        if (o.comm->aborted) {
            break;
        }
        bool done = o.done ||
                    (sim.cut.count(o.comm->device) == 0 && !is_behind(ops, o) &&
                     (o.kind >= SEND ? advance_message(o)
                                     : advance_collective(o)));
        o.done = done;
        complete = complete && done;
        if (!done && o.kind < SEND) {
            break; // in order
        }
    }
    complete = complete || ops.front().comm->aborted;
    ops.front().comm->under_way -= complete;
    return complete ? cudaSuccess : cudaErrorNotReady;
}

// NCCL would have the memory of captured calls registered.
static bool registered(const CUstream_st *s, const void *end)
{
    const char *wanted = getenv("NCCL_GRAPH_REGISTER");
    bool on = wanted == nullptr || strcmp(wanted, "0") != 0;
    if (on && is_captured(s) && is_pooled(end)) {
        report("NCCL: memory of a pool cannot be registered");
        return false;
    }
    return true;
}

static ncclResult_t submit(const std::vector<op_t> &ops)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    if (enter("nccl") != cudaSuccess) {
        return ncclUnhandledCudaError;
    }
    CUstream_st *s = stream_of(ops.front().stream);
    if (!known(s)) {
        report("NCCL: unknown stream");
        return ncclInvalidArgument;
    }
    for (const op_t &o : ops) {
        size_t size = size_of(o.type);
        size_t n = o.kind == ALL_GATHER ? o.count * (size_t)o.comm->size
                                        : o.count;
        const void *end = o.kind == SEND ? o.send : o.receive;
        if (!is_device(end) || !range_ok(end, n * size)) {
            report("NCCL: %zu bytes of %s", n * size, where((uintptr_t)end));
            return ncclInvalidArgument;
        }
        if (!registered(s, end)) {
            return ncclUnhandledCudaError;
        }
    }
    auto hold = is_captured(s)
                    ? std::make_shared<hold_t>(ops.front().comm)
                    : std::shared_ptr<hold_t>();
    int device = s->device;
    enqueue_again(s, [ops, hold, device]() -> std::function<cudaError_t()> {
        auto own = std::make_shared<std::vector<op_t>>(ops);
        own->front().comm->under_way++;
        sim.communicates[device]++;
        return [own, device] {
            cudaError_t error = advance(*own);
            sim.communicates[device] -= error == cudaSuccess;
            return error;
        };
    });
    return ncclSuccess;
}

thread_local bool cudasim::launches;

void cudasim::check_launching(const CUstream_st *s)
{
    if (!launches && sim.launching.count(s) > 0) {
        report("a stream is used before NCCL has launched its call there");
    }
}

// Launches the group's calls, as said above.
static ncclResult_t launch()
{
    enum { LATE = 50000 }; // microseconds
    const std::vector<op_t> ops = group;
    group.clear();
    if (ops.empty()) {
        return ncclSuccess;
    }
    ncclComm *c = ops.front().comm;
    const CUstream_st *s = ops.front().stream;
    if (c->launching.exchange(true)) {
        report("NCCL: a call before the last one is launched");
        return ncclInvalidUsage;
    }
    bool late = false;
    {
        std::lock_guard<std::recursive_mutex> guard(sim.mutex);
        sim.launching.insert(s);
        late = plant_launch();
    }
    std::thread([ops, c, s, late] {
        current_device = c->device;
        launches = true;
        usleep(late ? LATE : 0);
        ncclResult_t result = submit(ops);
        std::lock_guard<std::recursive_mutex> guard(sim.mutex);
        sim.launching.erase(s);
        c->launched = result;
        c->launching = false;
    }).detach();
    return late ? ncclSuccess : ncclInProgress;
}

static ncclResult_t add(const op_t &o)
{
    group.push_back(o);
    return depth > 0 ? ncclSuccess : launch();
}

extern "C" ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

static ncclResult_t reclaim();

extern "C" ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = --depth > 0 ? ncclSuccess : launch();
    return depth > 0 || result != ncclSuccess ? result : reclaim();
}

#define OP(kind_, send_, receive_, op_, peer_)                                \
    add({kind_, static_cast<const char *>(send_),                             \
         static_cast<char *>(receive_), count, type, op_, peer_, comm,        \
         stream, 0, false, false})

extern "C" ncclResult_t ncclAllReduce(const void *send, void *receive,
                                      size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, ncclComm_t comm,
                                      ncclStream_t stream)
{
    return OP(ALL_REDUCE, send, receive, op, 0);
}

extern "C" ncclResult_t ncclReduce(const void *send, void *receive,
                                   size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, int root, ncclComm_t comm,
                                   ncclStream_t stream)
{
    return OP(REDUCE, send, receive, op, root);
}

extern "C" ncclResult_t ncclReduceScatter(const void *send, void *receive,
                                          size_t count, ncclDataType_t type,
                                          ncclRedOp_t op, ncclComm_t comm,
                                          ncclStream_t stream)
{
    return OP(REDUCE_SCATTER, send, receive, op, 0);
}

extern "C" ncclResult_t ncclAllGather(const void *send, void *receive,
                                      size_t count, ncclDataType_t type,
                                      ncclComm_t comm, ncclStream_t stream)
{
    return OP(ALL_GATHER, send, receive, ncclSum, 0);
}

extern "C" ncclResult_t ncclBroadcast(const void *send, void *receive,
                                      size_t count, ncclDataType_t type,
                                      int root, ncclComm_t comm,
                                      ncclStream_t stream)
{
    return OP(BROADCAST, send, receive, ncclSum, root);
}

extern "C" ncclResult_t ncclSend(const void *send, size_t count,
                                 ncclDataType_t type, int peer,
                                 ncclComm_t comm, ncclStream_t stream)
{
    return OP(SEND, send, nullptr, ncclSum, peer);
}

extern "C" ncclResult_t ncclRecv(void *receive, size_t count,
                                 ncclDataType_t type, int peer,
                                 ncclComm_t comm, ncclStream_t stream)
{
    return OP(RECV, nullptr, receive, ncclSum, peer);
}

// ---- communicators ----------------------------------------------------------

extern "C" const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess              ? "no error"
           : result == ncclUnhandledCudaError ? "unhandled cuda error"
           : result == ncclInvalidArgument    ? "invalid argument"
           : result == ncclInProgress         ? "in progress"
                                              : "internal error";
}

extern "C" ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<int> made;
    memset(id, 0, sizeof(*id));
    snprintf(id->internal, sizeof(id->internal), "/cudasim_%d_%d",
             (int)getpid(), ++made);
    return ncclSuccess;
}

extern "C" ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size,
                                               ncclUniqueId id, int rank,
                                               ncclConfig_t *config)
{
    if (size > RANKS || rank < 0 || rank >= size ||
        config->magic != LOONG_NCCL_MAGIC || config->blocking != 0 ||
        config->size < sizeof(*config) || config->minCTAs == 0 ||
        config->maxCTAs == 0) {
        report("NCCL: rank %d of %d, at most %d ranks", rank, size,
               (int)RANKS);
        return ncclInvalidArgument;
    }
    int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(table_t)) != 0) {
        return ncclSystemError;
    }
    void *map = mmap(nullptr, sizeof(table_t), PROT_READ | PROT_WRITE,
                     MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED) {
        return ncclSystemError;
    }
    ncclComm *c = new ncclComm{rank, size, current_device,
                               static_cast<table_t *>(map), {}, {false}, {0},
                               {0}, {false}, {ncclSuccess}};
    memcpy(c->name, id.internal, sizeof(c->name) - 1);
    if (++c->table->joined == size) {
        shm_unlink(c->name);
    }
    use(1);
    *comm = c;
    return ncclInProgress;
}

extern "C" ncclResult_t ncclCommGetAsyncError(ncclComm_t comm,
                                              ncclResult_t *error)
{
    *error = comm->table->joined < comm->size || comm->launching
                 ? ncclInProgress
                 : comm->launched.load();
    return ncclSuccess;
}

static double patience = 10.0;

extern "C" void cudasim_patience(double seconds)
{
    patience = seconds;
}

// As NCCL 2.30 does: who gives a communicator back waits until no graph holds a
// call of it, and no launch of one is under way.
static bool let_go(const ncclComm *comm, const char *call)
{
    enum { NAP = 100 }; // microseconds
    while (comm->launching) {
        usleep(NAP);
    }
    for (double waited = 0.0; comm->held > 0; waited += 1e-6 * NAP) {
        if (waited > patience) {
            std::lock_guard<std::recursive_mutex> guard(sim.mutex);
            report("%s: rank %d of %d waits for ever: graphs hold %d calls "
                   "of the communicator", call, comm->rank, comm->size,
                   comm->held.load());
            return false;
        }
        usleep(NAP);
    }
    return true;
}

static void end(const ncclComm *comm)
{
    if (comm->table->joined < comm->size) {
        shm_unlink(comm->name);
    }
    use(-1);
}

extern "C" ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (comm->under_way > 0) {
        report("ncclCommDestroy: %d operations are under way",
               comm->under_way.load());
    }
    bool whole = let_go(comm, "ncclCommDestroy");
    end(comm);
    if (whole) {
        munmap(comm->table, sizeof(table_t));
        delete comm;
    }
    return whole ? ncclSuccess : ncclInternalError;
}

// Those of a group are all told to end before one is waited for.
static ncclResult_t reclaim()
{
    const std::vector<ncclComm *> comms = given_up;
    ncclResult_t result = ncclSuccess;
    given_up.clear();
    for (const ncclComm *c : comms) {
        result = let_go(c, "ncclCommAbort") ? result : ncclInternalError;
    }
    for (const ncclComm *c : comms) {
        end(c);
    }
    return result;
}

// Operations on streams know it still: they are given up there.
extern "C" ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->aborted = true;
    given_up.push_back(comm);
    return depth > 0 ? ncclSuccess : reclaim();
}

extern "C" ncclResult_t ncclGetVersion(int *version)
{
    *version = LOONG_NCCL_LEAST;
    return ncclSuccess;
}
