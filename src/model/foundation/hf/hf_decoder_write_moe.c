/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts and latent attention into config.json. Called by
 * hf_decoder_write.c. Read hf_config_write.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_decoder.h"
#include "layer_kinds.h"

static int64_t value_of(const loong_hf_writer_t *w, const char *key)
{
    int64_t value = 0;
    loongi_pairs_int(w->model, key, &value);
    return value;
}

static void emit_number(loong_hf_writer_t *w, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRId64, value);
    loongi_hf_emit(w, name, text);
}

/* Shared experts as wide as the others. */
static void emit_shared(loong_hf_writer_t *w, const char *name)
{
    static const char key[] = "moe_shared_expert_intermediate_size";
    int64_t each = value_of(w, "moe_ffn_hidden_size");
    int64_t all = value_of(w, key);
    if (each <= 0 || all % each != 0) {
        loongi_problems_add(&w->problems,
                            "%s = %" PRId64 ": model type %s has a multiple "
                            "of moe_ffn_hidden_size %" PRId64,
                            key, all, w->type->model_type, each);
    }
    emit_number(w, name, each > 0 ? all / each : 0);
}

/* Dense layers in front of all others, and none behind; -1: otherwise. */
static int64_t leading(const loong_layer_kinds_t *kinds, int64_t layers)
{
    int64_t first = 0;
    while (first < layers && kinds->of[first] == 0) {
        first++;
    }
    for (int64_t i = first; i < layers; i++) {
        if (kinds->of[i] == 0) {
            return -1;
        }
    }
    return first;
}

static void emit_layer_types(loong_hf_writer_t *w,
                             const loong_layer_kinds_t *kinds, int64_t layers)
{
    loong_text_t list = loongi_text_begin(w->ctx);
    for (int64_t i = 0; i < layers; i++) {
        loongi_text_printf(&list, "%s\"%s\"", i > 0 ? ", " : "[",
                           kinds->of[i] != 0 ? "sparse" : "dense");
    }
    loongi_text_printf(&list, "]");
    loongi_hf_emit(w, "mlp_layer_types", loongi_text_get(&list));
    loongi_text_free(&list);
}

/* The layers without experts, where the type has a place for them. */
static void emit_kinds(loong_hf_writer_t *w)
{
    static const char *const starts[] = {"first_k_dense_replace",
                                         "moe_layer_start_index"};
    const char *text = loongi_pairs_get(w->model, "moe_layer_freq");
    loong_layer_kinds_t kinds;
    char problem[128];
    int64_t layers = value_of(w, "num_layers");
    if (!loongi_layer_kinds_parse(text, layers, &kinds, problem)) {
        loongi_problems_add(&w->problems, "moe_layer_freq = %s: %s", text,
                            problem);
        return;
    }
    int64_t first = leading(&kinds, layers);
    loong_text_t list = loongi_text_begin(w->ctx);
    bool dense = loongi_layer_kinds_list(&kinds, layers, &list);
    bool told = !dense;
    if (loongi_hf_writes(w, "mlp_only_layers")) {
        loongi_hf_emit(w, "decoder_sparse_step", "1");
        loongi_hf_emit(w, "mlp_only_layers", loongi_text_get(&list));
        told = true;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(starts) && first >= 0; i++) {
        if (loongi_hf_writes(w, starts[i])) {
            emit_number(w, starts[i], first);
            told = true;
        }
    }
    if (loongi_hf_writes(w, "mlp_layer_types")) {
        emit_layer_types(w, &kinds, layers);
        told = true;
    }
    if (!told) {
        loongi_problems_add(&w->problems,
                            "moe_layer_freq = %s: model type %s has no place "
                            "for it",
                            text, w->type->model_type);
    }
    loongi_text_free(&list);
}

/* Types whose scores are sigmoids. */
static bool has_sigmoids(const loong_hf_writer_t *w)
{
    const char *type = w->type->model_type;
    return strcmp(type, "deepseek_v3") == 0 || strcmp(type, "kimi_k2") == 0 ||
           strcmp(type, "minimax_m2") == 0;
}

/* Whether they are divided by their sum. */
static void emit_division(loong_hf_writer_t *w)
{
    static const char key[] = "moe_router_norm_topk_prob";
    const char *told = loongi_pairs_get(w->model, key);
    bool divided = strcmp(told, "false") != 0;
    if (loongi_hf_writes(w, "norm_topk_prob")) {
        loongi_hf_emit_bool(w, "norm_topk_prob", divided);
    } else if (!divided) {
        loongi_problems_add(&w->problems,
                            "%s = %s, with %" PRId64 " experts a token: model "
                            "type %s divides the weights by their sum",
                            key, told,
                            value_of(w, "moe_router_topk"),
                            w->type->model_type);
    }
}

