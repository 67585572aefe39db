// SPDX-License-Identifier: Apache-2.0
//
// Devices, attributes, copies, and what the simulator itself has: settings,
// findings, planted bugs.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "sim.h"

namespace xpusim {
namespace {

struct findings {
    std::mutex lock;
    std::string first;
    bool quiet = false;
    std::map<std::string, int64_t> calls;
    std::map<std::string, int64_t> plants;
};

findings &found()
{
    static findings *f = new findings;
    return *f;
}

double number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text != nullptr && text[0] != '\0' ? atof(text) : otherwise;
}

std::string text(const char *name)
{
    const char *value = getenv(name);
    return value != nullptr ? value : "";
}

settings read_settings()
{
    settings s;
    s.count = (int)number("SIM_XPU_COUNT", 2);
    s.model = (int)number("SIM_XPU_MODEL", 300);
    s.memory = (size_t)number("SIM_XPU_MEMORY", (double)(1 << 30));
    s.most_async = (size_t)number("SIM_XPU_MAX_ASYNC", 2 << 20);
    s.offset = (size_t)number("SIM_XPU_OFFSET", 0);
    s.seed = (uint64_t)number("SIM_XPU_SEED", 1);
    s.pace = number("SIM_XPU_PACE", 0.3);
    s.lag = (int)number("SIM_XPU_LAG", 0);
    s.slow = (int)number("SIM_XPU_SLOW", 0);
    s.streams = (int)number("SIM_XPU_STREAMS", 16);
    s.negative = number("SIM_XPU_NEG_ERR", 0) != 0;
    s.odd = number("SIM_XPU_ODD", 0) != 0;
    s.fail = text("SIM_XPU_FAIL");
    s.plant = text("SIM_XPU_PLANT");
    return s;
}

thread_local int chosen = 0;

/* A program that finds the libraries by itself is told when it loads them too
 * soon. */
__attribute__((constructor)) void begin()
{
    if (number("SIM_XPU_LAUNCH", 0) != 0 &&
        getenv("XPU_FORCE_USERMODE_LAUNCH") == nullptr) {
        fprintf(stderr, "simulated XPU: loaded before "
                        "XPU_FORCE_USERMODE_LAUNCH is set\n");
        _exit(97);
    }
}

/* The last words: a program that does not look is told as well. */
__attribute__((destructor)) void end_strictly()
{
    if (!found().first.empty() && number("SIM_XPU_STRICT", 0) != 0) {
        fflush(nullptr);
        _exit(97);
    }
}

} // namespace

settings &current()
{
    static settings *s = new settings(read_settings());
    return *s;
}

} // namespace xpusim

using namespace xpusim;

/* ---- the simulator's own ------------------------------------------------- */

void xpusim_found(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    std::lock_guard<std::mutex> hold(found().lock);
    if (found().first.empty()) {
        found().first = line;
    }
    if (!found().quiet) {
        fprintf(stderr, "simulated XPU: %s\n", line);
    }
}

int xpusim_error(int code)
{
    return current().negative ? -code : code;
}

int xpusim_enter(const char *call)
{
    char name[64];
    long long nth = 0;
    int code = 0;
    std::lock_guard<std::mutex> hold(found().lock);
    int64_t count = ++found().calls[call];
    if (!current().fail.empty() &&
        sscanf(current().fail.c_str(), "%63[^:]:%lld:%d", name, &nth, &code) ==
            3 &&
        (strcmp(name, call) == 0 || strcmp(name, "any") == 0)) {
        count = strcmp(name, "any") == 0 ? ++found().calls["any"] : count;
        return count == nth ? code : 0;
    }
    return 0;
}

/* "NAME" or "NAME:N": the N-th time alone. */
int xpusim_plant(const char *name)
{
    const std::string &plant = current().plant;
    size_t length = strlen(name);
    if (plant.compare(0, length, name) != 0 ||
        (plant.size() > length && plant[length] != ':')) {
        return 0;
    }
    std::lock_guard<std::mutex> hold(found().lock);
    int64_t turn = ++found().plants[name];
    bool now = plant.size() == length ||
               turn == atoll(plant.c_str() + length + 1);
    if (now && (turn == 1 || plant.size() > length)) {
        fprintf(stderr, "planted: %s\n", plant.c_str());
    }
    return now;
}

