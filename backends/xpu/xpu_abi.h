/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library calls of Kunlun's user-space libraries, in declarations of
 * its own: no header of the vendor's is needed. Marks as in
 * docs/devices/xpu.md: A the vendor's header says so, B several independent
 * programs call it so, C one does, D it is a guess. Handles are pointers,
 * functions return 0 or an error of either sign. */
#ifndef LOONG_XPU_ABI_H
#define LOONG_XPU_ABI_H

#include <stddef.h>
#include <stdint.h>

/* X(name, parameters) of xpu_<name> in libxpurt. All A, but memcpy_async: B. */
#define LOONG_XPU_RUNTIME(X)                                                  \
    X(set_device, (int device))                                               \
    X(current_device, (int *device_p))                                        \
    X(device_count, (int *count_p))                                           \
    X(device_get_attr, (uint64_t *value_p, int attribute, int device))        \
    X(malloc, (void **ptr_p, uint64_t size, int kind))                        \
    X(free, (void *ptr))                                                      \
    X(host_alloc, (void **ptr_p, uint64_t size, unsigned flags))              \
    X(host_free, (void *ptr))                                                 \
    X(memcpy, (void *dst, const void *src, uint64_t size, int kind))          \
    X(memcpy_async, (void *dst, const void *src, uint64_t size, int kind,     \
                     void *stream))                                           \
    X(stream_create, (void **stream_p))                                       \
    X(stream_destroy, (void *stream))                                         \
    X(stream_wait_event, (void *stream, void *event))                         \
    X(event_create, (void **event_p))                                         \
    X(event_destroy, (void *event))                                           \
    X(event_record, (void *event, void *stream))                              \
    X(event_wait, (void *event))                                              \
    X(wait, (void *stream))                                                   \
    X(get_runtime_version, (uint32_t *major_p, uint32_t *minor_p))            \
    X(get_driver_version, (uint32_t *major_p, uint32_t *minor_p))

/* Not in every release (C). */
#define LOONG_XPU_RUNTIME_OPTIONAL(X) X(event_query, (void *event))

/* xpuml<name> in libxpuml (A, B); a missing one is no error. */
#define LOONG_XPU_ML(X)                                                       \
    X(Init, (void))                                                           \
    X(DeviceGetCount, (unsigned *count_p))                                    \
    X(DeviceGetHandleByIndex, (unsigned index, void **handle_p))              \
    X(DeviceGetMemoryInfo, (void *handle, void *memory))

/* The first words of what DeviceGetMemoryInfo fills, with room for those that
 * later releases append (A, B). */
typedef struct loong_xpu_memory {
    unsigned long long page_global, total_global, free_global, used_global;
    unsigned long long page_l3, total_l3, free_l3, used_l3;
    unsigned long long reserved[120];
} loong_xpu_memory_t;

/* cublas<name>_v2, or cublas<name>, in libxpu_blas (names and shapes B, that C
 * finds them D). By columns; alpha and beta on the host. */
#define LOONG_XPU_BLAS(X)                                                     \
    X(Create, (void **handle_p))                                              \
    X(Destroy, (void *handle))                                                \
    X(SetStream, (void *handle, void *stream))                                \
    X(Scopy, (void *handle, int n, const float *x, int incx, float *y,        \
              int incy))                                                      \
    X(GemmEx, (void *handle, int transa, int transb, int m, int n, int k,     \
               const void *alpha, const void *a, int atype, int lda,          \
               const void *b, int btype, int ldb, const void *beta, void *c,  \
               int ctype, int ldc, int compute, int algo))                    \
    X(GemmStridedBatchedEx,                                                   \
      (void *handle, int transa, int transb, int m, int n, int k,             \
       const void *alpha, const void *a, int atype, int lda, long long stepa, \
       const void *b, int btype, int ldb, long long stepb, const void *beta,  \
       void *c, int ctype, int ldc, long long stepc, int batch, int compute,  \
       int algo))

/* Values of cuBLAS that its users on these devices pass (B). */
enum {
    LOONG_XPU_BLAS_N = 0, /* CUBLAS_OP_N, _T */
    LOONG_XPU_BLAS_T = 1,
    LOONG_XPU_BLAS_F32 = 0, /* CUDA_R_32F, _16BF */
    LOONG_XPU_BLAS_BF16 = 14,
    LOONG_XPU_BLAS_COMPUTE_F32 = 68, /* CUBLAS_COMPUTE_32F */
    LOONG_XPU_BLAS_ALGO = -1         /* CUBLAS_GEMM_DEFAULT */
};

/* Attributes of xpu_device_get_attr (A). */
enum {
    LOONG_XPU_ATTR_PCI = 0, /* domain, bus, device, function */
    LOONG_XPU_ATTR_MODEL = 4,
    LOONG_XPU_ATTR_MEMORY = 5,
    LOONG_XPU_ATTR_CLUSTERS = 7
};

/* Models from 300 to 599 are of the third generation, the P800's (A). */
enum { LOONG_XPU_MODEL_XPU3 = 300, LOONG_XPU_MODEL_END = 600 };

/* The vendor's simulator counts its devices from here (A). */
enum { LOONG_XPU_SIMULATED = 64 };

/* Errors, without their sign (A). */
enum {
    LOONG_XPU_ERR_BASE = 700,
    LOONG_XPU_ERR_NOMEM = 705,
    LOONG_XPU_ERR_NOCPUMEM = 706,
    LOONG_XPU_ERR_BUSY = 716,
    LOONG_XPU_ERR_DEVICE = 800, /* and those behind it: of the hardware */
    LOONG_XPU_ERR_END = 818
};

#endif
