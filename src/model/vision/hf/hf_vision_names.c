/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of vision transformers in Hugging Face files. A part of
 * hf_vision.c's loong_hf_kind_t; read hf_names.h before. */
#include "hf_vision.h"

#include "hf_rows.h"
#include "vision.h"

/* A layer, by what its norms and its output projection are called. */
#define BOTH(name_, hf_, rows_, columns_)                     \
    NAMED(name_ ".weight", hf_ ".weight", rows_, columns_),    \
        NAMED(name_ ".bias", hf_ ".bias", rows_, HF_NONE)
#define CLASSIFIER                                                       \
    ROW("classifier.weight", NULL, HF_CLASSES, HF_HIDDEN, HF_IF_CLASSES, \
        HF_BARE | HF_OWN),                                               \
        ROW("classifier.bias", NULL, HF_CLASSES, HF_NONE, HF_IF_CLASSES, \
            HF_BARE | HF_OWN),                                           \
        ROWS_END
#define IMAGE(hf_) \
    ROW("patch_embedding.weight", hf_, HF_HIDDEN, HF_PATCH, HF_ALWAYS, HF_IMAGE)
#define FRAMES(hf_)                                                       \
    ROW("patch_embedding.weight", hf_, HF_HIDDEN, HF_PATCH, HF_ALWAYS, \
        HF_IMAGE | HF_FRAMES)

#define LAYER "encoder.layer.#."
#define SELF LAYER "attention.attention."
static const loong_hf_row_t vit_rows[] = {
    ROW("class_token.weight", "embeddings.cls_token", HF_NONE, HF_HIDDEN,
        HF_ALWAYS, HF_FIRST),
    ROW("mask_token.weight", "embeddings.mask_token", HF_NONE, HF_HIDDEN,
        HF_IF_MASKED, HF_FIRST | HF_OWN),
    ROW("position_embeddings.weight", "embeddings.position_embeddings",
        HF_POSITION, HF_HIDDEN, HF_ALWAYS, HF_FIRST),
    IMAGE("embeddings.patch_embeddings.projection.weight"),
    NAMED("patch_embedding.bias", "embeddings.patch_embeddings.projection.bias",
          HF_HIDDEN, HF_NONE),
    BOTH("layers.#.input_layernorm", LAYER "layernorm_before", HF_HIDDEN,
         HF_NONE),
    BOTH(ATTN "q_proj", SELF "query", HF_HIDDEN, HF_HIDDEN),
    BOTH(ATTN "k_proj", SELF "key", HF_HIDDEN, HF_HIDDEN),
    BOTH(ATTN "v_proj", SELF "value", HF_HIDDEN, HF_HIDDEN),
    BOTH(ATTN "o_proj", LAYER "attention.output.dense", HF_HIDDEN, HF_HIDDEN),
    BOTH("layers.#.post_attention_layernorm", LAYER "layernorm_after",
         HF_HIDDEN, HF_NONE),
    BOTH(MLP "up_proj", LAYER "intermediate.dense", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "output.dense", HF_HIDDEN, HF_FFN),
    BOTH("norm", "layernorm", HF_HIDDEN, HF_NONE),
    ROW("decoder.weight", "decoder.0.weight", HF_PATCH, HF_HIDDEN, HF_IF_MASKED,
        HF_BARE | HF_POINT | HF_OWN),
    ROW("decoder.bias", "decoder.0.bias", HF_PATCH, HF_NONE, HF_IF_MASKED,
        HF_BARE | HF_OWN),
    CLASSIFIER};