int xpusim_deviates(const char *name)
{
    if (getenv("SIM_XPU_DEVIATES") == nullptr) {
        return 0;
    }
    std::string list = "," + text("SIM_XPU_DEVIATES") + ",";
    return list.find(std::string(",") + name + ",") != std::string::npos;
}

xpusim_values_t xpusim_values(void)
{
    return current().odd ? xpusim_values_t{21, 22, 20, 13, 12}
                         : xpusim_values_t{0, 1, 2, 0, 1};
}

int xpusim_current(void)
{
    return chosen;
}

void xpusim_setup(void)
{
    current() = read_settings();
    std::lock_guard<std::mutex> hold(found().lock);
    found().calls.clear();
    found().plants.clear();
}

const char *xpusim_report(void)
{
    return found().first.c_str();
}

void xpusim_forget(void)
{
    std::lock_guard<std::mutex> hold(found().lock);
    found().first.clear();
}

void xpusim_quiet(int quiet)
{
    found().quiet = quiet != 0;
}

int64_t xpusim_alive(void)
{
    return memory_alive() + streams_alive() + events_alive();
}

int64_t xpusim_calls(const char *name)
{
    std::lock_guard<std::mutex> hold(found().lock);
    return found().calls[name];
}

/* ---- copies -------------------------------------------------------------- */

namespace {

struct transfer {
    void *dst;
    const void *src;
    size_t bytes;
    int kind;
};

void *bytes_of(const void *ptr)
{
    void *host = xpusim_host(ptr);
    return host != nullptr ? host : (void *)ptr;
}

/* Both sides are what the kind says, and on the device. */
int check(const char *who, const transfer &t, int device)
{
    xpusim_values_t v = xpusim_values();
    bool to = t.kind == v.host_to_device || t.kind == v.device_to_device;
    bool from = t.kind == v.device_to_host || t.kind == v.device_to_device;
    if (!to && !from) {
        xpusim_found("%s: kind %d of copy", who, t.kind);
        return xpusim_error(XPUSIM_INVALID);
    }
    const void *side[2] = {t.dst, t.src};
    bool there[2] = {to, from};
    for (int i = 0; i < 2; i++) {
        if (there[i]) {
            if (int error = xpusim_check(who, side[i], t.bytes, device)) {
                return error;
            }
        } else if (any_device(side[i])) {
            xpusim_found("%s: %p is memory of a device, kind %d takes the "
                         "host's there", who, side[i], t.kind);
            return xpusim_error(XPUSIM_INVALID);
        }
    }
    return 0;
}

int move(const char *who, const transfer &t, int device)
{
    if (int error = check(who, t, device)) {
        return error;
    }
    memmove(bytes_of(t.dst), bytes_of(t.src), t.bytes);
    return 0;
}

/* The other way about. */
int swapped(int kind)
{
    xpusim_values_t v = xpusim_values();
    return kind == v.host_to_device   ? v.device_to_host
           : kind == v.device_to_host ? v.host_to_device
                                      : kind;
}

/* What host code would pass that took another vendor's numbers. */
int kind_of_cuda(int kind)
{
    xpusim_values_t v = xpusim_values();
    return kind == v.host_to_device ? 1 : kind == v.device_to_host ? 2 : 3;
}

/* The call as host code with a mistake would make it. */
void plant_copy(transfer *t)
{
    t->kind = xpusim_plant("wrong_kind") ? swapped(t->kind) : t->kind;
    t->kind = xpusim_plant("kind_of_cuda") ? kind_of_cuda(t->kind) : t->kind;
    t->bytes -= t->bytes > 0 && xpusim_plant("short_copy");
    if (xpusim_plant("swapped_sides")) {
        void *dst = t->dst;
        t->dst = (void *)t->src;
        t->src = dst;
    }
}

void count_inside(int kind)
{
    if (kind == xpusim_values().device_to_device) {
        (void)xpusim_enter("memcpy_inside");
    }
}

} // namespace

