/* SPDX-License-Identifier: Apache-2.0
 *
 * Every built-in kernel. list.c orders those of CPUs: best first, reference
 * last; list_cuda.c those of CUDA. */
#ifndef LOONG_KERNEL_LIST_H
#define LOONG_KERNEL_LIST_H

#include "isa.h"
#include "loong/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol): the fast kernels, by op, best first. LOONG_ISA_EACH stands for
 * the copies of one source for each instruction set level (isa.h). */
#define LOONG_FAST_KERNELS(X)              \
    X(loongi_linear_onednn)                \
    X(loongi_linear_onednn_widened)        \
    X(loongi_linear_dw_onednn)             \
    X(loongi_linear_dw_onednn_widened)     \
    X(loongi_linear_add_onednn) X(loongi_linear_add_onednn_widened) \
    LOONG_ISA_EACH(X, loongi_magnitude)    \
    X(loongi_linear_quantized_panels) X(loongi_cross_entropy_onednn) \
    LOONG_ISA_EACH(X, loongi_attention)    \
    LOONG_ISA_EACH(X, loongi_attention_grad) \
    LOONG_ISA_EACH(X, loongi_attention_merge) \
    X(loongi_cross_entropy_onednn_widened) \
    X(loongi_token_logprob_onednn)         \
    X(loongi_token_logprob_onednn_widened) \
    X(loongi_token_logprob_grad_onednn)    \
    X(loongi_token_logprob_grad_onednn_widened) \
    X(loongi_embedding_rows) X(loongi_copy_rows) \
    X(loongi_zero_rows) \
    X(loongi_concat_rows) \
    X(loongi_slice_grad_rows) \
    X(loongi_zigzag_rows) \
    X(loongi_repeat_heads_rows) \
    X(loongi_select_rows_rows) \
    LOONG_ISA_EACH(X, loongi_embedding_grad) \
    LOONG_ISA_EACH(X, loongi_latent_keys) \
    LOONG_ISA_EACH(X, loongi_latent_keys_grad) \
    X(loongi_head_linear_onednn) \
    X(loongi_head_linear_onednn_widened) \
    X(loongi_head_linear_dw_onednn) \
    X(loongi_head_linear_dw_onednn_widened) \
    LOONG_ISA_EACH(X, loongi_rmsnorm) \
    LOONG_ISA_EACH(X, loongi_add_rmsnorm) \
    LOONG_ISA_EACH(X, loongi_rmsnorm_grad) \
    LOONG_ISA_EACH(X, loongi_mean_squares) \
    LOONG_ISA_EACH(X, loongi_mean_squares_grad) \
    LOONG_ISA_EACH(X, loongi_rms_scale) \
    LOONG_ISA_EACH(X, loongi_rms_scale_grad) \
    LOONG_ISA_EACH(X, loongi_layernorm) \
    LOONG_ISA_EACH(X, loongi_add_layernorm) \
    LOONG_ISA_EACH(X, loongi_layernorm_grad) \
    LOONG_ISA_EACH(X, loongi_add) \
    LOONG_ISA_EACH(X, loongi_multiply) \
    LOONG_ISA_EACH(X, loongi_scale) \
    LOONG_ISA_EACH(X, loongi_cast) \
    LOONG_ISA_EACH(X, loongi_accumulate) \
    LOONG_ISA_EACH(X, loongi_sum_rows) \
    LOONG_ISA_EACH(X, loongi_sum_heads) \
    LOONG_ISA_EACH(X, loongi_dropout) \
    LOONG_ISA_EACH(X, loongi_rope) \
    LOONG_ISA_EACH(X, loongi_swiglu) \
    LOONG_ISA_EACH(X, loongi_swiglu_grad) \
    LOONG_ISA_EACH(X, loongi_gelu) \
    LOONG_ISA_EACH(X, loongi_gelu_grad) \
    LOONG_ISA_EACH(X, loongi_quantize) \
    LOONG_ISA_EACH(X, loongi_dequantize) \
    LOONG_ISA_EACH(X, loongi_adamw) \
    LOONG_ISA_EACH(X, loongi_lion) \
    LOONG_ISA_EACH(X, loongi_sgd) \
    LOONG_ISA_EACH(X, loongi_ema) \
    LOONG_ISA_EACH(X, loongi_ema_swap) \
    LOONG_ISA_EACH(X, loongi_sumsq) \
    LOONG_ISA_EACH(X, loongi_sum) \
    LOONG_ISA_EACH(X, loongi_grouped_linear) \
    X(loongi_grouped_linear_onednn) \
    X(loongi_grouped_linear_onednn_widened) \
    X(loongi_grouped_linear_dw_onednn) \
    X(loongi_grouped_linear_dw_onednn_widened) \
    LOONG_ISA_EACH(X, loongi_permute) \
    LOONG_ISA_EACH(X, loongi_unpermute) \
    LOONG_ISA_EACH(X, loongi_unpermute_dw) \
    LOONG_ISA_EACH(X, loongi_sigmoid_gate) \
    LOONG_ISA_EACH(X, loongi_sigmoid_gate_grad)

