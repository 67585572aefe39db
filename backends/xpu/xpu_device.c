/* SPDX-License-Identifier: Apache-2.0
 *
 * One Kunlun XPU over the vendor's runtime, which is loaded and never linked.
 * What is public of that runtime, how certain it is, and what is made of it
 * here: docs/devices/xpu.md. The table is entered by registry_builtin.c and
 * called by src/device/device.c. Read loong/device.h and xpu_impl.h before. */
#include "xpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bkcl_comm.h"
#include "device_error.h"
#include "xpu_impl.h"

/* What a process holds beside its memory is not known (D). */
static const loong_device_overhead_t xpu_overhead = {0, 0, 0};

/* ---- errors -------------------------------------------------------------- */

loong_status_t loongi_xpu_failed(const xpu_data_t *d, const char *call,
                                 int error)
{
    return LOONG_FAIL(
        d->ctx,
        loongi_xpu_is_memory(error) ? LOONG_ERR_MEMORY : LOONG_ERR_DEVICE,
        "xpu:%d: %s: %s (%d)", d->index, call, loongi_xpu_text(error), error);
}

loong_status_t loongi_xpu_shim_failed(const xpu_data_t *d, const char *call,
                                      int error)
{
    return LOONG_FAIL(d->ctx, LOONG_ERR_DEVICE,
                      "xpu:%d: %s of the kernel "
                      "shim: %s (%d)",
                      d->index, call, d->lib->shim->last_error(), error);
}

/* ---- finding devices ----------------------------------------------------- */

static int xpu_count(char *reason, size_t size)
{
    loong_xpu_library_t lib;
    int count = 0;
    if (!loongi_xpu_load(&lib, reason, size)) {
        return 0;
    }
    int error = lib.rt.device_count(&count);
    if (error != 0) {
        snprintf(reason, size, "xpu_device_count: %s (%d)",
                 loongi_xpu_text(error), error);
        return 0;
    }
    if (count == 0) {
        snprintf(reason, size,
                 "the runtime shows no device; see XPU_VISIBLE_DEVICES and "
                 "CUDA_VISIBLE_DEVICES, which both must name it");
    }
    return count;
}

/* ---- one device ---------------------------------------------------------- */

/* The attribute is that of the current device, whatever is asked for (C). */
static loong_status_t read_attribute(xpu_data_t *d, int attribute,
                                     uint64_t *value_p)
{
    XPU_TRY(d, device_get_attr, (value_p, attribute, d->index));
    return LOONG_OK;
}

static loong_status_t read_device(xpu_data_t *d)
{
    uint64_t model = 0;
    uint64_t memory = 0;
    uint64_t clusters = 0;
    XPU_TRY(d, get_runtime_version, (&d->version[0], &d->version[1]));
    XPU_TRY(d, get_driver_version, (&d->version[2], &d->version[3]));
    LOONG_TRY(read_attribute(d, LOONG_XPU_ATTR_MODEL, &model));
    LOONG_TRY(read_attribute(d, LOONG_XPU_ATTR_MEMORY, &memory));
    LOONG_TRY(read_attribute(d, LOONG_XPU_ATTR_CLUSTERS, &clusters));
    LOONG_TRY(read_attribute(d, LOONG_XPU_ATTR_PCI, &d->pci));
    d->model = (int)model;
    d->memory = (size_t)memory;
    d->clusters = (int)clusters;
    LOONG_CHECK(d->ctx,
                d->model >= LOONG_XPU_MODEL_XPU3 &&
                    d->model < LOONG_XPU_MODEL_END,
                LOONG_ERR_UNSUPPORTED,
                "xpu:%d: model %d; the third generation is wanted, models %d "
                "to %d (P800)",
                d->index, d->model, (int)LOONG_XPU_MODEL_XPU3,
                (int)LOONG_XPU_MODEL_END - 1);
    return LOONG_OK;
}

