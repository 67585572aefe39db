/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a decoder as a table of fields, what each family has when they
 * are not given, and what a model has been configured to. Called through
 * loong_family_t and by readers of config.json; read decoder.h before. */
#include "decoder_config.h"

#include <string.h>

#include "decoder_check.h"
#include "field_rows.h"

#define BIG 9e15
#define KIND "a decoder"
#define LOONG_FIELD_PREFIX "model.foundation."
#define LOONG_FIELD_STRUCT loong_decoder_config_t

/* Of the words of choices. */
static const int scalings[] = {LOONG_ROPE_DEFAULT, LOONG_ROPE_DEFAULT,
                               LOONG_ROPE_LINEAR,  LOONG_ROPE_DYNAMIC,
                               LOONG_ROPE_LLAMA3,  LOONG_ROPE_YARN};
static const int norms[] = {LOONG_NORM_RMS, LOONG_NORM_LAYER,
                            LOONG_NORM_RMS_1P};
static const int absorbs[] = {LOONG_ABSORB_AUTO, LOONG_ABSORB_YES,
                              LOONG_ABSORB_NO};
static const int activations[] = {LOONG_MLP_SWIGLU, LOONG_MLP_GELU,
                                  LOONG_MLP_GELU_TANH, LOONG_MLP_GEGLU_TANH};
static const int scores[] = {LOONG_SCORE_SOFTMAX, LOONG_SCORE_SIGMOID,
                             LOONG_SCORE_SQRTSOFTPLUS};
static const int weights[] = {LOONG_WEIGHTS_AUTO, LOONG_WEIGHTS_DIVIDED,
                              LOONG_WEIGHTS_PLAIN};
static const int balances[] = {LOONG_BALANCE_MICRO_BATCH,
                               LOONG_BALANCE_SEQUENCE, LOONG_BALANCE_POOLED};

