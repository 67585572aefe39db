/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank needs to run ahead of its device: copies of frames that the
 * device reads, streams for its collectives, events between them and the
 * compute stream. Nothing here waits, unless the host is far ahead. A device
 * whose memory is the host's runs its programs without.
 */
#ifndef LOONG_ASYNC_STREAMS_H
#define LOONG_ASYNC_STREAMS_H

#include "loong/device.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_async loong_async_t;

/* Who makes the calls of collectives. Those of the host come when the others
 * have: what the device calls may not stand behind them on a stream. */
typedef enum loong_caller {
    LOONG_CALLED_BY_DEVICE,
    LOONG_CALLED_BY_HOST,
    LOONG_CALLERS
} loong_caller_t;

/* lanes: collectives have streams of their own. Not collective. */
LOONG_NODISCARD loong_status_t loongi_async_create(loong_context_t *ctx,
                                                   loong_device_t *device,
                                                   bool lanes,
                                                   loong_async_t **async_p);
/* Waits for the device. NULL is accepted. */
void loongi_async_destroy(loong_async_t **async_p);

/* A copy of the frame for the kernels of one program, until its end. */
LOONG_NODISCARD loong_status_t
loongi_async_frame(loong_async_t *async, const loong_frame_t *frame,
                   const loong_frame_t **device_frame_p);
/* The program that got this copy is on the streams. */
LOONG_NODISCARD loong_status_t
loongi_async_frame_end(loong_async_t *async, const loong_frame_t *device_frame);
/* Into a frame of the device's that the caller keeps, behind what is on the
 * compute stream. */
LOONG_NODISCARD loong_status_t loongi_async_frame_into(
    loong_async_t *async, const loong_frame_t *frame, loong_frame_t *there);

/* False: collectives go on the compute stream. */
bool loongi_async_has_lanes(const loong_async_t *async);
/* The numbers of a track begin, after `number`: nothing is under way. */
void loongi_async_open(loong_async_t *async, int track, int64_t number);
/* The number-th collective of a track comes behind all that is computed so
 * far; or it does not run in this program. */
LOONG_NODISCARD loong_status_t loongi_async_fork(loong_async_t *async,
                                                 int track, int64_t number,
                                                 loong_caller_t caller);
LOONG_NODISCARD loong_status_t loongi_async_skip(loong_async_t *async,
                                                 int track, int64_t number);
/* It goes on this stream from here on, and is on it; from any thread. */
LOONG_NODISCARD loong_status_t loongi_async_begin(loong_async_t *async,
                                                  int track, int64_t number,
                                                  loong_caller_t caller,
                                                  void **stream_p);
LOONG_NODISCARD loong_status_t loongi_async_end(loong_async_t *async, int track,
                                                int64_t number, void *stream);
/* What is computed from here on is behind that collective, which is on its
 * stream; behind all that have been forked. */
LOONG_NODISCARD loong_status_t loongi_async_await(loong_async_t *async,
                                                  int track, int64_t number);
LOONG_NODISCARD loong_status_t loongi_async_join(loong_async_t *async);
/* What was forked since the last join is forgotten: it was only captured. */
void loongi_async_cancel(loong_async_t *async);

#ifdef __cplusplus
}
#endif

#endif
