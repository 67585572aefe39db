/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings of frames and of events. A place in a ring is given again when what had
 * it before is far behind, and awaited. */
#include "ahead.h"

#include <string.h>

#include "lane.h"

/* More events than collectives can be under way: of the lane, too. */
enum { FRAMES = 64, EVENTS = 2 * LOONG_LANE_JOBS };

struct loong_ahead {
    loong_context_t *ctx;
    loong_device_t *device;
    void *compute;
    void *comm[LOONG_CALLERS]; /* NULL: none of their own */
    loong_frame_t *host; /* [FRAMES], what is copied from */
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
    bool forked[LOONG_CALLERS]; /* collectives began since the last join */
    void *joined[LOONG_CALLERS]; /* one for all would know its last record */
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
    for (int c = 0; c < LOONG_CALLERS; c++) {
        LOONG_TRY(loong_device_stream_create(a->device, &a->comm[c]));
        LOONG_TRY(loong_device_event_create(a->device, &a->joined[c]));
    }
    for (int i = 0; i < LOONG_LANE_TRACKS * EVENTS; i++) {
        int t = i / EVENTS;
        LOONG_TRY(loong_device_event_create(a->device,
                                            &a->computed[t][i % EVENTS]));
        LOONG_TRY(
            loong_device_event_create(a->device, &a->done[t][i % EVENTS]));
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

bool loongi_ahead_has_lanes(const loong_ahead_t *ahead)
{
    return ahead->comm[LOONG_CALLED_BY_DEVICE] != NULL;
}

static int64_t *ran_by(loong_ahead_t *a, int track, int64_t number)
{
    return a->ran[track][number % EVENTS];
}

void loongi_ahead_open(loong_ahead_t *ahead, int track, int64_t number)
{
    ahead->latest[track] = number;
    for (int c = 0; c < LOONG_CALLERS; c++) {
        ahead->awaited[track][c] = ran_by(ahead, track, number)[c] = number;
    }
}

/* Who had the place of this number is awaited: of the lane's no more are under
 * way than half of the places. */
loong_status_t loongi_ahead_skip(loong_ahead_t *ahead, int track,
                                 int64_t number)
{
    loong_ahead_t *a = ahead;
    if (number > EVENTS) {
        LOONG_TRY(loongi_ahead_await(a, track, number - EVENTS));
    }
    memcpy(ran_by(a, track, number), ran_by(a, track, a->latest[track]),
           sizeof(a->ran[track][0]));
    a->latest[track] = number;
    return LOONG_OK;
}

loong_status_t loongi_ahead_fork(loong_ahead_t *ahead, int track,
                                 int64_t number, loong_caller_t caller)
{
    LOONG_TRY(loongi_ahead_skip(ahead, track, number));
    ran_by(ahead, track, number)[caller] = number;
    ahead->forked[caller] = true;
    return loong_device_event_record(ahead->device,
                                     ahead->computed[track][number % EVENTS],
                                     ahead->compute);
}

loong_status_t loongi_ahead_begin(loong_ahead_t *ahead, int track,
                                  int64_t number, loong_caller_t caller,
                                  void **stream_p)
{
    *stream_p = ahead->comm[caller];
    return loong_device_event_wait(ahead->device,
                                   ahead->computed[track][number % EVENTS],
                                   *stream_p);
}

loong_status_t loongi_ahead_end(loong_ahead_t *ahead, int track,
                                int64_t number, void *stream)
{
    return loong_device_event_record(
        ahead->device, ahead->done[track][number % EVENTS], stream);
}

loong_status_t loongi_ahead_await(loong_ahead_t *ahead, int track,
                                  int64_t number)
{
    int64_t *awaited = ahead->awaited[track];
    for (int c = 0; c < LOONG_CALLERS; c++) {
        int64_t ran = ran_by(ahead, track, number)[c];
        if (number > awaited[c] && ran > awaited[c]) {
            awaited[c] = ran;
            LOONG_TRY(loong_device_event_wait(
                ahead->device, ahead->done[track][ran % EVENTS],
                ahead->compute));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_ahead_join(loong_ahead_t *ahead)
{
    for (int c = 0; c < LOONG_CALLERS; c++) {
        if (ahead->forked[c]) {
            ahead->forked[c] = false;
            LOONG_TRY(loong_device_event_record(
                ahead->device, ahead->joined[c], ahead->comm[c]));
            LOONG_TRY(loong_device_event_wait(
                ahead->device, ahead->joined[c], ahead->compute));
        }
    }
    for (int t = 0; t < LOONG_LANE_TRACKS; t++) {
        for (int c = 0; c < LOONG_CALLERS; c++) {
            ahead->awaited[t][c] = ahead->latest[t];
        }
    }
    return LOONG_OK;
}

void loongi_ahead_cancel(loong_ahead_t *ahead)
{
    memset(ahead->forked, 0, sizeof(ahead->forked));
}
