/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a decoder's configuration from model keys and states it as keys again.
 * Called by decoder.c and by imports and exports. Read decoder.h before. */
#include "decoder_config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_check.h"

typedef enum field_type {
    INT,
    LONG,
    REAL,
    WHOLE, /* a whole number, kept as a real one */
    BOOL,
    NOT,
    CHOICE,
    KINDS, /* read by the check, which knows the number of layers */
    TEXT
} field_type_t;

typedef struct choice {
    const char *name;
    int value;
} choice_t;

static const choice_t positions[] = {
    {"rope", 0}, {"learned_absolute", 1}, {NULL, 0}};
static const choice_t norms[] = {
    {"RMSNorm", LOONG_NORM_RMS}, {"LayerNorm", LOONG_NORM_LAYER}, {NULL, 0}};
static const choice_t activations[] = {{"swiglu", LOONG_MLP_SWIGLU},
                                       {"gelu", LOONG_MLP_GELU},
                                       {"gelu_tanh", LOONG_MLP_GELU_TANH},
                                       {NULL, 0}};
static const choice_t scalings[] = {
    {"none", LOONG_ROPE_DEFAULT},  {"default", LOONG_ROPE_DEFAULT},
    {"linear", LOONG_ROPE_LINEAR}, {"dynamic", LOONG_ROPE_DYNAMIC},
    {"llama3", LOONG_ROPE_LLAMA3}, {"yarn", LOONG_ROPE_YARN},
    {NULL, 0}};

static const choice_t scores[] = {{"softmax", LOONG_SCORE_SOFTMAX},
                                  {"sigmoid", LOONG_SCORE_SIGMOID},
                                  {"sqrtsoftplus", LOONG_SCORE_SQRTSOFTPLUS},
                                  {NULL, 0}};
static const choice_t weights[] = {{"auto", LOONG_WEIGHTS_AUTO},
                                   {"true", LOONG_WEIGHTS_DIVIDED},
                                   {"false", LOONG_WEIGHTS_PLAIN},
                                   {NULL, 0}};
static const choice_t balances[] = {
    {"aux_loss", LOONG_BALANCE_MICRO_BATCH},
    {"seq_aux_loss", LOONG_BALANCE_SEQUENCE},
    {"pooled_aux_loss", LOONG_BALANCE_POOLED},
    {NULL, 0}};

static const choice_t absorbs[] = {{"auto", LOONG_ABSORB_AUTO},
                                   {"true", LOONG_ABSORB_YES},
                                   {"false", LOONG_ABSORB_NO},
                                   {NULL, 0}};

static const choice_t policies[] = {{"probs", 0}, {"position", 1}, {NULL, 0}};

typedef struct field {
    const char *key;
    field_type_t type;
    size_t offset;
    const choice_t *choices;
} field_t;

#define AT(member_) offsetof(loong_decoder_config_t, member_)

