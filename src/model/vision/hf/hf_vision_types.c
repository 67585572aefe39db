/* SPDX-License-Identifier: Apache-2.0
 *
 * The model types of vision transformers, a table for each. Fallbacks are the
 * defaults of the classes in transformers. A part of hf_vision.c's
 * loong_hf_kind_t; read hf_family.h before. */
#include "hf_rows.h"
#include "hf_vision.h"

#define FIELDS(patch_, eps_)                                           \
    INT_FIELD("num_hidden_layers", "num_layers", "12"),                \
        INT_FIELD("hidden_size", "hidden_size", "768"),                \
        INT_FIELD("intermediate_size", "ffn_hidden_size", "3072"),     \
        INT_FIELD("num_attention_heads", "num_attention_heads", "12"), \
        INT_FIELD("image_size", "image_size", "224"),                  \
        INT_FIELD("patch_size", "patch_size", patch_),                 \
        INT_FIELD("num_channels", "num_channels", "3"),                \
        REAL_FIELD("layer_norm_eps", "layernorm_epsilon", eps_),       \
        CODE_FIELD("hidden_act")

static const loong_hf_field_t vit_fields[] = {
    FIELDS("16", "1e-12"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    NEUTRAL_FIELD("qkv_bias", "true"),
    NEUTRAL_FIELD("hidden_dropout_prob", "0|0.0"),
    NEUTRAL_FIELD("attention_probs_dropout_prob", "0|0.0"),
    CODE_FIELD("encoder_stride"),
    CODE_FIELD("pooler_act"),
    CODE_FIELD("pooler_output_size"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t clip_fields[] = {
    FIELDS("32", "1e-05"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    NEUTRAL_FIELD("dropout", "0|0.0"),
    CODE_FIELD("projection_dim"),
    CODE_FIELD("initializer_factor"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t siglip_fields[] = {
    FIELDS("16", "1e-06"), NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    CODE_FIELD("vision_use_head"), CODE_FIELD(NULL)};
static const loong_hf_field_t qwen2_vl_fields[] = {
    INT_FIELD("depth", "num_layers", "32"),
    INT_FIELD("embed_dim", "hidden_size", "1280"),
    CODE_FIELD("mlp_ratio"),
    INT_FIELD("num_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    INT_FIELD("temporal_patch_size", "temporal_patch_size", "2"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("in_channels", "3"),
    NEUTRAL_FIELD("in_chans", "3"),
    CODE_FIELD("spatial_patch_size"),
    CODE_FIELD("rope_parameters"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t ernie4_5_vl_fields[] = {
    INT_FIELD("depth", "num_layers", "32"),
    INT_FIELD("hidden_size", "hidden_size", "1280"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "5120"),
    INT_FIELD("num_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    REAL_FIELD("rms_norm_eps", "layernorm_epsilon", "1e-06"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("in_channels", "3"),
    CODE_FIELD("rope_parameters"),
    CODE_FIELD(NULL)};
/* As its publisher has it; how it is trained there is no part of it. */
static const loong_hf_field_t dfn_rope_fields[] = {
    INT_FIELD("depth", "num_layers", "32"),
    INT_FIELD("hidden_size", "hidden_size", "1280"),
    CODE_FIELD("embed_dim"),
    CODE_FIELD("mlp_ratio"),
    INT_FIELD("num_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("in_channels", "3"),
    CODE_FIELD("spatial_merge_size"),
    CODE_FIELD("attn_sep"),
    CODE_FIELD("pp_data_balance"),
    CODE_FIELD("recompute"),
    CODE_FIELD("vit_first_fwd_bsz"),
    CODE_FIELD("vit_num_recompute_layers"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t qwen2_5_vl_fields[] = {
    INT_FIELD("depth", "num_layers", "32"),
    INT_FIELD("hidden_size", "hidden_size", "3584"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "3420"),
    INT_FIELD("num_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    INT_FIELD("temporal_patch_size", "temporal_patch_size", "2"),
    INT_FIELD("window_size", "window_size", "112"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("fullatt_block_indexes"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("in_channels", "3"),
    NEUTRAL_FIELD("in_chans", "3"),
    CODE_FIELD("spatial_patch_size"),
    INT_FIELD("tokens_per_second", "tokens_per_second", "4"),
    CODE_FIELD("rope_parameters"),
    CODE_FIELD(NULL)};
#define QWEN3_FIELDS                                                    \
    INT_FIELD("depth", "num_layers", "27"),                             \
        INT_FIELD("hidden_size", "hidden_size", "1152"),                \
        INT_FIELD("intermediate_size", "ffn_hidden_size", "4304"),      \
        INT_FIELD("num_heads", "num_attention_heads", "16"),            \
        INT_FIELD("patch_size", "patch_size", "16"),                    \
        INT_FIELD("temporal_patch_size", "temporal_patch_size", "2"),   \
        INT_FIELD("num_position_embeddings", "num_position_embeddings", \
                  "2304"),                                              \
        REAL_FIELD("initializer_range", "init_method_std", "0.02"),     \
        CODE_FIELD("hidden_act"), NEUTRAL_FIELD("in_channels", "3"),    \
        CODE_FIELD("rope_parameters")
static const loong_hf_field_t qwen3_vl_fields[] = {
    QWEN3_FIELDS,
    LIST_FIELD("deepstack_visual_indexes", "deepstack_layers", "[8,16,24]"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t qwen3_5_fields[] = {QWEN3_FIELDS,
                                                  CODE_FIELD(NULL)};
/* Norms of queries and keys have the class' own epsilon, which others' is. */
static const loong_hf_field_t internvl_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", "24"),
    INT_FIELD("hidden_size", "hidden_size", "1024"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "4096"),
    INT_FIELD("num_attention_heads", "num_attention_heads", "16"),
    SQUARE_FIELD("image_size", "image_size", "448"),
    SQUARE_FIELD("patch_size", "patch_size", "14"),
    INT_FIELD("num_channels", "num_channels", "3"),
    BOOL_FIELD("attention_bias", "add_qkv_bias", "false"),
    BOOL_FIELD("use_qk_norm", "qk_layernorm", "false"),
    WORD_FIELD("norm_type", "normalization",
               "layer_norm=LayerNorm|rms_norm=RMSNorm"),
    REAL_FIELD("layer_scale_init_value", "layer_scale_init_value", "0.1"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("initializer_factor"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("layer_norm_eps", "1e-06"),
    NEUTRAL_FIELD("dropout", "0|0.0"),
    NEUTRAL_FIELD("hidden_dropout_prob", "0|0.0"),
    NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    NEUTRAL_FIELD("projection_dropout", "0|0.0"),
    NEUTRAL_FIELD("use_mask_token", "false"),
    NEUTRAL_FIELD("use_absolute_position_embeddings", "true"),
    NEUTRAL_FIELD("use_mean_pooling", "true"),
    CODE_FIELD(NULL)};
/* Of 300M parameters too. What its files say of experts is read where use_moe
 * is true alone; drop_path_rate is of training. */
static const loong_hf_field_t intern_vit_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", "48"),
    INT_FIELD("hidden_size", "hidden_size", "3200"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "12800"),
    INT_FIELD("num_attention_heads", "num_attention_heads", "25"),
    INT_FIELD("image_size", "image_size", "224"),
    INT_FIELD("patch_size", "patch_size", "14"),
    INT_FIELD("num_channels", "num_channels", "3"),
    BOOL_FIELD("qkv_bias", "add_qkv_bias", "false"),
    BOOL_FIELD("qk_normalization", "qk_layernorm", "true"),
    WORD_FIELD("norm_type", "normalization",
               "rms_norm=RMSNorm|layer_norm=LayerNorm"),
    REAL_FIELD("initializer_factor", "layer_scale_init_value", "0.1"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("layer_norm_eps", "1e-06"),
    NEUTRAL_FIELD("dropout", "0|0.0"),
    NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    CODE_FIELD("drop_path_rate"),
    CODE_FIELD("use_flash_attn"),
    CODE_FIELD("auto_map"),
    NEUTRAL_FIELD("use_moe", "false"),
    CODE_FIELD("capacity_factor"),
    CODE_FIELD("eval_capacity_factor"),
    CODE_FIELD("laux_allreduce"),
    CODE_FIELD("moe_coeff_ratio"),
    CODE_FIELD("moe_intermediate_size"),
    CODE_FIELD("moe_output_scale"),
    CODE_FIELD("noisy_gate_policy"),
    CODE_FIELD("num_experts"),
    CODE_FIELD("num_routed_experts"),
    CODE_FIELD("num_shared_experts"),
    CODE_FIELD("shared_expert_intermediate_size"),
    CODE_FIELD("use_residual"),
    CODE_FIELD("use_rts"),
    CODE_FIELD("use_weighted_residual"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t kimi_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", "27"),
    INT_FIELD("hidden_size", "hidden_size", "1152"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "4304"),
    INT_FIELD("num_attention_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    CODE_FIELD("pos_emb_height"),
    CODE_FIELD("pos_emb_width"),
    INT_FIELD("pos_emb_time", "chunk_frames", "4"),
    CODE_FIELD("hidden_act"),
    CODE_FIELD("rope_parameters"),
    CODE_FIELD(NULL)};
/* The publisher's; what its code can be otherwise is neutral. */
static const loong_hf_field_t moonvit_fields[] = {
    INT_FIELD("vt_num_hidden_layers", "num_layers", "27"),
    INT_FIELD("vt_hidden_size", "hidden_size", "1152"),
    INT_FIELD("vt_intermediate_size", "ffn_hidden_size", "4304"),
    INT_FIELD("vt_num_attention_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    CODE_FIELD("init_pos_emb_height"),
    CODE_FIELD("init_pos_emb_width"),
    INT_FIELD("init_pos_emb_time", "chunk_frames", "4"),
    NEUTRAL_FIELD("pos_emb_type", "\"divided_fixed\""),
    NEUTRAL_FIELD("video_attn_type", "\"spatial_temporal\""),
    NEUTRAL_FIELD("merge_type", "\"sd2_tpool\""),
    CODE_FIELD(NULL)};
/* Norms of layers have an epsilon of the class' own. */
static const loong_hf_field_t rice_fields[] = {
    INT_FIELD("depth", "num_layers", "24"),
    INT_FIELD("hidden_size", "hidden_size", "1024"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "4096"),
    INT_FIELD("num_heads", "num_attention_heads", "16"),
    INT_FIELD("patch_size", "patch_size", "14"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("hidden_act"),
    CODE_FIELD("embed_dim"),
    NEUTRAL_FIELD("in_channels", "3"),
    NEUTRAL_FIELD("temporal_patch_size", "1"),
    NEUTRAL_FIELD("layer_norm_eps", "1e-05"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t siglip2_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", "12"),
    INT_FIELD("hidden_size", "hidden_size", "768"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "3072"),
    INT_FIELD("num_attention_heads", "num_attention_heads", "12"),
    INT_FIELD("patch_size", "patch_size", "16"),
    INT_FIELD("num_patches", "num_position_embeddings", "256"),
    INT_FIELD("num_channels", "num_channels", "3"),
    REAL_FIELD("layer_norm_eps", "layernorm_epsilon", "1e-06"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    CODE_FIELD("vision_use_head"),
    CODE_FIELD(NULL)};
static const loong_hf_field_t minicpmv_fields[] = {
    INT_FIELD("num_hidden_layers", "num_layers", "12"),
    INT_FIELD("hidden_size", "hidden_size", "768"),
    INT_FIELD("intermediate_size", "ffn_hidden_size", "3072"),
    INT_FIELD("num_attention_heads", "num_attention_heads", "12"),
    SQUARE_FIELD("patch_size", "patch_size", "16"),
    INT_FIELD("num_channels", "num_channels", "3"),
    REAL_FIELD("layer_norm_eps", "layernorm_epsilon", "1e-06"),
    INT_FIELD("insert_layer_id", "merger_layer", "6"),
    NEUTRAL_FIELD("window_kernel_size", "[2,2]"),
    NEUTRAL_FIELD("attention_dropout", "0|0.0"),
    CODE_FIELD("image_size"),
    CODE_FIELD("hidden_act"),
    CODE_FIELD(NULL)};
/* intermediate_size is the projector's, out_hidden_size the width of the
 * encoder's feed-forward as well. */
static const loong_hf_field_t glm4v_fields[] = {
    INT_FIELD("depth", "num_layers", "24"),
    INT_FIELD("hidden_size", "hidden_size", "1536"),
    INT_FIELD("out_hidden_size", "ffn_hidden_size", "4096"),
    INT_FIELD("num_heads", "num_attention_heads", "12"),
    SQUARE_FIELD("patch_size", "patch_size", "14"),
    INT_FIELD("temporal_patch_size", "temporal_patch_size", "2"),
    BOOL_FIELD("attention_bias", "add_qkv_bias", "false"),
    REAL_FIELD("rms_norm_eps", "layernorm_epsilon", "1e-05"),
    REAL_FIELD("initializer_range", "init_method_std", "0.02"),
    CODE_FIELD("image_size"),
    CODE_FIELD("hidden_act"),
    NEUTRAL_FIELD("in_channels", "3"),
    NEUTRAL_FIELD("attention_dropout", "0.0|0"),
    NEUTRAL_FIELD("hidden_dropout_prob", "0.0|0"),
    CODE_FIELD("rope_parameters"),
    CODE_FIELD(NULL)};
/* What the classes compute, beside their sizes. */
static const loong_hf_fixed_t vit_fixed[] = {{"add_class_token", "true"},
                                             {"add_patch_bias", "true"},
                                             {"pre_layernorm", "false"},
                                             {"post_layernorm", "true"},
                                             {"pooling", "class_token"},
                                             {"add_classifier_bias", "true"},
                                             {NULL, NULL}};
static const loong_hf_fixed_t clip_fixed[] = {
    {"add_class_token", "true"},
    {"add_patch_bias", "false"},
    {"pre_layernorm", "true"},
    {"post_layernorm", "false"},
    {"pooling", "mean"},
    {"add_classifier_bias", "true"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};
static const loong_hf_fixed_t siglip_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "true"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"pooling", "mean"},
    {"add_classifier_bias", "true"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

#define QWEN_FIXED(norm_, patch_bias_)                             \
    {"add_class_token", "false"}, {"add_patch_bias", patch_bias_}, \
        {"pre_layernorm", "false"}, {"post_layernorm", "false"},   \
        {"position_embedding_type", "rope"}, {"image_size", "0"},  \
        {"normalization", norm_}, {"layernorm_epsilon", "1e-06"},  \
        {"rotary_base", "10000"},                                  \
    {                                                              \
        "masked_image_modeling", "false"                           \
    }
static const loong_hf_fixed_t qwen2_vl_fixed[] = {
    QWEN_FIXED("LayerNorm", "false"), {NULL, NULL}};
static const loong_hf_fixed_t qwen2_5_vl_fixed[] = {
    QWEN_FIXED("RMSNorm", "false"), {NULL, NULL}};
static const loong_hf_fixed_t qwen3_vl_fixed[] = {
    QWEN_FIXED("LayerNorm", "true"),
    {"position_interpolation", "bilinear"},
    {"position_align_corners", "true"},
    {NULL, NULL}};
#define qwen3_5_fixed qwen3_vl_fixed

static const loong_hf_fixed_t ernie4_5_vl_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "false"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"position_embedding_type", "rope"},
    {"image_size", "0"},
    {"normalization", "LayerNorm"},
    {"rotary_base", "10000"},
    {"temporal_patch_size", "1"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t kimi_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "true"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"position_embedding_type", "rope"},
    {"rotary_interleaved", "true"},
    {"rotary_base", "10000"},
    {"image_size", "0"},
    {"temporal_patch_size", "1"},
    {"position_interpolation", "bicubic"},
    {"position_align_corners", "false"},
    {"layernorm_epsilon", "1e-05"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t siglip2_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "true"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"position_embedding_type", "learned_absolute"},
    {"position_interpolation", "bilinear"},
    {"position_align_corners", "false"},
    {"position_antialias", "true"},
    {"patch_channels_last", "true"},
    {"image_size", "0"},
    {"temporal_patch_size", "1"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t rice_fixed[] = {
    {"add_class_token", "true"},
    {"add_patch_bias", "false"},
    {"pre_layernorm", "true"},
    {"post_layernorm", "false"},
    {"position_embedding_type", "rope"},
    {"rotary_class_token", "true"},
    {"rotary_base", "10000"},
    {"image_size", "0"},
    {"temporal_patch_size", "1"},
    {"layernorm_epsilon", "1e-05"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t minicpmv_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "true"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"position_embedding_type", "learned_absolute"},
    {"image_size", "0"},
    {"temporal_patch_size", "1"},
    {"position_interpolation", "nearest"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t glm4v_fixed[] = {
    {"add_class_token", "false"},
    {"add_patch_bias", "true"},
    {"patch_layernorm", "true"},
    {"add_attn_proj_bias", "false"},
    {"add_bias_linear", "false"},
    {"pre_layernorm", "false"},
    {"post_layernorm", "true"},
    {"position_embedding_type", "rope"},
    {"rotary_base", "10000"},
    {"image_size", "0"},
    {"position_interpolation", "bicubic"},
    {"position_align_corners", "false"},
    {"normalization", "RMSNorm"},
    {"masked_image_modeling", "false"},
    {NULL, NULL}};

static const loong_hf_fixed_t internvl_fixed[] = {
    {"add_class_token", "true"},        {"add_patch_bias", "true"},
    {"pre_layernorm", "false"},         {"post_layernorm", "false"},
    {"qk_layernorm_whole", "true"},     {"layernorm_epsilon", "1e-06"},
    {"masked_image_modeling", "false"}, {NULL, NULL}};

/* `architecture` is what the names of the type's classes begin with. */
#define TYPE(type_, class_, family_, of_)                               \
    {                                                                   \
        .model_type = type_, .architecture = class_, .family = family_, \
        .fields = of_##_fields, .fixed = of_##_fixed                    \
    }
const loong_hf_type_t loongi_hf_vision_types[] = {
    TYPE("vit", "ViT", "vit", vit),
    TYPE("clip_vision_model", "CLIP", "clip_vision_model", clip),
    TYPE("siglip_vision_model", "Siglip", "siglip_vision_model", siglip),
    TYPE("qwen2_vl_vision", "Qwen2VL", "qwen2_vl_vision", qwen2_vl),
    TYPE("qwen2_5_vl_vision", "Qwen2_5VL", "qwen2_5_vl_vision", qwen2_5_vl),
    TYPE("qwen3_vl_vision", "Qwen3VL", "qwen3_vl_vision", qwen3_vl),
    TYPE("qwen3_vl_moe_vision", "Qwen3VLMoe", "qwen3_vl_vision", qwen3_vl),
    TYPE("qwen3_5_vision", "Qwen3_5", "qwen3_vl_vision", qwen3_5),
    TYPE("qwen3_5_moe_vision", "Qwen3_5Moe", "qwen3_vl_vision", qwen3_5),
    TYPE("internvl_vision", "InternVLVision", "internvl_vision", internvl),
    {.model_type = "intern_vit_6b",
     .architecture = "InternVision",
     .family = "internvl_vision",
     .fields = intern_vit_fields,
     .fixed = internvl_fixed},
    TYPE("kimi_k25_vision", "Kimi_K25Vision", "kimi_k25_vision", kimi),
    {.model_type = "moonvit3d",
     .architecture = "MoonViT3d",
     .family = "kimi_k25_vision",
     .fields = moonvit_fields,
     .fixed = kimi_fixed},
    TYPE("rice_vit", "Rice", "rice_vit", rice),
    TYPE("siglip2_vision_model", "Siglip2", "siglip2_vision_model", siglip2),
    TYPE("siglip2", "Siglip2", "siglip2_vision_model", siglip2),
    TYPE("minicpmv4_6_vision", "MiniCPMV4_6Vision", "minicpmv4_6_vision",
         minicpmv),
    TYPE("glm4v_vision", "Glm4v", "glm4v_vision", glm4v),
    TYPE("ernie4_5_vl_moe_vision", "Ernie4_5_VLMoeVision", "ernie4_5_vl_vision",
         ernie4_5_vl),
    {.model_type = "DFNRope_vision_transformer",
     .architecture = "DFNRopeVisionTransformer",
     .family = "ernie4_5_vl_vision",
     .fields = dfn_rope_fields,
     .fixed = ernie4_5_vl_fixed},
    TYPE("clip", "CLIP", "clip_vision_model", clip),
    TYPE("siglip", "Siglip", "siglip_vision_model", siglip),
    {.model_type = NULL}};
