/* SPDX-License-Identifier: Apache-2.0
 *
 * Vision transformers in Hugging Face directories: every tensor under the
 * engine's name, as tests/golden/vision.py has it; through an import and an
 * export; what is left out and what is refused. */
#include "hf_config.h"
#include "hf_weights.h"
#include "json.h"
#include "loong/checkpoint.h"
#include "loong/register.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"
#include "vision.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/vision/"

TEST_DIR(dir)

static const char *const names[] = {"vit", "clip", "siglip", "masked"};

/* Weights of an open directory against those that the golden file has. */
static void compare(loong_context_t *ctx, const loong_hf_t *hf,
                    const loong_safetensors_t *golden)
{
    const loong_hf_map_t *map = loongi_hf_get_map(hf);
    int64_t wanted = 0;
    for (int64_t i = 0; i < loongi_safetensors_count(golden); i++) {
        const char *name = loongi_safetensors_get(golden, i)->name;
        wanted += strncmp(name, "param.", 6) == 0;
    }
    assert_int_equal(loongi_hf_map_count(map), wanted);
    for (int64_t i = 0; i < wanted; i++) {
        const loong_hf_param_t *p = loongi_hf_map_get(map, i);
        char name[128];
        snprintf(name, sizeof(name), "param.%s", p->name);
        const loong_safetensor_t *t = loongi_safetensors_find(golden, name);
        if (t == NULL) {
            fail_msg("no %s", name);
        }
        assert_int_equal(t->ndim, p->ndim);
        assert_int_equal(t->shape[0], p->shape[0]);
        double *mine = malloc(t->bytes);
        assert_non_null(mine);
        assert_ok(ctx,
                  loongi_hf_read(hf, p->name, 0, p->shape[0], t->dtype, mine));
        if (memcmp(mine, t->data, t->bytes) != 0) {
            fail_msg("%s is another", name);
        }
        free(mine);
    }
}

static void same_keys(const loong_pairs_t *a, const loong_pairs_t *b)
{
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const char *value = loongi_pairs_get(b, a->items[i].key);
        assert_non_null(value);
        assert_string_equal(value, a->items[i].value);
    }
}

static void in_and_out(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        char from[512];
        char path[600];
        loong_safetensors_t *golden = NULL;
        loong_hf_t *there = NULL;
        loong_hf_t *back = NULL;
        snprintf(from, sizeof(from), FIXTURES "%s", names[i]);
        snprintf(path, sizeof(path), "%s/golden.safetensors", from);
        assert_ok(ctx, loongi_safetensors_open(ctx, path, &golden));
        loong_checkpoint_import_params_t in = {
            from, in_dir("native"), {NULL}, NULL, NULL, 0};
        loong_checkpoint_export_params_t out = {.checkpoint = in_dir("native"),
                                                .out_dir = in_dir("back"),
                                                .component = "image_encoder",
                                                .bos_token_id = -1,
                                                .eos_token_id = -1,
                                                .pad_token_id = -1};
        assert_ok(ctx, loongi_hf_open(ctx, from, &there));
        compare(ctx, there, golden);
        assert_ok(ctx, loong_checkpoint_import(ctx, &in));
        assert_ok(ctx, loong_checkpoint_export(ctx, &out));
        assert_ok(ctx, loongi_hf_open(ctx, in_dir("back"), &back));
        compare(ctx, back, golden);
        same_keys(loongi_hf_model(there), loongi_hf_model(back));
        assert_false(loongi_file_exists(in_dir("back/generation_config.json")));
        loongi_hf_close(&back);
        loongi_hf_close(&there);
        loongi_safetensors_close(&golden);
        assert_ok(ctx, loongi_dir_remove(ctx, in_dir("native")));
        assert_ok(ctx, loongi_dir_remove(ctx, in_dir("back")));
    }
    test_context_end(&ctx);
}

/* ---- config.json ----------------------------------------------------------
 */

static loong_status_t read_text(loong_context_t *ctx, const char *text,
                                loong_pairs_t **pairs_p)
{
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("config")));
    assert_ok(ctx, loongi_file_write(ctx, in_dir("config/config.json"), text,
                                     strlen(text)));
    return loongi_hf_config_read(ctx, in_dir("config"), pairs_p);
}

/* What the classes have when a file is silent. */
static void defaults(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *key;
        const char *value;
    } cases[] = {
        {"{\"model_type\": \"vit\"}", "patch_size", "16"},
        {"{\"model_type\": \"vit\"}", "num_classes", "0"},
        {"{\"model_type\": \"vit\", \"architectures\": "
         "[\"ViTForImageClassification\"]}",
         "num_classes", "2"},
        {"{\"model_type\": \"vit\", \"architectures\": [\"ViTModel\"], "
         "\"id2label\": {\"0\": \"a\"}}",
         "num_classes", "0"},
        {"{\"model_type\": \"vit\", \"architectures\": "
         "[\"ViTForMaskedImageModeling\"]}",
         "masked_image_modeling", "true"},
        {"{\"model_type\": \"clip_vision_model\"}", "activation", "quick_gelu"},
        {"{\"model_type\": \"siglip_vision_model\"}", "activation",
         "gelu_tanh"},
        {"{\"model_type\": \"siglip\", \"architectures\": [\"SiglipModel\"], "
         "\"vision_config\": {\"image_size\": 384}}",
         "image_size", "384"},
    };
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_vision_config_t config;
        loong_pairs_t *pairs = NULL;
        assert_ok(ctx, read_text(ctx, cases[i].text, &pairs));
        assert_string_equal(loongi_pairs_get(pairs, cases[i].key),
                            cases[i].value);
        assert_ok(ctx, loongi_vision_configure(ctx, pairs, &config));
        loongi_pairs_destroy(&pairs);
    }
    test_context_end(&ctx);
}

