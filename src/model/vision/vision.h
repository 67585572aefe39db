/* SPDX-License-Identifier: Apache-2.0
 *
 * The configurable vision transformer: ViT (Dosovitskiy et al. 2021) and the
 * image encoders of CLIP (Radford et al. 2021), SigLIP (Zhai et al. 2023),
 * Qwen2-VL (Wang et al. 2024), Qwen2.5-VL and Qwen3-VL (Bai et al. 2025),
 * InternVL (Chen et al. 2024), Kimi (MoonViT), LLaVA-OneVision-1.5 (RICE, Xie
 * et al. 2025), SigLIP 2 (Tschannen et al. 2025), MiniCPM-V 4.6 and GLM-4.1V
 * (GLM-V Team 2025) are settings of it. Layers' parameters have the decoder's
 * names (layers.N.self_attn.q_proj.weight); beside them are patch_embedding
 * (columns: channel, frame, row, column of a patch, or row, column, channel),
 * patch_layernorm, class_token and its class_angles, position_embeddings,
 * pre_layernorm, norm, classifier, of MiniCPM-V 4.6 the merger between the
 * layers; with masked image modelling (Xie et al. 2022, SimMIM) mask_token and
 * decoder.
 */
#ifndef LOONG_VISION_H
#define LOONG_VISION_H

#include "base.h"
#include "fields.h"
#include "layer_kinds.h"
#include "loong/nn.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What makes one vector of the rows of a picture. */
typedef enum loong_pooling {
    LOONG_POOL_CLASS_TOKEN,
    LOONG_POOL_MEAN /* of the patches */
} loong_pooling_t;

typedef struct loong_vision_config {
    int64_t num_layers;
    int64_t hidden_size;
    int64_t ffn_hidden_size;
    int64_t num_attention_heads;
    /* Pixels of a side, those behind the last whole patch are not seen; 0:
     * pictures have sizes of their own. */
    int64_t image_size;
    int64_t patch_size;
    int64_t temporal_patch_size; /* frames of a patch */
    int64_t window_size; /* pixels of a side, within which patches see each
                            other; 0: in the whole picture */
    int64_t tokens_per_second; /* of a video's axis of time; 0: none */
    loong_layer_kinds_t full; /* layers in which they do all the same */
    bool rotary; /* positions turn heads by row and column; else a table */
    /* Of a square table that is resampled to the patches of a picture; 0: the
     * table has a row for each row of a picture. */
    int64_t num_positions;
    loong_interpolation_t interpolation; /* see loong_position_table_t */
    bool align_corners, antialias;
    bool channels_last; /* of the pixels of a patch */
    double rotary_base;
    bool rotary_interleaved; /* column and row by turns turn pairs of channels
                                that are neighbours; else halves of a head */
    loong_norm_kind_t normalization;
    int64_t num_channels;
    bool class_token; /* in front of the patches of a picture */
    bool class_angles; /* with rotary positions it turns by learned angles, and
                          else not at all */
    bool patch_bias;
    bool patch_norm; /* of patches, before positions are added */
    bool qkv_bias;
    bool attention_output_bias;
    bool mlp_bias;
    bool qk_norm;       /* of queries and keys, RMSNorm */
    bool qk_norm_whole; /* over all heads, not one of each */
    double layer_scale; /* factors of what layers add begin so; 0: none */
    bool pre_norm;      /* in front of the layers */
    bool post_norm; /* behind them, of all rows */
    loong_mlp_kind_t mlp;
    double norm_eps;
    double init_std;
    int64_t num_classes; /* 0: no classifier, and the rest says nothing */
    loong_pooling_t pooling;
    bool classifier_bias;
    bool masked_image_modeling; /* with a decoder in place of a classifier */
    int64_t feature_layer;   /* see loongi_vision_layers; 0: not given */
    loong_layer_kinds_t deep; /* layers whose rows others read, too */
    bool select_class_token; /* others read its row as well */
    /* Behind which blocks of 2 x 2 rows become one; -1: none. */
    int64_t merger_layer;
    bool use_merger; /* false: it is kept and not computed */
    /* Frames of a video that see each other; each adds what it is, and others
     * read their mean. 1: each is by itself. */
    int64_t chunk_frames;
} loong_vision_config_t;

/* Rows of a picture, where all are of one size. */
static inline int64_t loongi_vision_rows(const loong_vision_config_t *c)
{
    int64_t side = c->image_size / c->patch_size;
    return side * side + (c->class_token ? 1 : 0);
}

/* Layers whose output others read; those behind are not computed. */
static inline int64_t loongi_vision_layers(const loong_vision_config_t *c)
{
    return c->feature_layer > 0   ? c->feature_layer
           : c->feature_layer < 0 ? c->num_layers + 1 + c->feature_layer
                                  : c->num_layers;
}