/* CHOICE fields are enums or bool of the size of their member. */
static const field_t fields[] = {
    {"family", TEXT, 0, NULL},
    {"num_layers", INT, AT(num_layers), NULL},
    {"hidden_size", LONG, AT(hidden_size), NULL},
    {"ffn_hidden_size", LONG, AT(ffn_hidden_size), NULL},
    {"num_attention_heads", INT, AT(num_attention_heads), NULL},
    {"num_query_groups", INT, AT(num_query_groups), NULL},
    {"kv_channels", INT, AT(kv_channels), NULL},
    {"vocab_size", LONG, AT(vocab_size), NULL},
    {"make_vocab_size_divisible_by", LONG, AT(padded_vocab_size), NULL},
    {"max_position_embeddings", LONG, AT(max_position_embeddings), NULL},
    {"position_embedding_type", CHOICE, AT(learned_positions), positions},
    {"rotary_base", REAL, AT(rope.base), NULL},
    {"rotary_percent", REAL, AT(rotary_percent), NULL},
    {"rotary_interleaved", BOOL, AT(rope_interleaved), NULL},
    {"mrope_section", TEXT, 0, NULL},
    {"rope_scaling.type", CHOICE, AT(rope.scaling), scalings},
    {"rope_scaling.factor", REAL, AT(rope.factor), NULL},
    {"rope_scaling.low_freq_factor", REAL, AT(rope.low_freq_factor), NULL},
    {"rope_scaling.high_freq_factor", REAL, AT(rope.high_freq_factor), NULL},
    {"rope_scaling.original_max_position_embeddings", WHOLE,
     AT(rope.original_max_position_embeddings), NULL},
    {"rope_scaling.beta_fast", REAL, AT(rope.beta_fast), NULL},
    {"rope_scaling.beta_slow", REAL, AT(rope.beta_slow), NULL},
    {"rope_scaling.attention_factor", REAL, AT(rope.attention_factor), NULL},
    {"rope_scaling.mscale", REAL, AT(rope.mscale), NULL},
    {"rope_scaling.mscale_all_dim", REAL, AT(rope.mscale_all_dim), NULL},
    {"rope_scaling.truncate", BOOL, AT(rope.truncate), NULL},
    {"normalization", CHOICE, AT(normalization), norms},
    {"layernorm_epsilon", REAL, AT(norm_eps), NULL},
    {"qk_layernorm", BOOL, AT(qk_norm), NULL},
    {"qk_layernorm_whole", BOOL, AT(qk_norm_whole), NULL},
    {"kv_lora_rank", LONG, AT(kv_lora_rank), NULL},
    {"q_lora_rank", LONG, AT(q_lora_rank), NULL},
    {"qk_head_dim", INT, AT(qk_head_dim), NULL},
    {"qk_pos_emb_head_dim", INT, AT(qk_pos_emb_head_dim), NULL},
    {"v_head_dim", INT, AT(v_head_dim), NULL},
    {"mla_absorb", CHOICE, AT(mla_absorb), absorbs},
    {"add_bias_linear", BOOL, AT(mlp_bias), NULL},
    {"add_qkv_bias", BOOL, AT(qkv_bias), NULL},
    {"add_attn_proj_bias", BOOL, AT(attention_output_bias), NULL},
    {"activation", CHOICE, AT(mlp), activations},
    {"untie_embeddings_and_output_weights", NOT, AT(tied), NULL},
    {"window_size", LONG, AT(window_size), NULL},
    {"max_window_layers", INT, AT(max_window_layers), NULL},
    {"softmax_scale", REAL, AT(softmax_scale), NULL},
    {"attention_dropout", REAL, AT(attention_dropout), NULL},
    {"hidden_dropout", REAL, AT(hidden_dropout), NULL},
    {"embedding_dropout", REAL, AT(embedding_dropout), NULL},
    {"init_method_std", REAL, AT(init_std), NULL},
    {"embedding_init_method_std", REAL, AT(embedding_init_std), NULL},
    {"use_scaled_init_method", BOOL, AT(scaled_output_init), NULL},
    {"num_experts", INT, AT(num_experts), NULL},
    {"moe_layer_freq", KINDS, 0, NULL},
    {"moe_ffn_hidden_size", LONG, AT(moe_ffn_hidden_size), NULL},
    {"moe_vision_ffn_hidden_size", LONG, AT(vision_ffn), NULL},
    {"moe_router_topk", INT, AT(router.topk), NULL},
    {"moe_router_score_function", CHOICE, AT(router.score), scores},
    {"moe_router_pre_softmax", BOOL, AT(router.pre_softmax), NULL},
    {"moe_router_norm_topk_prob", CHOICE, AT(router.weights), weights},
    {"moe_router_num_groups", INT, AT(router.num_groups), NULL},
    {"moe_router_group_topk", INT, AT(router.group_topk), NULL},
    {"moe_router_group_scores", INT, AT(router.group_scores), NULL},
    {"moe_router_topk_scaling_factor", REAL, AT(router.scaling_factor), NULL},
    {"moe_expert_capacity_factor", REAL, AT(capacity_factor), NULL},
    {"moe_token_drop_policy", CHOICE, AT(drop_by_position), policies},
    {"moe_router_force_load_balancing", BOOL, AT(router.forced), NULL},
    {"moe_router_enable_expert_bias", BOOL, AT(expert_bias), NULL},
    {"moe_router_bias_update_rate", REAL, AT(bias_update_rate), NULL},
    {"moe_router_load_balancing_type", CHOICE, AT(balance), balances},
    {"moe_aux_loss_coeff", REAL, AT(aux_loss_coeff), NULL},
    {"moe_z_loss_coeff", REAL, AT(router_z_loss_coeff), NULL},
    {"moe_shared_expert_intermediate_size", LONG, AT(shared_expert_ffn), NULL},
    {"moe_shared_expert_gate", BOOL, AT(shared_expert_gate), NULL},
};

