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

/* For each of some launches the lengths of its segments, and of each operand
 * where they begin and end; those behind the last of cu_seqlens have no rows.
 * NULL: segments are checked alone. */
typedef struct loong_attention_begins {
    int64_t launches, segments; /* of each */
    int64_t lengths_pitch, begin_pitch; /* from one launch to the next */
    int32_t *lengths;
    int64_t *begin[LOONG_CUDNN_OPERANDS];
    int64_t ld[LOONG_CUDNN_OPERANDS];
} loong_attention_begins_t;

/* From operand cu, cu_seqlens; operand `keys` has their rows. */
LOONG_NODISCARD loong_status_t
loongi_attention_begins(const loong_kernel_call_t *call, int cu, int keys,
                        const loong_attention_begins_t *begins);

/* Segments of equal length: between operand lse [rows, heads] and `by_heads`
 * [segments, heads, pitch]. */
typedef struct loong_attention_lse {
    int operand;
    float *by_heads;
    int64_t length, pitch;
    bool back; /* from by_heads to the operand */
} loong_attention_lse_t;
LOONG_NODISCARD loong_status_t
loongi_attention_turn_lse(const loong_kernel_call_t *call,
                          const loong_attention_lse_t *lse);

#ifdef __cplusplus
}
#endif

#endif
