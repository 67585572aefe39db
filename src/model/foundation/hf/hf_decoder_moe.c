/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts and latent attention in config.json. Called by
 * hf_decoder_read.c. Read hf_config_read.h before. */
#include <string.h>

#include "hf_decoder.h"
#include "layer_kinds.h"

/* Qwen's number of experts; newer files say it in Mixtral's words. */
static loong_status_t map_experts(loong_hf_reader_t *r)
{
    const loong_json_t *old = loongi_hf_field(r->json, "num_experts");
    const loong_json_t *value = loongi_hf_field(r->json, "num_local_experts");
    if (old != NULL && value != NULL) {
        loongi_problems_add(&r->problems, "num_experts and num_local_experts "
                                          "are both there: keep one");
    }
    if (old == NULL && value == NULL) {
        loongi_problems_add(&r->problems, "num_experts is missing");
        return LOONG_OK;
    }
    return old != NULL ? loongi_hf_map_int(r, old, "num_experts", "num_experts")
                       : loongi_hf_map_int(r, value, "num_local_experts",
                                           "num_experts");
}

/* With norm_topk_prob the weights are those of a softmax after the choice. */
static loong_status_t map_qwen_mixture(loong_hf_reader_t *r)
{
    static const char divided[] = "norm_topk_prob";
    const loong_json_t *told = loongi_hf_field(r->json, divided);
    bool always = loongi_hf_is_type(r, "qwen3_vl_moe_text");
    LOONG_TRY(map_experts(r));
    LOONG_TRY(loongi_hf_map_kinds(r));
    if (loongi_hf_is_type(r, "qwen2_moe")) {
        LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_qkv_bias",
                                        loongi_hf_flag(r, "qkv_bias", true)));
    }
    if (always && told != NULL) {
        loongi_hf_check_neutral(r, divided, told, "true");
    }
    return loongi_pairs_set_bool(r->pairs, "moe_router_pre_softmax",
                                 !loongi_hf_flag(r, divided, always));
}

/* A field that must be there and positive; 0 when it is not. */
static int64_t count_of(loong_hf_reader_t *r, const char *name)
{
    const loong_json_t *value = loongi_hf_field(r->json, name);
    if (value == NULL) {
        loongi_problems_add(&r->problems, "%s is missing", name);
        return 0;
    }
    if (loongi_json_kind(value) != LOONG_JSON_INT ||
        loongi_json_int(value) <= 0) {
        loongi_hf_refuse(r, name, value, "a positive integer is needed");
        return 0;
    }
    return loongi_json_int(value);
}

/* The layers before the first mixture. */
static loong_status_t map_dense_layers(loong_hf_reader_t *r, const char *name,
                                       int64_t first)
{
    loong_layer_kinds_t kinds;
    int64_t layers = 0;
    if (!loongi_pairs_int(r->pairs, "num_layers", &layers) ||
        layers > LOONG_MAX_LAYERS) {
        return LOONG_OK; /* told, or told when the model is built */
    }
    if (first < 0 || first >= layers) {
        loongi_problems_add(&r->problems,
                            "%s = %lld is not supported (there are %lld "
                            "layers)",
                            name, (long long)first, (long long)layers);
        return LOONG_OK;
    }
    for (int64_t i = 0; i < layers; i++) {
        kinds.of[i] = i >= first;
    }
    return loongi_hf_set_kinds(r, &kinds, layers);
}

/* So many shared experts are one as wide as all. */
static loong_status_t map_shared(loong_hf_reader_t *r, const char *name,
                                 int64_t width)
{
    static const char key[] = "moe_shared_expert_intermediate_size";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    if (value != NULL && loongi_json_kind(value) == LOONG_JSON_INT &&
        loongi_json_int(value) == 0) {
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, key, count_of(r, name) * width);
}

/* A field that may be missing; -1, told, when it is no integer. */
static int64_t integer_of(loong_hf_reader_t *r, const char *name,
                          int64_t fallback)
{
    const loong_json_t *value = loongi_hf_field(r->json, name);
    if (value != NULL && loongi_json_kind(value) != LOONG_JSON_INT) {
        loongi_hf_refuse(r, name, value, "an integer is needed");
        return -1;
    }
    return value != NULL ? loongi_json_int(value) : fallback;
}

/* Groups of which a token takes some: one of one is none. Absent (not null) is
 * the default of V3's class. */
