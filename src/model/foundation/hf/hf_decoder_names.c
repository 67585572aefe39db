/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of decoders in Hugging Face files, and the sizes that keys say. A
 * part of hf_decoder.c's loong_hf_kind_t; read hf_names.h before. */
#include "hf_decoder.h"

#include "hf_rows.h"

#define PLAIN(name_, rows_, columns_, condition_) \
    ROW(name_, NULL, rows_, columns_, condition_, 0)
#define RENAMED(name_, hf_, rows_, columns_, condition_) \
    ROW(name_, hf_, rows_, columns_, condition_, 0)
#define FROM_CONV(name_, hf_, rows_, columns_) \
    ROW(name_, hf_, rows_, columns_, HF_ALWAYS, HF_TURNED)
/* A third of a tensor. */
#define PART(name_, hf_, rows_, columns_, part_, condition_, how_)    \
    {                                                                 \
        name_, hf_, rows_, columns_, condition_, how_, part_, 3, NULL \
    }
/* A half of one, of a feed-forward. */
#define HALF(name_, hf_, part_)                                         \
    {                                                                   \
        name_, hf_, HF_FFN, HF_HIDDEN, HF_ALWAYS, 0, part_, 2, NULL     \
    }
#define EXPERT(name_, hf_, second_, rows_, columns_)                 \
    {                                                                \
        name_, hf_, rows_, columns_, HF_IF_EXPERTS, 0, 0, 1, second_ \
    }

#define ROTARY_ATTENTION                                                      \
    PLAIN("embed_tokens.weight", HF_VOCAB, HF_HIDDEN, HF_ALWAYS),             \
        PLAIN("layers.#.input_layernorm.weight", HF_HIDDEN, HF_NONE,          \
              HF_ALWAYS),                                                     \
        PLAIN(ATTN "q_proj.weight", HF_QUERY, HF_HIDDEN, HF_ALWAYS),          \
        PLAIN(ATTN "k_proj.weight", HF_KEY, HF_HIDDEN, HF_ALWAYS),            \
        PLAIN(ATTN "v_proj.weight", HF_KEY, HF_HIDDEN, HF_ALWAYS),            \
        PLAIN(ATTN "q_proj.bias", HF_QUERY, HF_NONE, HF_IF_QKV_BIAS),         \
        PLAIN(ATTN "k_proj.bias", HF_KEY, HF_NONE, HF_IF_QKV_BIAS),           \
        PLAIN(ATTN "v_proj.bias", HF_KEY, HF_NONE, HF_IF_QKV_BIAS),           \
        PLAIN(ATTN "q_norm.weight", HF_HEAD, HF_NONE, HF_IF_QK_NORM),         \
        PLAIN(ATTN "k_norm.weight", HF_HEAD, HF_NONE, HF_IF_QK_NORM),         \
        PLAIN(ATTN "o_proj.weight", HF_HIDDEN, HF_QUERY, HF_ALWAYS),          \
        PLAIN(ATTN "o_proj.bias", HF_HIDDEN, HF_NONE, HF_IF_PROJ_BIAS),       \
        PLAIN("layers.#.post_attention_layernorm.weight", HF_HIDDEN, HF_NONE, \
              HF_ALWAYS)
#define GATE_UP                                                \
    HALF(MLP "gate_proj.weight", MLP "gate_up_proj.weight", 0), \
        HALF(MLP "up_proj.weight", MLP "gate_up_proj.weight", 1)
#define ROTARY_END                                       \
    PLAIN("norm.weight", HF_HIDDEN, HF_NONE, HF_ALWAYS), \
        PLAIN("lm_head.weight", HF_VOCAB, HF_HIDDEN, HF_IF_UNTIED), ROWS_END

static const loong_hf_row_t rotary_rows[] = {
    ROTARY_ATTENTION,
    PLAIN(MLP "gate_proj.weight", HF_FFN, HF_HIDDEN, HF_ALWAYS),
    PLAIN(MLP "gate_proj.bias", HF_FFN, HF_NONE, HF_IF_MLP_BIAS),
    PLAIN(MLP "up_proj.weight", HF_FFN, HF_HIDDEN, HF_ALWAYS),
    PLAIN(MLP "up_proj.bias", HF_FFN, HF_NONE, HF_IF_MLP_BIAS),
    PLAIN(MLP "down_proj.weight", HF_HIDDEN, HF_FFN, HF_ALWAYS),
    PLAIN(MLP "down_proj.bias", HF_HIDDEN, HF_NONE, HF_IF_MLP_BIAS),
    ROTARY_END};

