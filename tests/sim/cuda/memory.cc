// SPDX-License-Identifier: Apache-2.0
//
// Device memory is a range of addresses that nobody can touch while the device
// rests. While a kernel runs, each of its accesses is checked: the compiler
// calls one of the functions at the end of this file before every load and
// store (-fsanitize=kernel-address). Addresses are never used twice.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "impl.h"

namespace cudasim {

enum { PAGE = 4096 };
static const size_t ROOM = (size_t)1 << 36;

struct range_t {
    uintptr_t begin, end;
    int device;
    kind_t kind;
    bool alive;
};

struct room_t {
    uintptr_t base;
    size_t used;
    std::vector<range_t> ranges;
    std::vector<uint32_t> owner; // of each page: range + 1
    size_t forgotten;            // ranges of earlier lives
    size_t dead;                 // so many first ones are not alive
};

struct image_t {
    uintptr_t begin, end;
};

static room_t rooms[2]; // of a device, pinned
static std::vector<image_t> images;
static int unlocked;
enum { DEVICES = 64 };
static pool_t all_pools[DEVICES];

static void on_segv(int signal, siginfo_t *info, void *)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
    bool sent = info->si_code <= 0; // by a process, as faults of tests are
    if (!sent && at - rooms[DEVICE].base < ROOM) {
        char text[512];
        int n = snprintf(text, sizeof(text),
                         "cudasim: the host touched device memory: %s\n",
                         where(at));
        if (write(STDERR_FILENO, text, (size_t)n) < 0) {
            _exit(127);
        }
    }
    std::signal(signal, SIG_DFL);
    if (sent) {
        raise(signal);
    } // else the access is made again
}

static void prepare()
{
    if (rooms[DEVICE].base != 0) {
        return;
    }
    for (int k = 0; k < 2; k++) {
        int access = k == DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
        void *map =
            mmap(nullptr, ROOM, access,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        rooms[k].base = reinterpret_cast<uintptr_t>(map);
    }
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_segv;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
}

// The room of an address, or NULL.
static room_t *room_of(uintptr_t at)
{
    for (room_t &r : rooms) {
        if (r.base != 0 && at - r.base < ROOM) {
            return &r;
        }
    }
    return nullptr;
}

static range_t *range_of(room_t *r, uintptr_t at)
{
    size_t page = (at - r->base) / PAGE;
    uint32_t owner = page < r->owner.size() ? r->owner[page] : 0;
    return owner > 0 ? &r->ranges[owner - 1] : nullptr;
}

void *allocate(kind_t kind, size_t size, int device)
{
    prepare();
    room_t *r = &rooms[kind == PINNED];
    size_t pages = (size + PAGE - 1) / PAGE;
    if (r->used + (pages + 1) * PAGE > ROOM) {
        return nullptr;
    }
    uintptr_t at = r->base + r->used;
    r->ranges.push_back({at, at + size, device, kind, true});
    r->owner.resize(r->used / PAGE + pages + 1, 0);
    for (size_t p = 0; p < pages; p++) {
        r->owner[r->used / PAGE + p] = (uint32_t)r->ranges.size();
    }
    r->used += (pages + 1) * PAGE;
    if (kind != PINNED) {
        pool_t &p = all_pools[device];
        p.used += kind == POOLED ? size : 0;
        p.kept = std::max(p.kept, p.used);
        p.most = std::max(p.most, p.used);
        unlock();
        memset(reinterpret_cast<void *>(at), 0xff, size); // NaN, no index
        lock();
    }
    return reinterpret_cast<void *>(at);
}

bool release(kind_t kind, void *ptr)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    room_t *r = room_of(at);
    range_t *range = r == &rooms[kind == PINNED] ? range_of(r, at) : nullptr;
    if (range == nullptr || range->begin != at || !range->alive) {
        return false;
    }
    range->alive = false;
    size_t size = range->end - range->begin;
    all_pools[range->device].used -= range->kind == POOLED ? size : 0;
    madvise(ptr, (size + PAGE - 1) / PAGE * PAGE, MADV_DONTNEED);
    return true;
}