/* Variables that change what the libraries do. */
static void warn_environment(const xpu_data_t *d)
{
    static const char *const bad[] = {"XPU_EVENT_KL3_ENABLE",
                                      "XPU_DUMMY_EVENT"};
    const char *visible = getenv("XPU_VISIBLE_DEVICES");
    const char *cuda = getenv("CUDA_VISIBLE_DEVICES");
    for (int i = 0; i < LOONG_COUNT_OF(bad); i++) {
        const char *value = getenv(bad[i]);
        if (value != NULL && strcmp(value, "0") != 0) {
            loongi_log(d->ctx, LOONG_LOG_WARN,
                       "xpu:%d: %s=%s: events may hang or order nothing; "
                       "unset it",
                       d->index, bad[i], value);
        }
    }
    if (visible != NULL && cuda != NULL && strcmp(visible, cuda) != 0) {
        loongi_log(d->ctx, LOONG_LOG_WARN,
                   "xpu:%d: XPU_VISIBLE_DEVICES=%s and "
                   "CUDA_VISIBLE_DEVICES=%s differ: libraries may take other "
                   "devices",
                   d->index, visible, cuda);
    }
}

static size_t read_chunk(void)
{
    const char *text = getenv("LOONG_XPU_CHUNK");
    long long bytes = text != NULL ? atoll(text) : 0;
    return bytes >= 4096 ? (size_t)bytes : (size_t)1 << 20;
}

static loong_status_t open_device(xpu_data_t *d)
{
    void *memory = NULL;
    LOONG_TRY(read_device(d));
    warn_environment(d);
    if (d->lib->shim == NULL) {
        loongi_log(d->ctx, LOONG_LOG_WARN, "xpu:%d: %s", d->index,
                   d->lib->missing);
    }
    if (d->lib->shim == NULL || d->lib->shim->fill == NULL) {
        LOONG_TRY(
            loongi_xpu_host_alloc(d->ctx, d, d->chunk, "pattern", &memory));
        d->pattern = memory;
    }
    XPU_TRY(d, stream_create, (&d->compute));
    if (d->lib->blas_handle != NULL) {
        int error = 0;
        XPU_CALL(d, error, d->lib->blas.Create(&d->blas));
        if (error != 0) {
            return loongi_xpu_failed(d, "cublasCreate", error);
        }
    }
    LOONG_TRY(
        loongi_xpu_host_alloc(d->ctx, d, sizeof(*d->told), "errors", &memory));
    d->told = memory;
    LOONG_TRY(
        loongi_xpu_alloc(d->ctx, d, sizeof(*d->error), "errors", &memory));
    d->error = memory;
    XPU_TRY(d, wait, (d->compute));
    return LOONG_OK;
}

/* One that nobody waits for any more. */
static void drop_stream(xpu_data_t *d, void *stream)
{
    int before = loongi_xpu_select(d->lib, d->index);
    if (d->lib->shim != NULL) {
        d->lib->shim->forget(stream);
    }
    (void)d->lib->rt.stream_destroy(stream);
    loongi_xpu_restore(d->lib, d->index, before);
}

static void xpu_destroy(loong_context_t *ctx, void *data)
{
    xpu_data_t *d = data;
    (void)loongi_xpu_wait_all(d);
    if (d->blas != NULL) {
        XPU_DROP(d, d->lib->blas.Destroy(d->blas));
    }
    if (d->compute != NULL) {
        drop_stream(d, d->compute);
    }
    loongi_xpu_memory_end(d);
    free(d->streams);
    pthread_mutex_destroy(&d->lock);
    loongi_free(ctx, d);
}

static loong_status_t xpu_create(loong_context_t *ctx, int index, void **data_p)
{
    xpu_data_t *d = NULL;
    const loong_xpu_library_t *lib = NULL;
    LOONG_TRY(loongi_xpu_library(ctx, &lib));
    LOONG_TRY(loongi_alloc(ctx, sizeof(*d), "xpu device", &d));
    d->lib = lib;
    d->ctx = ctx;
    d->index = index;
    d->chunk = read_chunk();
    pthread_mutex_init(&d->lock, NULL);
    loong_status_t status = open_device(d);
    if (status != LOONG_OK) {
        xpu_destroy(ctx, d);
        return status;
    }
    *data_p = d;
    return LOONG_OK;
}

