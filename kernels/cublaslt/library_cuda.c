/* SPDX-License-Identifier: Apache-2.0
 *
 * The library cuBLASLt: loaded by the first product of a context, never
 * unloaded, since the driver and graphs know its kernels; one handle for each
 * device of the context. Called by cublaslt_cuda.c. Read cublaslt_impl.h
 * before. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "cublaslt_impl.h"
#include "object.h"
#include "slots.h"

static loong_status_t load(loong_context_t *ctx, loong_cublaslt_library_t *lib)
{
    static const char *const places[] = {LOONG_CUBLASLT_LIBRARY,
                                         "libcublasLt.so.13"};
    char why[LOONG_OBJECT_REASON] = "";
    void *library = NULL;
    for (int i = 0; i < LOONG_COUNT_OF(places) && library == NULL; i++) {
        library = loongi_object_open(
            places[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE, why, sizeof(why));
    }
    LOONG_CHECK(ctx, library != NULL, LOONG_ERR_UNSUPPORTED,
                "matrix products need cuBLASLt: %s", why);
#define LOAD(name_)                                                           \
    *(void **)(void *)&lib->name_ = dlsym(library, "cublasLt" #name_);        \
    LOONG_CHECK(ctx, lib->name_ != NULL, LOONG_ERR_UNSUPPORTED,               \
                "%s has no cublasLt" #name_, places[1]);
    LOONG_CUBLASLT_FUNCTIONS(LOAD)
#undef LOAD
    return LOONG_OK;
}

static void destroy(loong_context_t *ctx, void *data)
{
    loong_cublaslt_library_t *lib = data;
    (void)ctx;
    for (int i = 0; i < LOONG_CUBLASLT_DEVICES; i++) {
        if (lib->handle[i] != NULL) {
            cudaSetDevice(i);
            lib->Destroy(lib->handle[i]);
        }
    }
    free(lib);
}

/* It is a part of the context, and so none of the memory that the context
 * counts. */
static loong_status_t library_of(loong_context_t *ctx,
                                 loong_cublaslt_library_t **library_p)
{
    loong_slot_t *slot = loongi_context_slot(ctx, "cuBLASLt");
    loong_cublaslt_library_t *lib = slot->data;
    if (lib == NULL) {
        lib = calloc(1, sizeof(*lib));
        LOONG_CHECK(ctx, lib != NULL, LOONG_ERR_MEMORY,
                    "cannot allocate %zu bytes for cuBLASLt", sizeof(*lib));
        loong_status_t status = load(ctx, lib);
        if (status != LOONG_OK) {
            free(lib);
            return status;
        }
        slot->data = lib;
        slot->destroy = destroy;
    }
    *library_p = lib;
    return LOONG_OK;
}

loong_status_t loongi_cublaslt_open(loong_context_t *ctx,
                                    const loong_cublaslt_library_t **library_p,
                                    cublasLtHandle_t *handle_p)
{
    loong_cublaslt_library_t *lib = NULL;
    int device = 0;
    LOONG_TRY(library_of(ctx, &lib));
    cudaError_t error = cudaGetDevice(&device);
    LOONG_CHECK(ctx, error == cudaSuccess, LOONG_ERR_DEVICE,
                "cuBLASLt: which device it is: %s", cudaGetErrorString(error));
    LOONG_CHECK(ctx, device < LOONG_CUBLASLT_DEVICES, LOONG_ERR_UNSUPPORTED,
                "cuBLASLt: device %d, at most %d of a process are used",
                device, (int)LOONG_CUBLASLT_DEVICES);
    if (lib->handle[device] == NULL) {
        LOONG_LT_TRY(ctx, lib, Create(&lib->handle[device]));
    }
    *library_p = lib;
    *handle_p = lib->handle[device];
    return LOONG_OK;
}

loong_status_t loongi_cublaslt_failed(loong_context_t *ctx,
                                      const loong_cublaslt_library_t *library,
                                      const char *call, cublasStatus_t status)
{
    size_t available = 0;
    size_t total = 0;
    /* which fails where the device is lost */
    cudaError_t error = cudaMemGetInfo(&available, &total);
    return LOONG_FAIL(ctx, LOONG_ERR_DEVICE, "cuBLASLt: cublasLt%s: %s%s%s",
                      call, library->GetStatusString(status),
                      error != cudaSuccess ? "; the device: " : "",
                      error != cudaSuccess ? cudaGetErrorString(error) : "");
}
