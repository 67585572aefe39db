// SPDX-License-Identifier: Apache-2.0
//
// NCCL between simulated devices, of threads or of processes of one machine:
// through memory that they share, chunk by chunk. An operation is a piece of
// its stream that is tried again until the other ranks have done their part;
// meanwhile a thread of the simulator lets the streams of this process go on,
// as a device does whose host waits for something else. Ranks that call
// different things hang, as in NCCL.
#include "nccl_abi.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "sim.h"

using namespace cudasim;

enum { RANKS = 8, CHUNK = 32 * 1024, BOX = 4 * 1024 };

// What one rank shows the others.
struct desk_t {
    std::atomic<uint64_t> posted, done; // chunks
    std::atomic<uint64_t> what;         // that is posted
    char data[CHUNK];
};

// From one rank to another.
struct box_t {
    std::atomic<uint64_t> sent, taken;
    std::atomic<uint64_t> bytes; // of the whole message
    char data[BOX];
};

struct table_t {
    std::atomic<int> joined;
    desk_t desk[RANKS];
    box_t box[RANKS][RANKS];
};

struct ncclComm {
    int rank, size;
    table_t *table;
    char name[64];
    std::atomic<bool> aborted;
    std::atomic<int> under_way;
    std::atomic<int> held; // calls of it in graphs that are alive
};

// A call in a graph: of what is captured, of what was made of it, and of each
// launch that is under way.
struct hold_t {
    ncclComm *comm;
    explicit hold_t(ncclComm *c) : comm(c) { comm->held++; }
    ~hold_t() { comm->held--; }
    hold_t(const hold_t &) = delete;
    hold_t &operator=(const hold_t &) = delete;
};

enum verb_t { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND,
              RECV };

struct op_t {
    verb_t kind;
    const char *send;
    char *receive;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; // or root
    ncclComm *comm;
    cudaStream_t stream;
    size_t at;
    bool posted;
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

// ---- numbers ----------------------------------------------------------------

static size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
    }
}

template <class T> static T combine(T a, T b, ncclRedOp_t op)
{
    return op == ncclSum ? (T)(a + b) : op == ncclMax ? (a > b ? a : b)
                                                      : (a < b ? a : b);
}

template <class T>
static void fold(const ncclComm *c, char *out, size_t n, size_t from,
                 ncclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        T sum;
        memcpy(&sum, c->table->desk[0].data + (from + i) * sizeof(T),
               sizeof(T));
        for (int r = 1; r < c->size; r++) {
            T x;
            memcpy(&x, c->table->desk[r].data + (from + i) * sizeof(T),
                   sizeof(T));
            sum = combine(sum, x, op);
        }
        memcpy(out + i * sizeof(T), &sum, sizeof(T));
    }
}

static float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint16_t narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits += 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)(bits >> 16);
}

static void fold_bf16(const ncclComm *c, char *out, size_t n, size_t from,
                      ncclRedOp_t op)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int r = 0; r < c->size; r++) {
            uint16_t half;
            memcpy(&half, c->table->desk[r].data + 2 * (from + i), 2);
            sum = r == 0 ? widen(half) : combine(sum, widen(half), op);
        }
        uint16_t rounded = narrow(sum);
        memcpy(out + 2 * i, &rounded, 2);
    }
}

static void reduce(const op_t &o, char *out, size_t n, size_t from)
{
    switch (o.type) {
    case ncclFloat32: fold<float>(o.comm, out, n, from, o.op); break;
    case ncclFloat64: fold<double>(o.comm, out, n, from, o.op); break;
    case ncclInt64: fold<int64_t>(o.comm, out, n, from, o.op); break;
    case ncclInt32: fold<int32_t>(o.comm, out, n, from, o.op); break;
    case ncclBfloat16: fold_bf16(o.comm, out, n, from, o.op); break;
    default: fold<uint8_t>(o.comm, out, n, from, o.op); break;
    }
}

// ---- collectives ------------------------------------------------------------

static size_t elements(const op_t &o)
{
    return o.kind == REDUCE_SCATTER ? o.count * (size_t)o.comm->size : o.count;
}

static bool all(const op_t &o, bool done, uint64_t wanted)
{
    for (int r = 0; r < o.comm->size; r++) {
        const desk_t &d = o.comm->table->desk[r];
        if ((done ? d.done : d.posted) < wanted) {
            return false;
        }
    }
    return true;
}

static uint64_t what(const op_t &o)
{
    return ((uint64_t)o.kind << 56) ^ ((uint64_t)o.type << 48) ^
           ((uint64_t)o.peer << 40) ^ o.count;
}

static bool alike(const op_t &o)
{
    for (int r = 0; r < o.comm->size; r++) {
        if (o.comm->table->desk[r].what != what(o)) {
            return false;
        }
    }
    return true;
}

