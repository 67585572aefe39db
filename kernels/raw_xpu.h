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
#include "loong/loss_ops.h"

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

/* X(op) of each, by the folders of their files. */
#define LOONG_RAW_KERNELS(X) \
    X(gelu) X(gelu_grad) X(swiglu) X(swiglu_grad) X(attention) \
    X(attention_grad) X(attention_merge) X(dequantize_blockwise) \
    X(softmax_cross_entropy) X(softmax_cross_entropy_grad) \
    X(softmax_stats) X(softmax_turn) X(accumulate) X(sum_rows) X(add) \
    X(multiply) X(scale) X(cast) X(dropout) X(copy) X(zero) X(concat) \
    X(slice_grad) X(select_rows) X(zigzag) X(repeat_heads) X(sum_heads) \
    X(latent_keys) X(latent_keys_grad) X(embedding) X(embedding_grad) \
    X(bias) X(expert_capacity) X(expert_counts) X(expert_excess) \
    X(expert_order) \
    X(expert_rounds) X(expert_window) X(expert_routes) X(topk_router) \
    X(topk_router_grad) X(router_loss) X(router_loss_grad) X(permute) \
    X(unpermute) X(unpermute_dw) X(sigmoid_gate) X(sigmoid_gate_grad) \
    X(layernorm) X(add_layernorm) X(layernorm_grad) X(mean_squares) \
    X(mean_squares_grad) X(rms_scale) X(rms_scale_grad) X(rmsnorm) \
    X(add_rmsnorm) X(rmsnorm_grad) X(adamw) X(lion) X(sgd) X(ema) \
    X(ema_swap) X(muon_momentum) X(muon_normalize) X(muon_polynomial) \
    X(muon_step) X(sign_step) X(sum) X(sumsq) X(rope) X(rope_table) \
    X(rope_angles) X(rope_table_grad) X(segment_sum) X(segment_repeat) \
    X(loss_scale) X(kl_estimate) X(kl_estimate_grad) X(magnitude) \
    X(tensor_stats)
#define LOONG_RAW_DECLARE(op_) extern const loong_raw_kernel_t loong_raw_##op_;
LOONG_RAW_KERNELS(LOONG_RAW_DECLARE)
#undef LOONG_RAW_DECLARE

/* What kernels/xpu/products_xpu.c asks for behind a product:
 * bias: z f32 [T,N], bias f32 [N] or none -> y [T,N] = act(z + bias), the value
 * before act or none; loong_linear_attr_t. */

/* What kernels/xpu/cross_entropy_xpu.c asks for between its products.
 * softmax_stats: logits f32 [R,V], labels i32 [R] -> loong_softmax_stats_t of
 * this rank's rows, among those of all ranks, f64 [ranks R,3].
 * softmax_turn: logits, labels, weight f32 [R] or none, those statistics or
 * none -> value f32 [R], lse f32 [R] or none (read where they are known),
 * gradients in place of the logits or none. */
typedef struct loong_raw_turn {
    loong_cross_entropy_attr_t loss;
    double sign;
    bool known;
} loong_raw_turn_t;

/* Sets bytes of the current device on a stream; 0, or the runtime's error. */
int loong_raw_fill(void *dst, int byte, size_t bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