#undef LAYER
#undef SELF
#define LAYER "encoder.layers.#."
#define SELF LAYER "self_attn."
#define TOWER_LAYERS                                                           \
    BOTH("layers.#.input_layernorm", LAYER "layer_norm1", HF_HIDDEN, HF_NONE), \
        BOTH(ATTN "q_proj", SELF "q_proj", HF_HIDDEN, HF_HIDDEN),              \
        BOTH(ATTN "k_proj", SELF "k_proj", HF_HIDDEN, HF_HIDDEN),              \
        BOTH(ATTN "v_proj", SELF "v_proj", HF_HIDDEN, HF_HIDDEN),              \
        BOTH(ATTN "o_proj", SELF "out_proj", HF_HIDDEN, HF_HIDDEN),            \
        BOTH("layers.#.post_attention_layernorm", LAYER "layer_norm2",         \
             HF_HIDDEN, HF_NONE),                                              \
        BOTH(MLP "up_proj", LAYER "mlp.fc1", HF_FFN, HF_HIDDEN),               \
        BOTH(MLP "down_proj", LAYER "mlp.fc2", HF_HIDDEN, HF_FFN)
#define TOWER_POSITIONS                                              \
    NAMED("position_embeddings.weight",                              \
          "embeddings.position_embedding.weight", HF_POSITION, HF_HIDDEN)

static const loong_hf_row_t clip_rows[] = {
    ROW("class_token.weight", "embeddings.class_embedding", HF_NONE, HF_HIDDEN,
        HF_ALWAYS, HF_ROW),
    TOWER_POSITIONS,
    IMAGE("embeddings.patch_embedding.weight"),
    BOTH("pre_layernorm", "pre_layrnorm", HF_HIDDEN, HF_NONE),
    TOWER_LAYERS,
    ROW("norm.weight", "post_layernorm.weight", HF_HIDDEN, HF_NONE,
        HF_IF_POST_NORM, 0),
    ROW("norm.bias", "post_layernorm.bias", HF_HIDDEN, HF_NONE, HF_IF_POST_NORM,
        0),
    CLASSIFIER};
static const loong_hf_row_t siglip_rows[] = {
    TOWER_POSITIONS,
    IMAGE("embeddings.patch_embedding.weight"),
    NAMED("patch_embedding.bias", "embeddings.patch_embedding.bias", HF_HIDDEN,
          HF_NONE),
    TOWER_LAYERS,
    BOTH("norm", "post_layernorm", HF_HIDDEN, HF_NONE),
    CLASSIFIER};

static const loong_hf_row_t siglip2_rows[] = {
    TOWER_POSITIONS,
    BOTH("patch_embedding", "embeddings.patch_embedding", HF_HIDDEN, HF_PATCH),
    TOWER_LAYERS,
    BOTH("norm", "post_layernorm", HF_HIDDEN, HF_NONE),
    ROWS_END};

#define MERGER(name_, hf_, rows_, columns_)                                 \
    ROW("merger." name_ ".weight", "vit_merger." hf_ ".weight", rows_,       \
        columns_, HF_IF_MERGER, 0),                                          \
        ROW("merger." name_ ".bias", "vit_merger." hf_ ".bias", rows_,       \
            HF_NONE, HF_IF_MERGER, 0)
static const loong_hf_row_t minicpmv_rows[] = {
    TOWER_POSITIONS,
    IMAGE("embeddings.patch_embedding.weight"),
    NAMED("patch_embedding.bias", "embeddings.patch_embedding.bias", HF_HIDDEN,
          HF_NONE),
    TOWER_LAYERS,
    BOTH("norm", "post_layernorm", HF_HIDDEN, HF_NONE),
    MERGER("input_layernorm", "layer_norm1", HF_HIDDEN, HF_NONE),
    MERGER("self_attn.q_proj", "self_attn.q_proj", HF_HIDDEN, HF_HIDDEN),
    MERGER("self_attn.k_proj", "self_attn.k_proj", HF_HIDDEN, HF_HIDDEN),
    MERGER("self_attn.v_proj", "self_attn.v_proj", HF_HIDDEN, HF_HIDDEN),
    MERGER("self_attn.o_proj", "self_attn.out_proj", HF_HIDDEN, HF_HIDDEN),
    MERGER("norm", "pre_norm", HF_BLOCK, HF_NONE),
    MERGER("linear_1", "linear_1", HF_BLOCK_FFN, HF_BLOCK),
    MERGER("linear_2", "linear_2", HF_HIDDEN, HF_BLOCK_FFN),
    ROWS_END};

