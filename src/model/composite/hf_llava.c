/* SPDX-License-Identifier: Apache-2.0
 *
 * LLaVA, LLaVA-OneVision and PaliGemma, whole. Listed in hf_composites.c.
 * Read hf_composite_rows.h before. */
#include "hf_composite_rows.h"

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

/* ---- PaliGemma (Beyer et al. 2024) --------------------------------------- */

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

const loong_hf_composite_t loongi_hf_llava = {
    .model_type = "llava",
    .architecture = "LlavaForConditionalGeneration",
    .text_ties = true,
    .parts = {{.role = "image_encoder",
               .section = "vision_config",
               .type = "clip_vision_model",
               .keys = llava_encoder,
               .spare = ".post_layernorm.weight"},
              PROJECTOR("mlp_projector"),
              {.role = "foundation",
               .section = "text_config",
               .type = "llama",
               .absent = llama_absent}},
    .fields = llava_fields, LAYOUTS(llava_layouts),
    .image_token = "<image>",
    .image_token_id = "image_token_index"};

const loong_hf_composite_t loongi_hf_llava_onevision = {
    .model_type = "llava_onevision",
    .architecture = "LlavaOnevisionForConditionalGeneration",
    .text_ties = true,
    .parts = {{.role = "image_encoder",
               .section = "vision_config",
               .type = "siglip_vision_model",
               .keys = llava_encoder,
               .spare = ".post_layernorm.weight"},
              PROJECTOR("anyres_projector"),
              {.role = "foundation",
               .section = "text_config",
               .type = "qwen2"}},
    .fields = onevision_fields, LAYOUTS(onevision_layouts),
    .image_token = "<image>",
    .video_token = "<video>",
    .image_token_id = "image_token_index"};

const loong_hf_composite_t loongi_hf_paligemma = {
    .model_type = "paligemma",
    .architecture = "PaliGemmaForConditionalGeneration",
    .parts = {ENCODER("siglip_vision_model", "siglip_vision_model"),
              PROJECTOR("linear_projector"),
              {.role = "foundation",
               .section = "text_config",
               .type = "gemma",
               .family = "gemma",
               .keys = paligemma_text,
               .absent = gemma_absent}},
    .fields = paligemma_fields, LAYOUTS(llava_layouts),
    .image_token = "<image>",
    .image_token_id = "image_token_index"};
