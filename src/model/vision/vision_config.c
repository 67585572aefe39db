/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a vision transformer: a table, the defaults of the families
 * (those of their classes in transformers), and what values go together. Called
 * by vision.c, hf/ and src/registry/recipe_tables.c. Read vision.h before. */
#include <stdio.h>
#include <string.h>

#include "field_rows.h"
#include "vision.h"

#define KIND "a vision transformer"
#define LOONG_FIELD_PREFIX "model.image_encoder."
#define LOONG_FIELD_STRUCT loong_vision_config_t

/* Of the words of choices. */
static const int activations[] = {LOONG_MLP_GELU, LOONG_MLP_GELU_TANH,
                                  LOONG_MLP_QUICK_GELU, LOONG_MLP_SWIGLU};
static const int norms[] = {LOONG_NORM_LAYER, LOONG_NORM_RMS};
static const int interpolations[] = {LOONG_BILINEAR, LOONG_BICUBIC,
                                     LOONG_NEAREST};
static const int poolings[] = {LOONG_POOL_CLASS_TOKEN, LOONG_POOL_MEAN};

static const loong_recipe_field_t fields[] = {
    {TEXT("family", SAME,
          "vit, clip_vision_model, siglip_vision_model, qwen2_vl_vision, "
          "qwen2_5_vl_vision, qwen3_vl_vision, internvl_vision, "
          "kimi_k25_vision, rice_vit, siglip2_vision_model, "
          "minicpmv4_6_vision, glm4v_vision"),
     .needed = true},
    {INT64("num_layers", num_layers, 1, 10000, SAME, "transformer layers"),
     .needed = true},
    {INT64("hidden_size", hidden_size, 1, 1e6, SAME,
           "width of the residual stream"),
     .needed = true},
    {INT64("ffn_hidden_size", ffn_hidden_size, 1, 1e7, SAME,
           "width of the feed-forward; 4 x hidden_size when not given")},
    {INT64("num_attention_heads", num_attention_heads, 1, 1e5, SAME, "heads"),
     .needed = true},
    {INT64("image_size", image_size, 0, 1e5, SAME,
           "pixels of a side of a picture; 0, the default of Qwen's: pictures "
           "have sizes of their own, which goes with position_embedding_type "
           "rope or num_position_embeddings")},
    {INT64("patch_size", patch_size, 1, 1e5, SAME,
           "pixels of a side of a patch"),
     .needed = true},
    {INT64("temporal_patch_size", temporal_patch_size, 1, 64, SAME,
           "frames of a patch")},
    {INT64("window_size", window_size, 0, 1e5, SAME,
           "pixels of a side of a window, whose patches alone see each other; "
           "0: those of a picture do")},
    {INT64("tokens_per_second", tokens_per_second, 0, 1e5, SAME,
           "positions of a second of a video on the axis of time; 0: its "
           "moments are counted")},
    {TEXT("full_attention_layers", SAME,
          "with windows: numbers of the layers in which the patches of a "
          "picture see each other, as [7,15,23,31]; every eighth when not "
          "given")},
    {INT64("num_channels", num_channels, 3, 3, SAME, "of a pixel")},
    {FLAG("position_embedding_type", rotary, "learned_absolute rope", SAME,
          "a table of positions in a picture, or rotary ones of row and "
          "column")},
    {INT64("num_position_embeddings", num_positions, 0, 1e6, SAME,
           "rows of a square table of positions that is resampled to the "
           "patches of each picture, beside rotary ones too; 0: a table has a "
           "row for each row of a picture")},
    {CHOICE("position_interpolation", interpolation, "bilinear bicubic nearest",
            interpolations, SAME,
            "how that is done, as torch's interpolate; nearest: the row of the "
            "table in which a patch begins")},
    {BOOL("position_align_corners", align_corners, SAME,
          "the outermost patches are those of the table")},
    {BOOL("position_antialias", antialias, SAME,
          "bilinear, with antialias: patches of a picture with fewer than the "
          "table has get shares of more than four of its rows")},
    {REAL("rotary_base", rotary_base, 1, 1e15, SAME, "rope_theta")},
    {BOOL("rotary_interleaved", rotary_interleaved, SAME,
          "with rope: column and row by turns turn pairs of neighbouring "
          "channels, as MoonViT; else row and column halves of a head")},
    {CHOICE("normalization", normalization, "LayerNorm RMSNorm", norms, SAME,
            "kind of norm")},
    {BOOL("add_class_token", class_token, SAME,
          "a row in front of the patches")},
    {BOOL("rotary_class_token", class_angles, SAME,
          "with rope: the class token turns by angles that are learned, one "
          "for each pair of a head's channels; else it does not turn")},
    {BOOL("add_patch_bias", patch_bias, SAME, "bias of the patch projection")},
    {BOOL("patch_channels_last", channels_last, SAME,
          "the patch projection reads rows, columns and then channels; else "
          "channels, frames, rows and columns")},
    {BOOL("patch_layernorm", patch_norm, SAME,
          "a norm behind the patch projection, before positions")},
    {BOOL("add_qkv_bias", qkv_bias, SAME, "biases of q, k and v")},
    {BOOL("add_attn_proj_bias", attention_output_bias, SAME,
          "bias of attention's output")},
    {BOOL("add_bias_linear", mlp_bias, SAME, "biases in the feed-forward")},
    {BOOL("qk_layernorm", qk_norm, SAME, "norm of each head of q and k")},
    {BOOL("qk_layernorm_whole", qk_norm_whole, SAME,
          "that norm over all heads together")},
    {REAL("layer_scale_init_value", layer_scale, 0, 1e3, SAME,
          "what a layer adds has a factor for each channel, which begins so; "
          "0: none")},
    {BOOL("pre_layernorm", pre_norm, SAME, "a norm in front of the layers")},
    {BOOL("post_layernorm", post_norm, SAME, "a norm behind the layers")},
    {CHOICE("activation", mlp, "gelu gelu_tanh quick_gelu swiglu", activations,
            SAME, "of the feed-forward")},
    {REAL("layernorm_epsilon", norm_eps, 0, 1, SAME, "added to the variance")},
    {REAL("init_method_std", init_std, 0, 10, FREE,
          "standard deviation of matrices at the start; 0.02 when not given")},
    {INT64("num_classes", num_classes, 0, 1e8, SAME,
           "classes of pictures; 0: no classifier")},
    {CHOICE("pooling", pooling, "class_token mean", poolings, SAME,
            "the vector of a picture")},
    {BOOL("add_classifier_bias", classifier_bias, SAME,
          "bias of the classifier")},
    {BOOL("masked_image_modeling", masked_image_modeling, SAME,
          "in place of a classifier: a token stands for masked patches, whose "
          "pixels a decoder is to find (data.mask_ratio)")},
    {INT64(
        "feature_layer", feature_layer, -10000, 10000, SAME,
        "other components read what this many layers make, without the norm "
        "behind the last; negative ones count from the last, -1, back, as in "
        "LLaVA's config.json; layers behind are kept and not computed; all "
        "layers and that norm when not given")},
    {TEXT("deepstack_layers", SAME,
          "numbers of layers behind which rows go to other components as well, "
          "as [8,16,24]: mergers of their own make deep features of them, "
          "which are added to the stream of the foundation's first layers")},
    {INT64("merger_layer", merger_layer, -1, 10000, SAME,
           "number of the layer behind which blocks of 2 x 2 patches see each "
           "other and become one row, as MiniCPM-V 4.6's insert_layer_id; the "
           "layers behind have a quarter of the rows; -1: none")},
    {INT64("chunk_frames", chunk_frames, 1, 64, SAME,
           "frames of a video that see each other, as MoonViT's pos_emb_time: "
           "sines of their number are added to them, and other components read "
           "their mean; 1: each frame is by itself")},
    {BOOL("use_merger", use_merger, SAME,
          "false: that merger is kept and not computed (downsample_mode 4x)")},
    {BOOL("select_class_token", select_class_token, SAME,
          "the class token's row goes to other components as well; an encoder "
          "without one leaves nothing out: true")},
};

