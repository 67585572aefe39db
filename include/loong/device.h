/* SPDX-License-Identifier: Apache-2.0
 *
 * A device: where buffers live and kernels run. A backend is one ops table,
 * entered with loong_register_device; nothing above names a backend. On a CPU
 * a stream is in order and synchronous.
 */
#ifndef LOONG_DEVICE_H
#define LOONG_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/kernel.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_device loong_device_t;

/* A backend. Slots marked (optional) may be NULL. Every function but
 * `create` gets the private data that `create` made. */
typedef struct loong_device_ops {
    const char *name; /* "cpu"; kernels carry the same name */
    /* How many such devices this process sees, 0 with a reason when none. */
    int (*count)(char *reason, size_t size);
    loong_status_t (*create)(loong_context_t *ctx, int index, void **data_p);
    void (*destroy)(loong_context_t *ctx, void *data);
    /* Zeroed memory of at least `bytes`, aligned to 256 bytes or more (huge
     * pages on a CPU). A device orders it after what is on the compute stream,
     * and freeing as well. */
    loong_status_t (*alloc)(loong_context_t *ctx, void *data, size_t bytes,
                            const char *what, void **ptr_p);
    void (*free)(loong_context_t *ctx, void *data, void *ptr, size_t bytes);
    /* In order on the stream; either side may be host memory. */
    loong_status_t (*copy)(void *data, void *stream, void *dst,
                           const void *src, size_t bytes);
    loong_status_t (*fill)(void *data, void *stream, void *dst, int byte,
                           size_t bytes);
    loong_status_t (*synchronize)(void *data, void *stream);
    void *(*compute_stream)(void *data); /* (optional): NULL stream */
    /* (optional): ordinary memory. Host memory that copies do not wait for. */
    loong_status_t (*host_alloc)(loong_context_t *ctx, void *data,
                                 size_t bytes, const char *what,
                                 void **ptr_p);
    void (*host_free)(loong_context_t *ctx, void *data, void *ptr);
    /* (optional, all or none): one stream, on which all is done in order. */
    loong_status_t (*stream_create)(void *data, void **stream_p);
    void (*stream_destroy)(void *data, void *stream);
    loong_status_t (*event_create)(void *data, void **event_p);
    void (*event_destroy)(void *data, void *event);
    /* The event stands for everything that is on the stream now. */
    loong_status_t (*event_record)(void *data, void *event, void *stream);
    /* What comes on the stream after this waits for the event's last record;
     * an event that was never recorded holds nobody up. */
    loong_status_t (*event_wait)(void *data, void *event, void *stream);
    /* (optional): no. Lets this device touch the memory of device `other` of
     * its kind, in the same process. */
    loong_status_t (*peer_enable)(void *data, int other, bool *granted_p);
    /* (optional): NULL. Where kernels of this device write what they find wrong
     * (kernel.h); `synchronize` makes an error of it. */
    loong_flaw_t *(*flaw)(void *data);
    /* One line for --doctor: model, cores or memory. */
    void (*describe)(void *data, char *text, size_t size);
} loong_device_ops_t;

/* Enters a backend (borrowed). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_device(loong_context_t *ctx, const loong_device_ops_t *ops);

/* Opens device `index` of a backend. "auto" takes the first registered
 * backend that has one. Errors: LOONG_ERR_NOT_FOUND with each backend's
 * reason. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_create(loong_context_t *ctx, const char *name, int index,
                    loong_device_t **device_p);
LOONG_API void loong_device_destroy(loong_device_t **device_p);

LOONG_API const char *loong_device_name(const loong_device_t *device);
LOONG_API void loong_device_describe(const loong_device_t *device, char *text,
                                     size_t size);

LOONG_API LOONG_NODISCARD loong_status_t
loong_device_alloc(loong_device_t *device, size_t bytes, const char *what,
                   void **ptr_p);
LOONG_API void loong_device_free(loong_device_t *device, void *ptr,
                                 size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_copy(loong_device_t *device, void *dst, const void *src,
                  size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_fill(loong_device_t *device, void *dst, int byte, size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_synchronize(loong_device_t *device);
LOONG_API void *loong_device_stream(const loong_device_t *device);
LOONG_API loong_flaw_t *loong_device_flaw(const loong_device_t *device);

/* Host memory for copies to and from the device, zeroed. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_host_alloc(loong_device_t *device, size_t bytes,
                        const char *what, void **ptr_p);
LOONG_API void loong_device_host_free(loong_device_t *device, void *ptr);

/* Further streams, and events between them. A device of one stream gives its
 * compute stream, and its events hold nobody up. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_create(loong_device_t *device, void **stream_p);
LOONG_API void loong_device_stream_destroy(loong_device_t *device,
                                           void *stream);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_event_create(loong_device_t *device, void **event_p);
LOONG_API void loong_device_event_destroy(loong_device_t *device,
                                          void *event);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_event_record(loong_device_t *device, void *event, void *stream);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_event_wait(loong_device_t *device, void *event, void *stream);

/* As loong_device_copy and loong_device_synchronize, of one stream. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_copy(loong_device_t *device, void *stream, void *dst,
                         const void *src, size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_synchronize(loong_device_t *device, void *stream);

/* *granted_p: kernels and copies of this device reach the memory of device
 * `other` of its kind in this process. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_peer_enable(loong_device_t *device, int other, bool *granted_p);

#ifdef __cplusplus
}
#endif

#endif
