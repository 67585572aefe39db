/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of the schema below model: the components. schema.c has the rest.
 */
#include "schema.h"

#define M "model.foundation."
#define V "model.image_encoder."
#define P "model.image_projector."
/* Of every component; what stands at the top level holds where these are not
 * given. */
#define COMPONENT(role_)                                                      \
    BOOL(role_ "freeze", NULL, SAME, "all of it stays fixed"),                \
        CHOICE(role_ "precision.params_dtype", NULL, "auto bf16 fp32 fp64",   \
               SAME, "compute type of this component"),                       \
        TEXTS(role_ "precision.fp32_scopes", SAME,                            \
              "globs of its scopes whose ops work in fp32"),                  \
        CHOICE(role_ "recompute.granularity", NULL, "none full selective",    \
               FREE, "what its backward computes again"),                     \
        TEXTS(role_ "recompute.scopes", FREE, "globs of its scopes"),         \
        REAL(role_ "optimizer.lr", NULL, 0, 1000, FREE,                       \
             "its highest learning rate, in the proportion of which it "      \
             "follows the schedule"),                                         \
        REAL(role_ "optimizer.weight_decay", NULL, 0, 100, FREE,              \
             "of its matrices and embeddings")
/* Of one that is published alone. */
#define INIT(role_)                                                           \
    TEXT(role_ "init.from_hf", NULL, FREE,                                    \
         "Hugging Face directory that this component starts from, and is "    \
         "like where its keys are not given; init.from_hf is of the "         \
         "component with the loss")
/* Of a component beside the one with the loss. */
#define BESIDE(role_)                                                         \
    INT(role_ "parallel.tensor_model_parallel_size", NULL, 1, 1024, FREE,     \
        "ranks that share each layer, where other components read this one; " \
        "1 when not given"),                                                  \
        BOOL(role_ "parallel.sequence_parallel", NULL, FREE,                  \
             "these cut the rows between layers as well"),                    \
        COMPONENT(role_)

