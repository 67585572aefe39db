/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen-VL and LLaVA-OneVision-1.5, whole. Listed in hf_composites.c.
 * Read hf_composite_rows.h before. */
#include "hf_composite_rows.h"

/* ---- Qwen2-VL (Wang et al. 2024) ----------------------------------------- */

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

static const loong_hf_fixed_t rice_merger[] = {{"layernorm_epsilon", "1e-05"},
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

const loong_hf_composite_t loongi_hf_qwen2_vl = {
    .model_type = "qwen2_vl",
    .architecture = "Qwen2VLForConditionalGeneration",
    .text_ties = true,
    .parts = {ENCODER("qwen2_vl_vision", "qwen2_vl_vision"),
              PROJECTOR("patch_merger"),
              {.role = "foundation",
               .section = "text_config",
               .flat = true,
               .type = "qwen2_vl_text",
               .family = "qwen2"}},
    .fields = qwen2_vl_fields, LAYOUTS(qwen2_vl_layouts),
    PADS};

const loong_hf_composite_t loongi_hf_llavaonevision1_5 = {
    .model_type = "llavaonevision1_5",
    .architecture = "LLaVAOneVision1_5_ForConditionalGeneration",
    .parts = {ENCODER("rice_vit", "rice_vit"),
              {.role = "image_projector",
               .family = "patch_merger",
               .keys = rice_merger},
              LANGUAGE("LLaVAOneVision1_5_text", "qwen3")},
    .fields = onevision1_5_fields, LAYOUTS(qwen2_vl_layouts),
    PADS};

const loong_hf_composite_t loongi_hf_qwen2_5_vl = {
    .model_type = "qwen2_5_vl",
    .architecture = "Qwen2_5_VLForConditionalGeneration",
    .text_ties = true,
    .parts = {ENCODER("qwen2_5_vl_vision", "qwen2_5_vl_vision"),
              PROJECTOR("qwen2_5_vl_merger"),
              {.role = "foundation",
               .section = "text_config",
               .flat = true,
               .type = "qwen2_5_vl_text",
               .family = "qwen2"}},
    .fields = qwen2_5_vl_fields, LAYOUTS(qwen2_vl_layouts),
    PADS};

const loong_hf_composite_t loongi_hf_qwen3_vl = {
    .model_type = "qwen3_vl",
    .architecture = "Qwen3VLForConditionalGeneration",
    .parts = {ENCODER("qwen3_vl_vision", "qwen3_vl_vision"),
              PROJECTOR("qwen3_vl_merger"),
              LANGUAGE("qwen3_vl_text", "qwen3")},
    .fields = qwen3_vl_fields, LAYOUTS(qwen3_vl_layouts),
    PADS};

const loong_hf_composite_t loongi_hf_qwen3_vl_moe = {
    .model_type = "qwen3_vl_moe",
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .parts = {ENCODER("qwen3_vl_moe_vision", "qwen3_vl_vision"),
              PROJECTOR("qwen3_vl_merger"),
              {.role = "foundation",
               .section = "text_config",
               .type = "qwen3_vl_moe_text",
               .family = "qwen3_moe",
               .names = "qwen3_vl_moe"}},
    .fields = qwen3_vl_fields, LAYOUTS(qwen3_vl_layouts),
    PADS};

/* Their encoder and projector alone: no family here is the language model. */
#define QWEN3_5(type_, class_)                                    \
    {                                                             \
        .model_type = type_,                                      \
        .architecture = class_ "ForConditionalGeneration",        \
        .parts = {ENCODER(type_ "_vision", "qwen3_vl_vision"),    \
                  PROJECTOR("qwen3_vl_merger"),                   \
                  LANGUAGE(type_ "_text", type_)},                \
        .fields = qwen3_5_fields, LAYOUTS(qwen3_vl_layouts), PADS \
    }
const loong_hf_composite_t loongi_hf_qwen3_5 = QWEN3_5("qwen3_5", "Qwen3_5");
const loong_hf_composite_t loongi_hf_qwen3_5_moe =
    QWEN3_5("qwen3_5_moe", "Qwen3_5Moe");
