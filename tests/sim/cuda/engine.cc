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

#include "impl.h"

extern "C" {
cudasim_ids cudasim_now;
}

// ---- switching stacks -------------------------------------------------------

#if defined(__x86_64__)
extern "C" void cudasim_switch(void **save, void *to);
asm(".text\n"
    ".type cudasim_switch, @function\n"
    "cudasim_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
    "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n"
    "  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size cudasim_switch, .-cudasim_switch\n");

typedef void *context_t;

static void context_switch(context_t *save, context_t *to)
{
    cudasim_switch(save, *to);
}

static void context_make(context_t *c, char *stack, size_t size, void (*f)())
{
    // As cudasim_switch leaves it: six registers, then where to return to; a
    // function begins with the stack 8 bytes off a multiple of 16.
    void **top = reinterpret_cast<void **>(stack + size) - 2;
    top[0] = reinterpret_cast<void *>(f);
    top[1] = nullptr;
    *c = top - 6;
}
#else
#include <ucontext.h>
typedef ucontext_t context_t;

static void context_switch(context_t *save, context_t *to)
{
    swapcontext(save, to);
}

static void context_make(context_t *c, char *stack, size_t size, void (*f)())
{
    getcontext(c);
    c->uc_stack.ss_sp = stack;
    c->uc_stack.ss_size = size;
    c->uc_link = nullptr;
    makecontext(c, f, 0);
}
#endif