const loong_recipe_table_t loongi_vision_fields = {LOONG_FIELD_PREFIX, fields,
                                                   LOONG_COUNT_OF(fields)};

/* What all families have, unless they say otherwise. */
static const loong_vision_config_t common = {.num_channels = 3,
                                             .temporal_patch_size = 1,
                                             .rotary_base = 1e4,
                                             .normalization = LOONG_NORM_LAYER,
                                             .class_token = true,
                                             .patch_bias = true,
                                             .qkv_bias = true,
                                             .attention_output_bias = true,
                                             .mlp_bias = true,
                                             .post_norm = true,
                                             .mlp = LOONG_MLP_GELU,
                                             .norm_eps = 1e-12,
                                             .init_std = 0.02,
                                             .classifier_bias = true,
                                             .merger_layer = -1,
                                             .chunk_frames = 1,
                                             .use_merger = true};

/* Those of ViT are the common ones. CLIP's last norm is of the class token
 * alone, which its classifier does not look at. */
static const struct {
    const char *family;
    loong_pair_t pair;
} family_defaults[] = {
    {"clip_vision_model", {"add_patch_bias", "false"}},
    {"clip_vision_model", {"pre_layernorm", "true"}},
    {"clip_vision_model", {"post_layernorm", "false"}},
    {"clip_vision_model", {"activation", "quick_gelu"}},
    {"clip_vision_model", {"layernorm_epsilon", "1e-5"}},
    {"clip_vision_model", {"pooling", "mean"}},
    {"siglip_vision_model", {"add_class_token", "false"}},
    {"siglip_vision_model", {"activation", "gelu_tanh"}},
    {"siglip_vision_model", {"layernorm_epsilon", "1e-6"}},
    {"siglip_vision_model", {"pooling", "mean"}},
    {"qwen2_vl_vision", {"add_class_token", "false"}},
    {"qwen2_vl_vision", {"add_patch_bias", "false"}},
    {"qwen2_vl_vision", {"post_layernorm", "false"}},
    {"qwen2_vl_vision", {"temporal_patch_size", "2"}},
    {"qwen2_vl_vision", {"position_embedding_type", "rope"}},
    {"qwen2_vl_vision", {"activation", "quick_gelu"}},
    {"qwen2_vl_vision", {"layernorm_epsilon", "1e-6"}},
    {"ernie4_5_vl_vision", {"add_class_token", "false"}},
    {"ernie4_5_vl_vision", {"add_patch_bias", "false"}},
    {"ernie4_5_vl_vision", {"position_embedding_type", "rope"}},
    {"ernie4_5_vl_vision", {"activation", "quick_gelu"}},
    {"ernie4_5_vl_vision", {"layernorm_epsilon", "1e-6"}},
    {"qwen2_5_vl_vision", {"add_class_token", "false"}},
    {"qwen2_5_vl_vision", {"add_patch_bias", "false"}},
    {"qwen2_5_vl_vision", {"post_layernorm", "false"}},
    {"qwen2_5_vl_vision", {"temporal_patch_size", "2"}},
    {"qwen2_5_vl_vision", {"position_embedding_type", "rope"}},
    {"qwen2_5_vl_vision", {"normalization", "RMSNorm"}},
    {"qwen2_5_vl_vision", {"activation", "swiglu"}},
    {"qwen2_5_vl_vision", {"layernorm_epsilon", "1e-6"}},
    {"qwen2_5_vl_vision", {"window_size", "112"}},
    {"qwen2_5_vl_vision", {"tokens_per_second", "4"}},
    {"qwen3_vl_vision", {"add_class_token", "false"}},
    {"qwen3_vl_vision", {"post_layernorm", "false"}},
    {"qwen3_vl_vision", {"temporal_patch_size", "2"}},
    {"qwen3_vl_vision", {"position_embedding_type", "rope"}},
    {"qwen3_vl_vision", {"num_position_embeddings", "2304"}},
    {"qwen3_vl_vision", {"position_align_corners", "true"}},
    {"qwen3_vl_vision", {"activation", "gelu_tanh"}},
    {"qwen3_vl_vision", {"layernorm_epsilon", "1e-6"}},
    {"kimi_k25_vision", {"add_class_token", "false"}},
    {"kimi_k25_vision", {"position_embedding_type", "rope"}},
    {"kimi_k25_vision", {"rotary_interleaved", "true"}},
    {"kimi_k25_vision", {"num_position_embeddings", "4096"}},
    {"kimi_k25_vision", {"position_interpolation", "bicubic"}},
    {"kimi_k25_vision", {"chunk_frames", "4"}},
    {"kimi_k25_vision", {"activation", "gelu_tanh"}},
    {"kimi_k25_vision", {"layernorm_epsilon", "1e-5"}},
    {"rice_vit", {"add_patch_bias", "false"}},
    {"rice_vit", {"pre_layernorm", "true"}},
    {"rice_vit", {"post_layernorm", "false"}},
    {"rice_vit", {"position_embedding_type", "rope"}},
    {"rice_vit", {"rotary_class_token", "true"}},
    {"rice_vit", {"layernorm_epsilon", "1e-5"}},
    {"siglip2_vision_model", {"add_class_token", "false"}},
    {"siglip2_vision_model", {"num_position_embeddings", "256"}},
    {"siglip2_vision_model", {"position_antialias", "true"}},
    {"siglip2_vision_model", {"patch_channels_last", "true"}},
    {"siglip2_vision_model", {"activation", "gelu_tanh"}},
    {"siglip2_vision_model", {"layernorm_epsilon", "1e-6"}},
    {"siglip2_vision_model", {"pooling", "mean"}},
    {"minicpmv4_6_vision", {"add_class_token", "false"}},
    {"minicpmv4_6_vision", {"num_position_embeddings", "4900"}},
    {"minicpmv4_6_vision", {"position_interpolation", "nearest"}},
    {"minicpmv4_6_vision", {"activation", "gelu_tanh"}},
    {"minicpmv4_6_vision", {"layernorm_epsilon", "1e-6"}},
    {"minicpmv4_6_vision", {"merger_layer", "6"}},
    {"glm4v_vision", {"add_class_token", "false"}},
    {"glm4v_vision", {"patch_layernorm", "true"}},
    {"glm4v_vision", {"add_qkv_bias", "false"}},
    {"glm4v_vision", {"add_attn_proj_bias", "false"}},
    {"glm4v_vision", {"add_bias_linear", "false"}},
    {"glm4v_vision", {"temporal_patch_size", "2"}},
    {"glm4v_vision", {"position_embedding_type", "rope"}},
    {"glm4v_vision", {"num_position_embeddings", "576"}},
    {"glm4v_vision", {"position_interpolation", "bicubic"}},
    {"glm4v_vision", {"normalization", "RMSNorm"}},
    {"glm4v_vision", {"activation", "swiglu"}},
    {"glm4v_vision", {"layernorm_epsilon", "1e-5"}},
    {"internvl_vision", {"post_layernorm", "false"}},
    {"internvl_vision", {"add_qkv_bias", "false"}},
    {"internvl_vision", {"qk_layernorm_whole", "true"}},
    {"internvl_vision", {"layer_scale_init_value", "0.1"}},
    {"internvl_vision", {"layernorm_epsilon", "1e-6"}},
};