pool_t *pool_of(int device)
{
    return &all_pools[device];
}

size_t used_bytes(int device)
{
    size_t bytes = 0;
    for (const range_t &r : rooms[DEVICE].ranges) {
        bytes += r.alive && r.device == device ? r.end - r.begin : 0;
    }
    return bytes;
}

int64_t alive_ranges()
{
    int64_t count = 0;
    for (const room_t &r : rooms) {
        for (const range_t &range : r.ranges) {
            count += range.alive;
        }
    }
    return count;
}

void forget_memory()
{
    for (int k = 0; k < 2; k++) {
        for (const range_t &r : rooms[k].ranges) {
            if (r.alive) {
                release((kind_t)k, reinterpret_cast<void *>(r.begin));
            }
        }
        rooms[k].forgotten = rooms[k].ranges.size();
    }
    memset(all_pools, 0, sizeof(all_pools));
}

static bool is_kind(kind_t kind, const void *ptr)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    return rooms[kind].base != 0 && at - rooms[kind].base < ROOM;
}

bool is_device(const void *ptr) { return is_kind(DEVICE, ptr); }
bool is_pinned(const void *ptr) { return is_kind(PINNED, ptr); }

bool range_ok(const void *ptr, size_t size)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    room_t *r = room_of(at);
    if (r == nullptr) {
        return ptr != nullptr || size == 0;
    }
    range_t *range = range_of(r, at);
    return range != nullptr && range->alive && at >= range->begin &&
           at + size <= range->end;
}

bool is_pooled(const void *ptr)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    room_t *r = room_of(at);
    range_t *range = r == &rooms[DEVICE] ? range_of(r, at) : nullptr;
    return range != nullptr && range->kind == POOLED;
}

int device_of(const void *ptr)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    range_t *range =
        is_device(ptr) ? range_of(&rooms[DEVICE], at) : nullptr;
    return range != nullptr ? range->device : -1;
}

const char *where(uintptr_t at)
{
    static char text[256];
    room_t *r = room_of(at);
    if (r == nullptr) {
        return "memory of the host";
    }
    // The range itself, or the last one before it.
    range_t *best = range_of(r, at);
    for (size_t i = 0; best == nullptr && i < r->ranges.size(); i++) {
        size_t last = r->ranges.size() - 1 - i;
        best = r->ranges[last].begin <= at ? &r->ranges[last] : nullptr;
    }
    if (best == nullptr) {
        return "device memory, before all allocations";
    }
    snprintf(text, sizeof(text), "%s allocation %zu of device %d%s, byte %zu "
             "of %zu", r == &rooms[DEVICE] ? "device" : "pinned",
             (size_t)(best - &r->ranges[r->forgotten]) + 1, best->device,
             best->alive ? "" : " (freed)", at - best->begin,
             best->end - best->begin);
    return text;
}

static void protect(int access)
{
    room_t *r = &rooms[DEVICE];
    if (r->dead < r->ranges.size()) {
        uintptr_t begin = r->ranges[r->dead].begin;
        mprotect(reinterpret_cast<void *>(begin), r->base + r->used - begin,
                 access);
    }
}

void unlock()
{
    if (unlocked++ == 0) {
        protect(PROT_READ | PROT_WRITE);
    }
}

void lock()
{
    if (--unlocked == 0) {
        protect(PROT_NONE);
        room_t *r = &rooms[DEVICE];
        while (r->dead < r->ranges.size() && !r->ranges[r->dead].alive) {
            r->dead++; /* its pages stay as they are */
        }
    }
}

// ---- checks of single accesses ----------------------------------------------

static int add_image(struct dl_phdr_info *info, size_t, void *)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &h = info->dlpi_phdr[i];
        if (h.p_type == PT_LOAD) {
            uintptr_t begin = info->dlpi_addr + h.p_vaddr;
            images.push_back({begin, begin + h.p_memsz});
        }
    }
    return 0;
}