static const loong_hf_row_t phi3_rows[] = {
    PLAIN("embed_tokens.weight", HF_VOCAB, HF_HIDDEN, HF_ALWAYS),
    PLAIN("layers.#.input_layernorm.weight", HF_HIDDEN, HF_NONE, HF_ALWAYS),
    PART(ATTN "q_proj.weight", ATTN "qkv_proj.weight", HF_QUERY, HF_HIDDEN, 0,
         HF_ALWAYS, 0),
    PART(ATTN "k_proj.weight", ATTN "qkv_proj.weight", HF_KEY, HF_HIDDEN, 1,
         HF_ALWAYS, 0),
    PART(ATTN "v_proj.weight", ATTN "qkv_proj.weight", HF_KEY, HF_HIDDEN, 2,
         HF_ALWAYS, 0),
    PLAIN(ATTN "o_proj.weight", HF_HIDDEN, HF_QUERY, HF_ALWAYS),
    PLAIN("layers.#.post_attention_layernorm.weight", HF_HIDDEN, HF_NONE,
          HF_ALWAYS),
    GATE_UP,
    PLAIN(MLP "down_proj.weight", HF_HIDDEN, HF_FFN, HF_ALWAYS),
    ROTARY_END};

static const loong_hf_row_t glm_rows[] = {
    ROTARY_ATTENTION,
    GATE_UP,
    PLAIN(MLP "down_proj.weight", HF_HIDDEN, HF_FFN, HF_ALWAYS),
    ROTARY_END};

static const loong_hf_row_t glm4_rows[] = {
    ROTARY_ATTENTION,
    PLAIN("layers.#.post_self_attn_layernorm.weight", HF_HIDDEN, HF_NONE,
          HF_ALWAYS),
    PLAIN("layers.#.post_mlp_layernorm.weight", HF_HIDDEN, HF_NONE, HF_ALWAYS),
    GATE_UP,
    PLAIN(MLP "down_proj.weight", HF_HIDDEN, HF_FFN, HF_ALWAYS),
    ROTARY_END};

#define DENSE                                                        \
    PLAIN(MLP "gate_proj.weight", HF_FFN, HF_HIDDEN, HF_IF_DENSE),   \
        PLAIN(MLP "up_proj.weight", HF_FFN, HF_HIDDEN, HF_IF_DENSE), \
        PLAIN(MLP "down_proj.weight", HF_HIDDEN, HF_FFN, HF_IF_DENSE)
#define ROUTER(how_) \
    ROW(MLP "gate.weight", NULL, HF_EXPERTS, HF_HIDDEN, HF_IF_EXPERTS, how_)
#define MIXTURE_EXPERTS                                                  \
    EXPERT(MLP "experts.gate_up_proj", MLP "experts.@.gate_proj.weight", \
           MLP "experts.@.up_proj.weight", HF_GATE_UP, HF_HIDDEN),       \
        EXPERT(MLP "experts.down_proj", MLP "experts.@.down_proj.weight",\
               NULL, HF_DOWN, HF_EXPERT_FFN)
#define MIXTURE ROUTER(0), MIXTURE_EXPERTS
/* All in one tensor, [experts, in, out], gates in front of ups; files may have
 * [experts, out, in] (hf_stacked.h). */
#define STACKED(name_, second_, rows_, columns_)                            \
    {                                                                       \
        name_, name_, rows_, columns_, HF_IF_EXPERTS,                       \
            HF_STACKED | HF_TURNED, 0, 1, second_                           \
    }

static const loong_hf_row_t qwen3_vl_moe_rows[] = {
    ROTARY_ATTENTION,
    DENSE,
    ROUTER(0),
    STACKED(MLP "experts.gate_up_proj", MLP "experts.gate_up_proj", HF_GATE_UP,
            HF_HIDDEN),
    STACKED(MLP "experts.down_proj", NULL, HF_DOWN, HF_EXPERT_FFN),
    ROTARY_END};