/* Choices between two, kept as a flag. */
static bool is_flag(const field_t *f)
{
    return f->choices == positions || f->choices == policies;
}

static void set_choice(loong_problems_t *problems, const field_t *f,
                       const char *text, void *at)
{
    for (const choice_t *c = f->choices; c->name != NULL; c++) {
        if (strcmp(c->name, text) != 0) {
            continue;
        }
        if (is_flag(f)) {
            *(bool *)at = c->value != 0;
        } else {
            *(int *)at = c->value;
        }
        return;
    }
    char allowed[200] = "";
    size_t used = 0;
    for (const choice_t *c = f->choices; c->name != NULL; c++) {
        used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, " %s",
                                 c->name);
    }
    loongi_problems_add(problems, "%s: found %s, allowed:%s", f->key, text,
                        allowed);
}

static void set_number(loong_problems_t *problems, const field_t *f,
                       const char *text, void *at)
{
    char *end = NULL;
    errno = 0;
    double real = strtod(text, &end);
    double largest = f->type == INT ? INT_MAX : 0x1p53;
    if (end == text || *end != '\0' || errno != 0 ||
        (f->type != REAL && real != floor(real))) {
        loongi_problems_add(problems, "%s: found %s, %s wanted", f->key, text,
                            f->type == REAL ? "a number" : "a whole number");
    } else if (f->type != REAL && fabs(real) > largest) {
        loongi_problems_add(problems, "%s: found %s, at most %.0f wanted",
                            f->key, text, largest);
    } else if (f->type == REAL || f->type == WHOLE) {
        *(double *)at = real;
    } else if (f->type == LONG) {
        *(int64_t *)at = (int64_t)real;
    } else {
        *(int *)at = (int)real;
    }
}

static void set_flag(loong_problems_t *problems, const field_t *f,
                     const char *text, void *at)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) {
        loongi_problems_add(problems, "%s: found %s, true or false wanted",
                            f->key, text);
    }
    *(bool *)at = f->type == NOT ? !yes : yes;
}

static void set_field(loong_problems_t *problems,
                      loong_decoder_config_t *config, const loong_pair_t *pair)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(fields); i++) {
        const field_t *f = &fields[i];
        if (strcmp(f->key, pair->key) != 0) {
            continue;
        }
        void *at = (char *)config + f->offset;
        if (f->type == CHOICE) {
            set_choice(problems, f, pair->value, at);
        } else if (f->type == BOOL || f->type == NOT) {
            set_flag(problems, f, pair->value, at);
        } else if (f->type != TEXT && f->type != KINDS) {
            set_number(problems, f, pair->value, at);
        }
        return;
    }
    loongi_problems_add(problems, "%s: no such key of a decoder", pair->key);
}

