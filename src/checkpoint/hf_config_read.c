/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json -> model keys. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_config.h"
#include "hf_family.h"
#include "json.h"
#include "problems.h"

typedef struct reader {
    loong_context_t *ctx;
    const char *path;
    const loong_json_t *json;
    const loong_hf_type_t *type;
    loong_pairs_t *pairs;
    loong_problems_t problems;
} reader_t;

/* Absent and null are the same in these files. */
static const loong_json_t *field(const loong_json_t *object, const char *name)
{
    const loong_json_t *value = loongi_json_get(object, name);
    return value != NULL && loongi_json_kind(value) != LOONG_JSON_NULL ? value
                                                                       : NULL;
}

/* The value as JSON for a message, cut when long. */
static const char *value_text(reader_t *r, const loong_json_t *value,
                              char buffer[64])
{
    loong_text_t text = loongi_text_begin(r->ctx);
    loongi_text_json(&text, value);
    snprintf(buffer, 64, "%.50s%s", loongi_text_get(&text),
             text.length > 50 ? "..." : "");
    loongi_text_free(&text);
    return buffer;
}

static void refuse(reader_t *r, const char *name, const loong_json_t *value,
                   const char *allowed)
{
    char text[64];
    loongi_problems_add(&r->problems, "%s = %s is not supported (%s)", name,
                        value_text(r, value, text), allowed);
}

