/* SPDX-License-Identifier: Apache-2.0
 *
 * Kimi-K2.5 (MoonViT, Kimi Team 2025), whole. Listed in hf_composites.c. Read
 * hf_composite_rows.h before. */
#include "hf_composite_rows.h"

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

/* As the publisher's Python calls them; exports have transformers' names. */
static const loong_hf_shared_field_t published_fields[] = {
    IN("vision_config",
       INT_FIELD("mm_hidden_size", "image_projector.input_size", "1152")),
    IN("vision_config",
       REAL_FIELD("projector_ln_eps", "image_projector.layernorm_epsilon",
                  "1e-05")),
    IN("vision_config", NEUTRAL_FIELD("merge_kernel_size", "[2,2]")),
    IN("vision_config", NEUTRAL_FIELD("mm_projector_type", "\"patchmerger\"")),
    IN("vision_config", NEUTRAL_FIELD("projector_hidden_act", "\"gelu\"")),
    IN("vision_config", CODE_FIELD("text_hidden_size")),
    TOP(CODE_FIELD("media_placeholder_token_id")),
    TOP(CODE_FIELD("use_unified_vision_chunk")),
    TOP(CODE_FIELD("video_placeholder")),
    TOP(CODE_FIELD("ignore_index")),
    TOP(CODE_FIELD("auto_map")),
    TIED,
    SHARED_END};

static const loong_hf_composite_t published = {
    .model_type = "kimi_k25",
    .written_as = "kimi_k25",
    .takes = "kimi_k2",
    .parts = {ENCODER("moonvit3d", "kimi_k25_vision"),
              PROJECTOR("kimi_projector"),
              {.role = "foundation", .section = "text_config",
               .type = "deepseek_v3"}},
    .fields = published_fields, LAYOUTS(kimi_layouts),
    .image_token = "<|media_pad|>",
    .video_token = "<|kimi_k25_video_placeholder|>",
    .image_token_id = "media_placeholder_token_id"};

const loong_hf_composite_t loongi_hf_kimi_k25 = {
    .model_type = "kimi_k25",
    .architecture = "Kimi_K25ForConditionalGeneration",
    .takes = "kimi_k2",
    .parts = {ENCODER("kimi_k25_vision", "kimi_k25_vision"),
              PROJECTOR("kimi_projector"),
              {.role = "foundation", .section = "text_config",
               .type = "deepseek_v3"}},
    .fields = kimi_fields, LAYOUTS(kimi_layouts),
    .image_token = "<|media_pad|>",
    .video_token = "<|kimi_k25_video_placeholder|>",
    .image_token_id = "image_token_id",
    .other = &published,
    .other_has = "vt_hidden_size"};
