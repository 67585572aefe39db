/* SPDX-License-Identifier: Apache-2.0
 *
 * Every built-in op. Each op's file defines loongi_op_<name>. Called by
 * src/registry/registry_builtin.c. Read op_impl.h before. */
#include "op_impl.h"

#include "loong/register.h"

#define LOONG_OP_LIST(X) \
    X(embedding)         \
    X(embedding_grad)    \
    X(rmsnorm)           \
    X(add_rmsnorm)       \
    X(rmsnorm_grad)      \
    X(mean_squares)      \
    X(mean_squares_grad) \
    X(rms_scale)         \
    X(rms_scale_grad)    \
    X(layernorm)         \
    X(add_layernorm)     \
    X(layernorm_grad)    \
    X(rope_table)        \
    X(rope)              \
    X(rope_angles)       \
    X(rope_table_grad)   \
    X(swiglu)            \
    X(swiglu_grad)       \
    X(gelu)              \
    X(gelu_grad)         \
    X(add)               \
    X(multiply)          \
    X(scale)             \
    X(dropout)           \
    X(cast)              \
    X(copy)              \
    X(quantize)          \
    X(dequantize)        \
    X(accumulate)        \
    X(sum_rows)          \
    X(softmax_cross_entropy) \
    X(softmax_cross_entropy_grad) \
    X(segment_sum)       \
    X(segment_repeat)    \
    X(all_reduce)        \
    X(replicate)         \
    X(all_gather)        \
    X(reduce_scatter)    \
    X(own_rows)          \
    X(all_to_all_rows)   \
    X(all_to_all_columns) \
    X(ring_shift)        \
    X(flat_all_reduce)   \
    X(flat_reduce_scatter) \
    X(flat_all_gather)   \
    X(concat)            \
    X(slice)             \
    X(slice_grad)        \
    X(reshape)           \
    X(zigzag)            \
    X(repeat_heads)      \
    X(sum_heads)         \
    X(select_rows)       \
    X(linear)            \
    X(linear_dw)         \
    X(linear_dw_db)      \
    X(linear_gelu_grad)  \
    X(linear_add)        \
    X(magnitude)         \
    X(linear_quantized) X(dequantize_blockwise) \
    X(attention)         \
    X(attention_grad)    \
    X(attention_merge)   \
    X(ring_attention)    \
    X(latent_keys)       \
    X(latent_keys_grad)  \
    X(head_linear)       \
    X(head_linear_dw)    \
    X(topk_router)       \
    X(topk_router_grad)  \
    X(expert_counts)     \
    X(expert_excess)     \
    X(router_loss)       \
    X(router_loss_grad)  \
    X(expert_capacity)   \
    X(expert_order)      \
    X(expert_rounds)     \
    X(expert_window)     \
    X(expert_routes)     \
    X(exchange_rows)     \
    X(permute)           \
    X(unpermute)         \
    X(unpermute_dw)      \
    X(grouped_linear)    \
    X(grouped_linear_dw) \
    X(sigmoid_gate)      \
    X(sigmoid_gate_grad) \
    X(loss)              \
    X(loss_scale)        \
    X(kl_estimate)       \
    X(kl_estimate_grad)  \
    X(cross_entropy)     \
    X(token_logprob)     \
    X(token_logprob_grad) \
    X(adamw)             \
    X(lion)              \
    X(sgd)               \
    X(ema)               \
    X(ema_swap)          \
    X(muon_momentum)     \
    X(muon_normalize)    \
    X(muon_polynomial)   \
    X(muon_step)         \
    X(sign_step)         \
    X(sumsq)             \
    X(sum)               \
    X(zero)              \
    X(tensor_stats)

#define LOONG_OP_DECLARE(name_)                                               \
    extern const loong_op_t *const loongi_op_##name_;
LOONG_OP_LIST(LOONG_OP_DECLARE)
#undef LOONG_OP_DECLARE

loong_status_t loongi_register_ops(loong_context_t *ctx)
{
#define LOONG_OP_REGISTER(name_) \
    LOONG_TRY(loong_register_op(ctx, loongi_op_##name_));
    LOONG_OP_LIST(LOONG_OP_REGISTER)
#undef LOONG_OP_REGISTER
    return LOONG_OK;
}
