/* SPDX-License-Identifier: Apache-2.0
 *
 * What a config.json means by what it does not say, or says in a way that few
 * files do: the defaults are those of transformers' configuration classes. */
#include <dirent.h>
#include <unistd.h>

#include "decoder_config.h"
#include "file.h"
#include "hf_code.h"
#include "hf_config.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

#define SIZES                                                            \
    "\"num_hidden_layers\":3,\"hidden_size\":64,\"intermediate_size\":8," \
    "\"num_attention_heads\":8,\"vocab_size\":11,"                        \
    "\"max_position_embeddings\":32"
#define EXPERTS "\"num_experts\":4,\"moe_intermediate_size\":8,"
#define V3                                                         \
    "\"model_type\":\"deepseek_v3\"," SIZES ",\"n_routed_experts\":16," \
    "\"n_shared_experts\":1,\"moe_intermediate_size\":8,"          \
    "\"first_k_dense_replace\":1,"
#define V2                                                              \
    "\"model_type\":\"deepseek_v2\"," SIZES ",\"first_k_dense_replace\":0," \
    "\"n_routed_experts\":4,\"n_shared_experts\":1,"                    \
    "\"moe_intermediate_size\":8,\"num_experts_per_tok\":2,"
#define M2 "\"model_type\":\"minimax_m2\"," SIZES ",\"num_local_experts\":8,"
#define ERNIE_MOE                                                       \
    "\"model_type\":\"ernie4_5_moe\",\"num_key_value_heads\":8," SIZES  \
    ",\"moe_num_shared_experts\":1"

#define PHI3 "\"model_type\":\"phi3\"," SIZES

#define FP8(block_)                                                 \
    "\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{" \
    "\"quant_method\":\"fp8\",\"weight_block_size\":" block_ "}"

typedef struct row {
    const char *json;
    const char *key;   /* NULL: refused */
    const char *value; /* NULL: not there; refused: a part of the message */
} row_t;

#define MIXTURE                                                             \
    "\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":8," EXPERTS SIZES \
    ",\"num_experts_per_tok\":2,"
#define ERNIE "\"model_type\":\"ernie4_5\",\"num_key_value_heads\":2," SIZES

