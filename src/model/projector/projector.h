/* SPDX-License-Identifier: Apache-2.0
 *
 * What an image encoder sees becomes rows in the width of a language model,
 * linear_2 gelu linear_1 x, each with a bias: the projector of LLaVA 1.5 (Liu
 * et al. 2023), without linear_1 that of PaliGemma (Beyer et al. 2024), and the
 * merger of Qwen2-VL (Wang et al. 2024), which has a norm in front and makes
 * one row of m x m patches. Without gelu and linear_2's bias, but with a norm,
 * gelu and a gated feed-forward behind them, that of GLM-4.1V (GLM-V Team
 * 2025), whose linear_1 is a convolution of a block. Deep features (Meng et al.
 * 2024, DeepStack) have mergers of their own, deepstack.0 and so on. That of
 * LLaVA-OneVision (Li et al. 2024) lays what it makes of tiles out as one
 * sheet, with a learned row behind each line. That of Idefics2 resamples
 * (perceiver.h). That of ERNIE 4.5 VL (Baidu 2025) merges the patches of a
 * block and then the blocks of two frames. */
#ifndef LOONG_PROJECTOR_H
#define LOONG_PROJECTOR_H

#include "base.h"
#include "fields.h"
#include "loong/family.h"
#include "loong/nn.h"
#include "pairs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_projector_config {
    int64_t input_size;  /* the encoder's hidden_size */
    int64_t hidden_size; /* behind the second product: the language model's */
    bool linear;         /* one product, linear_2 */
    int64_t ffn_hidden_size; /* between the two; linear: read by the one */
    int64_t gated_ffn_hidden_size; /* of a feed-forward behind them; 0: none */
    int64_t merge_size;      /* m */
    bool norm;               /* in front, of each patch */
    bool norm_of_blocks;     /* of the m x m patches together */
    int64_t packed_tiles; /* tiles are one sheet again (loong/processor.h), of
                             about so many at most; 0: rows stay as they are */
    /* A resampler: layers and heads of the learned rows that it makes of each
     * picture; 0: none, and the rest says nothing. */
    int64_t num_latents, num_layers;
    int64_t num_attention_heads, num_query_groups, kv_channels;
    int64_t merge_frames; /* of a video whose blocks become one row; 0: the
                             merger has no such parts */
    double output_norm_eps; /* of the norm behind them */
    int num_deep_features;
    loong_norm_kind_t normalization;
    double norm_eps;
    double init_std;
} loong_projector_config_t;

/* Keys model.image_projector. of a configuration. */
extern const loong_recipe_table_t loongi_projector_fields;

/* Slot of loong_family_t; config is a loong_projector_config_t. Receives
 * "features" [R, input_size], the m x m patches of a row after one another,
 * sends "projected" [R / m^2, hidden_size], for R = request->rows rows; deep
 * features are further columns (loong_model_request_t) of both. With packed
 * tiles "projected" are request->packed_rows rows, by inputs pack_taps,
 * pack_weights, is_line_end and tap_order (loong/packing.h), of a resampler by
 * those with latents. With merge_frames F they are as many as blocks, by input
 * frame_rows i32 [F packed_rows], the blocks that become each. The channels
 * between the products, and of a feed-forward, are shared out over TP, rows are
 * equal on its ranks. */
LOONG_NODISCARD loong_status_t
loongi_projector_build(loong_graph_t *graph, const void *config,
                       const loong_model_request_t *request);

/* Fills every field: the family's defaults, then the pairs, keys of a component
 * ("input_size"). All problems are in one message. Errors: LOONG_ERR_CONFIG. */
LOONG_NODISCARD loong_status_t
loongi_projector_configure(loong_context_t *ctx, const loong_pairs_t *pairs,
                           loong_projector_config_t *config);

/* Enters families mlp_projector, linear_projector, patch_merger,
 * qwen2_5_vl_merger, qwen3_vl_merger, kimi_projector, internvl_projector,
 * anyres_projector, minicpmv4_6_merger, perceiver_resampler, glm4v_merger and
 * ernie4_5_vl_resampler.
 * Their configurations take input_size and hidden_size, which must be there. */
LOONG_NODISCARD loong_status_t loongi_register_projector(loong_context_t *ctx);

#ifdef __cplusplus
}
#endif

#endif
