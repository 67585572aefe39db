/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds Kunlun's libraries, and in them what xpu_abi.h lists. Called by
 * xpu_device.c and by the kernels. Read xpu_library.h before. */
#define _GNU_SOURCE /* dlinfo */
#include "xpu_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "slots.h"

/* ---- files --------------------------------------------------------------- */

enum { PATH = 1024 };

/* In order; the first are below XPU_HOME. The last one is the loader's own
 * search (C, D). */
enum { HOMES = 3 };
static const char *const places[] = {"/so/",
                                     "/lib64/",
                                     "/lib/",
                                     "/usr/local/xpu/so/",
                                     "/usr/local/xccl/so/",
                                     "/opt/xre/so/",
                                     "/opt/xccl/so/",
                                     ""};

/* The directory of this number, into `dir`; false behind the last one. */
static bool find_place(int number, char *dir, size_t size)
{
    const char *path = getenv("LOONG_XPU_PATH");
    const char *home = getenv("XPU_HOME");
    if (path != NULL && path[0] != '\0') {
        for (; number > 0 && path != NULL; number--) {
            path = strchr(path, ':');
            path = path != NULL ? path + 1 : NULL;
        }
        snprintf(dir, size, "%.*s", path != NULL ? (int)strcspn(path, ":") : 0,
                 path != NULL ? path : "");
        return path != NULL && path[0] != '\0';
    }
    number += home == NULL ? HOMES : 0;
    if (number >= LOONG_COUNT_OF(places)) {
        return false;
    }
    bool named = number < HOMES;
    snprintf(dir, size, "%s%s", named ? home : "", places[number]);
    return true;
}

static void *open_file(const char *dir, const char *name, char *why,
                       size_t size)
{
    char path[PATH];
    snprintf(path, sizeof(path), "%s%s%s", dir,
             dir[0] != '\0' && dir[strlen(dir) - 1] != '/' ? "/" : "", name);
    /* Read by the driver when it is loaded; what the user set stays. */
    setenv("XPU_FORCE_USERMODE_LAUNCH", "1", 0);
    return loongi_object_open(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, why,
                              size);
}

static void *open_anywhere(const char *name, int depth);

/* A library needs others, which may be in any of the places: the loader, which
 * names one that it does not find, takes it when it is loaded already. */
static void *open_in(const char *dir, const char *name, char *why, size_t size,
                     int depth)
{
    enum { DEEP = 4, MANY = 16 };
    void *handle = open_file(dir, name, why, size);
    for (int i = 0; i < MANY && depth < DEEP && handle == NULL; i++) {
        char other[LOONG_XPU_REASON];
        snprintf(other, sizeof(other), "%.*s", (int)strcspn(why, ":"), why);
        if (strchr(other, '/') != NULL || strcmp(other, name) == 0 ||
            open_anywhere(other, depth + 1) == NULL) {
            break;
        }
        handle = open_file(dir, name, why, size);
    }
    return handle;
}

static void *open_anywhere(const char *name, int depth)
{
    char dir[PATH];
    char why[LOONG_XPU_REASON];
    void *handle = NULL;
    for (int i = 0; handle == NULL && find_place(i, dir, sizeof(dir)); i++) {
        handle = open_in(dir, name, why, sizeof(why), depth);
    }
    return handle;
}

void *loongi_xpu_open(const char *const *names, char *why, size_t size)
{
    char dir[PATH];
    void *handle = NULL;
    why[0] = '\0';
    for (int i = 0; handle == NULL && find_place(i, dir, sizeof(dir)); i++) {
        for (int n = 0; names[n] != NULL && handle == NULL; n++) {
            char first[LOONG_XPU_REASON] = "";
            handle = open_in(dir, names[n], first, sizeof(first), 0);
            /* A file that cannot be loaded says more than one that is not
             * there. */
            if (handle == NULL &&
                (why[0] == '\0' || strstr(why, "No such file") != NULL)) {
                snprintf(why, size, "%s", first);
            }
        }
    }
    return handle;
}