static const row_t rows[] = {
    /* of publishers' files, which no class reads */
    {MIXTURE "\"qkv_bias\":false,\"shared_expert_intermediate_size\":0,"
             "\"use_qk_norm\":true",
     "qk_layernorm", "true"},
    {MIXTURE "\"shared_expert_intermediate_size\":8", NULL,
     "shared_expert_intermediate_size = 8"},
    {MIXTURE "\"use_qk_norm\":false", NULL, "use_qk_norm = false"},
    {ERNIE ",\"architectures\":[\"Ernie4_5_ForCausalLM\"],"
           "\"auto_map\":{\"AutoConfig\":\"a.B\"},\"use_rmsnorm\":true,"
           "\"fuse_rope\":true,\"max_sequence_length\":4096,"
           "\"hidden_dropout_prob\":0.0",
     "max_position_embeddings", "32"},
    {ERNIE ",\"architectures\":[\"Ernie4_5Model\"]", NULL,
     "(Ernie4_5ForCausalLM is)"},
    {ERNIE ",\"use_rmsnorm\":false", NULL, "use_rmsnorm = false"},
    {M2 "\"num_key_value_heads\":2,\"quantization_config\":{"
        "\"activation_scheme\":\"dynamic\",\"fmt\":\"float8_e4m3fn\","
        "\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}",
     "num_experts", "8"},
    /* blocks of another form than two sizes */
    {FP8("[16.0,16.0]"), NULL,
     "quantization_config.weight_block_size = [16.0,16.0] is not supported "
     "(two positive integers are needed)"},
    {FP8("\"16x16\""), NULL, "weight_block_size = \"16x16\""},
    {FP8("[0,16]"), NULL, "weight_block_size = [0,16]"},
    {FP8("[16,16,16]"), NULL, "weight_block_size = [16,16,16]"},
    {FP8("null"), "num_layers", "3"},
    {"\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{"
     "\"quant_method\":\"compressed-tensors\",\"format\":"
     "\"float-quantized\",\"config_groups\":{\"group_0\":{\"weights\":{"
     "\"block_structure\":[16]}}}}",
     NULL, "config_groups: block_structure = [16]"},
    {M2 "\"num_key_value_heads\":2,\"attn_type_list\":[1,1,1]",
     "num_layers", "3"},
    {M2 "\"num_key_value_heads\":2,\"attn_type_list\":[1,1,0]", NULL,
     "attn_type_list = [1,1,0] is not supported (1 for every layer is)"},
    {M2 "\"num_key_value_heads\":2,\"attn_type_list\":[1]", NULL,
     "one entry for each layer"},
    {"\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,"
     "\"output_past\":true,\"n_ctx\":1024",
     "num_layers", "1"},
    {"\"model_type\":\"qwen2\",\"num_key_value_heads\":8," SIZES
     ",\"dual_chunk_attention_config\":{\"chunk_size\":16}",
     "max_position_embeddings", "32"},
    /* a window in all layers; its yarn and su are LongRoPE too */
    {PHI3 ",\"sliding_window\":2047,\"resid_pdrop\":0.25", "window_size",
     "2047"},
    {PHI3 ",\"resid_pdrop\":0.25", "hidden_dropout", "0.25"},
    {PHI3 ",\"partial_rotary_factor\":0.75", "rotary_percent", "0.75"},
    {PHI3 ",\"original_max_position_embeddings\":4096", "window_size", NULL},
    {PHI3 ",\"embd_pdrop\":0.1", NULL, "embd_pdrop = 0.1"},
    {PHI3 ",\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1,1],"
          "\"long_factor\":[1,2]}",
     NULL, "rope_scaling.rope_type = 'su' is not supported (default is; "
           "LongRoPE is not computed)"},
    {PHI3 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}", NULL,
     "rope_scaling.rope_type = 'yarn' is not supported (default is"},
    /* how many heads share a key, and how wide they are */
    {"\"model_type\":\"llama\"," SIZES, "num_query_groups", "8"},
    {"\"model_type\":\"mixtral\"," SIZES, NULL, "num_key_value_heads"},
    {"\"model_type\":\"qwen2\"," SIZES, NULL, "num_key_value_heads"},
    {"\"model_type\":\"ernie4_5\"," SIZES, NULL, "num_key_value_heads"},
    {"\"model_type\":\"ernie4_5\",\"num_key_value_heads\":null," SIZES,
     "num_query_groups", "8"},
    {"\"model_type\":\"ernie4_5\",\"num_key_value_heads\":2," SIZES,
     "kv_channels", "128"},
    {"\"model_type\":\"ernie4_5\",\"num_key_value_heads\":2,"
     "\"head_dim\":null," SIZES,
     "kv_channels", "8"},
    {M2 "\"num_key_value_heads\":2", "kv_channels", "128"},
    /* groups of experts */
    {V3 "\"num_experts_per_tok\":8", "moe_router_num_groups", "8"},
    {V3 "\"num_experts_per_tok\":8", "moe_router_group_topk", "4"},
    {V3 "\"num_experts_per_tok\":8,\"n_group\":1", "moe_router_num_groups",
     NULL},
    {V2 "\"topk_method\":\"group_limited_greedy\"", "moe_router_num_groups",
     NULL},
    {V2 "\"topk_method\":\"group_limited_greedy\",\"n_group\":2,"
        "\"topk_group\":1",
     "moe_router_group_scores", "1"},
    {V2 "\"topk_method\":\"group_limited_greedy\",\"n_group\":1,"
        "\"topk_group\":0",
     NULL, "topk_group = 0"},
    {V3 "\"num_experts_per_tok\":8,\"n_group\":1,\"topk_group\":0", NULL,
     "topk_group = 0"},
    {V3 "\"num_experts_per_tok\":8,\"n_group\":1,\"topk_group\":1",
     "moe_router_num_groups", NULL},
    {ERNIE_MOE, "moe_shared_expert_intermediate_size", "1536"},
    /* weights of experts: divided by their sum, one alone as well */
    {V3 "\"num_experts_per_tok\":2", "moe_router_norm_topk_prob", NULL},
    {V3 "\"num_experts_per_tok\":2,\"norm_topk_prob\":false",
     "moe_router_norm_topk_prob", "false"},
    {V3 "\"num_experts_per_tok\":1", "moe_router_norm_topk_prob", "true"},
    {V3 "\"num_experts_per_tok\":1,\"norm_topk_prob\":false",
     "moe_router_norm_topk_prob", NULL},
    {M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":1",
     "moe_router_norm_topk_prob", "true"},
    /* flags that Python takes for false when they are null */
    {V3 "\"num_experts_per_tok\":8,\"norm_topk_prob\":null", NULL,
     "norm_topk_prob = null is not supported (true or false is needed)"},
    {V3 "\"num_experts_per_tok\":8,\"rope_interleave\":null", NULL,
     "rope_interleave = null"},
    {MIXTURE "\"norm_topk_prob\":null", "moe_router_pre_softmax", "true"},
    {ERNIE ",\"tie_word_embeddings\":null", NULL,
     "tie_word_embeddings = null"},
    {"\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":null",
     "untie_embeddings_and_output_weights", "true"},
    {"\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,"
     "\"scale_attn_weights\":null",
     NULL, "scale_attn_weights = null"},
    {"\"model_type\":\"llama\"," SIZES ",\"is_causal\":true", "num_layers",
     "3"},
    {"\"model_type\":\"llama\"," SIZES ",\"is_causal\":false", NULL,
     "is_causal = false"},
    {"\"model_type\":\"llama\"," SIZES ",\"is_causal\":null", NULL,
     "is_causal = null"},
    /* a window of usual width, behind the first layers */
    {"\"model_type\":\"qwen2\",\"num_key_value_heads\":8,"
     "\"use_sliding_window\":true,\"max_window_layers\":1," SIZES,
     "window_size", "4096"},
    {"\"model_type\":\"qwen2\",\"num_key_value_heads\":8,"
     "\"use_sliding_window\":true,\"max_window_layers\":1," SIZES,
     "max_window_layers", "1"},
    {"\"model_type\":\"qwen3\",\"num_key_value_heads\":8,"
     "\"use_sliding_window\":true,\"max_window_layers\":1,"
     "\"sliding_window\":null," SIZES,
     "window_size", NULL},
    {"\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":8," EXPERTS SIZES
     ",\"num_experts_per_tok\":2,\"use_sliding_window\":true,"
     "\"sliding_window\":5,\"max_window_layers\":2",
     "window_size", "5"},
    {"\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":8," EXPERTS SIZES
     ",\"num_experts_per_tok\":2,\"use_sliding_window\":true,"
     "\"sliding_window\":5,\"max_window_layers\":2",
     "max_window_layers", NULL},
    {"\"model_type\":\"llama\"," SIZES
     ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,"
     "\"attention_factor\":0.0}",
     NULL, "rope_scaling.attention_factor = 0.0"},
    /* transformers wants the width of a head beside YaRN and dynamic */
    {"\"model_type\":\"mixtral\",\"num_key_value_heads\":2," SIZES
     ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}",
     "kv_channels", "8"},
    {"\"model_type\":\"mixtral\",\"num_key_value_heads\":2," SIZES
     ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}",
     "kv_channels", "8"},
    /* numbers of layers that are none */
    {"\"model_type\":\"deepseek_v2\"," SIZES ",\"first_k_dense_replace\":\"x\"",
     NULL, "first_k_dense_replace = \"x\""},
    {"\"model_type\":\"ernie4_5_moe\",\"num_key_value_heads\":8," SIZES
     ",\"moe_num_shared_experts\":0,\"moe_layer_start_index\":0.5",
     NULL, "moe_layer_start_index = 0.5"},
    {"\"model_type\":\"ernie4_5_moe\",\"num_key_value_heads\":8," SIZES
     ",\"moe_num_shared_experts\":0,\"moe_layer_end_index\":[2]",
     NULL, "moe_layer_end_index = [2]"},
    /* no layer with experts */
    {"\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":8," EXPERTS SIZES
     ",\"num_experts_per_tok\":2,\"mlp_only_layers\":[0,1,2]",
     NULL, "mlp_only_layers, decoder_sparse_step: no layer has experts"},
};

