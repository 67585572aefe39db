/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4.1V (GLM-V Team 2025), whole. Listed in hf_composites.c. Read
 * hf_composite_rows.h before. */
#include "hf_composite_rows.h"

/* Its ids stand there as well. */
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

const loong_hf_composite_t loongi_hf_glm4v = {
    .model_type = "glm4v",
    .architecture = "Glm4vForConditionalGeneration",
    .text_ties = true,
    .parts = {ENCODER("glm4v_vision", "glm4v_vision"),
              PROJECTOR("glm4v_merger"),
              LANGUAGE("glm4v_text", "glm4")},
    .fields = glm4v_fields, LAYOUTS(glm4v_layouts),
    .image_token = "<|image|>",
    .video_token = "<|video|>",
    .image_token_id = "image_token_id"};
