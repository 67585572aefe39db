// SPDX-License-Identifier: Apache-2.0
//
// An operation of simulated NCCL: nccl.cc takes it, nccl_run.cc does it through
// memory that the ranks share, chunk by chunk.
#ifndef CUDASIM_NCCL_SIM_H
#define CUDASIM_NCCL_SIM_H

#include <atomic>

#include "nccl_abi.h"
#include "sim.h"

enum { RANKS = 8, CHUNK = 32 * 1024, BOX = 4 * 1024 };

// What one rank shows the others.
struct desk_t {
    std::atomic<uint64_t> posted, done; // chunks
    std::atomic<uint64_t> what;         // that is posted
    char data[CHUNK];
};

// From one rank to another.
struct box_t {
    std::atomic<uint64_t> sent, taken;
    std::atomic<uint64_t> bytes; // of the whole message
    char data[BOX];
};

struct table_t {
    std::atomic<int> joined;
    desk_t desk[RANKS];
    box_t box[RANKS][RANKS];
};

struct ncclComm {
    int rank, size, device;
    table_t *table;
    char name[64];
    std::atomic<bool> aborted;
    std::atomic<int> under_way;
    std::atomic<int> held; // calls of it in graphs that are alive
    std::atomic<bool> launching;
    std::atomic<ncclResult_t> launched; // how the last launch ended
};

enum verb_t { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND,
              RECV };

struct op_t {
    verb_t kind;
    const char *send;
    char *receive;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; // or root
    ncclComm *comm;
    cudaStream_t stream;
    size_t at;
    bool posted;
    bool done;
};

namespace cudasim {

inline size_t size_of(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
    }
}

// A part of it; true: it is complete.
bool advance_collective(op_t &o);
bool advance_message(op_t &o);

} // namespace cudasim

#endif
