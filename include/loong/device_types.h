/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device is asked for and what it answers; device.h has the functions.
 */
#ifndef LOONG_DEVICE_TYPES_H
#define LOONG_DEVICE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a device multiplies a type. */
typedef enum loong_rate_class {
    LOONG_RATE_NONE,   /* not at all */
    LOONG_RATE_SLOW,   /* by converting it */
    LOONG_RATE_VECTOR, /* as it does any arithmetic */
    LOONG_RATE_MATRIX  /* by units made for products of matrices */
} loong_rate_class_t;

/* X(NAME, text): what a device has or has not.
 * HOST_MEMORY: its memory is the host's, either reads what the other wrote, and
 * any number of processes may have device 0. TF32: multiplies fp32 through it,
 * where that is asked for. ALGORITHMS: its products choose among several.
 * FUSED_ATTENTION: there is a library's, beside our own; FUSED_FIRST: and it is
 * the faster one. GRAPHS: it has the slots from capture_begin on. */
#define LOONG_DEVICE_FEATURES(X)            \
    X(HOST_MEMORY, "memory of the host")    \
    X(TF32, "tf32")                         \
    X(ALGORITHMS, "choice of algorithms")   \
    X(FUSED_ATTENTION, "fused attention")   \
    X(FUSED_FIRST, "fused attention first") \
    X(GRAPHS, "graphs")

typedef enum loong_device_feature {
#define LOONG_DEVICE_FEATURE(name_, text_) LOONG_FEATURE_##name_,
    LOONG_DEVICE_FEATURES(LOONG_DEVICE_FEATURE)
#undef LOONG_DEVICE_FEATURE
    LOONG_FEATURE_COUNT
} loong_device_feature_t;

/* What a device can do. */
typedef struct loong_device_caps {
    loong_rate_class_t rate[LOONG_DTYPE_COUNT];
    uint32_t features;   /* bit f: it has feature f */
    size_t align;        /* bytes that operands begin at multiples of */
    int processors;      /* that kernels size their launches by; 0: unknown */
    size_t block_shared; /* bytes of memory that those of a block share */
} loong_device_caps_t;

static inline bool loong_caps_have(const loong_device_caps_t *caps,
                                   loong_device_feature_t feature)
{
    return (caps->features >> feature & 1u) != 0;
}

/* How fast a card of a kind is, for plans. Per second: operations of products
 * as the datasheet has them, dense; bytes that a copy on the device moves, read
 * and written; bytes that a device sends to one of its machine, and to another
 * machine. */
typedef struct loong_device_rates {
    const char *name;
    const char *source; /* of the rates: "datasheet" */
    bool fused_first; /* LOONG_FEATURE_FUSED_FIRST, of this card */
    double bf16, tf32, fp32;
    double products;       /* share of these that a large product reaches */
    double attention;      /* share of the first, our kernel forward */
    double attention_grad; /* and backward */
    double fused;          /* the same of the library's */
    double fused_grad;
    double copy;
    double passes; /* share of it that our kernels move */
    double gap;    /* seconds from one kernel of a graph to the next */
    double launch; /* the same where the host launches each */
    double link, network;
    double latency; /* seconds of each step of a collective */
    double memory;  /* bytes */
    int machine;    /* devices of one */
} loong_device_rates_t;

/* A copy of rows that lie apart. */
typedef struct loong_device_rows {
    void *dst;
    size_t dst_apart; /* bytes from row to row */
    const void *src;
    size_t src_apart;
    size_t bytes; /* of a row */
    size_t rows;
} loong_device_rows_t;

/* Held on a device beside what is allocated: estimates, in bytes. */
typedef struct loong_device_overhead {
    size_t context;      /* the driver's, with the code of kernels */
    size_t graph_piece;  /* each kernel or copy of a graph */
    size_t communicator; /* buffers of one */
} loong_device_overhead_t;

/* Bytes of a device. */
typedef struct loong_device_usage {
    size_t total;
    size_t available;
    size_t pool;      /* that this process keeps for what it allocates */
    size_t pool_most; /* that was allocated at one time */
} loong_device_usage_t;

#ifdef __cplusplus
}
#endif

#endif
