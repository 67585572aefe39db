/* SPDX-License-Identifier: Apache-2.0
 *
 * Model keys -> config.json and generation_config.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "hf_config.h"
#include "hf_family.h"
#include "hf_tokens.h"
#include "json.h"
#include "layer_kinds.h"
#include "problems.h"

typedef struct writer {
    loong_context_t *ctx;
    const loong_pairs_t *model;
    const loong_hf_type_t *type;
    loong_text_t text;
    loong_problems_t problems;
} writer_t;

static void emit(writer_t *w, const char *name, const char *json)
{
    loongi_text_printf(&w->text, "%s\n  \"%s\": %s",
                       w->text.length > 1 ? "," : "", name, json);
}

static void emit_int(writer_t *w, const char *name, const char *key)
{
    char text[32];
    int64_t value = 0;
    if (!loongi_pairs_int(w->model, key, &value)) {
        const char *found = loongi_pairs_get(w->model, key);
        loongi_problems_add(&w->problems, "%s = %s: an integer is needed", key,
                            found != NULL ? found : "(missing)");
    }
    snprintf(text, sizeof(text), "%" PRId64, value);
    emit(w, name, text);
}

/* A key that is absent takes the fallback; NULL: it must be there. */
static void emit_real(writer_t *w, const char *name, const char *key,
                      const char *fallback)
{
    char text[LOONG_REAL_TEXT];
    double value = 0;
    const char *found = loongi_pairs_get(w->model, key);
    if (found == NULL && fallback != NULL) {
        sscanf(fallback, "%lf", &value);
    } else if (!loongi_pairs_real(w->model, key, &value)) {
        loongi_problems_add(&w->problems, "%s = %s: a number is needed", key,
                            found != NULL ? found : "(missing)");
    }
    emit(w, name, loongi_real_text(value, text));
}

static void emit_bool(writer_t *w, const char *name, bool value)
{
    emit(w, name, value ? "true" : "false");
}

static bool same_value(const loong_pairs_t *model, const char *key,
                       const char *expected)
{
    double found = 0;
    double wanted = 0;
    int used = 0;
    if (strcmp(loongi_pairs_get(model, key), expected) == 0) {
        return true;
    }
    return loongi_pairs_real(model, key, &found) &&
           sscanf(expected, "%lf%n", &wanted, &used) == 1 &&
           expected[used] == '\0' && found == wanted;
}

static void check_value(writer_t *w, const char *key, const char *expected)
{
    const char *found = loongi_pairs_get(w->model, key);
    if (found != NULL && !same_value(w->model, key, expected)) {
        loongi_problems_add(&w->problems, "%s = %s: model type %s has %s", key,
                            found, w->type->model_type, expected);
    }
}