/* Positions of a side of the table that is resampled. */
static inline int64_t loongi_vision_side(const loong_vision_config_t *c)
{
    int64_t side = 0;
    while ((side + 1) * (side + 1) <= c->num_positions) {
        side++;
    }
    return side;
}

static inline loong_position_table_t
loongi_vision_table(const loong_vision_config_t *c)
{
    loong_position_table_t table = {loongi_vision_side(c), c->interpolation,
                                    c->align_corners, c->antialias};
    return table;
}

/* Values of a patch. */
static inline int64_t loongi_vision_pixels(const loong_vision_config_t *c)
{
    return c->num_channels * c->temporal_patch_size * c->patch_size *
           c->patch_size;
}

/* Patches of the side of a window, and those in one. */
static inline int64_t loongi_vision_window(const loong_vision_config_t *c)
{
    return c->window_size / c->patch_size;
}
static inline int64_t loongi_vision_window_rows(const loong_vision_config_t *c)
{
    return loongi_vision_window(c) * loongi_vision_window(c);
}

/* Patches of the side of a block that the merger makes a row of. */
enum { LOONG_VISION_MERGE = 2 };
static inline int64_t loongi_vision_merge(const loong_vision_config_t *c)
{
    return c->merger_layer >= 0 && c->use_merger ? LOONG_VISION_MERGE : 1;
}
/* Rows that a row of layer `layer`, as that reads them, is made of. */
static inline int64_t loongi_vision_merged(const loong_vision_config_t *c,
                                           int64_t layer)
{
    int64_t side = loongi_vision_merge(c);
    return layer > c->merger_layer ? side * side : 1;
}

/* Keys model.image_encoder. of a configuration. */
extern const loong_recipe_table_t loongi_vision_fields;

/* Slots of loong_family_t; config is a loong_vision_config_t.
 *
 * A micro-batch has R rows, request->rows on each rank of CP, one after the
 * other, and room for N = R / (rows of a picture) pictures. Each is a segment,
 * its class token first; what is left are segments of padding, none longer than
 * a picture. Inputs: patches wide [request->rows, channels frames p^2],
 * positions i32 [R] in the picture, or with rotary ones patch_positions i32
 * [2,R], row and column; of a table that is resampled position_taps,
 * position_weights and tap_order; with layer scale ones; cu_seqlens i32
 * [max_segments + 1]; with windows, whose patches stand together,
 * cu_window_seqlens i32 [R / min(window_size / patch_size, LOONG_PADDING_ROWS)
 * + max_segments + 2] and raster_index i32 [R] (loong/image.h); with a merger
 * cu_block_seqlens i32 [R / 4 + 1] and cu_merged_seqlens i32 [max_segments +
 * 1], which hold behind it, where the stream has a row of four; with
 * chunk_frames C above 1 frame_numbers and is_moving i32 [R], frame_taps i32
 * [R C], frame_weights wide [R,C] and frame_order; with class tokens
 * is_class i32 [R], 1 where one is; with masked image modelling
 * is_masked i32 [R], 1 where mask_token stands. With a classifier
 * pooled_picture i32 [R], the number of the picture whose vector the row goes
 * into (that of the class token, or those of the patches) and N elsewhere;
 * labels i32 [N], loss_weight wide [N].
 *
 * Loss "classification", over normaliser "pictures", or output "logits" [N,
 * classes]; loss "masked_mse", the mean squared error of the pixels of masked
 * patches, over "masked_patches", or output "reconstruction" [rows of the
 * stream, channels p^2]; without both sends "features" [rows of the stream,
 * (1 + request->deep_features) hidden]. */
LOONG_NODISCARD loong_status_t
loongi_vision_build(loong_graph_t *graph, const void *config,
                    const loong_model_request_t *request);

/* Fills every field: the family's defaults, then the pairs, keys of a component
 * ("num_layers"). All problems are in one message. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_vision_configure(loong_context_t *ctx, const loong_pairs_t *pairs,
                        loong_vision_config_t *config);
/* Slot of loong_family_t: states every key. */
LOONG_NODISCARD loong_status_t loongi_vision_state(const void *config,
                                                   loong_model_state_fn add,
                                                   void *user);

/* Enters families vit, clip_vision_model, siglip_vision_model, qwen2_vl_vision,
 * qwen2_5_vl_vision, qwen3_vl_vision, internvl_vision, kimi_k25_vision,
 * rice_vit, siglip2_vision_model, minicpmv4_6_vision and glm4v_vision. */
LOONG_NODISCARD loong_status_t loongi_register_vision(loong_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
