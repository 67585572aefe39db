/* SPDX-License-Identifier: Apache-2.0
 *
 * The classes of image and video processors in transformers. Read by
 * processor.c; read processor.h before. */
#include "processor.h"

#define HALF .mean = {0.5, 0.5, 0.5}, .deviation = {0.5, 0.5, 0.5}
#define CLIP_COLOURS                             \
    .mean = {0.48145466, 0.4578275, 0.40821073}, \
    .deviation = {0.26862954, 0.26130258, 0.27577711}

#define IMAGENET_COLOURS           \
    .mean = {0.485, 0.456, 0.406}, \
    .deviation = {0.229, 0.224, 0.225}

/* What most classes do. */
#define AS_IT_IS                                                             \
    .resize = true, .rescale = true, .normalize = true, .factor = 1.0 / 255, \
    .filter = LOONG_IMAGE_BICUBIC
#define SCALED AS_IT_IS, .convert_rgb = true
#define SQUARE(side_) {.width = side_, .height = side_}
#define BOUNDED(patch_) SCALED, .cut = {patch_, 2, 2, 0, false}
#define SLICED                                                              \
    SCALED, HALF, .is_tiled = true, .tile = true, .thumbnail = true,        \
        .min_tiles = 1, .max_tiles = 9, .numbered = true,                   \
        .cut = {14, 4, 1, 0}, .size = {.slice = 448}
#define PADDED(patches_)                                                     \
    SCALED, HALF, .cut = {14, 2, 1, 0, false, 0, 4},                         \
                  .size = {.side_patches = 512, .all_patches = patches_}

const loong_processor_kind_t loongi_processor_kinds[] = {
    {"ViT",
     {.resize = true,
      .rescale = true,
      .normalize = true,
      .factor = 1.0 / 255,
      .filter = LOONG_IMAGE_BILINEAR,
      .size = SQUARE(224),
      HALF}},
    {"CLIP",
     {SCALED, CLIP_COLOURS, .is_clip = true, .crop = true,
      .size = {.edge = 224}, .crop_size = SQUARE(224)}},
    {"Siglip", {SCALED, HALF, .size = SQUARE(224)}},
    {"Siglip2",
     {.resize = true, .rescale = true, .normalize = true, .factor = 1.0 / 255,
      .filter = LOONG_IMAGE_BILINEAR, .size = {.max_patches = 256}, HALF}},
    {"GotOcr2",
     {SCALED, CLIP_COLOURS, .size = SQUARE(384), .is_tiled = true,
      .thumbnail = true, .min_tiles = 1, .max_tiles = 12}},
    {"InternVLChat", /* config.json of the model: it has no processor */
     {AS_IT_IS, IMAGENET_COLOURS, .size = SQUARE(448), .is_tiled = true,
      .is_model = true, .min_tiles = 1, .max_tiles = 6}},
    {"InternVLChat", /* its code takes 8 frames, none of which is cut */
     {AS_IT_IS, IMAGENET_COLOURS, .size = SQUARE(448), .is_tiled = true,
      .is_model = true,
      .video = {.form = LOONG_VIDEO_FRAMES, .sample = true, .num_frames = 8,
                .shift = -1.0}}},
    {"LlavaOnevision",
     {SCALED, CLIP_COLOURS, .size = SQUARE(384), .is_gridded = true}},
    {"MiniCPMV4_6", {SLICED}},
    {"MiniCPMV4_6",
     {SLICED,
      .video = {.form = LOONG_VIDEO_SLICES, .sample = true,
                .max_frames = 128}}},
    {"Kimi_K25", {PADDED(16384)}},
    {"Kimi_K25",
     {PADDED(4096),
      .video = {.form = LOONG_VIDEO_CHUNKS, .sample = true, .fps = 2.0}}},
    {"Kimi_K25Media", {PADDED(16384), .is_media = true}}, /* media_proc_cfg */
    {"Kimi_K25Media",
     {PADDED(16384), .is_media = true,
      .video = {.form = LOONG_VIDEO_CHUNKS, .sample = true, .fps = 2.0,
                .even = true}}},
    {"Qwen2VL",
     {BOUNDED(14), CLIP_COLOURS,
      .size = {.min_pixels = 56 * 56, .max_pixels = 28 * 28 * 1280}}},
    /* Qwen2VL's as Qwen3-VL's and LLaVA-OneVision-1.5's files have it. */
    {"Qwen3VL",
     {BOUNDED(16), HALF,
      .size = {.min_pixels = 256 * 256, .max_pixels = 4096 * 4096}}},
    {"LlavaOnevision1_5",
     {SCALED, CLIP_COLOURS, .cut = {14, 2, 1, 0},
      .size = {.min_pixels = 56 * 56, .max_pixels = 28 * 28 * 1280}}},
    {"Qwen2VL",
     {BOUNDED(14), CLIP_COLOURS,
      .size = {.min_pixels = 128 * 28 * 28, .max_pixels = 768 * 28 * 28},
      .video = {.form = LOONG_VIDEO_WHOLE,
                .min_frames = 4,
                .max_frames = 768,
                .max_tokens = 128000}}},
    {"Ernie4_5_VLMoe",
     {SCALED, CLIP_COLOURS, .cut = {14, 2, 1, 0},
      .size = {.min_pixels = 56 * 56, .max_pixels = 28 * 28 * 6177}}},
    {"Ernie4_5_VLMoe",
     {SCALED, CLIP_COLOURS, .cut = {14, 2, 1, 0},
      .size = {.min_pixels = 299 * 28 * 28, .max_pixels = 1196 * 28 * 28},
      .video = {.form = LOONG_VIDEO_WHOLE, .sample = true, .draw = true,
                .multiple = 2, .min_frames = 16, .max_frames = 180}}},
    {"Qwen3VL",
     {BOUNDED(16), HALF, .bounds_all = true,
      .size = {.min_pixels = 128 * 32 * 32, .max_pixels = 768 * 32 * 32},
      .video = {.form = LOONG_VIDEO_TIMES,
                .sample = true,
                .fps = 2.0,
                .min_frames = 4,
                .max_frames = 768,
                .max_tokens = 768}}},
    {"LlavaOnevision",
     {SCALED, CLIP_COLOURS, .size = SQUARE(384),
      .video = {.form = LOONG_VIDEO_WHOLE}}},
    {"Glm4v",
     {BOUNDED(14), CLIP_COLOURS, .bounds_all = true,
      .size = {.min_pixels = 112 * 112, .max_pixels = 28 * 28 * 15000}}},
    {"Glm4v",
     {BOUNDED(14), CLIP_COLOURS, .bounds_all = true,
      .size = {.min_pixels = 112 * 112, .max_pixels = 28 * 28 * 60000},
      .video = {.form = LOONG_VIDEO_SECONDS,
                .sample = true,
                .fps = 2.0,
                .max_seconds = 300}}},
    {"InternVL",
     {SCALED, CLIP_COLOURS, .size = SQUARE(384),
      .is_tiled = true, /* its files of pictures say so; frames are not cut */
      .video = {.form = LOONG_VIDEO_FRAMES, .shift = -1.0}}},
};
const int64_t loongi_processor_num_kinds =
    LOONG_COUNT_OF(loongi_processor_kinds);
