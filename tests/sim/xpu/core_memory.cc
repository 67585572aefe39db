// SPDX-License-Identifier: Apache-2.0
//
// What a core may touch, and when. The compiler calls one of the functions at
// the end of this file before every load and store of a kernel: it was told to
// look for races (-fsanitize=thread), since for other mistakes it leaves out
// stores to where it has just loaded from. Copies happen at some time between
// their call and the fence behind it.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <link.h>

#include "cluster.h"

namespace clustersim
{

static core_t &me()
{
    return e.core[e.current];
}

static const char *const copy_names[] = {"GM2LM", "LM2GM", "GM2SM", "SM2GM"};

// ---- arrays -----------------------------------------------------------------

static size_t array_of(arrays_t *a, const void *key, size_t size, size_t limit,
                       const char *memory)
{
    for (int i = 0; i < a->count; i++) {
        if (a->array[i].key == key) {
            return a->array[i].begin;
        }
    }
    if (a->bytes + size > limit || a->count == MOST_ARRAYS) {
        kernel_fault("%zu bytes of %s memory, at most %zu", a->bytes + size,
                     memory, limit);
    }
    array_t &fresh = a->array[a->count++];
    fresh = {key, a->used, size};
    a->bytes += size;
    a->used += (size + REDZONE + VECTOR - 1) / VECTOR * VECTOR;
    return fresh.begin;
}

static bool within(const arrays_t &a, size_t at, size_t size)
{
    for (int i = 0; i < a.count; i++) {
        const array_t &x = a.array[i];
        if (at >= x.begin && at + size <= x.begin + x.size) {
            return true;
        }
    }
    return false;
}

// The offset in the core's own local memory, or in that of the cluster; -1.
static ptrdiff_t local_at(uintptr_t at)
{
    uintptr_t k = at - reinterpret_cast<uintptr_t>(me().local);
    return k < LOCAL_ROOM ? (ptrdiff_t)k : -1;
}

static ptrdiff_t shared_at(uintptr_t at)
{
    uintptr_t k = at - reinterpret_cast<uintptr_t>(e.shared);
    return k < SHARED_ROOM ? (ptrdiff_t)k : -1;
}

// What the last cluster used is undefined again.
void begin_cluster()
{
    memset(e.shared, 0xff, e.arrays.used); // NaN, and no index
    for (size_t i = 0; i < e.arrays.used; i++) {
        e.touch[i] = {-1, -1, 0, 0};
    }
    memset(&e.arrays, 0, sizeof(e.arrays));
    for (int i = 0; i < e.cores; i++) {
        core_t &c = e.core[i];
        memset(c.local, 0xff, c.arrays.used);
        memset(c.state_of, CLEAN, c.arrays.used);
        memset(&c.arrays, 0, sizeof(c.arrays));
        c.pending.clear();
        c.low = LOCAL_ROOM;
        c.high = 0;
        c.shared_dirty = false;
    }
}

// The first cluster finds memories as any other one does.
void begin_memory()
{
    e.arrays.used = SHARED_ROOM;
    for (core_t &c : e.core) {
        c.arrays.used = LOCAL_ROOM;
    }
}

// ---- local memory -----------------------------------------------------------

static void mark(size_t at, size_t size, byte_t state)
{
    core_t &c = me();
    memset(c.state_of + at, state, size);
    if (state != CLEAN) {
        c.low = std::min(c.low, at);
        c.high = std::max(c.high, at + size);
    }
}

// Faults at a byte whose state is one of these, a set of bits.
static void refuse_state(size_t at, size_t size, unsigned states,
                         const char *what)
{
    static const char *const why[] = {
        "", "a scalar wrote it", "a vector wrote it",
        "a copy to it is under way", "a copy of it is under way"};
    const core_t &c = me();
    for (size_t i = std::max(at, c.low); i < std::min(at + size, c.high); i++) {
        if ((states >> c.state_of[i] & 1u) != 0) {
            kernel_fault("%s local memory before a fence: %s", what,
                         why[c.state_of[i]]);
        }
    }
}

enum { OF_SCALAR = 1 << BY_SCALAR, OF_VECTOR = 1 << BY_VECTOR };
enum { OF_COMING = 1 << COMES, OF_GOING = 1 << GOES };
enum { OF_ALL = OF_SCALAR | OF_VECTOR | OF_COMING | OF_GOING };

static void check_local(size_t at, size_t size, bool write, bool vector)
{
    if (!within(me().arrays, at, size)) {
        kernel_fault("%s of %zu bytes out of bounds of local memory",
                     write ? "write" : "read", size);
    }
    unsigned other = vector ? OF_SCALAR : OF_VECTOR;
    if (write) {
        refuse_state(at, size, other | OF_COMING | OF_GOING, "write to");
        mark(at, size, vector ? BY_VECTOR : BY_SCALAR);
    } else {
        refuse_state(at, size, other | OF_COMING | (vector ? OF_VECTOR : 0),
                     "read of");
    }
}

// ---- shared memory ----------------------------------------------------------

static void check_shared(size_t at, size_t size, bool write)
{
    core_t &c = me();
    int self = e.current;
    if (!within(e.arrays, at, size)) {
        kernel_fault("%s of %zu bytes out of bounds of shared memory",
                     write ? "write" : "read", size);
    }
    c.shared_dirty = c.shared_dirty || write;
    for (size_t i = at; i < at + size; i++) {
        touch_t &t = e.touch[i];
        bool fresh = t.writer >= 0 && t.writer != self && t.written == c.epoch;
        bool seen = t.reader != -1 && t.reader != self && t.read == c.epoch;
        if (fresh || (write && seen)) {
            kernel_fault("%s of shared memory that core %d %s, without a "
                         "barrier between",
                         write ? "write" : "read", fresh ? t.writer : t.reader,
                         fresh ? "writes" : "reads");
        }
        if (write) {
            t.writer = (int16_t)self;
            t.written = c.epoch;
        } else {
            bool more = t.reader != -1 && t.reader != self;
            t.reader = (int16_t)(more && t.read == c.epoch ? -2 : self);
            t.read = c.epoch;
        }
    }
}

// ---- global memory ----------------------------------------------------------

static void note_global(uintptr_t at, size_t size, bool write)
{
    for (const pending_t &p : me().pending) {
        bool writes = p.kind == CLUSTERSIM_LM2GM || p.kind == CLUSTERSIM_SM2GM;
        if (writes && at < p.global + p.size && p.global < at + size) {
            kernel_fault("copy of global memory that an earlier copy of the "
                         "core is writing, without a fence between");
        }
    }
    e.log.push_back(
        {at, at + size, clustersim_now.cluster, e.current, me().epoch, write});
}

// Two accesses of different cores, one a write, with nothing between them.
static bool collide(const global_t &a, const global_t &b)
{
    bool same = a.cluster == b.cluster;
    bool write = a.write || b.write;
    bool ordered = same && (a.core == b.core || a.epoch != b.epoch);
    return write && !ordered && a.begin < b.end && b.begin < a.end;
}

void check_global()
{
    std::vector<global_t> &log = e.log;
    std::vector<std::pair<uintptr_t, uintptr_t>> written;
    auto by_begin = [](const global_t &a, const global_t &b) {
        return a.begin < b.begin;
    };
    std::sort(log.begin(), log.end(), by_begin);
    for (const global_t &g : log) {
        if (!g.write) {
            continue;
        }
        if (!written.empty() && g.begin < written.back().second) {
            written.back().second = std::max(written.back().second, g.end);
        } else {
            written.push_back({g.begin, g.end});
        }
    }
    auto never_written = [&](const global_t &g) {
        auto next = std::upper_bound(
            written.begin(), written.end(), g.end - 1,
            [](uintptr_t at, const std::pair<uintptr_t, uintptr_t> &w) {
                return at < w.first;
            });
        return next == written.begin() || (next - 1)->second <= g.begin;
    };
    log.erase(std::remove_if(log.begin(), log.end(), never_written), log.end());
    for (size_t i = 0; i < log.size(); i++) {
        for (size_t k = i + 1; k < log.size() && log[k].begin < log[i].end;
             k++) {
            if (collide(log[i], log[k])) {
                report("kernel %s: core %d of cluster %d and core %d of "
                       "cluster %d touch the same global memory, at least one "
                       "writes, in no order",
                       e.launch->name, log[i].core, log[i].cluster, log[k].core,
                       log[k].cluster);
                return;
            }
        }
    }
}

// ---- copies and fences ------------------------------------------------------

static void perform(pending_t &p)
{
    memcpy(p.to, p.from, p.size);
    p.done = true;
}

// Those that are under way, in any order; or some.
static void settle(bool all)
{
    std::vector<pending_t> &p = me().pending;
    for (size_t i = p.size(); i > 1; i--) {
        std::swap(p[i - 1], p[(size_t)below(i)]);
    }
    for (pending_t &copy : p) {
        if (!copy.done && (all || below(2) == 0)) {
            perform(copy);
        }
    }
    if (all) {
        p.clear();
    }
}

// Marks what happens at the end of a copy that is on the chip; returns where it
// really is.
static void *chip_end(clustersim_copy_t kind, uintptr_t at, size_t size)
{
    const char *name = copy_names[kind];
    bool local = kind == CLUSTERSIM_GM2LM || kind == CLUSTERSIM_LM2GM;
    bool comes = kind == CLUSTERSIM_GM2LM || kind == CLUSTERSIM_GM2SM;
    ptrdiff_t k = local ? local_at(at) : shared_at(at);
    if (k < 0 || !within(local ? me().arrays : e.arrays, (size_t)k, size)) {
        kernel_fault("%s of %zu bytes: not within an array of %s memory", name,
                     size, local ? "the core's local" : "shared");
    }
    if (local) {
        unsigned states = comes ? OF_ALL : OF_SCALAR | OF_VECTOR | OF_COMING;
        refuse_state((size_t)k, size, states, name);
        mark((size_t)k, size, comes ? COMES : GOES);
    } else {
        check_shared((size_t)k, size, comes);
        if (!comes && me().shared_dirty) {
            kernel_fault("SM2GM before a fence: the core wrote there");
        }
    }
    return reinterpret_cast<void *>(at);
}

static void copy(clustersim_copy_t kind, const void *from, void *to,
                 size_t size, bool async)
{
    char text[256] = "";
    bool comes = kind == CLUSTERSIM_GM2LM || kind == CLUSTERSIM_GM2SM;
    const void *device = comes ? from : to;
    uintptr_t global = reinterpret_cast<uintptr_t>(device);
    void *there = clustersim_device_memory(device, size, text, sizeof(text));
    if (there == nullptr) {
        kernel_fault("%s of %zu bytes: %s", copy_names[kind], size, text);
    }
    uintptr_t chip = reinterpret_cast<uintptr_t>(comes ? to : from);
    void *here = chip_end(kind, chip, size);
    note_global(global, size, !comes);
    pending_t p = {
        comes ? here : there, comes ? there : here, size, kind, global, false};
    if (async) {
        me().pending.push_back(p);
        settle(false);
        return;
    }
    perform(p);
    ptrdiff_t local = local_at(chip);
    if (local >= 0) {
        mark((size_t)local, size, CLEAN);
    }
    if (kind == CLUSTERSIM_GM2SM) {
        me().shared_dirty = false;
    }
}

void check_before_barrier()
{
    const core_t &c = me();
    if (!c.pending.empty()) {
        kernel_fault("barrier while %s is under way, without a fence",
                     copy_names[c.pending.front().kind]);
    }
    if (c.shared_dirty) {
        kernel_fault("barrier before a fence: the core wrote to shared memory");
    }
}

void end_core()
{
    if (!me().pending.empty()) {
        kernel_fault("the core ends while %s is under way, without a fence",
                     copy_names[me().pending.front().kind]);
    }
}

// ---- single accesses --------------------------------------------------------

static int add_image(struct dl_phdr_info *info, size_t, void *images)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = info->dlpi_phdr[i];
        if (h.p_type == PT_LOAD) {
            uintptr_t begin = info->dlpi_addr + h.p_vaddr;
            static_cast<std::vector<std::pair<uintptr_t, uintptr_t>> *>(images)
                ->push_back({begin, begin + h.p_memsz});
        }
    }
    return 0;
}

