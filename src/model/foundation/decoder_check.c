/* SPDX-License-Identifier: Apache-2.0
 *
 * What must hold between the keys of a decoder, and sizes that follow from
 * others. Called by decoder_config.c. Read decoder_check.h before. */
#include "decoder_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SCALING "rope_scaling."

static void want(loong_problems_t *problems, const loong_pairs_t *pairs,
                 const char *key, int64_t value)
{
    if (value <= 0 && loongi_pairs_get(pairs, key) == NULL) {
        loongi_problems_add(problems, "%s: not set, every model needs it",
                            key);
    } else if (value <= 0) {
        loongi_problems_add(problems,
                            "%s: found %lld, a positive number wanted", key,
                            (long long)value);
    }
}

static void check_sizes(loong_problems_t *problems,
                        const loong_pairs_t *pairs, loong_decoder_config_t *c)
{
    want(problems, pairs, "num_layers", c->num_layers);
    want(problems, pairs, "hidden_size", c->hidden_size);
    want(problems, pairs, "num_attention_heads", c->num_attention_heads);
    want(problems, pairs, "vocab_size", c->vocab_size);
    want(problems, pairs, "make_vocab_size_divisible_by",
         c->padded_vocab_size);
    want(problems, pairs, "max_position_embeddings",
         c->max_position_embeddings);
    if (problems->count > 0) {
        return;
    }
    if (c->num_query_groups == 0) {
        c->num_query_groups = c->num_attention_heads;
    }
    if (c->ffn_hidden_size == 0) {
        c->ffn_hidden_size = 4 * c->hidden_size;
    }
    if (c->num_attention_heads % c->num_query_groups != 0) {
        loongi_problems_add(
            problems,
            "num_query_groups: %d does not divide num_attention_heads %d",
            c->num_query_groups, c->num_attention_heads);
    }
    if (c->kv_lora_rank > 0 && c->kv_channels == 0) {
        c->kv_channels = c->qk_head_dim + c->qk_pos_emb_head_dim;
    }
    if (c->kv_channels == 0) {
        if (c->hidden_size % c->num_attention_heads != 0) {
            loongi_problems_add(
                problems,
                "kv_channels is not given and num_attention_heads %d does "
                "not divide hidden_size %lld",
                c->num_attention_heads, (long long)c->hidden_size);
        }
        c->kv_channels = (int)(c->hidden_size / c->num_attention_heads);
    }
    c->rope.rotary_dim = c->kv_lora_rank > 0
                             ? c->qk_pos_emb_head_dim
                             : (int)(c->kv_channels * c->rotary_percent);
    int rotated = c->rope.rotary_dim;
    if (!c->learned_positions && c->kv_channels > 0 &&
        (rotated % 2 != 0 || rotated < 2)) {
        loongi_problems_add(problems,
                            "rotary dimension %d (kv_channels x "
                            "rotary_percent) is %s", rotated,
                            rotated % 2 != 0 ? "odd" : "too small, 2 or more "
                                                       "wanted");
    }
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

static bool is_mixture(const char *family)
{
    static const char *const names[] = {"mixtral",    "qwen2_moe",
                                        "qwen3_moe",  "ernie4_5_moe",
                                        "minimax_m2", "ernie4_5_vl_moe",
                                        NULL};
    return family != NULL && is_one_of(family, names);
}

/* What concerns experts when there are none, or without the key it needs. */
static void check_orphans(loong_problems_t *problems,
                          const loong_decoder_config_t *c,
                          const loong_pairs_t *pairs)
{
    for (int64_t i = 0; i < pairs->count && c->num_experts == 0; i++) {
        if (strncmp(pairs->items[i].key, "moe_", 4) == 0) {
            loongi_problems_add(problems,
                                "%s: has no effect without num_experts",
                                pairs->items[i].key);
        }
    }
    if (c->num_experts == 0 && is_mixture(loongi_pairs_get(pairs, "family"))) {
        loongi_problems_add(problems, "num_experts: must be set for family %s",
                            loongi_pairs_get(pairs, "family"));
    }
    if (c->num_experts > 0 && c->shared_expert_ffn == 0 &&
        loongi_pairs_true(pairs, "moe_shared_expert_gate")) {
        loongi_problems_add(problems,
                            "moe_shared_expert_gate: has no effect without "
                            "moe_shared_expert_intermediate_size");
    }
}

static void check_groups(loong_problems_t *problems,
                         const loong_router_attr_t *r, int experts)
{
    if (r->num_groups == 0) {
        if (r->group_topk != 0) {
            loongi_problems_add(problems,
                                "moe_router_group_topk: has no effect without "
                                "moe_router_num_groups");
        }
        return;
    }
    if (r->num_groups < 0 || experts % r->num_groups != 0) {
        loongi_problems_add(problems,
                            "moe_router_num_groups: %d does not divide "
                            "num_experts %d",
                            r->num_groups, experts);
        return;
    }
    int each = experts / r->num_groups;
    bool even = r->group_scores > 0
                    ? r->group_scores <= each
                    : r->group_topk > 0 && r->topk % r->group_topk == 0;
    if (r->group_topk < 1 || r->group_topk > r->num_groups || !even ||
        r->topk > r->group_topk * each) {
        loongi_problems_add(
            problems,
            "moe_router_group_topk: found %d, a divisor of "
            "moe_router_topk %d (or moe_router_group_scores given) up to "
            "moe_router_num_groups %d wanted, with groups of %d experts",
            r->group_topk, r->topk, r->num_groups, each);
    }
}

static void check_kinds(loong_problems_t *problems, loong_decoder_config_t *c,
                        const loong_pairs_t *pairs)
{
    const char *text = loongi_pairs_get(pairs, "moe_layer_freq");
    char problem[128];
    if (c->num_layers > 0 &&
        !loongi_layer_kinds_parse(text, c->num_layers, &c->kinds, problem)) {
        loongi_problems_add(problems, "moe_layer_freq: found %s: %s", text,
                            problem);
    } else if (c->num_layers > 0 &&
               memchr(c->kinds.of, 1, (size_t)c->num_layers) == NULL) {
        loongi_problems_add(problems, "moe_layer_freq: found %s: no layer has "
                                      "experts; leave num_experts away",
                            text);
    }
}

/* The bias of the choice, and capacity. */
static void check_choice(loong_problems_t *problems,
                         const loong_decoder_config_t *c,
                         const loong_pairs_t *pairs)
{
    if (!(c->capacity_factor > 0.0) &&
        loongi_pairs_get(pairs, "moe_token_drop_policy") != NULL) {
        loongi_problems_add(problems, "moe_token_drop_policy: has no effect "
                                      "without moe_expert_capacity_factor");
    }
    if (!c->expert_bias &&
        loongi_pairs_get(pairs, "moe_router_bias_update_rate") != NULL) {
        loongi_problems_add(problems,
                            "moe_router_bias_update_rate: has no effect "
                            "without moe_router_enable_expert_bias");
    }
}

/* How scores become weights. */
static void check_scores(loong_problems_t *problems, loong_router_attr_t *r,
                         const loong_pairs_t *pairs)
{
    if (r->score != LOONG_SCORE_SOFTMAX) {
        r->pre_softmax = false; /* some families have it true */
        if (loongi_pairs_true(pairs, "moe_router_pre_softmax")) {
            loongi_problems_add(problems, "moe_router_pre_softmax: only with "
                                          "moe_router_score_function softmax");
        }
    }
    if (r->weights != LOONG_WEIGHTS_AUTO &&
        r->score == LOONG_SCORE_SOFTMAX) {
        loongi_problems_add(problems, "moe_router_norm_topk_prob: with "
                                      "moe_router_score_function softmax "
                                      "moe_router_pre_softmax says it");
    }
}

static void check_experts(loong_problems_t *problems, loong_decoder_config_t *c,
                          const loong_pairs_t *pairs)
{
    check_orphans(problems, c, pairs);
    if (c->num_experts == 0) {
        return;
    }
    check_kinds(problems, c, pairs);
    if (c->moe_ffn_hidden_size == 0) {
        c->moe_ffn_hidden_size = c->ffn_hidden_size;
    }
    want(problems, pairs, "num_experts", c->num_experts);
    want(problems, pairs, "moe_ffn_hidden_size", c->moe_ffn_hidden_size);
    if (loongi_pairs_get(pairs, "moe_vision_ffn_hidden_size") != NULL) {
        want(problems, pairs, "moe_vision_ffn_hidden_size", c->vision_ffn);
    }
    if (c->router.topk < 1 || c->router.topk > c->num_experts) {
        loongi_problems_add(problems,
                            "moe_router_topk: found %d, 1 to num_experts %d "
                            "wanted",
                            c->router.topk, c->num_experts);
    }
    check_groups(problems, &c->router, c->num_experts);
    check_choice(problems, c, pairs);
    if (c->mlp != LOONG_MLP_SWIGLU || c->mlp_bias) {
        loongi_problems_add(
            problems, "num_experts: experts have activation swiglu and no "
                      "biases (add_bias_linear)");
    }
    check_scores(problems, &c->router, pairs);
    if (!(c->router.scaling_factor > 0.0)) {
        loongi_problems_add(
            problems,
            "moe_router_topk_scaling_factor: found %g, a positive "
            "number wanted",
            c->router.scaling_factor);
    }
    if (!(c->aux_loss_coeff >= 0.0) || !(c->router_z_loss_coeff >= 0.0)) {
        loongi_problems_add(
            problems,
            "moe_aux_loss_coeff, moe_z_loss_coeff: found %g and "
            "%g, numbers not below 0 wanted",
            c->aux_loss_coeff, c->router_z_loss_coeff);
    }
}

/* Rotation is of no use where positions are learned. */
static void check_positions(loong_problems_t *problems,
                            const loong_decoder_config_t *c,
                            const loong_pairs_t *pairs)
{
    static const char *const prefixes[] = {"rotary_", SCALING,
                                           "mrope_section"};
    for (int64_t i = 0; i < pairs->count && c->learned_positions; i++) {
        const char *key = pairs->items[i].key;
        for (int64_t k = 0; k < LOONG_COUNT_OF(prefixes); k++) {
            if (strncmp(key, prefixes[k], strlen(prefixes[k])) == 0) {
                loongi_problems_add(problems,
                                    "%s: has no effect with "
                                    "position_embedding_type learned_absolute",
                                    key);
            }
        }
    }
}

bool loongi_decoder_scales_by(loong_rope_scaling_t scaling, const char *key)
{
    const char *name = key + strlen(SCALING);
    static const struct {
        const char *name;
        unsigned scalings;
    } numbers[] = {
        {"low_freq_factor", 1u << LOONG_ROPE_LLAMA3},
        {"high_freq_factor", 1u << LOONG_ROPE_LLAMA3},
        {"original_max_position_embeddings",
         1u << LOONG_ROPE_LLAMA3 | 1u << LOONG_ROPE_YARN |
             1u << LOONG_ROPE_DYNAMIC},
        {"beta_fast", 1u << LOONG_ROPE_YARN},
        {"beta_slow", 1u << LOONG_ROPE_YARN},
        {"attention_factor", 1u << LOONG_ROPE_YARN},
        {"mscale", 1u << LOONG_ROPE_YARN},
        {"mscale_all_dim", 1u << LOONG_ROPE_YARN},
        {"truncate", 1u << LOONG_ROPE_YARN},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(numbers); i++) {
        if (strcmp(numbers[i].name, name) == 0) {
            return (numbers[i].scalings & 1u << scaling) != 0;
        }
    }
    return scaling != LOONG_ROPE_DEFAULT; /* factor */
}

/* A scaling is complete, and numbers of one are not there for nothing. */
static void check_scaling(loong_problems_t *problems,
                          const loong_decoder_config_t *c,
                          const loong_pairs_t *pairs)
{
    const char *type = loongi_pairs_get(pairs, "rope_scaling.type");
    bool scaled = c->rope.scaling != LOONG_ROPE_DEFAULT;
    for (int64_t i = 0; i < pairs->count; i++) {
        const char *key = pairs->items[i].key;
        if (strncmp(key, SCALING, strlen(SCALING)) == 0 &&
            strcmp(key, "rope_scaling.type") != 0 &&
            !loongi_decoder_scales_by(c->rope.scaling, key)) {
            loongi_problems_add(problems,
                                "%s: has no effect %s rope_scaling.type%s%s",
                                key, scaled ? "with" : "without",
                                scaled ? " " : "", scaled ? type : "");
        }
    }
    if (scaled && loongi_pairs_get(pairs, "rope_scaling.factor") == NULL) {
        loongi_problems_add(problems, "rope_scaling.factor: must be set with "
                                      "rope_scaling.type");
    }
    if (!(c->rope.attention_factor > 0.0) &&
        loongi_pairs_get(pairs, "rope_scaling.attention_factor") != NULL) {
        loongi_problems_add(problems,
                            "rope_scaling.attention_factor: found %g, a "
                            "positive number wanted; 0.1 ln(factor) + 1 when "
                            "not given",
                            c->rope.attention_factor);
    }
}

/* A number of the rotation, above the least one or, if need be, at it. */
static void want_number(loong_problems_t *problems, const char *key,
                        double value, double least, bool above)
{
    if (!(above ? value > least : value >= least)) {
        loongi_problems_add(problems, "%s: found %g, %s %g wanted", key, value,
                            above ? "more than" : "at least", least);
    }
}

static void check_yarn(loong_problems_t *problems,
                       const loong_rope_table_attr_t *r)
{
    want_number(problems, "rope_scaling.beta_slow", r->beta_slow, 0.0, true);
    want_number(problems, "rope_scaling.beta_fast", r->beta_fast,
                r->beta_slow, false);
    want_number(problems, "rope_scaling.attention_factor",
                r->attention_factor, 0.0, false);
    want_number(problems, "rope_scaling.mscale", r->mscale, 0.0, false);
    want_number(problems, "rope_scaling.mscale_all_dim", r->mscale_all_dim,
                0.0, false);
}

/* What the table of the rotation divides by or takes the logarithm of. */
static void check_rotation(loong_problems_t *problems,
                           const loong_decoder_config_t *c)
{
    const loong_rope_table_attr_t *r = &c->rope;
    bool yarn = r->scaling == LOONG_ROPE_YARN;
    bool dynamic = r->scaling == LOONG_ROPE_DYNAMIC;
    if (c->learned_positions) {
        return;
    }
    want_number(problems, "rotary_base", r->base, yarn ? 1.0 : 0.0, true);
    if (r->scaling == LOONG_ROPE_DEFAULT) {
        return;
    }
    want_number(problems, "rope_scaling.factor", r->factor,
                dynamic ? 1.0 : 0.0, !dynamic);
    want_number(problems, "rope_scaling.original_max_position_embeddings",
                r->original_max_position_embeddings, 0.0, false);
    if (dynamic && r->rotary_dim == 2) {
        loongi_problems_add(problems, "rope_scaling.type: dynamic wants more "
                                      "than 2 rotated channels (kv_channels x "
                                      "rotary_percent)");
    }
    if (r->scaling == LOONG_ROPE_LLAMA3) {
        want_number(problems, "rope_scaling.low_freq_factor",
                    r->low_freq_factor, 0.0, true);
        want_number(problems, "rope_scaling.high_freq_factor",
                    r->high_freq_factor, r->low_freq_factor, true);
    } else if (yarn) {
        check_yarn(problems, r);
    }
}

/* Rotated pairs of channels for each axis of a position. Those of a text are
 * the same on all three, so that sections change nothing. */
static void check_sections(loong_problems_t *problems,
                           loong_decoder_config_t *c,
                           const loong_pairs_t *pairs)
{
    const char *text = loongi_pairs_get(pairs, "mrope_section");
    const char *family = loongi_pairs_get(pairs, "family");
    bool ernie = family != NULL && strncmp(family, "ernie", 5) == 0;
    int *s = c->rope.sections;
    int used = -1;
    if (text == NULL) {
        if (c->mrope_interleaved) {
            loongi_problems_add(problems, "mrope_interleaved: has no effect "
                                          "without mrope_section");
        }
        return;
    }
    sscanf(text, " [ %d , %d , %d ] %n", &s[0], &s[1], &s[2], &used);
    if (used < 0 || text[used] != '\0' || s[0] < 1 || s[1] < 1 ||
        2 * (s[0] + s[1] + s[2]) !=
            (int)(c->rotary_percent * c->kv_channels + 0.5) ||
        s[2] < 1 || (ernie && s[1] != s[0])) {
        loongi_problems_add(problems,
                            "mrope_section: found %s, %s and all three half "
                            "of the rotated of kv_channels %d",
                            text,
                            ernie ? "[height,width,time] wanted, the first "
                                    "two equal"
                                  : "[time,height,width] wanted",
                            c->kv_channels);
    }
    c->mrope_axes = LOONG_MAX_ROPE_AXES;
    c->rope.order = ernie                  ? LOONG_ROPE_SPACE_FIRST
                    : c->mrope_interleaved ? LOONG_ROPE_INTERLEAVED
                                           : LOONG_ROPE_BLOCKS;
    if (ernie) { /* axes are time, height and width */
        const int of[LOONG_MAX_ROPE_AXES] = {s[2], s[0], s[1]};
        memcpy(s, of, sizeof(of));
    }
}

/* Latent attention has sizes of its own, and nothing of what other attention
 * can have. */
static void check_latent(loong_problems_t *problems,
                         const loong_decoder_config_t *c,
                         const loong_pairs_t *pairs)
{
    static const char *const keys[] = {"q_lora_rank", "qk_head_dim",
                                       "qk_pos_emb_head_dim", "v_head_dim",
                                       "mla_absorb"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(keys) && c->kv_lora_rank == 0;
         i++) {
        if (loongi_pairs_get(pairs, keys[i]) != NULL) {
            loongi_problems_add(problems, "%s: has no effect without "
                                          "kv_lora_rank", keys[i]);
        }
    }
    if (c->kv_lora_rank == 0) {
        return;
    }
    want(problems, pairs, "kv_lora_rank", c->kv_lora_rank);
    want(problems, pairs, "qk_head_dim", c->qk_head_dim);
    want(problems, pairs, "qk_pos_emb_head_dim", c->qk_pos_emb_head_dim);
    want(problems, pairs, "v_head_dim", c->v_head_dim);
    if (c->kv_channels != c->qk_head_dim + c->qk_pos_emb_head_dim ||
        c->num_query_groups != c->num_attention_heads) {
        loongi_problems_add(
            problems,
            "kv_lora_rank: latent attention has kv_channels %d (qk_head_dim + "
            "qk_pos_emb_head_dim) and num_query_groups %d "
            "(num_attention_heads); found %d and %d",
            c->qk_head_dim + c->qk_pos_emb_head_dim, c->num_attention_heads,
            c->kv_channels, c->num_query_groups);
    }
    if (c->learned_positions || c->qk_norm || c->window_size > 0 ||
        c->rotary_percent != 1.0) {
        loongi_problems_add(
            problems, "kv_lora_rank: latent attention has rope on all of "
                      "qk_pos_emb_head_dim, no qk_layernorm or window_size");
    }
}

/* Keys that another one gives a meaning. */
static void check_companions(loong_problems_t *problems,
                             const loong_decoder_config_t *c,
                             const loong_pairs_t *pairs)
{
    if (c->bidirectional_prefix && c->window_size > 0) {
        loongi_problems_add(problems, "bidirectional_prefix: goes without "
                                      "window_size, found %lld",
                            (long long)c->window_size);
    }
    if (c->window_size == 0 &&
        loongi_pairs_get(pairs, "max_window_layers") != NULL) {
        loongi_problems_add(problems, "max_window_layers: has no effect "
                                      "without window_size");
    }
    if (loongi_pairs_true(pairs, "qk_layernorm_whole") && !c->qk_norm) {
        loongi_problems_add(problems, "qk_layernorm_whole: has no effect "
                                      "without qk_layernorm");
    }
}

/* Without the key: 1 / sqrt(kv_channels), in latent attention with YaRN times
 * its mscale squared. */
static void check_scale(loong_problems_t *problems, loong_decoder_config_t *c,
                        const loong_pairs_t *pairs)
{
    const loong_rope_table_attr_t *r = &c->rope;
    if (loongi_pairs_get(pairs, "softmax_scale") != NULL) {
        if (!(c->softmax_scale > 0.0)) {
            loongi_problems_add(problems,
                                "softmax_scale: found %g, a positive number "
                                "wanted; 1/sqrt(kv_channels) when not given",
                                c->softmax_scale);
        }
        return;
    }
    c->softmax_scale = 1.0 / sqrt(c->kv_channels);
    if (c->kv_lora_rank > 0 && r->scaling == LOONG_ROPE_YARN &&
        r->mscale_all_dim > 0.0 && r->factor > 1.0) {
        double mscale = 0.1 * r->mscale_all_dim * log(r->factor) + 1.0;
        c->softmax_scale *= mscale * mscale;
    }
}

void loongi_decoder_check(loong_problems_t *problems,
                          loong_decoder_config_t *config,
                          const loong_pairs_t *pairs)
{
    check_positions(problems, config, pairs);
    check_scaling(problems, config, pairs);
    check_sizes(problems, pairs, config);
    check_rotation(problems, config);
    check_sections(problems, config, pairs);
    check_latent(problems, config, pairs);
    check_companions(problems, config, pairs);
    check_scale(problems, config, pairs);
    check_experts(problems, config, pairs);
}
