// SPDX-License-Identifier: Apache-2.0
//
// Operations of a warp: shuffles, votes, __syncwarp and what tensor cores do.
// Each names the lanes that take part; it is made when all of them are there,
// and lanes that name each other for different ones are an error, as are those
// that come with another mask.
#include <cstring>

#include "engine.h"

using namespace cudasim;

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

// The result of a shuffle for a lane of the mask.
static uint64_t shuffled(const thread_t *t, int lane, int first, unsigned mask)
{
    int source = source_lane(t, lane);
    if (!(mask >> source & 1u)) {
        kernel_fault(cudaErrorLaunchFailure,
                     "%s:%d: lane %d takes the value of lane %d, which is not "
                     "in the mask %08x",
                     t->at.file, t->at.line, lane, source, mask);
    }
    return e.threads[first + source].value;
}

// All lanes of the mask are there: each gets its result and can run.
static void finish_warp(const thread_t *last, int first)
{
    unsigned mask = last->mask;
    int op = last->op;
    unsigned votes = 0;
    if (op == CUDASIM_TOGETHER) {
        run_together(first);
    }
    for (int l = 0; l < LANES && op == CUDASIM_BALLOT; l++) {
        if (mask >> l & 1u) {
            votes |= e.threads[first + l].value != 0 ? 1u << l : 0;
        }
    }
    for (int l = 0; l < LANES; l++) {
        if (!(mask >> l & 1u)) {
            continue;
        }
        thread_t *t = &e.threads[first + l];
        if (op == CUDASIM_BALLOT) {
            t->result = votes;
        } else if (op != CUDASIM_SYNC && op != CUDASIM_TOGETHER) {
            t->result = shuffled(t, l, first, mask);
        }
        make_ready(first + l);
    }
    e.warps[first / LANES].waiting &= ~mask;
}

static bool same_place(const thread_t *a, const thread_t *b)
{
    return a->op == b->op && a->at.line == b->at.line &&
           strcmp(a->at.file, b->at.file) == 0;
}

// Two lanes wait, each for the other, and not for the same.
static void check_pair(const thread_t *t, int lane, int other_lane)
{
    const thread_t *other = t - lane + other_lane;
    bool named = t->mask >> other_lane & 1u;
    bool names = other->mask >> lane & 1u;
    bool same = same_place(t, other);
    if ((named && names && !same) ||
        (same && t->mask != other->mask && (named || names))) {
        kernel_fault(cudaErrorLaunchFailure,
                     "%s:%d: lane %d names the lanes %08x, lane %d at %s:%d "
                     "names %08x",
                     t->at.file, t->at.line, lane, t->mask, other_lane,
                     other->at.file, other->at.line, other->mask);
    }
}

// A lane that is named and will never come.
static void check_there(const thread_t *t, int first)
{
    for (int l = 0; l < LANES; l++) {
        if ((t->mask & e.warps[first / LANES].gone) >> l & 1u) {
            kernel_fault(cudaErrorLaunchFailure,
                         "%s:%d: lane %d of the mask %08x %s", t->at.file,
                         t->at.line, l, t->mask,
                         first + l >= e.count ? "does not exist"
                                              : "has ended");
        }
    }
}

// True when all lanes of the running one's mask wait for the same.
static bool warp_complete(const thread_t *t, int first)
{
    const warp_t *w = &e.warps[first / LANES];
    int lane = e.current - first;
    bool all = (t->mask & ~w->waiting) == 0;
    if (t->mask & w->gone) {
        check_there(t, first);
    }
    for (int l = 0; l < LANES && all; l++) {
        const thread_t *other = &e.threads[first + l];
        if (w->waiting >> l & 1u) {
            check_pair(t, lane, l);
            all = !(t->mask >> l & 1u) || same_place(t, other);
        }
    }
    return all;
}

void cudasim::check_lane_missed(int thread)
{
    int lane = thread % LANES;
    int first = thread - lane;
    unsigned waiting = e.warps[first / LANES].waiting;
    for (int l = 0; l < LANES && waiting != 0; l++) {
        const thread_t *t = &e.threads[first + l];
        if ((waiting >> l & 1u) && (t->mask >> lane & 1u)) {
            kernel_fault(cudaErrorLaunchFailure,
                         "%s:%d: lane %d of the mask %08x has ended",
                         t->at.file, t->at.line, lane, t->mask);
        }
    }
}

extern "C" uint64_t cudasim_warp(int op, cudasim_place place, unsigned mask,
                                 uint64_t value, int arg, int width)
{
    thread_t *t = &e.threads[e.current];
    int lane = e.current % LANES;
    int first = e.current - lane;
    if (op == CUDASIM_SYNC && plant_sync(e.launch->name, ++t->syncs)) {
        return 0;
    }
    t->op = op;
    t->arg = arg;
    t->width = width;
    t->mask = mask;
    t->value = value;
    t->at = place;
    t->state = WARP;
    if (!(mask >> lane & 1u)) {
        kernel_fault(cudaErrorLaunchFailure,
                     "%s:%d: lane %d is not in its own mask %08x", place.file,
                     place.line, lane, mask);
    }
    e.warps[first / LANES].waiting |= 1u << lane;
    if (warp_complete(t, first)) {
        finish_warp(t, first);
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
