// SPDX-License-Identifier: Apache-2.0
//
// Memory of the simulated devices: addresses that nobody can read, each with
// its bytes at a fixed distance, where only the simulator looks. Freed
// addresses are not given out again before others are used up.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "sim.h"

namespace xpusim {
namespace {

constexpr size_t SLICE = (size_t)8 << 30; /* addresses of a device */
constexpr size_t GAP = 4096;

struct block {
    size_t size;
    int device;
    int kind;
};

struct memory {
    std::mutex lock;
    char *there = nullptr; /* what programs see */
    char *bytes = nullptr; /* where they are */
    std::map<char *, block> blocks;
    std::map<char *, size_t> pinned;
    size_t next[MOST_DEVICES] = {};
    size_t used[MOST_DEVICES] = {};
    size_t used_l3[MOST_DEVICES] = {};
};

char *reserve(int access)
{
    void *p = mmap(nullptr, MOST_DEVICES * SLICE, access,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("simulated XPU: no addresses");
        abort();
    }
    return (char *)p;
}

memory &mem()
{
    static memory *m = [] {
        memory *made = new memory;
        made->there = reserve(PROT_NONE);
        made->bytes = reserve(PROT_READ | PROT_WRITE);
        return made;
    }();
    return *m;
}

template <class Map> typename Map::iterator below(Map &map, const void *ptr)
{
    auto it = map.upper_bound((char *)ptr);
    return it == map.begin() ? map.end() : std::prev(it);
}

/* Under the lock. */
bool overlaps(const memory &m, char *at, size_t size)
{
    auto it = m.blocks.lower_bound(at);
    if (it != m.blocks.end() && it->first < at + size) {
        return true;
    }
    return it != m.blocks.begin() &&
           std::prev(it)->first + std::prev(it)->second.size > at;
}

/* Behind the last one, from the beginning when the end is reached. */
char *place(memory &m, int device, size_t size, size_t offset)
{
    char *begin = m.there + (size_t)device * SLICE;
    for (int turn = 0; turn < 2; turn++) {
        size_t at = m.next[device];
        for (; at + size + GAP < SLICE; at += GAP) {
            if (!overlaps(m, begin + at, size + GAP)) {
                m.next[device] = (at + size + 2 * GAP - 1) / GAP * GAP;
                return begin + at + offset;
            }
        }
        m.next[device] = 0;
    }
    return nullptr;
}

} // namespace

bool any_device(const void *ptr)
{
    const char *p = (const char *)ptr;
    return p >= mem().there && p < mem().there + MOST_DEVICES * SLICE;
}

range range_of(const void *ptr)
{
    memory &m = mem();
    std::lock_guard<std::mutex> hold(m.lock);
    auto b = below(m.blocks, ptr);
    if (b != m.blocks.end() && (char *)ptr < b->first + b->second.size) {
        return {side::device, b->second.device, b->first, b->second.size};
    }
    auto p = below(m.pinned, ptr);
    if (p != m.pinned.end() && (char *)ptr < p->first + p->second) {
        return {side::pinned, -1, p->first, p->second};
    }
    return {side::host, -1, nullptr, 0};
}

int64_t memory_alive()
{
    std::lock_guard<std::mutex> hold(mem().lock);
    return (int64_t)(mem().blocks.size() + mem().pinned.size());
}

size_t memory_used(int device)
{
    std::lock_guard<std::mutex> hold(mem().lock);
    return mem().used[device];
}

} // namespace xpusim

using namespace xpusim;

void *xpusim_host(const void *ptr)
{
    return any_device(ptr) ? mem().bytes + ((const char *)ptr - mem().there)
                           : nullptr;
}

int xpusim_is_device(const void *ptr)
{
    return any_device(ptr);
}

int xpusim_check(const char *who, const void *ptr, size_t bytes, int device)
{
    range r = range_of(ptr);
    if (bytes == 0) {
        return 0;
    }
    if (r.of != side::device) {
        xpusim_found("%s: %p is %s", who, ptr,
                     any_device(ptr) ? "memory of a device that is not "
                                       "allocated"
                                     : "memory of the host");
    } else if (device >= 0 && r.device != device) {
        xpusim_found("%s: %p is memory of device %d, the call is for %d", who,
                     ptr, r.device, device);
    } else if ((const char *)ptr + bytes > r.base + r.size) {
        xpusim_found("%s: %zu bytes from %p, of %zu bytes at %p", who, bytes,
                     ptr, r.size, (void *)r.base);
    } else {
        return 0;
    }
    return xpusim_error(XPUSIM_INVALID);
}

