/* SPDX-License-Identifier: Apache-2.0
 *
 * ERNIE 4.5 VL (Baidu 2025), whole. Listed in hf_composites.c. Read
 * hf_composite_rows.h before. */
#include "hf_composite_rows.h"

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

const loong_hf_composite_t loongi_hf_ernie4_5_vl_moe = {
    .model_type = "ernie4_5_vl_moe",
    .architecture = "Ernie4_5_VLMoeForConditionalGeneration",
    .parts = {ENCODER("ernie4_5_vl_moe_vision", "ernie4_5_vl_vision"),
              PROJECTOR("ernie4_5_vl_resampler"),
              LANGUAGE("ernie4_5_vl_moe_text", "ernie4_5_vl_moe")},
    .fields = ernie4_5_vl_fields, LAYOUTS(ernie4_5_vl_layouts),
    .image_token = "<|IMAGE_PLACEHOLDER|>",
    .video_token = "<|VIDEO_PLACEHOLDER|>",
    .image_token_id = "image_token_id",
    .vision_ids = ernie4_5_vl_ids};

const loong_hf_composite_t loongi_hf_ernie4_5_moe_vl = {
    .model_type = "ernie4_5_moe_vl",
    .written_as = "ernie4_5_vl_moe",
    .parts = {ENCODER("DFNRope_vision_transformer", "ernie4_5_vl_vision"),
              PROJECTOR("ernie4_5_vl_resampler"),
              {.role = "foundation",
               .section = "text_config",
               .flat = true,
               .type = "ernie4_5_moe_vl",
               .family = "ernie4_5_vl_moe"}},
    .fields = ernie4_5_flat_fields, LAYOUTS(ernie4_5_vl_layouts),
    .image_token = "<|IMAGE_PLACEHOLDER|>",
    .image_token_id = "im_patch_id",
    .vision_ids = ernie4_5_vl_ids};