#undef LAYER
#undef SELF
#define LAYER "encoder.layer.#."
#define SELF LAYER "attention."
#define WITH(name_, hf_, columns_, condition_) \
    ROW(name_, hf_, HF_HIDDEN, columns_, condition_, 0)
#define NORM(name_, hf_)                                    \
    WITH(name_ ".weight", hf_ ".weight", HF_NONE, HF_ALWAYS), \
        WITH(name_ ".bias", hf_ ".bias", HF_NONE, HF_IF_NORM_BIAS)
#define PRODUCT(name_)                                                       \
    NAMED(ATTN name_ ".weight", SELF name_ ".weight", HF_HIDDEN, HF_HIDDEN), \
        WITH(ATTN name_ ".bias", SELF name_ ".bias", HF_NONE, HF_IF_QKV_BIAS)
#define QK_NORM(name_) \
    WITH(ATTN name_ ".weight", SELF name_ ".weight", HF_NONE, HF_IF_QK_NORM)
static const loong_hf_row_t internvl_rows[] = {
    ROW("class_token.weight", "embeddings.cls_token", HF_NONE, HF_HIDDEN,
        HF_ALWAYS, HF_FIRST),
    ROW("position_embeddings.weight", "embeddings.position_embeddings",
        HF_POSITION, HF_HIDDEN, HF_ALWAYS, HF_FIRST),
    IMAGE("embeddings.patch_embeddings.projection.weight"),
    NAMED("patch_embedding.bias", "embeddings.patch_embeddings.projection.bias",
          HF_HIDDEN, HF_NONE),
    NORM("layers.#.input_layernorm", LAYER "layernorm_before"),
    PRODUCT("q_proj"),
    PRODUCT("k_proj"),
    PRODUCT("v_proj"),
    QK_NORM("q_norm"),
    QK_NORM("k_norm"),
    BOTH(ATTN "o_proj", SELF "projection_layer", HF_HIDDEN, HF_HIDDEN),
    NAMED("layers.#.attention_scale", LAYER "lambda_1", HF_HIDDEN, HF_NONE),
    NORM("layers.#.post_attention_layernorm", LAYER "layernorm_after"),
    BOTH(MLP "up_proj", LAYER "mlp.fc1", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "mlp.fc2", HF_HIDDEN, HF_FFN),
    NAMED("layers.#.mlp_scale", LAYER "lambda_2", HF_HIDDEN, HF_NONE),
    ROWS_END};

#define PART_IF(name_, hf_, columns_, part_, condition_)                    \
    {                                                                       \
        ATTN name_, LAYER hf_, HF_HIDDEN, columns_, condition_, 0, part_, 3, \
            NULL                                                            \
    }
#define PARTS_IF(end_, columns_, condition_)                             \
    PART_IF("q_proj." end_, "attn.qkv." end_, columns_, 0, condition_),   \
        PART_IF("k_proj." end_, "attn.qkv." end_, columns_, 1, condition_), \
        PART_IF("v_proj." end_, "attn.qkv." end_, columns_, 2, condition_)

/* The same in OpenGVLab's files. */
#undef LAYER
#undef SELF
#define LAYER "encoder.layers.#."
#define SELF LAYER "attn."
static const loong_hf_row_t intern_vit_rows[] = {
    ROW("class_token.weight", "embeddings.class_embedding", HF_NONE, HF_HIDDEN,
        HF_ALWAYS, HF_FIRST),
    ROW("position_embeddings.weight", "embeddings.position_embedding",
        HF_POSITION, HF_HIDDEN, HF_ALWAYS, HF_FIRST),
    IMAGE("embeddings.patch_embedding.weight"),
    NAMED("patch_embedding.bias", "embeddings.patch_embedding.bias", HF_HIDDEN,
          HF_NONE),
    NORM("layers.#.input_layernorm", LAYER "norm1"),
    PARTS_IF("weight", HF_HIDDEN, HF_ALWAYS),
    PARTS_IF("bias", HF_NONE, HF_IF_QKV_BIAS),
    QK_NORM("q_norm"),
    QK_NORM("k_norm"),
    BOTH(ATTN "o_proj", LAYER "attn.proj", HF_HIDDEN, HF_HIDDEN),
    NAMED("layers.#.attention_scale", LAYER "ls1", HF_HIDDEN, HF_NONE),
    NORM("layers.#.post_attention_layernorm", LAYER "norm2"),
    BOTH(MLP "up_proj", LAYER "mlp.fc1", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "mlp.fc2", HF_HIDDEN, HF_FFN),
    NAMED("layers.#.mlp_scale", LAYER "ls2", HF_HIDDEN, HF_NONE),
    ROWS_END};

