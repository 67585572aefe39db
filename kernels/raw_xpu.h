/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw kernels for Kunlun XPUs (kernels/<op>/<op>.xpu), as their host sides
 * have them: part of the kernel shim (backends/xpu/xpu_shim.h), which takes
 * them for what the vendor's library has no kernel for. Formulas stand in the
 * references; arithmetic is fp32, storage fp32 or bf16. Clusters and cores
 * divide the work in the same way always: results do not depend on chance. */
#ifndef LOONG_RAW_XPU_H
#define LOONG_RAW_XPU_H

#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_raw_kernel {
    const char *op;
    bool (*support)(const loong_kernel_query_t *query,
                    char reason[LOONG_REASON_SIZE]);
    size_t (*workspace)(const loong_kernel_query_t *query); /* NULL: none */
    /* On call->stream, of the current device; operands, workspace, device_frame
     * and error are its memory. 0, or the runtime's error. */
    int (*launch)(const loong_kernel_call_t *call);
} loong_raw_kernel_t;

/* X(op) of each, in the order of their files. */
#define LOONG_RAW_KERNELS(X)      \
    X(swiglu)                     \
    X(swiglu_grad)                \
    X(softmax_cross_entropy)      \
    X(softmax_cross_entropy_grad) \
    X(permute)                    \
    X(unpermute)                  \
    X(rmsnorm)                    \
    X(add_rmsnorm)                \
    X(rmsnorm_grad)               \
    X(adamw)                      \
    X(rope)                       \
    X(embedding)                  \
    X(embedding_grad)             \
    X(sum)                        \
    X(sumsq)
#define LOONG_RAW_DECLARE(op_) extern const loong_raw_kernel_t loong_raw_##op_;
LOONG_RAW_KERNELS(LOONG_RAW_DECLARE)
#undef LOONG_RAW_DECLARE

/* Sets bytes of the current device on a stream; 0, or the runtime's error. */
int loong_raw_fill(void *dst, int byte, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