static bool has_field(const writer_t *w, const char *name)
{
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_known(const writer_t *w, const char *key)
{
    static const char *const coded[] = {"family",
                                        "num_query_groups",
                                        "kv_channels",
                                        "ffn_hidden_size",
                                        "activation",
                                        "untie_embeddings_and_output_weights",
                                        "add_bias_linear",
                                        "add_qkv_bias",
                                        "add_attn_proj_bias",
                                        "window_size",
                                        "max_window_layers",
                                        "rotary_base",
                                        "rotary_percent",
                                        /* padding is never exported */
                                        "make_vocab_size_divisible_by",
                                        /* how training began */
                                        "init_method_std",
                                        "embedding_init_method_std",
                                        "use_scaled_init_method",
                                        "num_experts",
                                        "moe_layer_freq",
                                        "moe_ffn_hidden_size",
                                        "moe_router_pre_softmax",
                                        "moe_aux_loss_coeff",
                                        "moe_z_loss_coeff",
                                        "moe_router_load_balancing_type",
                                        NULL};
    bool experts = strncmp(key, "moe_", 4) == 0 ||
                   strcmp(key, "num_experts") == 0;
    if (experts && !has_field(w, "num_experts_per_tok")) {
        return false;
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
        if (f->key != NULL && strcmp(f->key, key) == 0) {
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
static bool is_neutral(const writer_t *w, const char *key)
{
    static const loong_hf_fixed_t neutral[] = {
        {"rotary_interleaved", "false"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(neutral); i++) {
        if (strcmp(neutral[i].key, key) == 0) {
            return same_value(w->model, key, neutral[i].value);
        }
    }
    return false;
}

/* How a model was trained, not what it is: a type may lack it. */
static bool is_rate(const char *key)
{
    return strstr(key, "dropout") != NULL;
}

static void emit_table(writer_t *w)
{
    for (const loong_hf_field_t *f = w->type->fields; f->name != NULL; f++) {
        if (f->kind == LOONG_HF_INT) {
            emit_int(w, f->name, f->key);
        } else if (f->kind == LOONG_HF_REAL) {
            emit_real(w, f->name, f->key, is_rate(f->key) ? "0" : f->fallback);
        } else if (f->kind == LOONG_HF_BOOL) {
            emit_bool(w, f->name, loongi_pairs_true(w->model, f->key));
        } else if (f->kind == LOONG_HF_NEUTRAL) {
            char value[64]; /* the first of those allowed */
            snprintf(value, sizeof(value), "%.*s",
                     (int)strcspn(f->fallback, "|"), f->fallback);
            emit(w, f->name, value);
        }
    }
    for (const loong_hf_fixed_t *f = w->type->fixed; f->key != NULL; f++) {
        if (!is_rate(f->key)) {
            check_value(w, f->key, f->value);
        }
    }
    for (int64_t i = 0; i < w->model->count; i++) {
        const char *key = w->model->items[i].key;
        if (!is_known(w, key) && !is_neutral(w, key) && !is_rate(key)) {
            loongi_problems_add(&w->problems,
                                "%s: model type %s has nothing like it", key,
                                w->type->model_type);
        }
    }
}

static void emit_rope(writer_t *w)
{
    const char *type = loongi_pairs_get(w->model, "rope_scaling.type");
    char key[96];
    if (has_field(w, "partial_rotary_factor")) {
        emit_real(w, "partial_rotary_factor", "rotary_percent", "1");
    } else {
        check_value(w, "rotary_percent", "1");
    }
    emit_real(w, "rope_theta", "rotary_base", "10000");
    if (type == NULL || strcmp(type, "none") == 0 ||
        strcmp(type, "default") == 0) {
        emit(w, "rope_scaling", "null");
        return;
    }
    if (!loongi_hf_rope_is_scaling(type)) {
        loongi_problems_add(&w->problems,
                            "rope_scaling.type = %s: linear, "
                            "dynamic, llama3 and yarn are known",
                            type);
        return;
    }
    loong_text_t whole = w->text;
    w->text = loongi_text_begin(w->ctx);
    loongi_text_printf(&w->text, "{");
    snprintf(key, sizeof(key), "\"%s\"", type);
    emit(w, "rope_type", key);
    for (const loong_hf_rope_key_t *k = loongi_hf_rope_keys; k->name != NULL;
         k++) {
        snprintf(key, sizeof(key), "rope_scaling.%s", k->name);
        if (strstr(k->types, type) == NULL ||
            (!k->required && loongi_pairs_get(w->model, key) == NULL)) {
            continue;
        }
        if (strcmp(k->name, "original_max_position_embeddings") == 0) {
            emit_int(w, k->name, key);
        } else if (strcmp(k->name, "truncate") == 0) {
            emit_bool(w, k->name, loongi_pairs_true(w->model, key));
        } else {
            emit_real(w, k->name, key, NULL);
        }
    }
    loongi_text_printf(&w->text, "\n  }");
    loong_text_t rope = w->text;
    w->text = whole;
    emit(w, "rope_scaling", loongi_text_get(&rope));
    loongi_text_free(&rope);
}

/* A window of 0 is none. */
static bool has_window(const writer_t *w)
{
    int64_t window = 0;
    return loongi_pairs_get(w->model, "window_size") != NULL &&
           !(loongi_pairs_int(w->model, "window_size", &window) && window == 0);
}

static void emit_window(writer_t *w)
{
    bool window = has_window(w);
    if (strcmp(w->type->model_type, "mistral") == 0 ||
        (strcmp(w->type->model_type, "mixtral") == 0 && window)) {
        check_value(w, "max_window_layers", "0");
        emit_int(w, "sliding_window", "window_size");
    } else if (has_field(w, "norm_topk_prob")) {
        check_value(w, "window_size", "0");
        emit(w, "use_sliding_window", "false");
        emit(w, "sliding_window", "null");
    } else if (has_field(w, "use_sliding_window")) {
        emit_bool(w, "use_sliding_window", window);
        if (!window) {
            emit(w, "sliding_window", "null");
            return;
        }
        emit_int(w, "sliding_window", "window_size");
        if (loongi_pairs_get(w->model, "max_window_layers") != NULL) {
            emit_int(w, "max_window_layers", "max_window_layers");
        } else {
            emit(w, "max_window_layers", "0");
        }
    }
}

/* Whether the field decides about biases itself. */
static bool has_code(const writer_t *w, const char *name)
{
    const loong_hf_field_t *f = w->type->fields;
    while (f->name != NULL && strcmp(f->name, name) != 0) {
        f++;
    }
    return f->name != NULL && f->kind == LOONG_HF_CODE;
}

static void emit_biases(writer_t *w)
{
    bool attention = loongi_pairs_true(w->model, "add_qkv_bias");
    const char *name = has_code(w, "attention_bias") ? "attention_bias"
                       : has_code(w, "bias")         ? "bias"
                       : has_code(w, "use_bias")     ? "use_bias"
                                                     : NULL;
    if (name != NULL) {
        emit_bool(w, name, attention);
        check_value(w, "add_attn_proj_bias", attention ? "true" : "false");
    }
    if (has_field(w, "mlp_bias")) {
        emit_bool(w, "mlp_bias",
                  loongi_pairs_true(w->model, "add_bias_linear"));
    } else if (has_code(w, "use_bias")) {
        check_value(w, "add_bias_linear", attention ? "true" : "false");
    }
}

/* Qwen2's classes have no head_dim, Mixtral's has none of its own: it is stated
 * only when it says more than hidden size / heads. */
static bool has_other_width(const writer_t *w)
{
    int64_t hidden = 0;
    int64_t heads = 0;
    int64_t width = 0;
    const char *type = w->type->model_type;
    return (strncmp(type, "qwen2", 5) != 0 && strcmp(type, "mixtral") != 0) ||
           !loongi_pairs_int(w->model, "hidden_size", &hidden) ||
           !loongi_pairs_int(w->model, "num_attention_heads", &heads) ||
           !loongi_pairs_int(w->model, "kv_channels", &width) ||
           width * heads != hidden;
}

/* The layers without experts, where the type has a place for them. */
static void emit_kinds(writer_t *w)
{
    const char *text = loongi_pairs_get(w->model, "moe_layer_freq");
    loong_layer_kinds_t kinds;
    char problem[128];
    int64_t layers = 0;
    bool qwen = has_field(w, "mlp_only_layers");
    loongi_pairs_int(w->model, "num_layers", &layers);
    if (!loongi_layer_kinds_parse(text, layers, &kinds, problem)) {
        loongi_problems_add(&w->problems, "moe_layer_freq = %s: %s", text,
                            problem);
        return;
    }
    loong_text_t list = loongi_text_begin(w->ctx);
    bool dense = loongi_layer_kinds_list(&kinds, layers, &list);
    if (!qwen && dense) {
        loongi_problems_add(&w->problems, "moe_layer_freq = %s: model type %s "
                                          "has experts in all layers",
                            text, w->type->model_type);
    }
    if (qwen) {
        emit(w, "decoder_sparse_step", "1");
        emit(w, "mlp_only_layers", loongi_text_get(&list));
    }
    loongi_text_free(&list);
}

static void emit_mixture(writer_t *w)
{
    if (has_field(w, "num_experts_per_tok")) {
        emit_kinds(w);
    }
    const char *width = loongi_pairs_get(w->model, "ffn_hidden_size");
    if (has_field(w, "norm_topk_prob")) {
        emit_int(w, "num_experts", "num_experts");
        emit_bool(w, "norm_topk_prob",
                  !loongi_pairs_true(w->model, "moe_router_pre_softmax"));
    } else if (has_field(w, "num_local_experts") && width != NULL) {
        check_value(w, "moe_ffn_hidden_size", width);
    }
    if (has_field(w, "qkv_bias")) {
        emit_bool(w, "qkv_bias", loongi_pairs_true(w->model, "add_qkv_bias"));
    }
}

static void emit_rotary(writer_t *w)
{
    emit_int(w, "num_key_value_heads", "num_query_groups");
    if (has_other_width(w)) {
        emit_int(w, "head_dim", "kv_channels");
    }
    emit(w, "hidden_act", "\"silu\"");
    emit_biases(w);
    emit_mixture(w);
    emit_rope(w);
    emit_window(w);
    if (has_field(w, "num_nextn_predict_layers")) {
        emit(w, "num_nextn_predict_layers", "0");
    }
}

static void emit_gpt2(writer_t *w)
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
        emit(w, "n_inner", "null"); /* the usual width */
    } else {
        emit_int(w, "n_inner", "ffn_hidden_size");
    }
    emit(w, "activation_function", exact ? "\"gelu\"" : "\"gelu_new\"");
    if (!exact) {
        check_value(w, "activation", "gelu_tanh");
    }
    if (loongi_pairs_int(w->model, "num_attention_heads", &heads) &&
        heads > 0) {
        snprintf(width, sizeof(width), "%" PRId64, hidden / heads);
        check_value(w, "kv_channels", width);
        snprintf(width, sizeof(width), "%" PRId64, heads);
        check_value(w, "num_query_groups", width);
    }
}

static void emit_qwen(writer_t *w)
{
    char text[32];
    int64_t width = 0;
    int64_t heads = 0;
    loongi_pairs_int(w->model, "ffn_hidden_size", &width);
    snprintf(text, sizeof(text), "%" PRId64, 2 * width);
    emit(w, "intermediate_size", text);
    emit_int(w, "max_position_embeddings", "max_position_embeddings");
    emit(w, "use_dynamic_ntk", "false");
    emit(w, "use_logn_attn", "false");
    loongi_pairs_int(w->model, "num_attention_heads", &heads);
    snprintf(text, sizeof(text), "%" PRId64, heads);
    check_value(w, "num_query_groups", text);
    check_value(w, "window_size", "0");
    check_value(w, "rope_scaling.type", "none");
}

/* Token ids: those of generation_config.json, else the given ones. */
static void emit_ids(writer_t *w, const loong_json_t *generation,
                     const loong_hf_config_params_t *params)
{
    const char *const *names = loongi_hf_token_names;
    for (int i = 0; i < LOONG_HF_TOKENS; i++) {
        const loong_json_t *value =
            generation ? loongi_json_get(generation, names[i]) : NULL;
        const char *given = generation == NULL && params->tokens != NULL
                                ? loongi_pairs_get(params->tokens, names[i])
                                : NULL;
        if (value != NULL) {
            loong_text_t json = loongi_text_begin(w->ctx);
            loongi_text_json(&json, value);
            emit(w, names[i], loongi_text_get(&json));
            loongi_text_free(&json);
            continue;
        }
        emit(w, names[i], given != NULL ? given : "null");
    }
}

static const char *torch_dtype(loong_dtype_t dtype)
{
    switch (dtype) {
    case LOONG_F64:
        return "\"float64\"";
    case LOONG_BF16:
        return "\"bfloat16\"";
    case LOONG_F16:
        return "\"float16\"";
    default:
        return "\"float32\"";
    }
}

static loong_status_t find_type(writer_t *w)
{
    const char *family = loongi_pairs_get(w->model, "family");
    LOONG_CHECK(w->ctx, family != NULL, LOONG_ERR_ARG,
                "the model has no family");
    bool window = has_window(w);
    bool llama = strcmp(family, "llama") == 0;
    w->type = loongi_hf_type_find(llama && window ? "mistral" : family);
    LOONG_CHECK(w->ctx, w->type != NULL, LOONG_ERR_UNSUPPORTED,
                "family '%s' has no Hugging Face model type (%s have)", family,
                loongi_hf_type_list());
    return LOONG_OK;
}

static void compose(writer_t *w, const loong_json_t *generation,
                    const loong_hf_config_params_t *params)
{
    char quoted[96];
    loongi_text_printf(&w->text, "{");
    snprintf(quoted, sizeof(quoted), "[\"%s\"]", w->type->architecture);
    emit(w, "architectures", quoted);
    snprintf(quoted, sizeof(quoted), "\"%s\"", w->type->model_type);
    emit(w, "model_type", quoted);
    emit_table(w);
    if (strcmp(w->type->family, "gpt2") == 0) {
        emit_gpt2(w);
    } else if (strcmp(w->type->family, "qwen") == 0) {
        emit_qwen(w);
    } else {
        emit_rotary(w);
    }
    emit_bool(
        w, "tie_word_embeddings",
        !loongi_pairs_true(w->model, "untie_embeddings_and_output_weights"));
    emit_ids(w, generation, params);
    emit(w, "use_cache", "true");
    emit(w, "torch_dtype", torch_dtype(params->dtype));
    loongi_text_printf(&w->text, "\n}\n");
}

static loong_status_t write_generation(writer_t *w,
                                       const loong_hf_config_params_t *params,
                                       const char *path)
{
    loong_text_t whole = w->text;
    w->text = loongi_text_begin(w->ctx);
    loongi_text_printf(&w->text, "{");
    emit(w, "_from_model_config", "true");
    emit_ids(w, NULL, params);
    loongi_text_printf(&w->text, "\n}\n");
    loong_status_t status = w->text.status;
    if (status == LOONG_OK) {
        status = loongi_file_write(w->ctx, path, w->text.data, w->text.length);
    }
    loongi_text_free(&w->text);
    w->text = whole;
    return status;
}

static loong_status_t write_files(writer_t *w,
                                  const loong_hf_config_params_t *params,
                                  const char *config, const char *generation)
{
    loong_json_t *ids = NULL;
    bool present = loongi_file_exists(generation);
    if (present) {
        LOONG_TRY(loongi_json_load(w->ctx, generation, &ids));
    }
    compose(w, ids, params);
    loongi_json_destroy(&ids);
    LOONG_TRY(loongi_problems_end(&w->problems, LOONG_ERR_UNSUPPORTED,
                                  "the model as a Hugging Face config.json"));
    LOONG_TRY(w->text.status);
    LOONG_TRY(loongi_file_write(w->ctx, config, w->text.data, w->text.length));
    return present ? LOONG_OK : write_generation(w, params, generation);
}

loong_status_t loongi_hf_config_check(loong_context_t *ctx,
                                      const loong_pairs_t *model)
{
    loong_hf_config_params_t params = {"", model, LOONG_F32, NULL};
    writer_t w = {0};
    w.ctx = ctx;
    w.model = model;
    w.text = loongi_text_begin(ctx);
    w.problems = loongi_problems_begin(ctx);
    LOONG_TRY(find_type(&w));
    compose(&w, NULL, &params);
    loongi_text_free(&w.text);
    return loongi_problems_end(&w.problems, LOONG_ERR_UNSUPPORTED,
                               "the model as a Hugging Face config.json");
}

loong_status_t loongi_hf_config_write(loong_context_t *ctx,
                                      const loong_hf_config_params_t *params)
{
    writer_t w = {0};
    loong_arena_t *paths = NULL;
    char *config = NULL;
    char *generation = NULL;
    w.ctx = ctx;
    w.model = params->model;
    w.text = loongi_text_begin(ctx);
    w.problems = loongi_problems_begin(ctx);
    LOONG_TRY(find_type(&w));
    LOONG_TRY(loongi_arena_create(ctx, "config paths", &paths));
    loong_status_t status =
        loongi_arena_printf(paths, &config, "%s/config.json", params->dir);
    if (status == LOONG_OK) {
        status = loongi_arena_printf(paths, &generation,
                                     "%s/generation_config.json", params->dir);
    }
    if (status == LOONG_OK) {
        status = loongi_dir_make(ctx, params->dir);
    }
    if (status == LOONG_OK) {
        status = write_files(&w, params, config, generation);
    }
    loongi_text_free(&w.text);
    loongi_arena_destroy(&paths);
    return status;
}