namespace cudasim {

// ---- state ------------------------------------------------------------------

enum { MOST_THREADS = 1024, STACK = 64 * 1024, PAGE = 4096, LANES = 32 };
enum state_t { READY, BARRIER, WARP, DONE };

struct thread_t {
    context_t context;
    dim3 id;
    state_t state;
    bool begun;
    int barriers;     // that it came to
    cudasim_place at; // where it waits
    // The warp operation it waits in.
    int op, arg, width;
    unsigned mask;
    uint64_t value, result;
    void (*together)(void *const *lane);
};

struct warp_t {
    int waiting;   // lanes in a warp operation
    unsigned gone; // lanes that have ended, or do not exist
};

struct shared_t {
    const void *key;
    char *at;
    size_t size;
};

enum { SHARED_ROOM = 1024 * 1024, REDZONE = 64, MOST_ARRAYS = 32 };

static struct engine_t {
    char *stacks;
    char *shared;
    thread_t threads[MOST_THREADS];
    warp_t warps[MOST_THREADS / LANES];
    std::vector<int> ready; // can run, in no order
    context_t scheduler;
    int current; // thread
    int count;   // threads of the block
    int live;
    int waiting; // at the barrier
    cudaError_t fault;
    const cudasim_launch *launch;
    int device;
    const void *arguments;
    shared_t arrays[MOST_ARRAYS];
    int num_arrays;
    size_t shared_used;
} e;

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

int in_shared(uintptr_t at, size_t size)
{
    uintptr_t begin = reinterpret_cast<uintptr_t>(e.shared);
    if (at - begin >= SHARED_ROOM) {
        return 0;
    }
    for (int i = 0; i < e.num_arrays; i++) {
        uintptr_t first = reinterpret_cast<uintptr_t>(e.arrays[i].at);
        if (at >= first && at + size <= first + e.arrays[i].size) {
            return 1;
        }
    }
    return -1;
}

// ---- threads ----------------------------------------------------------------

// Gives way to the scheduler; returns when it is this thread's turn again.
static void leave()
{
    thread_t *t = &e.threads[e.current];
    context_switch(&t->context, &e.scheduler);
}

static void make_ready(int thread)
{
    e.threads[thread].state = READY;
    e.ready.push_back(thread);
}

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

// A lane that ends is missed by those that wait for it.
static void check_lane_missed(int thread)
{
    int lane = thread % LANES;
    for (int i = thread - lane; i < thread - lane + LANES && i < e.count;
         i++) {
        const thread_t *t = &e.threads[i];
        if (t->state == WARP && (t->mask >> lane & 1u)) {
            kernel_fault(cudaErrorLaunchFailure,
                         "%s:%d: lane %d of the mask %08x has ended",
                         t->at.file, t->at.line, lane, t->mask);
        }
    }
}

static void thread_main()
{
    e.launch->run(e.arguments);
    check_lane_missed(e.current);
    e.threads[e.current].state = DONE;
    e.warps[e.current / LANES].gone |= 1u << e.current % LANES;
    e.live--;
    open_barrier();
    leave();
}

static void resume(int thread)
{
    thread_t *t = &e.threads[thread];
    e.current = thread;
    cudasim_now.thread = t->id;
    if (!t->begun) {
        t->begun = true;
        context_make(&t->context, e.stacks + (size_t)thread * STACK + PAGE,
                     STACK - PAGE, thread_main);
    }
    context_switch(&e.scheduler, &t->context);
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
    const dim3 &b = e.launch->block;
    e.count = e.live = (int)(b.x * b.y * b.z);
    e.waiting = e.num_arrays = 0;
    e.shared_used = 0;
    e.ready.clear();
    forget_copies(e.count);
    for (int w = 0; w * LANES < e.count; w++) {
        int lanes = e.count - w * LANES;
        e.warps[w].waiting = 0;
        e.warps[w].gone = lanes < LANES ? ~0u << lanes : 0;
    }
    for (int i = 0; i < e.count; i++) {
        thread_t *t = &e.threads[i];
        t->id = dim3((unsigned)i % b.x, (unsigned)i / b.x % b.y,
                     (unsigned)i / (b.x * b.y));
        t->begun = false;
        t->barriers = 0;
        make_ready(i);
    }
    while (!e.ready.empty() && e.fault == cudaSuccess) {
        size_t k = below(e.ready.size());
        int thread = e.ready[k];
        e.ready[k] = e.ready.back();
        e.ready.pop_back();
        resume(thread);
    }
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
}

cudaError_t run_kernel(const cudasim_launch &launch, const void *arguments,
                       size_t size, int device)
{
    prepare();
    memcpy(constants, arguments, size);
    const dim3 &g = launch.grid;
    std::vector<uint64_t> order((size_t)g.x * g.y * g.z);
    for (size_t i = 0; i < order.size(); i++) {
        size_t k = below(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    e.launch = &launch;
    e.arguments = constants;
    e.device = device;
    e.fault = cudaSuccess;
    running = true;
    cudasim_now.grid_dim = launch.grid;
    cudasim_now.block_dim = launch.block;
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

// ---- warps ------------------------------------------------------------------

static int source_lane(const thread_t *t, int lane)
{
    int first = lane / t->width * t->width;
    int source = lane;
    switch (t->op) {
    case CUDASIM_SHFL:
        return first + (t->arg & (t->width - 1));
    case CUDASIM_SHFL_UP:
        source = lane - t->arg;
        return source < first ? lane : source;
    case CUDASIM_SHFL_DOWN:
        source = lane + t->arg;
        break;
    case CUDASIM_SHFL_XOR:
        source = lane ^ t->arg;
        break;
    }
    return source >= first + t->width ? lane : source;
}

static void run_together(int first)
{
    void *lane[LANES];
    for (int l = 0; l < LANES; l++) {
        lane[l] = reinterpret_cast<void *>(e.threads[first + l].value);
    }
    e.threads[first].together(lane);
}

// All lanes of the mask are there: each gets its result and can run.
static void finish_warp(int first, unsigned mask)
{
    if (e.threads[e.current].op == CUDASIM_TOGETHER) {
        run_together(first);
    }
    unsigned votes = 0;
    for (int l = 0; l < LANES; l++) {
        if (mask >> l & 1u) {
            votes |= e.threads[first + l].value != 0 ? 1u << l : 0;
        }
    }
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1u)) {
            continue;
        }
        thread_t *t = &e.threads[first + l];
        int source = source_lane(t, l);
        if (t->op == CUDASIM_BALLOT) {
            t->result = votes;
        } else if (t->op != CUDASIM_SYNC && t->op != CUDASIM_TOGETHER &&
                   !(mask >> source & 1u)) {
            kernel_fault(cudaErrorLaunchFailure,
                         "%s:%d: lane %d takes the value of lane %d, which "
                         "is not in the mask %08x",
                         t->at.file, t->at.line, l, source, mask);
        } else {
            t->result = e.threads[first + source].value;
        }
        make_ready(first + l);
        e.warps[first / LANES].waiting--;
    }
}

// True when all lanes of the running one's mask wait for the same.
static bool warp_complete(const thread_t *t, int first)
{
    bool all = true;
    for (int l = 0; l < LANES; l++) {
        const thread_t *other = &e.threads[first + l];
        if (!(t->mask >> l & 1u)) {
            continue;
        }
        if (first + l >= e.count || other->state == DONE) {
            kernel_fault(cudaErrorLaunchFailure,
                         "%s:%d: lane %d of the mask %08x %s", t->at.file,
                         t->at.line, l, t->mask,
                         first + l >= e.count ? "does not exist"
                                              : "has ended");
        }
        all = all && other->state == WARP && other->mask == t->mask &&
              other->op == t->op && other->at.line == t->at.line;
    }
    return all;
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

extern "C" uint64_t cudasim_warp(int op, cudasim_place place, unsigned mask,
                                 uint64_t value, int arg, int width)
{
    thread_t *t = &e.threads[e.current];
    int lane = e.current % LANES;
    int first = e.current - lane;
    t->op = op;
    t->arg = arg;
    t->width = width;
    t->mask = mask;
    t->value = value;
    t->at = place;
    t->state = WARP;
    warp_t *w = &e.warps[first / LANES];
    w->waiting++;
    if (!(mask >> lane & 1u)) {
        kernel_fault(cudaErrorLaunchFailure,
                     "%s:%d: lane %d is not in its own mask %08x", place.file,
                     place.line, lane, mask);
    }
    bool look = (mask & w->gone) != 0 ||
                w->waiting >= __builtin_popcount(mask);
    if (look && warp_complete(t, first)) {
        finish_warp(first, mask);
    }
    leave();
    return t->result;
}

extern "C" void cudasim_together(cudasim_place place, void *mine,
                                 void (*run)(void *const *lane))
{
    e.threads[e.current].together = run;
    cudasim_warp(CUDASIM_TOGETHER, place, 0xffffffffu,
                 reinterpret_cast<uint64_t>(mine), 0, LANES);
}

extern "C" void cudasim_yield(void)
{
    make_ready(e.current);
    leave();
}

extern "C" void cudasim_global(const void *at)
{
    if (in_shared(reinterpret_cast<uintptr_t>(at), 16) != 0) {
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
