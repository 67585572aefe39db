/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a file, decompressed on the way when it is gzip, xz or zstd. */
#ifndef LOONG_STREAM_H
#define LOONG_STREAM_H

#include "base.h"

typedef struct loong_stream loong_stream_t;

LOONG_NODISCARD loong_status_t loongi_stream_create(loong_context_t *ctx,
                                                    const char *path,
                                                    loong_stream_t **stream_p);
void loongi_stream_destroy(loong_stream_t **stream);

/* Up to `size` bytes; *length_p = 0 at the end, and only there.
 * Errors: LOONG_ERR_IO, LOONG_ERR_FORMAT (broken or cut off). */
LOONG_NODISCARD loong_status_t loongi_stream_read(loong_stream_t *stream,
                                                  char *bytes, size_t size,
                                                  size_t *length_p);

/* Bytes taken from the file so far. */
int64_t loongi_stream_position(const loong_stream_t *stream);

#endif
