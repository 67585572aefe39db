/* SPDX-License-Identifier: Apache-2.0
 *
 * Claims of the runtime: devices, memory, copies, streams, events, errors; and
 * the numbers that names of the vendor's headers have. Read assumed.c
 * before. */
#include <stdlib.h>
#include <unistd.h>

#include "assumed.h"

enum { SIZE = 3 << 20 };

/* A call that is to succeed, else the probe ends. */
#define DO(call_)                                        \
    do {                                                 \
        int error_ = lib.rt.call_;                       \
        if (error_ != 0) {                               \
            found("xpu_" #call_ " gives %d", error_);    \
            return false;                                \
        }                                                \
    } while (0)

/* ---- values -------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t value; /* of the public header; -1: none is public */
} names[] = {{"XPU_DEVICE_TO_HOST", 0},  {"XPU_HOST_TO_DEVICE", 1},
             {"XPU_DEVICE_TO_DEVICE", 2}, {"XPU_MEM_MAIN", 0},
             {"BKCL_UINT8", -1},          {"BKCL_INT32", -1},
             {"BKCL_INT64", -1},          {"BKCL_FLOAT16", -1},
             {"BKCL_BFLOAT16", -1},       {"BKCL_FLOAT", -1},
             {"BKCL_FLOAT64", -1},        {"BKCL_ADD", -1},
             {"BKCL_PRODUCT", -1},        {"BKCL_MAX", -1},
             {"BKCL_MIN", -1}};

static bool value_is(int64_t i)
{
    int64_t value = 0;
    if (lib.shim == NULL || lib.shim->enumerator(names[i].name, &value) != 0) {
        found("the shim does not know it");
        return false;
    }
    found("%lld", (long long)value);
    return names[i].value < 0 || value == names[i].value;
}

static bool id_fits(int64_t most)
{
    int64_t value = 0;
    if (lib.shim == NULL ||
        lib.shim->enumerator("sizeof BKCLUniqueId", &value) != 0) {
        found("the shim does not know it");
        return false;
    }
    found("%lld", (long long)value);
    return value > 0 && value <= most;
}

static bool has_all(int64_t number)
{
    (void)number;
    found("%s", lib.missing[0] != '\0' ? lib.missing : "nothing");
    return lib.missing[0] == '\0';
}

bool claims_of_values(void)
{
    char assumed[32];
    bool same = true;
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        snprintf(assumed, sizeof(assumed), "%lld", (long long)names[i].value);
        claim_t c = {names[i].name,
                     names[i].value < 0 ? "not public" : assumed, value_is, i};
        same = tell_claim(&c, true) && same;
    }
    claim_t id = {"sizeof BKCLUniqueId", "at most 4096", id_fits, 4096};
    claim_t all = {"missing libraries and symbols", "nothing", has_all, 0};
    same = tell_claim(&id, true) && same;
    return tell_claim(&all, true) && same;
}

/* ---- devices and memory -------------------------------------------------- */

static bool attribute(int64_t which)
{
    uint64_t value = 0;
    DO(set_device(0));
    DO(device_get_attr(&value, (int)which, 0));
    found("%llu", (unsigned long long)value);
    return which == LOONG_XPU_ATTR_MODEL
               ? value >= LOONG_XPU_MODEL_XPU3 && value < LOONG_XPU_MODEL_END
           : which == LOONG_XPU_ATTR_MEMORY ? value >= 90ull << 30
                                            : value == 12;
}

static bool devices(int64_t number)
{
    int count = 0;
    (void)number;
    DO(device_count(&count));
    found("%d", count);
    return count > 0;
}

static bool alignment(int64_t number)
{
    uintptr_t bits = 0;
    (void)number;
    DO(set_device(0));
    for (int i = 0; i < 8; i++) {
        void *p = NULL;
        DO(malloc(&p, (uint64_t)4099 * (i + 1), lib.values.global_memory));
        bits |= (uintptr_t)p;
    }
    found("%llu", (unsigned long long)(bits & (0 - bits)));
    return bits % 64 == 0;
}

static bool error_of_memory(int64_t number)
{
    void *p = NULL;
    (void)number;
    DO(set_device(0));
    int error = lib.rt.malloc(&p, 1ull << 46, lib.values.global_memory);
    found("%d", error);
    return loongi_xpu_is_memory(error);
}

static bool error_of_device(int64_t number)
{
    (void)number;
    int error = lib.rt.set_device(1000);
    found("%d", error);
    return abs(error) == 701;
}

static bool sign_of_errors(int64_t number)
{
    (void)number;
    int error = lib.rt.set_device(1000);
    found("%s", error < 0 ? "negative" : "positive");
    return error > 0;
}

