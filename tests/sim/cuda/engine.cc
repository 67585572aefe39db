// SPDX-License-Identifier: Apache-2.0
//
// Runs a kernel: block after block in random order; the threads of a block are
// fibers on one stack each. A thread runs until it waits (barrier, warp
// operation, atomic) or ends, then a random one of those that can run goes on:
// without a barrier one thread is far ahead of the others.
#include <cstdarg>
#include <cstdio>
#include <sys/mman.h>
#include <vector>

#include "engine.h"

extern "C" {
cudasim_ids cudasim_now;
}

namespace cudasim {

// ---- state ------------------------------------------------------------------

// Stacks are no power of two apart, nor do they begin at one place of a page:
// otherwise all would want the same few lines of the caches.
enum { PAGE = 4096, STACK = 17 * PAGE, COLOURS = 16, COLOUR = 192 };
enum { REDZONE = 64 };

engine_t e;

// Arguments of the running kernel, as its constant memory.
static char constants[32 * 1024] __attribute__((aligned(64)));

live_t live;
thread_local bool running;
int kernel_device() { return e.device; }
int current_thread() { return e.current; }

void kernel_fault(cudaError_t error, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    const cudasim_ids &i = cudasim_now;
    report("kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s",
           e.launch->name, i.block.x, i.block.y, i.block.z, i.thread.x,
           i.thread.y, i.thread.z, text);
    e.fault = error;
    context_t lost;
    context_switch(&lost, &e.scheduler);
    __builtin_unreachable();
}

// ---- shared memory ----------------------------------------------------------

static char *shared_array(const void *key, size_t size)
{
    for (int i = 0; i < e.num_arrays; i++) {
        if (e.arrays[i].key == key) {
            return e.arrays[i].at;
        }
    }
    size_t fixed = size;
    for (int i = 0; i < e.num_arrays; i++) {
        fixed += e.arrays[i].key != nullptr ? e.arrays[i].size : 0;
    }
    if (key != nullptr && fixed > STATIC_SHARED) {
        kernel_fault(cudaErrorInvalidConfiguration,
                     "%zu bytes of static shared memory, at most %d", fixed,
                     (int)STATIC_SHARED);
    }
    if (key != nullptr && fixed + e.launch->shared > most_shared()) {
        kernel_fault(cudaErrorInvalidConfiguration,
                     "%zu bytes of static and %zu of dynamic shared memory, "
                     "at most %zu", fixed, e.launch->shared, most_shared());
    }
    if (e.num_arrays == MOST_ARRAYS) {
        kernel_fault(cudaErrorInvalidConfiguration,
                     "more than %d shared arrays", (int)MOST_ARRAYS);
    }
    shared_t *a = &e.arrays[e.num_arrays++];
    a->key = key;
    a->size = size;
    a->at = e.shared + e.shared_used + REDZONE;
    memset(a->at, 0xff, size); // NaN, and no index
    e.shared_used += (size + 2 * REDZONE - 1) / REDZONE * REDZONE;
    return a->at;
}

bool in_shared(uintptr_t at, size_t size, uintptr_t *begin_p,
               uintptr_t *end_p)
{
    for (int i = 0; i < e.num_arrays; i++) {
        uintptr_t first = reinterpret_cast<uintptr_t>(e.arrays[i].at);
        if (at >= first && at + size <= first + e.arrays[i].size) {
            *begin_p = first;
            *end_p = first + e.arrays[i].size;
            return true;
        }
    }
    return false;
}

// ---- threads ----------------------------------------------------------------

static void open_barrier()
{
    if (e.waiting == 0 || e.waiting < e.live) {
        return;
    }
    for (int i = 0; i < e.count; i++) {
        if (e.threads[i].state == BARRIER) {
            make_ready(i);
        }
    }
    e.waiting = 0;
}

static void end_thread()
{
    check_lane_missed(e.current);
    e.threads[e.current].state = DONE;
    e.warps[e.current / LANES].gone |= 1u << e.current % LANES;
    e.live--;
    open_barrier();
}

// One of those that can run; -1: none can.
static int pick()
{
    if (e.num_ready == 0) {
        return -1;
    }
    int k = (int)below((uint64_t)e.num_ready);
    int thread = e.ready[k];
    e.ready[k] = e.ready[--e.num_ready];
    return thread;
}

static void become(int thread, int stack)
{
    e.current = thread;
    cudasim_now.thread = e.threads[thread].id;
    e.threads[thread].stack = stack;
}

// A thread that has not begun takes over the stack of one that has ended.
static void thread_main()
{
    int stack = e.threads[e.current].stack;
    int next = 0;
    context_t lost;
    for (;;) {
        e.launch->run(e.arguments);
        end_thread();
        next = pick();
        if (next < 0 || e.threads[next].stack >= 0) {
            break;
        }
        become(next, stack);
    }
    e.free[e.num_free++] = stack; // nobody writes to it before the switch
    if (next >= 0) {
        become(next, e.threads[next].stack);
    }
    context_switch(&lost, next < 0 ? &e.scheduler : &e.threads[next].context);
    __builtin_unreachable();
}

// The context of a thread, whose turn it is now.
static context_t *enter(int thread)
{
    thread_t *t = &e.threads[thread];
    if (t->stack < 0) {
        int stack = e.free[--e.num_free];
        char *at = e.stacks + (size_t)stack * STACK + PAGE;
        context_make(&t->context, at,
                     STACK - PAGE - (size_t)(stack % COLOURS) * COLOUR,
                     thread_main);
        t->stack = stack;
    }
    become(thread, t->stack);
    return &t->context;
}

void leave()
{
    int thread = e.current;
    int next = pick();
    if (next != thread) {
        context_switch(&e.threads[thread].context,
                       next < 0 ? &e.scheduler : enter(next));
    }
}

// Nobody can run and somebody waits.
static void report_stuck()
{
    int other = 0;
    while (e.threads[other].state == DONE) {
        other++;
    }
    const thread_t *t = &e.threads[other];
    cudasim_now.thread = t->id;
    const cudasim_ids &i = cudasim_now;
    report("kernel %s, block (%u,%u,%u): thread (%u,%u,%u) waits at %s:%d "
           "for ever: %d of %d threads are at a barrier, %d ended%s",
           e.launch->name, i.block.x, i.block.y, i.block.z, i.thread.x,
           i.thread.y, i.thread.z, t->at.file, t->at.line, e.waiting, e.count,
           e.count - e.live,
           t->state == WARP ? ", the lanes of its mask did not come" : "");
    e.fault = cudaErrorLaunchFailure;
}

static void run_block()
{
    e.live = e.num_ready = e.count;
    e.waiting = e.num_arrays = 0;
    e.shared_used = 0;
    forget_copies();
    forget_checks();
    for (int w = 0; w * LANES < e.count; w++) {
        int lanes = e.count - w * LANES;
        e.warps[w].waiting = 0;
        e.warps[w].gone = lanes < LANES ? ~0u << lanes : 0;
    }
    for (int i = 0; i < e.count; i++) {
        e.threads[i].state = READY;
        e.threads[i].stack = -1;
        e.threads[i].barriers = e.threads[i].syncs = 0;
        e.ready[i] = i;
    }
    context_switch(&e.scheduler, enter(pick()));
    if (e.fault == cudaSuccess && e.live > 0) {
        report_stuck();
    }
}

static void prepare()
{
    if (e.stacks != nullptr) {
        return;
    }
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t room = (size_t)MOST_THREADS * STACK;
    e.stacks = static_cast<char *>(
        mmap(nullptr, room, PROT_READ | PROT_WRITE, flags, -1, 0));
    live.stacks = reinterpret_cast<uintptr_t>(e.stacks);
    live.stack_bytes = room;
    for (int i = 0; i < MOST_THREADS; i++) {
        mprotect(e.stacks + (size_t)i * STACK, PAGE, PROT_NONE);
    }
    e.shared = static_cast<char *>(
        mmap(nullptr, SHARED_ROOM, PROT_READ | PROT_WRITE, flags, -1, 0));
    live.shared = reinterpret_cast<uintptr_t>(e.shared);
}

static void begin_kernel(const cudasim_launch &launch, int device)
{
    const dim3 &b = launch.block;
    e.launch = &launch;
    e.arguments = constants;
    e.device = device;
    e.fault = cudaSuccess;
    e.count = (int)(b.x * b.y * b.z);
    e.num_free = MOST_THREADS; // a fault leaves stacks behind
    for (int i = 0; i < MOST_THREADS; i++) {
        e.free[i] = i;
    }
    for (int i = 0; i < e.count; i++) {
        e.threads[i].id = dim3((unsigned)i % b.x, (unsigned)i / b.x % b.y,
                               (unsigned)i / (b.x * b.y));
    }
    running = true;
    cudasim_now.grid_dim = launch.grid;
    cudasim_now.block_dim = launch.block;
}

cudaError_t run_kernel(const cudasim_launch &launch, const void *arguments,
                       size_t size, int device)
{
    prepare();
    memcpy(constants, arguments, size);
    const dim3 &g = launch.grid;
    static std::vector<uint64_t> order;
    order.resize((size_t)g.x * g.y * g.z);
    for (size_t i = 0; i < order.size(); i++) {
        size_t k = below(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    begin_kernel(launch, device);
    for (uint64_t b : order) {
        if (plant_block(launch.name, b, order.size())) {
            continue;
        }
        cudasim_now.block = dim3((unsigned)(b % g.x),
                                 (unsigned)(b / g.x % g.y),
                                 (unsigned)(b / g.x / g.y));
        run_block();
        if (e.fault != cudaSuccess) {
            break;
        }
    }
    running = false;
    return e.fault;
}

} // namespace cudasim

using namespace cudasim;

extern "C" void cudasim_barrier(cudasim_place place)
{
    thread_t *t = &e.threads[e.current];
    if (plant_barrier(e.launch->name, ++t->barriers)) {
        return;
    }
    for (int i = 0; i < e.count && e.waiting > 0; i++) {
        const thread_t *other = &e.threads[i];
        if (other->state == BARRIER) {
            if (other->at.line != place.line) {
                kernel_fault(cudaErrorLaunchFailure,
                             "barrier at %s:%d while thread %d of the block "
                             "waits at line %d",
                             place.file, place.line, i, other->at.line);
            }
            break;
        }
    }
    t->state = BARRIER;
    t->at = place;
    e.waiting++;
    open_barrier();
    leave();
}

extern "C" void cudasim_yield(void)
{
    make_ready(e.current);
    leave();
}

extern "C" void cudasim_global(const void *at)
{
    if (is_shared(reinterpret_cast<uintptr_t>(at))) {
        kernel_fault(cudaErrorIllegalAddress,
                     "shared memory, by an instruction for device memory");
    }
}

extern "C" void *cudasim_shared(const void *key, size_t size)
{
    return shared_array(key, size);
}

extern "C" void *cudasim_dynamic(void)
{
    return shared_array(nullptr, e.launch->shared);
}