static const loong_hf_row_t qwen_moe_rows[] = {
    ROTARY_ATTENTION,
    DENSE,
    MIXTURE,
    PLAIN(MLP "shared_expert.gate_proj.weight", HF_SHARED_FFN, HF_HIDDEN,
          HF_IF_SHARED),
    PLAIN(MLP "shared_expert.up_proj.weight", HF_SHARED_FFN, HF_HIDDEN,
          HF_IF_SHARED),
    PLAIN(MLP "shared_expert.down_proj.weight", HF_HIDDEN, HF_SHARED_FFN,
          HF_IF_SHARED),
    PLAIN(MLP "shared_expert_gate.weight", HF_NONE, HF_HIDDEN,
          HF_IF_SHARED_GATE),
    ROTARY_END};

#define SPARSE "layers.#.block_sparse_moe."
static const loong_hf_row_t mixtral_rows[] = {
    ROTARY_ATTENTION,
    RENAMED(MLP "gate.weight", SPARSE "gate.weight", HF_EXPERTS, HF_HIDDEN,
            HF_IF_EXPERTS),
    EXPERT(MLP "experts.gate_up_proj", SPARSE "experts.@.w1.weight",
           SPARSE "experts.@.w3.weight", HF_GATE_UP, HF_HIDDEN),
    EXPERT(MLP "experts.down_proj", SPARSE "experts.@.w2.weight", NULL, HF_DOWN,
           HF_EXPERT_FFN),
    ROTARY_END};

static const loong_hf_row_t gpt2_rows[] = {
    NAMED("embed_tokens.weight", "wte.weight", HF_VOCAB, HF_HIDDEN),
    NAMED("position_embeddings.weight", "wpe.weight", HF_POSITION, HF_HIDDEN),
    NAMED("layers.#.input_layernorm.weight", "h.#.ln_1.weight", HF_HIDDEN,
          HF_NONE),
    NAMED("layers.#.input_layernorm.bias", "h.#.ln_1.bias", HF_HIDDEN, HF_NONE),
    PART(ATTN "q_proj.weight", "h.#.attn.c_attn.weight", HF_QUERY, HF_HIDDEN, 0,
         HF_ALWAYS, HF_TURNED),
    PART(ATTN "k_proj.weight", "h.#.attn.c_attn.weight", HF_KEY, HF_HIDDEN, 1,
         HF_ALWAYS, HF_TURNED),
    PART(ATTN "v_proj.weight", "h.#.attn.c_attn.weight", HF_KEY, HF_HIDDEN, 2,
         HF_ALWAYS, HF_TURNED),
    PART(ATTN "q_proj.bias", "h.#.attn.c_attn.bias", HF_QUERY, HF_NONE, 0,
         HF_ALWAYS, 0),
    PART(ATTN "k_proj.bias", "h.#.attn.c_attn.bias", HF_KEY, HF_NONE, 1,
         HF_ALWAYS, 0),
    PART(ATTN "v_proj.bias", "h.#.attn.c_attn.bias", HF_KEY, HF_NONE, 2,
         HF_ALWAYS, 0),
    FROM_CONV(ATTN "o_proj.weight", "h.#.attn.c_proj.weight", HF_HIDDEN,
              HF_QUERY),
    NAMED(ATTN "o_proj.bias", "h.#.attn.c_proj.bias", HF_HIDDEN, HF_NONE),
    NAMED("layers.#.post_attention_layernorm.weight", "h.#.ln_2.weight",
          HF_HIDDEN, HF_NONE),
    NAMED("layers.#.post_attention_layernorm.bias", "h.#.ln_2.bias", HF_HIDDEN,
          HF_NONE),
    FROM_CONV(MLP "up_proj.weight", "h.#.mlp.c_fc.weight", HF_FFN, HF_HIDDEN),
    NAMED(MLP "up_proj.bias", "h.#.mlp.c_fc.bias", HF_FFN, HF_NONE),
    FROM_CONV(MLP "down_proj.weight", "h.#.mlp.c_proj.weight", HF_HIDDEN,
              HF_FFN),
    NAMED(MLP "down_proj.bias", "h.#.mlp.c_proj.bias", HF_HIDDEN, HF_NONE),
    NAMED("norm.weight", "ln_f.weight", HF_HIDDEN, HF_NONE),
    NAMED("norm.bias", "ln_f.bias", HF_HIDDEN, HF_NONE),
    PLAIN("lm_head.weight", HF_VOCAB, HF_HIDDEN, HF_IF_UNTIED),
    ROWS_END};