static bool free_memory(int64_t number)
{
    loong_xpu_memory_t m;
    void *handle = NULL;
    unsigned count = 0;
    (void)number;
    memset(&m, 0, sizeof(m));
    if (lib.ml_handle == NULL) {
        found("no libxpuml");
        return false;
    }
    int error = lib.ml.Init();
    error = error == 0 ? lib.ml.DeviceGetCount(&count) : error;
    error = error == 0 ? lib.ml.DeviceGetHandleByIndex(0, &handle) : error;
    error = error == 0 ? lib.ml.DeviceGetMemoryInfo(handle, &m) : error;
    found("error %d, %u cards, total %llu, free %llu, used %llu", error, count,
          m.total_global, m.free_global, m.used_global);
    return error == 0 && m.total_global >= 90ull << 30 &&
           m.free_global <= m.total_global &&
           m.used_global + m.free_global == m.total_global;
}

/* ---- copies, streams and events ------------------------------------------ */

typedef struct place {
    char *device[2];
    unsigned char *host[2]; /* pinned */
    void *stream[2];
    void *event;
} place_t;

static bool open_place(place_t *p)
{
    memset(p, 0, sizeof(*p));
    DO(set_device(0));
    for (int i = 0; i < 2; i++) {
        DO(malloc((void **)&p->device[i], SIZE, lib.values.global_memory));
        DO(host_alloc((void **)&p->host[i], SIZE, 0));
        DO(stream_create(&p->stream[i]));
    }
    DO(event_create(&p->event));
    for (int i = 0; i < SIZE; i++) {
        p->host[0][i] = (unsigned char)(i * 7 + i / 251);
        p->host[1][i] = 0;
    }
    return true;
}

/* In pieces, as the backend copies. */
static int copy_async(void *to, const void *from, size_t size, int kind,
                      void *stream)
{
    int error = 0;
    for (size_t at = 0; at < size && error == 0; at += 1 << 20) {
        size_t n = LOONG_MIN(size - at, (size_t)1 << 20);
        error = lib.rt.memcpy_async((char *)to + at, (const char *)from + at, n,
                                    kind, stream);
    }
    return error;
}

static bool is_there(const place_t *p, const char *what)
{
    bool same = memcmp(p->host[0], p->host[1], SIZE) == 0;
    found("%s%s", same ? "the same bytes" : "other bytes", what);
    return same;
}

static bool copies(int64_t number)
{
    place_t p;
    (void)number;
    if (!open_place(&p)) {
        return false;
    }
    DO(memcpy(p.device[0], p.host[0], SIZE, lib.values.host_to_device));
    DO(memcpy(p.device[1], p.device[0], SIZE, lib.values.device_to_device));
    DO(wait(NULL));
    DO(memcpy(p.host[1], p.device[1], SIZE, lib.values.device_to_host));
    return is_there(&p, "");
}

static bool ordered_copies(int64_t number)
{
    place_t p;
    (void)number;
    if (!open_place(&p)) {
        return false;
    }
    int error = copy_async(p.device[0], p.host[0], SIZE,
                           lib.values.host_to_device, p.stream[0]);
    error = error != 0 ? error
                       : copy_async(p.host[1], p.device[0], SIZE,
                                    lib.values.device_to_host, p.stream[0]);
    if (error != 0) {
        found("xpu_memcpy_async gives %d", error);
        return false;
    }
    DO(wait(p.stream[0]));
    return is_there(&p, "");
}

/* One stream waits for the other; the event may be recorded again, and ended
 * while it is waited for. */
static bool events(int64_t twice)
{
    place_t p;
    if (!open_place(&p)) {
        return false;
    }
    if (twice != 0) {
        DO(event_record(p.event, p.stream[1]));
    }
    int error = copy_async(p.device[0], p.host[0], SIZE,
                           lib.values.host_to_device, p.stream[0]);
    DO(event_record(p.event, p.stream[0]));
    DO(stream_wait_event(p.stream[1], p.event));
    if (twice != 0) {
        DO(event_destroy(p.event));
    }
    error = error != 0 ? error
                       : copy_async(p.host[1], p.device[0], SIZE,
                                    lib.values.device_to_host, p.stream[1]);
    if (error != 0) {
        found("xpu_memcpy_async gives %d", error);
        return false;
    }
    DO(wait(p.stream[1]));
    return is_there(&p, "");
}

static bool event_ends(int64_t number)
{
    place_t p;
    (void)number;
    if (lib.rt.event_query == NULL) {
        found("there is no xpu_event_query");
        return false;
    }
    if (!open_place(&p)) {
        return false;
    }
    for (int i = 0; i < 64; i++) {
        (void)copy_async(p.device[0], p.host[0], SIZE,
                         lib.values.host_to_device, p.stream[0]);
    }
    DO(event_record(p.event, p.stream[0]));
    int before = lib.rt.event_query(p.event);
    DO(event_wait(p.event));
    int after = lib.rt.event_query(p.event);
    found("%d behind 192 MiB of copies, %d when they were waited for", before,
          after);
    return before != 0 && after == 0;
}