static void set_defaults(loong_decoder_config_t *c)
{
    memset(c, 0, sizeof(*c));
    c->rope.base = 10000.0;
    c->rotary_percent = 1.0;
    c->rope.factor = 1.0;
    c->rope.beta_fast = 32.0;
    c->rope.beta_slow = 1.0;
    c->rope.low_freq_factor = 1.0;
    c->rope.high_freq_factor = 4.0;
    c->rope.truncate = true;
    c->norm_eps = 1e-5;
    c->init_std = 0.02;
    c->padded_vocab_size = 1;
    c->tied = true;
    c->router.topk = 2;
    c->router.scaling_factor = 1.0;
    c->bias_update_rate = 1e-3;
}

/* What the name of a family alone says: the defaults of its configuration
 * class in transformers, but for sizes (widths and counts, also of experts of
 * a token and of groups) and dropout, which is none. */
static const struct {
    const char *family;
    loong_pair_t pair;
} family_defaults[] = {
    {"gpt2", {"position_embedding_type", "learned_absolute"}},
    {"gpt2", {"normalization", "LayerNorm"}},
    {"gpt2", {"activation", "gelu_tanh"}},
    {"gpt2", {"add_qkv_bias", "true"}},
    {"gpt2", {"add_attn_proj_bias", "true"}},
    {"gpt2", {"add_bias_linear", "true"}},
    {"gpt2", {"use_scaled_init_method", "true"}},
    {"llama", {"layernorm_epsilon", "1e-6"}},
    {"llama", {"untie_embeddings_and_output_weights", "true"}},
    {"phi3", {"untie_embeddings_and_output_weights", "true"}},
    {"qwen", {"add_qkv_bias", "true"}},
    {"qwen", {"layernorm_epsilon", "1e-6"}},
    {"qwen", {"untie_embeddings_and_output_weights", "true"}},
    {"qwen2", {"add_qkv_bias", "true"}},
    {"qwen2", {"layernorm_epsilon", "1e-6"}},
    {"qwen2", {"untie_embeddings_and_output_weights", "true"}},
    {"qwen3", {"qk_layernorm", "true"}},
    {"qwen3", {"layernorm_epsilon", "1e-6"}},
    {"qwen3", {"untie_embeddings_and_output_weights", "true"}},
    {"internlm2", {"untie_embeddings_and_output_weights", "true"}},
    {"internlm2", {"layernorm_epsilon", "1e-6"}},
    {"internlm2", {"add_qkv_bias", "true"}},
    {"internlm2", {"add_attn_proj_bias", "true"}},
    {"mimo", {"add_qkv_bias", "true"}},
    {"mimo", {"layernorm_epsilon", "1e-6"}},
    {"mimo", {"untie_embeddings_and_output_weights", "true"}},
    {"ernie4_5", {"rotary_interleaved", "true"}},
    {"ernie4_5", {"rotary_base", "5e5"}},
    {"deepseek_v2", {"untie_embeddings_and_output_weights", "true"}},
    {"deepseek_v2", {"layernorm_epsilon", "1e-6"}},
    {"deepseek_v2", {"rotary_interleaved", "true"}},
    {"deepseek_v2", {"moe_router_pre_softmax", "true"}},
    {"deepseek_v3", {"untie_embeddings_and_output_weights", "true"}},
    {"deepseek_v3", {"layernorm_epsilon", "1e-6"}},
    {"deepseek_v3", {"rotary_interleaved", "true"}},
    {"deepseek_v3", {"moe_router_score_function", "sigmoid"}},
    {"deepseek_v3", {"moe_router_enable_expert_bias", "true"}},
    {"deepseek_v3", {"moe_router_topk_scaling_factor", "2.5"}},
    {"kimi_k2", {"untie_embeddings_and_output_weights", "true"}},
    {"kimi_k2", {"layernorm_epsilon", "1e-6"}},
    {"kimi_k2", {"rotary_interleaved", "true"}},
    {"kimi_k2", {"moe_router_score_function", "sigmoid"}},
    {"kimi_k2", {"moe_router_enable_expert_bias", "true"}},
    {"kimi_k2", {"moe_router_topk_scaling_factor", "2.5"}},
    {"ernie4_5_moe", {"rotary_interleaved", "true"}},
    {"ernie4_5_moe", {"rotary_base", "5e5"}},
    {"ernie4_5_moe", {"moe_router_enable_expert_bias", "true"}},
    {"ernie4_5_vl_moe", {"rotary_interleaved", "true"}},
    {"ernie4_5_vl_moe", {"rotary_base", "5e5"}},
    {"ernie4_5_vl_moe", {"moe_router_enable_expert_bias", "true"}},
    {"minimax_m2", {"untie_embeddings_and_output_weights", "true"}},
    {"minimax_m2", {"layernorm_epsilon", "1e-6"}},
    {"minimax_m2", {"rotary_base", "5e6"}},
    {"minimax_m2", {"qk_layernorm", "true"}},
    {"minimax_m2", {"qk_layernorm_whole", "true"}},
    {"minimax_m2", {"moe_router_score_function", "sigmoid"}},
    {"minimax_m2", {"moe_router_enable_expert_bias", "true"}},
    {"mixtral", {"untie_embeddings_and_output_weights", "true"}},
    {"mixtral", {"rotary_base", "1e6"}},
    {"qwen2_moe", {"untie_embeddings_and_output_weights", "true"}},
    {"qwen2_moe", {"add_qkv_bias", "true"}},
    {"qwen2_moe", {"layernorm_epsilon", "1e-6"}},
    {"qwen2_moe", {"moe_shared_expert_gate", "true"}},
    {"qwen2_moe", {"moe_router_pre_softmax", "true"}},
    {"qwen3_moe", {"untie_embeddings_and_output_weights", "true"}},
    {"qwen3_moe", {"qk_layernorm", "true"}},
    {"qwen3_moe", {"layernorm_epsilon", "1e-6"}},
    {"qwen3_moe", {"moe_router_pre_softmax", "true"}},
};

