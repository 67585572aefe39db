/* SPDX-License-Identifier: Apache-2.0
 *
 * What the name of a family alone says: the defaults of the type's
 * configuration class in transformers, and all of it is stated. */
#include <stdio.h>

#include "decoder_config.h"
#include "file.h"
#include "hf_config.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(dir)

#define SIZES                                                             \
    "\"num_hidden_layers\":3,\"hidden_size\":64,\"intermediate_size\":8," \
    "\"num_attention_heads\":8,\"num_key_value_heads\":8,"               \
    "\"vocab_size\":11,\"max_position_embeddings\":32"
#define EXPERTS                                      \
    ",\"num_experts\":4,\"num_experts_per_tok\":2," \
    "\"moe_intermediate_size\":8"
#define ROUTED                                             \
    ",\"n_routed_experts\":16,\"num_experts_per_tok\":4," \
    "\"n_shared_experts\":1,\"moe_intermediate_size\":8,"  \
    "\"first_k_dense_replace\":1"
#define TYPE(name_) "\"model_type\":\"" name_ "\"," SIZES

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

/* What a recipe says beside the family: how large the model is. Dropout is
 * none when it is not asked for, whatever a class does. */
static const char *const sizes[] = {
    "num_layers",       "hidden_size",         "ffn_hidden_size",
    "vocab_size",       "num_attention_heads", "max_position_embeddings",
    "num_query_groups", "kv_channels",         "attention_dropout",
    "hidden_dropout",   "embedding_dropout",   "kv_lora_rank",
    "q_lora_rank",      "qk_head_dim",         "qk_pos_emb_head_dim",
    "v_head_dim",       "num_experts",         "moe_layer_freq",
    "moe_router_topk",  "moe_ffn_hidden_size", "moe_router_num_groups",
    "moe_router_group_topk", "moe_router_group_scores",
    "moe_shared_expert_intermediate_size", "moe_vision_ffn_hidden_size",
    "family"};

/* What each type's class has by default. */
static const char *const types[] = {
    "\"model_type\":\"gpt2\"",
    TYPE("llama"),
    "\"model_type\":\"qwen\",\"num_hidden_layers\":3,\"hidden_size\":64,"
    "\"intermediate_size\":8,\"num_attention_heads\":8,\"vocab_size\":11,"
    "\"seq_length\":32",
    TYPE("phi3"),
    TYPE("qwen2"),
    TYPE("qwen3"),
    TYPE("mimo"),
    TYPE("ernie4_5"),
    TYPE("gemma"),
    TYPE("glm"),
    TYPE("glm4"),
    TYPE("internlm2"),
    TYPE("mixtral"),
    TYPE("qwen2_moe") EXPERTS ",\"shared_expert_intermediate_size\":8",
    TYPE("qwen3_moe") EXPERTS,
    TYPE("ernie4_5_moe") ",\"moe_num_shared_experts\":1",
    TYPE("minimax_m2"),
    TYPE("deepseek_v2") ROUTED ",\"topk_method\":\"greedy\"",
    TYPE("deepseek_v3") ROUTED,
    TYPE("kimi_k2") ROUTED,
};

static loong_pairs_t *only_sizes(loong_context_t *ctx,
                                 const loong_pairs_t *pairs)
{
    loong_pairs_t *kept = NULL;
    assert_ok(ctx, loongi_pairs_create(ctx, &kept));
    for (int64_t i = 0; i < LOONG_COUNT_OF(sizes); i++) {
        const char *value = loongi_pairs_get(pairs, sizes[i]);
        if (value != NULL) {
            assert_ok(ctx, loongi_pairs_set(kept, sizes[i], value));
        }
    }
    return kept;
}

/* A family in a recipe, and its sizes, is the model that a config.json with
 * these sizes is. */
static void families_are_classes(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        assert_ok(ctx, take(ctx, types[i], &pairs));
        loong_pairs_t *said = only_sizes(ctx, pairs);
        loong_decoder_config_t class = settled(ctx, pairs);
        for (int64_t k = 0; k < pairs->count; k++) {
            const loong_pair_t *pair = &pairs->items[k];
            loong_decoder_config_t before = settled(ctx, said);
            assert_ok(ctx, loongi_pairs_set(said, pair->key, pair->value));
            loong_decoder_config_t behind = settled(ctx, said);
            if (memcmp(&before, &behind, sizeof(before)) != 0) {
                fail_msg("%s: its class has %s %s, the family alone has not",
                         types[i], pair->key, pair->value);
            }
        }
        loong_decoder_config_t family = settled(ctx, said);
        assert_memory_equal(&class, &family, sizeof(class));
        loongi_pairs_destroy(&said);
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

static loong_status_t add_pair(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* Without what has no effect: rotation of learned positions, a router of no
 * experts. */
static loong_decoder_config_t bare(loong_decoder_config_t c)
{
    if (c.learned_positions) {
        memset(&c.rope, 0, sizeof(c.rope));
        c.rope_interleaved = false;
        c.rotary_percent = 1.0;
    }
    if (c.num_experts == 0) {
        memset(&c.router, 0, sizeof(c.router));
        c.expert_bias = false;
    }
    c.shared_expert_gate = c.shared_expert_gate && c.shared_expert_ffn > 0;
    return c;
}

/* A model states all that its family says: with it every other family is the
 * same model. */
static void states_its_family(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        loong_decoder_config_t own;
        assert_ok(ctx, take(ctx, types[i], &pairs));
        loong_pairs_t *said = only_sizes(ctx, pairs);
        assert_ok(ctx, loongi_decoder_configure(ctx, said, &own));
        assert_ok(ctx, loongi_decoder_state(&own, add_pair, said));
        assert_ok(ctx, loongi_hf_config_check(ctx, said));
        for (int64_t k = 0; k < LOONG_COUNT_OF(types); k++) {
            loong_pairs_t *other = NULL;
            loong_decoder_config_t config;
            assert_ok(ctx, take(ctx, types[k], &other));
            const char *family = loongi_pairs_get(other, "family");
            assert_ok(ctx, loongi_pairs_set(said, "family", family));
            bool taken =
                loongi_decoder_configure(ctx, said, &config) == LOONG_OK;
            own = bare(own);
            config = bare(config);
            if (taken && memcmp(&own, &config, sizeof(own)) != 0) {
                fail_msg("%s: family %s is another model, and nothing says so",
                         types[i], family);
            }
            if (!taken && own.num_experts > 0) {
                fail_msg("%s, family %s: %s", types[i], family,
                         loong_context_error(ctx));
            }
            loong_context_clear_error(ctx);
            loongi_pairs_destroy(&other);
        }
        loongi_pairs_destroy(&said);
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_are_classes),
                                       cmocka_unit_test(states_its_family)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
