/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a device go on? Events stand among what is launched, so a host that
 * waits sees whether the device still passes them, however much it has to do.
 * What stops passing them, and is not in a call that needs other ranks, hangs.
 * Its memory and streams are then left as they are: their frees would wait for
 * it, too. Called by device.c; backends of communicators say when a device
 * waits for others. Read progress.h before. */
#include "progress.h"

#include "device_impl.h"

enum { LAUNCHES = 16 /* between two marks, as long as there is room */ };

loong_status_t loongi_device_set_limit(loong_device_t *device, double seconds)
{
    loong_progress_t *p = &device->progress;
    if (device->ops->event_done == NULL) {
        return LOONG_OK;
    }
    for (int i = 0; i < LOONG_MARKS && p->event[i] == NULL; i++) {
        LOONG_TRY(loong_device_event_create(device, &p->event[i]));
    }
    p->apart = LAUNCHES;
    p->limit = seconds;
    return LOONG_OK;
}

void loongi_progress_free(loong_device_t *device)
{
    for (int i = 0; i < LOONG_MARKS; i++) {
        loong_device_event_destroy(device, device->progress.event[i]);
    }
}

bool loongi_device_hangs(const loong_device_t *device)
{
    return device->progress.hangs;
}

void loongi_device_waits_for_others(loong_device_t *device)
{
    device->progress.moved = loongi_now();
}

/* Leaves out the marks that the device has passed. */
static loong_status_t pass_marks(loong_device_t *device)
{
    loong_progress_t *p = &device->progress;
    bool done = true;
    while (p->first < p->count) {
        LOONG_TRY(device->ops->event_done(device->data, p->event[p->first],
                                          &done));
        if (!done) {
            return LOONG_OK;
        }
        p->first++;
        p->moved = loongi_now();
    }
    p->first = p->count = 0;
    p->apart = LAUNCHES;
    return LOONG_OK;
}

/* Moves the marks from `first` on, every one or every other, to the front. */
static void compact(loong_progress_t *p, int first, int apart)
{
    int count = 0;
    for (int i = first; i < p->count; i += apart) {
        void *event = p->event[i];
        p->event[i] = p->event[count];
        p->event[count++] = event;
    }
    p->first = 0;
    p->count = count;
}

/* Where the host is so far ahead that all are in use, every other one goes: so
 * the last launch stays marked as well. */
static loong_status_t make_room(loong_device_t *device)
{
    loong_progress_t *p = &device->progress;
    LOONG_TRY(pass_marks(device));
    if (p->first > 0) {
        compact(p, p->first, 1);
    } else if (p->count == LOONG_MARKS) {
        compact(p, 1, 2);
        p->apart *= 2;
    }
    return LOONG_OK;
}

static loong_status_t mark(loong_device_t *device)
{
    loong_progress_t *p = &device->progress;
    if (p->count == LOONG_MARKS) {
        LOONG_TRY(make_room(device));
    }
    return loong_device_event_record(device, p->event[p->count++],
                                     loong_device_stream(device));
}

void loongi_progress_mark(loong_device_t *device, bool always)
{
    loong_progress_t *p = &device->progress;
    if (p->limit <= 0.0 || p->hangs || p->failed != LOONG_OK ||
        device->capturing || (++p->launches < p->apart && !always)) {
        return;
    }
    p->launches = 0;
    p->failed = mark(device);
}

loong_status_t loongi_progress_begin(loong_device_t *device)
{
    LOONG_CHECK(device->ctx, !device->progress.hangs, LOONG_ERR_DEVICE,
                "%s:%d hangs", device->ops->name, device->index);
    return device->progress.failed;
}

loong_status_t loongi_progress_check(loong_device_t *device)
{
    loong_progress_t *p = &device->progress;
    if (p->limit <= 0.0) {
        return LOONG_OK;
    }
    LOONG_TRY(pass_marks(device));
    double now = loongi_now();
    double seconds = now - LOONG_MAX(p->moved, device->waits_since);
    if (seconds <= p->limit) {
        return LOONG_OK;
    }
    p->hangs = true;
    return LOONG_FAIL(device->ctx, LOONG_ERR_DEVICE,
                      "%s:%d: hangs: nothing that was launched has ended for "
                      "%.1f s (limit %.1f s), and it waits for no other rank",
                      device->ops->name, device->index, seconds, p->limit);
}