/* A line that goes behind the others. */
static void add_line(char *text, size_t size, const char *what,
                     const char *value)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "\n%s: %s", what, value);
}

static void describe_environment(char *text, size_t size)
{
    static const char *const names[] = {
        "LOONG_XPU_PATH",       "XPU_HOME",
        "XPU_VISIBLE_DEVICES",  "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",    "XPU_FORCE_USERMODE_LAUNCH",
        "XPU_EVENT_KL3_ENABLE", "XPU_DUMMY_EVENT",
        "LOONG_XPU_CHUNK",      "BKCL_SOCKET_IFNAME",
        "BKCL_RDMA_NICS",       "BKCL_TIMEOUT"};
    char line[1024] = "";
    for (int i = 0; i < LOONG_COUNT_OF(names); i++) {
        const char *value = getenv(names[i]);
        size_t used = strlen(line);
        if (value != NULL) {
            snprintf(line + used, sizeof(line) - used, "%s%s=%s",
                     used > 0 ? " " : "", names[i], value);
        }
    }
    add_line(text, size, "environment", line[0] != '\0' ? line : "not set");
}

/* BKCL is no part of the library: a single rank does not load it. */
static void xpu_describe(void *data, char *text, size_t size)
{
    const xpu_data_t *d = data;
    loong_xpu_library_t lib = *d->lib;
    char why[LOONG_XPU_REASON] = "";
    void *const handles[] = {lib.runtime_handle, lib.ml_handle, lib.blas_handle,
                             loongi_bkcl_open(why, sizeof(why)),
                             lib.shim_handle};
    char path[1024];
    snprintf(text, size,
             "Kunlun XPU3, model %d, %.1f GiB of memory, %d clusters, runtime "
             "%u.%u, driver %u.%u",
             d->model, (double)d->memory / 0x1p30, d->clusters, d->version[0],
             d->version[1], d->version[2], d->version[3]);
    for (int i = 0; i < LOONG_COUNT_OF(handles); i++) {
        if (handles[i] != NULL) {
            loongi_xpu_file(handles[i], path, sizeof(path));
            add_line(text, size, "library", path);
        }
    }
    if (lib.shim != NULL) {
        add_line(text, size, "kernel shim", lib.shim->describe());
    }
    if (handles[3] == NULL) {
        loongi_xpu_lacks(&lib, "libbkcl.so", why,
                         " (several ranks: comm.device_backend: staged)");
    }
    add_line(text, size, "missing",
             lib.missing[0] != '\0' ? lib.missing : "nothing");
    describe_environment(text, size);
    add_line(text, size, "not known",
             "what no public source tells of this runtime: the list of "
             "assumptions in docs/devices/xpu.md");
}

/* There is no fp8, no tf32, and no product of fp64. */
static void xpu_caps(const void *data, loong_device_caps_t *caps)
{
    const xpu_data_t *d = data;
    if (d != NULL && d->blas == NULL && d->lib->shim == NULL) {
        return; /* nothing here multiplies */
    }
    caps->rate[LOONG_F32] = LOONG_RATE_VECTOR;
    caps->rate[LOONG_BF16] = LOONG_RATE_MATRIX;
    if (d != NULL && d->lib->shim != NULL) {
        caps->align = d->lib->shim->align;
    }
}

static uint64_t xpu_identity(void *data)
{
    return ((const xpu_data_t *)data)->pci + 1; /* 0 is none */
}

/* ---- streams ------------------------------------------------------------- */

loong_status_t loongi_xpu_wait_all(xpu_data_t *d)
{
    loong_status_t status = LOONG_OK;
    XPU_TRY(d, wait, (NULL));
    if (d->compute != NULL) {
        XPU_TRY(d, wait, (d->compute));
    }
    for (int i = 0; status == LOONG_OK; i++) {
        pthread_mutex_lock(&d->lock);
        void *stream = i < d->num_streams ? d->streams[i] : NULL;
        pthread_mutex_unlock(&d->lock);
        if (stream == NULL) {
            break;
        }
        XPU_TRY(d, wait, (stream));
    }
    return status;
}