// Arguments, constants and what runs the kernel.
static bool in_image(uintptr_t at)
{
    static std::vector<std::pair<uintptr_t, uintptr_t>> images;
    auto holds = [at](const std::pair<uintptr_t, uintptr_t> &i) {
        return at >= i.first && at < i.second;
    };
    if (std::any_of(images.begin(), images.end(), holds)) {
        return true;
    }
    images.clear(); // there may be more of them by now
    dl_iterate_phdr(add_image, &images);
    return std::any_of(images.begin(), images.end(), holds);
}

static bool in_engine(uintptr_t at)
{
    return at - reinterpret_cast<uintptr_t>(&e) < sizeof(e);
}

static void check(uintptr_t at, size_t size, bool write)
{
    if (!running || on_stack(at)) {
        return;
    }
    if (local_at(at) >= 0) {
        check_local((size_t)local_at(at), size, write, false);
    } else if (shared_at(at) >= 0) {
        check_shared((size_t)shared_at(at), size, write);
    } else if (in_engine(at)) {
        kernel_fault("%s of %zu bytes out of the core's own local memory",
                     write ? "write" : "read", size);
    } else if (!in_image(at)) {
        kernel_fault("%s of %zu bytes that are neither in local nor in shared "
                     "memory: global memory is reached by copies alone",
                     write ? "write" : "read", size);
    }
}