static void set_defaults(loong_problems_t *problems,
                         loong_vision_config_t *config, const char *family)
{
    *config = common;
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_defaults); i++) {
        if (family != NULL && strcmp(family_defaults[i].family, family) == 0) {
            loongi_recipe_field_set(problems, &loongi_vision_fields, KIND,
                                    &family_defaults[i].pair, config);
        }
    }
}

/* A head is turned in quarters; nothing else knows pictures of sizes of their
 * own. */
static void check_native(loong_problems_t *problems,
                         const loong_vision_config_t *c)
{
    if (c->image_size == 0 && !c->rotary && c->num_positions == 0) {
        loongi_problems_add(problems, "image_size is missing");
    }
    if (c->rotary && c->num_attention_heads > 0 &&
        c->hidden_size / c->num_attention_heads % 4 != 0) {
        loongi_problems_add(problems,
                            "position_embedding_type rope: hidden_size %lld of "
                            "%lld heads, which are no multiples of 4 channels",
                            (long long)c->hidden_size,
                            (long long)c->num_attention_heads);
    }
    if (c->image_size == 0 &&
        (c->num_classes > 0 || c->masked_image_modeling)) {
        loongi_problems_add(problems,
                            "image_size 0: pictures of sizes of their own go "
                            "without num_classes and masked_image_modeling");
    }
    if (c->antialias &&
        (c->num_positions == 0 || c->interpolation != LOONG_BILINEAR ||
         c->align_corners)) {
        loongi_problems_add(problems,
                            "position_antialias: true, which goes with "
                            "num_position_embeddings, bilinear "
                            "position_interpolation and without "
                            "position_align_corners");
    }
    if (c->channels_last && c->temporal_patch_size > 1) {
        loongi_problems_add(problems,
                            "patch_channels_last: true, which goes with "
                            "temporal_patch_size 1, found %lld",
                            (long long)c->temporal_patch_size);
    }
    if (c->class_angles && !(c->rotary && c->class_token)) {
        loongi_problems_add(problems, "rotary_class_token: true, which goes "
                                      "with position_embedding_type rope and "
                                      "add_class_token");
    }
}

