/* SPDX-License-Identifier: Apache-2.0
 *
 * The model types of decoders. Fallbacks are the defaults of the configuration
 * classes in transformers; where a class has a default size that files always
 * state (hidden size, layers), the field is required instead. A part of
 * hf_decoder.c's loong_hf_kind_t; read hf_family.h before. */
#include "hf_decoder.h"

#include "hf_rows.h"

/* The decoders with rotary positions share all but a few fields. */
#define ROTARY_FIELDS ROTARY_FIELDS_EPS("1e-06")
#define ROTARY_FIELDS_EPS(eps_) \
    ROTARY_CORE(eps_), REAL_FIELD("attention_dropout", "attention_dropout", "0")
#define ROTARY_CORE(eps_)                                                \
    INT_FIELD("num_hidden_layers", "num_layers", NULL),                        \
        INT_FIELD("hidden_size", "hidden_size", NULL),                         \
        INT_FIELD("intermediate_size", "ffn_hidden_size", NULL),               \
        INT_FIELD("num_attention_heads", "num_attention_heads", NULL),         \
        CODE_FIELD("num_key_value_heads"), CODE_FIELD("head_dim"),             \
        INT_FIELD("vocab_size", "vocab_size", NULL),                           \
        INT_FIELD("max_position_embeddings", "max_position_embeddings", NULL), \
        CODE_FIELD("rope_theta"), CODE_FIELD("rope_scaling"),                  \
        CODE_FIELD("rope_parameters"), CODE_FIELD("layer_types"),              \
        REAL_FIELD("rms_norm_eps", "layernorm_epsilon", eps_),                 \
        CODE_FIELD("hidden_act"), CODE_FIELD("tie_word_embeddings"),           \
        REAL_FIELD("initializer_range", "init_method_std", "0.02")

