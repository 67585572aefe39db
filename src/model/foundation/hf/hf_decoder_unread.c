/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields that files of publishers have and no class of transformers reads.
 * They are never written. Called by hf_config_read.c as part of
 * hf_decoder.c's loong_hf_kind_t. Read hf_family.h before. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "hf_decoder.h"

/* Neutral: any other value would say that the model is another one. */
#define NEUTRAL(types_, name_, allowed_)                       \
    {                                                          \
        types_, { name_, LOONG_HF_NEUTRAL, NULL, allowed_ }    \
    }
/* Of training, or of how the same is computed. */
#define FREE(types_, name_)                            \
    {                                                  \
        types_, { name_, LOONG_HF_CODE, NULL, NULL }   \
    }
#define CODER " qwen3_moe "
#define ERNIE " ernie4_5 ernie4_5_moe ernie4_5_moe_vl "

static const struct {
    const char *types;
    loong_hf_field_t field;
} unread[] = {
    NEUTRAL(CODER, "qkv_bias", "false"),
    NEUTRAL(CODER, "shared_expert_intermediate_size", "0"),
    NEUTRAL(CODER, "use_qk_norm", "true"),
    NEUTRAL(ERNIE, "use_rmsnorm", "true"),
    NEUTRAL(ERNIE, "attention_probs_dropout_prob", "0.0|0"),
    NEUTRAL(ERNIE, "hidden_dropout_prob", "0.0|0"),
    NEUTRAL(ERNIE, "moe_gate_act", "\"softmax\""),
    NEUTRAL(ERNIE, "moe_norm_gate_logits", "true"),
    NEUTRAL(ERNIE, "moe_use_hard_gate", "true"),
    NEUTRAL(ERNIE, "moe_dropout_prob", "0.0|0"),
    NEUTRAL(ERNIE, "moe_all_to_all_dropout", "0.0|0"),
    FREE(ERNIE, "moe_aux_loss_lambda"),
    FREE(ERNIE, "moe_z_loss_lambda"),
    FREE(ERNIE, "moe_orthogonal_loss_lambda"),
    FREE(ERNIE, "moe_group_orthogonal_loss"),
    FREE(ERNIE, "moe_group"),
    FREE(ERNIE, "moe_capacity"),
    FREE(ERNIE, "moe_dense_experts_token_type_id"),
    FREE(ERNIE, "moe_multimodal_dispatch_use_allgather"),
    FREE(ERNIE, "multi_token_pred_lambda"),
    FREE(ERNIE, "sinkhorn_2gate"),
    FREE(ERNIE, "sinkhorn_temp"),
    FREE(ERNIE, "num_acc_steps"),
    FREE(ERNIE, "enable_delay_scale_loss"),
    FREE(ERNIE, "ignored_index"),
    FREE(ERNIE, "fuse_gate_detach_matmul"),
    FREE(ERNIE, "fuse_linear"),
    FREE(ERNIE, "fuse_swiglu"),
    FREE(ERNIE, "fuse_attn_ffn"),
    FREE(ERNIE, "fuse_rope"),
    FREE(ERNIE, "fuse_rms_norm"),
    FREE(ERNIE, "fuse_ln"),
    FREE(ERNIE, "fuse_softmax_mask"),
    FREE(ERNIE, "recompute"),
    FREE(ERNIE, "recompute_granularity"),
    FREE(ERNIE, "recompute_use_reentrant"),
    FREE(ERNIE, "use_recompute_loss_fn"),
    FREE(ERNIE, "use_flash_attention"),
    FREE(ERNIE, "use_flash_attn"),
    FREE(ERNIE, "use_flash_attn_with_mask"),
    FREE(ERNIE, "use_mem_eff_attn"),
    FREE(ERNIE, "use_sparse_flash_attn"),
    FREE(ERNIE, "weight_share_add_bias"),
    FREE(ERNIE, "max_sequence_length"),
    FREE(ERNIE, "micro_batch_size"),
    FREE(ERNIE, "tensor_parallel_degree"),
    FREE(ERNIE, "pp_seg_method"),
    FREE(ERNIE, "paddleformers_version"),
};

const loong_hf_field_t *loongi_hf_decoder_unread(const loong_hf_type_t *type,
                                                 const char *name)
{
    char spaced[40];
    snprintf(spaced, sizeof(spaced), " %.36s ", type->model_type);
    for (int64_t i = 0; i < LOONG_COUNT_OF(unread); i++) {
        if (strcmp(unread[i].field.name, name) == 0 &&
            strstr(unread[i].types, spaced) != NULL) {
            return &unread[i].field;
        }
    }
    return NULL;
}
