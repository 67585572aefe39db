/* SPDX-License-Identifier: Apache-2.0
 *
 * Every file under configs/: it loads, the decoder takes it, and the built
 * graph has as many parameters as the published model. */
#include <dirent.h>

#include "decoder_config.h"
#include "file.h"
#include "graph_impl.h"
#include "hf_config.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "test.h"

static char root[] = "configs_test.XXXXXX";

/* Parameters of the published weights, a tied output matrix counted once. */
static const struct {
    const char *file;
    int64_t parameters;
} models[] = {
    {"gpt2/124m", 124439808},
    {"gpt2/355m", 354823168},
    {"gpt2/774m", 774030080},
    {"gpt2/1.5b", 1557611200},
    {"llama2/7b", 6738415616},
    {"llama2/13b", 13015864320},
    {"llama2/70b", 68976648192},
    {"llama3/8b", 8030261248},
    {"llama3/70b", 70553706496},
    {"llama3.1/8b", 8030261248},
    {"llama3.1/70b", 70553706496},
    {"llama3.1/405b", 405853388800},
    {"qwen1.5/0.5b", 463987712},
    {"qwen1.5/1.8b", 1836828672},
    {"qwen1.5/4b", 3950369280},
    {"qwen1.5/7b", 7721324544},
    {"qwen1.5/14b", 14167290880},
    {"qwen1.5/32b", 32512218112},
    {"qwen1.5/72b", 72287920128},
    {"qwen1.5/110b", 111209914368},
    {"qwen2/0.5b", 494032768},
    {"qwen2/1.5b", 1543714304},
    {"qwen2/7b", 7615616512},
    {"qwen2/72b", 72706203648},
    {"qwen2.5/0.5b", 494032768},
    {"qwen2.5/1.5b", 1543714304},
    {"qwen2.5/3b", 3085938688},
    {"qwen2.5/7b", 7615616512},
    {"qwen2.5/14b", 14770033664},
    {"qwen2.5/32b", 32763876352},
    {"qwen2.5/72b", 72706203648},
    {"qwen3/0.6b", 596049920},
    {"qwen3/1.7b", 1720574976},
    {"qwen3/4b", 4022468096},
    {"qwen3/8b", 8190735360},
    {"qwen3/14b", 14768307200},
    {"qwen3/32b", 32762123264},
    {"qwen3_moe/30b-a3b", 30532122624},
    {"qwen3_moe/235b-a22b", 235093634560},
    {"qwen3_moe/coder-480b-a35b", 480154875392},
    {"mixtral/8x7b", 46702792704},
    {"mixtral/8x22b", 140620634112},
    {"qwen2_moe/1.5-a2.7b", 14315784192},
    {"qwen2_moe/57b-a14b", 57408658944},
    {"smollm2/135m", 134515008},
    {"smollm2/360m", 361821120},
    {"smollm2/1.7b", 1711376384},
    {"qwen/1.8b", 1836828672},
    {"qwen/7b", 7721324544},
    {"qwen/14b", 14167290880},
    {"qwen/72b", 72287920128},
    {"internlm2.5/1.8b", 1889110016},
    {"internlm2.5/7b", 7737708544},
    {"internlm2.5/20b", 19861149696},
    {"mimo/7b", 7622619136},
    {"ernie4.5/0.3b", 360748032},
    {"gpt3/175b", 174604259328},
    {"moe/1t-64e", 1001720324096},
    {"deepseek_v2/lite", 15706484224},
    {"deepseek_v2/236b", 235741434880},
    {"deepseek_v3/671b", 671026419200},
    {"kimi_k2/1t", 1026408232448},
    {"minimax_m2/230b", 228689764864},
    {"ernie4.5/21b-a3b", 21825437888},
};

static loong_status_t collect(void *user, const char *key, const char *value)
{
    return loongi_pairs_set(user, key, value);
}

/* The model keys of a recipe that has only this preset. */
static loong_pairs_t *load_model(loong_context_t *ctx, const char *file)
{
    char text[256];
    loong_recipe_t *recipe = NULL;
    loong_pairs_t *pairs = NULL;
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0, NULL, 0,
                                    NULL};
    snprintf(text, sizeof(text),
             "defaults: [models/%s.yaml@model.foundation]\n", file);
    assert_ok(ctx, loong_recipe_parse(ctx, file, text, &params, &recipe));
    assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
    assert_ok(ctx,
              loong_recipe_each(recipe, "model.foundation", collect, pairs));
    loong_recipe_destroy(&recipe);
    return pairs;
}

static loong_status_t add_stated(void *user, const char *key,
                                 const char *value)
{
    return loongi_pairs_get(user, key) != NULL
               ? LOONG_OK
               : loongi_pairs_set(user, key, value);
}

