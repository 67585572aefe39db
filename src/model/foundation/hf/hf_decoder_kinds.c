/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json -> which layers have experts. Called by hf_decoder_moe.c. Read
 * src/recipe/layer_kinds.h before. */
#include <string.h>

#include "hf_decoder.h"
#include "layer_kinds.h"

loong_status_t loongi_hf_set_kinds(loong_hf_reader_t *r,
                                   const loong_layer_kinds_t *kinds,
                                   int64_t layers)
{
    int64_t with = 0;
    for (int64_t i = 0; i < layers; i++) {
        with += kinds->of[i];
    }
    if (with == 0) {
        loongi_problems_add(&r->problems,
                            "%s: no layer has experts; say it as a dense "
                            "model type, not %s",
                            loongi_hf_has_field(r->type->fields,
                                                "mlp_layer_types")
                                ? "mlp_layer_types"
                                : "mlp_only_layers, decoder_sparse_step",
                            r->type->model_type);
        return LOONG_OK;
    }
    loong_text_t text = loongi_text_begin(r->ctx);
    loongi_layer_kinds_print(kinds, layers, &text);
    loong_status_t status = text.status;
    if (status == LOONG_OK && strcmp(text.data, "1") != 0) {
        status = loongi_pairs_set(r->pairs, "moe_layer_freq", text.data);
    }
    loongi_text_free(&text);
    return status;
}

/* One layer of those that are a feed-forward. */
static void mark_dense(loong_hf_reader_t *r, const loong_json_t *item,
                       int64_t layers, loong_layer_kinds_t *kinds)
{
    int64_t layer = loongi_json_kind(item) == LOONG_JSON_INT
                        ? loongi_json_int(item)
                        : -1;
    if (layer < 0) {
        loongi_hf_refuse(r, "mlp_only_layers", item, "numbers of layers are");
    } else if (layer < layers) {
        kinds->of[layer] = 0;
    }
}

/* Every decoder_sparse_step-th layer has experts, but for those in
 * mlp_only_layers. */
loong_status_t loongi_hf_map_kinds(loong_hf_reader_t *r)
{
    const loong_json_t *list = loongi_hf_field(r->json, "mlp_only_layers");
    const loong_json_t *every = loongi_hf_field(r->json, "decoder_sparse_step");
    loong_layer_kinds_t kinds;
    int64_t layers = 0;
    int64_t step = every == NULL ? 1
                   : loongi_json_kind(every) == LOONG_JSON_INT
                       ? loongi_json_int(every)
                       : 0;
    if (step < 1) {
        loongi_hf_refuse(r, "decoder_sparse_step", every,
                         "a positive integer is needed");
    }
    if (list != NULL && loongi_json_kind(list) != LOONG_JSON_ARRAY) {
        loongi_hf_refuse(r, "mlp_only_layers", list, "a list is needed");
    }
    if (!loongi_pairs_int(r->pairs, "num_layers", &layers) || step < 1 ||
        layers > LOONG_MAX_LAYERS) {
        return LOONG_OK; /* told, or told when the model is built */
    }
    for (int64_t i = 0; i < layers; i++) {
        kinds.of[i] = (i + 1) % step == 0;
    }
    for (int64_t i = 0; list != NULL && i < loongi_json_count(list); i++) {
        mark_dense(r, loongi_json_at(list, i), layers, &kinds);
    }
    return loongi_hf_set_kinds(r, &kinds, layers);
}