/* Ascending numbers of layers, as [7,15,23,31], become marks. */
static void read_layers(loong_problems_t *problems, const char *key,
                        const char *text, const loong_vision_config_t *c,
                        loong_layer_kinds_t *layers)
{
    const char *at = text;
    char next = '[';
    int layer = 0, used = 0, least = 0;
    while (next != '\0' && *at == next) {
        used = 0;
        if (sscanf(at + 1, " %d %n", &layer, &used) != 1 || layer < least ||
            layer >= c->num_layers || used == 0) {
            break;
        }
        layers->of[layer] = 1;
        least = layer + 1;
        at += 1 + used;
        next = *at == ']' ? '\0' : ',';
    }
    if (strcmp(at, "]") != 0 && strcmp(text, "[]") != 0) {
        loongi_problems_add(problems,
                            "%s: found %s, ascending numbers of layers, 0 "
                            "to %lld, are wanted, as [0,1]",
                            key, text, (long long)c->num_layers - 1);
    }
}

/* Which layers see whole pictures. */
static void read_windows(loong_problems_t *problems, const loong_pairs_t *pairs,
                         loong_vision_config_t *c)
{
    static const char key[] = "full_attention_layers";
    enum { EVERY = 8 };
    const char *full = loongi_pairs_get(pairs, key);
    if (c->window_size == 0) {
        if (full != NULL) {
            loongi_problems_add(problems, "%s: %s, but window_size is 0", key,
                                full);
        }
        return;
    }
    if (full != NULL) {
        read_layers(problems, key, full, c, &c->full);
    }
    for (int64_t i = EVERY - 1; full == NULL && i < c->num_layers; i += EVERY) {
        c->full.of[i] = 1;
    }
    if (c->patch_size > 0 && c->window_size % c->patch_size != 0) {
        loongi_problems_add(
            problems, "window_size %lld is no multiple of patch_size %lld",
            (long long)c->window_size, (long long)c->patch_size);
    }
    if (c->class_token) {
        loongi_problems_add(problems, "window_size %lld: class tokens are in "
                                      "no window, add_class_token is true",
                            (long long)c->window_size);
    }
}