static void set_family_defaults(loong_problems_t *problems,
                                loong_decoder_config_t *config,
                                const char *family)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_defaults); i++) {
        if (family != NULL && strcmp(family_defaults[i].family, family) == 0) {
            set_field(problems, config, &family_defaults[i].pair);
        }
    }
}

loong_status_t loongi_decoder_configure(loong_context_t *ctx,
                                        const loong_pairs_t *pairs,
                                        loong_decoder_config_t *config)
{
    loong_problems_t problems = loongi_problems_begin(ctx);
    set_defaults(config);
    set_family_defaults(&problems, config, loongi_pairs_get(pairs, "family"));
    for (int64_t i = 0; i < pairs->count; i++) {
        set_field(&problems, config, &pairs->items[i]);
    }
    loongi_decoder_check(&problems, config, pairs);
    if (problems.count == 0) {
        config->padded_vocab_size =
            loongi_round_up(config->vocab_size, config->padded_vocab_size);
        if (config->rope.original_max_position_embeddings == 0.0) {
            config->rope.original_max_position_embeddings =
                (double)config->max_position_embeddings;
        }
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "the model");
}

/* The text has it as a word of its own. */
static bool mentions(const char *text, const char *key)
{
    size_t length = strlen(key);
    const char *at = strstr(text, key);
    for (; at != NULL; at = strstr(at + 1, key)) {
        unsigned char before = at > text ? (unsigned char)at[-1] : ' ';
        unsigned char behind = (unsigned char)at[length];
        if (!isalnum(before) && strchr("_.", before) == NULL &&
            !isalnum(behind) && behind != '_') {
            return true;
        }
    }
    return false;
}

void loongi_decoder_note_origins(loong_context_t *ctx,
                                 const loong_pairs_t *origins)
{
    loong_text_t told = loongi_text_begin(ctx);
    loongi_text_printf(&told, "%s", loong_context_error(ctx));
    for (int64_t i = 0; i < origins->count; i++) {
        const loong_pair_t *origin = &origins->items[i];
        if (mentions(loongi_text_get(&told), origin->key)) {
            loongi_error_note(ctx, "  %s is from %s", origin->key,
                              origin->value);
        }
    }
    loongi_text_free(&told);
}