#define QWEN "h.#."
static const loong_hf_row_t qwen_rows[] = {
    NAMED("embed_tokens.weight", "wte.weight", HF_VOCAB, HF_HIDDEN),
    NAMED("layers.#.input_layernorm.weight", QWEN "ln_1.weight", HF_HIDDEN,
          HF_NONE),
    PART(ATTN "q_proj.weight", QWEN "attn.c_attn.weight", HF_QUERY, HF_HIDDEN,
         0, HF_ALWAYS, 0),
    PART(ATTN "k_proj.weight", QWEN "attn.c_attn.weight", HF_KEY, HF_HIDDEN, 1,
         HF_ALWAYS, 0),
    PART(ATTN "v_proj.weight", QWEN "attn.c_attn.weight", HF_KEY, HF_HIDDEN, 2,
         HF_ALWAYS, 0),
    PART(ATTN "q_proj.bias", QWEN "attn.c_attn.bias", HF_QUERY, HF_NONE, 0,
         HF_ALWAYS, 0),
    PART(ATTN "k_proj.bias", QWEN "attn.c_attn.bias", HF_KEY, HF_NONE, 1,
         HF_ALWAYS, 0),
    PART(ATTN "v_proj.bias", QWEN "attn.c_attn.bias", HF_KEY, HF_NONE, 2,
         HF_ALWAYS, 0),
    NAMED(ATTN "o_proj.weight", QWEN "attn.c_proj.weight", HF_HIDDEN, HF_QUERY),
    NAMED("layers.#.post_attention_layernorm.weight", QWEN "ln_2.weight",
          HF_HIDDEN, HF_NONE),
    NAMED(MLP "gate_proj.weight", QWEN "mlp.w2.weight", HF_FFN, HF_HIDDEN),
    NAMED(MLP "up_proj.weight", QWEN "mlp.w1.weight", HF_FFN, HF_HIDDEN),
    NAMED(MLP "down_proj.weight", QWEN "mlp.c_proj.weight", HF_HIDDEN, HF_FFN),
    NAMED("norm.weight", "ln_f.weight", HF_HIDDEN, HF_NONE),
    PLAIN("lm_head.weight", HF_VOCAB, HF_HIDDEN, HF_IF_UNTIED),
    ROWS_END};

/* wqkv: for each key head its query heads, itself, its values. */
#define INTERN "layers.#.attention."
static const loong_hf_row_t internlm2_rows[] = {
    NAMED("embed_tokens.weight", "tok_embeddings.weight", HF_VOCAB, HF_HIDDEN),
    NAMED("layers.#.input_layernorm.weight", "layers.#.attention_norm.weight",
          HF_HIDDEN, HF_NONE),
    PART(ATTN "q_proj.weight", INTERN "wqkv.weight", HF_QUERY, HF_HIDDEN, 0,
         HF_ALWAYS, HF_GROUPED),
    PART(ATTN "k_proj.weight", INTERN "wqkv.weight", HF_KEY, HF_HIDDEN, 1,
         HF_ALWAYS, HF_GROUPED),
    PART(ATTN "v_proj.weight", INTERN "wqkv.weight", HF_KEY, HF_HIDDEN, 2,
         HF_ALWAYS, HF_GROUPED),
    PART(ATTN "q_proj.bias", INTERN "wqkv.bias", HF_QUERY, HF_NONE, 0,
         HF_IF_QKV_BIAS, HF_GROUPED),
    PART(ATTN "k_proj.bias", INTERN "wqkv.bias", HF_KEY, HF_NONE, 1,
         HF_IF_QKV_BIAS, HF_GROUPED),
    PART(ATTN "v_proj.bias", INTERN "wqkv.bias", HF_KEY, HF_NONE, 2,
         HF_IF_QKV_BIAS, HF_GROUPED),
    NAMED(ATTN "o_proj.weight", INTERN "wo.weight", HF_HIDDEN, HF_QUERY),
    RENAMED(ATTN "o_proj.bias", INTERN "wo.bias", HF_HIDDEN, HF_NONE,
            HF_IF_PROJ_BIAS),
    NAMED("layers.#.post_attention_layernorm.weight",
          "layers.#.ffn_norm.weight", HF_HIDDEN, HF_NONE),
    NAMED(MLP "gate_proj.weight", "layers.#.feed_forward.w1.weight", HF_FFN,
          HF_HIDDEN),
    NAMED(MLP "up_proj.weight", "layers.#.feed_forward.w3.weight", HF_FFN,
          HF_HIDDEN),
    NAMED(MLP "down_proj.weight", "layers.#.feed_forward.w2.weight", HF_HIDDEN,
          HF_FFN),
    PLAIN("norm.weight", HF_HIDDEN, HF_NONE, HF_ALWAYS),
    RENAMED("lm_head.weight", "output.weight", HF_VOCAB, HF_HIDDEN,
            HF_IF_UNTIED),
    ROWS_END};