static void check_vector(clustersim_place place, const void *ptr, int mask,
                         int memory, bool write)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    ptrdiff_t k = memory == CLUSTERSIM_LM ? local_at(at) : shared_at(at);
    if (k < 0) {
        kernel_fault("a vector of %s:%d is not in the memory it is of",
                     place.file, place.line);
    }
    if (k % VECTOR != 0) {
        kernel_fault("a vector of %s:%d is at no multiple of %d bytes",
                     place.file, place.line, (int)VECTOR);
    }
    for (int i = 0; i < VECTOR / 4; i++) {
        size_t lane = (size_t)k + 4 * (size_t)i;
        if ((mask >> i & 1) == 0) {
            continue;
        }
        if (memory == CLUSTERSIM_LM) {
            check_local(lane, 4, write, true);
        } else {
            check_shared(lane, 4, write);
        }
    }
}

} // namespace clustersim

using namespace clustersim;

extern "C" void clustersim_copy(clustersim_place place, clustersim_copy_t kind,
                                const void *from, void *to, long long size,
                                bool async)
{
    enum { MOST = 8 * 1024 }; // local memory; shared memory has more
    bool local = kind == CLUSTERSIM_GM2LM || kind == CLUSTERSIM_LM2GM;
    if (planted(CLUSTERSIM_NO_COPY)) {
        return;
    }
    if (size < 0 || (local && size > MOST)) {
        kernel_fault("%s at %s:%d: %lld bytes", copy_names[kind], place.file,
                     place.line, size);
    }
    if (size > 0) {
        copy(kind, from, to, (size_t)size, async);
    }
    give_way();
}

