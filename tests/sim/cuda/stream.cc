// SPDX-License-Identifier: Apache-2.0
//
// Streams and events. Work waits in the queue of its stream; every call of the
// runtime may let some of it run, a random stream's next piece at a time, and
// waiting runs exactly what it waits for. So work is late by a random time,
// and nothing depends on the clock: a seed says it all.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "sim.h"

using namespace cudasim;

sim_t cudasim::sim;
thread_local int cudasim::current_device;

// ---- chance -----------------------------------------------------------------

uint64_t cudasim::chance;

static bool happens(double share)
{
    return (double)(draw() >> 11) * 0x1p-53 < share;
}

extern "C" void cudasim_seed(uint64_t seed)
{
    static const double paces[] = {0.0, 0.1, 0.5, 0.9, 1.0};
    chance = seed * 0x2545F4914F6CDD1Du + 1;
    sim.pace = paces[below(5)];
}

extern "C" void cudasim_pace(double share)
{
    sim.pace = share;
}

void cudasim::begin()
{
    if (sim.begun) {
        return;
    }
    const char *seed = getenv("CUDASIM_SEED");
    const char *devices = getenv("CUDASIM_DEVICES");
    const char *kill = getenv("CUDASIM_KILL_AT_GRAPH");
    const char *hang = getenv("CUDASIM_HANG_FILE");
    const char *sums = getenv("CUDASIM_BIAS_SUMS");
    sim.begun = true;
    sim.no_sums = sums != nullptr && atoi(sums) == 0;
    sim.kill_at = kill != nullptr ? atoll(kill) : 0;
    sim.hang_file = hang;
    sim.devices = devices != nullptr ? atoi(devices) : 1;
    sim.bytes = (size_t)4 << 30;
    cudasim_shared_limit(227 * 1024);
    cudasim_processors(4);
    cudasim_seed(seed != nullptr ? strtoull(seed, nullptr, 10) : 1);
}

// ---- errors -----------------------------------------------------------------

void cudasim::report(const char *format, ...)
{
    char text[sizeof(sim.report)];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (sim.report[0] == '\0') {
        strcpy(sim.report, text);
    }
    if (!sim.quiet) {
        fprintf(stderr, "cudasim: %s\n", text);
    }
}

cudaError_t cudasim::fail(cudaError_t error)
{
    if (error != cudaSuccess) {
        sim.last = error;
    }
    return error;
}

static void progress();

cudaError_t cudasim::enter(const char *name)
{
    begin();
    sim.calls++;
    if (sim.hang_file != nullptr && access(sim.hang_file, F_OK) == 0) {
        sim.hanging.insert(current_device);
    }
    if (fails_as_told(name)) {
        return sim.fail_with;
    }
    if (sim.devices == 0) {
        return cudaErrorNoDevice;
    }
    progress();
    return sim.sticky;
}

extern "C" const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorPeerAccessAlreadyEnabled:
        return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorMisalignedAddress: return "cudaErrorMisalignedAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    case cudaErrorStreamCaptureUnsupported:
        return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
        return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched:
        return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined:
        return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
        return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit:
        return "cudaErrorStreamCaptureImplicit";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorStreamCaptureWrongThread:
        return "cudaErrorStreamCaptureWrongThread";
    }
    return "unknown error";
}

extern "C" const char *cudaGetErrorString(cudaError_t error)
{
    return cudaGetErrorName(error);
}

extern "C" cudaError_t cudaGetLastError(void)
{
    cudaError_t error = sim.last;
    sim.last = sim.sticky;
    return error;
}

extern "C" cudaError_t cudaPeekAtLastError(void)
{
    return sim.last;
}

// ---- what runs when ---------------------------------------------------------

// The default stream of the current device.
static CUstream_st *null_stream()
{
    for (CUstream_st *s : sim.streams) {
        if (s->null && s->device == current_device) {
            return s;
        }
    }
    sim.streams.push_back(new CUstream_st{{}, current_device, true, true});
    return sim.streams.back();
}

static bool hangs(const CUstream_st *s)
{
    return sim.hanging.count(s->device) > 0;
}

static bool blocked(const CUstream_st *s)
{
    const piece_t &p = s->queue.front();
    return !p.run && !p.record->done;
}

// False: it waits for somebody who is not here.
static bool run_next(CUstream_st *s)
{
    piece_t p = s->queue.front();
    cudaError_t error = cudaSuccess;
    if (p.run && (sim.sticky == cudaSuccess || p.record != nullptr)) {
        unlock();
        error = p.run();
        lock();
    }
    if (p.again && error == cudaErrorNotReady) {
        return false;
    }
    s->queue.pop_front();
    s->passed++;
    sim.turns++;
    if (error != cudaSuccess) {
        sim.sticky = error;
        fail(error);
    }
    return true;
}

