/* SPDX-License-Identifier: Apache-2.0
 *
 * MiniCPM-V 4.6, whole. Listed in hf_composites.c. Read
 * hf_composite_rows.h before. */
#include "hf_composite_rows.h"

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

const loong_hf_composite_t loongi_hf_minicpmv4_6 = {
    .model_type = "minicpmv4_6",
    .architecture = "MiniCPMV4_6ForConditionalGeneration",
    .parts = {ENCODER("minicpmv4_6_vision", "minicpmv4_6_vision"),
              PROJECTOR("minicpmv4_6_merger"),
              LANGUAGE("qwen3_5_text", "qwen3_5")},
    .fields = minicpmv_fields, LAYOUTS(minicpmv_layouts),
    PADS};
