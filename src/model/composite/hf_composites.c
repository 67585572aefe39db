/* SPDX-License-Identifier: Apache-2.0
 *
 * Published models of several components. Called by
 * src/checkpoint/huggingface; read hf_composite.h before. */
#include "hf_composite.h"

#include "hf_rows.h"

#define TOP(field_)  \
    {                \
        NULL, field_ \
    }
#define IN(section_, field_) \
    {                        \
        section_, field_     \
    }
#define SIGNED_FIELD(name_, key_, fallback_)    \
    {                                           \
        name_, LOONG_HF_SIGNED, key_, fallback_ \
    }
#define SHARED_END TOP(FIELDS_END)
/* Of the heads of the encoders and of the language model alone, or said by
 * both. */
#define TIED TOP(CODE_FIELD("tie_word_embeddings"))

/* ---- LLaVA 1.5 (Liu et al. 2023) ----------------------------------------- */

/* Of LlamaConfig: the files of the first models leave them out. */
static const loong_hf_fixed_t llama_absent[] = {
    {"hidden_size", "4096"},
    {"intermediate_size", "11008"},
    {"num_hidden_layers", "32"},
    {"num_attention_heads", "32"},
    {"vocab_size", "32000"},
    {"max_position_embeddings", "2048"},
    {NULL, NULL}};
/* Kept and not computed, as the layers behind feature_layer. */
static const loong_hf_fixed_t llava_encoder[] = {{"post_layernorm", "true"},
                                                 {NULL, NULL}};
static const loong_hf_fixed_t llava_projector[] = {{"family", "mlp_projector"},
                                                   {NULL, NULL}};

static const loong_hf_shared_field_t llava_fields[] = {
    TOP(SIGNED_FIELD("vision_feature_layer", "image_encoder.feature_layer",
                     "-2")),
    TOP(WORD_FIELD("vision_feature_select_strategy",
                   "image_encoder.select_class_token",
                   "default=false|full=true")),
    TOP(NEUTRAL_FIELD("projector_hidden_act", "\"gelu\"")),
    TOP(NEUTRAL_FIELD("multimodal_projector_bias", "true")),
    TOP(CODE_FIELD("image_token_index")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("image_seq_length")),
    TOP(CODE_FIELD("ignore_index")),
    TOP(CODE_FIELD("vocab_size")),
    TIED,
    IN("vision_config", CODE_FIELD("vocab_size")),
    SHARED_END};

static const loong_hf_layout_t llava_layouts[] = {
    {{"vision_tower.vision_model.", "multi_modal_projector.",
      "language_model.model."},
     {NULL, NULL, "language_model."}},
    {{"vision_tower.", "multi_modal_projector.", "language_model.model."},
     {NULL, NULL, "language_model."}},
    {{"model.vision_tower.vision_model.", "model.multi_modal_projector.",
      "model.language_model."},
     {NULL, NULL, ""}},
    {{"model.vision_tower.", "model.multi_modal_projector.",
      "model.language_model."},
     {NULL, NULL, ""}}};

/* ---- LLaVA-OneVision (Li et al. 2024) ------------------------------------ */

static const loong_hf_fixed_t anyres_projector[] = {
    {"family", "anyres_projector"}, {NULL, NULL}};