static loong_status_t map_int(reader_t *r, const loong_json_t *value,
                              const char *name, const char *key)
{
    if (loongi_json_kind(value) != LOONG_JSON_INT ||
        loongi_json_int(value) <= 0) {
        refuse(r, name, value, "a positive integer is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, key, loongi_json_int(value));
}

static loong_status_t map_real(reader_t *r, const loong_json_t *value,
                               const char *name, const char *key)
{
    loong_json_kind_t kind = loongi_json_kind(value);
    if ((kind != LOONG_JSON_INT && kind != LOONG_JSON_REAL) ||
        loongi_json_real(value) < 0) {
        refuse(r, name, value, "a number >= 0 is needed");
        return LOONG_OK;
    }
    return loongi_pairs_set_real(r->pairs, key, loongi_json_real(value));
}

static void check_neutral(reader_t *r, const char *name,
                          const loong_json_t *value, const char *allowed)
{
    char text[64], list[64], note[96];
    if (loongi_json_kind(value) == LOONG_JSON_NULL) {
        return;
    }
    value_text(r, value, text);
    snprintf(list, sizeof(list), "|%s|", allowed);
    snprintf(note, sizeof(note), "|%s|", text);
    if (strstr(list, note) == NULL) {
        snprintf(note, sizeof(note), "it must be %.60s or absent", allowed);
        refuse(r, name, value, note);
    }
}

static loong_status_t map_fields(reader_t *r)
{
    for (const loong_hf_field_t *f = r->type->fields; f->name != NULL; f++) {
        const loong_json_t *value = field(r->json, f->name);
        if (f->kind == LOONG_HF_CODE) {
            continue;
        }
        if (f->kind == LOONG_HF_NEUTRAL) {
            if (value != NULL) {
                check_neutral(r, f->name, value, f->fallback);
            }
        } else if (value == NULL && f->fallback == NULL) {
            loongi_problems_add(&r->problems, "%s is missing", f->name);
        } else if (value == NULL && f->kind == LOONG_HF_INT) {
            LOONG_TRY(loongi_pairs_set(r->pairs, f->key, f->fallback));
        } else if (value == NULL) {
            double fallback = 0;
            sscanf(f->fallback, "%lf", &fallback);
            LOONG_TRY(loongi_pairs_set_real(r->pairs, f->key, fallback));
        } else if (f->kind == LOONG_HF_INT) {
            LOONG_TRY(map_int(r, value, f->name, f->key));
        } else {
            LOONG_TRY(map_real(r, value, f->name, f->key));
        }
    }
    return LOONG_OK;
}

static bool in_fields(const loong_hf_field_t *fields, const char *name)
{
    for (; fields->name != NULL; fields++) {
        if (strcmp(fields->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_ignored(const char *name)
{
    for (const char *const *f = loongi_hf_ignored_fields; *f != NULL; f++) {
        if (strcmp(*f, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_empty(const loong_json_t *value)
{
    switch (loongi_json_kind(value)) {
    case LOONG_JSON_NULL:
        return true;
    case LOONG_JSON_BOOL:
        return !loongi_json_bool(value);
    case LOONG_JSON_STRING:
        return loongi_json_string_length(value) == 0;
    case LOONG_JSON_ARRAY:
    case LOONG_JSON_OBJECT:
        return loongi_json_count(value) == 0;
    default:
        return false;
    }
}

static void check_other_fields(reader_t *r)
{
    const loong_hf_field_t *common = loongi_hf_common_fields;
    for (const loong_json_member_t *m = loongi_json_first(r->json); m != NULL;
         m = loongi_json_next(r->json, m)) {
        const char *name = loongi_json_member_key(m);
        const loong_json_t *value = loongi_json_member_value(m);
        if (in_fields(r->type->fields, name) || is_ignored(name)) {
            continue;
        }
        const loong_hf_field_t *f = common;
        while (f->name != NULL && strcmp(f->name, name) != 0) {
            f++;
        }
        if (f->name != NULL) {
            check_neutral(r, name, value, f->fallback);
        } else if (!is_empty(value)) {
            refuse(r, name, value,
                   "the field is not known; if it does not change what the "
                   "model computes, remove it");
        }
    }
}

static void check_architecture(reader_t *r)
{
    const loong_json_t *list = field(r->json, "architectures");
    if (list == NULL) {
        return;
    }
    const loong_json_t *first = loongi_json_at(list, 0);
    if (first == NULL || loongi_json_count(list) != 1 ||
        strcmp(loongi_json_string(first), r->type->architecture) != 0) {
        refuse(r, "architectures", list, r->type->architecture);
    }
}

static loong_status_t set_fixed(reader_t *r)
{
    for (const loong_hf_fixed_t *f = r->type->fixed; f->key != NULL; f++) {
        LOONG_TRY(loongi_pairs_set(r->pairs, f->key, f->value));
    }
    return LOONG_OK;
}

/* A field that is true, false or absent. */
static bool flag(reader_t *r, const char *name, bool fallback)
{
    const loong_json_t *value = field(r->json, name);
    if (value == NULL) {
        return fallback;
    }
    if (loongi_json_kind(value) != LOONG_JSON_BOOL) {
        refuse(r, name, value, "true or false is needed");
        return fallback;
    }
    return loongi_json_bool(value);
}

static loong_status_t map_heads(reader_t *r)
{
    int64_t heads = 0;
    int64_t hidden = 0;
    const loong_json_t *groups = field(r->json, "num_key_value_heads");
    const loong_json_t *width = field(r->json, "head_dim");
    if (!loongi_pairs_int(r->pairs, "num_attention_heads", &heads) ||
        !loongi_pairs_int(r->pairs, "hidden_size", &hidden)) {
        return LOONG_OK; /* already reported */
    }
    if (groups != NULL) {
        LOONG_TRY(
            map_int(r, groups, "num_key_value_heads", "num_query_groups"));
    } else {
        LOONG_TRY(loongi_pairs_set_int(r->pairs, "num_query_groups", heads));
    }
    if (width != NULL) {
        return map_int(r, width, "head_dim", "kv_channels");
    }
    if (hidden % heads != 0) {
        loongi_problems_add(&r->problems,
                            "hidden size %" PRId64 " is not a multiple of "
                            "%" PRId64 " heads and there is no head_dim",
                            hidden, heads);
    }
    return loongi_pairs_set_int(r->pairs, "kv_channels", hidden / heads);
}

static loong_status_t map_activation(reader_t *r)
{
    bool gpt2 = strcmp(r->type->family, "gpt2") == 0;
    const char *name = gpt2 ? "activation_function" : "hidden_act";
    const loong_json_t *value = field(r->json, name);
    const char *text = value != NULL ? loongi_json_string(value)
                       : gpt2        ? "gelu_new"
                                     : "silu";
    if (!gpt2) {
        if (strcmp(text, "silu") != 0 && strcmp(text, "swish") != 0) {
            refuse(r, name, value, "silu is");
        }
        return LOONG_OK;
    }
    if (strcmp(text, "gelu") == 0) {
        return loongi_pairs_set(r->pairs, "activation", "gelu");
    }
    if (strcmp(text, "gelu_new") != 0 &&
        strcmp(text, "gelu_pytorch_tanh") != 0) {
        refuse(r, name, value, "gelu, gelu_new and gelu_pytorch_tanh are");
    }
    return loongi_pairs_set(r->pairs, "activation", "gelu_tanh");
}

/* attention_bias is a bias on q, k, v and the output projection. */
static loong_status_t map_biases(reader_t *r)
{
    if (!in_fields(r->type->fields, "attention_bias")) {
        return LOONG_OK; /* fixed by the type */
    }
    bool llama = in_fields(r->type->fields, "mlp_bias");
    bool attention = flag(r, "attention_bias", false);
    bool mlp = llama && flag(r, "mlp_bias", false);
    LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_bias_linear", mlp));
    LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_qkv_bias", attention));
    return loongi_pairs_set_bool(r->pairs, "add_attn_proj_bias", attention);
}

static bool is_type(const reader_t *r, const char *model_type)
{
    return strcmp(r->type->model_type, model_type) == 0;
}

static bool is_mixture(const reader_t *r)
{
    return is_type(r, "mixtral") || is_type(r, "qwen2_moe") ||
           is_type(r, "qwen3_moe");
}

/* Qwen's number of experts; newer files say it in Mixtral's words. */
static loong_status_t map_experts(reader_t *r)
{
    const loong_json_t *old = field(r->json, "num_experts");
    const loong_json_t *value = field(r->json, "num_local_experts");
    if (old != NULL && value != NULL) {
        loongi_problems_add(&r->problems, "num_experts and num_local_experts "
                                          "are both there: keep one");
    }
    if (old == NULL && value == NULL) {
        loongi_problems_add(&r->problems, "num_experts is missing");
        return LOONG_OK;
    }
    return old != NULL ? map_int(r, old, "num_experts", "num_experts")
                       : map_int(r, value, "num_local_experts", "num_experts");
}

/* With norm_topk_prob the weights are those of a softmax after the choice. */
static loong_status_t map_mixture(reader_t *r)
{
    const char *width = loongi_pairs_get(r->pairs, "ffn_hidden_size");
    if (is_type(r, "mixtral")) {
        return width != NULL
                   ? loongi_pairs_set(r->pairs, "moe_ffn_hidden_size", width)
                   : LOONG_OK;
    }
    LOONG_TRY(map_experts(r));
    if (is_type(r, "qwen2_moe")) {
        LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_qkv_bias",
                                        flag(r, "qkv_bias", true)));
    }
    return loongi_pairs_set_bool(r->pairs, "moe_router_pre_softmax",
                                 !flag(r, "norm_topk_prob", false));
}

/* The first layers with full attention, then layers with the window. */
static loong_status_t map_window(reader_t *r)
{
    const loong_json_t *window = field(r->json, "sliding_window");
    int64_t layers = 0;
    int64_t full_layers = 0;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    if (strcmp(r->type->model_type, "mistral") == 0) {
        if (loongi_json_get(r->json, "sliding_window") == NULL) {
            return loongi_pairs_set(r->pairs, "window_size", "4096");
        }
    } else if (is_type(r, "mixtral")) {
        full_layers = 0;
    } else if (is_mixture(r) && flag(r, "use_sliding_window", false)) {
        refuse(r, "use_sliding_window",
               field(r->json, "use_sliding_window"), "false is");
        return LOONG_OK;
    } else if (in_fields(r->type->fields, "use_sliding_window")) {
        const loong_json_t *value = field(r->json, "max_window_layers");
        if (value != NULL && loongi_json_kind(value) != LOONG_JSON_INT) {
            refuse(r, "max_window_layers", value, "an integer is needed");
        }
        full_layers = value != NULL ? loongi_json_int(value) : 28;
        if (!flag(r, "use_sliding_window", false) || full_layers >= layers) {
            return LOONG_OK;
        }
        if (window == NULL) {
            return loongi_json_get(r->json, "sliding_window") != NULL
                       ? LOONG_OK
                       : loongi_pairs_set(r->pairs, "window_size", "4096");
        }
    } else {
        return LOONG_OK;
    }
    if (window == NULL) {
        return LOONG_OK;
    }
    LOONG_TRY(map_int(r, window, "sliding_window", "window_size"));
    return full_layers > 0 ? loongi_pairs_set_int(r->pairs, "max_window_layers",
                                                  full_layers)
                           : LOONG_OK;
}

static void check_layer_types(reader_t *r)
{
    const loong_json_t *list = field(r->json, "layer_types");
    int64_t layers = 0;
    int64_t full = 0;
    if (list == NULL) {
        return;
    }
    bool window = loongi_pairs_get(r->pairs, "window_size") != NULL;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    loongi_pairs_int(r->pairs, "max_window_layers", &full);
    if (loongi_json_count(list) != layers) {
        refuse(r, "layer_types", list, "one entry for each layer is needed");
        return;
    }
    for (int64_t i = 0; i < layers; i++) {
        const char *text = loongi_json_string(loongi_json_at(list, i));
        const char *expected =
            window && i >= full ? "sliding_attention" : "full_attention";
        if (strcmp(text, expected) != 0) {
            loongi_problems_add(
                &r->problems,
                "layer_types[%" PRId64 "] = '%s' is not supported (with this "
                "sliding_window and max_window_layers it must be '%s')",
                i, text, expected);
        }
    }
}

static void check_rope_keys(reader_t *r, const loong_json_t *rope,
                            const char *name, const char *type)
{
    char spaced[32], full[96];
    snprintf(spaced, sizeof(spaced), " %.28s ", type);
    for (const loong_json_member_t *m = loongi_json_first(rope); m != NULL;
         m = loongi_json_next(rope, m)) {
        const char *key = loongi_json_member_key(m);
        const loong_json_t *value = loongi_json_member_value(m);
        const loong_hf_rope_key_t *k = loongi_hf_rope_keys;
        snprintf(full, sizeof(full), "%s.%.60s", name, key);
        while (k->name != NULL && (strcmp(k->name, key) != 0 ||
                                   strstr(k->types, spaced) == NULL)) {
            k++;
        }
        if (k->name != NULL || strcmp(key, "type") == 0 ||
            strcmp(key, "rope_type") == 0 || strcmp(key, "rope_theta") == 0) {
            continue;
        }
        if (strcmp(key, "partial_rotary_factor") == 0) {
            check_neutral(r, full, value, "1|1.0");
        } else if (!is_empty(value)) {
            refuse(r, full, value, "not known for this rope type");
        }
    }
}

static loong_status_t map_rope_keys(reader_t *r, const loong_json_t *rope,
                                    const char *name, const char *type)
{
    char spaced[32], full[96], target[96];
    snprintf(spaced, sizeof(spaced), " %.28s ", type);
    for (const loong_hf_rope_key_t *k = loongi_hf_rope_keys; k->name != NULL;
         k++) {
        const loong_json_t *value = field(rope, k->name);
        if (strstr(k->types, spaced) == NULL) {
            continue;
        }
        snprintf(full, sizeof(full), "%s.%s", name, k->name);
        snprintf(target, sizeof(target), "rope_scaling.%s", k->name);
        bool original =
            strcmp(k->name, "original_max_position_embeddings") == 0;
        const char *limit =
            loongi_pairs_get(r->pairs, "max_position_embeddings");
        if (value == NULL && original && limit != NULL) {
            LOONG_TRY(loongi_pairs_set(r->pairs, target, limit));
        } else if (value == NULL && k->required) {
            loongi_problems_add(&r->problems, "%s is missing", full);
        } else if (value != NULL && original) {
            LOONG_TRY(map_int(r, value, full, target));
        } else if (value != NULL &&
                   loongi_json_kind(value) == LOONG_JSON_BOOL &&
                   strcmp(k->name, "truncate") == 0) {
            LOONG_TRY(loongi_pairs_set_bool(r->pairs, target,
                                            loongi_json_bool(value)));
        } else if (value != NULL) {
            LOONG_TRY(map_real(r, value, full, target));
        }
    }
    return LOONG_OK;
}

static const char *rope_type_of(const loong_json_t *rope)
{
    const loong_json_t *type = field(rope, "rope_type");
    type = type != NULL ? type : field(rope, "type");
    return type != NULL ? loongi_json_string(type) : "default";
}

static loong_status_t map_rope(reader_t *r)
{
    const loong_json_t *theta = field(r->json, "rope_theta");
    const loong_json_t *scaling = field(r->json, "rope_scaling");
    const loong_json_t *parameters = field(r->json, "rope_parameters");
    const loong_json_t *rope = parameters != NULL ? parameters : scaling;
    const char *name = parameters != NULL ? "rope_parameters" : "rope_scaling";
    const char *type = "default";
    if (scaling != NULL && parameters != NULL) {
        loongi_problems_add(&r->problems, "rope_scaling and rope_parameters "
                                          "are both there: keep one");
    }
    if (rope != NULL && loongi_json_kind(rope) != LOONG_JSON_OBJECT) {
        refuse(r, name, rope, "an object is needed");
        rope = NULL;
    }
    if (rope != NULL) {
        const loong_json_t *inner = field(rope, "rope_theta");
        theta = inner != NULL ? inner : theta;
        type = rope_type_of(rope);
        check_rope_keys(r, rope, name, type);
    }
    if (theta != NULL) {
        LOONG_TRY(map_real(r, theta, "rope_theta", "rotary_base"));
    } else {
        LOONG_TRY(loongi_pairs_set_real(r->pairs, "rotary_base",
                                        is_type(r, "mixtral") ? 1e6 : 1e4));
    }
    if (strcmp(type, "default") == 0) {
        return LOONG_OK;
    }
    if (strcmp(type, "linear") != 0 && strcmp(type, "llama3") != 0 &&
        strcmp(type, "yarn") != 0) {
        loongi_problems_add(&r->problems,
                            "%s.rope_type = '%s' is not supported (default, "
                            "linear, llama3 and yarn are)",
                            name, type);
        return LOONG_OK;
    }
    LOONG_TRY(loongi_pairs_set(r->pairs, "rope_scaling.type", type));
    return map_rope_keys(r, rope, name, type);
}

static loong_status_t map_gpt2(reader_t *r)
{
    const loong_json_t *inner = field(r->json, "n_inner");
    int64_t hidden = 0;
    LOONG_TRY(map_heads(r));
    if (inner != NULL) {
        return map_int(r, inner, "n_inner", "ffn_hidden_size");
    }
    loongi_pairs_int(r->pairs, "hidden_size", &hidden);
    return loongi_pairs_set_int(r->pairs, "ffn_hidden_size", 4 * hidden);
}

static loong_status_t map_rotary(reader_t *r)
{
    LOONG_TRY(map_heads(r));
    /* The class of Qwen3 has a default that the others derive. */
    if (strcmp(r->type->family, "qwen3") == 0 &&
        loongi_json_get(r->json, "head_dim") == NULL) {
        LOONG_TRY(loongi_pairs_set(r->pairs, "kv_channels", "128"));
    }
    LOONG_TRY(map_biases(r));
    if (is_mixture(r)) {
        LOONG_TRY(map_mixture(r));
    }
    LOONG_TRY(map_rope(r));
    LOONG_TRY(map_window(r));
    check_layer_types(r);
    return LOONG_OK;
}

static loong_status_t map_all(reader_t *r)
{
    bool gpt2 = strcmp(r->type->family, "gpt2") == 0;
    LOONG_TRY(loongi_pairs_set(r->pairs, "family", r->type->family));
    LOONG_TRY(map_fields(r));
    LOONG_TRY(set_fixed(r));
    LOONG_TRY(gpt2 ? map_gpt2(r) : map_rotary(r));
    LOONG_TRY(map_activation(r));
    LOONG_TRY(loongi_pairs_set_bool(r->pairs,
                                    "untie_embeddings_and_output_weights",
                                    !flag(r, "tie_word_embeddings", gpt2)));
    check_architecture(r);
    check_other_fields(r);
    return LOONG_OK;
}

static loong_status_t read_config(reader_t *r)
{
    const loong_json_t *type = field(r->json, "model_type");
    LOONG_CHECK(r->ctx, type != NULL, LOONG_ERR_FORMAT, "%s: no model_type",
                r->path);
    r->type = loongi_hf_type_find(loongi_json_string(type));
    LOONG_CHECK(r->ctx, r->type != NULL, LOONG_ERR_UNSUPPORTED,
                "%s: model_type '%s' is not supported (%s are)", r->path,
                loongi_json_string(type), loongi_hf_type_list());
    LOONG_TRY(loongi_pairs_create(r->ctx, &r->pairs));
    r->problems = loongi_problems_begin(r->ctx);
    loong_status_t status = map_all(r);
    loong_status_t listed =
        loongi_problems_end(&r->problems, LOONG_ERR_UNSUPPORTED, r->path);
    status = status != LOONG_OK ? status : listed;
    if (status != LOONG_OK) {
        loongi_pairs_destroy(&r->pairs);
    }
    return status;
}

loong_status_t loongi_hf_config_read(loong_context_t *ctx, const char *dir,
                                     loong_pairs_t **pairs_p)
{
    reader_t reader = {0};
    loong_json_t *json = NULL;
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    if (status == LOONG_OK) {
        status = loongi_json_load(ctx, path.data, &json);
    }
    if (status == LOONG_OK) {
        reader.ctx = ctx;
        reader.path = path.data;
        reader.json = json;
        status = read_config(&reader);
        loongi_json_destroy(&json);
    }
    loongi_text_free(&path);
    if (status == LOONG_OK) {
        *pairs_p = reader.pairs;
    }
    return status;
}
