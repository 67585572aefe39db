// SPDX-License-Identifier: Apache-2.0
//
// Runs a raw kernel: cluster after cluster in random order; the cores of one
// are fibers. A core runs until it copies, fences, waits or ends, then a random
// one of those that can run goes on.
#include "cluster.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

extern "C" {
clustersim_ids clustersim_now;
}

namespace clustersim
{

enum { PAGE = 4096, STACK = 17 * PAGE };

engine_t e;
thread_local bool running;
static std::mutex mutex;
static char text_of_report[1024];
static uint64_t chance = 1;
static char constants[4096] __attribute__((aligned(64)));

static struct {
    char kernel[64];
    clustersim_plant_t what;
    int n;
    bool met;
} plant;

uint64_t below(uint64_t n)
{
    uint64_t z = chance += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return ((z ^ (z >> 31)) >> 32) * n >> 32;
}

static void report_list(const char *format, va_list list)
{
    if (text_of_report[0] == '\0') { // the first finding
        vsnprintf(text_of_report, sizeof(text_of_report), format, list);
    }
}

void report(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    report_list(format, list);
    va_end(list);
    e.fault = EXCEPTION;
}

void kernel_fault(const char *format, ...)
{
    char text[512];
    context_t lost;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    report("kernel %s, cluster %d, core %d: %s", e.launch->name,
           clustersim_now.cluster, clustersim_now.core, text);
    context_switch(&lost, &e.scheduler);
    __builtin_unreachable();
}

bool planted(clustersim_plant_t what)
{
    core_t &c = e.core[e.current];
    bool here = ++c.done[what] == plant.n && plant.what == what &&
                strstr(e.launch->name, plant.kernel) != nullptr;
    plant.met = plant.met || here;
    return here;
}

bool on_stack(uintptr_t at)
{
    return at - reinterpret_cast<uintptr_t>(e.stacks) < (size_t)CORES * STACK;
}

// ---- cores ------------------------------------------------------------------

// One of those that can run; -1: none can.
static int pick()
{
    int ready[CORES];
    int count = 0;
    for (int i = 0; i < e.cores; i++) {
        if (e.core[i].state == READY) {
            ready[count++] = i;
        }
    }
    return count > 0 ? ready[below((uint64_t)count)] : -1;
}

static void become(int core)
{
    e.current = core;
    clustersim_now.core = core;
}

void give_way()
{
    int before = e.current;
    int next = pick();
    if (next == before) {
        return;
    }
    if (next >= 0) {
        become(next);
    }
    context_switch(&e.core[before].context,
                   next < 0 ? &e.scheduler : &e.core[next].context);
}

static void open_barrier()
{
    int waiting = 0;
    for (int i = 0; i < e.cores; i++) {
        waiting += e.core[i].state == WAITING;
    }
    if (waiting < e.cores) { // those that have ended as well
        return;
    }
    for (int i = 0; i < e.cores; i++) {
        core_t &c = e.core[i];
        if (c.state == WAITING) {
            c.state = READY;
            c.epoch++;
        }
    }
}

static void core_main()
{
    context_t lost;
    e.launch->run(constants);
    end_core();
    e.core[e.current].state = DONE;
    e.live--;
    int next = pick();
    if (next >= 0) {
        become(next);
    }
    context_switch(&lost, next < 0 ? &e.scheduler : &e.core[next].context);
    __builtin_unreachable();
}

static void report_stuck()
{
    int i = 0;
    while (e.core[i].state != WAITING) {
        i++;
    }
    report("kernel %s, cluster %d: core %d waits at %s:%d for ever: %d of %d "
           "cores have ended",
           e.launch->name, clustersim_now.cluster, i, e.core[i].at.file,
           e.core[i].at.line, e.cores - e.live, e.cores);
}

static void run_cluster()
{
    begin_cluster();
    e.live = e.cores;
    for (int i = 0; i < e.cores; i++) {
        core_t &c = e.core[i];
        c.state = READY;
        c.epoch = e.base;
        memset(c.done, 0, sizeof(c.done));
        char *stack = e.stacks + (size_t)i * STACK + PAGE;
        context_make(&c.context, stack, STACK - PAGE, core_main);
    }
    become(pick());
    context_switch(&e.scheduler, &e.core[e.current].context);
    if (e.fault == 0 && e.live > 0) {
        report_stuck();
    }
    e.base += 1u << 20; // more than any kernel has barriers
}

static void prepare()
{
    if (e.stacks == nullptr) {
        begin_memory();
        size_t room = (size_t)CORES * STACK;
        e.stacks = static_cast<char *>(
            mmap(nullptr, room, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        for (int i = 0; i < CORES; i++) {
            mprotect(e.stacks + (size_t)i * STACK, PAGE, PROT_NONE);
        }
    }
}

static int run_kernel(const clustersim_launch &launch, const void *arguments,
                      size_t size)
{
    int order[MOST_CLUSTERS];
    prepare();
    memcpy(constants, arguments, size);
    for (int i = 0; i < launch.clusters; i++) {
        int k = (int)below((uint64_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    e.launch = &launch;
    e.cores = launch.cores;
    e.fault = 0;
    e.log.clear();
    clustersim_now.cores = launch.cores;
    clustersim_now.clusters = launch.clusters;
    running = true;
    for (int i = 0; i < launch.clusters && e.fault == 0; i++) {
        clustersim_now.cluster = order[i];
        run_cluster();
    }
    running = false;
    if (e.fault == 0) {
        check_global();
    }
    return e.fault;
}

// ---- launches ---------------------------------------------------------------

struct launch_t {
    clustersim_launch launch;
    size_t size;
    char arguments[sizeof(constants)];
};

static int run_launch(void *arg)
{
    launch_t *l = static_cast<launch_t *>(arg);
    std::lock_guard<std::mutex> guard(mutex);
    int error = run_kernel(l->launch, l->arguments, l->size);
    delete l;
    return error;
}

} // namespace clustersim

using namespace clustersim;

extern "C" int clustersim_enqueue(const clustersim_launch *launch,
                                  const void *arguments, size_t size)
{
    enum { INVALID_PARAM = 707 };
    if (launch->clusters < 1 || launch->clusters > MOST_CLUSTERS ||
        launch->cores != CORES || size > sizeof(constants)) {
        std::lock_guard<std::mutex> guard(mutex);
        report("kernel %s: %d clusters of %d cores, %zu bytes of arguments",
               launch->name, launch->clusters, launch->cores, size);
        return INVALID_PARAM;
    }
    launch_t *l = new launch_t{*launch, size, {}};
    memcpy(l->arguments, arguments, size);
    return clustersim_stream_run(launch->stream, run_launch, l);
}

extern "C" void clustersim_barrier(clustersim_place place)
{
    core_t &c = e.core[e.current];
    if (planted(CLUSTERSIM_NO_BARRIER)) {
        return;
    }
    check_before_barrier();
    for (int i = 0; i < e.cores; i++) {
        const core_t &other = e.core[i];
        if (other.state == WAITING && other.at.line != place.line) {
            kernel_fault("barrier at %s:%d while core %d waits at line %d",
                         place.file, place.line, i, other.at.line);
        }
    }
    c.state = WAITING;
    c.at = place;
    open_barrier();
    give_way();
}

extern "C" const char *clustersim_report(void)
{
    return text_of_report;
}

extern "C" void clustersim_reset(void)
{
    text_of_report[0] = '\0';
    memset(&plant, 0, sizeof(plant));
}

extern "C" void clustersim_seed(uint64_t seed)
{
    chance = seed;
}

extern "C" void clustersim_plant(const char *kernel, clustersim_plant_t what,
                                 int n)
{
    memset(&plant, 0, sizeof(plant));
    if (kernel != nullptr) {
        snprintf(plant.kernel, sizeof(plant.kernel), "%s", kernel);
    }
    plant.what = what;
    plant.n = n;
}

extern "C" int clustersim_planted(void)
{
    return plant.met;
}