#undef LAYER
#define LAYER "blocks.#."
#define PART(name_, hf_, columns_, part_) \
    PART_IF(name_, hf_, columns_, part_, HF_ALWAYS)
#define PARTS(end_, columns_) PARTS_IF(end_, columns_, HF_ALWAYS)
#define QWEN_LAYERS                                                           \
    BOTH("layers.#.input_layernorm", LAYER "norm1", HF_HIDDEN, HF_NONE),      \
        PARTS("weight", HF_HIDDEN), PARTS("bias", HF_NONE),                   \
        BOTH(ATTN "o_proj", LAYER "attn.proj", HF_HIDDEN, HF_HIDDEN),         \
        BOTH("layers.#.post_attention_layernorm", LAYER "norm2", HF_HIDDEN,   \
             HF_NONE),                                                        \
        BOTH(MLP "up_proj", LAYER "mlp.fc1", HF_FFN, HF_HIDDEN),              \
        BOTH(MLP "down_proj", LAYER "mlp.fc2", HF_HIDDEN, HF_FFN)
static const loong_hf_row_t qwen2_vl_rows[] = {
    FRAMES("patch_embed.proj.weight"), QWEN_LAYERS, ROWS_END};
static const loong_hf_row_t rice_rows[] = {
    ROW("class_token.weight", "class_embedding", HF_NONE, HF_HIDDEN, HF_ALWAYS,
        HF_ROW),
    NAMED("class_angles.weight", "class_pos_emb", HF_NONE, HF_HEAD),
    IMAGE("patch_embed.proj.weight"),
    BOTH("pre_layernorm", "pre_layernorm", HF_HIDDEN, HF_NONE),
    QWEN_LAYERS,
    ROWS_END};
/* Patches meet a matrix, as they lie. */
static const loong_hf_row_t ernie4_5_vl_rows[] = {
    NAMED("patch_embedding.weight", "patch_embed.proj.weight", HF_HIDDEN,
          HF_PATCH),
    QWEN_LAYERS, BOTH("norm", "ln", HF_HIDDEN, HF_NONE), ROWS_END};

static const loong_hf_row_t qwen2_5_vl_rows[] = {
    FRAMES("patch_embed.proj.weight"),
    NAMED("layers.#.input_layernorm.weight", LAYER "norm1.weight", HF_HIDDEN,
          HF_NONE),
    PARTS("weight", HF_HIDDEN),
    PARTS("bias", HF_NONE),
    BOTH(ATTN "o_proj", LAYER "attn.proj", HF_HIDDEN, HF_HIDDEN),
    NAMED("layers.#.post_attention_layernorm.weight", LAYER "norm2.weight",
          HF_HIDDEN, HF_NONE),
    BOTH(MLP "gate_proj", LAYER "mlp.gate_proj", HF_FFN, HF_HIDDEN),
    BOTH(MLP "up_proj", LAYER "mlp.up_proj", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "mlp.down_proj", HF_HIDDEN, HF_FFN),
    ROWS_END};

/* Without biases but those of q, k and v, where there are some. */
#define BIAS_PART(name_, part_)                                               \
    {                                                                         \
        ATTN name_ ".bias", LAYER "attn.qkv.bias", HF_HIDDEN, HF_NONE,        \
            HF_IF_QKV_BIAS, 0, part_, 3, NULL                                 \
    }