static int64_t count_parameters(loong_context_t *ctx,
                                const loong_decoder_config_t *config)
{
    loong_precision_t precision = {LOONG_F32, LOONG_F32};
    loong_model_request_t request = {.tokens = 16, .max_seqlen = 16,
                                     .max_segments = 1, .train = true,
                                     .begins = true, .ends = true,
                                     .num_layers = config->num_layers};
    loong_graph_t *graph = NULL;
    int64_t total = 0;
    assert_ok(ctx, loong_graph_create(ctx, precision, &graph));
    assert_ok(ctx, loongi_decoder_build(graph, config, &request));
    for (int64_t i = 0; i < graph->num_params; i++) {
        const loong_shape_t *shape = &graph->params[i].params.shape;
        int64_t size = 1;
        for (int d = 0; d < shape->rank; d++) {
            size *= shape->dim[d];
        }
        total += size;
    }
    loong_graph_destroy(&graph);
    return total;
}

static void test_parameters(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int64_t i = 0; i < LOONG_COUNT_OF(models); i++) {
        loong_decoder_config_t config;
        loong_pairs_t *pairs = load_model(ctx, models[i].file);
        assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
        int64_t found = count_parameters(ctx, &config);
        if (found != models[i].parameters) {
            fail_msg("%s: %lld parameters, published %lld", models[i].file,
                     (long long)found, (long long)models[i].parameters);
        }
        loongi_pairs_destroy(&pairs);
    }
    test_context_end(&ctx);
}

/* As Hugging Face's config.json and back: the same model. */
static void test_hugging_face(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(models); i++) {
        loong_decoder_config_t config;
        loong_decoder_config_t again;
        loong_pairs_t *back = NULL;
        char dir[128];
        loong_pairs_t *pairs = load_model(ctx, models[i].file);
        snprintf(dir, sizeof(dir), "%s/%s", root, models[i].file);
        assert_ok(ctx, loongi_dir_make(ctx, dir));
        loong_hf_config_params_t params = {dir, pairs, LOONG_BF16, NULL};
        assert_ok(ctx, loongi_hf_config_write(ctx, &params));
        assert_ok(ctx, loongi_hf_config_read(ctx, dir, &back));
        assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
        assert_ok(ctx, loongi_decoder_configure(ctx, back, &again));
        /* config.json does not say this one. */
        again.scaled_output_init = config.scaled_output_init;
        if (memcmp(&config, &again, sizeof(config)) != 0) {
            fail_msg("%s comes back from config.json as another model",
                     models[i].file);
        }
        loongi_pairs_destroy(&pairs);
        loongi_pairs_destroy(&back);
    }
    test_context_end(&ctx);
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
        loong_hf_config_params_t params = {root, pairs, LOONG_BF16, NULL};
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

/* Files of a directory that end in .yaml, with those below it. */
static int count_yaml(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char child[4096];
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        if (loongi_dir_exists(child)) {
            count += count_yaml(child);
        } else {
            size_t n = strlen(e->d_name);
            assert_true(n > 5 && strcmp(e->d_name + n - 5, ".yaml") == 0);
            count++;
        }
    }
    closedir(dir);
    return count;
}

/* No preset is missing from the table above. */
static void test_all_listed(void **state)
{
    (void)state;
    assert_int_equal(count_yaml(LOONG_SOURCE_DIR "/configs/models"),
                     LOONG_COUNT_OF(models));
}

static void test_recipes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char folder[] = LOONG_SOURCE_DIR "/configs/recipes";
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0, NULL, 0,
                                    NULL};
    int count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        char path[4096];
        loong_recipe_t *recipe = NULL;
        loong_pairs_t *pairs = NULL;
        loong_decoder_config_t config;
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        assert_ok(ctx, loong_recipe_load(ctx, path, &params, &recipe));
        assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
        assert_ok(ctx, loong_recipe_each(recipe, "model.foundation", collect,
                                         pairs));
        assert_ok(ctx, loongi_decoder_configure(ctx, pairs, &config));
        /* Benchmarks make their own data. */
        if (strncmp(e->d_name, "bench_", 6) != 0) {
            assert_ok(ctx, loong_recipe_check(recipe, 1));
        }
        loongi_pairs_destroy(&pairs);
        loong_recipe_destroy(&recipe);
        count++;
    }
    closedir(dir);
    assert_true(count >= 2);
    test_context_end(&ctx);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(root) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loongi_dir_remove(ctx, root));
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_hugging_face),
        cmocka_unit_test(test_whole_scalings),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_all_listed),
        cmocka_unit_test(test_recipes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