static bool waits(int64_t number)
{
    place_t p;
    (void)number;
    if (!open_place(&p)) {
        return false;
    }
    (void)copy_async(p.device[0], p.host[0], SIZE, lib.values.host_to_device,
                     p.stream[0]);
    DO(event_record(p.event, p.stream[0]));
    DO(event_wait(p.event));
    DO(memcpy(p.host[1], p.device[0], SIZE, lib.values.device_to_host));
    return is_there(&p, "");
}

static bool many_streams(int64_t count)
{
    int64_t made = 0;
    DO(set_device(0));
    for (; made < count; made++) {
        void *stream = NULL;
        int error = lib.rt.stream_create(&stream);
        if (error != 0) {
            found("number %lld gives %d", (long long)made + 1, error);
            return false;
        }
    }
    found("%lld", (long long)made);
    return true;
}

static bool largest_copy(int64_t bytes)
{
    void *host = NULL;
    void *device = NULL;
    void *stream = NULL;
    DO(set_device(0));
    DO(host_alloc(&host, (uint64_t)bytes, 0));
    DO(malloc(&device, (uint64_t)bytes, lib.values.global_memory));
    DO(stream_create(&stream));
    int error = lib.rt.memcpy_async(device, host, (uint64_t)bytes,
                                    lib.values.host_to_device, stream);
    int waited = lib.rt.wait(stream);
    found("%d, and %d when it is waited for", error, waited);
    return error == 0 && waited == 0;
}

static bool is_threads(int64_t number)
{
    int count = 0;
    int now = -1;
    (void)number;
    DO(device_count(&count));
    DO(set_device(count - 1));
    DO(current_device(&now));
    found("%d of %d", now, count);
    return now % LOONG_XPU_SIMULATED == count - 1;
}

static bool shim_moves(int64_t fills)
{
    place_t p;
    if (lib.shim == NULL || lib.shim->copy == NULL || lib.shim->fill == NULL) {
        found("the shim has none");
        return false;
    }
    if (!open_place(&p)) {
        return false;
    }
    DO(memcpy(p.device[0], p.host[0], SIZE, lib.values.host_to_device));
    loong_device_rows_t r = {p.device[1], SIZE, p.device[0], SIZE, SIZE, 1};
    int error = lib.shim->copy(&r, p.stream[0]);
    if (error == 0 && fills != 0) {
        error = lib.shim->fill(p.device[1] + 5, 4, SIZE - 10, p.stream[0]);
        memset(p.host[0] + 5, 4, SIZE - 10);
    }
    if (error != 0) {
        found("%d: %s", error, lib.shim->last_error());
        return false;
    }
    DO(wait(p.stream[0]));
    DO(memcpy(p.host[1], p.device[1], SIZE, lib.values.device_to_host));
    return is_there(&p, "");
}

bool claims_of_runtime(void)
{
    static const claim_t claims[] = {
        {"devices", "one or more", devices, 0},
        {"attribute 4, the model", "300 to 599", attribute,
         LOONG_XPU_ATTR_MODEL},
        {"attribute 5, bytes of memory", "90 GiB or more", attribute,
         LOONG_XPU_ATTR_MEMORY},
        {"attribute 7, clusters", "12", attribute, LOONG_XPU_ATTR_CLUSTERS},
        {"the current device is set and told", "the last one", is_threads, 0},
        {"memory begins at multiples of", "64 or more", alignment, 0},
        {"more memory than there is", "705 or 706, of either sign",
         error_of_memory, 0},
        {"a device that is none", "701, of either sign", error_of_device, 0},
        {"sign of errors", "positive", sign_of_errors, 0},
        {"xpumlMemory_t", "total, free and used add up", free_memory, 0},
        {"blocking copies, inside the device too", "the same bytes", copies, 0},
        {"asynchronous copies of a stream", "in order", ordered_copies, 0},
        {"a stream waits for an event of another", "the same bytes", events,
         0},
        {"an event is recorded again, and ended while it is waited for",
         "the same bytes", events, 1},
        {"xpu_event_query", "not 0 before, 0 behind the work", event_ends, 0},
        {"xpu_event_wait, then a blocking copy", "the same bytes", waits, 0},
        {"streams of a device", "8", many_streams, 8},
        {"an asynchronous copy of 1 MiB", "succeeds", largest_copy, 1 << 20},
        {"copies by the shim", "the same bytes", shim_moves, 0},
        {"fills by the shim", "the same bytes", shim_moves, 1}};
    bool same = true;
    for (int i = 0; i < LOONG_COUNT_OF(claims); i++) {
        same = tell_claim(&claims[i], true) && same;
    }
    return same;
}
