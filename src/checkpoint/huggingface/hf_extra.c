/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the fields of config.json that the engine computes nothing with, so
 * that an export has them again. Called by hf_code.c and by what a run keeps
 * (artifacts.c). Read hf_extra.h before. */
#include "hf_extra.h"

#include <inttypes.h>

const char *const loongi_hf_extra_names[] = {
    "vision_config",        "image_token_id",
    "image_start_token_id", "image_end_token_id",
    "video_token_id",       "video_start_token_id",
    "video_end_token_id",   NULL};

const char *const loongi_hf_switch_names[] = {
    "use_dynamic_ntk", "use_logn_attn", "dual_chunk_attention_config", NULL};

const char *const loongi_hf_spelling_names[] = {"activation_function", NULL};

static void add(loong_text_t *text, const char *name,
                const loong_json_t *object, const char *from)
{
    const loong_json_t *value = loongi_json_get(object, from);
    if (value != NULL) {
        loongi_text_printf(text, "%s\"%s\": ", text->length > 1 ? ", " : "",
                           name);
        loongi_text_json(text, value);
    }
}

/* The publisher's words for the part that sees images. */
static void say_vision(const loong_json_t *config, loong_text_t *text)
{
    static const char *const same[] = {
        "depth",       "hidden_size", "hidden_act",        "num_heads",
        "in_channels", "patch_size",  "spatial_merge_size"};
    const loong_json_t *vision = loongi_json_get(config, "vision_config");
    int64_t width = loongi_json_int(loongi_json_get(vision, "hidden_size"));
    int64_t ratio = loongi_json_int(loongi_json_get(vision, "mlp_ratio"));
    loongi_text_printf(text, "{");
    for (int64_t i = 0; i < LOONG_COUNT_OF(same); i++) {
        add(text, same[i], vision, same[i]);
    }
    if (width > 0 && ratio > 0) {
        loongi_text_printf(text, "%s\"intermediate_size\": %" PRId64,
                           text->length > 1 ? ", " : "", width * ratio);
    }
    add(text, "temporal_merge_size", config, "temporal_conv_size");
    loongi_text_printf(text, "}");
}

static loong_status_t read_flat(loong_context_t *ctx,
                                const loong_json_t *config,
                                loong_pairs_t *pairs)
{
    const loong_json_t *id = loongi_json_get(config, "im_patch_id");
    loong_text_t text = loongi_text_begin(ctx);
    say_vision(config, &text);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_pairs_set(pairs, "vision_config", text.data);
    }
    loongi_text_free(&text);
    return status == LOONG_OK && id != NULL &&
                   loongi_json_kind(id) == LOONG_JSON_INT
               ? loongi_pairs_set_json(pairs, "image_token_id", id)
               : status;
}

/* Those of the list that are there. */
static loong_status_t keep_all(const char *const *names,
                               const loong_json_t *config, loong_pairs_t *pairs)
{
    for (const char *const *n = names; *n != NULL; n++) {
        const loong_json_t *value = loongi_json_get(config, *n);
        if (value != NULL && loongi_json_kind(value) != LOONG_JSON_NULL) {
            LOONG_TRY(loongi_pairs_set_json(pairs, *n, value));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_extra_read(loong_context_t *ctx,
                                    const loong_json_t *config,
                                    loong_pairs_t *pairs)
{
    LOONG_TRY(keep_all(loongi_hf_switch_names, config, pairs));
    LOONG_TRY(keep_all(loongi_hf_spelling_names, config, pairs));
    if (loongi_json_get(config, "vision_config") == NULL) {
        return LOONG_OK;
    }
    return loongi_json_get(config, "text_config") == NULL
               ? read_flat(ctx, config, pairs)
               : keep_all(loongi_hf_extra_names, config, pairs);
}

static loong_status_t take_all(const char *const *names,
                               const loong_pairs_t *from, loong_pairs_t *pairs)
{
    for (const char *const *n = names; *n != NULL; n++) {
        const char *value = loongi_pairs_get(from, *n);
        if (value != NULL && loongi_pairs_get(pairs, *n) == NULL) {
            LOONG_TRY(loongi_pairs_set(pairs, *n, value));
        }
    }
    return LOONG_OK;
}

loong_status_t loongi_hf_extra_take(const loong_pairs_t *from,
                                    loong_pairs_t *pairs)
{
    LOONG_TRY(take_all(loongi_hf_switch_names, from, pairs));
    LOONG_TRY(take_all(loongi_hf_spelling_names, from, pairs));
    return take_all(loongi_hf_extra_names, from, pairs);
}
