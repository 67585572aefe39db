/* SPDX-License-Identifier: Apache-2.0
 *
 * How a recipe names its model: "model: qwen3/qwen3_8b", the overrides
 * "foundation.num_layers=4", and what is told of a name that nobody knows. */
#include "file.h"
#include "loong/recipe.h"
#include "test.h"
#include "test_dir.h"

#define CONFIGS LOONG_SOURCE_DIR "/configs"
#define M "model.foundation."

TEST_DIR(root)

/* A recipe with up to three overrides. */
typedef struct made {
    const char *text;
    const char *overrides[3];
} made_t;

static loong_status_t make(loong_context_t *ctx, const made_t *m,
                           loong_recipe_t **recipe_p)
{
    loong_recipe_params_t params = {CONFIGS, 0, m->overrides, 0, NULL};
    while (params.num_overrides < LOONG_COUNT_OF(m->overrides) &&
           m->overrides[params.num_overrides] != NULL) {
        params.num_overrides++;
    }
    return loong_recipe_parse(ctx, "r.yaml", m->text, &params, recipe_p);
}

/* A value of a recipe that must be good; NULL: not set. */
static void check(const made_t *m, const char *path, const char *value)
{
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    assert_ok(ctx, make(ctx, m, &r));
    const char *found = loong_recipe_text(r, path);
    if (found == NULL || value == NULL) {
        assert_ptr_equal(found, value);
    } else {
        assert_string_equal(found, value);
    }
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_name(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    made_t m = {"model: qwen3/qwen3_8b\n", {NULL}};
    check(&m, M "family", "qwen3");
    check(&m, M "num_layers", "36");
    assert_ok(ctx, make(ctx, &m, &r));
    const char *where = loong_recipe_where(r, M "num_layers");
    assert_non_null(strstr(where, "models/qwen3/qwen3_8b.yaml:3"));
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_overrides(void **state)
{
    (void)state;
    static const char text[] = "model: qwen3/qwen3_8b\n";
    made_t set = {text, {"foundation.num_layers=4"}};
    made_t force = {text, {"++foundation.qk_layernorm=false",
                           "+foundation.rope_scaling.type=linear"}};
    made_t remove = {text, {"~foundation.layernorm_epsilon"}};
    made_t whole = {text, {"foundation={num_layers: 3}"}};
    made_t long_form = {text, {M "num_layers=5"}};
    check(&set, M "num_layers", "4");
    check(&set, M "hidden_size", "4096");
    check(&force, M "qk_layernorm", "false");
    check(&force, M "rope_scaling.type", "linear");
    check(&remove, M "layernorm_epsilon", NULL);
    check(&whole, M "num_layers", "3");
    check(&long_form, M "num_layers", "5");
}

/* Another model takes the place of the first, and nothing of it stays. */
static void test_another(void **state)
{
    (void)state;
    made_t m = {"model: deepseek_v3/deepseek_v3_671b\n",
                {"model=gpt2/gpt2_124m", "foundation.num_layers=2"}};
    check(&m, M "family", "gpt2");
    check(&m, M "num_layers", "2");
    check(&m, M "kv_lora_rank", NULL);
    check(&m, M "rope_scaling.type", NULL);
}

static void write_text(loong_context_t *ctx, const char *name,
                       const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_ok(ctx, loongi_file_write(ctx, path, text, strlen(text)));
}

static void load(loong_context_t *ctx, const char *name, loong_recipe_t **r_p)
{
    char path[256];
    loong_recipe_params_t params = {CONFIGS, 0, NULL, 0, NULL};
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_ok(ctx, loong_recipe_load(ctx, path, &params, r_p));
}

/* Parts of a model beside its name, own presets, defaults under both. */
static void test_files(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    char dir[64];
    snprintf(dir, sizeof(dir), "%s/models/mine", root);
    assert_ok(ctx, loongi_dir_make(ctx, dir));
    write_text(ctx, "models/mine/tiny.yaml",
               "family: llama\nnum_layers: 2\nhidden_size: 64\n");
    write_text(ctx, "base.yaml",
               "model: deepseek_v3/deepseek_v3_671b\nseed: 5\n"
               "foundation: {num_layers: 9}\n");
    write_text(ctx, "top.yaml", "defaults: [base.yaml]\nmodel: mine/tiny\n"
                                "foundation: {hidden_size: 32}\n");
    write_text(ctx, "other.yaml", "defaults: [base.yaml]\n"
                                  "foundation: {hidden_size: 32}\n");
    load(ctx, "top.yaml", &r);
    assert_string_equal(loong_recipe_text(r, M "family"), "llama");
    assert_int_equal(loong_recipe_int(r, M "num_layers"), 2);
    assert_int_equal(loong_recipe_int(r, M "hidden_size"), 32);
    assert_null(loong_recipe_text(r, M "kv_lora_rank"));
    assert_int_equal(loong_recipe_int(r, "seed"), 5);
    loong_recipe_destroy(&r);
    load(ctx, "other.yaml", &r);
    assert_string_equal(loong_recipe_text(r, M "family"), "deepseek_v3");
    assert_int_equal(loong_recipe_int(r, M "num_layers"), 9);
    assert_int_equal(loong_recipe_int(r, M "hidden_size"), 32);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        made_t made;
        loong_status_t status;
        const char *text;
    } cases[] = {
        {{"model: qwen3/qwen3_80b\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "r.yaml:1: model: no preset 'qwen3/qwen3_80b'"},
        {{"model: qwen3/qwen3_80b\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "did you mean qwen3/qwen3_8b? There are qwen3/qwen3_0.6b, "},
        {{"seed: 2\nmodel: kimi_k2_1t\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "r.yaml:2: model: no preset 'kimi_k2_1t'"},
        {{"model: kimi_k2_1t\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "did you mean kimi_k2/kimi_k2_1t?"},
        {{"model: qwen3\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "; there are qwen3/qwen3_0.6b, qwen3/qwen3_1.7b"},
        {{"model: unheard/of\n", {NULL}},
         LOONG_ERR_NOT_FOUND,
         "; there are deepseek_v2, deepseek_v3, ernie4.5, ernie4.5_vl, "},
        {{"seed: 1\n", {"model=qwen3/8b"}},
         LOONG_ERR_NOT_FOUND,
         "command line: model: no preset 'qwen3/8b'"},
        {{"model: qwen3/qwen3_8b\nfoundation: {num_layer: 4}\n", {NULL}},
         LOONG_ERR_CONFIG,
         "r.yaml:2: unknown key model.foundation.num_layer; did you mean "
         "model.foundation.num_layers?"},
        {{"model: qwen3/qwen3_8b\n", {"foundation.num_layer=4"}},
         LOONG_ERR_CONFIG,
         "command line: unknown key model.foundation.num_layer"},
        {{"foundation: {num_layers: 4}\nmodel: {foundation: {}}\n", {NULL}},
         LOONG_ERR_CONFIG,
         "r.yaml:1: foundation: model.foundation in line 2 is the same"},
        {{"model: [qwen3]\n", {NULL}}, LOONG_ERR_CONFIG, "a map wanted"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_recipe_t *r = NULL;
        assert_fails(ctx, make(ctx, &cases[i].made, &r), cases[i].status,
                     cases[i].text);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name),    cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_another), cmocka_unit_test(test_files),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