/* Keys that have an effect although nothing is said, with when they have. */
typedef enum applies {
    ALWAYS,
    WITH_WINDOW,
    WITH_ROTATION,
    WITH_SCALING, /* that has this number */
    WITH_EXPERTS,
    WITH_PROBABILITIES, /* experts chosen by softmax */
    WITH_SCORES,        /* and otherwise */
    WITH_BIAS,
    WITH_GROUPS,
    WITH_SHARED
} applies_t;

static const struct {
    const char *key;
    applies_t when;
} stated[] = {
    {"ffn_hidden_size", ALWAYS},
    {"num_query_groups", ALWAYS},
    {"kv_channels", ALWAYS},
    {"position_embedding_type", ALWAYS},
    {"rotary_base", WITH_ROTATION},
    {"rotary_percent", WITH_ROTATION},
    {"rotary_interleaved", WITH_ROTATION},
    {"rope_scaling.factor", WITH_SCALING},
    {"rope_scaling.original_max_position_embeddings", WITH_SCALING},
    {"rope_scaling.low_freq_factor", WITH_SCALING},
    {"rope_scaling.high_freq_factor", WITH_SCALING},
    {"rope_scaling.beta_fast", WITH_SCALING},
    {"rope_scaling.beta_slow", WITH_SCALING},
    {"rope_scaling.truncate", WITH_SCALING},
    {"normalization", ALWAYS},
    {"layernorm_epsilon", ALWAYS},
    {"qk_layernorm", ALWAYS},
    {"qk_layernorm_whole", ALWAYS},
    {"add_bias_linear", ALWAYS},
    {"add_qkv_bias", ALWAYS},
    {"add_attn_proj_bias", ALWAYS},
    {"activation", ALWAYS},
    {"untie_embeddings_and_output_weights", ALWAYS},
    {"window_size", ALWAYS},
    {"max_window_layers", WITH_WINDOW},
    {"attention_dropout", ALWAYS},
    {"hidden_dropout", ALWAYS},
    {"embedding_dropout", ALWAYS},
    {"init_method_std", ALWAYS},
    {"use_scaled_init_method", ALWAYS},
    {"moe_ffn_hidden_size", WITH_EXPERTS},
    {"moe_router_topk", WITH_EXPERTS},
    {"moe_router_score_function", WITH_EXPERTS},
    {"moe_router_pre_softmax", WITH_PROBABILITIES},
    {"moe_router_norm_topk_prob", WITH_SCORES},
    {"moe_router_num_groups", WITH_EXPERTS},
    {"moe_router_group_topk", WITH_GROUPS},
    {"moe_router_topk_scaling_factor", WITH_EXPERTS},
    {"moe_expert_capacity_factor", WITH_EXPERTS},
    {"moe_router_enable_expert_bias", WITH_EXPERTS},
    {"moe_router_bias_update_rate", WITH_BIAS},
    {"moe_router_load_balancing_type", WITH_EXPERTS},
    {"moe_aux_loss_coeff", WITH_EXPERTS},
    {"moe_z_loss_coeff", WITH_EXPERTS},
    {"moe_shared_expert_gate", WITH_SHARED},
};

static bool does_apply(const loong_decoder_config_t *c, const char *key,
                       applies_t when)
{
    bool experts = c->num_experts > 0;
    bool softmax = c->router.score == LOONG_SCORE_SOFTMAX;
    switch (when) {
    case ALWAYS:
        return true;
    case WITH_WINDOW:
        return c->window_size > 0;
    case WITH_ROTATION:
        return !c->learned_positions;
    case WITH_SCALING:
        return !c->learned_positions &&
               loongi_decoder_scales_by(c->rope.scaling, key);
    case WITH_EXPERTS:
        return experts;
    case WITH_PROBABILITIES:
        return experts && softmax;
    case WITH_SCORES:
        return experts && !softmax;
    case WITH_BIAS:
        return experts && c->expert_bias;
    case WITH_GROUPS:
        return experts && c->router.num_groups > 0;
    case WITH_SHARED:
        return experts && c->shared_expert_ffn > 0;
    }
    return false;
}

