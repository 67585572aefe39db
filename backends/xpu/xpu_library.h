/* SPDX-License-Identifier: Apache-2.0
 *
 * Kunlun's libraries, found and loaded when they are first asked for; nothing
 * is linked. They are never unloaded, so that loading them again only finds
 * them. LOONG_XPU_PATH, a list of directories with colons, stands for all other
 * places: nothing is taken from elsewhere then. */
#ifndef LOONG_XPU_LIBRARY_H
#define LOONG_XPU_LIBRARY_H

#include "base.h"
#include "xpu_abi.h"
#include "xpu_shim.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_XPU_REASON = 512, LOONG_XPU_MISSING = 1024 };

/* The values of the vendor's headers: the shim's, or those that are public. */
typedef struct loong_xpu_values {
    int device_to_host;
    int host_to_device;
    int device_to_device;
    int global_memory;
} loong_xpu_values_t;

#define LOONG_XPU_FIELD(name_, parameters_) int(*name_) parameters_;
typedef struct loong_xpu_library {
    void *runtime_handle;
    void *ml_handle; /* NULL: without it, as all below */
    void *blas_handle;
    void *shim_handle;
    struct {
        LOONG_XPU_RUNTIME(LOONG_XPU_FIELD)
        LOONG_XPU_RUNTIME_OPTIONAL(LOONG_XPU_FIELD)
    } rt;
    struct {
        LOONG_XPU_ML(LOONG_XPU_FIELD)
    } ml;
    struct {
        LOONG_XPU_BLAS(LOONG_XPU_FIELD)
    } blas;
    const loong_xpu_shim_t *shim;
    loong_xpu_values_t values;
    char missing[LOONG_XPU_MISSING]; /* what is not there, and what it costs */
} loong_xpu_library_t;
#undef LOONG_XPU_FIELD

/* Opens the first of `names` (ends with NULL) in the places where such
 * libraries are; NULL with the reason. */
void *loongi_xpu_open(const char *const *names, char *why, size_t size);

/* These places, with colons. */
void loongi_xpu_places(char *text, size_t size);

/* Tells in lib->missing of a library that was not opened, and what that costs;
 * of a file that is there, why it is of no use. */
void loongi_xpu_lacks(loong_xpu_library_t *lib, const char *name,
                      const char *why, const char *cost);

/* False with the reason: there is no runtime, or it lacks a needed symbol. */
bool loongi_xpu_load(loong_xpu_library_t *lib, char *why, size_t size);

/* The same, once for a context, which keeps it. Errors: LOONG_ERR_NOT_FOUND. */
LOONG_NODISCARD loong_status_t
loongi_xpu_library(loong_context_t *ctx, const loong_xpu_library_t **lib_p);

/* The shim alone; NULL with the reason. */
const loong_xpu_shim_t *loongi_xpu_shim(char *why, size_t size);

/* A thread's current device is its own affair: it is what it was before when a
 * call has returned. */
int loongi_xpu_select(const loong_xpu_library_t *lib, int index);
void loongi_xpu_restore(const loong_xpu_library_t *lib, int index, int before);

/* Errors of either sign. */
const char *loongi_xpu_text(int error);
bool loongi_xpu_is_memory(int error);

/* The file behind a handle. */
void loongi_xpu_file(void *handle, char *path, size_t size);

#ifdef __cplusplus
}
#endif

#endif
