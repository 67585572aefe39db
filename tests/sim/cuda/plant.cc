// SPDX-License-Identifier: Apache-2.0
//
// Bugs on request, in kernels and host code as they are: env CUDASIM_PLANT.
//   "barrier KERNEL N"  threads of that kernel pass their N-th barrier
//   "sync KERNEL N"     lanes of that kernel pass their N-th __syncwarp
//   "block KERNEL"      its last block does not run
//   "wait N"            the N-th wait of a stream for an event is left out;
//                       only those count that no earlier wait implies and whose
//                       event has not come, and none in a capture
//   "launch N"          the N-th call of NCCL is said to be launched, which its
//                       thread does only some time later
// KERNEL is a part of its name. What is planted is told once, where it acts.
// And calls that fail because a test wants it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "sim.h"

namespace {

enum what_t {
    NOTHING,
    THE_BARRIER,
    THE_SYNC,
    THE_BLOCK,
    THE_WAIT,
    THE_LAUNCH
};

struct plant_t {
    what_t what = NOTHING;
    char kernel[64] = "";
    int number = 0;
    bool told = false;

    plant_t()
    {
        const char *text = getenv("CUDASIM_PLANT");
        if (text == nullptr) {
            return;
        }
        if (sscanf(text, "barrier %63s %d", kernel, &number) == 2) {
            what = THE_BARRIER;
        } else if (sscanf(text, "sync %63s %d", kernel, &number) == 2) {
            what = THE_SYNC;
        } else if (sscanf(text, "block %63s", kernel) == 1) {
            what = THE_BLOCK;
        } else if (sscanf(text, "wait %d", &number) == 1) {
            what = THE_WAIT;
        } else if (sscanf(text, "launch %d", &number) == 1) {
            what = THE_LAUNCH;
        } else {
            fprintf(stderr, "cudasim: CUDASIM_PLANT=%s: unknown\n", text);
            abort();
        }
    }

    void tell(const char *name)
    {
        if (!told) {
            told = true;
            fprintf(stderr, "cudasim: planted in %s\n", name);
        }
    }

    bool is_in(what_t kind, const char *name)
    {
        return what == kind && strstr(name, kernel) != nullptr;
    }
};

plant_t plant;

} // namespace

static bool passes(what_t kind, const char *name, int number)
{
    if (!plant.is_in(kind, name) || number != plant.number) {
        return false;
    }
    plant.tell(name);
    return true;
}

bool cudasim::plant_barrier(const char *kernel, int number)
{
    return passes(THE_BARRIER, kernel, number);
}

bool cudasim::plant_sync(const char *kernel, int number)
{
    return passes(THE_SYNC, kernel, number);
}

bool cudasim::plant_block(const char *kernel, uint64_t block, uint64_t blocks)
{
    if (!plant.is_in(THE_BLOCK, kernel) || block + 1 != blocks) {
        return false;
    }
    plant.tell(kernel);
    return true;
}

// Does the stream come behind some work of the record only if it waits?
static bool adds_order(const CUstream_st *s,
                       const cudasim::record_t &record)
{
    for (const auto &b : record.before) {
        auto own = s->before.find(b.first);
        if (b.first != s &&
            (own == s->before.end() || own->second < b.second)) {
            return true;
        }
    }
    return false;
}

bool cudasim::plant_wait(const CUstream_st *s, const record_t &record)
{
    if (plant.what != THE_WAIT || !adds_order(s, record) ||
        --plant.number != 0) {
        return false;
    }
    plant.tell("a wait for an event");
    return true;
}

bool cudasim::plant_launch()
{
    if (plant.what != THE_LAUNCH || --plant.number != 0) {
        return false;
    }
    plant.tell("a launch of NCCL");
    return true;
}

bool cudasim::fails_as_told(const char *name)
{
    if (sim.failed && sim.report[0] != '\0') {
        // the first call behind it tells what it was for
        size_t length = strlen(sim.report);
        snprintf(sim.report + length, sizeof(sim.report) - length,
                 ", before %s", name);
    }
    sim.failed = sim.fail_at > 0 && --sim.fail_at == 0;
    if (sim.failed) {
        report("%s fails as told: %s", name, cudaGetErrorName(sim.fail_with));
    }
    return sim.failed;
}
