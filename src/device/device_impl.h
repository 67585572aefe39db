/* SPDX-License-Identifier: Apache-2.0
 *
 * Between device.c, mirror.c and progress.c. */
#ifndef LOONG_DEVICE_IMPL_H
#define LOONG_DEVICE_IMPL_H

#include "base.h"
#include "loong/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The host's copy of a place. */
typedef struct mirror {
    struct mirror *next;
    const void *place;
    size_t bytes;
    void *copy;
    void *copied; /* event */
} mirror_t;

enum { LOONG_MARKS = 256 };

/* Marks are events on the compute stream, in the order of `event`: the device
 * has still to pass those from `first` to `count`. */
typedef struct loong_progress {
    void *event[LOONG_MARKS];
    int first;
    int count;
    int apart;     /* launches from one to the next */
    int launches;  /* behind the last one */
    double moved;  /* when one was seen to be passed */
    double limit;  /* seconds; 0: none */
    bool hangs;
    loong_status_t failed; /* of a mark, for good: any thread may be told */
} loong_progress_t;

struct loong_device {
    loong_context_t *ctx;
    const loong_device_ops_t *ops;
    void *data;
    loong_device_caps_t caps;
    int index;
    void *reached; /* event of whoever waits; NULL: none yet */
    uint64_t waits;
    double waits_since; /* 0: it does not wait now */
    bool capturing;
    loong_device_watch_fn watch;
    void *watch_user;
    mirror_t *mirrors;
    loong_progress_t progress;
};

void loongi_mirrors_free(loong_device_t *device);
/* Those of memory that is given back. */
void loongi_mirrors_retire(loong_device_t *device, const char *ptr,
                           size_t bytes);

void loongi_progress_free(loong_device_t *device);
/* Something was launched; always: it may be long. The next wait tells what goes
 * wrong. */
void loongi_progress_mark(loong_device_t *device, bool always);
/* Before the host waits, and while it does. LOONG_ERR_DEVICE: it hangs. */
LOONG_NODISCARD loong_status_t loongi_progress_begin(loong_device_t *device);
LOONG_NODISCARD loong_status_t loongi_progress_check(loong_device_t *device);

#ifdef __cplusplus
}
#endif

#endif