void loongi_xpu_places(char *text, size_t size)
{
    char dir[PATH];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; used < size && find_place(i, dir, sizeof(dir)); i++) {
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? ":" : "",
                             dir[0] != '\0' ? dir : "where the loader looks");
    }
}

void loongi_xpu_file(void *handle, char *path, size_t size)
{
    struct link_map *map = NULL;
    if (handle == NULL || dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        map = NULL;
    }
    snprintf(path, size, "%s", map != NULL ? map->l_name : "");
}

/* ---- symbols ------------------------------------------------------------- */

static void *find(void *handle, const char *prefix, const char *name,
                  const char *suffix)
{
    char symbol[128];
    snprintf(symbol, sizeof(symbol), "%s%s%s", prefix, name, suffix);
    return handle != NULL ? dlsym(handle, symbol) : NULL;
}

static void lacks(loong_xpu_library_t *lib, const char *prefix,
                  const char *what, const char *cost)
{
    size_t used = strlen(lib->missing);
    snprintf(lib->missing + used, sizeof(lib->missing) - used, "%s%s%s%s",
             used > 0 ? "; " : "", prefix, what, cost);
}

void loongi_xpu_lacks(loong_xpu_library_t *lib, const char *name,
                      const char *why, const char *cost)
{
    bool absent = why[0] == '\0' || strstr(why, "No such file") != NULL;
    lacks(lib, "", absent ? name : why, cost);
}

static void *open_runtime(char *why, size_t size)
{
    static const char *const names[] = {"libxpurt.so.2", "libxpurt.so", NULL};
    return loongi_xpu_open(names, why, size);
}

