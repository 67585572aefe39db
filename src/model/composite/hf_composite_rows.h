/* SPDX-License-Identifier: Apache-2.0
 *
 * How the published models of several components are written, each family in a
 * file beside this one. */
#ifndef LOONG_HF_COMPOSITE_ROWS_H
#define LOONG_HF_COMPOSITE_ROWS_H

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
/* Ids of pictures and videos, at the top or in a section. */
#define MEDIA_IDS_OF(in_, kind_)                     \
    in_(CODE_FIELD(kind_ "_token_id")),              \
        in_(CODE_FIELD(kind_ "_start_token_id")),    \
        in_(CODE_FIELD(kind_ "_end_token_id"))
#define MEDIA_IDS(in_) MEDIA_IDS_OF(in_, "image"), MEDIA_IDS_OF(in_, "video")

#define LAYOUTS(layouts_) \
    .num_layouts = LOONG_COUNT_OF(layouts_), .layouts = layouts_

/* Parts of which there is no more to say. */
#define ENCODER(type_, family_)                              \
    {                                                        \
        .role = "image_encoder", .section = "vision_config", \
        .type = type_, .family = family_                     \
    }
#define PROJECTOR(family_)                           \
    {                                                \
        .role = "image_projector", .family = family_ \
    }
#define LANGUAGE(type_, family_)                        \
    {                                                   \
        .role = "foundation", .section = "text_config", \
        .type = type_, .family = family_                \
    }

/* The words of a Qwen's tokenizer. */
#define PADS                                                        \
    .image_token = "<|image_pad|>", .video_token = "<|video_pad|>", \
    .image_token_id = "image_token_id"

extern const loong_hf_composite_t
    loongi_hf_qwen2_vl, loongi_hf_qwen2_5_vl, loongi_hf_qwen3_vl,
    loongi_hf_qwen3_vl_moe, loongi_hf_qwen3_5, loongi_hf_qwen3_5_moe,
    loongi_hf_minicpmv4_6, loongi_hf_internvl, loongi_hf_llavaonevision1_5,
    loongi_hf_internvl_chat, loongi_hf_kimi_k25, loongi_hf_glm4v,
    loongi_hf_ernie4_5_vl_moe, loongi_hf_ernie4_5_moe_vl, loongi_hf_paligemma,
    loongi_hf_llava_onevision, loongi_hf_llava;

#endif