// Elements [at, at + n) are on every desk.
static void take(const op_t &o, size_t n)
{
    const ncclComm *c = o.comm;
    size_t size = size_of(o.type);
    size_t bytes = n * size;
    if (o.kind == ALL_REDUCE || (o.kind == REDUCE && o.peer == c->rank)) {
        reduce(o, o.receive + o.at * size, n, 0);
    } else if (o.kind == REDUCE_SCATTER) {
        size_t begin = o.count * (size_t)c->rank;
        size_t end = begin + o.count;
        size_t first = o.at > begin ? o.at : begin;
        size_t last = o.at + n < end ? o.at + n : end;
        if (first < last) {
            reduce(o, o.receive + (first - begin) * size, last - first,
                   first - o.at);
        }
    } else if (o.kind == ALL_GATHER) {
        for (int r = 0; r < c->size; r++) {
            memcpy(o.receive + ((size_t)r * o.count + o.at) * size,
                   c->table->desk[r].data, bytes);
        }
    } else if (o.kind == BROADCAST) {
        memcpy(o.receive + o.at * size, c->table->desk[o.peer].data, bytes);
    }
}

// True: complete.
static bool advance_collective(op_t &o)
{
    desk_t &own = o.comm->table->desk[o.comm->rank];
    size_t size = size_of(o.type);
    while (o.at < elements(o)) {
        size_t n = CHUNK / size;
        n = n < elements(o) - o.at ? n : elements(o) - o.at;
        if (!o.posted) {
            uint64_t next = own.posted + 1;
            if (!all(o, true, next - 1)) {
                return false;
            }
            if (o.kind != BROADCAST || o.peer == o.comm->rank) {
                memcpy(own.data, o.send + o.at * size, n * size);
            }
            own.what = what(o);
            own.posted = next;
            o.posted = true;
        }
        if (!all(o, false, own.posted) || !alike(o)) {
            return false;
        }
        take(o, n);
        o.at += n;
        o.posted = false;
        own.done = own.posted.load();
    }
    return true;
}

// ---- messages ---------------------------------------------------------------

static bool advance_message(op_t &o)
{
    ncclComm *c = o.comm;
    box_t &box = o.kind == SEND ? c->table->box[c->rank][o.peer]
                                : c->table->box[o.peer][c->rank];
    size_t bytes = o.count * size_of(o.type);
    while (o.at < bytes) {
        size_t n = bytes - o.at < (size_t)BOX ? bytes - o.at : (size_t)BOX;
        if ((o.kind == SEND) != (box.sent == box.taken)) {
            return false; // full, or empty
        }
        if (o.kind == SEND) {
            memcpy(box.data, o.send + o.at, n);
            box.bytes = bytes;
            box.sent++;
        } else if (box.bytes != bytes) {
            return false;
        } else {
            memcpy(o.receive + o.at, box.data, n);
            box.taken++;
        }
        o.at += n;
    }
    // Who sends may not count on room elsewhere.
    return o.kind == RECV || box.sent == box.taken;
}

// ---- groups -----------------------------------------------------------------

static thread_local int depth;
static thread_local std::vector<op_t> group;
static thread_local std::vector<ncclComm *> given_up; // in the group

static cudaError_t advance(std::vector<op_t> &ops)
{
    bool complete = true;
    for (op_t &o : ops) {
        if (o.comm->aborted) {
            break;
        }
        bool done =
            o.kind >= SEND ? advance_message(o) : advance_collective(o);
        complete = complete && done;
        if (!done && o.kind < SEND) {
            break; // in order
        }
    }
    complete = complete || ops.front().comm->aborted;
    ops.front().comm->under_way -= complete;
    return complete ? cudaSuccess : cudaErrorNotReady;
}

static ncclResult_t submit()
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    const std::vector<op_t> ops = group;
    group.clear();
    if (ops.empty()) {
        return ncclSuccess;
    }
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

static ncclResult_t add(const op_t &o)
{
    group.push_back(o);
    return depth > 0 ? ncclSuccess : submit();
}

extern "C" ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

static ncclResult_t reclaim();

extern "C" ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result = --depth > 0 ? ncclSuccess : submit();
    return depth > 0 || result != ncclSuccess ? result : reclaim();
}

#define OP(kind_, send_, receive_, op_, peer_)                                \
    add({kind_, static_cast<const char *>(send_),                             \
         static_cast<char *>(receive_), count, type, op_, peer_, comm,        \
         stream, 0, false})

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
        config->magic != LOONG_NCCL_MAGIC || config->blocking != 0) {
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
    ncclComm *c = new ncclComm{rank, size, static_cast<table_t *>(map), {},
                               {false}, {0}, {0}};
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
    *error =
        comm->table->joined < comm->size ? ncclInProgress : ncclSuccess;
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