#define NORMS                                                                 \
    PLAIN("embed_tokens.weight", HF_VOCAB, HF_HIDDEN, HF_ALWAYS),             \
        PLAIN("layers.#.input_layernorm.weight", HF_HIDDEN, HF_NONE,          \
              HF_ALWAYS),                                                     \
        PLAIN("layers.#.post_attention_layernorm.weight", HF_HIDDEN, HF_NONE, \
              HF_ALWAYS)
#define SHARED "shared_experts."
#define SHARED_EXPERTS(how_)                                               \
    ROW(MLP "shared_expert.gate_proj.weight",                              \
        MLP SHARED "gate_proj.weight", HF_SHARED_FFN, HF_HIDDEN,           \
        HF_IF_SHARED, how_),                                               \
        ROW(MLP "shared_expert.up_proj.weight",                            \
            MLP SHARED "up_proj.weight", HF_SHARED_FFN, HF_HIDDEN,         \
            HF_IF_SHARED, how_),                                           \
        ROW(MLP "shared_expert.down_proj.weight",                          \
            MLP SHARED "down_proj.weight", HF_HIDDEN, HF_SHARED_FFN,       \
            HF_IF_SHARED, how_)
#define BIAS "e_score_correction_bias"

static const loong_hf_row_t deepseek_rows[] = {
    NORMS,
    PLAIN(ATTN "q_proj.weight", HF_QUERY, HF_HIDDEN, HF_IF_WHOLE_Q),
    PLAIN(ATTN "q_a_proj.weight", HF_Q_RANK, HF_HIDDEN, HF_IF_SHORT_Q),
    PLAIN(ATTN "q_a_layernorm.weight", HF_Q_RANK, HF_NONE, HF_IF_SHORT_Q),
    PLAIN(ATTN "q_b_proj.weight", HF_QUERY, HF_Q_RANK, HF_IF_SHORT_Q),
    PLAIN(ATTN "kv_a_proj_with_mqa.weight", HF_KV_A, HF_HIDDEN, HF_ALWAYS),
    PLAIN(ATTN "kv_a_layernorm.weight", HF_KV_RANK, HF_NONE, HF_ALWAYS),
    PLAIN(ATTN "kv_b_proj.weight", HF_KV_B, HF_KV_RANK, HF_ALWAYS),
    PLAIN(ATTN "o_proj.weight", HF_HIDDEN, HF_VALUE, HF_ALWAYS),
    PLAIN(ATTN "q_a_proj.bias", HF_Q_RANK, HF_NONE, HF_IF_SHORT_Q_BIAS),
    PLAIN(ATTN "kv_a_proj_with_mqa.bias", HF_KV_A, HF_NONE, HF_IF_QKV_BIAS),
    PLAIN(ATTN "o_proj.bias", HF_HIDDEN, HF_NONE, HF_IF_PROJ_BIAS),
    DENSE,
    MIXTURE,
    ROW(MLP "gate." BIAS, NULL, HF_EXPERTS, HF_NONE, HF_IF_BIAS, HF_EXACT),
    SHARED_EXPERTS(HF_HOLLOW),
    ROTARY_END};