static const loong_recipe_field_t fields[] = {
    {TEXT(
         "family", SAME,
         "gpt2, llama, phi3, qwen, qwen2, qwen3, internlm2, mimo, ernie4_5, "
         "gemma, glm, glm4, mixtral, qwen2_moe, qwen3_moe, ernie4_5_moe, "
         "ernie4_5_vl_moe, minimax_m2, deepseek_v2, deepseek_v3, kimi_k2, or "
         "one that was registered"),
     .needed = true},
    {INT("num_layers", num_layers, 1, 10000, SAME, "transformer layers"),
     .needed = true},
    {INT64("hidden_size", hidden_size, 1, 1e6, SAME,
           "width of the residual stream"),
     .needed = true},
    {INT64(
        "ffn_hidden_size", ffn_hidden_size, 1, 1e7, SAME,
        "width of the feed-forward of layers without experts; 4 x hidden_size "
        "when not given")},
    {INT("num_attention_heads", num_attention_heads, 1, 1e5, SAME,
         "query heads"),
     .needed = true},
    {INT("num_query_groups", num_query_groups, 1, 1e5, SAME,
         "key and value heads; num_attention_heads when not given")},
    {INT("kv_channels", kv_channels, 1, 4096, SAME,
         "width of a head; hidden_size / num_attention_heads when not given")},
    {INT64("vocab_size", vocab_size, 1, 1e8, SAME, "tokens of the vocabulary"),
     .needed = true},
    {INT64("make_vocab_size_divisible_by", padded_vocab_size, 1, 1e6, FREE,
           "the embedding is padded to a multiple of this")},
    {INT64("max_position_embeddings", max_position_embeddings, 1, BIG, SAME,
           "longest sequence"),
     .needed = true},
    {FLAG("position_embedding_type", learned_positions, "rope learned_absolute",
          SAME, "how positions enter")},
    {REAL("rotary_base", rope.base, 1, 1e15, SAME, "rope_theta")},
    {REAL("rotary_percent", rotary_percent, 0, 1, SAME,
          "share of a head rotated")},
    {BOOL("rotary_interleaved", rope_interleaved, SAME,
          "neighbouring channels are rotated together, not the two halves")},
    {TEXT("mrope_section", SAME,
          "pairs of rotated channels for time, height and width, as "
          "[16,24,24], of ERNIE for height, width and time; of texts all turn "
          "alike")},
    {BOOL("mrope_interleaved", mrope_interleaved, SAME,
          "these pairs take turns (Qwen3-VL), and are not three blocks")},
    {INT("num_deep_features", num_deep_features, 0, LOONG_MAX_DEEP_FEATURES,
         SAME,
         "of texts with pictures: so many first layers have deep features of "
         "the image encoder added behind them; 0 when not given")},
    {CHOICE("rope_scaling.type", rope.scaling,
            "none default linear dynamic llama3 yarn", scalings, SAME,
            "change of the rotary frequencies")},
    {REAL("rope_scaling.factor", rope.factor, 1, 1e6, SAME,
          "context extension"),
     .needed = true},
    {REAL("rope_scaling.low_freq_factor", rope.low_freq_factor, 0, 1e6, SAME,
          "llama3")},
    {REAL("rope_scaling.high_freq_factor", rope.high_freq_factor, 0, 1e6, SAME,
          "llama3")},
    {WHOLE("rope_scaling.original_max_position_embeddings",
           rope.original_max_position_embeddings, 1, BIG, SAME,
           "length before the extension")},
    {REAL("rope_scaling.beta_fast", rope.beta_fast, 0, 1e6, SAME, "yarn")},
    {REAL("rope_scaling.beta_slow", rope.beta_slow, 0, 1e6, SAME, "yarn")},
    {REAL("rope_scaling.attention_factor", rope.attention_factor, 0, 1e6, SAME,
          "yarn")},
    {REAL("rope_scaling.mscale", rope.mscale, 0, 1e6, SAME, "yarn")},
    {REAL("rope_scaling.mscale_all_dim", rope.mscale_all_dim, 0, 1e6, SAME,
          "yarn")},
    {BOOL("rope_scaling.truncate", rope.truncate, SAME,
          "yarn: whole dimensions")},
    {BOOL("scale_embeddings", scale_embeddings, SAME,
          "embeddings are times sqrt(hidden_size), as Gemma's")},
    {BOOL("bidirectional_prefix", bidirectional_prefix, SAME,
          "what stands before the first learned token of a sample sees all of "
          "itself, as PaliGemma's picture and question")},
    {CHOICE("normalization", normalization, "RMSNorm LayerNorm RMSNorm1p",
            norms, SAME,
            "kind of norm; RMSNorm1p: factors are 1 and the weight")},
    {REAL("layernorm_epsilon", norm_eps, 0, 1, SAME, "added to the variance")},
    {BOOL("sandwich_norm", sandwich_norm, SAME,
          "norms of what attention and feed-forward add to the stream as well, "
          "as GLM-4's")},
    {BOOL("qk_layernorm", qk_norm, SAME, "norm of each head of q and k")},
    {BOOL("qk_layernorm_whole", qk_norm_whole, SAME,
          "that norm over all heads together")},
    {INT64("kv_lora_rank", kv_lora_rank, 1, 1e6, SAME,
           "latent attention: width of what keys and values are made of")},
    {INT64(
        "q_lora_rank", q_lora_rank, 1, 1e6, SAME,
        "latent attention: the same of queries; straight from the stream when "
        "not given")},
    {INT("qk_head_dim", qk_head_dim, 1, 4096, SAME,
         "latent attention: channels of a key that are not rotated")},
    {INT("qk_pos_emb_head_dim", qk_pos_emb_head_dim, 1, 4096, SAME,
         "latent attention: rotated channels, shared by the keys of a token")},
    {INT("v_head_dim", v_head_dim, 1, 4096, SAME,
         "latent attention: channels of a value")},
    {CHOICE("mla_absorb", mla_absorb, "auto true false", absorbs, FREE,
            "latent attention: queries and outputs go through kv_b_proj, not "
            "keys and values; auto: where 2 kv_lora_rank < qk_head_dim + "
            "v_head_dim, which costs less")},
    {BOOL("add_bias_linear", mlp_bias, SAME, "biases in the feed-forward")},
    {BOOL("add_qkv_bias", qkv_bias, SAME,
          "biases of q, k and v; in latent attention of the short vectors")},
    {BOOL("add_attn_proj_bias", attention_output_bias, SAME,
          "bias of attention's output")},
    {CHOICE("activation", mlp, "swiglu gelu gelu_tanh geglu_tanh", activations,
            SAME, "of the feed-forward")},
    {NOT("untie_embeddings_and_output_weights", tied, SAME,
         "an output matrix of its own")},
    {INT64("window_size", window_size, 0, BIG, SAME,
           "sliding window in tokens, the query included; 0: none")},
    {INT("max_window_layers", max_window_layers, 0, 10000, SAME,
         "layers before this one attend fully")},
    {REAL("softmax_scale", softmax_scale, 0, 1e6, SAME,
          "of attention scores, above 0; 1/sqrt(kv_channels) when not given")},
    {REAL("attention_dropout", attention_dropout, 0, 0.999, SAME,
          "probability")},
    {REAL("hidden_dropout", hidden_dropout, 0, 0.999, SAME, "probability")},
    {REAL("embedding_dropout", embedding_dropout, 0, 0.999, SAME,
          "probability")},
    {REAL("init_method_std", init_std, 0, 10, FREE,
          "standard deviation of matrices at the start; 0.02 when not given")},
    {REAL("embedding_init_method_std", embedding_init_std, 0, 10, FREE,
          "of embeddings; init_method_std when not given")},
    {BOOL("use_scaled_init_method", scaled_output_init, FREE,
          "output projections start smaller by sqrt(2 x layers)")},
    {INT("num_experts", num_experts, 1, 65536, SAME,
         "experts in place of the feed-forward")},
    {TEXT("moe_layer_freq", SAME,
          "layers with experts, the others have a feed-forward: N, every N-th "
          "from the first on, or a list as [0]*3+[1]*58 or, to the last layer, "
          "[0]*3+[1]*; 1 when not given")},
    {INT64("moe_ffn_hidden_size", moe_ffn_hidden_size, 1, 1e7, SAME,
           "width of an expert; ffn_hidden_size when not given")},
    {INT64("moe_vision_ffn_hidden_size", vision_ffn, 1, 1e7, SAME,
           "a second set of num_experts experts of this width with a router of "
           "its own, for tokens of images (data.vision_token_ids)")},
    {INT("moe_router_topk", router.topk, 1, 65536, SAME,
         "experts of a token; 2 when not given")},
    {CHOICE("moe_router_score_function", router.score,
            "softmax sigmoid sqrtsoftplus", scores, SAME,
            "from the router's logits to scores")},
    {BOOL("moe_router_pre_softmax", router.pre_softmax, SAME,
          "softmax before the choice: weights of a token sum up to less "
          "than 1")},
    {CHOICE("moe_router_norm_topk_prob", router.weights, "auto true false",
            weights, SAME,
            "sigmoid and sqrtsoftplus: the chosen scores divided by their sum; "
            "auto: with more than one expert a token")},
    {INT("moe_router_num_groups", router.num_groups, 0, 65536, SAME,
         "groups of experts, for a choice limited to some of them; 0: none")},
    {INT("moe_router_group_topk", router.group_topk, 0, 65536, SAME,
         "groups of a token")},
    {INT("moe_router_group_scores", router.group_scores, 0, 65536, SAME,
         "best experts of a group whose scores count for it; "
         "moe_router_topk / moe_router_group_topk when not given")},
    {REAL("moe_router_topk_scaling_factor", router.scaling_factor, 0, 1e6, SAME,
          "factor of the experts' weights")},
    {REAL("moe_expert_capacity_factor", capacity_factor, 0, 1e6, SAME,
          "an expert takes so many times an even share of a rank's tokens of a "
          "micro-batch and drops the others; 0: it takes all")},
    {FLAG("moe_token_drop_policy", drop_by_position, "probs position", SAME,
          "which are dropped: those of least weight or the last ones")},
    {BOOL("moe_router_force_load_balancing", router.forced, SAME,
          "experts in turn in place of the router's choice, to measure speed "
          "with even loads")},
    {BOOL("moe_router_enable_expert_bias", expert_bias, SAME,
          "a bias of each expert counts for the choice, not for the weight")},
    {REAL("moe_router_bias_update_rate", bias_update_rate, 0, 10, SAME,
          "what a step adds to it or takes away to even choices out; 0: it "
          "stays; 1e-3 when not given")},
    {CHOICE("moe_router_load_balancing_type", balance,
            "aux_loss seq_aux_loss pooled_aux_loss", balances, SAME,
            "what the auxiliary loss balances: a layer's micro-batch or "
            "sequence, or a micro-batch in all layers, as transformers")},
    {REAL("moe_aux_loss_coeff", aux_loss_coeff, 0, 1e6, SAME,
          "of the load balancing loss; 0: none")},
    {REAL("moe_z_loss_coeff", router_z_loss_coeff, 0, 1e6, SAME,
          "of the squared log-sum-exp of router logits; 0: none")},
    {INT64("moe_shared_expert_intermediate_size", shared_expert_ffn, 1, 1e7,
           SAME, "width of an expert that all tokens meet")},
    {BOOL("moe_shared_expert_gate", shared_expert_gate, SAME,
          "the shared expert's output is times a sigmoid of the token")},
};

