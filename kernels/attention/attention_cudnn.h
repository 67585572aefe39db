/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the two sides of attention by cuDNN: attention_cudnn_cuda.c, the
 * host's, and attention_begins_cuda.cu, which tells the library on the device
 * where segments begin. */
#ifndef LOONG_ATTENTION_CUDNN_H
#define LOONG_ATTENTION_CUDNN_H

#include "attention.h"
#include "cudnn/cudnn_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* lengths [segments] and, of each operand, begin [segments + 1]; NULL: segments
 * are checked alone. */
typedef struct loong_attention_begins {
    int32_t *lengths;
    int64_t *begin[LOONG_CUDNN_OPERANDS];
    int64_t ld[LOONG_CUDNN_OPERANDS];
} loong_attention_begins_t;

/* From operand cu, cu_seqlens; operand `keys` has their rows. */
LOONG_NODISCARD loong_status_t
loongi_attention_begins(const loong_kernel_call_t *call, int cu, int keys,
                        const loong_attention_begins_t *begins);

#ifdef __cplusplus
}
#endif

#endif