static const loong_hf_row_t minimax_m2_rows[] = {
    NORMS,
    PLAIN(ATTN "q_proj.weight", HF_QUERY, HF_HIDDEN, HF_ALWAYS),
    PLAIN(ATTN "k_proj.weight", HF_KEY, HF_HIDDEN, HF_ALWAYS),
    PLAIN(ATTN "v_proj.weight", HF_KEY, HF_HIDDEN, HF_ALWAYS),
    PLAIN(ATTN "q_norm.weight", HF_QUERY, HF_NONE, HF_ALWAYS),
    PLAIN(ATTN "k_norm.weight", HF_KEY, HF_NONE, HF_ALWAYS),
    PLAIN(ATTN "o_proj.weight", HF_HIDDEN, HF_QUERY, HF_ALWAYS),
    RENAMED(MLP "gate.weight", SPARSE "gate.weight", HF_EXPERTS, HF_HIDDEN,
            HF_IF_EXPERTS),
    EXPERT(MLP "experts.gate_up_proj", SPARSE "experts.@.w1.weight",
           SPARSE "experts.@.w3.weight", HF_GATE_UP, HF_HIDDEN),
    EXPERT(MLP "experts.down_proj", SPARSE "experts.@.w2.weight", NULL, HF_DOWN,
           HF_EXPERT_FFN),
    ROW(MLP "gate." BIAS, SPARSE BIAS, HF_EXPERTS, HF_NONE, HF_IF_BIAS,
        HF_EXACT),
    ROTARY_END};

static const loong_hf_row_t ernie_moe_rows[] = {
    ROTARY_ATTENTION,
    DENSE,
    PLAIN(MLP "gate_proj.bias", HF_FFN, HF_NONE, HF_IF_MLP_BIAS),
    PLAIN(MLP "up_proj.bias", HF_FFN, HF_NONE, HF_IF_MLP_BIAS),
    PLAIN(MLP "down_proj.bias", HF_HIDDEN, HF_NONE, HF_IF_MLP_BIAS),
    ROUTER(HF_EXACT),
    MIXTURE_EXPERTS,
    ROW(MLP "gate." BIAS, MLP "moe_statics." BIAS, HF_EXPERTS, HF_NONE,
        HF_IF_BIAS, HF_EXACT | HF_FLAT),
    SHARED_EXPERTS(0),
    ROTARY_END};

/* A set of experts for texts, one for images; the router weights of all are
 * [in, out]. */
#define VISION MLP "vision_moe."
static const loong_hf_row_t ernie_vl_rows[] = {
    ROTARY_ATTENTION,
    DENSE,
    ROW(MLP "text_moe.gate.weight", MLP "gate.weight", HF_EXPERTS, HF_HIDDEN,
        HF_IF_EXPERTS, HF_TURNED | HF_EXACT),
    ROW(VISION "gate.weight", MLP "gate.weight_1", HF_EXPERTS, HF_HIDDEN,
        HF_IF_EXPERTS, HF_TURNED | HF_EXACT),
    EXPERT(MLP "text_moe.experts.gate_up_proj",
           MLP "experts.@.gate_proj.weight", MLP "experts.@.up_proj.weight",
           HF_GATE_UP, HF_HIDDEN),
    EXPERT(MLP "text_moe.experts.down_proj", MLP "experts.@.down_proj.weight",
           NULL, HF_DOWN, HF_EXPERT_FFN),
    EXPERT(VISION "experts.gate_up_proj", MLP "experts.@+.gate_proj.weight",
           MLP "experts.@+.up_proj.weight", HF_VISION_GATE_UP, HF_HIDDEN),
    EXPERT(VISION "experts.down_proj", MLP "experts.@+.down_proj.weight", NULL,
           HF_DOWN, HF_VISION_FFN),
    ROW(MLP "gate." BIAS, MLP "moe_statics." BIAS, HF_ALL_EXPERTS, HF_NONE,
        HF_IF_BIAS, HF_EXACT | HF_FLAT),
    SHARED_EXPERTS(0),
    ROTARY_END};