const loong_recipe_table_t loongi_decoder_fields = {LOONG_FIELD_PREFIX, fields,
                                                    LOONG_COUNT_OF(fields)};

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
    {"gemma", {"normalization", "RMSNorm1p"}},
    {"gemma", {"layernorm_epsilon", "1e-6"}},
    {"gemma", {"activation", "geglu_tanh"}},
    {"gemma", {"scale_embeddings", "true"}},
    {"glm", {"rotary_percent", "0.5"}},
    {"glm", {"rotary_interleaved", "true"}},
    {"glm", {"add_qkv_bias", "true"}},
    {"glm", {"layernorm_epsilon", "1.5625e-7"}},
    {"glm", {"untie_embeddings_and_output_weights", "true"}},
    {"glm4", {"rotary_percent", "0.5"}},
    {"glm4", {"rotary_interleaved", "true"}},
    {"glm4", {"sandwich_norm", "true"}},
    {"glm4", {"add_qkv_bias", "true"}},
    {"glm4", {"layernorm_epsilon", "1.5625e-7"}},
    {"glm4", {"untie_embeddings_and_output_weights", "true"}},
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
            loongi_recipe_field_set(problems, &loongi_decoder_fields, KIND,
                                    &family_defaults[i].pair, config);
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
        loongi_recipe_field_set(&problems, &loongi_decoder_fields, KIND,
                                &pairs->items[i], config);
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
    {"scale_embeddings", ALWAYS},
    {"bidirectional_prefix", ALWAYS},
    {"normalization", ALWAYS},
    {"layernorm_epsilon", ALWAYS},
    {"sandwich_norm", ALWAYS},
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

