/* SPDX-License-Identifier: Apache-2.0
 *
 * A device: where buffers live and kernels run. A backend is one ops table,
 * entered with loong_register_device; nothing above names a backend. On a CPU
 * a stream is in order and synchronous. */
#ifndef LOONG_DEVICE_H
#define LOONG_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loong/context.h"
#include "loong/device_types.h"
#include "loong/kernel.h"
#include "loong/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A backend. Slots marked (optional) may be NULL. Every function but
 * `create` gets the private data that `create` made. */
typedef struct loong_device_ops {
    const char *name; /* "cpu"; kernels carry the same name */
    /* Fills *caps_p, which is zero; data NULL: what any such device can do. */
    void (*caps)(const void *data, loong_device_caps_t *caps_p);
    /* (optional): none are known. Its cards, up to one without a name; the
     * first is taken where none is named. */
    const loong_device_rates_t *rates;
    /* (optional): none. A file that is there where its driver is. */
    const char *driver;
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
    /* `rows` rows of `bytes`, so many bytes apart. */
    loong_status_t (*copy_rows)(void *data, void *stream,
                                const loong_device_rows_t *rows);
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
    /* Is the last record reached? */
    loong_status_t (*event_done)(void *data, void *event, bool *done_p);
    /* (with LOONG_FEATURE_GRAPHS, all). What this thread puts on `stream`
     * from here on, and on streams that come to wait for it, is kept and not
     * done, until capture_end; `stream` waits for all of them by then.
     * Meanwhile nothing is waited for, asked or allocated. graph_p NULL: what
     * was kept is forgotten. *launches_p: pieces of work that it holds. */
    loong_status_t (*capture_begin)(void *data, void *stream);
    loong_status_t (*capture_end)(void *data, void *stream, void **graph_p,
                                  int64_t *launches_p);
    /* All that was kept, as one piece of work. Operands are those of then. */
    loong_status_t (*graph_launch)(void *data, void *graph, void *stream);
    void (*graph_destroy)(void *data, void *graph);
    /* (optional): no. Lets this device touch the memory of device `other` of
     * its kind, in the same process. */
    loong_status_t (*peer_enable)(void *data, int other, bool *granted_p);
    /* (optional): NULL. Where kernels of this device write what they find wrong
     * (kernel.h); `synchronize` makes an error of it. */
    loong_device_error_t *(*error)(void *data);
    /* (optional): devices are not told apart. The same for the same device in
     * all processes of a machine. */
    uint64_t (*identity)(void *data);
    /* (optional): that of the machine. Bytes that can be had now. */
    loong_status_t (*available)(void *data, size_t *bytes_p);
    const loong_device_overhead_t *overhead; /* (optional): nothing */
    /* (with `overhead`) */
    loong_status_t (*usage)(void *data, loong_device_usage_t *usage_p);
    loong_status_t (*trim)(void *data); /* likewise: loongi_device_trim */
    /* (optional): nothing. For a profiler of the device: what is launched from
     * here on, by this thread, is of that name; until the end. They nest. */
    void (*range_begin)(void *data, const char *name);
    void (*range_end)(void *data);
    /* (optional): the host's serve. Makes one of the ranks of `host` for memory
     * of this device, whose collectives go on streams. Collective on: host. */
    loong_status_t (*communicator)(loong_context_t *ctx,
                                   loong_device_t *device, loong_comm_t *host,
                                   loong_comm_t **comm_p);
    /* Lines for --doctor; the first: model, cores, memory. */
    void (*describe)(void *data, char *text, size_t size);
} loong_device_ops_t;

/* Enters a backend (borrowed). */
LOONG_API LOONG_NODISCARD loong_status_t
loong_register_device(loong_context_t *ctx, const loong_device_ops_t *ops);

/* The table of a kind of device; NULL: there is none of that name. */
LOONG_API const loong_device_ops_t *
loong_device_find_kind(const loong_context_t *ctx, const char *name);

/* Opens device `index` of a backend. "auto" takes the first registered
 * backend that has one. Errors: LOONG_ERR_NOT_FOUND with each backend's
 * reason. Not collective. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_create(loong_context_t *ctx, const char *name, int index,
                    loong_device_t **device_p);
/* The device of the local_rank-th process of a machine: each has its own, as
 * long as there are any; see loong_device_identity. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_create_local(loong_context_t *ctx, const char *name,
                          int local_rank, loong_device_t **device_p);
/* For plans alone: of a backend whose kernels this build has, be one there or
 * not. It has a name and what the backend can do; nothing can be allocated,
 * and no call made. Errors: LOONG_ERR_NOT_FOUND. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_create_planned(loong_context_t *ctx, const char *name,
                            loong_device_t **device_p);
LOONG_API bool loong_device_is_planned(const loong_device_t *device);
LOONG_API void loong_device_destroy(loong_device_t **device_p);

LOONG_API const char *loong_device_name(const loong_device_t *device);
LOONG_API int loong_device_index(const loong_device_t *device);
/* As it was when the device was opened: the driver is not asked. */
LOONG_API const loong_device_caps_t *
loong_device_caps(const loong_device_t *device);
LOONG_API bool loong_device_has(const loong_device_t *device,
                                loong_device_feature_t feature);
