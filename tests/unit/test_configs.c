/* SPDX-License-Identifier: Apache-2.0
 *
 * The recipes under configs/, and what the defaults of a model come to in
 * config.json. The presets: tests/models/test_presets.c. */
#include <dirent.h>

#include "decoder_config.h"
#include "file.h"
#include "hf_config.h"
#include "loong/family.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "resume_check.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(root)

static loong_status_t add_stated(void *user, const char *key,
                                 const char *value)
{
    return loongi_pairs_get(user, key) != NULL
               ? LOONG_OK
               : loongi_pairs_set(user, key, value);
}

static void set_pair(loong_context_t *ctx, loong_pairs_t *pairs,
                     const char *text)
{
    char key[64];
    const char *equal = strchr(text, '=');
    snprintf(key, sizeof(key), "%.*s", (int)(equal - text), text);
    assert_ok(ctx, loongi_pairs_set(pairs, key, equal + 1));
}

/* A scaling without its factor, and a factor without its scaling; what a
 * family's name says alone. */
static void test_whole_scalings(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"rope_scaling.type=linear", "rope_scaling.factor: must be set"},
        {"rope_scaling.factor=4", "rope_scaling.factor: has no effect"},
        {"rope_scaling.attention_factor=0",
         "rope_scaling.attention_factor: found 0, a positive number wanted"},
    };
    static const char *const base[] = {
        "family=gpt2", "num_layers=2", "hidden_size=24",
        "num_attention_heads=4", "vocab_size=97",
        "max_position_embeddings=64"};
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i <= LOONG_COUNT_OF(cases); i++) {
        loong_decoder_config_t config;
        loong_pairs_t *pairs = NULL;
        assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
        for (int64_t k = 0; k < LOONG_COUNT_OF(base); k++) {
            set_pair(ctx, pairs, base[k]);
        }
        if (i < LOONG_COUNT_OF(cases)) {
            set_pair(ctx, pairs, cases[i][0]);
            assert_fails(ctx, loongi_decoder_configure(ctx, pairs, &config),
                         LOONG_ERR_CONFIG, cases[i][1]);
        } else {
            assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
            assert_true(config.learned_positions && config.mlp_bias &&
                        config.normalization == LOONG_NORM_LAYER &&
                        config.mlp == LOONG_MLP_GELU_TANH);
        }
        loongi_pairs_destroy(&pairs);
    }
    test_context_end(&ctx);
}

/* What a recipe leaves to defaults is stated before it is exported, so that
 * config.json describes the model that was trained. */
static void test_defaults(void **state)
{
    (void)state;
    static const char *const cases[][6] = {
        {"family=llama"},
        {"family=llama", "rope_scaling.type=yarn", "rope_scaling.factor=4",
         "make_vocab_size_divisible_by=64", "window_size=0"},
        {"family=llama", "rope_scaling.type=llama3", "rope_scaling.factor=8"},
        {"family=llama", "rope_scaling.type=linear", "rope_scaling.factor=2",
         "add_bias_linear=true", "rotary_percent=1",
         "untie_embeddings_and_output_weights=true"},
        {"family=llama", "window_size=5", "num_query_groups=2"},
        {"family=qwen2", "add_qkv_bias=true", "rope_scaling.type=default"},
        {"family=qwen2", "add_qkv_bias=true", "window_size=0"},
        {"family=qwen3", "qk_layernorm=true"},
        {"family=gpt2", "position_embedding_type=learned_absolute",
         "normalization=LayerNorm", "add_bias_linear=true",
         "add_qkv_bias=true", "activation=gelu_tanh"},
    };
    static const char *const base[] = {
        "num_layers=2", "hidden_size=24", "num_attention_heads=4",
        "vocab_size=97", "max_position_embeddings=64"};
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_decoder_config_t config;
        loong_decoder_config_t again;
        loong_pairs_t *pairs = NULL;
        loong_pairs_t *back = NULL;
        assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
        for (int64_t k = 0; k < LOONG_COUNT_OF(base); k++) {
            set_pair(ctx, pairs, base[k]);
        }
        for (int k = 0; k < 6 && cases[i][k] != NULL; k++) {
            set_pair(ctx, pairs, cases[i][k]);
        }
        if (strcmp(cases[i][0], "family=gpt2") == 0) {
            set_pair(ctx, pairs, "add_attn_proj_bias=true");
        }
        assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
        assert_ok(ctx, loongi_decoder_state(&config, add_stated, pairs));
        loong_hf_config_params_t params = {
            .dir = root, .model = pairs, .dtype = LOONG_BF16};
        assert_ok(ctx, loongi_hf_config_write(ctx, &params));
        assert_ok(ctx, loongi_hf_config_read(ctx, root, &back));
        assert_ok(ctx, loongi_decoder_configure(ctx, back, &again));
        again.padded_vocab_size = config.padded_vocab_size;
        if (memcmp(&config, &again, sizeof(config)) != 0) {
            fail_msg("case %d comes back as another model", (int)i);
        }
        loongi_pairs_destroy(&pairs);
        loongi_pairs_destroy(&back);
    }
    test_context_end(&ctx);
}

/* As its family says; a sample of pictures is as long as one has rows. */
static void configure_component(loong_context_t *ctx, loong_recipe_t *recipe)
{
    char path[96];
    loong_model_facts_t facts = {0};
    const loong_family_t *family = loong_find_family(
        ctx, loongi_model_family(recipe, loongi_model_role(recipe)));
    assert_non_null(family);
    void *config = test_calloc(1, family->config_size);
    snprintf(path, sizeof(path), "model.%s", loongi_model_role(recipe));
    assert_ok(ctx, family->configure(ctx, recipe, path, config));
    family->facts(config, &facts);
    if (facts.patch_size > 0) {
        int64_t side = facts.image_size / facts.patch_size;
        snprintf(path, sizeof(path), "%lld",
                 (long long)(side * side + facts.class_token));
        assert_ok(ctx, loong_recipe_set(recipe, "data.seq_length", path,
                                        "the model's pictures"));
    }
    test_free(config);
}

static void test_recipes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    static const char folder[] = LOONG_SOURCE_DIR "/configs/recipes";
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0, NULL, 0,
                                    NULL};
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[4096];
        loong_recipe_t *recipe = NULL;
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        assert_ok(ctx, loong_recipe_load(ctx, path, &params, &recipe));
        configure_component(ctx, recipe);
        /* Benchmarks make their own data. */
        if (strncmp(e->d_name, "bench_", 6) != 0) {
            assert_ok(ctx, loong_recipe_check(recipe, 1));
        }
        loong_recipe_destroy(&recipe);
        count++;
    }
    closedir(dir);
    assert_true(count >= 2);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_scalings),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_recipes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