static void refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model_type\": \"vit\", \"hidden_dropout_prob\": 0.5}",
         "hidden_dropout_prob = 0.5 is not supported"},
        {"{\"model_type\": \"vit\", \"qkv_bias\": false}",
         "qkv_bias = false is not supported"},
        {"{\"model_type\": \"vit\", \"hidden_act\": \"relu\"}",
         "hidden_act = \"relu\" is not supported (gelu, "},
        {"{\"model_type\": \"vit\", \"architectures\": "
         "[\"ViTForMaskedLM\"]}",
         "ViTForImageClassification, ViTForMaskedImageModeling, "
         "ViTModel and"},
        {"{\"model_type\": \"vit\", \"patch_size\": 14, "
         "\"architectures\": [\"ViTForMaskedImageModeling\"]}",
         "encoder_stride 16: patch_size 14 is needed"},
        {"{\"model_type\": \"clip_vision_model\", \"architectures\": "
         "[\"CLIPForMaskedImageModeling\"]}",
         "(CLIPForImageClassification, CLIPModel and"},
        {"{\"model_type\": \"vit\", \"architectures\": "
         "[\"ViTForImageClassification\"], \"id2label\": {}}",
         "id2label = {} is not supported (an object"},
        {"{\"model_type\": \"siglip\"}", "vision_config, an object"},
        {"{\"model_type\": \"siglip_vision_model\", \"depth\": 3}",
         "depth = 3 is not supported (the field is not known"},
    };
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_pairs_t *pairs = NULL;
        assert_fails(ctx, read_text(ctx, cases[i][0], &pairs),
                     LOONG_ERR_UNSUPPORTED, cases[i][1]);
    }
    test_context_end(&ctx);
}

/* A class computes one thing: keys that say another have no config.json. */
static void not_said(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_pairs_t *pairs = NULL;
    assert_ok(ctx, read_text(ctx,
                             "{\"model_type\": \"vit\", "
                             "\"architectures\": "
                             "[\"ViTForImageClassification\"]}",
                             &pairs));
    assert_ok(ctx, loongi_hf_config_check(ctx, pairs));
    assert_ok(ctx, loongi_pairs_set(pairs, "pooling", "mean"));
    assert_fails(ctx, loongi_hf_config_check(ctx, pairs), LOONG_ERR_UNSUPPORTED,
                 "pooling = mean: model type vit has class_token");
    loongi_pairs_destroy(&pairs);
    test_context_end(&ctx);
}

/* ---- keys ---------------------------------------------------------------- */

static void key_problems(void **state)
{
    (void)state;
    static const loong_pair_t keys[] = {{"family", "siglip_vision_model"},
                                        {"hidden_size", "30"},
                                        {"num_layers", "2.5"},
                                        {"num_attention_heads", "4"},
                                        {"image_size", "13"},
                                        {"patch_size", "14"},
                                        {"activation", "relu"},
                                        {"add_patch_bias", "yes"},
                                        {"num_classes", "-1"},
                                        {"masked_image_modeling", "1"},
                                        {"depth", "3"}};
    static const char *const told[] = {
        "num_layers: found 2.5, a whole number from 1",
        "activation: found relu, allowed: gelu gelu_tanh quick_gelu",
        "add_patch_bias: found yes, true or false wanted",
        "num_classes: found -1",
        "masked_image_modeling: found 1, true or false wanted",
        "depth: no such key",
        "hidden_size 30 is no multiple of num_attention_heads 4",
        "image_size 13 is less than patch_size 14"};
    loong_context_t *ctx = test_context();
    loong_pairs_t *pairs = NULL;
    loong_vision_config_t config;
    assert_ok(ctx, loongi_pairs_create(ctx, &pairs));
    for (int i = 0; i < LOONG_COUNT_OF(keys); i++) {
        assert_ok(ctx, loongi_pairs_set(pairs, keys[i].key, keys[i].value));
    }
    assert_int_equal(loongi_vision_configure(ctx, pairs, &config),
                     LOONG_ERR_CONFIG);
    for (int i = 0; i < LOONG_COUNT_OF(told); i++) {
        if (strstr(loong_context_error(ctx), told[i]) == NULL) {
            fail_msg("'%s' does not say '%s'", loong_context_error(ctx),
                     told[i]);
        }
    }
    loongi_pairs_destroy(&pairs);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_and_out),   cmocka_unit_test(defaults),
        cmocka_unit_test(refused),      cmocka_unit_test(not_said),
        cmocka_unit_test(key_problems),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
