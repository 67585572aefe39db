/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by cuDNN: the one interface of kernels/cudnn. The library is loaded
 * when the first kernel asks for it, so that neither the start of a program nor
 * a machine without it pays for it. */
#ifndef LOONG_CUDNN_ATTENTION_H
#define LOONG_CUDNN_ATTENTION_H

#include "base.h"

/* From this version on deterministic gradients are there on all GPUs, and the
 * known wrong results of earlier ones are mended. */
enum { LOONG_CUDNN_OLDEST = 91800 };

typedef struct loong_cudnn loong_cudnn_t;
typedef struct loong_cudnn_attention loong_cudnn_attention_t;

/* Loads the library. `description` NULL: for the current device; else for the
 * device that this JSON text describes, whose plans can be made but not run.
 * Errors: LOONG_ERR_UNSUPPORTED, the library is absent, too old, or finds no
 * device. */
LOONG_NODISCARD loong_status_t loongi_cudnn_open(loong_context_t *ctx,
                                                 const char *description,
                                                 loong_cudnn_t **cudnn_p);
void loongi_cudnn_close(loong_context_t *ctx, loong_cudnn_t *cudnn);
size_t loongi_cudnn_version(const loong_cudnn_t *cudnn);

/* Operands: those of the forward, then those of the gradient alone. */
typedef enum loong_cudnn_operand {
    LOONG_CUDNN_Q,
    LOONG_CUDNN_K,
    LOONG_CUDNN_V,
    LOONG_CUDNN_O,
    LOONG_CUDNN_LSE,
    LOONG_CUDNN_GRAD_O,
    LOONG_CUDNN_DQ,
    LOONG_CUDNN_DK,
    LOONG_CUDNN_DV,
    LOONG_CUDNN_OPERANDS
} loong_cudnn_operand_t;

/* Of one launch. q, o and their gradients [rows, heads * d], k and v likewise
 * with kv_heads, all bf16; rows may be parts of longer ones: heads of a slice.
 * lse fp32: with `dense` [segments, heads, loongi_cudnn_attention_lse_length],
 * else [rows, heads]. */
typedef struct loong_cudnn_attention_params {
    bool gradient;
    bool dense; /* all segments have `length` rows; else the lengths and
                   beginnings of segments are operands */
    bool causal;
    int64_t window; /* 0: none */
    int64_t segments;
    int64_t length; /* of the longest */
    int64_t rows;   /* of all segments, at most */
    int heads, kv_heads;
    int head_dim, v_head_dim;
    double scale;
    int64_t ld[LOONG_CUDNN_OPERANDS];
} loong_cudnn_attention_params_t;

/* Whether one plan is good for both. */
bool loongi_cudnn_attention_is_alike(const loong_cudnn_attention_params_t *a,
                                     const loong_cudnn_attention_params_t *b);

/* The length, with what aligns the next head. */
int64_t
loongi_cudnn_attention_lse_length(const loong_cudnn_attention_params_t *params);

/* Bytes of workspace that a plan may take, known without the library. That of
 * the gradient grows with the square of length: engines that add up dq in a
 * fixed order keep the gradients of all scores, as many bytes as the second
 * function says. */
int64_t
loongi_cudnn_attention_room(const loong_cudnn_attention_params_t *params);
int64_t
loongi_cudnn_attention_scores(const loong_cudnn_attention_params_t *params);

typedef struct loong_cudnn_attention_operands {
    void *ptr[LOONG_CUDNN_OPERANDS];
    /* Without `dense`: lengths i32 [segments]; and i64 [segments + 1] of each
     * operand, the element where its rows of a segment begin. */
    int32_t *lengths;
    int64_t *begin[LOONG_CUDNN_OPERANDS];
    char *workspace;
    void *stream;
} loong_cudnn_attention_operands_t;

/* Errors: LOONG_ERR_UNSUPPORTED with the library's own reason. */
LOONG_NODISCARD loong_status_t loongi_cudnn_attention_create(
    loong_context_t *ctx, loong_cudnn_t *cudnn,
    const loong_cudnn_attention_params_t *params,
    loong_cudnn_attention_t **attention_p);
void loongi_cudnn_attention_destroy(loong_context_t *ctx,
                                    loong_cudnn_attention_t *attention);
/* What it takes of that. */
int64_t
loongi_cudnn_attention_bytes(const loong_cudnn_attention_t *attention);
LOONG_NODISCARD loong_status_t loongi_cudnn_attention_run(
    loong_context_t *ctx, loong_cudnn_attention_t *attention,
    const loong_cudnn_attention_operands_t *operands);

#endif
