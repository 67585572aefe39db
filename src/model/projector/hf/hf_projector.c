/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and sizes of projectors in Hugging Face files. Listed in
 * src/registry/hf_kinds.c. Read hf_kind.h and projector.h before. */
#include "hf_projector.h"

#include "hf_rows.h"
#include "perceiver.h"

#define BOTH(name_, hf_, rows_, columns_)                   \
    NAMED(name_ ".weight", hf_ ".weight", rows_, columns_), \
        NAMED(name_ ".bias", hf_ ".bias", rows_, HF_NONE)

static const loong_hf_row_t mlp_rows[] = {
    BOTH("linear_1", "linear_1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "linear_2", HF_HIDDEN, HF_FFN), ROWS_END};
/* The learned row has no name but that of all models' file. */
static const loong_hf_row_t anyres_rows[] = {
    BOTH("linear_1", "linear_1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "linear_2", HF_HIDDEN, HF_FFN),
    ROW("newline.weight", "", HF_NONE, HF_HIDDEN, HF_ALWAYS, HF_ROW | HF_BARE),
    ROWS_END};
static const loong_hf_row_t linear_rows[] = {
    BOTH("linear_2", "linear", HF_HIDDEN, HF_PATCH), ROWS_END};
static const loong_hf_row_t merger_rows[] = {
    BOTH("norm", "ln_q", HF_QUERY, HF_NONE),
    BOTH("linear_1", "mlp.0", HF_FFN, HF_PATCH),
    BOTH("linear_2", "mlp.2", HF_HIDDEN, HF_FFN), ROWS_END};

static const loong_hf_row_t rms_merger_rows[] = {
    NAMED("norm.weight", "ln_q.weight", HF_QUERY, HF_NONE),
    BOTH("linear_1", "mlp.0", HF_FFN, HF_PATCH),
    BOTH("linear_2", "mlp.2", HF_HIDDEN, HF_FFN), ROWS_END};

static const loong_hf_row_t internvl_rows[] = {
    BOTH("norm", "layer_norm", HF_PATCH, HF_NONE),
    BOTH("linear_1", "linear_1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "linear_2", HF_HIDDEN, HF_FFN), ROWS_END};

static const loong_hf_row_t internvl_chat_rows[] = {
    BOTH("norm", "0", HF_PATCH, HF_NONE),
    BOTH("linear_1", "1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "3", HF_HIDDEN, HF_FFN), ROWS_END};

static const loong_hf_row_t kimi_rows[] = {
    BOTH("norm", "pre_norm", HF_QUERY, HF_NONE),
    BOTH("linear_1", "proj.0", HF_FFN, HF_PATCH),
    BOTH("linear_2", "proj.2", HF_HIDDEN, HF_FFN), ROWS_END};

static const loong_hf_row_t minicpmv_rows[] = {
    BOTH("norm", "mlp.0.pre_norm", HF_PATCH, HF_NONE),
    BOTH("linear_1", "mlp.0.linear_1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "mlp.0.linear_2", HF_HIDDEN, HF_FFN), ROWS_END};

/* Below a connector; its layers are those of map->layers. */
#define HELD(name_, hf_, rows_, columns_) \
    NAMED(name_ ".weight", hf_ ".weight", rows_, columns_)
#define GATED(name_, hf_, ffn_, in_)                                 \
    HELD(name_ "mlp.gate_proj", hf_ "gate_proj", ffn_, in_),         \
        HELD(name_ "mlp.up_proj", hf_ "up_proj", ffn_, in_),         \
        HELD(name_ "mlp.down_proj", hf_ "down_proj", HF_HIDDEN, ffn_)
#define RESAMPLER "perceiver_resampler."
static const loong_hf_row_t perceiver_rows[] = {
    GATED("projection.", "modality_projection.", HF_FFN, HF_PATCH),
    NAMED("latents.weight", RESAMPLER "latents", HF_POSITION, HF_HIDDEN),
    HELD("layers.#.input_layernorm", RESAMPLER "layers.#.input_latents_norm",
         HF_HIDDEN, HF_NONE),
    HELD("layers.#.context_layernorm", RESAMPLER "layers.#.input_context_norm",
         HF_HIDDEN, HF_NONE),
    HELD(ATTN "q_proj", RESAMPLER ATTN "q_proj", HF_QUERY, HF_HIDDEN),
    HELD(ATTN "k_proj", RESAMPLER ATTN "k_proj", HF_KEY, HF_HIDDEN),
    HELD(ATTN "v_proj", RESAMPLER ATTN "v_proj", HF_KEY, HF_HIDDEN),
    HELD(ATTN "o_proj", RESAMPLER ATTN "o_proj", HF_HIDDEN, HF_QUERY),
    HELD("layers.#.post_attention_layernorm",
         RESAMPLER "layers.#.post_attention_layernorm", HF_HIDDEN, HF_NONE),
    GATED("layers.#.", RESAMPLER MLP, HF_BLOCK_FFN, HF_HIDDEN),
    HELD("norm", RESAMPLER "norm", HF_HIDDEN, HF_NONE),
    ROWS_END};

/* linear_1 has a module of its own beside the merger, a convolution. */
static const loong_hf_row_t glm4v_rows[] = {
    ROW("linear_1.weight", "weight", HF_FFN, HF_PATCH, HF_ALWAYS,
        HF_BARE | HF_IMAGE | HF_PLACES),
    ROW("linear_1.bias", "bias", HF_FFN, HF_NONE, HF_ALWAYS, HF_BARE),
    NAMED("linear_2.weight", "proj.weight", HF_HIDDEN, HF_FFN),
    BOTH("post_norm", "post_projection_norm", HF_HIDDEN, HF_NONE),
    NAMED("mlp.gate_proj.weight", "gate_proj.weight", HF_EXPERT_FFN, HF_HIDDEN),
    NAMED("mlp.up_proj.weight", "up_proj.weight", HF_EXPERT_FFN, HF_HIDDEN),
    NAMED("mlp.down_proj.weight", "down_proj.weight", HF_HIDDEN, HF_EXPERT_FFN),
    ROWS_END};

/* HF_POSITION: frames of such blocks that become one. */
static const loong_hf_row_t ernie_rows[] = {
    BOTH("spatial.linear_1", "spatial_linear.0", HF_FFN, HF_PATCH),
    BOTH("spatial.linear_2", "spatial_linear.2", HF_PATCH, HF_FFN),
    BOTH("spatial.norm", "spatial_linear.3", HF_PATCH, HF_NONE),
    BOTH("temporal.linear_1", "temporal_linear.0", HF_FFN, HF_POSITION),
    BOTH("temporal.linear_2", "temporal_linear.2", HF_PATCH, HF_FFN),
    BOTH("temporal.norm", "temporal_linear.3", HF_PATCH, HF_NONE),
    BOTH("linear_2", "mlp", HF_HIDDEN, HF_PATCH),
    NAMED("norm.weight", "after_norm.weight", HF_HIDDEN, HF_NONE),
    ROWS_END};

/* Mergers of deep features stand beside the one of the last layer's. */
#define DEEP(name_, hf_, rows_, columns_) \
    ROW("deepstack.#." name_, "#." hf_, rows_, columns_, HF_ALWAYS, HF_BARE)
#define DEEP_BOTH(name_, hf_, rows_, columns_)             \
    DEEP(name_ ".weight", hf_ ".weight", rows_, columns_), \
        DEEP(name_ ".bias", hf_ ".bias", rows_, HF_NONE)
static const loong_hf_row_t deep_merger_rows[] = {
    BOTH("norm", "norm", HF_QUERY, HF_NONE),
    BOTH("linear_1", "linear_fc1", HF_FFN, HF_PATCH),
    BOTH("linear_2", "linear_fc2", HF_HIDDEN, HF_FFN),
    DEEP_BOTH("norm", "norm", HF_PATCH, HF_NONE),
    DEEP_BOTH("linear_1", "linear_fc1", HF_FFN, HF_PATCH),
    DEEP_BOTH("linear_2", "linear_fc2", HF_HIDDEN, HF_FFN),
    ROWS_END};

static const loong_hf_names_t names[] = {
    {"mlp_projector", "", mlp_rows, false, NULL},
    {"linear_projector", "", linear_rows, false, NULL},
    {"anyres_projector", "", anyres_rows, false, NULL},
    {"patch_merger", "", merger_rows, false, NULL},
    {"qwen2_5_vl_merger", "", rms_merger_rows, false, NULL},
    {"qwen3_vl_merger", "", deep_merger_rows, false, NULL},
    {"internvl_projector", "", internvl_rows, false, NULL},
    {"internvl_chat", "", internvl_chat_rows, false, NULL},
    {"kimi_projector", "", kimi_rows, false, NULL},
    {"minicpmv4_6_merger", "", minicpmv_rows, false, NULL},
    {"perceiver_resampler", "", perceiver_rows, false, NULL},
    {"glm4v_merger", "", glm4v_rows, false, NULL},
    {"ernie4_5_vl_resampler", "", ernie_rows, false, NULL},
    {NULL, NULL, NULL, false, NULL}};

static const loong_hf_type_t types[] = {{.model_type = NULL}};

/* HF_QUERY: a row that it reads; HF_PATCH: the rows that become one;
 * HF_EXPERT_FFN: channels of the feed-forward. */
static loong_status_t size(loong_hf_map_t *map, const loong_pairs_t *model)
{
    loong_projector_config_t c;
    int64_t *s = map->sizes;
    LOONG_TRY(loongi_projector_configure(map->ctx, model, &c));
    map->groups = 1;
    map->layers =
        c.num_latents > 0 ? c.num_layers : c.num_deep_features;
    s[HF_KEY] = c.num_query_groups * c.kv_channels;
    s[HF_BLOCK_FFN] = LOONG_PERCEIVER_WIDTH * c.hidden_size;
    s[HF_NONE] = 1;
    s[HF_QUERY] = c.num_latents > 0 ? c.num_attention_heads * c.kv_channels
                                    : c.input_size;
    s[HF_PATCH] = c.input_size * c.merge_size * c.merge_size;
    s[HF_POSITION] =
        c.num_latents > 0 ? c.num_latents : s[HF_PATCH] * c.merge_frames;
    s[HF_FFN] = c.ffn_hidden_size;
    s[HF_EXPERT_FFN] = c.gated_ffn_hidden_size;
    map->patch[0] = c.input_size;
    map->patch[1] = c.merge_size;
    s[HF_HIDDEN] = c.hidden_size;
    map->conditions[HF_ALWAYS] = true;
    return LOONG_OK;
}

static loong_status_t check(loong_context_t *ctx, const loong_pairs_t *keys)
{
    loong_projector_config_t config;
    return loongi_projector_configure(ctx, keys, &config);
}

static loong_status_t set_key(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

static loong_status_t fill(loong_context_t *ctx, loong_pairs_t *keys)
{
    loong_projector_config_t config;
    LOONG_TRY(loongi_projector_configure(ctx, keys, &config));
    return loongi_recipe_fields_each(&loongi_projector_fields, &config, set_key,
                                     keys);
}

/* All that there is to say is beside it. */
static loong_status_t read_config(loong_hf_reader_t *r)
{
    return loongi_pairs_set(r->pairs, "family", r->type->family);
}

const loong_hf_kind_t loongi_hf_projector = {.role = "image_projector",
                                             .types = types,
                                             .names = names,
                                             .check = check,
                                             .fill = fill,
                                             .state = fill,
                                             .size = size,
                                             .read = read_config};