static const loong_hf_field_t gpt2_fields[] = {
    INT_FIELD("n_layer", "num_layers", "12"),
    INT_FIELD("n_embd", "hidden_size", "768"),
    CODE_FIELD("n_inner"),
    INT_FIELD("n_head", "num_attention_heads", "12"),
    INT_FIELD("vocab_size", "vocab_size", "50257"),
    INT_FIELD("n_positions", "max_position_embeddings", "1024"),
    REAL_FIELD("layer_norm_epsilon", "layernorm_epsilon", "1e-05"),
    CODE_FIELD("activation_function"),
    CODE_FIELD("tie_word_embeddings"),
    REAL_FIELD("attn_pdrop", "attention_dropout", "0.1"),
    REAL_FIELD("resid_pdrop", "hidden_dropout", "0.1"),
    REAL_FIELD("embd_pdrop", "embedding_dropout", "0.1"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    NEUTRAL_FIELD("scale_attn_weights", "true"),
    NEUTRAL_FIELD("scale_attn_by_inverse_layer_idx", "false"),
    NEUTRAL_FIELD("reorder_and_upcast_attn", "false"),
    FIELDS_END};

static const loong_hf_field_t llama_fields[] = {
    ROTARY_FIELDS, CODE_FIELD("attention_bias"), CODE_FIELD("mlp_bias"),
    NEUTRAL_FIELD("sliding_window", "null"), FIELDS_END};

static const loong_hf_field_t mistral_fields[] = {
    ROTARY_FIELDS, CODE_FIELD("sliding_window"), FIELDS_END};

/* Its class has no embd_pdrop. */
static const loong_hf_field_t phi3_fields[] = {
    ROTARY_FIELDS_EPS("1e-05"),
    REAL_FIELD("resid_pdrop", "hidden_dropout", "0"),
    NEUTRAL_FIELD("embd_pdrop", "0.0|0"),
    CODE_FIELD("partial_rotary_factor"),
    CODE_FIELD("original_max_position_embeddings"),
    CODE_FIELD("sliding_window"), CODE_FIELD("auto_map"), FIELDS_END};

static const loong_hf_field_t gemma_fields[] = {
    ROTARY_FIELDS, CODE_FIELD("attention_bias"),
    CODE_FIELD("hidden_activation"), FIELDS_END};

/* It says of q, k and v alone whether they have biases. */
static const loong_hf_field_t glm_fields[] = {
    ROTARY_FIELDS_EPS("1.5625e-07"),
    CODE_FIELD_OR("partial_rotary_factor", "0.5"),
    BOOL_FIELD("attention_bias", "add_qkv_bias", "true"), FIELDS_END};

/* text_config of GLM-4.1V. */
static const loong_hf_field_t glm4v_fields[] = {
    ROTARY_FIELDS_EPS("1e-05"), CODE_FIELD("partial_rotary_factor"),
    NEUTRAL_FIELD("attention_bias", "true"),
    CODE_FIELD_OR("mrope_section", "[8,12,12]"), FIELDS_END};

#define QWEN_FIELDS                                  \
    ROTARY_FIELDS, CODE_FIELD("use_sliding_window"), \
        CODE_FIELD("sliding_window"), CODE_FIELD("max_window_layers")

/* Of attention in chunks, for texts beyond those of the training. */
static const loong_hf_field_t qwen2_fields[] = {
    QWEN_FIELDS, CODE_FIELD("dual_chunk_attention_config"), FIELDS_END};

/* text_config of Qwen2-VL and Qwen2.5-VL. */
static const loong_hf_field_t qwen2_vl_fields[] = {
    QWEN_FIELDS, CODE_FIELD("mrope_section"), FIELDS_END};

static const loong_hf_field_t qwen3_fields[] = {
    QWEN_FIELDS, CODE_FIELD("attention_bias"), FIELDS_END};

/* text_config of Qwen3-VL; layers of the encoder say how many deep features
 * there are. */
static const loong_hf_field_t qwen3_vl_fields[] = {
    ROTARY_FIELDS,
    CODE_FIELD("attention_bias"),
    CODE_FIELD("mrope_section"),
    CODE_FIELD("mrope_interleaved"),
    CODE_FIELD("num_deep_features"),
    FIELDS_END};

#define QWEN_MOE_FIELDS                                                       \
    ROTARY_FIELDS, CODE_FIELD("num_experts"), CODE_FIELD("num_local_experts"),\
        INT_FIELD("num_experts_per_tok", "moe_router_topk", NULL),            \
        INT_FIELD("moe_intermediate_size", "moe_ffn_hidden_size", NULL),      \
        CODE_FIELD("norm_topk_prob"), CODE_FIELD("use_sliding_window"),       \
        CODE_FIELD("sliding_window"), CODE_FIELD("max_window_layers"),        \
        CODE_FIELD("decoder_sparse_step"), CODE_FIELD("mlp_only_layers")

static const loong_hf_field_t qwen3_moe_fields[] = {
    QWEN_MOE_FIELDS, CODE_FIELD("attention_bias"), FIELDS_END};

/* text_config of Qwen3-VL with experts; its class divides the weights of the
 * chosen by their sum whatever norm_topk_prob says. */
static const loong_hf_field_t qwen3_vl_moe_fields[] = {
    ROTARY_FIELDS, CODE_FIELD("num_experts"), CODE_FIELD("num_local_experts"),
    INT_FIELD("num_experts_per_tok", "moe_router_topk", "4"),
    INT_FIELD("moe_intermediate_size", "moe_ffn_hidden_size", "1408"),
    CODE_FIELD("norm_topk_prob"), CODE_FIELD("decoder_sparse_step"),
    CODE_FIELD("mlp_only_layers"), CODE_FIELD("attention_bias"),
    CODE_FIELD("mrope_section"), CODE_FIELD("mrope_interleaved"),
    CODE_FIELD("num_deep_features"), FIELDS_END};

static const loong_hf_field_t qwen2_moe_fields[] = {
    QWEN_MOE_FIELDS, CODE_FIELD("qkv_bias"),
    INT_FIELD("shared_expert_intermediate_size",
              "moe_shared_expert_intermediate_size", NULL),
    FIELDS_END};

static const loong_hf_field_t mixtral_fields[] = {
    ROTARY_FIELDS_EPS("1e-05"),
    CODE_FIELD("sliding_window"),
    INT_FIELD("num_local_experts", "num_experts", "8"),
    INT_FIELD("num_experts_per_tok", "moe_router_topk", "2"),
    FIELDS_END};

/* use_bias is one on every linear layer. */
static const loong_hf_field_t ernie4_5_fields[] = {
    ROTARY_CORE("1e-05"), CODE_FIELD("use_bias"),
    NEUTRAL_FIELD("attention_dropout", "0.0|0"),
    NEUTRAL_FIELD("compression_ratio", "1.0|1"), CODE_FIELD("auto_map"),
    FIELDS_END};

/* Models with code of their own beside them: auto_map names it. */
static const loong_hf_field_t internlm2_fields[] = {
    ROTARY_CORE("1e-06"), CODE_FIELD("bias"), CODE_FIELD("auto_map"),
    FIELDS_END};

static const loong_hf_field_t mimo_fields[] = {
    QWEN_FIELDS, NEUTRAL_FIELD("attention_bias", "true"),
    CODE_FIELD("num_nextn_predict_layers"), CODE_FIELD("auto_map"),
    FIELDS_END};

/* use_dynamic_ntk and use_logn_attn change inference beyond seq_length
 * alone. */
static const loong_hf_field_t qwen_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", NULL),
    INT_FIELD("hidden_size", "hidden_size", NULL),
    CODE_FIELD("intermediate_size"),
    INT_FIELD("num_attention_heads", "num_attention_heads", NULL),
    INT_FIELD("kv_channels", "kv_channels", "128"),
    INT_FIELD("vocab_size", "vocab_size", NULL),
    INT_FIELD("seq_length", "max_position_embeddings", NULL),
    CODE_FIELD("max_position_embeddings"),
    REAL_FIELD("rotary_emb_base", "rotary_base", "10000"),
    REAL_FIELD("rotary_pct", "rotary_percent", "1"),
    REAL_FIELD("layer_norm_epsilon", "layernorm_epsilon", "1e-06"),
    CODE_FIELD("tie_word_embeddings"),
    REAL_FIELD("attn_dropout_prob", "attention_dropout", "0"),
    REAL_FIELD("emb_dropout_prob", "embedding_dropout", "0"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    NEUTRAL_FIELD("no_bias", "true"),
    NEUTRAL_FIELD("scale_attn_weights", "true"),
    CODE_FIELD("use_dynamic_ntk"),
    CODE_FIELD("use_logn_attn"),
    CODE_FIELD("bf16"),
    CODE_FIELD("fp16"),
    CODE_FIELD("fp32"),
    CODE_FIELD("softmax_in_fp32"),
    CODE_FIELD("use_flash_attn"),
    CODE_FIELD("use_cache_quantization"),
    CODE_FIELD("use_cache_kernel"),
    CODE_FIELD("onnx_safe"),
    CODE_FIELD("auto_map"),
    FIELDS_END};

/* What the published files of a family have besides. */
#define DEEPSEEK_FIELDS                                                     \
    ROTARY_FIELDS, CODE_FIELD("q_lora_rank"),                               \
        INT_FIELD("kv_lora_rank", "kv_lora_rank", "512"),                   \
        INT_FIELD("qk_nope_head_dim", "qk_head_dim", "128"),                \
        INT_FIELD("qk_rope_head_dim", "qk_pos_emb_head_dim", "64"),         \
        INT_FIELD("v_head_dim", "v_head_dim", "128"),                       \
        CODE_FIELD("qk_head_dim"), CODE_FIELD("n_routed_experts"),          \
        CODE_FIELD("n_shared_experts"), CODE_FIELD("moe_intermediate_size"), \
        CODE_FIELD("num_experts_per_tok"), CODE_FIELD("n_group"),           \
        CODE_FIELD("topk_group"), CODE_FIELD("first_k_dense_replace"),      \
        CODE_FIELD("routed_scaling_factor"), CODE_FIELD("ep_size"),         \
        CODE_FIELD("aux_loss_alpha"), CODE_FIELD("seq_aux"),                \
        CODE_FIELD("attention_bias"),                                       \
        CODE_FIELD("auto_map"), NEUTRAL_FIELD("moe_layer_freq", "1")

static const loong_hf_field_t deepseek_v2_fields[] = {
    DEEPSEEK_FIELDS, CODE_FIELD("topk_method"),
    NEUTRAL_FIELD("scoring_func", "\"softmax\""),
    NEUTRAL_FIELD("norm_topk_prob", "false"), FIELDS_END};

static const loong_hf_field_t deepseek_v3_fields[] = {
    DEEPSEEK_FIELDS, NEUTRAL_FIELD("topk_method", "\"noaux_tc\""),
    NEUTRAL_FIELD("scoring_func", "\"sigmoid\""),
    CODE_FIELD("norm_topk_prob"),
    BOOL_FIELD("rope_interleave", "rotary_interleaved", "true"),
    CODE_FIELD("num_nextn_predict_layers"), CODE_FIELD("num_mtp_layers"),
    FIELDS_END};

static const loong_hf_field_t ernie4_5_moe_fields[] = {
    ROTARY_CORE("1e-05"), NEUTRAL_FIELD("attention_dropout", "0.0|0"),
    NEUTRAL_FIELD("compression_ratio", "1.0|1"),
    NEUTRAL_FIELD("use_bias", "false"),
    INT_FIELD("moe_k", "moe_router_topk", "6"),
    INT_FIELD("moe_num_experts", "num_experts", "64"),
    INT_FIELD("moe_intermediate_size", "moe_ffn_hidden_size", "1536"),
    CODE_FIELD("moe_num_shared_experts"), CODE_FIELD("moe_layer_start_index"),
    CODE_FIELD("moe_layer_end_index"),
    NEUTRAL_FIELD("moe_layer_interval", "1"),
    NEUTRAL_FIELD("moe_norm_min", "1e-12"), CODE_FIELD("moe_capacity"),
    NEUTRAL_FIELD("moe_gate", "\"topk\""),
    NEUTRAL_FIELD("moe_use_aux_free", "true"), CODE_FIELD("auto_map"),
    CODE_FIELD("num_nextn_predict_layers"), FIELDS_END};

/* Of text_config, and of the file that has it, with the ids of images. */
#define ERNIE_VL_FIELDS                                                  \
    ROTARY_CORE("1e-05"), CODE_FIELD("mrope_section"),                   \
        NEUTRAL_FIELD("use_bias", "false"),                              \
        INT_FIELD("moe_k", "moe_router_topk", "6"),                      \
        INT_FIELD("moe_num_experts", "num_experts", "64"),               \
        CODE_FIELD("moe_intermediate_size"),                             \
        CODE_FIELD("moe_num_shared_experts"),                            \
        NEUTRAL_FIELD("moe_norm_min", "1e-12"), CODE_FIELD("mlp_layer_types")
static const loong_hf_field_t ernie4_5_vl_moe_text_fields[] = {ERNIE_VL_FIELDS,
                                                               FIELDS_END};
static const loong_hf_field_t ernie4_5_vl_moe_fields[] = {
    ERNIE_VL_FIELDS, CODE_FIELD("text_config"), FIELDS_END};

/* The publisher's own file of such a model: all side by side, a number for
 * texts and one for images. */
static const loong_hf_field_t ernie4_5_moe_vl_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", NULL),
    INT_FIELD("hidden_size", "hidden_size", NULL),
    INT_FIELD("intermediate_size", "ffn_hidden_size", NULL),
    INT_FIELD("num_attention_heads", "num_attention_heads", NULL),
    CODE_FIELD("num_key_value_heads"), CODE_FIELD("head_dim"),
    INT_FIELD("vocab_size", "vocab_size", NULL),
    INT_FIELD("max_position_embeddings", "max_position_embeddings", "131072"),
    CODE_FIELD("rope_theta"), CODE_FIELD("rope_scaling"),
    CODE_FIELD("rope_parameters"), CODE_FIELD("mrope_section"),
    CODE_FIELD("freq_allocation"), NEUTRAL_FIELD("rope_3d", "true"),
    REAL_FIELD("rms_norm_eps", "layernorm_epsilon", "1e-05"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("hidden_act"), CODE_FIELD("tie_word_embeddings"),
    NEUTRAL_FIELD("use_bias", "false"),
    NEUTRAL_FIELD("compression_ratio", "1.0|1"),
    INT_FIELD("moe_k", "moe_router_topk", "6"), CODE_FIELD("moe_num_experts"),
    CODE_FIELD("moe_intermediate_size"), CODE_FIELD("moe_num_shared_experts"),
    CODE_FIELD("moe_layer_start_index"), CODE_FIELD("moe_layer_end_index"),
    NEUTRAL_FIELD("moe_layer_interval", "1"),
    NEUTRAL_FIELD("moe_gate", "\"topk\"|\"top2_fused\""),
    NEUTRAL_FIELD("moe_use_aux_free", "true"),
    NEUTRAL_FIELD("moe_norm_min", "1e-12"),
    NEUTRAL_FIELD("num_nextn_predict_layers", "0"),
    /* of what sees images */
    CODE_FIELD("vision_config"), CODE_FIELD("im_patch_id"),
    CODE_FIELD("pixel_hidden_size"), CODE_FIELD("spatial_conv_size"),
    CODE_FIELD("temporal_conv_size"),
    NEUTRAL_FIELD("use_temporal_conv", "true"),
    CODE_FIELD("mm_vocab_size"), CODE_FIELD("max_text_id"),
    CODE_FIELD("auto_map"), FIELDS_END};

static const loong_hf_field_t minimax_m2_fields[] = {
    ROTARY_FIELDS, INT_FIELD("num_local_experts", "num_experts", "256"),
    INT_FIELD("num_experts_per_tok", "moe_router_topk", "8"),
    CODE_FIELD("partial_rotary_factor"), CODE_FIELD("rotary_dim"),
    NEUTRAL_FIELD("scoring_func", "\"sigmoid\""),
    NEUTRAL_FIELD("use_qk_norm", "true"),
    NEUTRAL_FIELD("use_routing_bias", "true"),
    NEUTRAL_FIELD("qk_norm_type", "\"per_layer\""),
    NEUTRAL_FIELD("shared_intermediate_size", "0"),
    NEUTRAL_FIELD("layernorm_full_attention_beta", "1.0|1"),
    NEUTRAL_FIELD("layernorm_linear_attention_beta", "1.0|1"),
    NEUTRAL_FIELD("layernorm_mlp_beta", "1.0|1"),
    NEUTRAL_FIELD("sliding_window", "null"), CODE_FIELD("shared_moe_mode"),
    CODE_FIELD("mlp_intermediate_size"), CODE_FIELD("mtp_transformer_layers"),
    CODE_FIELD("num_mtp_modules"), CODE_FIELD("use_mtp"),
    CODE_FIELD("max_model_len"), CODE_FIELD("attn_type_list"),
    CODE_FIELD("auto_map"), FIELDS_END};

#define ROTARY_FIXED                                                   \
    {"position_embedding_type", "rope"}, {"normalization", "RMSNorm"}, \
        {"activation", "swiglu"}, {"hidden_dropout", "0.0"},           \
    {                                                                  \
        "embedding_dropout", "0.0"                                     \
    }

static const loong_hf_fixed_t gemma_fixed[] = {
    {"position_embedding_type", "rope"},
    {"normalization", "RMSNorm1p"},
    {"activation", "geglu_tanh"},
    {"scale_embeddings", "true"},
    {"bidirectional_prefix", "false"},
    {"hidden_dropout", "0.0"},
    {"embedding_dropout", "0.0"},
    {"qk_layernorm", "false"},
    {NULL, NULL}};

#define GLM_FIXED                                                      \
    ROTARY_FIXED, {"qk_layernorm", "false"},                           \
        {"rotary_interleaved", "true"}, {"add_bias_linear", "false"},  \
    {                                                                  \
        "add_attn_proj_bias", "false"                                  \
    }
static const loong_hf_fixed_t glm_fixed[] = {
    GLM_FIXED, {"sandwich_norm", "false"}, {NULL, NULL}};
#define GLM4_FIXED GLM_FIXED, {"sandwich_norm", "true"}
static const loong_hf_fixed_t glm4_fixed[] = {GLM4_FIXED, {NULL, NULL}};
static const loong_hf_fixed_t glm4v_fixed[] = {
    GLM4_FIXED, {"add_qkv_bias", "true"}, {NULL, NULL}};

#define NO_BIASES                                              \
    {"add_bias_linear", "false"}, {"add_qkv_bias", "false"},   \
    {                                                          \
        "add_attn_proj_bias", "false"                          \
    }

static const loong_hf_fixed_t gpt2_fixed[] = {
    {"position_embedding_type", "learned_absolute"},
    {"normalization", "LayerNorm"},
    {"qk_layernorm", "false"},
    {"add_bias_linear", "true"},
    {"add_qkv_bias", "true"},
    {"add_attn_proj_bias", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t llama_fixed[] = {
    ROTARY_FIXED, {"qk_layernorm", "false"}, {NULL, NULL}};

static const loong_hf_fixed_t mistral_fixed[] = {
    ROTARY_FIXED, NO_BIASES, {"qk_layernorm", "false"}, {NULL, NULL}};

static const loong_hf_fixed_t phi3_fixed[] = {
    {"position_embedding_type", "rope"},
    {"normalization", "RMSNorm"},
    {"activation", "swiglu"},
    {"embedding_dropout", "0.0"},
    {"qk_layernorm", "false"},
    NO_BIASES,
    {NULL, NULL}};

static const loong_hf_fixed_t qwen2_fixed[] = {ROTARY_FIXED,
                                               {"qk_layernorm", "false"},
                                               {"add_bias_linear", "false"},
                                               {"add_qkv_bias", "true"},
                                               {"add_attn_proj_bias", "false"},
                                               {NULL, NULL}};

static const loong_hf_fixed_t qwen3_fixed[] = {ROTARY_FIXED,
                                               {"qk_layernorm", "true"},
                                               {"add_bias_linear", "false"},
                                               {NULL, NULL}};

static const loong_hf_fixed_t qwen3_vl_fixed[] = {
    ROTARY_FIXED,
    {"qk_layernorm", "true"},
    {"add_bias_linear", "false"},
    {"mrope_interleaved", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t ernie4_5_fixed[] = {
    ROTARY_FIXED,
    {"qk_layernorm", "false"},
    {"rotary_interleaved", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t internlm2_fixed[] = {
    ROTARY_FIXED,
    {"qk_layernorm", "false"},
    {"add_bias_linear", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t qwen_fixed[] = {
    {"position_embedding_type", "rope"},
    {"normalization", "RMSNorm"},
    {"activation", "swiglu"},
    {"hidden_dropout", "0.0"},
    {"qk_layernorm", "false"},
    {"add_bias_linear", "false"},
    {"add_qkv_bias", "true"},
    {"add_attn_proj_bias", "false"},
    {NULL, NULL}};

#define MOE_FIXED                                                      \
    ROTARY_FIXED, {"add_bias_linear", "false"},                        \
        {"moe_router_score_function", "softmax"},                      \
        {"moe_router_num_groups", "0"}, {"moe_router_group_topk", "0"}, \
    {                                                                  \
        "moe_router_topk_scaling_factor", "1"                          \
    }

static const loong_hf_fixed_t qwen3_moe_fixed[] = {
    MOE_FIXED,
    {"qk_layernorm", "true"},
    {"moe_shared_expert_gate", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t qwen3_vl_moe_fixed[] = {
    MOE_FIXED,
    {"qk_layernorm", "true"},
    {"moe_router_pre_softmax", "false"},
    {"moe_shared_expert_gate", "false"},
    {"mrope_interleaved", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t qwen2_moe_fixed[] = {
    MOE_FIXED,
    {"qk_layernorm", "false"},
    {"add_attn_proj_bias", "false"},
    {"moe_shared_expert_gate", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t mixtral_fixed[] = {
    MOE_FIXED,
    {"qk_layernorm", "false"},
    {"add_qkv_bias", "false"},
    {"add_attn_proj_bias", "false"},
    {"moe_router_pre_softmax", "false"},
    {"moe_shared_expert_gate", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t deepseek_v2_fixed[] = {
    ROTARY_FIXED,
    {"add_bias_linear", "false"},
    {"qk_layernorm", "false"},
    {"rotary_interleaved", "true"},
    {NULL, NULL}};

static const loong_hf_fixed_t deepseek_v3_fixed[] = {
    ROTARY_FIXED,
    {"add_bias_linear", "false"},
    {"qk_layernorm", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t ernie4_5_moe_fixed[] = {
    MOE_FIXED,
    {"add_qkv_bias", "false"},
    {"add_attn_proj_bias", "false"},
    {"qk_layernorm", "false"},
    {"rotary_interleaved", "true"},
    {"moe_router_pre_softmax", "false"},
    {"moe_router_enable_expert_bias", "true"},
    {"moe_shared_expert_gate", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t minimax_m2_fixed[] = {
    ROTARY_FIXED,
    NO_BIASES,
    {"qk_layernorm", "true"},
    {"qk_layernorm_whole", "true"},
    {"moe_router_score_function", "sigmoid"},
    {"moe_router_pre_softmax", "false"},
    {"moe_router_num_groups", "0"},
    {"moe_router_group_topk", "0"},
    {"moe_router_topk_scaling_factor", "1"},
    {"moe_router_enable_expert_bias", "true"},
    {"moe_shared_expert_gate", "false"},
    {NULL, NULL}};

const loong_hf_type_t loongi_hf_decoder_types[] = {
    {"gpt2", "GPT2LMHeadModel", "gpt2", gpt2_fields, gpt2_fixed, 0.0, true,
     false},
    {"llama", "LlamaForCausalLM", "llama", llama_fields, llama_fixed, 1e4,
     false, false},
    {"mistral", "MistralForCausalLM", "llama", mistral_fields, mistral_fixed,
     1e4, false, true},
    {"phi3", "Phi3ForCausalLM", "phi3", phi3_fields, phi3_fixed, 1e4, false,
     false},
    {"qwen", "QWenLMHeadModel", "qwen", qwen_fields, qwen_fixed, 1e4, false,
     false},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", qwen2_fields, qwen2_fixed, 1e4,
     false, true},
    {"qwen2_vl_text", "Qwen2VLForConditionalGeneration", "qwen2",
     qwen2_vl_fields, qwen2_fixed, 1e6, false, true},
    {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", "qwen2",
     qwen2_vl_fields, qwen2_fixed, 1e6, false, true},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", qwen3_fields, qwen3_fixed, 1e4,
     false, true},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", "qwen3",
     qwen3_vl_fields, qwen3_vl_fixed, 5e5, false, true},
    {"LLaVAOneVision1_5_text", "LLaVAOneVision1_5_ForConditionalGeneration",
     "qwen3", qwen3_fields, qwen3_fixed, 5e6, false, true},
    {"internlm2", "InternLM2ForCausalLM", "internlm2", internlm2_fields,
     internlm2_fixed, 1e4, false, false},
    {"mimo", "MiMoForCausalLM", "mimo", mimo_fields, qwen2_fixed, 1e4, false,
     true},
    {"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", ernie4_5_fields,
     ernie4_5_fixed, 5e5, true, true},
    {"gemma", "GemmaForCausalLM", "gemma", gemma_fields, gemma_fixed, 1e4, true,
     true},
    {"glm", "GlmForCausalLM", "glm", glm_fields, glm_fixed, 1e4, false, true},
    {"glm4", "Glm4ForCausalLM", "glm4", glm_fields, glm4_fixed, 1e4, false,
     true},
    {"glm4v_text", "Glm4vForConditionalGeneration", "glm4", glm4v_fields,
     glm4v_fixed, 1e4, false, true},
    {"mixtral", "MixtralForCausalLM", "mixtral", mixtral_fields, mixtral_fixed,
     1e6, false, true},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "qwen2_moe", qwen2_moe_fields,
     qwen2_moe_fixed, 1e4, false, true},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "qwen3_moe", qwen3_moe_fields,
     qwen3_moe_fixed, 1e4, false, true},
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", "qwen3_moe",
     qwen3_vl_moe_fields, qwen3_vl_moe_fixed, 5e5, false, true},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe",
     ernie4_5_moe_fields, ernie4_5_moe_fixed, 5e5, true, true},
    {"ernie4_5_vl_moe", "Ernie4_5_VLMoeForConditionalGeneration",
     "ernie4_5_vl_moe", ernie4_5_vl_moe_fields, ernie4_5_moe_fixed, 5e5, true,
     true},
    {"ernie4_5_vl_moe_text", "Ernie4_5_VLMoeForConditionalGeneration",
     "ernie4_5_vl_moe", ernie4_5_vl_moe_text_fields, ernie4_5_moe_fixed, 5e5,
     true, true},
    {"ernie4_5_moe_vl", "Ernie4_5_VLMoeForConditionalGeneration",
     "ernie4_5_vl_moe", ernie4_5_moe_vl_fields, ernie4_5_moe_fixed, 5e5,
     false, true},
    {"minimax_m2", "MiniMaxM2ForCausalLM", "minimax_m2", minimax_m2_fields,
     minimax_m2_fixed, 5e6, false, true},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "deepseek_v2", deepseek_v2_fields,
     deepseek_v2_fixed, 1e4, false, false},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "deepseek_v3", deepseek_v3_fields,
     deepseek_v3_fixed, 1e4, false, false},
    {"kimi_k2", "DeepseekV3ForCausalLM", "kimi_k2", deepseek_v3_fields,
     deepseek_v3_fixed, 1e4, false, false},
    {.model_type = NULL}};
