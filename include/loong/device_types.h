/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device is asked for and what it answers; device.h has the functions.
 */
#ifndef LOONG_DEVICE_TYPES_H
#define LOONG_DEVICE_TYPES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/* What kernels size their launches by. */
typedef struct loong_device_limits {
    int processors;      /* that blocks run on */
    size_t block_shared; /* bytes of shared memory that a block may have */
} loong_device_limits_t;

#ifdef __cplusplus
}
#endif

#endif
