/* SPDX-License-Identifier: Apache-2.0
 *
 * Dispatch to the ops table of a backend. Called by all that works on a device.
 * Read loong/device.h and device_impl.h before. */
#include "loong/device.h"

#include <string.h>
#include <time.h>

#include "base.h"
#include "device_impl.h"
#include "first.h"
#include "planned.h"
#include "pool.h"
#include "progress.h"
#include "registry.h"
#include "waited.h"

enum { SPIN_TURNS = 2000, NAP_NANOSECONDS = 20000, CHECK_TURNS = 256 };

loong_status_t loong_register_device(loong_context_t *ctx,
                                     const loong_device_ops_t *ops)
{
    return loongi_registry_add(ctx, LOONG_REGISTRY_DEVICES, ops);
}

const loong_device_ops_t *loong_device_find_kind(const loong_context_t *ctx,
                                                 const char *name)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_DEVICES);
    for (int64_t i = 0; i < r.count; i++) {
        const loong_device_ops_t *ops = r.items[i];
        if (strcmp(ops->name, name) == 0) {
            return ops;
        }
    }
    return NULL;
}

/* `local`: the index is that of a process, and its device is found. */
static loong_status_t find_backend(loong_context_t *ctx, const char *name,
                                   bool local, int *index_p,
                                   const loong_device_ops_t **ops_p)
{
    int index = *index_p;
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_DEVICES);
    loong_text_t why = loongi_text_begin(ctx);
    loong_text_t names = loongi_text_begin(ctx);
    loong_status_t status = LOONG_ERR_NOT_FOUND;
    for (int64_t i = r.count - 1; i >= 0; i--) {
        const loong_device_ops_t *ops = r.items[i];
        char reason[256] = "";
        loongi_text_printf(&names, " %s", ops->name);
        if (strcmp(name, "auto") != 0 && strcmp(name, ops->name) != 0) {
            continue;
        }
        int count = ops->count(reason, sizeof(reason));
        if (index < count || (local && count > 0)) {
            *ops_p = ops;
            *index_p = index % count;
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

const char *loongi_device_first(const loong_context_t *ctx)
{
    loong_registry_t r = loongi_registry(ctx, LOONG_REGISTRY_DEVICES);
    for (int64_t i = r.count - 1; i >= 0; i--) {
        const loong_device_ops_t *ops = r.items[i];
        char reason[256] = "";
        if (ops->count(reason, sizeof(reason)) > 0) {
            return ops->name;
        }
    }
    return "";
}

loong_status_t loongi_device_open(loong_context_t *ctx,
                                  const loong_device_ops_t *ops, int index,
                                  void *data, loong_device_t **device_p)
{
    loong_device_t *device = NULL;
    LOONG_TRY(loongi_alloc(ctx, sizeof(*device), "device", &device));
    device->ctx = ctx;
    device->ops = ops;
    device->index = index;
    device->data = data;
    loong_status_t status = ops->create != NULL
                                ? ops->create(ctx, index, &device->data)
                                : LOONG_OK;
    if (status != LOONG_OK) {
        loongi_free(ctx, device);
        return status;
    }
    bool planned = ops->create == NULL;
    ops->caps(planned ? NULL : device->data, &device->caps);
    *device_p = device;
    return LOONG_OK;
}

loong_status_t loong_device_create(loong_context_t *ctx, const char *name,
                                   int index, loong_device_t **device_p)
{
    const loong_device_ops_t *ops = NULL;
    LOONG_TRY(find_backend(ctx, name, false, &index, &ops));
    return loongi_device_open(ctx, ops, index, NULL, device_p);
}

loong_status_t loong_device_create_local(loong_context_t *ctx,
                                         const char *name, int local_rank,
                                         loong_device_t **device_p)
{
    const loong_device_ops_t *ops = NULL;
    LOONG_TRY(find_backend(ctx, name, true, &local_rank, &ops));
    return loongi_device_open(ctx, ops, local_rank, NULL, device_p);
}

void loong_device_destroy(loong_device_t **device_p)
{
    loong_device_t *device = *device_p;
    if (device != NULL) {
        loong_device_event_destroy(device, device->reached);
        loongi_mirrors_free(device);
        loongi_progress_free(device);
        if (!device->progress.hangs) {
            device->ops->destroy(device->ctx, device->data);
        }
        loongi_free(device->ctx, device);
        *device_p = NULL;
    }
}

const char *loong_device_name(const loong_device_t *device)
{
    return device->ops->name;
}

int loong_device_index(const loong_device_t *device)
{
    return device->index;
}

const loong_device_caps_t *loong_device_caps(const loong_device_t *device)
{
    return &device->caps;
}

bool loong_device_has(const loong_device_t *device,
                      loong_device_feature_t feature)
{
    return loong_caps_have(&device->caps, feature);
}

bool loong_device_is_host(const loong_device_t *device)
{
    return loong_device_has(device, LOONG_FEATURE_HOST_MEMORY);
}

bool loong_device_is_planned(const loong_device_t *device)
{
    return device->ops->create == NULL;
}

uint64_t loong_device_identity(const loong_device_t *device)
{
    return device->ops->identity != NULL ? device->ops->identity(device->data)
                                         : 0;
}

loong_status_t loong_device_available(const loong_device_t *device, bool *own_p,
                                      size_t *bytes_p)
{
    *own_p = device->ops->available != NULL;
    return *own_p ? device->ops->available(device->data, bytes_p) : LOONG_OK;
}

const loong_device_overhead_t *
loong_device_get_overhead(const loong_device_t *device)
{
    return device->ops->overhead;
}

loong_status_t loong_device_usage(const loong_device_t *device,
                                  loong_device_usage_t *usage_p)
{
    memset(usage_p, 0, sizeof(*usage_p));
    return device->ops->usage(device->data, usage_p);
}

loong_status_t loongi_device_trim(loong_device_t *device)
{
    if (device->ops->overhead == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(loong_device_synchronize(device, "memory to be given back"));
    return device->ops->trim(device->data);
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
    if (ptr != NULL && !device->progress.hangs) {
        loongi_mirrors_retire(device, ptr, bytes);
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
    return loong_device_stream_fill(device, loong_device_stream(device), dst,
                                    byte, bytes);
}

void *loong_device_stream(const loong_device_t *device)
{
    return device->ops->compute_stream != NULL
               ? device->ops->compute_stream(device->data)
               : NULL;
}

loong_device_error_t *loong_device_get_error(const loong_device_t *device)
{
    return device->ops->error != NULL ? device->ops->error(device->data) : NULL;
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
    } else if (ptr != NULL && !device->progress.hangs) {
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
    if (device->ops->stream_destroy != NULL && stream != NULL &&
        !device->progress.hangs) {
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
    if (device->ops->event_destroy != NULL && event != NULL &&
        !device->progress.hangs) {
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

/* ---- graphs -------------------------------------------------------------- */

bool loong_device_is_capturing(const loong_device_t *device)
{
    return device->capturing;
}

loong_status_t loong_device_capture_begin(loong_device_t *device)
{
    LOONG_CHECK(device->ctx, loong_device_has(device, LOONG_FEATURE_GRAPHS),
                LOONG_ERR_UNSUPPORTED, "device %s: it has no graphs",
                device->ops->name);
    LOONG_TRY(device->ops->capture_begin(device->data,
                                         loong_device_stream(device)));
    device->capturing = true;
    return LOONG_OK;
}

loong_status_t loong_device_capture_end(loong_device_t *device,
                                        void **graph_p, int64_t *launches_p)
{
    void *graph = NULL;
    int64_t launches = 0;
    device->capturing = false;
    LOONG_TRY(device->ops->capture_end(
        device->data, loong_device_stream(device), &graph, &launches));
    *graph_p = graph;
    *launches_p = launches;
    return LOONG_OK;
}

void loong_device_capture_cancel(loong_device_t *device)
{
    if (device->capturing) {
        device->capturing = false;
        (void)device->ops->capture_end(device->data,
                                       loong_device_stream(device), NULL,
                                       NULL);
    }
}

loong_status_t loong_device_graph_launch(loong_device_t *device, void *graph)
{
    LOONG_TRY(device->ops->graph_launch(device->data, graph,
                                        loong_device_stream(device)));
    loongi_progress_mark(device, true);
    return LOONG_OK;
}

void loong_device_graph_destroy(loong_device_t *device, void *graph)
{
    if (graph != NULL && !device->progress.hangs) {
        device->ops->graph_destroy(device->data, graph);
    }
}

/* ---- the host waits ------------------------------------------------------ */

static loong_status_t poll(loong_device_t *device, void *event)
{
    struct timespec nap = {0, NAP_NANOSECONDS};
    bool done = false;
    for (int64_t turn = 0;; turn++) {
        LOONG_TRY(device->ops->event_done(device->data, event, &done));
        if (done) {
            return LOONG_OK;
        }
        if (turn == 0) {
            device->waits++;
            device->waits_since = loongi_now();
        }
        if (device->watch != NULL) {
            LOONG_TRY(device->watch(device->watch_user, true));
        }
        if (turn % CHECK_TURNS == CHECK_TURNS - 1) {
            LOONG_TRY(loongi_progress_check(device));
        }
        if (turn > SPIN_TURNS) {
            nanosleep(&nap, NULL);
        }
    }
}

void loong_device_range_begin(loong_device_t *device, const char *name)
{
    if (device->ops->range_begin != NULL) {
        device->ops->range_begin(device->data, name);
    }
}

void loong_device_range_end(loong_device_t *device)
{
    if (device->ops->range_end != NULL) {
        device->ops->range_end(device->data);
    }
    loongi_progress_mark(device, false); /* what is launched has a range */
}

loong_status_t loong_device_communicator(loong_device_t *device,
                                         loong_comm_t *host,
                                         loong_comm_t **comm_p)
{
    if (device->ops->communicator != NULL) {
        return device->ops->communicator(device->ctx, device, host, comm_p);
    }
    *comm_p = NULL;
    return LOONG_OK;
}

loong_status_t loong_device_event_is_done(loong_device_t *device, void *event,
                                          bool *done_p)
{
    if (device->ops->event_done != NULL) {
        return device->ops->event_done(device->data, event, done_p);
    }
    *done_p = true;
    return LOONG_OK;
}

loong_status_t loong_device_event_await(loong_device_t *device, void *event,
                                        const char *what)
{
    if (device->ops->event_done == NULL) {
        return LOONG_OK;
    }
    LOONG_CHECK(device->ctx, !device->capturing, LOONG_ERR_INTERNAL,
                "the host waits for %s while a graph is captured", what);
    LOONG_TRY(loongi_progress_begin(device));
    loong_status_t status = poll(device, event);
    device->waits_since = 0.0;
    if (device->watch != NULL) {
        loong_status_t over = device->watch(device->watch_user, false);
        status = status == LOONG_OK ? over : status;
    }
    if (status != LOONG_OK) {
        loongi_error_note(device->ctx, "waiting for %s", what);
    }
    return status;
}

loong_status_t loong_device_synchronize(loong_device_t *device,
                                        const char *what)
{
    void *stream = loong_device_stream(device);
    if (device->reached == NULL) {
        LOONG_TRY(loong_device_event_create(device, &device->reached));
    }
    LOONG_TRY(loong_device_event_record(device, device->reached, stream));
    LOONG_TRY(loong_device_event_await(device, device->reached, what));
    loong_status_t status = device->ops->synchronize(device->data, stream);
    if (status != LOONG_OK) {
        loongi_error_note(device->ctx, "waiting for %s", what);
    }
    return status;
}

uint64_t loong_device_waits(const loong_device_t *device)
{
    return device->waits;
}

double loongi_device_waited(const loong_device_t *device)
{
    return device->waits_since > 0.0 ? loongi_now() - device->waits_since
                                     : 0.0;
}

void loong_device_set_watch(loong_device_t *device,
                            loong_device_watch_fn watch, void *user)
{
    device->watch = watch;
    device->watch_user = user;
}

/* What is read is waited for first: a copy to ordinary memory would wait
 * unwatched. */
loong_status_t loong_device_read(loong_device_t *device, void *dst,
                                 const void *src, size_t bytes,
                                 const char *what)
{
    void *stream = loong_device_stream(device);
    LOONG_TRY(loong_device_synchronize(device, what));
    LOONG_TRY(device->ops->copy(device->data, stream, dst, src, bytes));
    return device->ops->synchronize(device->data, stream);
}

/* ---- one stream ---------------------------------------------------------- */

loong_status_t loong_device_stream_fill(loong_device_t *device, void *stream,
                                        void *dst, int byte, size_t bytes)
{
    return device->ops->fill(device->data, stream, dst, byte, bytes);
}

loong_status_t loong_device_stream_copy_rows(loong_device_t *device,
                                             void *stream,
                                             const loong_device_rows_t *rows)
{
    return device->ops->copy_rows(device->data, stream, rows);
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
    LOONG_TRY(loongi_progress_begin(device));
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
