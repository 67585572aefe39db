// SPDX-License-Identifier: Apache-2.0
//
// BKCL between simulated devices, of threads or of processes of one machine. A
// call takes its turn on its stream, whose thread then does it with the other
// ranks (bkcl_run.cc). Ranks that call different things are told of, and wait
// for ever, as do those whose peers do not come: until the communicator is
// aborted. Types and operations have numbers that are nobody's (bkcl_sim.h),
// counts of an exchange lie on the device.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "bkcl_operation.h"

using namespace bkclsim;

namespace
{

enum { INVALID_ARGUMENT = 1, RUNTIME_ERROR = 2, SYSTEM_ERROR = 3 };

int run(void *data)
{
    std::vector<operation> *all = static_cast<std::vector<operation> *>(data);
    communicator *c = all->front().comm;
    // In a group messages of all directions go on together.
    for (int pass = 0; pass < c->size && !c->aborted; pass++) {
        for (const operation &o : *all) {
            bool is_message = o.kind == SEND || o.kind == RECEIVE;
            int low = o.kind == SEND ? c->rank : o.peer;
            if (is_message ? low == pass : pass == 0) {
                (void)perform(o);
            }
        }
    }
    c->under_way--;
    delete all;
    return 0;
}

thread_local int depth;
thread_local std::vector<std::pair<operation, void *>> group;

int refuse(int code, const char *who, const char *why)
{
    xpusim_found("bkcl_%s: %s", who, why);
    return xpusim_error(code);
}

int submit(const std::vector<operation> &ops, void *stream)
{
    ops.front().comm->under_way++;
    int error = xpusim_launch(stream, verbs[ops.front().kind], run,
                              new std::vector<operation>(ops));
    xpusim_go(stream);
    return error;
}

int check_counts(const operation &o, const char *who)
{
    size_t bytes = (size_t)o.comm->size * sizeof(size_t);
    for (const size_t *counts : o.counts) {
        if (xpusim_check(who, counts, bytes, o.comm->device) != 0) {
            return xpusim_error(INVALID_ARGUMENT);
        }
    }
    return 0;
}

int check(const operation &o, const char *who)
{
    size_t size = size_of(o.type);
    size_t ranks = (size_t)o.comm->size;
    bool reduces =
        o.kind == ALL_REDUCE || o.kind == REDUCE || o.kind == REDUCE_SCATTER;
    if (xpusim_deviates("bkcl_values")) {
        return xpusim_error(INVALID_ARGUMENT); /* a number of no type */
    }
    if (size == 0 || o.peer < 0 || o.peer >= o.comm->size ||
        (reduces && (o.op < BKCLSIM_ADD || o.op > BKCLSIM_MIN))) {
        return refuse(INVALID_ARGUMENT, who, "type, operation or rank");
    }
    if (xpusim_current() != o.comm->device) {
        return refuse(RUNTIME_ERROR, who, "another device is current");
    }
    if (o.kind == EXCHANGE) {
        return check_counts(o, who);
    }
    size_t in = o.count * size * (o.kind == REDUCE_SCATTER ? ranks : 1);
    size_t out = o.count * size * (o.kind == ALL_GATHER ? ranks : 1);
    if ((o.send != nullptr &&
         xpusim_check(who, o.send, in, o.comm->device) != 0) ||
        (o.receive != nullptr &&
         xpusim_check(who, o.receive, out, o.comm->device) != 0)) {
        return xpusim_error(INVALID_ARGUMENT);
    }
    return 0;
}

int add(const operation &o, void *stream)
{
    std::string who = std::string("bkcl_") + verbs[o.kind];
    if (int error = xpusim_enter(who.c_str())) {
        return error;
    }
    if (int error = check(o, verbs[o.kind])) {
        return error;
    }
    if (xpusim_device(stream) != o.comm->device) {
        return refuse(RUNTIME_ERROR, verbs[o.kind],
                      "a stream of another "
                      "device");
    }
    if (depth == 0) {
        return submit({o}, stream);
    }
    for (const auto &other : group) {
        if (other.first.kind == o.kind && other.first.peer == o.peer) {
            return refuse(INVALID_ARGUMENT, verbs[o.kind],
                          "two messages to one peer in a group");
        }
    }
    group.push_back({o, stream});
    return 0;
}

communicator *as(void *context)
{
    return static_cast<communicator *>(context);
}

} // namespace

#define BKCL_API extern "C" __attribute__((visibility("default")))

// ---- communicators ----------------------------------------------------------

BKCL_API int bkcl_get_unique_id(void *id)
{
    static std::atomic<int> made;
    memset(id, 0, BKCLSIM_ID_BYTES);
    snprintf(static_cast<char *>(id), BKCLSIM_ID_BYTES, "/xpusim_%d_%d",
             (int)getpid(), ++made);
    return xpusim_enter("bkcl_get_unique_id");
}

