/* SPDX-License-Identifier: Apache-2.0
 *
 * Dispatch to the ops table of a backend. */
#include "loong/device.h"

#include <string.h>

#include "base.h"
#include "registry.h"

struct loong_device {
    loong_context_t *ctx;
    const loong_device_ops_t *ops;
    void *data;
};

loong_status_t loong_register_device(loong_context_t *ctx,
                                     const loong_device_ops_t *ops)
{
    loong_registry_t *r = loongi_context_registry(ctx);
    LOONG_TRY(loongi_grow(ctx, &r->devices, &r->cap_devices,
                          r->num_devices + 1, sizeof(void *), "registry"));
    r->devices[r->num_devices++] = ops;
    return LOONG_OK;
}

static loong_status_t find_backend(loong_context_t *ctx, const char *name,
                                   int index,
                                   const loong_device_ops_t **ops_p)
{
    const loong_registry_t *r = loongi_context_registry_const(ctx);
    loong_text_t why = loongi_text_begin(ctx);
    loong_text_t names = loongi_text_begin(ctx);
    loong_status_t status = LOONG_ERR_NOT_FOUND;
    for (int64_t i = r->num_devices - 1; i >= 0; i--) {
        const loong_device_ops_t *ops = r->devices[i];
        char reason[256] = "";
        loongi_text_printf(&names, " %s", ops->name);
        if (strcmp(name, "auto") != 0 && strcmp(name, ops->name) != 0) {
            continue;
        }
        int count = ops->count(reason, sizeof(reason));
        if (index < count) {
            *ops_p = ops;
            status = LOONG_OK;
            break;
        }
        loongi_text_printf(&why, "; %s: %d found%s%s", ops->name, count,
                           reason[0] != '\0' ? ", " : "", reason);
    }
    if (status != LOONG_OK) {
        LOONG_FAIL(ctx, status,
                   "no device %s:%d%s; devices this build knows:%s", name,
                   index, loongi_text_get(&why), loongi_text_get(&names));
    }
    loongi_text_free(&names);
    loongi_text_free(&why);
    return status;
}

loong_status_t loong_device_create(loong_context_t *ctx, const char *name,
                                   int index, loong_device_t **device_p)
{
    const loong_device_ops_t *ops = NULL;
    loong_device_t *device = NULL;
    LOONG_TRY(find_backend(ctx, name, index, &ops));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*device), "device", &device));
    device->ctx = ctx;
    device->ops = ops;
    loong_status_t status = ops->create(ctx, index, &device->data);
    if (status != LOONG_OK) {
        loongi_free(ctx, device);
        return status;
    }
    *device_p = device;
    return LOONG_OK;
}

void loong_device_destroy(loong_device_t **device_p)
{
    loong_device_t *device = *device_p;
    if (device != NULL) {
        device->ops->destroy(device->ctx, device->data);
        loongi_free(device->ctx, device);
        *device_p = NULL;
    }
}

const char *loong_device_name(const loong_device_t *device)
{
    return device->ops->name;
}

void loong_device_describe(const loong_device_t *device, char *text,
                           size_t size)
{
    device->ops->describe(device->data, text, size);
}

loong_status_t loong_device_alloc(loong_device_t *device, size_t bytes,
                                  const char *what, void **ptr_p)
{
    return device->ops->alloc(device->ctx, device->data, bytes, what, ptr_p);
}

void loong_device_free(loong_device_t *device, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        device->ops->free(device->ctx, device->data, ptr, bytes);
    }
}

loong_status_t loong_device_copy(loong_device_t *device, void *dst,
                                 const void *src, size_t bytes)
{
    return device->ops->copy(device->data, loong_device_stream(device), dst,
                             src, bytes);
}

loong_status_t loong_device_fill(loong_device_t *device, void *dst, int byte,
                                 size_t bytes)
{
    return device->ops->fill(device->data, loong_device_stream(device), dst,
                             byte, bytes);
}

loong_status_t loong_device_synchronize(loong_device_t *device)
{
    return device->ops->synchronize(device->data, loong_device_stream(device));
}

void *loong_device_stream(const loong_device_t *device)
{
    return device->ops->compute_stream != NULL
               ? device->ops->compute_stream(device->data)
               : NULL;
}

loong_flaw_t *loong_device_flaw(const loong_device_t *device)
{
    return device->ops->flaw != NULL ? device->ops->flaw(device->data)
                                      : NULL;
}

loong_status_t loong_device_host_alloc(loong_device_t *device, size_t bytes,
                                       const char *what, void **ptr_p)
{
    if (device->ops->host_alloc == NULL) {
        return loongi_alloc(device->ctx, bytes, what, ptr_p);
    }
    return device->ops->host_alloc(device->ctx, device->data, bytes, what,
                                   ptr_p);
}

void loong_device_host_free(loong_device_t *device, void *ptr)
{
    if (device->ops->host_free == NULL) {
        loongi_free(device->ctx, ptr);
    } else if (ptr != NULL) {
        device->ops->host_free(device->ctx, device->data, ptr);
    }
}

/* ---- streams and events; without them one stream does all in order ------- */

loong_status_t loong_device_stream_create(loong_device_t *device,
                                          void **stream_p)
{
    if (device->ops->stream_create != NULL) {
        return device->ops->stream_create(device->data, stream_p);
    }
    *stream_p = loong_device_stream(device);
    return LOONG_OK;
}

void loong_device_stream_destroy(loong_device_t *device, void *stream)
{
    if (device->ops->stream_destroy != NULL && stream != NULL) {
        device->ops->stream_destroy(device->data, stream);
    }
}

loong_status_t loong_device_event_create(loong_device_t *device,
                                         void **event_p)
{
    if (device->ops->event_create != NULL) {
        return device->ops->event_create(device->data, event_p);
    }
    *event_p = NULL;
    return LOONG_OK;
}

void loong_device_event_destroy(loong_device_t *device, void *event)
{
    if (device->ops->event_destroy != NULL && event != NULL) {
        device->ops->event_destroy(device->data, event);
    }
}

loong_status_t loong_device_event_record(loong_device_t *device, void *event,
                                         void *stream)
{
    return device->ops->event_record != NULL
               ? device->ops->event_record(device->data, event, stream)
               : LOONG_OK;
}

loong_status_t loong_device_event_wait(loong_device_t *device, void *event,
                                       void *stream)
{
    return device->ops->event_wait != NULL
               ? device->ops->event_wait(device->data, event, stream)
               : LOONG_OK;
}

loong_status_t loong_device_stream_copy(loong_device_t *device, void *stream,
                                        void *dst, const void *src,
                                        size_t bytes)
{
    return device->ops->copy(device->data, stream, dst, src, bytes);
}

loong_status_t loong_device_stream_synchronize(loong_device_t *device,
                                               void *stream)
{
    return device->ops->synchronize(device->data, stream);
}

loong_status_t loong_device_peer_enable(loong_device_t *device, int other,
                                        bool *granted_p)
{
    if (device->ops->peer_enable != NULL) {
        return device->ops->peer_enable(device->data, other, granted_p);
    }
    *granted_p = false;
    return LOONG_OK;
}
