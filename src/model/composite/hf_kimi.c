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
    .image_token_id = "image_token_id"};
