/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of frames and of events. A place in a ring is given again when what had
 * it before is far behind, and awaited. Called by executor.c. Read
 * async_streams.h before. */
#include "async_streams.h"

#include <string.h>

#include "lane.h"

/* More events than collectives can be under way: of the lane, too. */
enum { FRAMES = 64, EVENTS = 2 * LOONG_LANE_JOBS };

struct loong_async {
    loong_context_t *ctx;
    loong_device_t *device;
    void *compute;
    void *comm[LOONG_CALLERS]; /* NULL: none of their own */
    loong_frame_t *host;       /* [FRAMES], what is copied from */
    loong_frame_t *there;
    void *free[FRAMES]; /* events: nobody reads the frame any more */
    uint64_t frames;
    /* Of collectives: what they need is computed; they are done. */
    void *computed[LOONG_LANE_TRACKS][EVENTS];
    void *done[LOONG_LANE_TRACKS][EVENTS];
    /* Of numbers, and of each caller: that of its last collective up to it that
     * runs; the last one; up to this one everything is awaited. */
    int64_t ran[LOONG_LANE_TRACKS][EVENTS][LOONG_CALLERS];
    int64_t latest[LOONG_LANE_TRACKS];
    int64_t awaited[LOONG_LANE_TRACKS][LOONG_CALLERS];
    bool forked[LOONG_CALLERS];  /* collectives began since the last join */
    void *joined[LOONG_CALLERS]; /* one for all would know its last record */
};

/* ---- object -------------------------------------------------------------- */

static loong_status_t create_frames(loong_async_t *a)
{
    size_t bytes = FRAMES * sizeof(loong_frame_t);
    void *memory = NULL;
    LOONG_TRY(loong_device_host_alloc(a->device, bytes, "frames", &memory));
    a->host = memory;
    LOONG_TRY(loong_device_alloc(a->device, bytes, "frames", &memory));
    a->there = memory;
    for (int i = 0; i < FRAMES; i++) {
        LOONG_TRY(loong_device_event_create(a->device, &a->free[i]));
    }
    return LOONG_OK;
}

static loong_status_t create_lane(loong_async_t *a)
{
    for (int c = 0; c < LOONG_CALLERS; c++) {
        LOONG_TRY(loong_device_stream_create(a->device, &a->comm[c]));
        LOONG_TRY(loong_device_event_create(a->device, &a->joined[c]));
    }
    for (int i = 0; i < LOONG_LANE_TRACKS * EVENTS; i++) {
        int t = i / EVENTS;
        LOONG_TRY(
            loong_device_event_create(a->device, &a->computed[t][i % EVENTS]));
        LOONG_TRY(
            loong_device_event_create(a->device, &a->done[t][i % EVENTS]));
    }
    return LOONG_OK;
}

loong_status_t loongi_async_create(loong_context_t *ctx, loong_device_t *device,
                                   bool lanes, loong_async_t **async_p)
{
    loong_async_t *a = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*a), "streams of a device", &a));
    a->ctx = ctx;
    a->device = device;
    a->compute = loong_device_stream(device);
    loong_status_t status = create_frames(a);
    if (status == LOONG_OK && lanes) {
        status = create_lane(a);
    }
    if (status != LOONG_OK) {
        loongi_async_destroy(&a);
        return status;
    }
    *async_p = a;
    return LOONG_OK;
}

/* Destroying a stream waits for it. */
void loongi_async_destroy(loong_async_t **async_p)
{
    loong_async_t *a = *async_p;
    if (a == NULL) {
        return;
    }
    for (int c = 0; c < LOONG_CALLERS; c++) {
        loong_device_stream_destroy(a->device, a->comm[c]);
        loong_device_event_destroy(a->device, a->joined[c]);
    }
    for (int i = 0; i < FRAMES; i++) {
        loong_device_event_destroy(a->device, a->free[i]);
    }
    for (int i = 0; i < LOONG_LANE_TRACKS * EVENTS; i++) {
        int t = i / EVENTS;
        loong_device_event_destroy(a->device, a->computed[t][i % EVENTS]);
        loong_device_event_destroy(a->device, a->done[t][i % EVENTS]);
    }
    loong_device_free(a->device, a->there, FRAMES * sizeof(*a->there));
    loong_device_host_free(a->device, a->host);
    loongi_free(a->ctx, a);
    *async_p = NULL;
}

/* ---- frames -------------------------------------------------------------- */

