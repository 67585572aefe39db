/* SPDX-License-Identifier: Apache-2.0
 *
 * Model keys of a decoder -> config.json. Called by hf_config_write.c as part
 * of hf_decoder.c's loong_hf_kind_t. Read hf_config_write.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_code.h"
#include "hf_decoder.h"
#include "hf_extra.h"
#include "hf_tokens.h"

static bool is_known(const loong_hf_writer_t *w, const char *key)
{
    static const char *const coded[] = {
        "family", "num_query_groups", "kv_channels", "ffn_hidden_size",
        "activation", "untie_embeddings_and_output_weights", "add_bias_linear",
        "add_qkv_bias", "add_attn_proj_bias", "window_size",
        "max_window_layers", "rotary_base", "rotary_percent",
        /* padding is never exported */
        "make_vocab_size_divisible_by",
        /* how training began */
        "init_method_std", "embedding_init_method_std",
        "use_scaled_init_method", "num_experts", "moe_layer_freq",
        "moe_ffn_hidden_size", "moe_router_pre_softmax", "moe_aux_loss_coeff",
        "moe_z_loss_coeff",
        "moe_router_load_balancing_type", "moe_router_bias_update_rate", NULL};
    bool experts =
        strncmp(key, "moe_", 4) == 0 || strcmp(key, "num_experts") == 0;
    if (experts && !loongi_hf_writes(w, "num_experts_per_tok") &&
        !loongi_hf_writes(w, "moe_k")) {
        return false;
    }
    if (loongi_hf_writes_mixture(w, key)) {
        return true;
    }
    if (strncmp(key, "rope_scaling.", 13) == 0) {
        return true;
    }
    for (const char *const *c = coded; *c != NULL; c++) {
        if (strcmp(*c, key) == 0) {
            return true;
        }
    }
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        if (strcmp(f->key != NULL ? f->key : f->name, key) == 0) {
            return true;
        }
    }
    for (const loong_hf_fixed_t *f = w->type->fixed; f->key != NULL; f++) {
        if (strcmp(f->key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Keys that most types know nothing of, with the value that changes
 * nothing. */
static bool is_neutral(const loong_hf_writer_t *w, const char *key)
{
    static const loong_hf_fixed_t neutral[] = {
        {"rotary_interleaved", "false"},
        {"qk_layernorm_whole", "false"},
        {"scale_embeddings", "false"},
        {"sandwich_norm", "false"},
        {"bidirectional_prefix", "false"},
        {"moe_router_group_scores", "0"},
        {"moe_expert_capacity_factor", "0"},
        {"moe_router_enable_expert_bias", "false"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(neutral); i++) {
        if (strcmp(neutral[i].key, key) == 0) {
            return loongi_hf_same_value(w->model, key, neutral[i].value);
        }
    }
    return false;
}

/* How a model was trained, not what it is: a type may lack it. */
static bool is_rate(const char *key)
{
    return strstr(key, "dropout") != NULL;
}

static void emit_table(loong_hf_writer_t *w)
{
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        loongi_hf_emit_field(w, f, f->key);
        if (f->kind == LOONG_HF_NEUTRAL) {
            char value[64]; /* the first of those allowed */
            snprintf(value, sizeof(value), "%.*s",
                     (int)strcspn(f->fallback, "|"), f->fallback);
            loongi_hf_emit(w, f->name, value);
        }
    }
    for (const loong_hf_fixed_t *f = w->type->fixed; f->key != NULL; f++) {
        if (!is_rate(f->key)) {
            loongi_hf_want_value(w, f->key, f->value);
        }
    }
    for (int64_t i = 0; i < w->given->count; i++) {
        const char *key = w->given->items[i].key;
        if (!is_known(w, key) && !is_neutral(w, key) && !is_rate(key)) {
            loongi_problems_add(&w->problems,
                                "%s: model type %s has nothing like it", key,
                                w->type->model_type);
        }
    }
}

/* A window of 0 is none. */
static bool has_window(const loong_hf_writer_t *w)
{
    int64_t window = 0;
    loongi_pairs_int(w->model, "window_size", &window);
    return window > 0;
}

/* A llama with a window is a mistral; a section has the type of its own that
 * its model says. */
void loongi_hf_decoder_choose(loong_hf_writer_t *w)
{
    if (strcmp(w->type->family, "llama") == 0 && has_window(w)) {
        w->type = loongi_hf_type_find(w->ctx, "mistral");
        w->note = " (a llama with a sliding window is of model type mistral)";
    }
    if (w->section_type != NULL) {
        w->type = w->section_type;
    }
}

static void emit_window(loong_hf_writer_t *w)
{
    bool window = has_window(w);
    const char *type = w->type->model_type;
    if (strcmp(type, "mistral") == 0 ||
        (window && (strcmp(type, "mixtral") == 0 ||
                    strcmp(type, "phi3") == 0 ||
                    strcmp(type, "qwen3_moe") == 0))) {
        loongi_hf_want_value(w, "max_window_layers", "0");
        loongi_hf_emit_int(w, "sliding_window", "window_size");
        if (loongi_hf_writes(w, "use_sliding_window")) {
            loongi_hf_emit(w, "use_sliding_window", "true");
        }
    } else if (loongi_hf_writes(w, "norm_topk_prob")) {
        loongi_hf_want_value(w, "window_size", "0");
        if (loongi_hf_writes(w, "use_sliding_window")) {
            loongi_hf_emit(w, "use_sliding_window", "false");
            loongi_hf_emit(w, "sliding_window", "null");
        }
    } else if (loongi_hf_writes(w, "use_sliding_window")) {
        loongi_hf_emit_bool(w, "use_sliding_window", window);
        if (!window) {
            loongi_hf_emit(w, "sliding_window", "null");
            return;
        }
        loongi_hf_emit_int(w, "sliding_window", "window_size");
        loongi_hf_emit_int(w, "max_window_layers", "max_window_layers");
    } else if (window) {
        loongi_hf_want_value(w, "window_size", "0");
    }
}

/* Whether the field decides about biases itself. */
static bool has_code(const loong_hf_writer_t *w, const char *name)
{
    const loong_hf_field_t *f = w->type->fields;
    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->name != NULL && f->kind == LOONG_HF_CODE;
}

static void emit_biases(loong_hf_writer_t *w)
{
    bool attention = loongi_pairs_true(w->model, "add_qkv_bias");
    const char *name = has_code(w, "attention_bias") ? "attention_bias"
                       : has_code(w, "bias")         ? "bias"
                       : has_code(w, "use_bias")     ? "use_bias"
                                                     : NULL;
    if (name != NULL) {
        loongi_hf_emit_bool(w, name, attention);
        loongi_hf_want_value(w, "add_attn_proj_bias",
                             attention ? "true" : "false");
    }
    if (loongi_hf_writes(w, "mlp_bias")) {
        loongi_hf_emit_bool(w, "mlp_bias",
                            loongi_pairs_true(w->model, "add_bias_linear"));
    } else if (has_code(w, "use_bias")) {
        loongi_hf_want_value(w, "add_bias_linear",
                             attention ? "true" : "false");
    }
}

/* Qwen2's classes have no head_dim: it is stated only when it says more than
 * hidden size / heads. */
static bool has_other_width(const loong_hf_writer_t *w)
{
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t width = 0;
    loongi_pairs_int(w->model, "hidden_size", &hidden);
    loongi_pairs_int(w->model, "num_attention_heads", &heads);
    loongi_pairs_int(w->model, "kv_channels", &width);
    return strncmp(w->type->model_type, "qwen2", 5) != 0 ||
           width * heads != hidden;
}

static void emit_rotary(loong_hf_writer_t *w)
{
    loongi_hf_emit_int(w, "num_key_value_heads", "num_query_groups");
    if (has_other_width(w)) {
        loongi_hf_emit_int(w, "head_dim", "kv_channels");
    }
    loongi_hf_emit(w, "hidden_act",
                   strcmp(w->type->family, "gemma") == 0
                       ? "\"gelu_pytorch_tanh\""
                       : "\"silu\"");
    emit_biases(w);
    loongi_hf_emit_mixture(w);
    loongi_hf_emit_rope(w);
    emit_window(w);
}

/* The file that the model comes from may have said it in other words, which
 * transformers computes by other code. */
static const char *gelu_word(const loong_hf_writer_t *w)
{
    static const char other[] = "\"gelu_pytorch_tanh\"";
    const char *kept = w->kept != NULL
                           ? loongi_pairs_get(w->kept, "activation_function")
                           : NULL;
    return kept != NULL && strcmp(kept, other) == 0 ? other : "\"gelu_new\"";
}

static void emit_gpt2(loong_hf_writer_t *w)
{
    const char *activation = loongi_pairs_get(w->model, "activation");
    char width[32];
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t width_ffn = 0;
    bool exact = activation != NULL && strcmp(activation, "gelu") == 0;
    loongi_pairs_int(w->model, "hidden_size", &hidden);
    if (loongi_pairs_int(w->model, "ffn_hidden_size", &width_ffn) &&
        width_ffn == 4 * hidden) {
        loongi_hf_emit(w, "n_inner", "null"); /* the usual width */
    } else {
        loongi_hf_emit_int(w, "n_inner", "ffn_hidden_size");
    }
    loongi_hf_emit(w, "activation_function",
                   exact ? "\"gelu\"" : gelu_word(w));
    loongi_hf_want_value(w, "window_size", "0");
    if (!exact) {
        loongi_hf_want_value(w, "activation", "gelu_tanh");
    }
    if (loongi_pairs_int(w->model, "num_attention_heads", &heads) &&
        heads > 0) {
        snprintf(width, sizeof(width), "%" PRId64, hidden / heads);
        loongi_hf_want_value(w, "kv_channels", width);
        snprintf(width, sizeof(width), "%" PRId64, heads);
        loongi_hf_want_value(w, "num_query_groups", width);
    }
}

static void emit_qwen(loong_hf_writer_t *w)
{
    char text[32];
    int64_t width = 0;
    int64_t heads = 0;
    loongi_pairs_int(w->model, "ffn_hidden_size", &width);
    snprintf(text, sizeof(text), "%" PRId64, 2 * width);
    loongi_hf_emit(w, "intermediate_size", text);
    loongi_hf_emit_int(w, "max_position_embeddings", "max_position_embeddings");
    loongi_pairs_int(w->model, "num_attention_heads", &heads);
    snprintf(text, sizeof(text), "%" PRId64, heads);
    loongi_hf_want_value(w, "num_query_groups", text);
    loongi_hf_want_value(w, "window_size", "0");
    loongi_hf_want_value(w, "rope_scaling.type", "default");
}

static void emit_tied(loong_hf_writer_t *w)
{
    loongi_hf_emit_bool(
        w, "tie_word_embeddings",
        !loongi_pairs_true(w->model, "untie_embeddings_and_output_weights"));
}

/* The fields of the language model. */
static void emit_model(loong_hf_writer_t *w)
{
    emit_table(w);
    if (strcmp(w->type->family, "gpt2") == 0) {
        emit_gpt2(w);
    } else if (strcmp(w->type->family, "qwen") == 0) {
        emit_qwen(w);
    } else if (loongi_hf_writes(w, "kv_lora_rank")) {
        loongi_hf_emit_deepseek(w);
        emit_biases(w);
        loongi_hf_emit_rope(w);
    } else {
        emit_rotary(w);
    }
    if (loongi_hf_writes(w, "num_nextn_predict_layers")) {
        loongi_hf_emit(w, "num_nextn_predict_layers", "0");
    }
    emit_tied(w);
}

/* The same in an object of its own, beside that of images. */
static void emit_text(loong_hf_writer_t *w)
{
    char quoted[96];
    loong_text_t whole = loongi_hf_begin_object(w);
    snprintf(quoted, sizeof(quoted), "\"%s_text\"", w->type->model_type);
    loongi_hf_emit(w, "model_type", quoted);
    emit_model(w);
    loongi_hf_end_object(w, "text_config", whole);
    emit_tied(w);
}

/* As the file said that the model comes from; of other types there is no place
 * for them. The first Qwen's class has true for those that are absent. */
static void emit_switches(loong_hf_writer_t *w)
{
    bool first = strcmp(w->type->model_type, "qwen") == 0;
    for (const char *const *n = loongi_hf_switch_names; *n != NULL; n++) {
        const char *kept = w->kept != NULL ? loongi_pairs_get(w->kept, *n)
                                           : NULL;
        if (loongi_hf_writes(w, *n) && (kept != NULL || first)) {
            loongi_hf_emit(w, *n, kept != NULL ? kept : "false");
        } else if (kept != NULL && strcmp(kept, "false") != 0) {
            loongi_log(w->ctx, LOONG_LOG_WARN,
                       "%s: %s is left out, model type %s has no place for "
                       "it: texts longer than max_position_embeddings are "
                       "read otherwise", *n, kept, w->type->model_type);
        }
    }
}

void loongi_hf_decoder_write(loong_hf_writer_t *w, const char *torch_dtype)
{
    char quoted[96];
    loongi_text_printf(&w->text, "{");
    snprintf(quoted, sizeof(quoted), "[\"%s\"]", w->type->architecture);
    loongi_hf_emit(w, "architectures", quoted);
    snprintf(quoted, sizeof(quoted), "\"%s\"", w->type->model_type);
    loongi_hf_emit(w, "model_type", quoted);
    loongi_hf_emit_kept(w, LOONG_HF_AUTO_MAP);
    if (loongi_hf_writes(w, "text_config")) {
        emit_text(w);
        for (const char *const *n = loongi_hf_extra_names; *n != NULL; n++) {
            loongi_hf_emit_kept(w, *n);
        }
    } else {
        emit_model(w);
    }
    emit_switches(w);
    loongi_hf_emit_ids(w, w->generation);
    loongi_hf_emit(w, "use_cache", "true");
    loongi_hf_emit(w, "torch_dtype", torch_dtype);
    loongi_text_printf(&w->text, "\n}\n");
}