/* What sees images: no part of the language model. */
static const char *const ernie_vl_beside[] = {
    "vision_model.", "model.vision_model.", "model.resampler_model.", NULL};

const loong_hf_names_t loongi_hf_decoder_names[] = {
    {"gpt2", "transformer.", gpt2_rows, false, NULL},
    {"llama", "model.", rotary_rows, false, NULL},
    {"phi3", "model.", phi3_rows, false, NULL},
    {"qwen", "transformer.", qwen_rows, false, NULL},
    {"internlm2", "model.", internlm2_rows, false, NULL},
    {"mimo", "model.", rotary_rows, true, NULL},
    {"ernie4_5", "model.", rotary_rows, false, NULL},
    {"gemma", "model.", rotary_rows, false, NULL},
    {"glm", "model.", glm_rows, false, NULL},
    {"glm4", "model.", glm4_rows, false, NULL},
    {"qwen2", "model.", rotary_rows, false, NULL},
    {"qwen3", "model.", rotary_rows, false, NULL},
    {"qwen2_moe", "model.", qwen_moe_rows, false, NULL},
    {"qwen3_moe", "model.", qwen_moe_rows, false, NULL},
    {"qwen3_vl_moe", "model.", qwen3_vl_moe_rows, false, NULL},
    {"mixtral", "model.", mixtral_rows, false, NULL},
    {"ernie4_5_moe", "model.", ernie_moe_rows, true, NULL},
    {"ernie4_5_vl_moe", "model.", ernie_vl_rows, false, ernie_vl_beside},
    {"minimax_m2", "model.", minimax_m2_rows, true, NULL},
    {"deepseek_v2", "model.", deepseek_rows, false, NULL},
    {"deepseek_v3", "model.", deepseek_rows, true, NULL},
    {"kimi_k2", "model.", deepseek_rows, true, NULL},
    {NULL, NULL, NULL, false, NULL}};

/* ---- sizes --------------------------------------------------------------- */

static loong_status_t read_size(loong_hf_map_t *map, const loong_pairs_t *model,
                                const char *key, int64_t *size_p)
{
    int64_t size = 0;
    const char *text = loongi_pairs_get(model, key);
    LOONG_CHECK(map->ctx,
                loongi_pairs_int(model, key, &size) && size > 0 &&
                    size <= INT32_MAX,
                LOONG_ERR_ARG, "%s = %s: a positive 32-bit integer is needed",
                key, text != NULL ? text : "(missing)");
    *size_p = size;
    return LOONG_OK;
}

/* Layers without experts have a feed-forward. */
static loong_status_t read_kinds(loong_hf_map_t *map,
                                 const loong_pairs_t *model)
{
    const char *kinds = loongi_pairs_get(model, "moe_layer_freq");
    char problem[128];
    LOONG_CHECK(map->ctx,
                map->layers <= LOONG_MAX_LAYERS &&
                    loongi_layer_kinds_parse(kinds, map->layers, &map->kinds,
                                             problem),
                LOONG_ERR_ARG, "moe_layer_freq = %s: %s", kinds, problem);
    return LOONG_OK;
}

static loong_status_t read_experts(loong_hf_map_t *map,
                                   const loong_pairs_t *model)
{
    static const char shared[] = "moe_shared_expert_intermediate_size";
    static const char vision[] = "moe_vision_ffn_hidden_size";
    int64_t *s = map->sizes;
    LOONG_TRY(read_size(map, model, "num_experts", &s[HF_EXPERTS]));
    LOONG_TRY(read_size(map, model, "moe_ffn_hidden_size", &s[HF_EXPERT_FFN]));
    s[HF_GATE_UP] = 2 * s[HF_EXPERTS] * s[HF_EXPERT_FFN];
    s[HF_DOWN] = s[HF_EXPERTS] * s[HF_HIDDEN];
    s[HF_ALL_EXPERTS] = s[HF_EXPERTS];
    if (loongi_pairs_get(model, vision) != NULL) {
        LOONG_TRY(read_size(map, model, vision, &s[HF_VISION_FFN]));
        s[HF_VISION_GATE_UP] = 2 * s[HF_EXPERTS] * s[HF_VISION_FFN];
        s[HF_ALL_EXPERTS] *= 2;
    }
    LOONG_TRY(read_kinds(map, model));
    map->conditions[HF_IF_EXPERTS] = true;
    map->conditions[HF_IF_BIAS] =
        loongi_pairs_true(model, "moe_router_enable_expert_bias");
    if (loongi_pairs_get(model, shared) != NULL) {
        LOONG_TRY(read_size(map, model, shared, &s[HF_SHARED_FFN]));
        map->conditions[HF_IF_SHARED] = true;
        map->conditions[HF_IF_SHARED_GATE] =
            loongi_pairs_true(model, "moe_shared_expert_gate");
    }
    return LOONG_OK;
}