static loong_status_t map_groups(loong_hf_reader_t *r, int64_t scores)
{
    bool v2 = loongi_hf_is_type(r, "deepseek_v2");
    bool absent = loongi_json_get(r->json, "n_group") == NULL;
    int64_t groups = loongi_hf_field(r->json, "n_group") != NULL
                         ? count_of(r, "n_group")
                     : absent && !v2 ? 8
                                     : 1;
    if (groups <= 1) {
        const loong_json_t *chosen = loongi_hf_field(r->json, "topk_group");
        if (chosen != NULL) {
            loongi_hf_check_neutral(r, "topk_group", chosen, "1");
        }
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "moe_router_num_groups", groups));
    absent = loongi_json_get(r->json, "topk_group") == NULL;
    LOONG_TRY(loongi_pairs_set_int(
        r->pairs, "moe_router_group_topk",
        absent && !v2 ? 4 : count_of(r, "topk_group")));
    return loongi_pairs_set_int(r->pairs, "moe_router_group_scores", scores);
}

/* Whether sigmoids are divided by their sum; the recipe's own rule looks at the
 * number of experts. */
static loong_status_t map_division(loong_hf_reader_t *r, bool divided)
{
    int64_t chosen = 0;
    loongi_pairs_int(r->pairs, "moe_router_topk", &chosen);
    return divided == (chosen > 1)
               ? LOONG_OK
               : loongi_pairs_set_bool(r->pairs, "moe_router_norm_topk_prob",
                                       divided);
}

/* The router of DeepSeek-V2 chooses groups by their best expert, and only
 * when topk_method says so; that of V3 by the two best. */
static loong_status_t map_deepseek_router(loong_hf_reader_t *r)
{
    const loong_json_t *factor =
        loongi_hf_field(r->json, "routed_scaling_factor");
    bool v2 = loongi_hf_is_type(r, "deepseek_v2");
    static const char key[] = "moe_router_topk_scaling_factor";
    LOONG_TRY(loongi_pairs_set(r->pairs, "moe_router_score_function",
                               v2 ? "softmax" : "sigmoid"));
    LOONG_TRY(loongi_pairs_set_bool(r->pairs, "moe_router_pre_softmax", v2));
    LOONG_TRY(
        loongi_pairs_set_bool(r->pairs, "moe_router_enable_expert_bias", !v2));
    if (factor != NULL) {
        LOONG_TRY(loongi_hf_map_real(r, factor, "routed_scaling_factor", key));
    } else {
        LOONG_TRY(loongi_pairs_set(r->pairs, key, v2 ? "1" : "2.5"));
    }
    if (!v2) {
        LOONG_TRY(map_division(r, loongi_hf_flag(r, "norm_topk_prob", true)));
        return map_groups(r, 2);
    }
    const loong_json_t *method = loongi_hf_field(r->json, "topk_method");
    const char *text = method != NULL ? loongi_json_string(method) : "greedy";
    if (strcmp(text, "group_limited_greedy") == 0) {
        return map_groups(r, 1);
    }
    if (strcmp(text, "greedy") != 0) {
        loongi_hf_refuse(r, "topk_method", method,
                         "greedy and group_limited_greedy are");
    }
    return LOONG_OK;
}

static loong_status_t map_deepseek_experts(loong_hf_reader_t *r)
{
    int64_t first = integer_of(r, "first_k_dense_replace",
                               loongi_hf_is_type(r, "deepseek_v2") ? 0 : 3);
    int64_t layers = 0;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    if (first >= layers) {
        return LOONG_OK;
    }
    int64_t width = count_of(r, "moe_intermediate_size");
    LOONG_TRY(map_dense_layers(r, "first_k_dense_replace", first));
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "num_experts",
                                   count_of(r, "n_routed_experts")));
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "moe_router_topk",
                                   count_of(r, "num_experts_per_tok")));
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "moe_ffn_hidden_size", width));
    LOONG_TRY(map_shared(r, "n_shared_experts", width));
    return map_deepseek_router(r);
}

