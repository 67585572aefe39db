/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling a large file by several threads in blocks: each takes the next
 * block of the file, gets it from the source, writes it. Blocks of zeros are
 * left out, so that holes stay holes. Memory is one block for each thread. */
#ifndef LOONG_TENSOR_STREAM_H
#define LOONG_TENSOR_STREAM_H

#include "base.h"
#include "loong/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As loong_checkpoint_progress_fn. */
typedef void (*loong_meter_fn)(void *user, int64_t done, int64_t total);

/* How much of a job is done, over all its files. */
typedef struct loong_meter {
    loong_meter_fn progress; /* NULL: nobody looks */
    void *user;
    int64_t done; /* bytes */
    int64_t total;
} loong_meter_t;
void loongi_meter_add(loong_meter_t *meter, int64_t bytes);

/* One stretch of the file: rows of a tensor. */
typedef struct loong_stream_item {
    int64_t offset; /* in the file */
    int64_t index;  /* what the source knows the tensor by */
    int64_t first;  /* of its rows */
    int64_t rows;
    int64_t row_bytes;
} loong_stream_item_t;

/* Gives rows of a tensor: in the buffer, or as memory that it lends, or NULL
 * for zeros, in *data_p. What is borrowed is pages of a file, which are given
 * back to the system when they have been written. Called from several threads.
 */
typedef loong_status_t (*loong_stream_source_fn)(void *user, int64_t index,
                                                 int64_t row, int64_t rows,
                                                 void *buffer,
                                                 const void **data_p);

/* Pages of a file that hold what was asked for as it is. */
typedef struct loong_borrowed {
    loong_dtype_t dtype;
    const void *data;
    size_t bytes;
    bool hole; /* of the file: all zeros */
} loong_borrowed_t;

typedef struct loong_stream_params {
    const char *path; /* for messages */
    int fd;        /* read and write; headers are there, the rest is a hole */
    int64_t bytes; /* of the whole file */
    int64_t count;
    const loong_stream_item_t *items; /* by offset */
    loong_stream_source_fn source;
    void *user;
    loong_meter_t *meter;
} loong_stream_params_t;

/* Writes all items. *xxh3_p gets the checksum of the whole file when it is not
 * NULL. Errors: the source's, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_stream_fill(loong_context_t *ctx, const loong_stream_params_t *params,
                   uint64_t *xxh3_p);

#ifdef __cplusplus
}
#endif

#endif