// Constants and tables of programs and libraries.
static bool in_image(uintptr_t at)
{
    if (images.empty()) {
        dl_iterate_phdr(add_image, nullptr);
    }
    for (const image_t &i : images) {
        if (at >= i.begin && at < i.end) {
            return true;
        }
    }
    return false;
}

static void refuse(uintptr_t at, size_t size, bool write, const char *why)
{
    if (in_kernel()) {
        kernel_fault(cudaErrorIllegalAddress, "%s of %zu bytes %s: %s",
                     write ? "write" : "read", size, why, where(at));
    }
}

/* size: a power of two */
static inline void check_aligned(uintptr_t at, size_t size)
{
    if ((at & (size - 1)) != 0 && in_kernel() && !in_fiber_stack(at)) {
        kernel_fault(cudaErrorMisalignedAddress,
                     "access of %zu bytes at an address that is no multiple "
                     "of it: %s", size, where(at));
    }
}

// What this block may touch, by a page of it.
enum { SEEN = 64 };
static image_t seen[SEEN];

void forget_checks()
{
    memset(seen, 0, sizeof(seen));
}

static void check_shared(uintptr_t at, size_t size, bool write)
{
    image_t &near = seen[at / PAGE % SEEN];
    if (!in_shared(at, size, &near.begin, &near.end)) {
        kernel_fault(cudaErrorIllegalAddress,
                     "%s of %zu bytes outside of the shared arrays",
                     write ? "write" : "read", size);
    }
}

static void check_outside(uintptr_t at, size_t size, bool write)
{
    room_t *r = room_of(at);
    if (is_shared(at)) {
        check_shared(at, size, write);
        return;
    }
    if (r == nullptr) {
        if (!in_image(at)) {
            refuse(at, size, write, "of pageable host memory");
        }
        return;
    }
    range_t *range = range_of(r, at);
    if (range == nullptr || at + size > range->end) {
        refuse(at, size, write, "out of bounds");
    } else if (!range->alive) {
        refuse(at, size, write, "after it was freed");
    } else if (r == &rooms[DEVICE] && range->device != kernel_device() &&
               !peer_allowed(kernel_device(), range->device,
                             range->kind == POOLED)) {
        refuse(at, size, write, "on another device without peer access");
    }
    seen[at / PAGE % SEEN] = {range->begin, range->end};
}

// Most accesses are to a thread's own memory, or near an earlier one.
static inline void check(uintptr_t at, size_t size, bool write)
{
    const image_t &near = seen[at / PAGE % SEEN];
    if (!in_fiber_stack(at) && !(at >= near.begin && at + size <= near.end) &&
        in_kernel()) {
        check_outside(at, size, write); // the pages refuse the host
    }
}

void check_read(const void *ptr, size_t size)
{
    uintptr_t at = reinterpret_cast<uintptr_t>(ptr);
    check_aligned(at, size);
    check(at, size, false);
}

} // namespace cudasim

extern "C" void cudasim_vector(const void *at, size_t size)
{
    cudasim::check_aligned(reinterpret_cast<uintptr_t>(at), size);
}

#define CUDASIM_CHECK(size_)                                                  \
    extern "C" void __asan_load##size_##_noabort(uintptr_t at)                \
    {                                                                         \
        cudasim::check_aligned(at, size_);                                    \
        cudasim::check(at, size_, false);                                     \
    }                                                                         \
    extern "C" void __asan_store##size_##_noabort(uintptr_t at)               \
    {                                                                         \
        cudasim::check_aligned(at, size_);                                    \
        cudasim::check(at, size_, true);                                      \
    }
CUDASIM_CHECK(1)
CUDASIM_CHECK(2)
CUDASIM_CHECK(4)
CUDASIM_CHECK(8)
CUDASIM_CHECK(16)

extern "C" void __asan_loadN_noabort(uintptr_t at, size_t size)
{
    cudasim::check(at, size, false);
}
extern "C" void __asan_storeN_noabort(uintptr_t at, size_t size)
{
    cudasim::check(at, size, true);
}
extern "C" void __asan_handle_no_return(void)
{
}