static const loong_hf_shared_field_t onevision_fields[] = {
    TOP(SIGNED_FIELD("vision_feature_layer", "image_encoder.feature_layer",
                     "-1")),
    TOP(WORD_FIELD("vision_feature_select_strategy",
                   "image_encoder.select_class_token",
                   "full=true|default=false")),
    TOP(NEUTRAL_FIELD("projector_hidden_act", "\"gelu\"")),
    TOP(NEUTRAL_FIELD("multimodal_projector_bias", "true")),
    TOP(NEUTRAL_FIELD("vision_aspect_ratio", "\"anyres_max_9\"")),
    TOP(CODE_FIELD("image_grid_pinpoints")),
    TOP(CODE_FIELD("use_image_newline_parameter")),
    TOP(CODE_FIELD("image_token_index")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_index")),
    TOP(CODE_FIELD("video_token_id")),
    TOP(CODE_FIELD("ignore_index")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t onevision_layouts[] = {
    {{"vision_tower.vision_model.", "multi_modal_projector.",
      "language_model.model."},
     {NULL, "image_newline", "language_model."}},
    {{"vision_tower.", "multi_modal_projector.", "language_model.model."},
     {NULL, "image_newline", "language_model."}},
    {{"model.vision_tower.vision_model.", "model.multi_modal_projector.",
      "model.language_model."},
     {NULL, "model.image_newline", ""}},
    {{"model.vision_tower.", "model.multi_modal_projector.",
      "model.language_model."},
     {NULL, "model.image_newline", ""}}};

/* ---- Qwen2-VL (Wang et al. 2024) ----------------------------------------- */

static const loong_hf_fixed_t patch_merger[] = {{"family", "patch_merger"},
                                                {NULL, NULL}};

static const loong_hf_shared_field_t qwen2_vl_fields[] = {
    IN("vision_config",
       INT_FIELD("hidden_size", "image_projector.hidden_size", "3584")),
    IN("vision_config",
       INT_FIELD("spatial_merge_size", "image_projector.merge_size", "2")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_id")),
    TOP(CODE_FIELD("vision_start_token_id")),
    TOP(CODE_FIELD("vision_end_token_id")),
    TOP(CODE_FIELD("vision_token_id")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t qwen2_vl_layouts[] = {
    {{"visual.", "visual.merger.", "model."}, {NULL, NULL, ""}},
    {{"model.visual.", "model.visual.merger.", "model.language_model."},
     {NULL, NULL, ""}}};

/* ---- LLaVA-OneVision-1.5 (An et al. 2025) -------------------------------- */

static const loong_hf_fixed_t rice_merger[] = {{"family", "patch_merger"},
                                               {"layernorm_epsilon", "1e-05"},
                                               {NULL, NULL}};

static const loong_hf_shared_field_t onevision1_5_fields[] = {
    IN("vision_config",
       INT_FIELD("text_hidden_size", "image_projector.hidden_size", "2560")),
    IN("vision_config",
       INT_FIELD("spatial_merge_size", "image_projector.merge_size", "2")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_id")),
    TOP(CODE_FIELD("vision_start_token_id")),
    TOP(CODE_FIELD("vision_end_token_id")),
    TOP(CODE_FIELD("vocab_size")),
    IN("text_config", CODE_FIELD("image_token_id")),
    IN("text_config", CODE_FIELD("video_token_id")),
    TIED,
    SHARED_END};

/* ---- Qwen2.5-VL (Bai et al. 2025) ---------------------------------------- */

static const loong_hf_fixed_t qwen2_5_vl_merger[] = {
    {"family", "qwen2_5_vl_merger"}, {NULL, NULL}};

static const loong_hf_shared_field_t qwen2_5_vl_fields[] = {
    IN("vision_config",
       INT_FIELD("out_hidden_size", "image_projector.hidden_size", "3584")),
    IN("vision_config",
       INT_FIELD("spatial_merge_size", "image_projector.merge_size", "2")),
    IN("vision_config", CODE_FIELD("tokens_per_second")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_id")),
    TOP(CODE_FIELD("vision_start_token_id")),
    TOP(CODE_FIELD("vision_end_token_id")),
    TOP(CODE_FIELD("vision_token_id")),
    TIED,
    SHARED_END};

/* ---- Qwen3-VL (Bai et al. 2025) ------------------------------------------ */

static const loong_hf_fixed_t qwen3_vl_merger[] = {
    {"family", "qwen3_vl_merger"}, {NULL, NULL}};

#define DEEP(key_)                                              \
    IN("vision_config", COUNT_FIELD("deepstack_visual_indexes", \
                                    key_ ".num_deep_features", "3"))
#define QWEN3_SHARED                                                          \
    IN("vision_config",                                                       \
       INT_FIELD("out_hidden_size", "image_projector.hidden_size", "3584")),  \
        IN("vision_config", INT_FIELD("spatial_merge_size",                   \
                                      "image_projector.merge_size", "2")),    \
        TOP(CODE_FIELD("image_token_id")), TOP(CODE_FIELD("video_token_id")), \
        TOP(CODE_FIELD("vision_start_token_id")),                             \
        TOP(CODE_FIELD("vision_end_token_id")), TIED, SHARED_END
static const loong_hf_shared_field_t qwen3_vl_fields[] = {
    DEEP("image_projector"), DEEP("foundation"), QWEN3_SHARED};
static const loong_hf_shared_field_t qwen3_5_fields[] = {QWEN3_SHARED};

static const loong_hf_layout_t qwen3_vl_layouts[] = {
    {{"model.visual.", "model.visual.merger.", "model.language_model."},
     {NULL, "model.visual.deepstack_merger_list.", ""}}};

/* ---- InternVL (Chen et al. 2024; Zhu et al. 2025) ------------------------ */

static const loong_hf_fixed_t internvl_projector[] = {
    {"family", "internvl_projector"}, {NULL, NULL}};

static const loong_hf_shared_field_t internvl_fields[] = {
    TOP(NEUTRAL_FIELD("downsample_ratio", "0.5")),
    TOP(NEUTRAL_FIELD("vision_feature_layer", "-1")),
    TOP(NEUTRAL_FIELD("vision_feature_select_strategy", "\"default\"")),
    TOP(NEUTRAL_FIELD("projector_hidden_act", "\"gelu\"")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("image_seq_length")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t internvl_layouts[] = {
    {{"vision_tower.", "multi_modal_projector.", "language_model.model."},
     {NULL, NULL, "language_model."}},
    {{"model.vision_tower.", "model.multi_modal_projector.",
      "model.language_model."},
     {NULL, NULL, ""}}};

/* The same as OpenGVLab publishes it. Its class shuffles pixels another way
 * unless ps_version says otherwise; the rest is of tiles and of training. */
static const loong_hf_shared_field_t internvl_chat_fields[] = {
    TOP(STATED_FIELD("ps_version", "\"v2\"")),
    TOP(NEUTRAL_FIELD("downsample_ratio", "0.5")),
    TOP(NEUTRAL_FIELD("select_layer", "-1")),
    TOP(NEUTRAL_FIELD("pad2square", "false")),
    TOP(NEUTRAL_FIELD("use_backbone_lora", "0")),
    TOP(NEUTRAL_FIELD("use_llm_lora", "0")),
    TOP(CODE_FIELD("force_image_size")),
    TOP(CODE_FIELD("dynamic_image_size")),
    TOP(CODE_FIELD("use_thumbnail")),
    TOP(CODE_FIELD("min_dynamic_patch")),
    TOP(CODE_FIELD("max_dynamic_patch")),
    TOP(CODE_FIELD("template")),
    TOP(CODE_FIELD("system_message")),
    TOP(CODE_FIELD("hidden_size")),
    TOP(CODE_FIELD("auto_map")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t internvl_chat_layouts[] = {
    {{"vision_model.", "mlp1.", "language_model.model."},
     {NULL, NULL, "language_model."}}};

/* ---- Kimi-K2.5 (MoonViT, Kimi Team 2025) --------------------------------- */

static const loong_hf_fixed_t kimi_projector[] = {{"family", "kimi_projector"},
                                                  {NULL, NULL}};

static const loong_hf_shared_field_t kimi_fields[] = {
    TOP(INT_FIELD("projection_hidden_size", "image_projector.input_size",
                  "1152")),
    TOP(REAL_FIELD("projection_layer_norm_eps",
                   "image_projector.layernorm_epsilon", "1e-05")),
    IN("vision_config", NEUTRAL_FIELD("merge_kernel_size", "[2,2]")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_id")),
    TOP(CODE_FIELD("vision_start_token_id")),
    TOP(CODE_FIELD("vision_end_token_id")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t kimi_layouts[] = {
    {{"vision_tower.", "mm_projector.", "language_model.model."},
     {NULL, NULL, "language_model."}}};

/* ---- MiniCPM-V 4.6 ------------------------------------------------------- */

static const loong_hf_fixed_t minicpmv_merger[] = {
    {"family", "minicpmv4_6_merger"}, {NULL, NULL}};

static const loong_hf_shared_field_t minicpmv_fields[] = {
    TOP(INT_FIELD("insert_layer_id", "image_encoder.merger_layer", "6")),
    TOP(WORD_FIELD("downsample_mode", "image_encoder.use_merger",
                   "16x=true|4x=false")),
    IN("text_config",
       INT_FIELD("hidden_size", "image_projector.hidden_size", "4096")),
    TOP(NEUTRAL_FIELD("merge_kernel_size", "[2,2]")),
    TOP(NEUTRAL_FIELD("merger_times", "1")),
    TOP(NEUTRAL_FIELD("drop_vision_last_layer", "false")),
    TOP(CODE_FIELD("image_size")),
    TOP(CODE_FIELD("patch_size")),
    TOP(CODE_FIELD("image_token_id")),
    TOP(CODE_FIELD("video_token_id")),
    TIED,
    SHARED_END};

static const loong_hf_layout_t minicpmv_layouts[] = {
    {{"model.vision_tower.", "model.merger.", "model.language_model."},
     {NULL, NULL, ""}}};

/* ---- GLM-4.1V (GLM-V Team 2025) ------------------------------------------ */

static const loong_hf_fixed_t glm4v_merger[] = {{"family", "glm4v_merger"},
                                                {NULL, NULL}};

/* Of pictures and videos; GLM has them in text_config as well. */
#define MEDIA_IDS_OF(in_, kind_)                     \
    in_(CODE_FIELD(kind_ "_token_id")),              \
        in_(CODE_FIELD(kind_ "_start_token_id")),    \
        in_(CODE_FIELD(kind_ "_end_token_id"))
#define MEDIA_IDS(in_) MEDIA_IDS_OF(in_, "image"), MEDIA_IDS_OF(in_, "video")
#define IN_TEXT(...)               \
    {                              \
        "text_config", __VA_ARGS__ \
    }
static const loong_hf_shared_field_t glm4v_fields[] = {
    IN("vision_config",
       INT_FIELD("out_hidden_size", "image_projector.hidden_size", "4096")),
    IN("vision_config",
       INT_FIELD("intermediate_size", "image_projector.gated_ffn_hidden_size",
                 "13696")),
    IN("vision_config",
       INT_FIELD("spatial_merge_size", "image_projector.merge_size", "2")),
    MEDIA_IDS(TOP),
    MEDIA_IDS(IN_TEXT),
    TIED,
    SHARED_END};

static const loong_hf_layout_t glm4v_layouts[] = {
    {{"model.visual.", "model.visual.merger.", "model.language_model."},
     {NULL, "model.visual.downsample.", ""}}};

/* ---- ERNIE 4.5 VL (Baidu 2025) ------------------------------------------- */

static const loong_hf_fixed_t ernie4_5_vl_resampler[] = {
    {"family", "ernie4_5_vl_resampler"}, {NULL, NULL}};

static const loong_hf_shared_field_t ernie4_5_vl_fields[] = {
    IN("vision_config",
       INT_FIELD("spatial_merge_size", "image_projector.merge_size", "2")),
    IN("vision_config",
       INT_FIELD("temporal_merge_size", "image_projector.merge_frames", "2")),
    IN("vision_config",
       ALSO_FIELD("rms_norm_eps", "image_projector.layernorm_epsilon", "1e-6")),
    IN("text_config",
       ALSO_FIELD("rms_norm_eps", "image_projector.output_layernorm_epsilon",
                  "1e-05")),
    MEDIA_IDS(TOP),
    TIED,
    SHARED_END};
/* As its publisher has it: all but the encoder side by side. */
static const loong_hf_shared_field_t ernie4_5_flat_fields[] = {
    TOP(INT_FIELD("spatial_conv_size", "image_projector.merge_size", "2")),
    TOP(INT_FIELD("temporal_conv_size", "image_projector.merge_frames", "2")),
    TOP(ALSO_FIELD("rms_norm_eps", "image_projector.output_layernorm_epsilon",
                   "1e-05")),
    TOP(NEUTRAL_FIELD("use_temporal_conv", "true")),
    TOP(CODE_FIELD("im_patch_id")),
    TIED,
    SHARED_END};
/* Those that go to the experts for pictures, and their ids by default. */
static const loong_hf_fixed_t ernie4_5_vl_ids[] = {
    {"image_token_id", "100295"},       {"image_start_token_id", "101304"},
    {"image_end_token_id", "101305"},   {"video_token_id", "103367"},
    {"video_start_token_id", "101306"}, {"video_end_token_id", "101307"},
    {NULL, NULL}};

static const loong_hf_layout_t ernie4_5_vl_layouts[] = {
    {{"model.vision_model.", "model.resampler_model.", "model."},
     {NULL, NULL, ""}},
    {{"vision_model.", "model.resampler_model.", "model."}, {NULL, NULL, ""}},
    {{"model.vision_tower.", "model.resampler_model.", "model.language_model."},
     {NULL, NULL, ""}}};

/* ---- PaliGemma (Beyer et al. 2024) --------------------------------------- */

static const loong_hf_fixed_t linear_projector[] = {
    {"family", "linear_projector"}, {NULL, NULL}};
static const loong_hf_fixed_t paligemma_text[] = {
    {"bidirectional_prefix", "true"}, {NULL, NULL}};
/* Of GemmaConfig: the files of the publisher leave it out. */
static const loong_hf_fixed_t gemma_absent[] = {
    {"max_position_embeddings", "8192"}, {NULL, NULL}};

static const loong_hf_shared_field_t paligemma_fields[] = {
    TOP(INT_FIELD("projection_dim", "image_projector.hidden_size", "2048")),
    TOP(CODE_FIELD("image_token_index")),
    TOP(CODE_FIELD("hidden_size")),
    TOP(CODE_FIELD("vocab_size")),
    TOP(CODE_FIELD("_vocab_size")),
    TOP(CODE_FIELD("ignore_index")),
    TIED,
    IN("vision_config", CODE_FIELD("projection_dim")),
    IN("vision_config", CODE_FIELD("projector_hidden_act")),
    IN("vision_config", CODE_FIELD("num_image_tokens")),
    IN("vision_config", CODE_FIELD("vocab_size")),
    IN("text_config", CODE_FIELD("num_image_tokens")),
    IN("text_config", CODE_FIELD("use_bidirectional_attention")),
    SHARED_END};

/* -------------------------------------------------------------------------- */

/* The words of a Qwen's tokenizer. */
#define PADS                                                        \
    .image_token = "<|image_pad|>", .video_token = "<|video_pad|>", \
    .image_token_id = "image_token_id"
#define LAYOUTS(layouts_) \
    .num_layouts = LOONG_COUNT_OF(layouts_), .layouts = layouts_
/* Parts of which there is no more to say. */
#define ENCODER(type_, family_)                                 \
    {                                                           \
        .role = "image_encoder", .section = "vision_config",    \
        .type = type_, .family = family_                        \
    }
#define PROJECTOR(family_, keys_)                                         \
    {                                                                     \
        .role = "image_projector", .family = family_, .keys = keys_       \
    }

#define LANGUAGE(type_, family_)                               \
    {                                                          \
        .role = "foundation", .section = "text_config",        \
        .type = type_, .family = family_                       \
    }
#define QWEN3_5(type_, class_)                                            \
    {                                                                     \
        .model_type = type_,                                              \
        .architecture = class_ "ForConditionalGeneration",                \
        .parts = {ENCODER(type_ "_vision", "qwen3_vl_vision"),            \
                  PROJECTOR("qwen3_vl_merger", qwen3_vl_merger),          \
                  LANGUAGE(type_ "_text", type_)},                        \
        .fields = qwen3_5_fields, LAYOUTS(qwen3_vl_layouts), PADS         \
    }

const loong_hf_composite_t loongi_hf_composites[] = {
    {.model_type = "qwen2_vl",
     .architecture = "Qwen2VLForConditionalGeneration",
     .parts = {ENCODER("qwen2_vl_vision", "qwen2_vl_vision"),
               PROJECTOR("patch_merger", patch_merger),
               {.role = "foundation",
                .section = "text_config",
                .flat = true,
                .type = "qwen2_vl_text",
                .family = "qwen2"}},
     .fields = qwen2_vl_fields, LAYOUTS(qwen2_vl_layouts),
     PADS},
    {.model_type = "qwen2_5_vl",
     .architecture = "Qwen2_5_VLForConditionalGeneration",
     .parts = {ENCODER("qwen2_5_vl_vision", "qwen2_5_vl_vision"),
               PROJECTOR("qwen2_5_vl_merger", qwen2_5_vl_merger),
               {.role = "foundation",
                .section = "text_config",
                .flat = true,
                .type = "qwen2_5_vl_text",
                .family = "qwen2"}},
     .fields = qwen2_5_vl_fields, LAYOUTS(qwen2_vl_layouts),
     PADS},
    {.model_type = "qwen3_vl",
     .architecture = "Qwen3VLForConditionalGeneration",
     .parts = {ENCODER("qwen3_vl_vision", "qwen3_vl_vision"),
               PROJECTOR("qwen3_vl_merger", qwen3_vl_merger),
               LANGUAGE("qwen3_vl_text", "qwen3")},
     .fields = qwen3_vl_fields, LAYOUTS(qwen3_vl_layouts),
     PADS},
    {.model_type = "qwen3_vl_moe",
     .architecture = "Qwen3VLMoeForConditionalGeneration",
     .parts = {ENCODER("qwen3_vl_moe_vision", "qwen3_vl_vision"),
               PROJECTOR("qwen3_vl_merger", qwen3_vl_merger),
               {.role = "foundation",
                .section = "text_config",
                .type = "qwen3_vl_moe_text",
                .family = "qwen3_moe",
                .names = "qwen3_vl_moe"}},
     .fields = qwen3_vl_fields, LAYOUTS(qwen3_vl_layouts),
     PADS},
    /* Their encoder and projector alone: no family here is the language
     * model. */
    QWEN3_5("qwen3_5", "Qwen3_5"),
    QWEN3_5("qwen3_5_moe", "Qwen3_5Moe"),
    {.model_type = "minicpmv4_6",
     .architecture = "MiniCPMV4_6ForConditionalGeneration",
     .parts = {ENCODER("minicpmv4_6_vision", "minicpmv4_6_vision"),
               PROJECTOR("minicpmv4_6_merger", minicpmv_merger),
               LANGUAGE("qwen3_5_text", "qwen3_5")},
     .fields = minicpmv_fields, LAYOUTS(minicpmv_layouts),
     PADS},
    {.model_type = "internvl",
     .architecture = "InternVLForConditionalGeneration",
     .parts = {ENCODER("internvl_vision", "internvl_vision"),
               PROJECTOR("internvl_projector", internvl_projector),
               {.role = "foundation",
                .section = "text_config",
                .type = "qwen2"}},
     .fields = internvl_fields, LAYOUTS(internvl_layouts),
     .image_token = "<IMG_CONTEXT>",
     .video_token = "<video>",
     .image_token_id = "image_token_id"},
    {.model_type = "llavaonevision1_5",
     .architecture = "LLaVAOneVision1_5_ForConditionalGeneration",
     .parts = {ENCODER("rice_vit", "rice_vit"),
               PROJECTOR("patch_merger", rice_merger),
               LANGUAGE("LLaVAOneVision1_5_text", "qwen3")},
     .fields = onevision1_5_fields, LAYOUTS(qwen2_vl_layouts),
     PADS},
    {.model_type = "internvl_chat",
     .architecture = "InternVLChatModel",
     .foreign = true,
     .states_processor = true,
     .parts = {{.role = "image_encoder",
                .section = "vision_config",
                .type = "intern_vit_6b",
                .family = "internvl_vision",
                .names = "intern_vit_6b"},
               {.role = "image_projector",
                .family = "internvl_projector",
                .names = "internvl_chat",
                .keys = internvl_projector},
               {.role = "foundation", .section = "llm_config"}},
     .fields = internvl_chat_fields, LAYOUTS(internvl_chat_layouts),
     .image_token = "<IMG_CONTEXT>",
     .video_token = "<video>",
     .image_token_id = "image_token_id"},
    {.model_type = "kimi_k25",
     .architecture = "Kimi_K25ForConditionalGeneration",
     .takes = "kimi_k2",
     .parts = {ENCODER("kimi_k25_vision", "kimi_k25_vision"),
               PROJECTOR("kimi_projector", kimi_projector),
               {.role = "foundation", .section = "text_config",
                .type = "deepseek_v3"}},
     .fields = kimi_fields, LAYOUTS(kimi_layouts),
     .image_token = "<|media_pad|>",
     .video_token = "<|kimi_k25_video_placeholder|>",
     .image_token_id = "image_token_id"},
    {.model_type = "glm4v",
     .architecture = "Glm4vForConditionalGeneration",
     .parts = {ENCODER("glm4v_vision", "glm4v_vision"),
               PROJECTOR("glm4v_merger", glm4v_merger),
               LANGUAGE("glm4v_text", "glm4")},
     .fields = glm4v_fields, LAYOUTS(glm4v_layouts),
     .image_token = "<|image|>",
     .video_token = "<|video|>",
     .image_token_id = "image_token_id"},
    {.model_type = "ernie4_5_vl_moe",
     .architecture = "Ernie4_5_VLMoeForConditionalGeneration",
     .parts = {ENCODER("ernie4_5_vl_moe_vision", "ernie4_5_vl_vision"),
               PROJECTOR("ernie4_5_vl_resampler", ernie4_5_vl_resampler),
               LANGUAGE("ernie4_5_vl_moe_text", "ernie4_5_vl_moe")},
     .fields = ernie4_5_vl_fields, LAYOUTS(ernie4_5_vl_layouts),
     .image_token = "<|IMAGE_PLACEHOLDER|>",
     .video_token = "<|VIDEO_PLACEHOLDER|>",
     .image_token_id = "image_token_id",
     .vision_ids = ernie4_5_vl_ids},
    {.model_type = "ernie4_5_moe_vl",
     .written_as = "ernie4_5_vl_moe",
     .parts = {ENCODER("DFNRope_vision_transformer", "ernie4_5_vl_vision"),
               PROJECTOR("ernie4_5_vl_resampler", ernie4_5_vl_resampler),
               {.role = "foundation",
                .section = "text_config",
                .flat = true,
                .type = "ernie4_5_moe_vl",
                .family = "ernie4_5_vl_moe"}},
     .fields = ernie4_5_flat_fields, LAYOUTS(ernie4_5_vl_layouts),
     .image_token = "<|IMAGE_PLACEHOLDER|>",
     .image_token_id = "im_patch_id",
     .vision_ids = ernie4_5_vl_ids},
    {.model_type = "paligemma",
     .architecture = "PaliGemmaForConditionalGeneration",
     .parts = {ENCODER("siglip_vision_model", "siglip_vision_model"),
               PROJECTOR("linear_projector", linear_projector),
               {.role = "foundation",
                .section = "text_config",
                .type = "gemma",
                .family = "gemma",
                .keys = paligemma_text,
                .absent = gemma_absent}},
     .fields = paligemma_fields, LAYOUTS(llava_layouts),
     .image_token = "<image>",
     .image_token_id = "image_token_index"},
    {.model_type = "llava_onevision",
     .architecture = "LlavaOnevisionForConditionalGeneration",
     .parts = {{.role = "image_encoder",
                .section = "vision_config",
                .type = "siglip_vision_model",
                .keys = llava_encoder,
                .spare = ".post_layernorm.weight"},
               PROJECTOR("anyres_projector", anyres_projector),
               {.role = "foundation",
                .section = "text_config",
                .type = "qwen2"}},
     .fields = onevision_fields, LAYOUTS(onevision_layouts),
     .image_token = "<image>",
     .video_token = "<video>",
     .image_token_id = "image_token_index"},
    {.model_type = "llava",
     .architecture = "LlavaForConditionalGeneration",
     .parts = {{.role = "image_encoder",
                .section = "vision_config",
                .type = "clip_vision_model",
                .keys = llava_encoder,
                .spare = ".post_layernorm.weight"},
               PROJECTOR("mlp_projector", llava_projector),
               {.role = "foundation",
                .section = "text_config",
                .type = "llama",
                .absent = llama_absent}},
     .fields = llava_fields, LAYOUTS(llava_layouts),
     .image_token = "<image>",
     .image_token_id = "image_token_index"},
    {.model_type = NULL}};