loong_status_t loongi_async_frame(loong_async_t *async,
                                  const loong_frame_t *frame,
                                  const loong_frame_t **device_frame_p)
{
    loong_async_t *a = async;
    uint64_t i = a->frames++ % FRAMES;
    LOONG_TRY(loong_device_event_await(a->device, a->free[i], "a frame"));
    a->host[i] = *frame;
    LOONG_TRY(loong_device_copy(a->device, &a->there[i], &a->host[i],
                                sizeof(*frame)));
    *device_frame_p = &a->there[i];
    return LOONG_OK;
}

loong_status_t loongi_async_frame_end(loong_async_t *async,
                                      const loong_frame_t *device_frame)
{
    return loong_device_event_record(async->device,
                                     async->free[device_frame - async->there],
                                     async->compute);
}

loong_status_t loongi_async_frame_into(loong_async_t *async,
                                       const loong_frame_t *frame,
                                       loong_frame_t *there)
{
    loong_async_t *a = async;
    uint64_t i = a->frames++ % FRAMES;
    LOONG_TRY(loong_device_event_await(a->device, a->free[i], "a frame"));
    a->host[i] = *frame;
    LOONG_TRY(loong_device_copy(a->device, there, &a->host[i], sizeof(*frame)));
    return loong_device_event_record(a->device, a->free[i], a->compute);
}

/* ---- collectives --------------------------------------------------------- */

bool loongi_async_has_lanes(const loong_async_t *async)
{
    return async->comm[LOONG_CALLED_BY_DEVICE] != NULL;
}

static int64_t *ran_by(loong_async_t *a, int track, int64_t number)
{
    return a->ran[track][number % EVENTS];
}

void loongi_async_open(loong_async_t *async, int track, int64_t number)
{
    async->latest[track] = number;
    for (int c = 0; c < LOONG_CALLERS; c++) {
        async->awaited[track][c] = ran_by(async, track, number)[c] = number;
    }
}

/* Who had the place of this number is awaited: of the lane's no more are under
 * way than half of the places. */
loong_status_t loongi_async_skip(loong_async_t *async, int track,
                                 int64_t number)
{
    loong_async_t *a = async;
    if (number > EVENTS) {
        LOONG_TRY(loongi_async_await(a, track, number - EVENTS));
    }
    memcpy(ran_by(a, track, number), ran_by(a, track, a->latest[track]),
           sizeof(a->ran[track][0]));
    a->latest[track] = number;
    return LOONG_OK;
}

loong_status_t loongi_async_fork(loong_async_t *async, int track,
                                 int64_t number, loong_caller_t caller)
{
    LOONG_TRY(loongi_async_skip(async, track, number));
    ran_by(async, track, number)[caller] = number;
    async->forked[caller] = true;
    return loong_device_event_record(
        async->device, async->computed[track][number % EVENTS], async->compute);
}

loong_status_t loongi_async_begin(loong_async_t *async, int track,
                                  int64_t number, loong_caller_t caller,
                                  void **stream_p)
{
    *stream_p = async->comm[caller];
    return loong_device_event_wait(
        async->device, async->computed[track][number % EVENTS], *stream_p);
}

loong_status_t loongi_async_end(loong_async_t *async, int track, int64_t number,
                                void *stream)
{
    return loong_device_event_record(
        async->device, async->done[track][number % EVENTS], stream);
}

loong_status_t loongi_async_await(loong_async_t *async, int track,
                                  int64_t number)
{
    int64_t *awaited = async->awaited[track];
    for (int c = 0; c < LOONG_CALLERS; c++) {
        int64_t ran = ran_by(async, track, number)[c];
        if (number > awaited[c] && ran > awaited[c]) {
            awaited[c] = ran;
            LOONG_TRY(loong_device_event_wait(async->device,
                                              async->done[track][ran % EVENTS],
                                              async->compute));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_async_join(loong_async_t *async)
{
    for (int c = 0; c < LOONG_CALLERS; c++) {
        if (async->forked[c]) {
            async->forked[c] = false;
            LOONG_TRY(loong_device_event_record(async->device, async->joined[c],
                                                async->comm[c]));
            LOONG_TRY(loong_device_event_wait(async->device, async->joined[c],
                                              async->compute));
        }
    }
    for (int t = 0; t < LOONG_LANE_TRACKS; t++) {
        for (int c = 0; c < LOONG_CALLERS; c++) {
            async->awaited[t][c] = async->latest[t];
        }
    }
    return LOONG_OK;
}

void loongi_async_cancel(loong_async_t *async)
{
    memset(async->forked, 0, sizeof(async->forked));
}