extern "C" {

XPUSIM_API int xpu_malloc(void **p, uint64_t size, int kind)
{
    constexpr size_t L3 = (size_t)96 << 20;
    xpusim_values_t v = xpusim_values();
    memory &m = mem();
    int device = xpusim_current();
    if (int error = xpusim_enter("malloc")) {
        return error;
    }
    kind = xpusim_plant("memory_kind") ? kind + 5 : kind;
    if (kind != v.memory_main && kind != v.memory_l3) {
        xpusim_found("xpu_malloc: kind %d of memory", kind);
        return xpusim_error(XPUSIM_INVALID);
    }
    std::lock_guard<std::mutex> hold(m.lock);
    bool l3 = kind == v.memory_l3;
    size_t room = l3 ? L3 - m.used_l3[device]
                     : current().memory - m.used[device];
    char *at = size <= room ? place(m, device, size, current().offset)
                            : nullptr;
    if (at == nullptr) {
        return xpusim_error(XPUSIM_NOMEM);
    }
    m.blocks[at] = {size, device, kind};
    (l3 ? m.used_l3 : m.used)[device] += size;
    memset(xpusim_host(at), 0xff, size); /* whatever was there */
    *p = at;
    return 0;
}

XPUSIM_API int xpu_free(void *p)
{
    memory &m = mem();
    if (int error = xpusim_enter("free")) {
        return error;
    }
    if (xpusim_plant("leak")) {
        return 0;
    }
    p = xpusim_plant("free_inside") ? (char *)p + 64 : p;
    std::lock_guard<std::mutex> hold(m.lock);
    auto it = m.blocks.find((char *)p);
    if (it == m.blocks.end()) {
        xpusim_found("xpu_free: nothing was allocated at %p", p);
        return xpusim_error(XPUSIM_INVALID);
    }
    if (it->second.device != xpusim_current()) {
        xpusim_found("xpu_free: %p is of device %d, current is %d", p,
                     it->second.device, xpusim_current());
        return xpusim_error(XPUSIM_INVALID);
    }
    bool l3 = it->second.kind == xpusim_values().memory_l3;
    (l3 ? m.used_l3 : m.used)[it->second.device] -= it->second.size;
    memset(xpusim_host(p), 0xee, it->second.size);
    m.blocks.erase(it);
    return 0;
}

XPUSIM_API int xpu_host_alloc(void **p, uint64_t size, unsigned flags)
{
    if (int error = xpusim_enter("host_alloc")) {
        return error;
    }
    flags = xpusim_plant("host_flags") ? 1 : flags;
    if (flags != 0) {
        xpusim_found("xpu_host_alloc: flags %u", flags);
        return xpusim_error(XPUSIM_INVALID);
    }
    char *at = (char *)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (at == nullptr) {
        return xpusim_error(706);
    }
    memset(at, 0xdd, size);
    std::lock_guard<std::mutex> hold(mem().lock);
    mem().pinned[at] = size;
    *p = at;
    return 0;
}

XPUSIM_API int xpu_host_free(void *p)
{
    if (int error = xpusim_enter("host_free")) {
        return error;
    }
    std::lock_guard<std::mutex> hold(mem().lock);
    if (mem().pinned.erase((char *)p) == 0) {
        xpusim_found("xpu_host_free: nothing was allocated at %p", p);
        return xpusim_error(XPUSIM_INVALID);
    }
    free(p);
    return 0;
}

XPUSIM_API int xpu_host_register(void *p, uint64_t size, unsigned flags)
{
    constexpr uint64_t MOST = (uint64_t)512 << 30; /* of one list */
    if (int error = xpusim_enter("host_register")) {
        return error;
    }
    if (flags != 0 || size > MOST) {
        xpusim_found("xpu_host_register: flags %u, %llu bytes", flags,
                     (unsigned long long)size);
        return xpusim_error(XPUSIM_INVALID);
    }
    std::lock_guard<std::mutex> hold(mem().lock);
    return mem().pinned.emplace((char *)p, size).second
               ? 0
               : xpusim_error(XPUSIM_REGISTERED);
}

XPUSIM_API int xpu_host_unregister(void *p)
{
    if (int error = xpusim_enter("host_unregister")) {
        return error;
    }
    std::lock_guard<std::mutex> hold(mem().lock);
    return mem().pinned.erase((char *)p) == 1 ? 0
                                              : xpusim_error(XPUSIM_INVALID);
}

/* For libxpuml.so.1. */
XPUSIM_API void xpusim_memory(int device, uint64_t *total, uint64_t *available)
{
    *total = (uint64_t)96 << 30;
    *available = current().memory - memory_used(device);
}
}
