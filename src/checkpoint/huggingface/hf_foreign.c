/* SPDX-License-Identifier: Apache-2.0
 *
 * Names what a config.json asks for that this engine does not compute, as the
 * error of an import or a draft. Called by hf_config_read.c, hf_weights.c and
 * draft.c. Read hf_foreign.h before. */
#include "hf_foreign.h"

#include <string.h>

#include "file.h"
#include "problems.h"

#define PARALLEL "attention and feed-forward beside each other"
#define STATES "layers with a state in place of attention"
#define GEMMA "norms that multiply by 1 + weight, scaled embeddings, GeGLU"

/* Types of transformers, and what their classes compute otherwise. */
static const struct {
    const char *type;
    const char *what;
} types[] = {
    {"bloom", "ALiBi, LayerNorm behind the embedding"},
    {"cohere", PARALLEL ", LayerNorm without bias, scaled logits"},
    {"cohere2", PARALLEL ", LayerNorm without bias, scaled logits"},
    {"dbrx", "clipped q, k and v, LayerNorm without bias"},
    {"falcon", PARALLEL},
    {"gemma2", GEMMA ", soft-caps, norms behind every block"},
    {"gemma3", GEMMA ", norms behind every block, two rotary bases"},
    {"gemma3_text", GEMMA ", norms behind every block, two rotary bases"},
    {"gpt_neo", "local attention without scaling"},
    {"gpt_neox", PARALLEL},
    {"gpt_oss", "attention sinks, clamped SwiGLU, experts with biases"},
    {"gptj", PARALLEL},
    {"granite", "multipliers of embeddings, residuals, attention and logits"},
    {"granitemoe", "multipliers of embeddings, residuals and logits"},
    {"jamba", STATES},
    {"llama4", "chunked attention, layers without positions"},
    {"llama4_text", "chunked attention, layers without positions"},
    {"mamba", STATES},
    {"mamba2", STATES},
    {"minicpm", "multipliers of embeddings, residuals and logits"},
    {"mpt", "ALiBi, LayerNorm without bias"},
    {"nemotron", "norms that multiply by 1 + weight, squared ReLU"},
    {"olmo", "norms without weights"},
    {"olmo2", "norms behind attention and feed-forward, none before them"},
    {"olmo3", "norms behind attention and feed-forward, none before them"},
    {"opt", "positions with an offset, ReLU"},
    {"persimmon", "LayerNorm of q and k, squared ReLU"},
    {"phi", PARALLEL},
    {"qwen3_next", "layers of linear attention, gated attention"},
    {"stablelm", "LayerNorm, and a part of a head rotated"},
    {"starcoder2", "LayerNorm and GELU in rotated attention"},
};

/* Fields of any type, and the values with which they change nothing. */
static const struct {
    const char *name;
    double neutral;
} fields[] = {
    {"attention_multiplier", -1.0}, /* none */
    {"attn_logit_softcapping", 0.0},
    {"clip_qkv", 0.0},
    {"embedding_multiplier", 1.0},
    {"final_logit_softcapping", 0.0},
    {"logit_scale", 1.0},
    {"logits_scaling", 1.0},
    {"query_pre_attn_scalar", -1.0},
    {"residual_multiplier", 1.0},
    {"scale_depth", -1.0},
    {"scale_emb", 1.0},
    {"swiglu_limit", 0.0},
    {"alibi", 0.0},
    {"parallel_attn", 0.0},
    {"use_parallel_residual", 0.0},
};

const char *loongi_hf_foreign_type(const char *model_type)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        if (strcmp(types[i].type, model_type) == 0) {
            return types[i].what;
        }
    }
    return NULL;
}

static bool is_neutral(const loong_json_t *value, double neutral)
{
    switch (loongi_json_kind(value)) {
    case LOONG_JSON_NULL:
        return true;
    case LOONG_JSON_BOOL:
        return loongi_json_bool(value) == (neutral != 0.0);
    case LOONG_JSON_INT:
    case LOONG_JSON_REAL:
        return loongi_json_real(value) == neutral;
    default:
        return false;
    }
}

loong_status_t loongi_hf_check_foreign(loong_context_t *ctx, const char *path,
                                       const loong_json_t *config)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    const char *type =
        loongi_json_string(loongi_json_get(config, "model_type"));
    const char *what = loongi_hf_foreign_type(type);
    if (what != NULL) {
        loongi_problems_add(&problems, "model_type %s is not computed: %s",
                            type, what);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(fields); i++) {
        const loong_json_t *value = loongi_json_get(config, fields[i].name);
        if (!is_neutral(value, fields[i].neutral)) {
            loong_text_t text = loongi_text_begin(ctx);
            loongi_text_json(&text, value);
            loongi_problems_add(&problems, "%s = %.50s is not computed",
                                fields[i].name, loongi_text_get(&text));
            loongi_text_free(&text);
        }
    }
    return loongi_problems_end(&problems, LOONG_ERR_UNSUPPORTED, path);
}

loong_status_t loongi_hf_check_foreign_dir(loong_context_t *ctx,
                                           const char *dir)
{
    loong_json_t *config = NULL;
    loong_text_t path = loongi_text_begin(ctx);
    loongi_text_printf(&path, "%s/config.json", dir);
    loong_status_t status = path.status;
    if (status == LOONG_OK && loongi_file_exists(path.data)) {
        status = loongi_json_load(ctx, path.data, &config);
        if (status == LOONG_OK) {
            status = loongi_hf_check_foreign(ctx, path.data, config);
        }
        loongi_json_destroy(&config);
    }
    loongi_text_free(&path);
    return status;
}
