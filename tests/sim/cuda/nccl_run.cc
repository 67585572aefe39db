// SPDX-License-Identifier: Apache-2.0
//
// What operations of simulated NCCL do: a rank shows a chunk of its numbers on
// its desk, and takes what it needs of the others'; messages go through boxes.
#include <cstring>

#include "cudasim.h"
#include "nccl_sim.h"

using namespace cudasim;

// ---- numbers ----------------------------------------------------------------

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
bool cudasim::advance_collective(op_t &o)
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
        if (!all(o, false, own.posted) || !alike(o) ||
            sim.deaf.count(o.comm->device) > 0) {
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

bool cudasim::advance_message(op_t &o)
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

// ---- links that are cut -----------------------------------------------------

extern "C" void cudasim_cut(int device, int inwards)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    (inwards != 0 ? sim.deaf : sim.cut).insert(device);
}
