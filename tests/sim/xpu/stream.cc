// SPDX-License-Identifier: Apache-2.0
//
// Streams: a thread and a queue each. What is put on one begins when somebody
// waits for it, or sooner, by chance: so a program that forgets to wait finds
// that nothing was done. The default stream is one more, and waits for nobody.
#include <chrono>
#include <csignal>
#include <cstring>
#include <vector>

#include "sim.h"

namespace xpusim {
namespace {

struct event {
    stream_ref of; /* of the last record */
    uint64_t number = 0;
};

struct streams {
    std::mutex lock;
    std::map<void *, stream_ref> all;
    std::map<void *, std::shared_ptr<event>> events;
    stream_ref defaults[MOST_DEVICES];
    uint64_t made = 0;
    uintptr_t handle = 0x5e000000; /* nobody shall look behind one */
};

/* Threads of streams may outlive main. */
streams &all()
{
    static streams *s = new streams;
    return *s;
}

thread_local const stream *own = nullptr; /* whose thread this is */

void work_on(stream_ref s)
{
    std::unique_lock<std::mutex> hold(s->lock);
    own = s.get();
    while (true) {
        s->wake.wait(hold, [&] {
            return s->ends || (s->done < s->wanted && !s->work.empty());
        });
        if (s->work.empty()) {
            return;
        }
        std::function<int()> next = std::move(s->work.front());
        s->work.pop_front();
        int lag = current().lag > 0 && s->random() % 4 == 0
                      ? (int)(s->random() % (unsigned)current().lag)
                      : 0;
        hold.unlock();
        if (lag > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(lag));
        }
        int error = next();
        next = nullptr;
        hold.lock();
        s->error = s->error != 0 ? s->error : error;
        s->done++;
        s->moved.notify_all();
    }
}

stream_ref make(int device)
{
    stream_ref s = std::make_shared<stream>();
    s->device = device;
    s->random.seed(current().seed * 7919 + ++all().made);
    s->worker = std::thread(work_on, s);
    return s;
}

void end(const stream_ref &s)
{
    {
        std::lock_guard<std::mutex> hold(s->lock);
        s->wanted = s->given;
        s->ends = true;
        s->wake.notify_all();
    }
    s->worker.join();
}

void want(stream &s, uint64_t number)
{
    if (s.wanted < number) {
        s.wanted = number;
        s.wake.notify_all();
    }
}

std::shared_ptr<event> find_event(void *handle, const char *who)
{
    std::lock_guard<std::mutex> hold(all().lock);
    auto it = all().events.find(handle);
    if (it == all().events.end()) {
        xpusim_found("%s: %p is no event", who, handle);
        return nullptr;
    }
    return it->second;
}

event copy_of(const std::shared_ptr<event> &e)
{
    std::lock_guard<std::mutex> hold(all().lock);
    return *e;
}

} // namespace

stream_ref find_stream(void *handle, const char *who)
{
    std::lock_guard<std::mutex> hold(all().lock);
    if (handle == nullptr) {
        stream_ref &s = all().defaults[xpusim_current()];
        if (s == nullptr) {
            s = make(xpusim_current());
            s->is_default = true;
        }
        return s;
    }
    auto it = all().all.find(handle);
    if (it == all().all.end()) {
        xpusim_found("%s: %p is no stream", who, handle);
        return nullptr;
    }
    return it->second;
}

uint64_t put(const stream_ref &s, std::function<int()> work)
{
    std::lock_guard<std::mutex> hold(s->lock);
    s->work.push_back(std::move(work));
    s->given++;
    double drawn = (double)(s->random() >> 11) * 0x1p-53;
    if (drawn < current().pace) {
        want(*s, s->given);
    }
    return s->given;
}

int await(const stream_ref &s, uint64_t number)
{
    std::unique_lock<std::mutex> hold(s->lock);
    want(*s, number);
    s->moved.wait(hold, [&] { return s->done >= number; });
    return s->error;
}

bool is_done(const stream_ref &s, uint64_t number)
{
    std::lock_guard<std::mutex> hold(s->lock);
    want(*s, number);
    return s->done >= number;
}

int64_t streams_alive()
{
    std::lock_guard<std::mutex> hold(all().lock);
    return (int64_t)all().all.size();
}

int64_t events_alive()
{
    std::lock_guard<std::mutex> hold(all().lock);
    return (int64_t)all().events.size();
}

} // namespace xpusim

using namespace xpusim;

void xpusim_go(void *handle)
{
    if (stream_ref s = find_stream(handle, "xpusim_go")) {
        std::lock_guard<std::mutex> hold(s->lock);
        want(*s, s->given);
    }
}

int xpusim_device(void *handle)
{
    stream_ref s = find_stream(handle, "xpusim_device");
    return s != nullptr ? s->device : -1;
}