static const loong_hf_row_t glm4v_rows[] = {
    FRAMES("patch_embed.proj.weight"),
    NAMED("patch_embedding.bias", "patch_embed.proj.bias", HF_HIDDEN, HF_NONE),
    NAMED("patch_layernorm.weight", "post_conv_layernorm.weight", HF_HIDDEN,
          HF_NONE),
    NAMED("position_embeddings.weight", "embeddings.position_embedding.weight",
          HF_POSITION, HF_HIDDEN),
    NAMED("layers.#.input_layernorm.weight", LAYER "norm1.weight", HF_HIDDEN,
          HF_NONE),
    PARTS("weight", HF_HIDDEN),
    BIAS_PART("q_proj", 0),
    BIAS_PART("k_proj", 1),
    BIAS_PART("v_proj", 2),
    NAMED(ATTN "o_proj.weight", LAYER "attn.proj.weight", HF_HIDDEN, HF_HIDDEN),
    NAMED("layers.#.post_attention_layernorm.weight", LAYER "norm2.weight",
          HF_HIDDEN, HF_NONE),
    NAMED(MLP "gate_proj.weight", LAYER "mlp.gate_proj.weight", HF_FFN,
          HF_HIDDEN),
    NAMED(MLP "up_proj.weight", LAYER "mlp.up_proj.weight", HF_FFN, HF_HIDDEN),
    NAMED(MLP "down_proj.weight", LAYER "mlp.down_proj.weight", HF_HIDDEN,
          HF_FFN),
    NAMED("norm.weight", "post_layernorm.weight", HF_HIDDEN, HF_NONE),
    ROWS_END};

static const loong_hf_row_t qwen3_vl_rows[] = {
    FRAMES("patch_embed.proj.weight"),
    NAMED("patch_embedding.bias", "patch_embed.proj.bias", HF_HIDDEN, HF_NONE),
    NAMED("position_embeddings.weight", "pos_embed.weight", HF_POSITION,
          HF_HIDDEN),
    BOTH("layers.#.input_layernorm", LAYER "norm1", HF_HIDDEN, HF_NONE),
    PARTS("weight", HF_HIDDEN),
    PARTS("bias", HF_NONE),
    BOTH(ATTN "o_proj", LAYER "attn.proj", HF_HIDDEN, HF_HIDDEN),
    BOTH("layers.#.post_attention_layernorm", LAYER "norm2", HF_HIDDEN,
         HF_NONE),
    BOTH(MLP "up_proj", LAYER "mlp.linear_fc1", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "mlp.linear_fc2", HF_HIDDEN, HF_FFN),
    ROWS_END};

#undef LAYER
#define LAYER "encoder.blocks.#."
#undef PARTS
#define PARTS(end_, columns_)                             \
    PART("q_proj." end_, "wqkv." end_, columns_, 0),      \
        PART("k_proj." end_, "wqkv." end_, columns_, 1),  \
        PART("v_proj." end_, "wqkv." end_, columns_, 2)
static const loong_hf_row_t moonvit_rows[] = {
    IMAGE("patch_embed.proj.weight"),
    NAMED("patch_embedding.bias", "patch_embed.proj.bias", HF_HIDDEN, HF_NONE),
    ROW("position_embeddings.weight", "patch_embed.pos_emb.weight", HF_POSITION,
        HF_HIDDEN, HF_ALWAYS, HF_GRID),
    BOTH("layers.#.input_layernorm", LAYER "norm0", HF_HIDDEN, HF_NONE),
    PARTS("weight", HF_HIDDEN),
    PARTS("bias", HF_NONE),
    BOTH(ATTN "o_proj", LAYER "wo", HF_HIDDEN, HF_HIDDEN),
    BOTH("layers.#.post_attention_layernorm", LAYER "norm1", HF_HIDDEN,
         HF_NONE),
    BOTH(MLP "up_proj", LAYER "mlp.fc0", HF_FFN, HF_HIDDEN),
    BOTH(MLP "down_proj", LAYER "mlp.fc1", HF_HIDDEN, HF_FFN),
    BOTH("norm", "encoder.final_layernorm", HF_HIDDEN, HF_NONE),
    ROWS_END};

