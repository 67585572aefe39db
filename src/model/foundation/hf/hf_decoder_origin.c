/* SPDX-License-Identifier: Apache-2.0
 *
 * Which fields of config.json say a key of a decoder that code reads. Called by
 * hf_config_origin.c as part of hf_decoder.c's loong_hf_kind_t. Read
 * hf_config_read.h before. */
#include <string.h>

#include "hf_decoder.h"

/* Keys that code reads, each with the fields that it may stand in: those of
 * the first line that has one say it. */
static const struct {
    const char *key;
    const char *fields; /* a blank between */
} coded[] = {
    {"activation", "hidden_act activation_function"},
    {"add_attn_proj_bias", "attention_bias bias use_bias"},
    {"add_bias_linear", "mlp_bias use_bias"},
    {"add_qkv_bias", "attention_bias bias use_bias qkv_bias"},
    {"ffn_hidden_size", "n_inner intermediate_size"},
    {"ffn_hidden_size", "n_embd"},
    {"kv_channels", "qk_nope_head_dim qk_rope_head_dim"},
    {"kv_channels", "head_dim"},
    {"kv_channels", "hidden_size num_attention_heads n_embd n_head"},
    {"max_window_layers", "max_window_layers layer_types"},
    {"moe_ffn_hidden_size", "moe_intermediate_size"},
    {"moe_ffn_hidden_size", "intermediate_size"},
    {"moe_layer_freq", "mlp_layer_types decoder_sparse_step mlp_only_layers "
                       "first_k_dense_replace moe_layer_start_index"},
    {"moe_router_group_topk", "topk_group"},
    {"moe_router_norm_topk_prob", "norm_topk_prob"},
    {"moe_router_num_groups", "n_group"},
    {"moe_router_pre_softmax", "norm_topk_prob"},
    {"moe_router_topk", "num_experts_per_tok"},
    {"moe_router_topk_scaling_factor", "routed_scaling_factor"},
    {"moe_shared_expert_intermediate_size",
     "n_shared_experts moe_num_shared_experts moe_intermediate_size"},
    {"moe_vision_ffn_hidden_size", "moe_intermediate_size"},
    {"mrope_section", "freq_allocation head_dim"},
    {"num_experts", "num_experts num_local_experts n_routed_experts "
                    "moe_num_experts"},
    {"num_query_groups", "num_key_value_heads"},
    {"num_query_groups", "num_attention_heads n_head"},
    {"q_lora_rank", "q_lora_rank"},
    {"rotary_base", "rope_theta"},
    {"rotary_percent", "partial_rotary_factor rotary_dim"},
    {"untie_embeddings_and_output_weights", "tie_word_embeddings"},
    {"window_size", "sliding_window use_sliding_window"},
};

static const loong_json_t *rope_of(const loong_hf_reader_t *r,
                                   const char **name_p)
{
    const loong_json_t *rope = loongi_hf_field(r->json, "rope_parameters");
    *name_p = rope != NULL ? "rope_parameters" : "rope_scaling";
    return rope != NULL ? rope : loongi_hf_field(r->json, "rope_scaling");
}

/* Of keys that the object of rotary positions may have. */
static bool tell_rope(const loong_hf_reader_t *r, const char *key,
                      loong_text_t *text)
{
    static const char *const names[][2] = {
        {"rope_scaling.type", "rope_type"},
        {"rope_scaling.type", "type"},
        {"rotary_base", "rope_theta"},
        {"rotary_percent", "partial_rotary_factor"},
        {"mrope_section", "mrope_section"}};
    const char *object = NULL;
    const loong_json_t *rope = rope_of(r, &object);
    const char *field = strncmp(key, "rope_scaling.", 13) == 0 ? key + 13 : "";
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        if (strcmp(names[i][0], key) == 0 && rope != NULL &&
            loongi_hf_field(rope, names[i][1]) != NULL) {
            field = names[i][1];
            break;
        }
    }
    if (rope == NULL || loongi_hf_field(rope, field) == NULL) {
        return false;
    }
    loongi_text_printf(text, "%s.%s", object, field);
    return true;
}

static bool is_fixed(const loong_hf_reader_t *r, const char *key)
{
    const loong_hf_fixed_t *f = r->type->fixed;
    while (f->key != NULL && strcmp(f->key, key) != 0) {
        f++;
    }
    return f->key != NULL;
}

bool loongi_hf_decoder_tell(const loong_hf_reader_t *r, const char *key,
                            loong_text_t *text)
{
    bool told = tell_rope(r, key, text);
    bool of_type = is_fixed(r, key);
    for (int64_t i = 0; i < LOONG_COUNT_OF(coded) && !told && !of_type; i++) {
        bool derived = strstr(coded[i].fields, "hidden_size num") != NULL;
        if (strcmp(coded[i].key, key) == 0 &&
            !(derived && loongi_hf_has_width(r))) {
            told = loongi_hf_tell_fields(r, coded[i].fields, text);
        }
    }
    return told;
}
