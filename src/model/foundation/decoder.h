/* SPDX-License-Identifier: Apache-2.0
 *
 * The configurable decoder: GPT-2, LLaMA, Qwen 1.5 / 2 / 2.5 / 3, Gemma,
 * Mixtral and the Qwen mixtures of experts are settings of it. Parameter names
 * are Hugging Face's for LLaMA, without "model.": embed_tokens.weight,
 * layers.N.self_attn.q_proj.weight, norm.weight, ...
 */
#ifndef LOONG_DECODER_H
#define LOONG_DECODER_H

#include "base.h"
#include "layer_kinds.h"
#include "loong/graph.h"
#include "loong/ops.h"
#include "loong/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The form of latent attention. */
typedef enum loong_absorb {
    LOONG_ABSORB_AUTO, /* the one that costs less */
    LOONG_ABSORB_YES,
    LOONG_ABSORB_NO
} loong_absorb_t;

/* What the auxiliary loss balances. */
typedef enum loong_balance {
    LOONG_BALANCE_MICRO_BATCH,
    LOONG_BALANCE_SEQUENCE,
    LOONG_BALANCE_POOLED /* a micro-batch in all layers together */
} loong_balance_t;

typedef struct loong_decoder_config {
    int num_layers;
    int64_t hidden_size;
    int64_t ffn_hidden_size;
    int num_attention_heads;
    int num_query_groups; /* key / value heads */
    int kv_channels;      /* head dimension */
    int64_t vocab_size;
    int64_t padded_vocab_size; /* rows of the embedding, >= vocab_size */
    int64_t max_position_embeddings;
    bool learned_positions;
    double rotary_percent; /* share of a head that is rotated */
    bool rope_interleaved; /* channels 2i and 2i + 1 make a pair */
    /* Without learned positions; axes are those of texts, 0. */
    loong_rope_table_attr_t rope;
    bool mrope_interleaved;
    int mrope_axes; /* 3: of texts with pictures; 0: none are told apart */
    bool bidirectional_prefix; /* rows before the first learned token of a
                                  segment see one another */
    bool scale_embeddings;     /* times sqrt(hidden_size) */
    int num_deep_features; /* that it reads, see loong_model_request_t */
    loong_norm_kind_t normalization;
    double norm_eps;
    bool sandwich_norm; /* norms of what layers add to the stream, too */
    bool qk_norm;
    bool qk_norm_whole; /* over all heads together, not each by itself */
    bool qkv_bias;
    bool attention_output_bias;
    bool mlp_bias;
    loong_mlp_kind_t mlp;
    int64_t kv_lora_rank; /* 0: no latent attention; else the rest holds */
    int64_t q_lora_rank;  /* 0: queries straight from the stream */
    int qk_head_dim;      /* of keys, without the rotated channels */
    int qk_pos_emb_head_dim; /* rotated channels, shared by the keys */
    int v_head_dim;
    loong_absorb_t mla_absorb;
    bool tied; /* output matrix is the embedding */
    int64_t window_size;     /* 0: none */
    int max_window_layers;   /* layers before this one attend fully */
    double softmax_scale;
    double attention_dropout;
    double hidden_dropout;
    double embedding_dropout;
    double init_std;
    double embedding_init_std; /* of embeddings; 0: init_std */
    bool scaled_output_init; /* output projections: std / sqrt(2 layers) */
    int num_experts; /* 0: a feed-forward; else the rest holds */
    loong_layer_kinds_t kinds; /* layers with experts and without */
    int64_t moe_ffn_hidden_size;
    int64_t vision_ffn; /* of a second set of experts; 0: none */
    loong_router_attr_t router;
    double capacity_factor; /* 0: experts take all tokens */
    bool drop_by_position;
    bool expert_bias; /* of the choice of experts */
    double bias_update_rate; /* a step; 0: the bias stays as it is */
    int64_t shared_expert_ffn; /* 0: none */
    bool shared_expert_gate;
    loong_balance_t balance; /* of the auxiliary loss */
    double aux_loss_coeff;
    double router_z_loss_coeff;
} loong_decoder_config_t;

/* LOONG_ERR_CONFIG with every rule that the layout breaks. */
LOONG_NODISCARD loong_status_t
loongi_decoder_check_mesh(loong_context_t *ctx,
                          const void *config,
                          const loong_model_request_t *request,
                          const loong_mesh_t *mesh);

/* Slots of loong_family_t; config is a loong_decoder_config_t. */
LOONG_NODISCARD loong_status_t
loongi_decoder_build(loong_graph_t *graph, const void *config,
                     const loong_model_request_t *request);
void loongi_decoder_facts(const void *config, loong_model_facts_t *facts);
double loongi_decoder_attention_flops(const void *config, int64_t length);

/* Enters the families that are settings of the decoder. */
LOONG_NODISCARD loong_status_t loongi_register_decoders(loong_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
