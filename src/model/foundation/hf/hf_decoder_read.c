/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a decoder -> model keys. Called by hf_config_read.c as part of
 * hf_decoder.c's loong_hf_kind_t. Read hf_config_read.h before. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "hf_composite.h"
#include "hf_decoder.h"
#include "hf_rows.h"

/* The class of the type, or the one of the same meaning that the publisher's
 * own Python files have. */
static bool is_architecture(const loong_hf_reader_t *r, const char *name)
{
    return strcmp(name, r->type->architecture) == 0 ||
           (loongi_hf_is_type(r, "ernie4_5") &&
            strcmp(name, "Ernie4_5_ForCausalLM") == 0);
}

static void check_architecture(loong_hf_reader_t *r)
{
    const loong_json_t *list = loongi_hf_field(r->json, "architectures");
    const loong_json_t *first =
        list != NULL ? loongi_json_at(list, 0) : NULL;
    char allowed[80];
    if (list != NULL &&
        (first == NULL || loongi_json_count(list) != 1 ||
         !is_architecture(r, loongi_json_string(first)))) {
        snprintf(allowed, sizeof(allowed), "%.60s is", r->type->architecture);
        loongi_hf_refuse(r, "architectures", list, allowed);
    }
}

static loong_status_t map_heads(loong_hf_reader_t *r)
{
    int64_t heads = 0;
    int64_t hidden = 0;
    const loong_json_t *groups =
        loongi_hf_field(r->json, "num_key_value_heads");
    const loong_json_t *width = loongi_hf_field(r->json, "head_dim");
    if (loongi_json_get(r->json, "num_key_value_heads") == NULL &&
        r->type->states_groups) {
        loongi_problems_add(&r->problems, "num_key_value_heads is missing");
    }
    if (!loongi_pairs_int(r->pairs, "num_attention_heads", &heads) ||
        !loongi_pairs_int(r->pairs, "hidden_size", &hidden)) {
        return LOONG_OK; /* already reported */
    }
    if (groups != NULL) {
        LOONG_TRY(loongi_hf_map_int(r, groups, "num_key_value_heads",
                                    "num_query_groups"));
    } else {
        LOONG_TRY(loongi_pairs_set_int(r->pairs, "num_query_groups", heads));
    }
    if (width != NULL) {
        return loongi_hf_map_int(r, width, "head_dim", "kv_channels");
    }
    if (loongi_pairs_get(r->pairs, "kv_channels") != NULL) {
        return LOONG_OK;
    }
    if (hidden % heads != 0) {
        loongi_problems_add(&r->problems,
                            "hidden size %" PRId64 " is not a multiple of "
                            "%" PRId64 " heads and there is no head_dim",
                            hidden, heads);
    }
    return loongi_pairs_set_int(r->pairs, "kv_channels", hidden / heads);
}

/* "gelu" of the first files means the approximation, too; what stands in
 * hidden_activation held in classes of transformers 4. */
static void check_gemma(loong_hf_reader_t *r)
{
    static const char *const names[] = {"hidden_act", "hidden_activation"};
    for (int i = 0; i < 2; i++) {
        const loong_json_t *value = loongi_hf_field(r->json, names[i]);
        const char *text = value != NULL ? loongi_json_string(value) : "gelu";
        if (strcmp(text, "gelu_pytorch_tanh") != 0 &&
            (i > 0 ? value != NULL : strcmp(text, "gelu") != 0)) {
            loongi_hf_refuse(r, names[i], value, "gelu_pytorch_tanh is");
        }
    }
}

static loong_status_t map_activation(loong_hf_reader_t *r)
{
    bool gpt2 = strcmp(r->type->family, "gpt2") == 0;
    const char *name = gpt2 ? "activation_function" : "hidden_act";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    const char *text = value != NULL ? loongi_json_string(value)
                       : gpt2        ? "gelu_new"
                                     : "silu";
    if (loongi_hf_is_type(r, "gemma")) {
        check_gemma(r);
        return LOONG_OK;
    }
    if (!gpt2) {
        if (strcmp(text, "silu") != 0 && strcmp(text, "swish") != 0) {
            loongi_hf_refuse(r, name, value, "silu is");
        }
        return LOONG_OK;
    }
    if (strcmp(text, "gelu") == 0) {
        return loongi_pairs_set(r->pairs, "activation", "gelu");
    }
    if (strcmp(text, "gelu_new") != 0 &&
        strcmp(text, "gelu_pytorch_tanh") != 0) {
        loongi_hf_refuse(r, name, value,
                         "gelu, gelu_new and gelu_pytorch_tanh are");
    }
    return loongi_pairs_set(r->pairs, "activation", "gelu_tanh");
}

/* One field says which linear layers have biases: attention_bias and bias
 * q, k, v and the output projection, use_bias all. */
static loong_status_t map_biases(loong_hf_reader_t *r)
{
    static const char *const names[] = {"attention_bias", "bias", "use_bias"};
    const char *name = NULL;
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        const loong_hf_field_t *f = r->type->fields;
        while (f->name != NULL && strcmp(f->name, names[i]) != 0) {
            f++;
        }
        name = f->name != NULL && f->kind == LOONG_HF_CODE ? names[i] : name;
    }
    if (name == NULL) {
        return LOONG_OK; /* fixed by the type */
    }
    bool attention = loongi_hf_flag(r, name, strcmp(name, "bias") == 0);
    bool mlp = strcmp(name, "use_bias") == 0 ? attention
               : loongi_hf_has_field(r->type->fields, "mlp_bias")
                   ? loongi_hf_flag(r, "mlp_bias", false)
                   : false;
    LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_bias_linear", mlp));
    LOONG_TRY(loongi_pairs_set_bool(r->pairs, "add_qkv_bias", attention));
    return loongi_pairs_set_bool(r->pairs, "add_attn_proj_bias", attention);
}