static const loong_recipe_key_t keys[] = {
    TEXT(V "family", NULL, SAME, "vit, clip_vision_model, siglip_vision_model"),
    INT(V "num_layers", NULL, 1, 10000, SAME, "transformer layers"),
    INT(V "hidden_size", NULL, 1, 1e6, SAME, "width of the residual stream"),
    INT(V "ffn_hidden_size", NULL, 1, 1e7, SAME,
        "width of the feed-forward; 4 x hidden_size when not given"),
    INT(V "num_attention_heads", NULL, 1, 1e5, SAME, "heads"),
    INT(V "image_size", NULL, 1, 1e5, SAME, "pixels of a side of a picture"),
    INT(V "patch_size", NULL, 1, 1e5, SAME, "pixels of a side of a patch"),
    INT(V "num_channels", NULL, 3, 3, SAME, "of a pixel"),
    BOOL(V "add_class_token", NULL, SAME, "a row in front of the patches"),
    BOOL(V "add_patch_bias", NULL, SAME, "bias of the patch projection"),
    BOOL(V "pre_layernorm", NULL, SAME, "a norm in front of the layers"),
    BOOL(V "post_layernorm", NULL, SAME, "a norm behind the layers"),
    CHOICE(V "activation", NULL, "gelu gelu_tanh quick_gelu", SAME,
           "of the feed-forward"),
    REAL(V "layernorm_epsilon", NULL, 0, 1, SAME, "added to the variance"),
    REAL(V "init_method_std", NULL, 0, 10, FREE,
         "standard deviation of matrices at the start; 0.02 when not given"),
    INT(V "num_classes", NULL, 0, 1e8, SAME,
        "classes of pictures; 0: no classifier"),
    CHOICE(V "pooling", NULL, "class_token mean", SAME,
           "the vector of a picture"),
    BOOL(V "add_classifier_bias", NULL, SAME, "bias of the classifier"),
    BOOL(V "masked_image_modeling", NULL, SAME,
         "in place of a classifier: a token stands for masked patches, whose "
         "pixels a decoder is to find (data.mask_ratio)"),
    INT(V "feature_layer", NULL, -10000, 10000, SAME,
        "other components read what this many layers make, without the norm "
        "behind the last; negative ones count from the last, -1, back, as in "
        "LLaVA's config.json; layers behind are kept and not computed; all "
        "layers and that norm when not given"),
    BOOL(V "select_class_token", NULL, SAME,
         "the class token's row goes to other components as well"),
    BESIDE(V),
    INIT(V),

    TEXT(P "family", NULL, SAME, "mlp_projector: LLaVA's, two products"),
    INT(P "input_size", NULL, 1, 1e6, SAME,
        "width of what it reads; the encoder's hidden_size when not given"),
    INT(P "hidden_size", NULL, 1, 1e6, SAME,
        "width of what it makes; the foundation's when not given"),
    REAL(P "init_method_std", NULL, 0, 10, FREE,
         "standard deviation of matrices at the start; 0.02 when not given"),
    BESIDE(P),

    TEXT(M "family", NULL, SAME,
         "gpt2, llama, phi3, qwen, qwen2, qwen3, internlm2, mimo, ernie4_5, "
         "mixtral, qwen2_moe, qwen3_moe, ernie4_5_moe, ernie4_5_vl_moe, "
         "minimax_m2, deepseek_v2, deepseek_v3, kimi_k2, or one that was "
         "registered"),
    INT(M "num_layers", NULL, 1, 10000, SAME, "transformer layers"),
    INT(M "hidden_size", NULL, 1, 1e6, SAME, "width of the residual stream"),
    INT(M "ffn_hidden_size", NULL, 1, 1e7, SAME,
        "width of the feed-forward of layers without experts; 4 x hidden_size "
        "when not given"),
    INT(M "num_attention_heads", NULL, 1, 1e5, SAME, "query heads"),
    INT(M "num_query_groups", NULL, 1, 1e5, SAME,
        "key and value heads; num_attention_heads when not given"),
    INT(M "kv_channels", NULL, 1, 4096, SAME,
        "width of a head; hidden_size / num_attention_heads when not given"),
    INT(M "vocab_size", NULL, 1, 1e8, SAME, "tokens of the vocabulary"),
    INT(M "make_vocab_size_divisible_by", NULL, 1, 1e6, FREE,
        "the embedding is padded to a multiple of this"),
    INT(M "max_position_embeddings", NULL, 1, BIG, SAME, "longest sequence"),
    CHOICE(M "position_embedding_type", NULL, "rope learned_absolute", SAME,
           "how positions enter"),
    REAL(M "rotary_base", NULL, 1, 1e15, SAME, "rope_theta"),
    REAL(M "rotary_percent", NULL, 0, 1, SAME, "share of a head rotated"),
    BOOL(M "rotary_interleaved", NULL, SAME,
         "neighbouring channels are rotated together, not the two halves"),
    TEXT(M "mrope_section", NULL, SAME,
         "pairs of rotated channels for height, width and time, as "
         "[22,22,20]; of texts all turn alike"),
    CHOICE(M "rope_scaling.type", NULL,
           "none default linear dynamic llama3 yarn", SAME,
           "change of the rotary frequencies"),
    REAL(M "rope_scaling.factor", NULL, 1, 1e6, SAME, "context extension"),
    REAL(M "rope_scaling.low_freq_factor", NULL, 0, 1e6, SAME, "llama3"),
    REAL(M "rope_scaling.high_freq_factor", NULL, 0, 1e6, SAME, "llama3"),
    REAL(M "rope_scaling.original_max_position_embeddings", NULL, 1, BIG, SAME,
         "length before the extension"),
    REAL(M "rope_scaling.beta_fast", NULL, 0, 1e6, SAME, "yarn"),
    REAL(M "rope_scaling.beta_slow", NULL, 0, 1e6, SAME, "yarn"),
    REAL(M "rope_scaling.attention_factor", NULL, 0, 1e6, SAME, "yarn"),
    REAL(M "rope_scaling.mscale", NULL, 0, 1e6, SAME, "yarn"),
    REAL(M "rope_scaling.mscale_all_dim", NULL, 0, 1e6, SAME, "yarn"),
    BOOL(M "rope_scaling.truncate", NULL, SAME, "yarn: whole dimensions"),
    CHOICE(M "normalization", NULL, "RMSNorm LayerNorm", SAME, "kind of norm"),
    REAL(M "layernorm_epsilon", NULL, 0, 1, SAME, "added to the variance"),
    BOOL(M "qk_layernorm", NULL, SAME, "norm of each head of q and k"),
    BOOL(M "qk_layernorm_whole", NULL, SAME,
         "that norm over all heads together"),
    INT(M "kv_lora_rank", NULL, 1, 1e6, SAME,
        "latent attention: width of what keys and values are made of"),
    INT(M "q_lora_rank", NULL, 1, 1e6, SAME,
        "latent attention: the same of queries; straight from the stream when "
        "not given"),
    INT(M "qk_head_dim", NULL, 1, 4096, SAME,
        "latent attention: channels of a key that are not rotated"),
    INT(M "qk_pos_emb_head_dim", NULL, 1, 4096, SAME,
        "latent attention: rotated channels, shared by the keys of a token"),
    INT(M "v_head_dim", NULL, 1, 4096, SAME,
        "latent attention: channels of a value"),
    CHOICE(M "mla_absorb", NULL, "auto true false", FREE,
           "latent attention: queries and outputs go through kv_b_proj, not "
           "keys and values; auto: where 2 kv_lora_rank < qk_head_dim + "
           "v_head_dim, which costs less"),
    BOOL(M "add_bias_linear", NULL, SAME, "biases in the feed-forward"),
    BOOL(M "add_qkv_bias", NULL, SAME,
         "biases of q, k and v; in latent attention of the short vectors"),
    BOOL(M "add_attn_proj_bias", NULL, SAME, "bias of attention's output"),
    CHOICE(M "activation", NULL, "swiglu gelu gelu_tanh", SAME,
           "of the feed-forward"),
    BOOL(M "untie_embeddings_and_output_weights", NULL, SAME,
         "an output matrix of its own"),
    INT(M "window_size", NULL, 0, BIG, SAME,
        "sliding window in tokens, the query included; 0: none"),
    INT(M "max_window_layers", NULL, 0, 10000, SAME,
        "layers before this one attend fully"),
    REAL(M "softmax_scale", NULL, 0, 1e6, SAME,
         "of attention scores, above 0; 1/sqrt(kv_channels) when not given"),
    REAL(M "attention_dropout", NULL, 0, 0.999, SAME, "probability"),
    REAL(M "hidden_dropout", NULL, 0, 0.999, SAME, "probability"),
    REAL(M "embedding_dropout", NULL, 0, 0.999, SAME, "probability"),
    REAL(M "init_method_std", NULL, 0, 10, FREE,
         "standard deviation of matrices at the start; 0.02 when not given"),
    REAL(M "embedding_init_method_std", NULL, 0, 10, FREE,
         "of embeddings; init_method_std when not given"),
    BOOL(M "use_scaled_init_method", NULL, FREE,
         "output projections start smaller by sqrt(2 x layers)"),
    INT(M "num_experts", NULL, 1, 65536, SAME,
        "experts in place of the feed-forward"),
    TEXT(M "moe_layer_freq", NULL, SAME,
         "layers with experts, the others have a feed-forward: N, every N-th "
         "from the first on, or a list as [0]*3+[1]*58 or, to the last layer, "
         "[0]*3+[1]*; 1 when not given"),
    INT(M "moe_ffn_hidden_size", NULL, 1, 1e7, SAME,
        "width of an expert; ffn_hidden_size when not given"),
    INT(M "moe_vision_ffn_hidden_size", NULL, 1, 1e7, SAME,
        "a second set of num_experts experts of this width with a router of "
        "its own, for tokens of images (data.vision_token_ids)"),
    INT(M "moe_router_topk", NULL, 1, 65536, SAME,
        "experts of a token; 2 when not given"),
    CHOICE(M "moe_router_score_function", NULL, "softmax sigmoid sqrtsoftplus",
           SAME, "from the router's logits to scores"),
    BOOL(M "moe_router_pre_softmax", NULL, SAME,
         "softmax before the choice: weights of a token sum up to less "
         "than 1"),
    CHOICE(M "moe_router_norm_topk_prob", NULL, "auto true false", SAME,
           "sigmoid and sqrtsoftplus: the chosen scores divided by their sum; "
           "auto: with more than one expert a token"),
    INT(M "moe_router_num_groups", NULL, 0, 65536, SAME,
        "groups of experts, for a choice limited to some of them; 0: none"),
    INT(M "moe_router_group_topk", NULL, 0, 65536, SAME, "groups of a token"),
    INT(M "moe_router_group_scores", NULL, 0, 65536, SAME,
        "best experts of a group whose scores count for it; "
        "moe_router_topk / moe_router_group_topk when not given"),
    REAL(M "moe_router_topk_scaling_factor", NULL, 0, 1e6, SAME,
         "factor of the experts' weights"),
    REAL(M "moe_expert_capacity_factor", NULL, 0, 1e6, SAME,
         "an expert takes so many times an even share of a rank's tokens of a "
         "micro-batch and drops the others; 0: it takes all"),
    CHOICE(M "moe_token_drop_policy", NULL, "probs position", SAME,
           "which are dropped: those of least weight or the last ones"),
    BOOL(M "moe_router_force_load_balancing", NULL, SAME,
         "experts in turn in place of the router's choice, to measure speed "
         "with even loads"),
    BOOL(M "moe_router_enable_expert_bias", NULL, SAME,
         "a bias of each expert counts for the choice, not for the weight"),
    REAL(M "moe_router_bias_update_rate", NULL, 0, 10, SAME,
         "what a step adds to it or takes away to even choices out; 0: it "
         "stays; 1e-3 when not given"),
    CHOICE(M "moe_router_load_balancing_type", NULL,
           "aux_loss seq_aux_loss pooled_aux_loss", SAME,
           "what the auxiliary loss balances: a layer's micro-batch or "
           "sequence, or a micro-batch in all layers, as transformers"),
    REAL(M "moe_aux_loss_coeff", NULL, 0, 1e6, SAME,
         "of the load balancing loss; 0: none"),
    REAL(M "moe_z_loss_coeff", NULL, 0, 1e6, SAME,
         "of the squared log-sum-exp of router logits; 0: none"),
    INT(M "moe_shared_expert_intermediate_size", NULL, 1, 1e7, SAME,
        "width of an expert that all tokens meet"),
    BOOL(M "moe_shared_expert_gate", NULL, SAME,
         "the shared expert's output is times a sigmoid of the token"),
    COMPONENT(M),
    INIT(M),
    TEXT("model.from_hf", NULL, FREE,
         "Hugging Face directory whose config.json says what the model is; "
         "init.from_hf takes its weights as well"),
    TEXTS("model.freeze", SAME, "globs of parameter names that stay fixed"),
};

const loong_key_table_t loongi_model_schema = {keys, LOONG_COUNT_OF(keys)};