static bool load_runtime(loong_xpu_library_t *lib, char *why, size_t size)
{
    lib->runtime_handle = open_runtime(why, size);
    if (lib->runtime_handle == NULL) {
        return false;
    }
#define LOAD(name_, parameters_)                            \
    *(void **)(void *)&lib->rt.name_ =                      \
        find(lib->runtime_handle, "xpu_", #name_, "");      \
    if (lib->rt.name_ == NULL) {                            \
        snprintf(why, size, "libxpurt has no xpu_" #name_); \
        return false;                                       \
    }
    LOONG_XPU_RUNTIME(LOAD)
#undef LOAD
#define LOAD(name_, parameters_)                                   \
    *(void **)(void *)&lib->rt.name_ =                             \
        find(lib->runtime_handle, "xpu_", #name_, "");             \
    if (lib->rt.name_ == NULL) {                                   \
        lacks(lib, "xpu_", #name_, " (the host waits unwatched)"); \
    }
    LOONG_XPU_RUNTIME_OPTIONAL(LOAD)
#undef LOAD
    return true;
}

static void load_ml(loong_xpu_library_t *lib)
{
    static const char *const names[] = {"libxpuml.so.1", "libxpuml.so", NULL};
    static const char cost[] = " (free memory is counted here)";
    char why[LOONG_XPU_REASON];
    lib->ml_handle = loongi_xpu_open(names, why, sizeof(why));
    if (lib->ml_handle == NULL) {
        loongi_xpu_lacks(lib, names[0], why, cost);
        return;
    }
    bool all = true;
#define LOAD(name_, parameters_)                                              \
    void *name_ = find(lib->ml_handle, "xpuml", #name_, "");                  \
    name_ =                                                                   \
        name_ != NULL ? name_ : find(lib->ml_handle, "xpuml", #name_, "_v2"); \
    *(void **)(void *)&lib->ml.name_ = name_;                                 \
    if (name_ == NULL) {                                                      \
        lacks(lib, "xpuml", #name_, cost);                                    \
        all = false;                                                          \
    }
    LOONG_XPU_ML(LOAD)
#undef LOAD
    lib->ml_handle = all ? lib->ml_handle : NULL;
}

static void load_blas(loong_xpu_library_t *lib)
{
    static const char *const names[] = {"libxpu_blas.so", NULL};
    static const char cost[] = " (products by the shim)";
    char why[LOONG_XPU_REASON];
    lib->blas_handle = loongi_xpu_open(names, why, sizeof(why));
    if (lib->blas_handle == NULL) {
        loongi_xpu_lacks(lib, names[0], why, cost);
        return;
    }
    bool all = true;
#define LOAD(name_, parameters_)                                              \
    void *name_ = find(lib->blas_handle, "cublas", #name_, "_v2");            \
    name_ =                                                                   \
        name_ != NULL ? name_ : find(lib->blas_handle, "cublas", #name_, ""); \
    *(void **)(void *)&lib->blas.name_ = name_;                               \
    if (name_ == NULL) {                                                      \
        lacks(lib, "cublas", #name_, cost);                                   \
        all = false;                                                          \
    }
    LOONG_XPU_BLAS(LOAD)
#undef LOAD
    lib->blas_handle = all ? lib->blas_handle : NULL;
}

/* ---- the shim ------------------------------------------------------------ */

static const loong_xpu_shim_t *open_shim(void **handle_p, char *why,
                                         size_t size)
{
    static const char *const names[] = {LOONG_XPU_SHIM_LIBRARY, NULL};
    /* The runtime that is used here is the shim's as well: it comes first. */
    void *handle = open_runtime(why, size) != NULL
                       ? loongi_xpu_open(names, why, size)
                       : NULL;
    void *symbol = find(handle, LOONG_XPU_SHIM_SYMBOL, "", "");
    loong_xpu_shim_fn get = NULL;
    if (handle == NULL) {
        return NULL;
    }
    if (symbol == NULL) {
        snprintf(why, size, "%s has no %s", LOONG_XPU_SHIM_LIBRARY,
                 LOONG_XPU_SHIM_SYMBOL);
        return NULL;
    }
    memcpy(&get, &symbol, sizeof(get));
    const loong_xpu_shim_t *shim = get();
    if (shim->abi != LOONG_XPU_SHIM_ABI ||
        shim->query_size != sizeof(loong_kernel_query_t) ||
        shim->call_size != sizeof(loong_kernel_call_t) ||
        shim->frame_size != sizeof(loong_frame_t)) {
        snprintf(why, size,
                 "%s was compiled for another libloong (table %u, this one "
                 "wants %d; sizes %u, %u, %u, wanted %zu, %zu, %zu): compile "
                 "it anew",
                 LOONG_XPU_SHIM_LIBRARY, shim->abi, (int)LOONG_XPU_SHIM_ABI,
                 shim->query_size, shim->call_size, shim->frame_size,
                 sizeof(loong_kernel_query_t), sizeof(loong_kernel_call_t),
                 sizeof(loong_frame_t));
        return NULL;
    }
    *handle_p = handle;
    return shim;
}

const loong_xpu_shim_t *loongi_xpu_shim(char *why, size_t size)
{
    void *handle = NULL;
    return open_shim(&handle, why, size);
}

/* What the public header has (A), unless the shim saw another one. */
static void find_values(loong_xpu_library_t *lib)
{
    const loong_xpu_values_t known = {0, 1, 2, 0};
    lib->values = known;
    struct {
        const char *name;
        int *value;
    } const list[] = {{"XPU_DEVICE_TO_HOST", &lib->values.device_to_host},
                      {"XPU_HOST_TO_DEVICE", &lib->values.host_to_device},
                      {"XPU_DEVICE_TO_DEVICE", &lib->values.device_to_device},
                      {"XPU_MEM_MAIN", &lib->values.global_memory}};
    for (int i = 0; i < LOONG_COUNT_OF(list) && lib->shim != NULL; i++) {
        int64_t value = 0;
        if (lib->shim->enumerator(list[i].name, &value) == 0) {
            *list[i].value = (int)value;
        }
    }
}

bool loongi_xpu_load(loong_xpu_library_t *lib, char *why, size_t size)
{
    memset(lib, 0, sizeof(*lib));
    if (!load_runtime(lib, why, size)) {
        return false;
    }
    load_ml(lib);
    load_blas(lib);
    char reason[LOONG_XPU_REASON] = "";
    lib->shim = open_shim(&lib->shim_handle, reason, sizeof(reason));
    if (lib->shim == NULL) {
        lacks(lib, "no kernels: ", reason, "");
    }
    find_values(lib);
    return true;
}

static void destroy(loong_context_t *ctx, void *data)
{
    (void)ctx;
    free(data);
}

/* It is a part of the context, and so none of the memory that the context
 * counts. */
loong_status_t loongi_xpu_library(loong_context_t *ctx,
                                  const loong_xpu_library_t **lib_p)
{
    loong_slot_t *slot = loongi_context_slot(ctx, "XPU libraries");
    char why[LOONG_XPU_REASON] = "";
    if (slot->data == NULL) {
        loong_xpu_library_t *lib = malloc(sizeof(*lib));
        LOONG_CHECK(ctx, lib != NULL, LOONG_ERR_MEMORY,
                    "cannot allocate %zu bytes for XPU libraries",
                    sizeof(*lib));
        if (!loongi_xpu_load(lib, why, sizeof(why))) {
            free(lib);
            return LOONG_FAIL(ctx, LOONG_ERR_NOT_FOUND, "xpu: %s", why);
        }
        slot->data = lib;
        slot->destroy = destroy;
    }
    *lib_p = slot->data;
    return LOONG_OK;
}

/* ---- calls --------------------------------------------------------------- */

/* From 701 on, and from 800 on (A). */
static const char *const texts[] = {"invalid device",
                                    "runtime is not initialised",
                                    "no device",
                                    "versions of driver and runtime differ",
                                    "out of device memory",
                                    "out of host memory",
                                    "invalid parameter",
                                    "no such kernel",
                                    "a library cannot be loaded",
                                    "a library lacks a symbol",
                                    "of the vendor's simulator",
                                    "not supported",
                                    "abnormal end",
                                    "a kernel failed",
                                    "timeout",
                                    "busy",
                                    "used after its end",
                                    "uncorrectable memory error",
                                    "overheated"};
static const char *const device_texts[] = {"unexpected",
                                           "the device was reset",
                                           "exception of the hardware",
                                           "its memory cannot be initialised",
                                           "it cannot be initialised",
                                           "a peer was reset",
                                           "more devices than it knows",
                                           "no IOC",
                                           "timeout of DMA",
                                           "DMA was given up",
                                           "its MCU is not initialised",
                                           "its firmware is too old",
                                           "of PCIe",
                                           "fault",
                                           "interrupted",
                                           "timeout of AES",
                                           "host memory is registered already",
                                           "of the tracer"};

const char *loongi_xpu_text(int error)
{
    int code = abs(error) - LOONG_XPU_ERR_BASE - 1;
    int later = abs(error) - LOONG_XPU_ERR_DEVICE;
    if (code >= 0 && code < (int)LOONG_COUNT_OF(texts)) {
        return texts[code];
    }
    if (later >= 0 && later < (int)LOONG_COUNT_OF(device_texts)) {
        return device_texts[later];
    }
    if (code < 0 && error != 0) {
        return strerror(abs(error));
    }
    return "not known";
}

bool loongi_xpu_is_memory(int error)
{
    return abs(error) == LOONG_XPU_ERR_NOMEM ||
           abs(error) == LOONG_XPU_ERR_NOCPUMEM;
}

int loongi_xpu_select(const loong_xpu_library_t *lib, int index)
{
    int before = -1;
    if (lib->rt.current_device(&before) != 0) {
        before = -1;
    }
    before =
        before >= LOONG_XPU_SIMULATED ? before - LOONG_XPU_SIMULATED : before;
    if (before != index) {
        (void)lib->rt.set_device(index); /* the call itself will say */
    }
    return before;
}

void loongi_xpu_restore(const loong_xpu_library_t *lib, int index, int before)
{
    if (before >= 0 && before != index) {
        (void)lib->rt.set_device(before);
    }
}