// The next piece of some stream; false: none could run.
static bool step()
{
    CUstream_st *chosen = nullptr;
    uint64_t seen = 0;
    for (CUstream_st *s : sim.streams) {
        if (!s->queue.empty() && !hangs(s) && !blocked(s) &&
            below(++seen) == 0) {
            chosen = s;
        }
    }
    return chosen != nullptr && run_next(chosen);
}

void cudasim::step_any()
{
    step();
}

static void progress()
{
    while (happens(sim.pace) && step()) {
    }
}

// Lets everybody else go on who could be waited for.
static void wait_a_little()
{
    for (CUstream_st *s : sim.streams) {
        if (!s->queue.empty() && !hangs(s) && !blocked(s)) {
            run_next(s);
        }
    }
    sim.mutex.unlock();
    usleep(20);
    sim.mutex.lock();
}

// While it waits a little, who has the stream may destroy it.
static bool busy(CUstream_st *s)
{
    return known(s) && !s->queue.empty();
}

// Other threads run pieces of it as well: no more than so many are waited for.
void cudasim::drain(CUstream_st *s, size_t count)
{
    uint64_t end = known(s) ? s->passed + count : 0;
    while (busy(s) && s->passed < end) {
        if (hangs(s)) {
            wait_a_little();
        } else if (blocked(s)) {
            drain(s->queue.front().record->stream, 1);
        } else if (!run_next(s)) {
            wait_a_little();
        }
    }
}

// A piece of s, or of what it waits for.
static void nudge(CUstream_st *s)
{
    while (s != nullptr && !s->queue.empty() && blocked(s)) {
        s = s->queue.front().record->stream;
    }
    if (s != nullptr && !s->queue.empty() && !hangs(s)) {
        run_next(s);
    }
}

void cudasim::drain_all()
{
    const auto all = sim.streams;
    for (CUstream_st *s : all) {
        drain(s, busy(s) ? s->queue.size() : 0);
    }
}

// The default stream and the blocking ones wait for each other.
static void drain_blocking(const CUstream_st *s)
{
    const auto all = sim.streams;
    for (CUstream_st *other : all) {
        if (known(other) && s->blocking && other != s && other->blocking &&
            (s->null || other->null) && other->device == s->device) {
            drain(other, other->queue.size());
        }
    }
}

CUstream_st *cudasim::stream_of(cudaStream_t stream)
{
    return stream != nullptr ? stream : null_stream();
}

bool cudasim::known(CUstream_st *s)
{
    for (CUstream_st *other : sim.streams) {
        if (other == s) {
            return true;
        }
    }
    return false;
}

void cudasim::enqueue(CUstream_st *s, std::function<cudaError_t()> run,
                      const record_ptr_t &record)
{
    if (record == nullptr && keep(s, [=] { return run; }, false)) {
        return;
    }
    check_launching(s);
    drain_blocking(s);
    s->queue.push_back({run, record, false});
    if (record == nullptr) {
        s->before[s] = ++sim.works;
    }
    progress();
}

void cudasim::enqueue_again(CUstream_st *s, const maker_t &make)
{
    if (!keep(s, make, true)) {
        s->queue.push_back({make(), nullptr, true});
        s->before[s] = ++sim.works;
        progress();
    }
}

// ---- streams and events -----------------------------------------------------

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream,
                                                 unsigned flags)
{
    ENTER("cudaStreamCreateWithFlags");
    *stream = new CUstream_st{
        {}, current_device, (flags & cudaStreamNonBlocking) == 0, false};
    sim.streams.push_back(*stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER_IDLE("cudaStreamDestroy");
    NEED(known(stream), cudaErrorInvalidResourceHandle, "unknown stream");
    drain(stream, stream->queue.size());
    sim.streams.remove(stream);
    delete stream;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER_IDLE("cudaStreamSynchronize");
    CUstream_st *s = stream_of(stream);
    NEED(known(s), cudaErrorInvalidResourceHandle, "unknown stream");
    drain_blocking(s);
    drain(s, s->queue.size());
    return fail(sim.sticky);
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER_IDLE("cudaStreamQuery");
    CUstream_st *s = stream_of(stream);
    NEED(known(s), cudaErrorInvalidResourceHandle, "unknown stream");
    return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    ENTER_IDLE("cudaDeviceSynchronize");
    drain_all();
    return fail(sim.sticky);
}

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event,
                                                unsigned flags)
{
    ENTER("cudaEventCreateWithFlags");
    bool timed = (flags & cudaEventDisableTiming) == 0;
    *event = new CUevent_st{nullptr, timed};
    sim.events.insert(*event);
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER_IDLE("cudaEventDestroy");
    NEED(sim.events.count(event) > 0, cudaErrorInvalidResourceHandle,
         "unknown event");
    sim.events.erase(event);
    delete event;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER("cudaEventRecord");
    CUstream_st *s = stream_of(stream);
    NEED(sim.events.count(event) > 0 && known(s),
         cudaErrorInvalidResourceHandle, "unknown event or stream");
    keep_record(event, s);
    if (is_captured(s)) {
        return cudaSuccess;
    }
    auto record = std::make_shared<record_t>(record_t{s});
    record->before = s->before;
    event->last = record;
    enqueue(s, [record] {
        record->done = true;
        record->when = sim.turns;
        return cudaSuccess;
    }, record);
    return cudaSuccess;
}

