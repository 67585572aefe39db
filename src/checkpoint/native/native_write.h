/* SPDX-License-Identifier: Apache-2.0
 *
 * Native checkpoints made by conversion, by one process, of any size. */
#ifndef LOONG_NATIVE_WRITE_H
#define LOONG_NATIVE_WRITE_H

#include "native.h"
#include "tensor_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_native_write_params {
    const char *dir; /* SAVE */
    int64_t step;
    const loong_pairs_t *metadata;
    const loong_file_set_t *files; /* to keep in hf/; or NULL */
    /* What it is made from. A write that was interrupted is gone on with when
     * the key is the same; files that are whole are not made again. */
    const char *key;
    int64_t file_bytes; /* so much is done again at most; 0: 2 GB */
    int64_t count;
    const loong_checkpoint_tensor_t *tensors;
    /* The index is the tensor's, a row that of its leading dimension. */
    loong_stream_source_fn source;
    void *user;
    loong_meter_t *meter;
} loong_native_write_params_t;

/* Errors: the source's, LOONG_ERR_IO. */
LOONG_NODISCARD loong_status_t
loongi_native_write(loong_context_t *ctx,
                    const loong_native_write_params_t *params);

int64_t loongi_tensor_bytes(const loong_checkpoint_tensor_t *tensor);

#ifdef __cplusplus
}
#endif

#endif