loong_status_t loongi_hf_map_deepseek(loong_hf_reader_t *r)
{
    const loong_json_t *rank = loongi_hf_field(r->json, "q_lora_rank");
    const loong_json_t *groups =
        loongi_hf_field(r->json, "num_key_value_heads");
    int64_t heads = 0;
    int64_t nope = 0;
    int64_t rope = 0;
    loongi_pairs_int(r->pairs, "num_attention_heads", &heads);
    loongi_pairs_int(r->pairs, "qk_head_dim", &nope);
    loongi_pairs_int(r->pairs, "qk_pos_emb_head_dim", &rope);
    if (groups != NULL && loongi_json_int(groups) != heads) {
        loongi_hf_refuse(r, "num_key_value_heads", groups,
                         "as many as num_attention_heads are");
    }
    /* The rotary tables are made for this one. */
    const loong_json_t *width = loongi_hf_field(r->json, "head_dim");
    if (width != NULL && loongi_json_int(width) != rope) {
        loongi_hf_refuse(r, "head_dim", width, "qk_rope_head_dim is");
    }
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "num_query_groups", heads));
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "kv_channels", nope + rope));
    if (rank != NULL) {
        LOONG_TRY(loongi_hf_map_int(r, rank, "q_lora_rank", "q_lora_rank"));
    } else if (loongi_json_get(r->json, "q_lora_rank") == NULL) {
        LOONG_TRY(loongi_pairs_set(r->pairs, "q_lora_rank", "1536"));
    }
    LOONG_TRY(map_deepseek_experts(r));
    return loongi_hf_map_rope(r);
}

static loong_status_t map_ernie(loong_hf_reader_t *r)
{
    int64_t start = integer_of(r, "moe_layer_start_index", 1);
    int64_t end = integer_of(r, "moe_layer_end_index", -1);
    int64_t width = 0;
    int64_t layers = 0;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    loongi_pairs_int(r->pairs, "moe_ffn_hidden_size", &width);
    if (end != -1 && end != layers - 1) {
        loongi_hf_refuse(r, "moe_layer_end_index",
                         loongi_hf_field(r->json, "moe_layer_end_index"),
                         "-1 and the last layer are");
    }
    LOONG_TRY(map_dense_layers(r, "moe_layer_start_index", start));
    return map_shared(r, "moe_num_shared_experts", width);
}

/* The widths of the experts for texts and of those for images. */
static loong_status_t map_widths(loong_hf_reader_t *r)
{
    static const char name[] = "moe_intermediate_size";
    static const char *const keys[] = {"moe_ffn_hidden_size",
                                       "moe_vision_ffn_hidden_size"};
    static const char *const defaults[] = {"1536", "512"};
    const loong_json_t *list = loongi_hf_field(r->json, name);
    if (list != NULL && (loongi_json_kind(list) != LOONG_JSON_ARRAY ||
                         loongi_json_count(list) != 2)) {
        loongi_hf_refuse(r, name, list,
                         "two integers, for texts and for images, are");
        return LOONG_OK;
    }
    for (int i = 0; i < 2; i++) {
        LOONG_TRY(list == NULL
                      ? loongi_pairs_set(r->pairs, keys[i], defaults[i])
                      : loongi_hf_map_int(r, loongi_json_at(list, i), name,
                                          keys[i]));
    }
    return LOONG_OK;
}

/* "dense" or "sparse" of each layer; the first alone is dense when nothing is
 * said. */
static loong_status_t map_layer_types(loong_hf_reader_t *r)
{
    static const char name[] = "mlp_layer_types";
    const loong_json_t *list = loongi_hf_field(r->json, name);
    loong_layer_kinds_t kinds;
    int64_t layers = 0;
    if (list == NULL) {
        return map_dense_layers(r, name, 1);
    }
    if (!loongi_pairs_int(r->pairs, "num_layers", &layers) ||
        layers > LOONG_MAX_LAYERS) {
        return LOONG_OK; /* told, or told when the model is built */
    }
    for (int64_t i = 0; i < layers; i++) {
        const loong_json_t *item =
            loongi_json_kind(list) == LOONG_JSON_ARRAY &&
                    loongi_json_count(list) == layers
                ? loongi_json_at(list, i)
                : NULL;
        const char *text = item != NULL ? loongi_json_string(item) : "";
        kinds.of[i] = strcmp(text, "sparse") == 0;
        if (!kinds.of[i] && strcmp(text, "dense") != 0) {
            loongi_hf_refuse(r, name, list,
                             "\"dense\" or \"sparse\" for each of the "
                             "num_hidden_layers is needed");
            return LOONG_OK;
        }
    }
    return loongi_hf_set_kinds(r, &kinds, layers);
}