/* What looks at a class token or an attention pool of its own, and texts. */
static const char *const vit_beside[] = {"vit.pooler.", "pooler.", NULL};
static const char *const tower_beside[] = {
    "vision_model.post_layernorm.", "post_layernorm.", "vision_model.head.",
    "head.", "text_model.", "text_projection.", "visual_projection.",
    "logit_scale", "logit_bias", "vision_model.embeddings.position_ids",
    "embeddings.position_ids", NULL};

const loong_hf_names_t loongi_hf_vision_names[] = {
    {"vit", "vit.", vit_rows, false, vit_beside},
    {"clip_vision_model", "vision_model.", clip_rows, false, tower_beside},
    {"siglip_vision_model", "vision_model.", siglip_rows, false, tower_beside},
    {"qwen2_vl_vision", "", qwen2_vl_rows, false, NULL},
    {"qwen2_5_vl_vision", "", qwen2_5_vl_rows, false, NULL},
    {"ernie4_5_vl_vision", "", ernie4_5_vl_rows, false, NULL},
    {"qwen3_vl_vision", "", qwen3_vl_rows, false, NULL},
    {"internvl_vision", "", internvl_rows, false, NULL},
    {"intern_vit_6b", "", intern_vit_rows, false, NULL},
    {"kimi_k25_vision", "", moonvit_rows, false, NULL},
    {"rice_vit", "", rice_rows, false, NULL},
    {"siglip2_vision_model", "vision_model.", siglip2_rows, false,
     tower_beside},
    {"minicpmv4_6_vision", "", minicpmv_rows, false, NULL},
    {"glm4v_vision", "", glm4v_rows, false, NULL},
    {NULL, NULL, NULL, false, NULL}};

loong_status_t loongi_hf_vision_size(loong_hf_map_t *map,
                                     const loong_pairs_t *model)
{
    loong_vision_config_t c;
    int64_t *s = map->sizes;
    LOONG_TRY(loongi_vision_configure(map->ctx, model, &c));
    map->layers = c.num_layers;
    map->groups = 1;
    map->patch[0] = c.num_channels;
    map->patch[1] = c.patch_size;
    map->patch[2] = c.temporal_patch_size;
    s[HF_NONE] = 1;
    s[HF_HIDDEN] = c.hidden_size;
    s[HF_FFN] = c.ffn_hidden_size;
    s[HF_HEAD] = c.hidden_size / c.num_attention_heads / 2; /* angles */
    s[HF_PATCH] = c.num_channels * c.temporal_patch_size * c.patch_size *
                  c.patch_size;
    s[HF_POSITION] =
        c.num_positions > 0 ? c.num_positions : loongi_vision_rows(&c);
    s[HF_CLASSES] = c.num_classes;
    s[HF_BLOCK] = LOONG_VISION_MERGE * LOONG_VISION_MERGE * c.hidden_size;
    s[HF_BLOCK_FFN] =
        LOONG_VISION_MERGE * LOONG_VISION_MERGE * c.ffn_hidden_size;
    map->conditions[HF_ALWAYS] = true;
    map->conditions[HF_IF_CLASSES] = c.num_classes > 0;
    map->conditions[HF_IF_MASKED] = c.masked_image_modeling;
    map->conditions[HF_IF_POST_NORM] = c.post_norm;
    map->conditions[HF_IF_NORM_BIAS] = c.normalization == LOONG_NORM_LAYER;
    map->conditions[HF_IF_MERGER] = c.merger_layer >= 0;
    map->conditions[HF_IF_QKV_BIAS] = c.qkv_bias;
    map->conditions[HF_IF_QK_NORM] = c.qk_norm;
    return LOONG_OK;
}