static loong_status_t read_latent(loong_hf_map_t *map,
                                  const loong_pairs_t *model, int64_t heads)
{
    int64_t nope = 0;
    int64_t rope = 0;
    int64_t value = 0;
    int64_t *s = map->sizes;
    LOONG_TRY(read_size(map, model, "kv_lora_rank", &s[HF_KV_RANK]));
    LOONG_TRY(read_size(map, model, "qk_head_dim", &nope));
    LOONG_TRY(read_size(map, model, "qk_pos_emb_head_dim", &rope));
    LOONG_TRY(read_size(map, model, "v_head_dim", &value));
    s[HF_QUERY] = heads * (nope + rope);
    s[HF_KV_A] = s[HF_KV_RANK] + rope;
    s[HF_KV_B] = heads * (nope + value);
    s[HF_VALUE] = heads * value;
    map->conditions[HF_IF_SHORT_Q] =
        loongi_pairs_get(model, "q_lora_rank") != NULL;
    map->conditions[HF_IF_WHOLE_Q] = !map->conditions[HF_IF_SHORT_Q];
    map->conditions[HF_IF_SHORT_Q_BIAS] =
        map->conditions[HF_IF_SHORT_Q] &&
        loongi_pairs_true(model, "add_qkv_bias");
    return map->conditions[HF_IF_SHORT_Q]
               ? read_size(map, model, "q_lora_rank", &s[HF_Q_RANK])
               : LOONG_OK;
}

loong_status_t loongi_hf_decoder_size(loong_hf_map_t *map,
                                      const loong_pairs_t *model)
{
    int64_t heads = 0;
    int64_t groups = 0;
    int64_t *s = map->sizes;
    LOONG_TRY(read_size(map, model, "num_layers", &map->layers));
    LOONG_TRY(read_size(map, model, "hidden_size", &s[HF_HIDDEN]));
    LOONG_TRY(read_size(map, model, "ffn_hidden_size", &s[HF_FFN]));
    LOONG_TRY(read_size(map, model, "vocab_size", &s[HF_VOCAB]));
    LOONG_TRY(
        read_size(map, model, "max_position_embeddings", &s[HF_POSITION]));
    LOONG_TRY(read_size(map, model, "kv_channels", &s[HF_HEAD]));
    LOONG_TRY(read_size(map, model, "num_attention_heads", &heads));
    LOONG_TRY(read_size(map, model, "num_query_groups", &groups));
    s[HF_NONE] = 1;
    map->groups = groups;
    s[HF_QUERY] = heads * s[HF_HEAD];
    s[HF_KEY] = groups * s[HF_HEAD];
    if (loongi_pairs_get(model, "kv_lora_rank") != NULL) {
        LOONG_TRY(read_latent(map, model, heads));
    }
    map->conditions[HF_ALWAYS] = true;
    map->conditions[HF_IF_MLP_BIAS] =
        loongi_pairs_true(model, "add_bias_linear");
    map->conditions[HF_IF_QKV_BIAS] = loongi_pairs_true(model, "add_qkv_bias");
    map->conditions[HF_IF_PROJ_BIAS] =
        loongi_pairs_true(model, "add_attn_proj_bias");
    map->conditions[HF_IF_QK_NORM] = loongi_pairs_true(model, "qk_layernorm");
    map->conditions[HF_IF_UNTIED] =
        loongi_pairs_true(model, "untie_embeddings_and_output_weights");
    return loongi_pairs_get(model, "num_experts") != NULL
               ? read_experts(map, model)
               : LOONG_OK;
}
