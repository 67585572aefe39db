/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of this folder: one device. */
#ifndef LOONG_XPU_IMPL_H
#define LOONG_XPU_IMPL_H

#include <pthread.h>

#include "base.h"
#include "loong/device.h"
#include "xpu_library.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LOONG_XPU_ALIGN = 256 };

/* Memory that the runtime gave: a device's, which is kept when it is freed, or
 * pinned memory of the host. */
typedef struct xpu_block {
    char *raw; /* what the runtime gave */
    char *base;
    size_t size; /* from base */
    bool used;
} xpu_block_t;

/* Sorted by base. */
typedef struct xpu_blocks {
    xpu_block_t *list;
    int count;
    int room;
    size_t bytes;
    size_t used;
    size_t most; /* of used */
} xpu_blocks_t;

typedef struct xpu_data {
    loong_context_t *ctx;
    const loong_xpu_library_t *lib; /* the context's */
    int index;
    int model;
    int clusters;
    size_t memory;
    uint64_t pci;
    uint32_t version[4]; /* of the runtime, then of the driver */
    size_t chunk;        /* bytes of one asynchronous copy */
    void *compute;
    void *blas;                  /* NULL: none; its stream is set under lock */
    loong_device_error_t *error; /* in the device's memory: kernels write it */
    loong_device_error_t *told;  /* pinned: a copy of it */
    char *pattern;               /* pinned, of `chunk` bytes, for fills */
    pthread_mutex_t lock;        /* of what follows, and of `blas` */
    int pattern_byte;
    xpu_blocks_t blocks;
    xpu_blocks_t pinned;
    void **streams; /* all that were made here, and are alive */
    int num_streams;
    int room_streams;
} xpu_data_t;

loong_status_t loongi_xpu_failed(const xpu_data_t *d, const char *call,
                                 int error);
/* Of the shim, which says more. */
loong_status_t loongi_xpu_shim_failed(const xpu_data_t *d, const char *call,
                                      int error);

/* A call, with the device of `data` current. */
#define XPU_CALL(data_, error_, call_)                                 \
    do {                                                               \
        int before_ = loongi_xpu_select((data_)->lib, (data_)->index); \
        (error_) = (call_);                                            \
        loongi_xpu_restore((data_)->lib, (data_)->index, before_);     \
    } while (0)

/* What is given back: nobody can help it where that fails. */
#define XPU_DROP(data_, call_)          \
    do {                                \
        int error_ = 0;                 \
        XPU_CALL(data_, error_, call_); \
        (void)error_;                   \
    } while (0)

/* xpu_<name> of the runtime, with the device of `data` current. */
#define XPU_TRY(data_, name_, args_)                                \
    do {                                                            \
        int error_ = 0;                                             \
        XPU_CALL(data_, error_, (data_)->lib->rt.name_ args_);      \
        if (error_ != 0) {                                          \
            return loongi_xpu_failed(data_, "xpu_" #name_, error_); \
        }                                                           \
    } while (0)

/* Waits for the default stream and for all that were made here: there is no
 * call that waits for the device. */
loong_status_t loongi_xpu_wait_all(xpu_data_t *d);

/* xpu_memory.c: slots of the table. */
loong_status_t loongi_xpu_alloc(loong_context_t *ctx, void *data, size_t bytes,
                                const char *what, void **ptr_p);
void loongi_xpu_free(loong_context_t *ctx, void *data, void *ptr, size_t bytes);
loong_status_t loongi_xpu_host_alloc(loong_context_t *ctx, void *data,
                                     size_t bytes, const char *what,
                                     void **ptr_p);
void loongi_xpu_host_free(loong_context_t *ctx, void *data, void *ptr);
loong_status_t loongi_xpu_available(void *data, size_t *bytes_p);
loong_status_t loongi_xpu_usage(void *data, loong_device_usage_t *usage);
loong_status_t loongi_xpu_trim(void *data);
/* Gives all memory back, whoever has it. */
void loongi_xpu_memory_end(xpu_data_t *d);

/* Whose memory an address is of. */
typedef enum xpu_side { XPU_HOST, XPU_PINNED, XPU_DEVICE } xpu_side_t;
/* Errors: LOONG_ERR_ARG where the range goes beyond what was allocated. */
loong_status_t loongi_xpu_side(xpu_data_t *d, const void *ptr, size_t bytes,
                               xpu_side_t *side_p);

/* xpu_copy.c: likewise. */
loong_status_t loongi_xpu_copy(void *data, void *stream, void *dst,
                               const void *src, size_t bytes);
loong_status_t loongi_xpu_copy_rows(void *data, void *stream,
                                    const loong_device_rows_t *rows);
loong_status_t loongi_xpu_fill(void *data, void *stream, void *dst, int byte,
                               size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