static loong_status_t take(loong_context_t *ctx, const char *json,
                           loong_pairs_t **pairs_p)
{
    char path[256];
    char text[2048];
    snprintf(path, sizeof(path), "%s/config.json", dir);
    snprintf(text, sizeof(text), "{%s}", json);
    assert_ok(ctx, loongi_file_write(ctx, path, text, strlen(text)));
    return loongi_hf_config_read(ctx, dir, pairs_p);
}

static void check_row(const row_t *row)
{
    loong_context_t *ctx = test_context();
    loong_pairs_t *pairs = NULL;
    loong_status_t status = take(ctx, row->json, &pairs);
    const char *told = loong_context_error(ctx);
    if (row->key == NULL) {
        if (status == LOONG_OK || strstr(told, row->value) == NULL) {
            fail_msg("%s: found %s, %s wanted", row->json, told, row->value);
        }
    } else {
        const char *value = status == LOONG_OK
                                ? loongi_pairs_get(pairs, row->key)
                                : told;
        if ((value == NULL) != (row->value == NULL) ||
            (value != NULL && strcmp(value, row->value) != 0)) {
            fail_msg("%s: %s is %s, %s wanted", row->json, row->key,
                     value != NULL ? value : "absent",
                     row->value != NULL ? row->value : "absent");
        }
    }
    loongi_pairs_destroy(&pairs);
    test_context_end(&ctx);
}

