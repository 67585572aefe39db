/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of frames and of events. A number in a ring is given again when what
 * used it before is far behind: an event then stands for something later on
 * the same stream, which is as good. */
#include "ahead.h"

#include <string.h>

#include "lane.h"

enum { FRAMES = 64, EVENTS = 64 };

struct loong_ahead {
    loong_context_t *ctx;
    loong_device_t *device;
    void *compute;
    void *comm; /* NULL: none of its own */
    loong_frame_t *host; /* [FRAMES], what is copied from */
    loong_frame_t *there;
    void *free[FRAMES]; /* events: nobody reads the frame any more */
    uint64_t frames;
    void *done[LOONG_LANE_TRACKS][EVENTS]; /* of collectives */
    /* Of numbers: that of the last collective up to it that runs; the last one;
     * up to this one everything is awaited. */
    int64_t ran[LOONG_LANE_TRACKS][EVENTS];
    int64_t latest[LOONG_LANE_TRACKS];
    int64_t awaited[LOONG_LANE_TRACKS];
    bool forked; /* collectives have begun since the last join */
    void *computed;
    void *joined;
};

/* ---- object -------------------------------------------------------------- */

static loong_status_t create_frames(loong_ahead_t *a)
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

static loong_status_t create_lane(loong_ahead_t *a)
{
    LOONG_TRY(loong_device_stream_create(a->device, &a->comm));
    LOONG_TRY(loong_device_event_create(a->device, &a->computed));
    LOONG_TRY(loong_device_event_create(a->device, &a->joined));
    for (int i = 0; i < LOONG_LANE_TRACKS * EVENTS; i++) {
        LOONG_TRY(loong_device_event_create(
            a->device, &a->done[i / EVENTS][i % EVENTS]));
    }
    return LOONG_OK;
}

loong_status_t loongi_ahead_create(loong_context_t *ctx,
                                   loong_device_t *device, bool lanes,
                                   loong_ahead_t **ahead_p)
{
    loong_ahead_t *a = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*a), "streams of a device", &a));
    a->ctx = ctx;
    a->device = device;
    a->compute = loong_device_stream(device);
    loong_status_t status = create_frames(a);
    if (status == LOONG_OK && lanes) {
        status = create_lane(a);
    }
    if (status != LOONG_OK) {
        loongi_ahead_destroy(&a);
        return status;
    }
    *ahead_p = a;
    return LOONG_OK;
}

/* Destroying a stream waits for it. */
void loongi_ahead_destroy(loong_ahead_t **ahead_p)
{
    loong_ahead_t *a = *ahead_p;
    if (a == NULL) {
        return;
    }
    loong_device_stream_destroy(a->device, a->comm);
    for (int i = 0; i < FRAMES; i++) {
        loong_device_event_destroy(a->device, a->free[i]);
    }
    for (int i = 0; i < LOONG_LANE_TRACKS * EVENTS; i++) {
        loong_device_event_destroy(a->device,
                                   a->done[i / EVENTS][i % EVENTS]);
    }
    loong_device_event_destroy(a->device, a->computed);
    loong_device_event_destroy(a->device, a->joined);
    loong_device_free(a->device, a->there, FRAMES * sizeof(*a->there));
    loong_device_host_free(a->device, a->host);
    loongi_free(a->ctx, a);
    *ahead_p = NULL;
}

/* ---- frames -------------------------------------------------------------- */

loong_status_t loongi_ahead_frame(loong_ahead_t *ahead,
                                  const loong_frame_t *frame,
                                  const loong_frame_t **device_frame_p)
{
    loong_ahead_t *a = ahead;
    uint64_t i = a->frames++ % FRAMES;
    LOONG_TRY(loong_device_event_await(a->device, a->free[i], "a frame"));
    a->host[i] = *frame;
    LOONG_TRY(loong_device_copy(a->device, &a->there[i], &a->host[i],
                                sizeof(*frame)));
    *device_frame_p = &a->there[i];
    return LOONG_OK;
}

loong_status_t loongi_ahead_frame_end(loong_ahead_t *ahead,
                                      const loong_frame_t *device_frame)
{
    return loong_device_event_record(
        ahead->device, ahead->free[device_frame - ahead->there],
        ahead->compute);
}

loong_status_t loongi_ahead_frame_into(loong_ahead_t *ahead,
                                       const loong_frame_t *frame,
                                       loong_frame_t *there)
{
    loong_ahead_t *a = ahead;
    uint64_t i = a->frames++ % FRAMES;
    LOONG_TRY(loong_device_event_await(a->device, a->free[i], "a frame"));
    a->host[i] = *frame;
    LOONG_TRY(
        loong_device_copy(a->device, there, &a->host[i], sizeof(*frame)));
    return loong_device_event_record(a->device, a->free[i], a->compute);
}

/* ---- collectives --------------------------------------------------------- */

void *loongi_ahead_comm(const loong_ahead_t *ahead)
{
    return ahead->comm;
}

void loongi_ahead_open(loong_ahead_t *ahead, int track, int64_t number)
{
    ahead->latest[track] = ahead->awaited[track] = number;
    ahead->ran[track][number % EVENTS] = number;
}

loong_status_t loongi_ahead_begin(loong_ahead_t *ahead)
{
    ahead->forked = true;
    LOONG_TRY(loong_device_event_record(ahead->device, ahead->computed,
                                        ahead->compute));
    return loong_device_event_wait(ahead->device, ahead->computed,
                                   ahead->comm);
}

static void *event_of(loong_ahead_t *a, int track, int64_t number)
{
    return a->done[track][number % EVENTS];
}

void loongi_ahead_skip(loong_ahead_t *ahead, int track, int64_t number)
{
    int64_t *ran = ahead->ran[track];
    ran[number % EVENTS] = ran[ahead->latest[track] % EVENTS];
    ahead->latest[track] = number;
}

loong_status_t loongi_ahead_end(loong_ahead_t *ahead, int track,
                                int64_t number)
{
    ahead->ran[track][number % EVENTS] = number;
    ahead->latest[track] = number;
    return loong_device_event_record(
        ahead->device, event_of(ahead, track, number), ahead->comm);
}

loong_status_t loongi_ahead_await(loong_ahead_t *ahead, int track,
                                  int64_t number)
{
    int64_t ran = ahead->ran[track][number % EVENTS];
    if (number <= ahead->awaited[track] || ran <= ahead->awaited[track]) {
        return LOONG_OK;
    }
    ahead->awaited[track] = ran;
    return loong_device_event_wait(
        ahead->device, event_of(ahead, track, ran), ahead->compute);
}

loong_status_t loongi_ahead_join(loong_ahead_t *ahead)
{
    if (!ahead->forked) {
        return LOONG_OK;
    }
    ahead->forked = false;
    for (int t = 0; t < LOONG_LANE_TRACKS; t++) {
        ahead->awaited[t] = ahead->latest[t];
    }
    LOONG_TRY(loong_device_event_record(ahead->device, ahead->joined,
                                        ahead->comm));
    return loong_device_event_wait(ahead->device, ahead->joined,
                                   ahead->compute);
}

void loongi_ahead_cancel(loong_ahead_t *ahead)
{
    ahead->forked = false;
}
