/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers of config.json have a sliding window. Called by
 * hf_decoder_read.c and hf_decoder_guess.c. Read hf_config_read.h before. */
#include <inttypes.h>
#include <string.h>

#include "hf_decoder.h"

/* The first layers with full attention, then layers with the window. */
static loong_status_t map_window(loong_hf_reader_t *r)
{
    const loong_json_t *window = loongi_hf_field(r->json, "sliding_window");
    static const char usual[] = "4096"; /* of the classes */
    const char *absent = NULL;          /* NULL: no window then */
    int64_t layers = 0;
    int64_t full_layers = 0;
    loongi_pairs_int(r->pairs, "num_layers", &layers);
    if (strcmp(r->type->model_type, "mistral") == 0) {
        absent = usual;
    } else if (loongi_hf_is_type(r, "mixtral") ||
               loongi_hf_is_type(r, "phi3")) {
        full_layers = 0;
    } else if (loongi_hf_is_type(r, "qwen3_moe")) { /* all layers or none */
        if (!loongi_hf_flag(r, "use_sliding_window", false)) {
            return LOONG_OK;
        }
        absent = usual;
    } else if (loongi_hf_is_type(r, "qwen2_moe") &&
               loongi_hf_flag(r, "use_sliding_window", false)) {
        loongi_hf_refuse(r, "use_sliding_window",
                         loongi_hf_field(r->json, "use_sliding_window"),
                         "false is");
        return LOONG_OK;
    } else if (loongi_hf_has_field(r->type->fields, "use_sliding_window")) {
        const loong_json_t *value =
            loongi_hf_field(r->json, "max_window_layers");
        if (value != NULL && loongi_json_kind(value) != LOONG_JSON_INT) {
            loongi_hf_refuse(r, "max_window_layers", value,
                             "an integer is needed");
        }
        full_layers = value != NULL ? loongi_json_int(value) : 28;
        if (!loongi_hf_flag(r, "use_sliding_window", false) ||
            full_layers >= layers) {
            return LOONG_OK;
        }
        absent = usual;
    } else {
        return LOONG_OK;
    }
    if (window != NULL) {
        LOONG_TRY(
            loongi_hf_map_int(r, window, "sliding_window", "window_size"));
    } else if (loongi_json_get(r->json, "sliding_window") == NULL &&
               absent != NULL) {
        LOONG_TRY(loongi_pairs_set(r->pairs, "window_size", absent));
    } else {
        return LOONG_OK;
    }
    return full_layers > 0 ? loongi_pairs_set_int(r->pairs, "max_window_layers",
                                                  full_layers)
                           : LOONG_OK;
}

void loongi_hf_check_layer_types(loong_hf_reader_t *r)
{
    const loong_json_t *list = loongi_hf_field(r->json, "layer_types");
    int64_t layers = 0;
    int64_t full = 0;
    if (list == NULL || !loongi_pairs_int(r->pairs, "num_layers", &layers)) {
        return; /* already reported */
    }
    bool window = loongi_pairs_get(r->pairs, "window_size") != NULL;
    loongi_pairs_int(r->pairs, "max_window_layers", &full);
    if (loongi_json_count(list) != layers) {
        loongi_hf_refuse(r, "layer_types", list,
                         "one entry for each layer is needed");
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

/* Of MiniMax: 0 is linear attention, which its older models have. */
static void check_attention_list(loong_hf_reader_t *r)
{
    static const char name[] = "attn_type_list";
    const loong_json_t *list = loongi_hf_has_field(r->type->fields, name)
                                   ? loongi_hf_field(r->json, name)
                                   : NULL;
    int64_t layers = 0;
    if (list == NULL || !loongi_pairs_int(r->pairs, "num_layers", &layers)) {
        return;
    }
    if (loongi_json_count(list) != layers) {
        loongi_hf_refuse(r, name, list, "one entry for each layer is needed");
        return;
    }
    for (int64_t i = 0; i < layers; i++) {
        const loong_json_t *kind = loongi_json_at(list, i);
        if (loongi_json_kind(kind) != LOONG_JSON_INT ||
            loongi_json_int(kind) != 1) {
            loongi_hf_refuse(r, name, list, "1 for every layer is");
            return;
        }
    }
}

loong_status_t loongi_hf_map_window(loong_hf_reader_t *r)
{
    LOONG_TRY(map_window(r));
    loongi_hf_check_layer_types(r);
    check_attention_list(r);
    return LOONG_OK;
}