/* The host's copy of what kernels found wrong comes behind them. */
static loong_status_t xpu_synchronize(void *data, void *stream)
{
    xpu_data_t *d = data;
    if (stream != d->compute) {
        XPU_TRY(d, wait, (stream));
        return LOONG_OK;
    }
    LOONG_TRY(loongi_xpu_copy(d, stream, d->told, d->error, sizeof(*d->error)));
    XPU_TRY(d, wait, (stream));
    if (d->told->kind == LOONG_DEVICE_ERROR_NONE) {
        return LOONG_OK;
    }
    LOONG_TRY(loongi_xpu_fill(d, stream, d->error, 0, sizeof(*d->error)));
    if (d->told->kind == LOONG_XPU_ERROR_TEXT) {
        return LOONG_FAIL(d->ctx, LOONG_ERR_ARG, "xpu:%d: %s", d->index,
                          d->told->op);
    }
    return loongi_device_error_take(d->ctx, "xpu", d->index, d->told);
}

static void *xpu_compute_stream(void *data)
{
    return ((xpu_data_t *)data)->compute;
}

static loong_device_error_t *xpu_get_error(void *data)
{
    return ((xpu_data_t *)data)->error;
}

static loong_status_t keep_stream(xpu_data_t *d, void *stream)
{
    enum { MANY = 8 };
    pthread_mutex_lock(&d->lock);
    loong_status_t status = LOONG_OK;
    if (d->num_streams == d->room_streams) {
        int room = LOONG_MAX(2 * d->room_streams, (int)MANY);
        void **list = realloc(d->streams, (size_t)room * sizeof(*list));
        status = list != NULL ? LOONG_OK : LOONG_ERR_MEMORY;
        d->streams = list != NULL ? list : d->streams;
        d->room_streams = list != NULL ? room : d->room_streams;
    }
    if (status == LOONG_OK) {
        d->streams[d->num_streams++] = stream;
    }
    int count = d->num_streams + 1;
    pthread_mutex_unlock(&d->lock);
    LOONG_CHECK(d->ctx, status == LOONG_OK, status,
                "cannot allocate a list of %d streams", count);
    if (count == MANY + 1) {
        loongi_log(d->ctx, LOONG_LOG_WARN,
                   "xpu:%d: more than %d streams, the driver is said to "
                   "support as many",
                   d->index, (int)MANY);
    }
    return LOONG_OK;
}

static loong_status_t xpu_stream_create(void *data, void **stream_p)
{
    xpu_data_t *d = data;
    void *stream = NULL;
    XPU_TRY(d, stream_create, (&stream));
    loong_status_t status = keep_stream(d, stream);
    if (status != LOONG_OK) {
        XPU_DROP(d, d->lib->rt.stream_destroy(stream));
        return status;
    }
    *stream_p = stream;
    return LOONG_OK;
}

static void xpu_stream_destroy(void *data, void *stream)
{
    xpu_data_t *d = data;
    XPU_DROP(d, d->lib->rt.wait(stream));
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->num_streams; i++) {
        if (d->streams[i] == stream) {
            d->streams[i] = d->streams[--d->num_streams];
        }
    }
    pthread_mutex_unlock(&d->lock);
    drop_stream(d, stream);
}

/* ---- events -------------------------------------------------------------- */

/* What waiting for an event does that was never recorded is not public (D): it
 * is not asked for. */
typedef struct xpu_event {
    void *event;
    _Atomic bool recorded; /* by one thread, asked for by another */
} xpu_event_t;

static loong_status_t xpu_event_create(void *data, void **event_p)
{
    xpu_data_t *d = data;
    xpu_event_t *e = calloc(1, sizeof(*e));
    int error = 0;
    LOONG_CHECK(d->ctx, e != NULL, LOONG_ERR_MEMORY,
                "cannot allocate an event");
    XPU_CALL(d, error, d->lib->rt.event_create(&e->event));
    if (error != 0) {
        free(e);
        return loongi_xpu_failed(d, "xpu_event_create", error);
    }
    *event_p = e;
    return LOONG_OK;
}

