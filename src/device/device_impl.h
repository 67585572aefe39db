/* SPDX-License-Identifier: Apache-2.0
 *
 * Between device.c and mirror.c. */
#ifndef LOONG_DEVICE_IMPL_H
#define LOONG_DEVICE_IMPL_H

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

struct loong_device {
    loong_context_t *ctx;
    const loong_device_ops_t *ops;
    void *data;
    int index;
    void *reached; /* event of whoever waits; NULL: none yet */
    uint64_t waits;
    double waits_since; /* 0: it does not wait now */
    bool capturing;
    loong_device_watch_fn watch;
    void *watch_user;
    mirror_t *mirrors;
};

void loongi_mirrors_free(loong_device_t *device);
/* Those of memory that is given back. */
void loongi_mirrors_retire(loong_device_t *device, const char *ptr,
                           size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