/* Layers whose rows go to others, and the table of positions. */
static void read_deep(loong_problems_t *problems, const loong_pairs_t *pairs,
                      loong_vision_config_t *c)
{
    static const char key[] = "deepstack_layers";
    const char *deep = loongi_pairs_get(pairs, key);
    int64_t side = loongi_vision_side(c);
    int64_t count = 0;
    if (deep != NULL) {
        read_layers(problems, key, deep, c, &c->deep);
    }
    for (int64_t i = 0; i < c->num_layers; i++) {
        count += c->deep.of[i];
        if (c->deep.of[i] && i >= loongi_vision_layers(c)) {
            loongi_problems_add(problems,
                                "%s: found %lld, feature_layer leaves layers "
                                "from %lld on out",
                                key, (long long)i,
                                (long long)loongi_vision_layers(c));
        }
    }
    if (count > LOONG_MAX_DEEP_FEATURES) {
        loongi_problems_add(problems, "%s: found %lld layers, at most %d", key,
                            (long long)count, LOONG_MAX_DEEP_FEATURES);
    }
    if (side * side != c->num_positions ||
        (c->num_positions > 0 && c->class_token)) {
        loongi_problems_add(problems,
                            "num_position_embeddings: found %lld, squares are "
                            "resampled, without add_class_token",
                            (long long)c->num_positions);
    }
}

/* Rows of one kind go on as one. */
static void check_merger(loong_problems_t *problems,
                         const loong_vision_config_t *c)
{
    bool deep = false;
    if (c->merger_layer < 0) {
        return;
    }
    for (int64_t i = 0; i < LOONG_MIN(c->merger_layer + 1, c->num_layers);
         i++) {
        deep = deep || c->deep.of[i] != 0;
    }
    if (c->merger_layer >= loongi_vision_layers(c)) {
        loongi_problems_add(problems,
                            "merger_layer: found %lld, 0 to %lld are layers "
                            "that are computed",
                            (long long)c->merger_layer,
                            (long long)loongi_vision_layers(c) - 1);
    }
    if (deep || c->class_token || c->window_size > 0 || c->rotary ||
        c->num_classes > 0 || c->masked_image_modeling) {
        loongi_problems_add(problems,
                            "merger_layer %lld goes without add_class_token, "
                            "window_size, position_embedding_type rope, "
                            "num_classes, masked_image_modeling and "
                            "deepstack_layers in front of it",
                            (long long)c->merger_layer);
    }
}

