/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel shim: a small shared object, libloong_xpukern.so, that is compiled
 * on the owner's machine against the vendor's headers, whose kernels are C++
 * templates without a stable binary form. It exports one function,
 * loong_xpu_shim, whose answer is this table; the library knows nothing else of
 * it. backends/xpu/shim has its source.
 *
 * All functions but `support`, `workspace`, `enumerator` and `describe` are
 * called with the device of the stream current. They return 0, or what the
 * vendor's call returned, and then `last_error` says more. */
#ifndef LOONG_XPU_SHIM_H
#define LOONG_XPU_SHIM_H

#include "loong/device_types.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LOONG_XPU_SHIM_LIBRARY "libloong_xpukern.so"
#define LOONG_XPU_SHIM_SYMBOL "loong_xpu_shim"

/* Of this table; the structs of kernel.h that it uses are told apart by their
 * sizes. */
enum { LOONG_XPU_SHIM_ABI = 1 };

/* A kind of loong_device_error_t beside those of kernel.h: `op`, which stays
 * where it is for good, is all there is to say. */
enum { LOONG_XPU_ERROR_TEXT = 1000 };

/* One launch, on call->stream; operands and workspace are device memory, and so
 * are call->device_frame and call->error. `state` is what prepare made. */
typedef struct loong_xpu_shim {
    uint32_t abi;
    uint32_t query_size; /* sizeof(loong_kernel_query_t) */
    uint32_t call_size;  /* sizeof(loong_kernel_call_t) */
    uint32_t frame_size; /* sizeof(loong_frame_t) */
    uint32_t align; /* bytes that operands must begin at multiples of, >= 1 */
    /* One line: what it was compiled against. */
    const char *(*describe)(void);
    /* Of the thread; "": nothing. */
    const char *(*last_error)(void);
    /* The value that a name of the vendor's headers has there, an enumerator
     * (XPU_HOST_TO_DEVICE) or the size of a type (sizeof BKCLUniqueId); other
     * than 0: it does not know the name. */
    int (*enumerator)(const char *name, int64_t *value_p);
    /* Inside a device. NULL: the library does without, more slowly. */
    int (*copy)(const loong_device_rows_t *rows, void *stream);
    int (*fill)(void *dst, int byte, size_t bytes, void *stream);
    /* The stream is about to be destroyed: nothing is kept for it. */
    void (*forget)(void *stream);
    /* Whether there is a kernel for the op at all, by its name. */
    int (*has)(const char *op);
    /* 1, or 0 with the reason. */
    int (*support)(const loong_kernel_query_t *query,
                   char reason[LOONG_REASON_SIZE]);
    size_t (*workspace)(const loong_kernel_query_t *query);
    int (*prepare)(const loong_kernel_query_t *query, void **state_p);
    void (*destroy)(void *state);
    int (*launch)(const loong_kernel_call_t *call);
} loong_xpu_shim_t;

typedef const loong_xpu_shim_t *(*loong_xpu_shim_fn)(void);

#ifdef __cplusplus
}
#endif

#endif
