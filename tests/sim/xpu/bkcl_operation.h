// SPDX-License-Identifier: Apache-2.0
//
// An operation of simulated BKCL: bkcl.cc takes it, bkcl_run.cc does it through
// memory that the ranks share.
#ifndef BKCL_OPERATION_H
#define BKCL_OPERATION_H

#include <atomic>
#include <cstdint>
#include <string>
#include <unistd.h>

#include "bkcl_sim.h"
#include "xpusim.h"

namespace bkclsim
{

enum { RANKS = 8, CHUNK = 32 * 1024, BOX = 4 * 1024 };
enum { NAP = 20 }; // microseconds

// What one rank shows the others.
struct desk {
    std::atomic<uint64_t> posted, done; // chunks
    std::atomic<uint64_t> what;         // that is posted
    char text[128];                     // the same in words
    char data[CHUNK];
};

// From one rank to another.
struct box {
    std::atomic<uint64_t> sent, taken;
    std::atomic<uint64_t> bytes; // of the whole message
    char data[BOX];
};

struct table {
    std::atomic<int> joined;
    desk desks[RANKS];
    box boxes[RANKS][RANKS];
};

struct communicator {
    int rank, size, device;
    table *shared;
    std::string name;
    std::atomic<bool> aborted;
    std::atomic<int> under_way;
};

enum verb {
    ALL_REDUCE,
    REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    EXCHANGE,
    SEND,
    RECEIVE
};
extern const char *const verbs[];

struct operation {
    verb kind;
    communicator *comm;
    const char *send; // the device's addresses
    char *receive;
    size_t count;
    int type, op, peer; // or root
    const size_t *counts[4];
};

size_t size_of(int type); // 0: there is no such type
// False: the communicator was aborted.
bool perform(const operation &o);

template <class Condition> bool until(const communicator *c, Condition holds)
{
    while (!holds()) {
        if (c->aborted) {
            return false;
        }
        usleep(NAP);
    }
    return true;
}

} // namespace bkclsim

#endif