/* Experts for texts, which have the shared expert's unit, and for images. */
static loong_status_t map_ernie_vl(loong_hf_reader_t *r)
{
    int64_t width = 0;
    LOONG_TRY(map_widths(r));
    loongi_pairs_int(r->pairs, "moe_ffn_hidden_size", &width);
    LOONG_TRY(map_layer_types(r));
    return map_shared(r, "moe_num_shared_experts", width);
}

/* An integer, or one for texts and one for images; absent: the fallback. */
static bool read_pair(loong_hf_reader_t *r, const char *name, int64_t fallback,
                      int64_t pair[2])
{
    const loong_json_t *value = loongi_hf_field(r->json, name);
    bool list = value != NULL && loongi_json_kind(value) == LOONG_JSON_ARRAY;
    pair[0] = pair[1] = fallback;
    for (int i = 0; i < 2 && value != NULL; i++) {
        const loong_json_t *item = list ? loongi_json_at(value, i) : value;
        if (item == NULL || loongi_json_kind(item) != LOONG_JSON_INT ||
            (list && loongi_json_count(value) != 2)) {
            loongi_hf_refuse(r, name, value,
                             "an integer, or one for texts and one for "
                             "images, is");
            return false;
        }
        pair[i] = loongi_json_int(item);
    }
    return true;
}

/* Both sets of experts are in the same layers, from some on. */
static loong_status_t map_both_layers(loong_hf_reader_t *r)
{
    static const char *const names[] = {"moe_layer_start_index",
                                        "moe_layer_end_index"};
    int64_t start[2], end[2];
    int64_t layers = 0;
    if (!read_pair(r, names[0], 0, start) || !read_pair(r, names[1], -1, end) ||
        !loongi_pairs_int(r->pairs, "num_layers", &layers)) {
        return LOONG_OK;
    }
    if (start[0] != start[1]) {
        loongi_hf_refuse(r, names[0], loongi_hf_field(r->json, names[0]),
                         "the same for texts and images is");
    }
    for (int i = 0; i < 2; i++) {
        if (end[i] != -1 && end[i] < layers - 1) {
            loongi_hf_refuse(r, names[1], loongi_hf_field(r->json, names[1]),
                             "-1 and the last layer or more are");
        }
    }
    return map_dense_layers(r, names[0], start[0]);
}

static loong_status_t map_ernie_flat(loong_hf_reader_t *r)
{
    static const char name[] = "moe_num_experts";
    const loong_json_t *shared =
        loongi_hf_field(r->json, "moe_num_shared_experts");
    int64_t experts[2];
    int64_t width = 0;
    if (!read_pair(r, name, 64, experts)) {
        return LOONG_OK;
    }
    if (experts[0] != experts[1] || experts[0] <= 0) {
        loongi_hf_refuse(r, name, loongi_hf_field(r->json, name),
                         "as many for texts as for images are");
    }
    LOONG_TRY(loongi_pairs_set_int(r->pairs, "num_experts", experts[0]));
    LOONG_TRY(map_widths(r));
    LOONG_TRY(map_both_layers(r));
    loongi_pairs_int(r->pairs, "moe_ffn_hidden_size", &width);
    return shared != NULL ? map_shared(r, "moe_num_shared_experts", width)
                          : LOONG_OK;
}

loong_status_t loongi_hf_map_mixture(loong_hf_reader_t *r)
{
    const char *width = loongi_pairs_get(r->pairs, "ffn_hidden_size");
    if (loongi_hf_is_type(r, "minimax_m2")) {
        LOONG_TRY(map_division(r, true));
    }
    if (loongi_hf_is_type(r, "mixtral") || loongi_hf_is_type(r, "minimax_m2")) {
        return width != NULL
                   ? loongi_pairs_set(r->pairs, "moe_ffn_hidden_size", width)
                   : LOONG_OK;
    }
    if (loongi_hf_is_type(r, "qwen2_moe") ||
        loongi_hf_is_type(r, "qwen3_moe") ||
        loongi_hf_is_type(r, "qwen3_vl_moe_text")) {
        return map_qwen_mixture(r);
    }
    if (loongi_hf_is_type(r, "ernie4_5_vl_moe") ||
        loongi_hf_is_type(r, "ernie4_5_vl_moe_text")) {
        return map_ernie_vl(r);
    }
    if (loongi_hf_is_type(r, "ernie4_5_moe_vl")) {
        return map_ernie_flat(r);
    }
    return loongi_hf_is_type(r, "ernie4_5_moe") ? map_ernie(r) : LOONG_OK;
}