static void means(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(rows); i++) {
        check_row(&rows[i]);
    }
}

/* Written and read again it means the same. */
static void comes_back(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(rows); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *first = NULL;
        loong_pairs_t *second = NULL;
        if (rows[i].key == NULL) {
            test_context_end(&ctx);
            continue;
        }
        assert_ok(ctx, take(ctx, rows[i].json, &first));
        loong_hf_config_params_t params = {
            .dir = dir, .model = first, .dtype = LOONG_BF16};
        assert_ok(ctx, loongi_hf_config_write(ctx, &params));
        assert_ok(ctx, loongi_hf_config_read(ctx, dir, &second));
        for (int64_t k = 0; k < first->count; k++) {
            double x = 0.0;
            double y = 0.0;
            const char *key = first->items[k].key;
            const char *value = loongi_pairs_get(second, key);
            assert_non_null(value);
            if (loongi_pairs_real(first, key, &x)) {
                assert_true(loongi_pairs_real(second, key, &y) && x == y);
            } else {
                assert_string_equal(value, first->items[k].value);
            }
        }
        assert_int_equal(first->count, second->count);
        loongi_pairs_destroy(&first);
        loongi_pairs_destroy(&second);
        test_context_end(&ctx);
    }
}

/* Fields that come with the checkpoint, or that transformers needs. */
static const struct {
    const char *json;
    const char *kept; /* or NULL */
    const char *text;
} texts[] = {
    {"\"model_type\":\"qwen2\",\"num_key_value_heads\":8," SIZES,
     "{\"chunk_size\":16}", "\"dual_chunk_attention_config\": "
                            "{\"chunk_size\":16}"},
    {"\"model_type\":\"mixtral\",\"num_key_value_heads\":2," SIZES
     ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}",
     NULL, "\"head_dim\": 8"},
};

static void is_written(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(texts); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        loong_pairs_t *kept = NULL;
        char path[256];
        char *text = NULL;
        size_t length = 0;
        assert_ok(ctx, take(ctx, texts[i].json, &pairs));
        assert_ok(ctx, loongi_pairs_create(ctx, &kept));
        if (texts[i].kept != NULL) {
            assert_ok(ctx, loongi_pairs_set(kept, "dual_chunk_attention_config",
                                            texts[i].kept));
        }
        loong_hf_config_params_t params = {
            .dir = dir, .model = pairs, .dtype = LOONG_BF16, .tokens = kept};
        assert_ok(ctx, loongi_hf_config_write(ctx, &params));
        snprintf(path, sizeof(path), "%s/config.json", dir);
        assert_ok(ctx, loongi_file_read(ctx, path, &text, &length));
        assert_non_null(strstr(text, texts[i].text));
        loongi_free(ctx, text);
        loongi_pairs_destroy(&kept);
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

/* As it would be without a key. */
static loong_pairs_t *without(loong_context_t *ctx, const loong_pairs_t *pairs,
                              const char *key)
{
    loong_pairs_t *rest = NULL;
    assert_ok(ctx, loongi_pairs_create(ctx, &rest));
    for (int64_t i = 0; i < pairs->count; i++) {
        if (strcmp(pairs->items[i].key, key) != 0) {
            assert_ok(ctx, loongi_pairs_set(rest, pairs->items[i].key,
                                            pairs->items[i].value));
        }
    }
    return rest;
}

/* What two ways of saying it come to. */
static loong_decoder_config_t settled(loong_context_t *ctx,
                                      const loong_pairs_t *pairs)
{
    loong_decoder_config_t c;
    assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &c));
    loong_router_attr_t *r = &c.router;
    if (r->group_topk > 0 && r->group_scores == 0) {
        r->group_scores = r->topk / r->group_topk;
    }
    if (r->weights == LOONG_WEIGHTS_AUTO &&
        r->score != LOONG_SCORE_SOFTMAX) {
        r->weights =
            r->topk > 1 ? LOONG_WEIGHTS_DIVIDED : LOONG_WEIGHTS_PLAIN;
    }
    c.scaled_output_init = false; /* config.json does not say it */
    return c;
}