extern "C" {

/* At once, whatever the streams are at. */
XPUSIM_API int xpu_memcpy(void *dst, const void *src, uint64_t n, int kind)
{
    if (int error = xpusim_enter("memcpy")) {
        return error;
    }
    transfer t = {dst, src, n, kind};
    plant_copy(&t);
    count_inside(kind);
    if (xpusim_plant("late_source")) { /* asynchronous, of ordinary memory */
        stream_ref s = find_stream(nullptr, "xpu_memcpy");
        put(s, [t] { return move("xpu_memcpy, later", t, -1); });
        return 0;
    }
    return move("xpu_memcpy", t, xpusim_current());
}

/* Ordinary memory is read when the copy's turn comes. */
XPUSIM_API int xpu_memcpy_async(void *dst, const void *src, uint64_t n,
                                int kind, void *on)
{
    if (int error = xpusim_enter("memcpy_async")) {
        return error;
    }
    on = xpusim_plant("copy_on_default") ? nullptr : on;
    count_inside(kind);
    stream_ref s = find_stream(on, "xpu_memcpy_async");
    if (s == nullptr) {
        return xpusim_error(XPUSIM_INVALID);
    }
    if (n > current().most_async) {
        xpusim_found("xpu_memcpy_async: %llu bytes in one copy",
                     (unsigned long long)n);
        return -999;
    }
    transfer t = {dst, src, n, kind};
    plant_copy(&t);
    if (xpusim_plant("copy_at_once")) { /* the blocking call, without a wait */
        return move("xpu_memcpy", t, s->device);
    }
    if (int error = check("xpu_memcpy_async", t, s->device)) {
        return error;
    }
    int device = s->device;
    put(s, [t, device] {
        usleep((useconds_t)current().slow);
        return move("xpu_memcpy_async, later", t, device);
    });
    return 0;
}

XPUSIM_API int xpu_memcpy_peer(int to, void *dst, int from, const void *src,
                               uint64_t n)
{
    if (int error = xpusim_enter("memcpy_peer")) {
        return error;
    }
    if (int error = xpusim_check("xpu_memcpy_peer", dst, n, to)) {
        return error;
    }
    if (int error = xpusim_check("xpu_memcpy_peer", src, n, from)) {
        return error;
    }
    memmove(bytes_of(dst), bytes_of(src), n);
    return 0;
}

/* ---- devices ------------------------------------------------------------- */

XPUSIM_API int xpu_set_device(int device)
{
    if (int error = xpusim_enter("set_device")) {
        return error;
    }
    if (device < 0 || device >= current().count) {
        return xpusim_error(XPUSIM_INVALID_DEVICE);
    }
    if (!xpusim_plant("no_set_device")) {
        chosen = device;
    }
    return 0;
}

XPUSIM_API int xpu_current_device(int *device)
{
    *device = chosen;
    return xpusim_enter("current_device");
}

XPUSIM_API int xpu_device_count(int *n)
{
    *n = current().count;
    return xpusim_enter("device_count");
}

/* As it is on the P800: the list stays what it was. */
XPUSIM_API int xpu_device_list(int *)
{
    return xpusim_enter("device_list");
}

/* As it is on the P800: of the current device. */
XPUSIM_API int xpu_device_get_attr(uint64_t *v, int attribute, int)
{
    const uint64_t values[] = {
        (uint64_t)(0x10000 + (0x1a + chosen) * 0x100), 0, 0, 0,
        (uint64_t)current().model, (uint64_t)96 << 30, (uint64_t)96 << 20,
        12, 12, 4, 8, 0, 0, 0};
    if (int error = xpusim_enter("device_get_attr")) {
        return error;
    }
    if (attribute < 0 || attribute >= (int)(sizeof(values) / sizeof(*values))) {
        return xpusim_error(XPUSIM_INVALID);
    }
    *v = values[attribute];
    return 0;
}

XPUSIM_API int xpu_get_runtime_version(uint32_t *major, uint32_t *minor)
{
    *major = 5;
    *minor = 0;
    return xpusim_enter("get_runtime_version");
}

XPUSIM_API int xpu_get_driver_version(uint32_t *major, uint32_t *minor)
{
    *major = 5;
    *minor = 0;
    return xpusim_enter("get_driver_version");
}
}
