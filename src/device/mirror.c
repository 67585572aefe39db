/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that the host has of places on a device. Called by kernels/moe/ on
 * GPUs, by the executor and by device.c. Read device_impl.h before. */
#include "base.h"
#include "device_impl.h"

static void free_mirror(loong_device_t *device, mirror_t *m)
{
    loong_device_event_destroy(device, m->copied);
    loong_device_host_free(device, m->copy);
    loongi_free(device->ctx, m);
}

void loongi_mirrors_free(loong_device_t *device)
{
    while (device->mirrors != NULL) {
        mirror_t *m = device->mirrors;
        device->mirrors = m->next;
        free_mirror(device, m);
    }
}

/* What lies in [ptr, ptr + bytes) later is something else. */
void loongi_mirrors_retire(loong_device_t *device, const char *ptr,
                           size_t bytes)
{
    mirror_t **at = &device->mirrors;
    while (*at != NULL) {
        mirror_t *m = *at;
        if ((uintptr_t)m->place - (uintptr_t)ptr < bytes) {
            *at = m->next;
            free_mirror(device, m);
        } else {
            at = &m->next;
        }
    }
}

static mirror_t *find_mirror(const loong_device_t *device, const void *place,
                             size_t bytes)
{
    mirror_t *m = device->mirrors;
    while (m != NULL && (m->place != place || m->bytes != bytes)) {
        m = m->next;
    }
    return m;
}

static loong_status_t make_mirror(loong_device_t *device, const void *place,
                                  size_t bytes, mirror_t **mirror_p)
{
    mirror_t *m = NULL;
    LOONG_TRY(loongi_alloc(device->ctx, sizeof(*m), "mirror", &m));
    m->next = device->mirrors;
    device->mirrors = m; /* which frees what it has so far */
    LOONG_TRY(loong_device_host_alloc(device, bytes, "mirror", &m->copy));
    LOONG_TRY(loong_device_event_create(device, &m->copied));
    m->place = place;
    m->bytes = bytes;
    *mirror_p = m;
    return LOONG_OK;
}

loong_status_t loong_device_mirror(loong_device_t *device, void *stream,
                                   const void *ptr, size_t bytes)
{
    mirror_t *m = find_mirror(device, ptr, bytes);
    if (m == NULL) {
        LOONG_TRY(make_mirror(device, ptr, bytes, &m));
    }
    LOONG_TRY(loong_device_stream_copy(device, stream, m->copy, ptr, bytes));
    return loong_device_event_record(device, m->copied, stream);
}

loong_status_t loong_device_mirrored(loong_device_t *device, const void *ptr,
                                     size_t bytes, const char *what,
                                     const void **host_p)
{
    const mirror_t *m = find_mirror(device, ptr, bytes);
    LOONG_CHECK(device->ctx, m != NULL, LOONG_ERR_INTERNAL,
                "%s: %zu bytes of device %s:%d that were not mirrored", what,
                bytes, device->ops->name, device->index);
    LOONG_TRY(loong_device_event_await(device, m->copied, what));
    *host_p = m->copy;
    return LOONG_OK;
}
