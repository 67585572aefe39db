/* SPDX-License-Identifier: Apache-2.0
 *
 * InternVL (Chen et al. 2024; Zhu et al. 2025), whole. Listed in
 * hf_composites.c. Read hf_composite_rows.h before. */
#include "hf_composite_rows.h"

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

const loong_hf_composite_t loongi_hf_internvl = {
    .model_type = "internvl",
    .architecture = "InternVLForConditionalGeneration",
    .parts = {ENCODER("internvl_vision", "internvl_vision"),
              PROJECTOR("internvl_projector"),
              {.role = "foundation",
               .section = "text_config",
               .type = "qwen2"}},
    .fields = internvl_fields, LAYOUTS(internvl_layouts),
    .image_token = "<IMG_CONTEXT>",
    .video_token = "<video>",
    .image_token_id = "image_token_id"};

const loong_hf_composite_t loongi_hf_internvl_chat = {
    .model_type = "internvl_chat",
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
               .names = "internvl_chat"},
              {.role = "foundation", .section = "llm_config"}},
    .fields = internvl_chat_fields, LAYOUTS(internvl_chat_layouts),
    .image_token = "<IMG_CONTEXT>",
    .video_token = "<video>",
    .image_token_id = "image_token_id"};