#define LOONG_REF_KERNELS(X) \
    X(linear)                \
    X(linear_dw) X(linear_dw_db) \
    X(linear_gelu_grad) X(linear_add) X(linear_quantized) X(magnitude) \
    X(dequantize_blockwise) \
    X(attention)             \
    X(attention_grad)        \
    X(attention_merge)       \
    X(latent_keys)           \
    X(latent_keys_grad)      \
    X(head_linear)           \
    X(head_linear_dw)        \
    X(cross_entropy)         \
    X(token_logprob)         \
    X(token_logprob_grad)    \
    X(embedding)             \
    X(embedding_grad)        \
    X(rmsnorm)               \
    X(add_rmsnorm)           \
    X(rmsnorm_grad)          \
    X(mean_squares) X(mean_squares_grad) \
    X(rms_scale) X(rms_scale_grad) \
    X(layernorm)             \
    X(add_layernorm)         \
    X(layernorm_grad)        \
    X(rope_table)            \
    X(rope) X(rope_angles) X(rope_table_grad) \
    X(swiglu)                \
    X(swiglu_grad)           \
    X(gelu)                  \
    X(gelu_grad)             \
    X(add) X(multiply)       \
    X(scale)                 \
    X(cast)                  \
    X(copy)                  \
    X(quantize)              \
    X(dequantize)            \
    X(accumulate)            \
    X(concat)                \
    X(slice_grad)            \
    X(zigzag)                \
    X(repeat_heads)          \
    X(sum_heads)             \
    X(select_rows)           \
    X(sum_rows)              \
    X(softmax_cross_entropy) \
    X(softmax_cross_entropy_grad) \
    X(segment_sum)           \
    X(segment_repeat)        \
    X(kl_estimate) X(kl_estimate_grad) \
    X(dropout)               \
    X(adamw)                 \
    X(lion)                  \
    X(sgd)                   \
    X(ema) X(ema_swap)       \
    X(muon_momentum) X(muon_normalize) \
    X(muon_polynomial) X(muon_step) \
    X(sign_step)             \
    X(sumsq)                 \
    X(sum) X(zero)           \
    X(tensor_stats)          \
    X(topk_router)           \
    X(topk_router_grad)      \
    X(expert_counts)         \
    X(expert_excess)         \
    X(router_loss)           \
    X(router_loss_grad)      \
    X(expert_capacity)       \
    X(expert_order)          \
    X(expert_rounds)         \
    X(expert_window)         \
    X(expert_routes)         \
    X(permute)               \
    X(unpermute)             \
    X(unpermute_dw)          \
    X(grouped_linear)        \
    X(grouped_linear_dw)     \
    X(sigmoid_gate)          \
    X(sigmoid_gate_grad)     \
    X(loss_scale)

#define LOONG_COMM_KERNELS(X) \
    X(all_reduce)             \
    X(all_gather)             \
    X(reduce_scatter)         \
    X(own_rows)               \
    X(all_to_all_rows)        \
    X(all_to_all_columns)     \
    X(ring_shift)             \
    X(exchange_rows)          \
    X(flat_all_reduce)        \
    X(flat_reduce_scatter)    \
    X(flat_all_gather)