/* One key left to the engine's default: what is written means that default,
 * not that of the class, or nothing is. Whether it is written. */
static bool means_default(loong_context_t *ctx, const loong_pairs_t *pairs,
                          const char *key)
{
    loong_decoder_config_t config;
    loong_pairs_t *back = NULL;
    loong_pairs_t *rest = without(ctx, pairs, key);
    loong_hf_config_params_t params = {
        .dir = dir, .model = rest, .dtype = LOONG_BF16};
    bool written = loongi_pairs_get(rest, "family") != NULL &&
                   loongi_decoder_configure(ctx, rest, &config) == LOONG_OK &&
                   loongi_hf_config_write(ctx, &params) == LOONG_OK;
    if (written) {
        assert_ok(ctx, loongi_hf_config_read(ctx, dir, &back));
        loong_decoder_config_t a = settled(ctx, rest);
        loong_decoder_config_t b = settled(ctx, back);
        if (memcmp(&a, &b, sizeof(a)) != 0) {
            fail_msg("without %s another model of family %s comes back", key,
                     loongi_pairs_get(rest, "family"));
        }
    }
    loong_context_clear_error(ctx);
    loongi_pairs_destroy(&back);
    loongi_pairs_destroy(&rest);
    return written;
}

static void leaves_to_defaults(void **state)
{
    (void)state;
    static const char *const models[] = {
        V3 "\"num_experts_per_tok\":4",
        V2 "\"n_group\":2,\"topk_group\":1,"
           "\"topk_method\":\"group_limited_greedy\"",
        M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":1",
        ERNIE_MOE, ERNIE, MIXTURE "\"norm_topk_prob\":true",
        "\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2",
        "\"model_type\":\"llama\"," SIZES
        ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0}"};
    int written = 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(models); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        assert_ok(ctx, take(ctx, models[i], &pairs));
        for (int64_t k = 0; k < pairs->count; k++) {
            written += means_default(ctx, pairs, pairs->items[k].key);
        }
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
    assert_true(written > 150);
}

/* Models that a type has no place for, by a key that is changed (NULL: left
 * to the engine's default). */
static const struct {
    const char *json;
    const char *key;
    const char *value;
    const char *message;
} changes[] = {
    /* it divides always: one weight is 1, not a score */
    {M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":1",
     "moe_router_norm_topk_prob", "auto",
     "moe_router_norm_topk_prob = false, with 1 experts a token"},
    {M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":2",
     "moe_ffn_hidden_size", "9", "moe_ffn_hidden_size = 9"},
    {"\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2",
     "window_size", "3", "window_size = 3: model type gpt2 has 0"},
    /* it counts from max_position_embeddings */
    {"\"model_type\":\"llama\"," SIZES
     ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}",
     "rope_scaling.original_max_position_embeddings", "16",
     "rope_scaling.original_max_position_embeddings = 16: model type llama "
     "has 32"},
    /* what the class has is not what the engine does by itself */
    {V3 "\"num_experts_per_tok\":4", "moe_router_group_scores", NULL,
     "moe_router_group_scores = 0, which takes 1: model type deepseek_v3 has "
     "2"},
    {V2 "\"n_group\":2,\"topk_group\":1,"
        "\"topk_method\":\"group_limited_greedy\"",
     "moe_router_group_scores", NULL,
     "moe_router_group_scores = 0, which takes 2: model type deepseek_v2 has "
     "1"},
    {V3 "\"num_experts_per_tok\":8", "moe_router_score_function", "softmax",
     "moe_router_score_function = softmax: model type deepseek_v3 has "
     "sigmoid"},
    {M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":2",
     "moe_router_score_function", "softmax",
     "moe_router_score_function = softmax: model type minimax_m2 has sigmoid"},
    {V3 "\"num_experts_per_tok\":8", "moe_router_enable_expert_bias", "false",
     "moe_router_enable_expert_bias = false: model type deepseek_v3 has true"},
    {M2 "\"num_key_value_heads\":2,\"num_experts_per_tok\":2",
     "moe_router_enable_expert_bias", "false",
     "moe_router_enable_expert_bias = false: model type minimax_m2 has true"},
    {ERNIE_MOE, "moe_router_enable_expert_bias", "false",
     "moe_router_enable_expert_bias = false: model type ernie4_5_moe has "
     "true"},
};