static loong_status_t map_gpt2(loong_hf_reader_t *r)
{
    const loong_json_t *inner = loongi_hf_field(r->json, "n_inner");
    int64_t hidden = 0;
    LOONG_TRY(map_heads(r));
    if (inner != NULL) {
        return loongi_hf_map_int(r, inner, "n_inner", "ffn_hidden_size");
    }
    loongi_pairs_int(r->pairs, "hidden_size", &hidden);
    return loongi_pairs_set_int(r->pairs, "ffn_hidden_size", 4 * hidden);
}

/* Its feed-forward states twice its width. */
static loong_status_t map_qwen(loong_hf_reader_t *r)
{
    static const char name[] = "intermediate_size";
    const loong_json_t *value = loongi_hf_field(r->json, name);
    LOONG_TRY(map_heads(r));
    if (value == NULL || loongi_json_kind(value) != LOONG_JSON_INT ||
        loongi_json_int(value) <= 0 || loongi_json_int(value) % 2 != 0) {
        loongi_problems_add(&r->problems, "%s must be a positive even integer",
                            name);
        return LOONG_OK;
    }
    return loongi_pairs_set_int(r->pairs, "ffn_hidden_size",
                                loongi_json_int(value) / 2);
}

bool loongi_hf_has_width(const loong_hf_reader_t *r)
{
    return loongi_hf_is_type(r, "qwen3") ||
           loongi_hf_is_type(r, "qwen3_vl_text") ||
           loongi_hf_is_type(r, "ernie4_5") ||
           loongi_hf_is_type(r, "gemma") || loongi_hf_is_type(r, "glm") ||
           loongi_hf_is_type(r, "glm4") ||
           loongi_hf_is_type(r, "minimax_m2");
}

static loong_status_t map_rotary(loong_hf_reader_t *r)
{
    if (loongi_hf_has_width(r) &&
        loongi_json_get(r->json, "head_dim") == NULL) {
        LOONG_TRY(
            loongi_pairs_set(r->pairs, "kv_channels",
                             loongi_hf_is_type(r, "gemma") ? "256" : "128"));
    }
    LOONG_TRY(map_heads(r));
    LOONG_TRY(map_biases(r));
    LOONG_TRY(loongi_hf_map_mixture(r));
    LOONG_TRY(loongi_hf_map_rope(r));
    return loongi_hf_map_window(r);
}

/* Of files of several parts, which have the language model's in text_config.
 */
static const loong_hf_field_t whole_fields[] = {
    CODE_FIELD("text_config"),          CODE_FIELD("vision_config"),
    CODE_FIELD("tie_word_embeddings"),  CODE_FIELD("image_token_id"),
    CODE_FIELD("image_start_token_id"), CODE_FIELD("image_end_token_id"),
    CODE_FIELD("video_token_id"),       CODE_FIELD("video_start_token_id"),
    CODE_FIELD("video_end_token_id"),   FIELDS_END};

/* Classes of whole models read what stands at the top, some text_config's true
 * as well; files of before transformers 5 say it in text_config alone. */
static bool is_tied(loong_hf_reader_t *r)
{
    static const char name[] = "tie_word_embeddings";
    const loong_json_t *text = r->json;
    bool inside = loongi_hf_flag(r, name, r->type->tied);
    if (r->whole == NULL || loongi_hf_field(r->whole, name) == NULL ||
        (r->composite != NULL && r->composite->foreign)) {
        return inside;
    }
    r->json = r->whole;
    bool tied = loongi_hf_flag(r, name, false);
    r->json = text;
    return tied || (r->composite != NULL && r->composite->text_ties && inside);
}

/* From the whole file to its text_config. */
static void enter_text(loong_hf_reader_t *r)
{
    const loong_json_t *text = loongi_hf_field(r->json, "text_config");
    if (text == NULL || loongi_json_kind(text) != LOONG_JSON_OBJECT) {
        loongi_problems_add(&r->problems, "text_config, an object with the "
                                          "language model, is missing");
        return;
    }
    check_architecture(r);
    loongi_hf_check_others(r, whole_fields);
    r->whole = r->json;
    r->json = text;
    r->problems.in = "text_config";
}

loong_status_t loongi_hf_decoder_read(loong_hf_reader_t *r)
{
    if (loongi_hf_has_field(r->type->fields, "text_config")) {
        enter_text(r);
    }
    bool gpt2 = strcmp(r->type->family, "gpt2") == 0;
    LOONG_TRY(loongi_pairs_set(r->pairs, "family", r->type->family));
    LOONG_TRY(loongi_hf_map_table(r));
    LOONG_TRY(loongi_hf_set_fixed(r));
    bool latent = loongi_hf_has_field(r->type->fields, "kv_lora_rank");
    if (latent) {
        LOONG_TRY(map_biases(r));
    }
    LOONG_TRY(gpt2                           ? map_gpt2(r)
              : loongi_hf_is_type(r, "qwen") ? map_qwen(r)
              : latent                       ? loongi_hf_map_deepseek(r)
                                             : map_rotary(r));
    LOONG_TRY(map_activation(r));
    LOONG_TRY(loongi_pairs_set_bool(
        r->pairs, "untie_embeddings_and_output_weights", !is_tied(r)));
    check_architecture(r);
    loongi_hf_check_others(r, r->type->fields);
    return LOONG_OK;
}