#define LOONG_CUDA_KERNELS(X) \
    X(linear)                 \
    X(linear_dw) X(linear_dw_db) \
    X(linear_gelu_grad) X(linear_add) X(linear_quantized) X(magnitude) \
    X(dequantize_blockwise) \
    X(attention_cudnn)        \
    X(attention_tiles)        \
    X(attention_wide)         \
    X(attention)              \
    X(attention_grad_cudnn)   \
    X(attention_grad_tiles)   \
    X(attention_grad_wide)    \
    X(attention_grad)         \
    X(attention_merge)        \
    X(cross_entropy)          \
    X(token_logprob)          \
    X(token_logprob_grad)     \
    X(add) X(multiply)        \
    X(scale)                  \
    X(cast)                   \
    X(copy)                   \
    X(quantize)               \
    X(dequantize)             \
    X(accumulate)             \
    X(concat)                 \
    X(slice_grad)             \
    X(zigzag)                 \
    X(repeat_heads)           \
    X(sum_heads)              \
    X(select_rows)            \
    X(sum_rows)               \
    X(softmax_cross_entropy) \
    X(softmax_cross_entropy_grad) \
    X(segment_sum)            \
    X(segment_repeat)         \
    X(kl_estimate) X(kl_estimate_grad) \
    X(swiglu)                 \
    X(swiglu_grad)            \
    X(gelu)                   \
    X(gelu_grad)              \
    X(rmsnorm)                \
    X(add_rmsnorm)            \
    X(rmsnorm_grad)           \
    X(layernorm)              \
    X(add_layernorm)          \
    X(layernorm_grad)         \
    X(mean_squares) X(mean_squares_grad) \
    X(rms_scale) X(rms_scale_grad) \
    X(rope_table)             \
    X(rope) X(rope_angles) X(rope_table_grad) \
    X(dropout)                \
    X(embedding)              \
    X(embedding_grad)         \
    X(adamw)                  \
    X(lion)                   \
    X(sgd)                    \
    X(ema) X(ema_swap)        \
    X(muon_momentum) X(muon_normalize) \
    X(muon_polynomial) X(muon_step) \
    X(sumsq)                  \
    X(sum) X(zero)           \
    X(tensor_stats)           \
    X(latent_keys)            \
    X(latent_keys_grad)       \
    X(head_linear)            \
    X(head_linear_dw)         \
    X(topk_router)            \
    X(topk_router_grad)       \
    X(router_loss)            \
    X(router_loss_grad)       \
    X(expert_counts)          \
    X(expert_excess)          \
    X(expert_capacity)        \
    X(expert_order)           \
    X(expert_rounds)          \
    X(expert_window)          \
    X(expert_routes)          \
    X(exchange_rows)          \
    X(permute)                \
    X(unpermute)              \
    X(unpermute_dw)           \
    X(grouped_linear_wgmma) X(grouped_linear_tiles) \
    X(grouped_linear)         \
    X(grouped_linear_dw_wgmma) X(grouped_linear_dw_tiles) \
    X(grouped_linear_dw)      \
    X(sigmoid_gate)           \
    X(sigmoid_gate_grad)      \
    X(loss_scale)             \
    X(sign_step)

#define LOONG_CUDA_DECLARE(name_)                                             \
    extern const loong_kernel_t loongi_##name_##_cuda;
LOONG_CUDA_KERNELS(LOONG_CUDA_DECLARE)
#undef LOONG_CUDA_DECLARE

#define LOONG_COMM_DECLARE(name_)                                             \
    extern const loong_kernel_t loongi_##name_##_comm;
LOONG_COMM_KERNELS(LOONG_COMM_DECLARE)
#undef LOONG_COMM_DECLARE

#define LOONG_FAST_DECLARE(symbol_) extern const loong_kernel_t symbol_;
LOONG_FAST_KERNELS(LOONG_FAST_DECLARE)
#undef LOONG_FAST_DECLARE

#define LOONG_REF_DECLARE(name_)                                              \
    extern const loong_kernel_t loongi_##name_##_ref;
LOONG_REF_KERNELS(LOONG_REF_DECLARE)
#undef LOONG_REF_DECLARE

/* Best first per op; ends with NULL. */
extern const loong_kernel_t *const loongi_cpu_kernels[];

#ifdef __cplusplus
}
#endif

#endif