loong_status_t loongi_decoder_state(const void *config,
                                    loong_model_state_fn add, void *user)
{
    for (int64_t k = 0; k < LOONG_COUNT_OF(stated); k++) {
        const char *key = stated[k].key;
        char text[LOONG_FIELD_TEXT];
        if (does_apply(config, key, stated[k].when)) {
            loongi_recipe_field_text(
                loongi_recipe_field_find(&loongi_decoder_fields, key), config,
                text);
            LOONG_TRY(add(user, key, text));
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
    LOONG_TRY(loongi_decoder_configure(ctx, pairs, &config));
    config.padded_vocab_size = 1; /* as make_vocab_size_divisible_by */
    config.mla_absorb = LOONG_ABSORB_AUTO;
    if (config.router.weights == LOONG_WEIGHTS_AUTO &&
        config.router.score != LOONG_SCORE_SOFTMAX) {
        config.router.weights = config.router.topk > 1 ? LOONG_WEIGHTS_DIVIDED
                                                       : LOONG_WEIGHTS_PLAIN;
    }
    LOONG_TRY(loongi_recipe_fields_each(&loongi_decoder_fields, &config,
                                        set_pair, pairs));
    return config.num_experts > 0 ? fill_kinds(ctx, &config, pairs) : LOONG_OK;
}
