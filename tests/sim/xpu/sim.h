/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of the simulated runtime. */
#ifndef XPUSIM_SIM_H
#define XPUSIM_SIM_H

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "xpusim.h"

namespace xpusim {

enum { MOST_DEVICES = 8 };

struct settings {
    int count, model;
    size_t memory, most_async, offset;
    uint64_t seed;
    double pace;
    int lag, slow, streams;
    bool negative, odd;
    std::string fail, plant;
};
settings &current();

/* ---- memory.cc */

enum class side { host, pinned, device };
struct range {
    side of;
    int device;
    char *base; /* of the allocation */
    size_t size;
};
/* Whose the address is; what is no allocation is of the host. */
range range_of(const void *ptr);
bool any_device(const void *ptr); /* alive or not */
int64_t memory_alive();
size_t memory_used(int device);

/* ---- stream.cc */

struct stream {
    int device = 0;
    bool is_default = false;
    std::thread worker;
    std::mutex lock;
    std::condition_variable wake;  /* the worker */
    std::condition_variable moved; /* who waits */
    std::deque<std::function<int()>> work;
    uint64_t given = 0, done = 0, wanted = 0;
    int error = 0;
    bool ends = false;
    std::mt19937_64 random;
};
using stream_ref = std::shared_ptr<stream>;

/* nullptr, with a note, for a handle that is none. */
stream_ref find_stream(void *handle, const char *who);
/* Its number on the stream. */
uint64_t put(const stream_ref &s, std::function<int()> work);
/* Until work `number` is done; what failed on the stream. */
int await(const stream_ref &s, uint64_t number);
bool is_done(const stream_ref &s, uint64_t number); /* and wants it */
int64_t streams_alive();
int64_t events_alive();


} // namespace xpusim

#endif
