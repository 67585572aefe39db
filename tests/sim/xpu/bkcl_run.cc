// SPDX-License-Identifier: Apache-2.0
//
// What operations of simulated BKCL do: a rank shows a chunk of its numbers on
// its desk, and takes what it needs of the others'; messages go through boxes.
#include "bkcl_operation.h"

#include <cstdio>
#include <cstring>

using namespace bkclsim;

const char *const bkclsim::verbs[] = {
    "all_reduce", "reduce",       "reduce_scatter", "all_gather",
    "broadcast",  "all_to_all_v", "send",           "recv"};

size_t bkclsim::size_of(int type)
{
    switch (type) {
    case BKCLSIM_UINT8:
        return 1;
    case BKCLSIM_FLOAT16:
    case BKCLSIM_BFLOAT16:
        return 2;
    case BKCLSIM_INT32:
    case BKCLSIM_FLOAT:
        return 4;
    case BKCLSIM_INT64:
    case BKCLSIM_FLOAT64:
        return 8;
    default:
        return 0;
    }
}

namespace
{

// ---- numbers ----------------------------------------------------------------

float widen(uint16_t bits, int type)
{
    float value;
    if (type == BKCLSIM_BFLOAT16) {
        uint32_t wide = (uint32_t)bits << 16;
        memcpy(&value, &wide, sizeof(value));
        return value;
    }
    _Float16 half;
    memcpy(&half, &bits, sizeof(half));
    return (float)half;
}

uint16_t narrow(float value, int type)
{
    uint16_t bits;
    if (type == BKCLSIM_BFLOAT16) {
        uint32_t wide;
        memcpy(&wide, &value, sizeof(wide));
        return (uint16_t)((wide + 0x7fffu + (wide >> 16 & 1u)) >> 16);
    }
    _Float16 half = (_Float16)value;
    memcpy(&bits, &half, sizeof(bits));
    return bits;
}

template <class T> T combine(T a, T b, int op)
{
    return op == BKCLSIM_ADD   ? (T)(a + b)
           : op == BKCLSIM_MAX ? (a > b ? a : b)
                               : (a < b ? a : b);
}

// n elements of every rank, in the order of ranks: the real one is not known.
template <class T> void fold(const communicator *c, char *out, size_t n, int op)
{
    for (size_t i = 0; i < n; i++) {
        T sum;
        memcpy(&sum, c->shared->desks[0].data + i * sizeof(T), sizeof(T));
        for (int r = 1; r < c->size; r++) {
            T x;
            memcpy(&x, c->shared->desks[r].data + i * sizeof(T), sizeof(T));
            sum = combine(sum, x, op);
        }
        memcpy(out + i * sizeof(T), &sum, sizeof(T));
    }
}

void fold_half(const communicator *c, char *out, size_t n, int op, int type)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int r = 0; r < c->size; r++) {
            uint16_t bits;
            memcpy(&bits, c->shared->desks[r].data + 2 * i, 2);
            float x = widen(bits, type);
            sum = r == 0 ? x : combine(sum, x, op);
        }
        uint16_t rounded = narrow(sum, type);
        memcpy(out + 2 * i, &rounded, 2);
    }
}

void reduce(const operation &o, char *out, size_t n)
{
    switch (o.type) {
    case BKCLSIM_UINT8:
        fold<uint8_t>(o.comm, out, n, o.op);
        break;
    case BKCLSIM_INT32:
        fold<int32_t>(o.comm, out, n, o.op);
        break;
    case BKCLSIM_INT64:
        fold<int64_t>(o.comm, out, n, o.op);
        break;
    case BKCLSIM_FLOAT:
        fold<float>(o.comm, out, n, o.op);
        break;
    case BKCLSIM_FLOAT64:
        fold<double>(o.comm, out, n, o.op);
        break;
    default:
        fold_half(o.comm, out, n, o.op, o.type);
        break;
    }
}

// ---- meeting ----------------------------------------------------------------

uint64_t hash_of(const operation &o)
{
    uint64_t words[] = {(uint64_t)o.kind, o.kind == EXCHANGE ? 0 : o.count,
                        (uint64_t)o.type, (uint64_t)o.op, (uint64_t)o.peer};
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t w : words) {
        hash = (hash ^ w) * 0x100000001b3;
    }
    return hash;
}

bool show(const operation &o, const char *from, size_t bytes)
{
    communicator *c = o.comm;
    desk &own = c->shared->desks[c->rank];
    for (int r = 0; r < c->size; r++) { // who still reads the last one
        desk &other = c->shared->desks[r];
        if (!until(c, [&] { return other.done >= own.posted; })) {
            return false;
        }
    }
    if (bytes > 0) {
        memcpy(own.data, from, bytes);
    }
    snprintf(own.text, sizeof(own.text),
             "%s of %zu elements, type %d, operation %d, root %d",
             verbs[o.kind], o.count, o.type, o.op, o.peer);
    own.what = hash_of(o);
    own.posted++;
    return true;
}

// All have shown theirs, and it is the same.
bool meet(const operation &o)
{
    communicator *c = o.comm;
    desk &own = c->shared->desks[c->rank];
    for (int r = 0; r < c->size; r++) {
        desk &other = c->shared->desks[r];
        if (!until(c, [&] { return other.posted >= own.posted; })) {
            return false;
        }
        if (other.what != own.what) {
            xpusim_found("BKCL: rank %d calls %s, rank %d calls %s", c->rank,
                         own.text, r, other.text);
            return until(c, [] { return false; });
        }
    }
    return true;
}

