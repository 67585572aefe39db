/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of a model type that is not known. Fields that many types have
 * are taken to mean there what they mean in those that are known. Called by
 * hf_config_read.c as part of hf_decoder.c's loong_hf_kind_t. Read
 * hf_config_read.h before. */
#include <string.h>

#include "hf_decoder.h"

#define CODE(name_)                      \
    {                                    \
        name_, LOONG_HF_CODE, NULL, NULL \
    }
#define REAL(name_, key_)                \
    {                                    \
        name_, LOONG_HF_REAL, key_, NULL \
    }

static const loong_hf_field_t guessed_fields[] = {
    CODE("rope_theta"), CODE("rope_scaling"), CODE("rope_parameters"),
    CODE("partial_rotary_factor"), CODE("rotary_dim"),
    CODE("sliding_window"), CODE("use_sliding_window"),
    CODE("max_window_layers"), CODE("layer_types"),
    CODE("hidden_act"),
    REAL("initializer_range", "init_method_std"),
    REAL("attention_dropout", "attention_dropout"),
    CODE("auto_map"),
    /* what the tensors say */
    CODE("tie_word_embeddings"), CODE("attention_bias"), CODE("mlp_bias"),
    CODE("qkv_bias"), CODE("use_bias"), CODE("bias"), CODE("use_qk_norm"),
    {NULL, LOONG_HF_CODE, NULL, NULL}};

static loong_status_t map_reals(loong_hf_reader_t *r)
{
    for (const loong_hf_field_t *f = guessed_fields; f->name != NULL; f++) {
        const loong_json_t *value = loongi_hf_field(r->json, f->name);
        if (f->kind == LOONG_HF_REAL && value != NULL) {
            LOONG_TRY(loongi_hf_map_real(r, value, f->name, f->key));
        }
    }
    return LOONG_OK;
}

/* Layers before the first with a window. */
static int64_t full_layers(const loong_hf_reader_t *r)
{
    const loong_json_t *kinds = loongi_hf_field(r->json, "layer_types");
    const loong_json_t *full = loongi_hf_field(r->json, "max_window_layers");
    int64_t n = 0;
    if (kinds != NULL) {
        while (n < loongi_json_count(kinds) &&
               strcmp(loongi_json_string(loongi_json_at(kinds, n)),
                      "full_attention") == 0) {
            n++;
        }
        return n;
    }
    return full != NULL && loongi_json_kind(full) == LOONG_JSON_INT &&
                   loongi_hf_field(r->json, "use_sliding_window") != NULL
               ? loongi_json_int(full)
               : 0;
}

static loong_status_t map_window(loong_hf_reader_t *r)
{
    const loong_json_t *window = loongi_hf_field(r->json, "sliding_window");
    int64_t full = full_layers(r);
    int64_t layers = 0;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    if (window != NULL && full < layers &&
        loongi_hf_flag(r, "use_sliding_window", true)) {
        LOONG_TRY(
            loongi_hf_map_int(r, window, "sliding_window", "window_size"));
        if (full > 0) {
            LOONG_TRY(
                loongi_pairs_set_int(r->pairs, "max_window_layers", full));
        }
    }
    loongi_hf_check_layer_types(r);
    return LOONG_OK;
}

static void check_activation(loong_hf_reader_t *r)
{
    const loong_json_t *value = loongi_hf_field(r->json, "hidden_act");
    const char *text = value != NULL ? loongi_json_string(value) : "silu";
    if (strcmp(text, "silu") != 0 && strcmp(text, "swish") != 0) {
        loongi_hf_refuse(r, "hidden_act", value, "silu is");
    }
}

static loong_status_t map_all(loong_hf_reader_t *r,
                              const loong_hf_field_t *used)
{
    LOONG_TRY(loongi_hf_map_rope(r));
    LOONG_TRY(map_window(r));
    LOONG_TRY(map_reals(r));
    check_activation(r);
    for (const loong_json_member_t *m = loongi_json_first(r->json); m != NULL;
         m = loongi_json_next(r->json, m)) {
        if (!loongi_hf_has_field(used, loongi_json_member_key(m)) &&
            !loongi_hf_has_field(guessed_fields, loongi_json_member_key(m))) {
            loongi_hf_check_other_field(r, m);
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_decoder_guess(loong_hf_reader_t *r,
                                       const loong_hf_field_t *used)
{
    static const loong_hf_fixed_t none = {NULL, NULL};
    const loong_json_t *name = loongi_hf_field(r->json, "model_type");
    loong_hf_type_t type = {
        name != NULL ? loongi_json_string(name) : "",
        "", "llama", guessed_fields, &none, 1e4, false, false};
    loongi_pairs_real(r->pairs, "rotary_base", &type.theta);
    r->type = &type;
    loong_status_t status = map_all(r, used);
    r->type = NULL;
    return status;
}
