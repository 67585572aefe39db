/* SPDX-License-Identifier: Apache-2.0
 *
 * A host model of Kunlun's clusters, for raw kernels: cluster.cc schedules the
 * cores of one cluster after the other, core_memory.cc has what they may touch
 * and when.
 *
 * Certainty marks as in docs/devices/xpu.md. A core has 8 KiB of local memory
 * (a quarter of what four cores share, A for the second generation, D for the
 * P800), of which kernels get 6 (that much is used on a P800, C): the rest is
 * its stack. A cluster has 40 KiB of shared memory that kernels of a P800 use
 * (C; the second generation has 256). An asynchronous copy has happened by the
 * next fence, not before in any order (A); what is written by scalars is seen
 * by vectors and copies, and the reverse, behind a fence (B: public kernels
 * have one there); a barrier orders what was fenced before (the stricter of two
 * habits). There is no order between clusters (A). */
#ifndef CLUSTERSIM_CLUSTER_H
#define CLUSTERSIM_CLUSTER_H

#include <vector>

#include "clustersim.h"
#include "fiber.h"
#include "xpu/kernel/xtdk.h"

namespace clustersim __attribute__((visibility("hidden")))
{

    enum { CORES = 64, MOST_CLUSTERS = 255, MOST_ARRAYS = 32, REDZONE = 64 };
    enum { LOCAL = 6 * 1024, SHARED = 40 * 1024, VECTOR = 64 };
    enum { LOCAL_ROOM = 16 * 1024, SHARED_ROOM = 64 * 1024 };
    enum { EXCEPTION = 714 }; /* XPUERR_KEXCEPTION */

    /* What is known of a byte of local memory since the last fence. */
    enum byte_t : uint8_t {
        CLEAN,
        BY_SCALAR, /* written so */
        BY_VECTOR,
        COMES, /* of a copy that may not have happened */
        GOES
    };

    struct array_t {
        const void *key;
        size_t begin, size; /* in its memory */
    };

    struct arrays_t {
        array_t array[MOST_ARRAYS];
        int count;
        size_t used, bytes; /* with gaps, without */
    };

    struct pending_t {
        void *to;
        const void *from; /* as the host has them */
        size_t size;
        clustersim_copy_t kind;
        uintptr_t global; /* the device address */
        bool done;
    };

    enum state_t { READY, WAITING, DONE };

    struct core_t {
        context_t context;
        state_t state;
        clustersim_place at; /* where it waits */
        uint64_t epoch;      /* barriers it came through */
        int done[3];         /* fences, barriers, copies */
        arrays_t arrays;
        std::vector<pending_t> pending; /* since the last fence */
        size_t low, high;               /* of bytes that are not CLEAN */
        bool shared_dirty; /* it wrote there since its last fence */
        alignas(64) uint8_t local[LOCAL_ROOM];
        byte_t state_of[LOCAL_ROOM];
    };

    /* Who touched a byte of shared memory last. */
    struct touch_t {
        int16_t writer, reader; /* core; -1: nobody, -2: several readers */
        uint64_t written, read; /* in which epoch of the kernel */
    };

    struct global_t { /* an access to global memory, whole */
        uintptr_t begin, end;
        int cluster, core;
        uint64_t epoch;
        bool write;
    };

    struct engine_t {
        const clustersim_launch *launch;
        core_t core[CORES];
        int cores, live;
        uint64_t base; /* epochs of clusters before */
        char *stacks;
        context_t scheduler;
        int current;
        int fault;
        arrays_t arrays; /* shared */
        alignas(64) uint8_t shared[SHARED_ROOM];
        touch_t touch[SHARED_ROOM];
        std::vector<global_t> log;
    };
    extern engine_t e;
    extern thread_local bool running;

    /* ---- cluster.cc
     * ---------------------------------------------------------- */
    uint64_t below(uint64_t n); /* by chance */
    [[noreturn]] void kernel_fault(const char *format, ...)
        __attribute__((format(printf, 1, 2)));
    void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
    void give_way();
    bool planted(clustersim_plant_t what);
    bool on_stack(uintptr_t at);

    /* ---- core_memory.cc
     * ------------------------------------------------------ */
    void begin_memory();
    void begin_cluster(); /* what memories hold is undefined */
    void end_core();      /* nothing may be under way */
    void check_global();  /* the launch is over: cores in each other's way */
    void check_before_barrier();

} // namespace )

#endif