/* Frames go on as the rows of one. */
static void check_chunks(loong_problems_t *problems,
                         const loong_vision_config_t *c)
{
    if (c->chunk_frames > 1 &&
        (c->image_size > 0 || c->temporal_patch_size > 1 ||
         c->window_size > 0 || c->merger_layer >= 0 ||
         c->hidden_size % 2 != 0)) {
        loongi_problems_add(problems,
                            "chunk_frames %lld goes with image_size 0, "
                            "temporal_patch_size 1 and an even hidden_size, "
                            "without window_size and merger_layer",
                            (long long)c->chunk_frames);
    }
}

static void check(loong_problems_t *problems, const loong_vision_config_t *c,
                  const loong_pairs_t *pairs)
{
    static const char *const wanted[] = {
        "num_layers", "hidden_size", "num_attention_heads", "patch_size"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(wanted); i++) {
        if (loongi_pairs_get(pairs, wanted[i]) == NULL) {
            loongi_problems_add(problems, "%s is missing", wanted[i]);
        }
    }
    check_native(problems, c);
    check_merger(problems, c);
    check_chunks(problems, c);
    if (c->num_attention_heads > 0 &&
        c->hidden_size % c->num_attention_heads != 0) {
        loongi_problems_add(problems,
                            "hidden_size %lld is no multiple of "
                            "num_attention_heads %lld",
                            (long long)c->hidden_size,
                            (long long)c->num_attention_heads);
    }
    if (c->patch_size > c->image_size && c->image_size > 0) {
        loongi_problems_add(problems,
                            "image_size %lld is less than patch_size %lld",
                            (long long)c->image_size, (long long)c->patch_size);
    }
    int64_t layers = loongi_vision_layers(c);
    if (layers < 1 || layers > c->num_layers) {
        loongi_problems_add(problems,
                            "feature_layer: found %lld, 1 to %lld and -%lld to "
                            "-1 are layers that others read",
                            (long long)c->feature_layer,
                            (long long)c->num_layers, (long long)c->num_layers);
    } else if (c->feature_layer != 0 &&
               (c->num_classes > 0 || c->masked_image_modeling)) {
        loongi_problems_add(problems,
                            "feature_layer: found %lld of an encoder with "
                            "num_classes or masked_image_modeling, of which "
                            "nobody reads a layer",
                            (long long)c->feature_layer);
    }
    if (c->num_classes > 0 && c->pooling == LOONG_POOL_CLASS_TOKEN &&
        !c->class_token) {
        loongi_problems_add(problems, "pooling: class_token, but "
                                      "add_class_token is false: mean is left");
    }
    if (c->num_classes > 0 && c->masked_image_modeling) {
        loongi_problems_add(problems,
                            "masked_image_modeling stands in place of a "
                            "classifier, num_classes %lld",
                            (long long)c->num_classes);
    }
}

/* What transformers calls "full"; "default" leaves the first row out, whatever
 * it is. */
static void select_rows(loong_problems_t *problems, const loong_pairs_t *pairs,
                        loong_vision_config_t *config)
{
    const char *given = loongi_pairs_get(pairs, "select_class_token");
    if (config->class_token) {
        return;
    }
    config->select_class_token = true;
    if (given != NULL && strcmp(given, "false") == 0) {
        loongi_problems_add(problems,
                            "select_class_token: false, but add_class_token is "
                            "false: no row of a patch is left out");
    }
}

loong_status_t loongi_vision_configure(loong_context_t *ctx,
                                       const loong_pairs_t *pairs,
                                       loong_vision_config_t *config)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    set_defaults(&problems, config, loongi_pairs_get(pairs, "family"));
    for (int64_t i = 0; i < pairs->count; i++) {
        loongi_recipe_field_set(&problems, &loongi_vision_fields, KIND,
                                &pairs->items[i], config);
    }
    if (config->ffn_hidden_size == 0) {
        config->ffn_hidden_size = 4 * config->hidden_size;
    }
    select_rows(&problems, pairs, config);
    read_windows(&problems, pairs, config);
    read_deep(&problems, pairs, config);
    check(&problems, config, pairs);
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG,
                               "the vision transformer");
}

loong_status_t loongi_vision_state(const void *config, loong_model_state_fn add,
                                   void *user)
{
    return loongi_recipe_fields_each(&loongi_vision_fields, config, add, user);
}