static const char *choice_name(const field_t *f, const void *at)
{
    int value = is_flag(f) ? *(const bool *)at : *(const int *)at;
    const char *name = NULL;
    for (const choice_t *c = f->choices; c->name != NULL; c++) {
        name = c->value == value ? c->name : name;
    }
    return name;
}

/* Where the keys go. */
typedef struct receiver {
    loong_model_state_fn add;
    void *user;
} receiver_t;

static loong_status_t state_field(const loong_decoder_config_t *config,
                                  const field_t *f, const receiver_t *to)
{
    const void *at = (const char *)config + f->offset;
    char text[40] = "";
    switch (f->type) {
    case INT:
        snprintf(text, sizeof(text), "%d", *(const int *)at);
        break;
    case LONG:
        snprintf(text, sizeof(text), "%lld", (long long)*(const int64_t *)at);
        break;
    case WHOLE:
        snprintf(text, sizeof(text), "%.0f", *(const double *)at);
        break;
    case REAL:
        snprintf(text, sizeof(text), "%.17g", *(const double *)at);
        break;
    case BOOL:
        snprintf(text, sizeof(text), *(const bool *)at ? "true" : "false");
        break;
    case NOT:
        snprintf(text, sizeof(text), *(const bool *)at ? "false" : "true");
        break;
    case CHOICE:
        snprintf(text, sizeof(text), "%s", choice_name(f, at));
        break;
    case KINDS:
    case TEXT:
        return LOONG_OK;
    }
    return to->add(to->user, f->key, text);
}

loong_status_t loongi_decoder_state(const void *config,
                                    loong_model_state_fn add, void *user)
{
    receiver_t to = {add, user};
    for (int64_t k = 0; k < LOONG_COUNT_OF(stated); k++) {
        const field_t *f = fields;
        while (strcmp(f->key, stated[k].key) != 0) {
            f++;
        }
        if (does_apply(config, f->key, stated[k].when)) {
            LOONG_TRY(state_field(config, f, &to));
        }
    }
    return LOONG_OK;
}

static loong_status_t set_pair(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

static loong_status_t fill_kinds(loong_context_t *ctx,
                                 const loong_decoder_config_t *config,
                                 loong_pairs_t *pairs)
{
    loong_text_t text = loongi_text_begin(ctx);
    loongi_layer_kinds_print(&config->kinds, config->num_layers, &text);
    loong_status_t status = text.status;
    if (status == LOONG_OK) {
        status = loongi_pairs_set(pairs, "moe_layer_freq", text.data);
    }
    loongi_text_free(&text);
    return status;
}

loong_status_t loongi_decoder_fill(loong_context_t *ctx, loong_pairs_t *pairs)
{
    loong_decoder_config_t config;
    receiver_t to = {set_pair, pairs};
    LOONG_TRY(loongi_decoder_configure(ctx, pairs, &config));
    config.padded_vocab_size = 1; /* as make_vocab_size_divisible_by */
    config.mla_absorb = LOONG_ABSORB_AUTO;
    if (config.router.weights == LOONG_WEIGHTS_AUTO &&
        config.router.score != LOONG_SCORE_SOFTMAX) {
        config.router.weights = config.router.topk > 1 ? LOONG_WEIGHTS_DIVIDED
                                                       : LOONG_WEIGHTS_PLAIN;
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(fields); i++) {
        LOONG_TRY(state_field(&config, &fields[i], &to));
    }
    return config.num_experts > 0 ? fill_kinds(ctx, &config, pairs) : LOONG_OK;
}