void leave(const operation &o)
{
    desk &own = o.comm->shared->desks[o.comm->rank];
    own.done = own.posted.load();
}

// ---- collectives ------------------------------------------------------------

// What rank r's piece or the whole is made of, n elements from `at` on.
bool step(const operation &o, const char *from, char *to, size_t at, size_t n)
{
    size_t size = size_of(o.type);
    const communicator *c = o.comm;
    bool shows = o.kind != BROADCAST || o.peer == c->rank;
    if (!show(o, from != nullptr ? from + at * size : nullptr,
              shows ? n * size : 0) ||
        !meet(o)) {
        return false;
    }
    if (o.kind == BROADCAST) {
        memcpy(to + at * size, c->shared->desks[o.peer].data, n * size);
    } else if (o.kind != REDUCE || o.peer == c->rank) {
        reduce(o, to + at * size, n);
    }
    leave(o);
    return true;
}

bool in_chunks(const operation &o, const char *from, char *to)
{
    size_t most = CHUNK / size_of(o.type);
    bool goes_on = true;
    for (size_t at = 0; at < o.count && goes_on; at += most) {
        goes_on =
            step(o, from, to, at, o.count - at < most ? o.count - at : most);
    }
    return goes_on;
}

// As so many reductions to one rank each.
bool reduce_scatter(const operation &o, const char *from, char *to)
{
    bool goes_on = true;
    size_t bytes = o.count * size_of(o.type);
    for (int r = 0; r < o.comm->size && goes_on; r++) {
        operation one = o;
        one.kind = REDUCE;
        one.peer = r;
        goes_on = in_chunks(one, from + (size_t)r * bytes, to);
    }
    return goes_on;
}

bool all_gather(const operation &o, const char *from, char *to)
{
    bool goes_on = true;
    size_t bytes = o.count * size_of(o.type);
    for (int r = 0; r < o.comm->size && goes_on; r++) {
        operation one = o;
        one.kind = BROADCAST;
        one.peer = r;
        goes_on = in_chunks(one, from, to + (size_t)r * bytes);
    }
    return goes_on;
}

// ---- messages ---------------------------------------------------------------

bool send(communicator *c, int peer, const char *from, size_t bytes)
{
    box &b = c->shared->boxes[c->rank][peer];
    for (size_t at = 0; at < bytes; at += BOX) {
        size_t n = bytes - at < (size_t)BOX ? bytes - at : (size_t)BOX;
        if (!until(c, [&] { return b.sent == b.taken; })) {
            return false;
        }
        memcpy(b.data, from + at, n);
        b.bytes = bytes;
        b.sent++;
    }
    // Who sends may not count on room elsewhere.
    return until(c, [&] { return b.sent == b.taken; });
}

bool receive(communicator *c, int peer, char *to, size_t bytes)
{
    box &b = c->shared->boxes[peer][c->rank];
    for (size_t at = 0; at < bytes; at += BOX) {
        size_t n = bytes - at < (size_t)BOX ? bytes - at : (size_t)BOX;
        if (!until(c, [&] { return b.sent > b.taken; })) {
            return false;
        }
        if (b.bytes != bytes) {
            xpusim_found("BKCL: a message of %zu bytes is received as one of "
                         "%zu",
                         (size_t)b.bytes, bytes);
            return until(c, [] { return false; });
        }
        memcpy(to + at, b.data, n);
        b.taken++;
    }
    return true;
}

// One rank sends to all, after the other.
bool exchange(const operation &o, const char *from, char *to)
{
    communicator *c = o.comm;
    const size_t *counts[4];
    size_t size = size_of(o.type);
    for (int k = 0; k < 4; k++) {
        counts[k] = static_cast<const size_t *>(xpusim_host(o.counts[k]));
    }
    if (!show(o, nullptr, 0) || !meet(o)) {
        return false;
    }
    bool goes_on = true;
    for (int r = 0; r < c->size && goes_on; r++) {
        const char *piece = from + counts[1][r] * size;
        if (r == c->rank) {
            memcpy(to + counts[3][r] * size, piece, counts[0][r] * size);
        }
        for (int k = 0; k < c->size && goes_on; k++) {
            const char *mine = from + counts[1][k] * size;
            if (r == c->rank && k != r) {
                goes_on = send(c, k, mine, counts[0][k] * size);
            } else if (k == c->rank && k != r) {
                goes_on = receive(c, r, to + counts[3][r] * size,
                                  counts[2][r] * size);
            }
        }
    }
    leave(o);
    return goes_on;
}

} // namespace

bool bkclsim::perform(const operation &o)
{
    const char *from = static_cast<const char *>(xpusim_host(o.send));
    char *to = static_cast<char *>(xpusim_host(o.receive));
    size_t bytes = o.count * size_of(o.type);
    switch (o.kind) {
    case REDUCE_SCATTER:
        return reduce_scatter(o, from, to);
    case ALL_GATHER:
        return all_gather(o, from, to);
    case EXCHANGE:
        return exchange(o, from, to);
    case SEND:
        return send(o.comm, o.peer, from, bytes);
    case RECEIVE:
        return receive(o.comm, o.peer, to, bytes);
    default:
        return in_chunks(o, from, to);
    }
}