static bool is_pending(const CUevent_st *event)
{
    return event->last != nullptr && !event->last->done;
}

// What was recorded until now; nothing, when nothing was.
extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream,
                                           cudaEvent_t event, unsigned flags)
{
    ENTER("cudaStreamWaitEvent");
    CUstream_st *s = stream_of(stream);
    NEED(sim.events.count(event) > 0 && known(s) && flags == 0,
         cudaErrorInvalidResourceHandle, "unknown event, stream or flag");
    if (is_captured(s) || event->capture != 0) {
        return fail(keep_wait(s, event));
    }
    if (is_pending(event) && !plant_wait(s, *event->last)) {
        for (const auto &b : event->last->before) {
            uint64_t &own = s->before[b.first];
            own = own > b.second ? own : b.second;
        }
        s->queue.push_back({nullptr, event->last, false});
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER_IDLE("cudaEventQuery");
    NEED(sim.events.count(event) > 0, cudaErrorInvalidResourceHandle,
         "unknown event");
    NEED(event->capture == 0, cudaErrorCapturedEvent,
         "cudaEventQuery of what was captured");
    if (is_pending(event)) { // who asks again and again waits
        nudge(event->last->stream);
        return fail(sim.sticky) != cudaSuccess ? sim.sticky
                                               : cudaErrorNotReady;
    }
    return fail(sim.sticky);
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER_IDLE("cudaEventSynchronize");
    NEED(sim.events.count(event) > 0, cudaErrorInvalidResourceHandle,
         "unknown event");
    NEED(event->capture == 0, cudaErrorCapturedEvent,
         "cudaEventSynchronize with what was captured");
    const record_ptr_t record = event->last; // as of now
    while (record != nullptr && !record->done) {
        drain(record->stream, 1);
    }
    return fail(sim.sticky);
}

extern "C" cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin,
                                            cudaEvent_t end)
{
    ENTER("cudaEventElapsedTime");
    NEED(sim.events.count(begin) > 0 && sim.events.count(end) > 0 &&
             begin->timed && end->timed && begin->last != nullptr &&
             end->last != nullptr,
         cudaErrorInvalidResourceHandle,
         "cudaEventElapsedTime: an event without a time");
    if (is_pending(begin) || is_pending(end)) {
        return cudaErrorNotReady;
    }
    *ms = (float)(int64_t)(end->last->when - begin->last->when);
    return cudaSuccess;
}

// ---- control ----------------------------------------------------------------

extern "C" int64_t cudasim_calls(void) { return sim.calls; }

extern "C" void cudasim_fail_at(int64_t n, cudaError_t error)
{
    sim.fail_at = n;
    sim.fail_with = error;
}

extern "C" void cudasim_lose(cudaError_t error)
{
    sim.sticky = fail(error);
}

extern "C" void cudasim_devices(int count, size_t bytes)
{
    begin();
    sim.devices = count;
    sim.bytes = bytes;
}

extern "C" void cudasim_hang(int device, int on)
{
    std::lock_guard<std::recursive_mutex> guard(sim.mutex);
    if (on != 0) {
        sim.hanging.insert(device);
    } else {
        sim.hanging.erase(device);
    }
}

extern "C" void cudasim_shared_limit(size_t bytes)
{
    begin();
    sim.most_shared = bytes;
    sim.shared.clear(); // what kernels were allowed
}

extern "C" void cudasim_processors(int count)
{
    begin();
    sim.processors = count;
    sim.blocks = 0;
}

extern "C" int64_t cudasim_copies(void) { return sim.copies; }

extern "C" int64_t cudasim_blocks(void) { return sim.blocks; }

extern "C" const char *cudasim_report(void) { return sim.report; }
extern "C" void cudasim_quiet(int quiet) { sim.quiet = quiet != 0; }

extern "C" void cudasim_reset(void)
{
    for (CUevent_st *e : sim.events) {
        delete e;
    }
    for (CUstream_st *s : sim.streams) {
        delete s;
    }
    sim.events.clear();
    sim.streams.clear();
    forget_graphs();
    sim.peers[0] = sim.peers[1] = {};
    sim.shared.clear();
    sim.loaded.clear();
    sim.no_epilogues = false;
    sim.communicates.clear();
    sim.launching.clear();
    sim.hanging.clear();
    sim.cut = sim.deaf = {};
    sim.last = sim.sticky = cudaSuccess;
    sim.fail_at = 0;
    sim.failed = false;
    sim.report[0] = '\0';
    current_device = 0;
    forget_memory();
}

extern "C" int64_t cudasim_alive(void)
{
    int64_t count =
        alive_ranges() + (int64_t)sim.events.size() + alive_graphs();
    for (const CUstream_st *s : sim.streams) {
        count += !s->null;
    }
    return count;
}