void loongi_hf_emit_mixture(loong_hf_writer_t *w)
{
    if (loongi_hf_writes(w, "num_experts_per_tok") ||
        loongi_hf_writes(w, "moe_k")) {
        emit_kinds(w);
    }
    if (has_sigmoids(w)) {
        emit_division(w);
    }
    if (loongi_hf_writes(w, "norm_topk_prob")) {
        loongi_hf_emit_int(w, "num_experts", "num_experts");
        loongi_hf_emit_bool(
            w, "norm_topk_prob",
            !loongi_pairs_true(w->model, "moe_router_pre_softmax"));
    } else if (loongi_hf_writes(w, "num_local_experts")) {
        loongi_hf_want_value(w, "moe_ffn_hidden_size",
                             loongi_pairs_get(w->model, "ffn_hidden_size"));
    } else if (loongi_hf_writes(w, "moe_k")) {
        emit_shared(w, "moe_num_shared_experts");
    }
    if (loongi_hf_writes(w, "mlp_layer_types")) {
        static const char second[] = "moe_vision_ffn_hidden_size";
        char widths[64];
        if (value_of(w, second) == 0) {
            loongi_problems_add(&w->problems,
                                "%s is not set: model type %s has two sets of "
                                "experts", second, w->type->model_type);
        }
        snprintf(widths, sizeof(widths), "[%" PRId64 ", %" PRId64 "]",
                 value_of(w, "moe_ffn_hidden_size"),
                 value_of(w, second));
        loongi_hf_emit(w, "moe_intermediate_size", widths);
    }
    if (loongi_hf_writes(w, "qkv_bias")) {
        loongi_hf_emit_bool(w, "qkv_bias",
                            loongi_pairs_true(w->model, "add_qkv_bias"));
    }
}

/* Keys that depend on each other in a way the tables do not tell. */
bool loongi_hf_writes_mixture(const loong_hf_writer_t *w, const char *key)
{
    static const char *const latent[] = {"moe_router_topk",
                                         "moe_router_score_function",
                                         "moe_router_num_groups",
                                         "moe_router_group_topk",
                                         "moe_router_group_scores",
                                         "moe_router_topk_scaling_factor",
                                         "moe_shared_expert_gate",
                                         "moe_router_enable_expert_bias",
                                         "moe_shared_expert_intermediate_size"};
    if (strcmp(key, "moe_router_norm_topk_prob") == 0) {
        return has_sigmoids(w);
    }
    if (loongi_hf_writes(w, "mlp_layer_types") &&
        (strcmp(key, "moe_vision_ffn_hidden_size") == 0 ||
         strcmp(key, "mrope_section") == 0)) {
        return true;
    }
    if (loongi_hf_writes(w, "moe_num_shared_experts")) {
        return strcmp(key, "moe_shared_expert_intermediate_size") == 0;
    }
    for (int64_t i = 0;
         i < LOONG_COUNT_OF(latent) && loongi_hf_writes(w, "n_shared_experts");
         i++) {
        if (strcmp(latent[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* A group counts by so many of its best experts: of the class, and of the
 * engine, where 0 is as many as a token takes of it. */
static void emit_groups(loong_hf_writer_t *w, int64_t scores)
{
    static const char key[] = "moe_router_group_scores";
    int64_t groups = value_of(w, "moe_router_num_groups");
    int64_t chosen = value_of(w, "moe_router_group_topk");
    int64_t told = value_of(w, key);
    int64_t used = told > 0      ? told
                   : chosen > 0 ? value_of(w, "moe_router_topk") / chosen
                                : 0;
    emit_number(w, "n_group", groups > 0 ? groups : 1);
    emit_number(w, "topk_group", groups > 0 ? chosen : 1);
    if (groups > 0 && used != scores) {
        loongi_problems_add(&w->problems,
                            "%s = %" PRId64 ", which takes %" PRId64 ": model "
                            "type %s has %" PRId64,
                            key, told, used, w->type->model_type, scores);
    }
}

static void emit_deepseek_experts(loong_hf_writer_t *w)
{
    bool v2 = strcmp(w->type->model_type, "deepseek_v2") == 0;
    loongi_hf_emit_int(w, "n_routed_experts", "num_experts");
    loongi_hf_emit_int(w, "num_experts_per_tok", "moe_router_topk");
    loongi_hf_emit_int(w, "moe_intermediate_size", "moe_ffn_hidden_size");
    emit_shared(w, "n_shared_experts");
    emit_kinds(w);
    loongi_hf_emit_real(w, "routed_scaling_factor",
                        "moe_router_topk_scaling_factor");
    loongi_hf_want_value(w, "moe_router_score_function",
                         v2 ? "softmax" : "sigmoid");
    loongi_hf_want_value(w, "moe_router_pre_softmax", v2 ? "true" : "false");
    loongi_hf_want_value(w, "moe_router_enable_expert_bias",
                         v2 ? "false" : "true");
    loongi_hf_want_value(w, "moe_shared_expert_gate", "false");
    emit_groups(w, v2 ? 1 : 2);
    if (!v2) {
        emit_division(w);
    }
    if (v2) {
        bool groups = value_of(w, "moe_router_num_groups") > 0;
        loongi_hf_emit(w, "topk_method",
                       groups ? "\"group_limited_greedy\"" : "\"greedy\"");
    }
}

void loongi_hf_emit_deepseek(loong_hf_writer_t *w)
{
    char sum[32];
    loongi_hf_emit_int(w, "num_key_value_heads", "num_attention_heads");
    loongi_hf_emit(w, "hidden_act", "\"silu\"");
    if (value_of(w, "q_lora_rank") > 0) {
        loongi_hf_emit_int(w, "q_lora_rank", "q_lora_rank");
    } else {
        loongi_hf_emit(w, "q_lora_rank", "null");
    }
    snprintf(sum, sizeof(sum), "%" PRId64,
             value_of(w, "qk_head_dim") + value_of(w, "qk_pos_emb_head_dim"));
    loongi_hf_want_value(w, "kv_channels", sum);
    loongi_hf_want_value(w, "window_size", "0");
    if (value_of(w, "num_experts") > 0) {
        emit_deepseek_experts(w);
    } else {
        loongi_hf_emit_int(w, "first_k_dense_replace", "num_layers");
    }
}