extern "C" void clustersim_fence(clustersim_place, int memories)
{
    core_t &c = me();
    if (planted(CLUSTERSIM_NO_FENCE)) {
        return;
    }
    if ((memories & CLUSTERSIM_GM) != 0) {
        settle(true);
    }
    for (size_t i = c.low; i < c.high && (memories & CLUSTERSIM_LM) != 0; i++) {
        bool copied = c.state_of[i] == COMES || c.state_of[i] == GOES;
        c.state_of[i] = copied && !c.pending.empty() ? c.state_of[i] : CLEAN;
    }
    if (c.pending.empty() && (memories & CLUSTERSIM_LM) != 0) {
        c.low = LOCAL_ROOM;
        c.high = 0;
    }
    c.shared_dirty = c.shared_dirty && (memories & CLUSTERSIM_SM) == 0;
    give_way();
}

extern "C" void *clustersim_local(clustersim_place, const void *key,
                                  size_t size)
{
    return me().local + array_of(&me().arrays, key, size, LOCAL, "local");
}

extern "C" void *clustersim_shared(clustersim_place, const void *key,
                                   size_t size)
{
    return e.shared + array_of(&e.arrays, key, size, SHARED, "shared");
}

extern "C" void clustersim_vload(clustersim_place place, void *to,
                                 const void *from, int mask, int memory)
{
    check_vector(place, from, mask, memory, false);
    for (int i = 0; i < VECTOR / 4; i++) {
        if ((mask >> i & 1) != 0) {
            memcpy(static_cast<char *>(to) + 4 * i,
                   static_cast<const char *>(from) + 4 * i, 4);
        }
    }
}

extern "C" void clustersim_vstore(clustersim_place place, void *to,
                                  const void *from, int mask, int memory)
{
    check_vector(place, to, mask, memory, true);
    for (int i = 0; i < VECTOR / 4; i++) {
        if ((mask >> i & 1) != 0) {
            memcpy(static_cast<char *>(to) + 4 * i,
                   static_cast<const char *>(from) + 4 * i, 4);
        }
    }
}

#define CLUSTERSIM_CHECK(size_)                               \
    extern "C" void __tsan_read##size_(const void *at)        \
    {                                                         \
        check(reinterpret_cast<uintptr_t>(at), size_, false); \
    }                                                         \
    extern "C" void __tsan_write##size_(void *at)             \
    {                                                         \
        check(reinterpret_cast<uintptr_t>(at), size_, true);  \
    }
CLUSTERSIM_CHECK(1)
CLUSTERSIM_CHECK(2)
CLUSTERSIM_CHECK(4)
CLUSTERSIM_CHECK(8)
CLUSTERSIM_CHECK(16)

extern "C" void __tsan_read_range(const void *at, size_t size)
{
    check(reinterpret_cast<uintptr_t>(at), size, false);
}
extern "C" void __tsan_write_range(void *at, size_t size)
{
    check(reinterpret_cast<uintptr_t>(at), size, true);
}
extern "C" void __tsan_func_entry(const void *)
{
}
extern "C" void __tsan_func_exit()
{
}
extern "C" void __tsan_init()
{
}