BKCL_API int bkcl_init_rank(void **context, int rank, int ranks, void *id)
{
    const char *name = static_cast<const char *>(id);
    if (int error = xpusim_enter("bkcl_init_rank")) {
        return error;
    }
    if (ranks > RANKS || rank < 0 || rank >= ranks) {
        return refuse(INVALID_ARGUMENT, "init_rank", "rank");
    }
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(table)) != 0) {
        return xpusim_error(SYSTEM_ERROR);
    }
    void *map = mmap(nullptr, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED,
                     file, 0);
    close(file);
    if (map == MAP_FAILED) {
        return xpusim_error(SYSTEM_ERROR);
    }
    communicator *c = new communicator{
        rank,    ranks, xpusim_current(), static_cast<table *>(map), name,
        {false}, {0}};
    if (++c->shared->joined == ranks) {
        shm_unlink(name);
    }
    (void)until(c, [&] { return c->shared->joined >= ranks; });
    *context = c;
    return 0;
}

BKCL_API int bkcl_destroy_context(void *context)
{
    communicator *c = as(context);
    if (c->under_way > 0) {
        xpusim_found("bkcl_destroy_context: %d operations are under way",
                     c->under_way.load());
        return xpusim_error(RUNTIME_ERROR);
    }
    munmap(c->shared, sizeof(table));
    delete c;
    return 0;
}

// Operations on streams know it still: they are given up there.
BKCL_API int bkcl_comm_abort(void *context)
{
    as(context)->aborted = true;
    return 0;
}

// ---- calls ------------------------------------------------------------------

BKCL_API int bkcl_group_start(void)
{
    depth++;
    return 0;
}

BKCL_API int bkcl_group_end(void)
{
    std::vector<operation> ops;
    if (--depth > 0 || group.empty()) {
        return 0;
    }
    void *stream = group.front().second;
    for (const auto &entry : group) {
        ops.push_back(entry.first);
    }
    group.clear();
    return submit(ops, stream);
}

static operation of(verb kind, void *context, const void *from, void *to,
                    size_t count, int type)
{
    operation o = {};
    o.kind = kind;
    o.comm = as(context);
    o.send = static_cast<const char *>(from);
    o.receive = static_cast<char *>(to);
    o.count = count;
    o.type = type;
    return o;
}

BKCL_API int bkcl_all_reduce(void *context, const void *from, void *to,
                             size_t count, int type, int op, void *stream)
{
    operation o = of(ALL_REDUCE, context, from, to, count, type);
    o.op = op;
    return add(o, stream);
}

BKCL_API int bkcl_reduce(void *context, const void *from, void *to,
                         size_t count, int type, int op, int root, void *stream)
{
    operation o = of(REDUCE, context, from, to, count, type);
    o.op = op;
    o.peer = root;
    return add(o, stream);
}

BKCL_API int bkcl_reduce_scatter(void *context, const void *from, void *to,
                                 size_t count, int type, int op, void *stream)
{
    operation o = of(REDUCE_SCATTER, context, from, to, count, type);
    o.op = op;
    return add(o, stream);
}

BKCL_API int bkcl_all_gather(void *context, const void *from, size_t count,
                             void *to, int type, void *stream)
{
    return add(of(ALL_GATHER, context, from, to, count, type), stream);
}

BKCL_API int bkcl_broadcast(void *context, const void *from, void *to,
                            size_t count, int type, int root, void *stream)
{
    operation o = of(BROADCAST, context, from, to, count, type);
    o.peer = root;
    return add(o, stream);
}

BKCL_API int bkcl_send(void *context, const void *from, size_t count, int peer,
                       int type, void *stream)
{
    operation o = of(SEND, context, from, nullptr, count, type);
    o.peer = peer;
    return add(o, stream);
}

BKCL_API int bkcl_recv(void *context, void *to, size_t count, int peer,
                       int type, void *stream)
{
    operation o = of(RECEIVE, context, nullptr, to, count, type);
    o.peer = peer;
    return add(o, stream);
}

static int all_to_all_v(void *context, const void *from, const size_t *counts,
                        const size_t *offsets, int type, void *to,
                        const size_t *to_counts, const size_t *to_offsets,
                        int to_type, void *stream)
{
    operation o = of(EXCHANGE, context, from, to, 0, type);
    const size_t *all[] = {counts, offsets, to_counts, to_offsets};
    std::copy(all, all + 4, o.counts);
    if (type != to_type) {
        return refuse(INVALID_ARGUMENT, "all_to_all_v", "two types");
    }
    return add(o, stream);
}

/* Whoever looks for it finds none where there is none. */
typedef decltype(&all_to_all_v) all_to_all_v_t;
extern "C" all_to_all_v_t bkclsim_find_all_to_all_v(void)
{
    return xpusim_deviates("no_all_to_all_v") ? nullptr : all_to_all_v;
}
BKCL_API int bkcl_all_to_all_v(void *context, const void *from,
                               const size_t *counts, const size_t *offsets,
                               int type, void *to, const size_t *to_counts,
                               const size_t *to_offsets, int to_type,
                               void *stream)
    __attribute__((ifunc("bkclsim_find_all_to_all_v")));