static void cannot_be_said(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(changes); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        assert_ok(ctx, take(ctx, changes[i].json, &pairs));
        assert_ok(ctx, loongi_hf_config_check(ctx, pairs));
        loong_pairs_t *other = without(ctx, pairs, changes[i].key);
        if (changes[i].value != NULL) {
            assert_ok(ctx, loongi_pairs_set(other, changes[i].key,
                                            changes[i].value));
        }
        assert_fails(ctx, loongi_hf_config_check(ctx, other),
                     LOONG_ERR_UNSUPPORTED, changes[i].message);
        loongi_pairs_destroy(&other);
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

/* How a model was trained, which not every type can say. */
static bool is_of_training(const char *key)
{
    return strstr(key, "dropout") != NULL || strstr(key, "init_method") ||
           strstr(key, "_loss") != NULL || strstr(key, "update_rate") ||
           strcmp(key, "family") == 0;
}

static loong_status_t note_key(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* The keys that count in a model, each in one way of writing. */
static loong_pairs_t *meaning(loong_context_t *ctx, const loong_pairs_t *model)
{
    loong_decoder_config_t config;
    loong_pairs_t *told = NULL;
    loong_pairs_t *whole = NULL;
    assert_ok(ctx, loongi_pairs_copy(ctx, model, &told));
    assert_ok(ctx, loongi_decoder_configure(ctx, model, &config));
    assert_ok(ctx, loongi_decoder_state(&config, note_key, told));
    assert_ok(ctx, loongi_pairs_copy(ctx, model, &whole));
    assert_ok(ctx, loongi_decoder_fill(ctx, whole));
    for (int64_t i = 0; i < told->count; i++) {
        const char *key = told->items[i].key;
        assert_ok(ctx,
                  loongi_pairs_set(told, key, loongi_pairs_get(whole, key)));
    }
    loongi_pairs_destroy(&whole);
    return told;
}

/* A model as another type: what is written is the same model, or nothing is.
 * Whether it is written. */
static bool stays_itself(loong_context_t *ctx, const loong_pairs_t *own,
                         const char *as)
{
    loong_pairs_t *other = NULL;
    loong_pairs_t *back = NULL;
    bool written = loongi_hf_model_as(ctx, own, as, true, &other) == LOONG_OK;
    loong_hf_config_params_t params = {
        .dir = dir, .model = other, .dtype = LOONG_BF16};
    written = written && loongi_hf_config_write(ctx, &params) == LOONG_OK;
    loong_pairs_t *want = meaning(ctx, own);
    if (written) {
        assert_ok(ctx, loongi_hf_config_read(ctx, dir, &back));
        assert_ok(ctx, loongi_decoder_fill(ctx, back));
    }
    for (int64_t i = 0; written && i < want->count; i++) {
        const char *key = want->items[i].key;
        const char *found = loongi_pairs_get(back, key);
        if (!is_of_training(key) &&
            (found == NULL || strcmp(found, want->items[i].value) != 0)) {
            fail_msg("%s as %s: %s is %s, was %s",
                     loongi_pairs_get(own, "family"), as, key,
                     found != NULL ? found : "absent", want->items[i].value);
        }
    }
    loong_context_clear_error(ctx);
    loongi_pairs_destroy(&want);
    loongi_pairs_destroy(&back);
    loongi_pairs_destroy(&other);
    return written;
}

/* Every published form as every type. */
static void is_no_other_model(void **state)
{
    (void)state;
    int written = 0;
    DIR *folder = opendir(FIXTURES);
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char path[512];
        char types[LOONG_HF_TYPE_LIST];
        loong_context_t *ctx = test_context();
        loong_pairs_t *own = NULL;
        snprintf(path, sizeof(path), FIXTURES "/%s", e->d_name);
        (void)loongi_hf_type_list(ctx, NULL, types);
        if (e->d_name[0] != '.') {
            assert_ok(ctx, loongi_hf_config_read(ctx, path, &own));
        }
        for (char *as = strtok(types, ", "); own != NULL && as != NULL;
             as = strtok(NULL, ", ")) {
            written += stays_itself(ctx, own, as);
        }
        loongi_pairs_destroy(&own);
        test_context_end(&ctx);
    }
    closedir(folder);
    assert_true(written > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(means),
                                       cmocka_unit_test(comes_back),
                                       cmocka_unit_test(is_written),
                                       cmocka_unit_test(leaves_to_defaults),
                                       cmocka_unit_test(cannot_be_said),
                                       cmocka_unit_test(is_no_other_model)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