/* It has LOONG_FEATURE_HOST_MEMORY. */
LOONG_API bool loong_device_is_host(const loong_device_t *device);
/* 0: any number of processes may have it. */
LOONG_API uint64_t loong_device_identity(const loong_device_t *device);
/* Bytes that can be had now; *own_p false: they are the machine's. */
LOONG_API LOONG_NODISCARD loong_status_t loong_device_available(
    const loong_device_t *device, bool *own_p, size_t *bytes_p);
LOONG_API const loong_device_overhead_t *
loong_device_get_overhead(const loong_device_t *device);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_usage(const loong_device_t *device,
                   loong_device_usage_t *usage_p);
LOONG_API void loong_device_describe(const loong_device_t *device, char *text,
                                     size_t size);

LOONG_API LOONG_NODISCARD loong_status_t
loong_device_alloc(loong_device_t *device, size_t bytes, const char *what,
                   void **ptr_p);
LOONG_API void loong_device_free(loong_device_t *device, void *ptr,
                                 size_t bytes);
/* Either side may be host memory. src may be used again on return, unless it is
 * the device's or of loong_device_host_alloc. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_copy(loong_device_t *device, void *dst, const void *src,
                  size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_fill(loong_device_t *device, void *dst, int byte, size_t bytes);
/* Waits for what is on the compute stream: the host runs ahead of the device
 * until somebody calls this, with a word for what is waited for. Errors: what
 * went wrong on the device, and what the watch says. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_synchronize(loong_device_t *device, const char *what);
/* How often the host had to wait, since creation. */
LOONG_API uint64_t loong_device_waits(const loong_device_t *device);
/* Asked again and again while the host waits (an error ends it), and once more,
 * `waits` false, when it waits no longer, however that came. NULL: none. */
typedef loong_status_t (*loong_device_watch_fn)(void *user, bool waits);
LOONG_API void loong_device_set_watch(loong_device_t *device,
                                      loong_device_watch_fn watch, void *user);
/* From the device, behind what is on the compute stream; complete on return.*/
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_read(loong_device_t *device, void *dst, const void *src,
                  size_t bytes, const char *what);
LOONG_API void *loong_device_stream(const loong_device_t *device);
LOONG_API loong_device_error_t *
loong_device_get_error(const loong_device_t *device);

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

/* Graphs: what is put on the compute stream once, and on streams that wait for
 * it, launched as a whole again and again. In between nothing may be waited
 * for or allocated; on an error what was kept is forgotten. */
LOONG_API bool loong_device_is_capturing(const loong_device_t *device);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_capture_begin(loong_device_t *device);
/* *graph_p: owned by the caller; NULL when nothing was kept. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_capture_end(loong_device_t *device, void **graph_p,
                         int64_t *launches_p);
LOONG_API void loong_device_capture_cancel(loong_device_t *device);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_graph_launch(loong_device_t *device, void *graph);
LOONG_API void loong_device_graph_destroy(loong_device_t *device,
                                          void *graph);

/* What this thread launches meanwhile has a name in the device's profiler. */
LOONG_API void loong_device_range_begin(loong_device_t *device,
                                        const char *name);
LOONG_API void loong_device_range_end(loong_device_t *device);

/* *comm_p: the communicator for collectives on this device's memory, owned by
 * the caller; NULL: `host`, which must outlive it, serves. Collective: host. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_communicator(loong_device_t *device, loong_comm_t *host,
                          loong_comm_t **comm_p);

LOONG_API LOONG_NODISCARD loong_status_t
loong_device_event_is_done(loong_device_t *device, void *event, bool *done_p);
/* The host waits for the event's last record. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_event_await(loong_device_t *device, void *event,
                         const char *what);

/* Of one stream; what synchronizes so is not watched. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_copy(loong_device_t *device, void *stream, void *dst,
                         const void *src, size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_fill(loong_device_t *device, void *stream, void *dst,
                         int byte, size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_copy_rows(loong_device_t *device, void *stream,
                              const loong_device_rows_t *rows);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_stream_synchronize(loong_device_t *device, void *stream);

/* What kernels make and the host needs a little later: the host gets a copy,
 * begun here in the order of `stream`. The newest one of what lies at `ptr` is
 * complete on return of _mirrored, borrowed, and stays until the next; `what`
 * names the waiting for it, which is for the copy alone, not for what came on
 * the stream behind it. Memory for copies is taken once per place, and given
 * back with it. Errors: LOONG_ERR_INTERNAL where nothing was mirrored. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_mirror(loong_device_t *device, void *stream, const void *ptr,
                    size_t bytes);
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_mirrored(loong_device_t *device, const void *ptr, size_t bytes,
                      const char *what, const void **host_p);

/* *granted_p: kernels and copies of this device reach the memory of device
 * `other` of its kind in this process. */
LOONG_API LOONG_NODISCARD loong_status_t
loong_device_peer_enable(loong_device_t *device, int other, bool *granted_p);

#ifdef __cplusplus
}
#endif

#endif