static void xpu_event_destroy(void *data, void *event)
{
    xpu_data_t *d = data;
    xpu_event_t *e = event;
    XPU_DROP(d, d->lib->rt.event_destroy(e->event));
    free(e);
}

static loong_status_t xpu_event_record(void *data, void *event, void *stream)
{
    xpu_data_t *d = data;
    xpu_event_t *e = event;
    XPU_TRY(d, event_record, (e->event, stream));
    e->recorded = true;
    return LOONG_OK;
}

static loong_status_t xpu_event_wait(void *data, void *event, void *stream)
{
    xpu_data_t *d = data;
    xpu_event_t *e = event;
    if (e->recorded) {
        XPU_TRY(d, stream_wait_event, (stream, e->event));
    }
    return LOONG_OK;
}

/* Other than 0 is not there yet, whatever it is (C), unless the device is
 * lost. */
static loong_status_t xpu_event_done(void *data, void *event, bool *done_p)
{
    xpu_data_t *d = data;
    xpu_event_t *e = event;
    int error = 0;
    if (e->recorded && d->lib->rt.event_query == NULL) {
        XPU_TRY(d, event_wait, (e->event));
    } else if (e->recorded) {
        XPU_CALL(d, error, d->lib->rt.event_query(e->event));
    }
    int code = abs(error);
    if (code > LOONG_XPU_ERR_BASE && code < LOONG_XPU_ERR_END &&
        code != LOONG_XPU_ERR_BUSY) {
        return loongi_xpu_failed(d, "xpu_event_query", error);
    }
    *done_p = error == 0;
    return LOONG_OK;
}

/* For plans, of a P800: no datasheet is public, and nothing was measured here.
 * 345 TFLOP/s of fp16 are press's, taken for bf16; a copy at 2.09 TB/s and an
 * all-reduce of 8 cards at 19.3 GB/s were measured by others; 98,304 MiB are
 * what its tool shows. fp32 is taken to be a sixteenth of it, and what
 * products, attention and passes reach, and gaps, as on other cards. */
static const loong_device_rates_t xpu_rates[] = {
    {"p800_press", "press figures", false, 345e12, 345e12 / 16, 345e12 / 16,
     0.70, 0.30, 0.20, 0.30, 0.20, 2.09e12, 0.85, 3e-6, 5e-6, 19.3e9,
     0.9 * 25e9, 10e-6, 98304.0 * 1048576, 8},
    {.name = NULL}};

const loong_device_ops_t loongi_xpu_device = {
    .name = "xpu",
    .caps = xpu_caps,
    .rates = xpu_rates,
    .driver = "/dev/xpuctrl",
    .count = xpu_count,
    .create = xpu_create,
    .destroy = xpu_destroy,
    .alloc = loongi_xpu_alloc,
    .free = loongi_xpu_free,
    .copy = loongi_xpu_copy,
    .copy_rows = loongi_xpu_copy_rows,
    .fill = loongi_xpu_fill,
    .synchronize = xpu_synchronize,
    .compute_stream = xpu_compute_stream,
    .describe = xpu_describe,
    .host_alloc = loongi_xpu_host_alloc,
    .host_free = loongi_xpu_host_free,
    .stream_create = xpu_stream_create,
    .stream_destroy = xpu_stream_destroy,
    .event_create = xpu_event_create,
    .event_destroy = xpu_event_destroy,
    .event_record = xpu_event_record,
    .event_wait = xpu_event_wait,
    .event_done = xpu_event_done,
    .error = xpu_get_error,
    .identity = xpu_identity,
    .available = loongi_xpu_available,
    .overhead = &xpu_overhead,
    .communicator = loongi_bkcl_create,
    .usage = loongi_xpu_usage,
    .trim = loongi_xpu_trim,
};