int xpusim_launch(void *handle, const char *name, int (*run)(void *data),
                  void *data)
{
    if (xpusim_plant("default_stream")) {
        handle = nullptr;
    }
    stream_ref s = find_stream(handle, name);
    if (s == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    put(s, [run, data] { return run(data); });
    return 0;
}

extern "C" {

XPUSIM_API int xpu_stream_create(void **p)
{
    if (int error = xpusim_enter("stream_create")) {
        return error;
    }
    std::lock_guard<std::mutex> hold(all().lock);
    int alive = 0;
    for (auto &s : all().all) {
        alive += s.second->device == xpusim_current();
    }
    if (alive >= current().streams) {
        xpusim_found("xpu_stream_create: %d streams of device %d are alive",
                     alive, xpusim_current());
        return xpusim_error(XPUSIM_NOSUPPORT);
    }
    all().handle += 0x40;
    *p = (void *)all().handle;
    all().all[*p] = make(xpusim_current());
    return 0;
}

XPUSIM_API int xpu_stream_destroy(void *handle)
{
    if (int error = xpusim_enter("stream_destroy")) {
        return error;
    }
    if (xpusim_plant("stream_leak")) {
        return 0;
    }
    stream_ref s = find_stream(handle, "xpu_stream_destroy");
    if (s == nullptr || s->is_default) {
        return xpusim_error(XPUSIM_INVALID);
    }
    end(s);
    std::lock_guard<std::mutex> hold(all().lock);
    all().all.erase(handle);
    return 0;
}

XPUSIM_API int xpu_wait(void *handle)
{
    if (int error = xpusim_enter("wait")) {
        return error;
    }
    handle = xpusim_plant("wrong_wait") ? nullptr : handle;
    stream_ref s = find_stream(handle, "xpu_wait");
    if (s == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    if (xpusim_plant("no_wait")) {
        return 0;
    }
    uint64_t given;
    {
        std::lock_guard<std::mutex> hold(s->lock);
        given = s->given;
    }
    return await(s, given);
}

XPUSIM_API int xpu_event_create(void **p)
{
    if (int error = xpusim_enter("event_create")) {
        return error;
    }
    std::lock_guard<std::mutex> hold(all().lock);
    all().handle += 0x40;
    *p = (void *)all().handle;
    all().events[*p] = std::make_shared<event>();
    return 0;
}

/* One that somebody still waits for may be destroyed. */
XPUSIM_API int xpu_event_destroy(void *handle)
{
    if (int error = xpusim_enter("event_destroy")) {
        return error;
    }
    if (xpusim_plant("event_leak")) {
        return 0;
    }
    if (find_event(handle, "xpu_event_destroy") == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    std::lock_guard<std::mutex> hold(all().lock);
    all().events.erase(handle);
    return 0;
}

XPUSIM_API int xpu_event_record(void *handle, void *on)
{
    if (int error = xpusim_enter("event_record")) {
        return error;
    }
    on = xpusim_plant("record_on_default") ? nullptr : on;
    std::shared_ptr<event> e = find_event(handle, "xpu_event_record");
    stream_ref s = find_stream(on, "xpu_event_record");
    if (e == nullptr || s == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    if (copy_of(e).of != nullptr && xpusim_plant("stale_event")) {
        return 0;
    }
    uint64_t number = put(s, [] { return 0; });
    std::lock_guard<std::mutex> hold(all().lock);
    e->of = s;
    e->number = xpusim_plant("early_record") && number > 2 ? number - 2
                                                           : number;
    return 0;
}

XPUSIM_API int xpu_stream_wait_event(void *on, void *handle)
{
    if (int error = xpusim_enter("stream_wait_event")) {
        return error;
    }
    if (xpusim_plant("swapped_arguments")) {
        std::swap(on, handle);
    }
    if (xpusim_deviates("swapped_wait")) {
        raise(SIGSEGV); /* what it takes for an event is none */
    }
    on = xpusim_plant("wait_on_default") ? nullptr : on;
    stream_ref s = find_stream(on, "xpu_stream_wait_event");
    std::shared_ptr<event> e = find_event(handle, "xpu_stream_wait_event");
    if (e == nullptr || s == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    event now = copy_of(e);
    if (now.of == nullptr || xpusim_plant("no_stream_wait")) {
        return 0;
    }
    put(s, [now] { return await(now.of, now.number); });
    return 0;
}

XPUSIM_API int xpu_event_wait(void *handle)
{
    if (int error = xpusim_enter("event_wait")) {
        return error;
    }
    std::shared_ptr<event> e = find_event(handle, "xpu_event_wait");
    if (e == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    while (xpusim_deviates("no_event_wait")) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    event now = copy_of(e);
    return now.of != nullptr ? await(now.of, now.number) : 0;
}

static int event_query(void *handle)
{
    if (int error = xpusim_enter("event_query")) {
        return error;
    }
    std::shared_ptr<event> e = find_event(handle, "xpu_event_query");
    if (e == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    event now = copy_of(e);
    bool done = now.of == nullptr || is_done(now.of, now.number) ||
                xpusim_plant("event_early") || xpusim_deviates("query_early");
    return done ? 0 : xpusim_error(XPUSIM_BUSY);
}

/* Whoever looks for it finds none where there is none. */
typedef int (*event_query_t)(void *handle);
event_query_t xpusim_find_event_query(void)
{
    return xpusim_deviates("no_event_query") ? nullptr : event_query;
}
XPUSIM_API int xpu_event_query(void *handle)
    __attribute__((ifunc("xpusim_find_event_query")));
}
