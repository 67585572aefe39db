/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of ERNIE 4.5 VL as its publisher writes it, all side by side,
 * against that of transformers for the same model; and what both say of the
 * part that sees images, through an import, a conversion and an export. The
 * words are those that transformers' converter reads. */
#include "hf_config.h"
#include "json.h"
#include "loong/checkpoint.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURE LOONG_SOURCE_DIR "/tests/golden/fixtures/ernie4_5_vl_moe"

TEST_DIR(dir)

static const char flat[] =
    "{\"architectures\": [\"Ernie4_5_VLMoeForConditionalGeneration\"],\n"
    "\"auto_map\": {\"AutoConfig\": \"configuration_ernie4_5_vl.Config\"},\n"
    "\"model_type\": \"ernie4_5_moe_vl\", \"bos_token_id\": 0,\n"
    "\"eos_token_id\": 1, \"hidden_act\": \"silu\", \"use_cache\": false,\n"
    "\"hidden_size\": 16, \"intermediate_size\": 20, \"head_dim\": 8,\n"
    "\"max_position_embeddings\": 64, \"num_attention_heads\": 2,\n"
    "\"num_hidden_layers\": 2, \"num_key_value_heads\": 1,\n"
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 500000, \"vocab_size\": 61,\n"
    "\"tie_word_embeddings\": true, \"use_bias\": false,\n"
    "\"use_rmsnorm\": true, \"torch_dtype\": \"float32\",\n"
    "\"moe_num_experts\": [4, 4], \"moe_intermediate_size\": [8, 4],\n"
    "\"moe_k\": 3, \"moe_num_shared_experts\": 2, \"moe_gate\": \"topk\",\n"
    "\"moe_layer_start_index\": [0, 0], \"moe_layer_end_index\": [29, 28],\n"
    "\"moe_layer_interval\": 1, \"moe_capacity\": [128, 128, 128],\n"
    "\"moe_use_aux_free\": true, \"freq_allocation\": 2, \"rope_3d\": true,\n"
    "\"moe_multimodal_dispatch_use_allgather\": \"v2-alltoall-unpad-text\",\n"
    "\"im_patch_id\": 100295, \"spatial_conv_size\": 2,\n"
    "\"temporal_conv_size\": 2, \"pixel_hidden_size\": 4, \"vision_config\":\n"
    "{\"depth\": 1, \"embed_dim\": 4, \"hidden_size\": 4, \"mlp_ratio\": 1,\n"
    "\"hidden_act\": \"quick_gelu\", \"num_heads\": 1, \"in_channels\": 3,\n"
    "\"patch_size\": 2, \"spatial_merge_size\": 2,\n"
    "\"model_type\": \"DFNRope_vision_transformer\", \"attn_sep\": true}}\n";

/* The text with one part in place of another. */
static void write_flat(loong_context_t *ctx, const char *part,
                       const char *other)
{
    char text[4096];
    const char *at = part != NULL ? strstr(flat, part) : flat;
    assert_non_null(at);
    int n = snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - flat), flat,
                     part != NULL ? other : "",
                     at + (part != NULL ? strlen(part) : 0));
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("flat")));
    assert_ok(ctx, loongi_file_write(ctx, in_dir("flat/config.json"), text,
                                     (size_t)n));
}

static void both_files_are_one_model(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_pairs_t *a = NULL;
    loong_pairs_t *b = NULL;
    write_flat(ctx, NULL, NULL);
    assert_ok(ctx, loongi_hf_config_read(ctx, FIXTURE, &a));
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("flat"), &b));
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        const char *value = loongi_pairs_get(b, a->items[i].key);
        assert_non_null(value);
        assert_string_equal(value, a->items[i].value);
    }
    loongi_pairs_destroy(&b);
    loongi_pairs_destroy(&a);
    test_context_end(&ctx);
}

static void what_differs_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"\"moe_num_experts\": [4, 4]", "\"moe_num_experts\": [4, 5]",
         "moe_num_experts = [4,5] is not supported (as many for texts"},
        {"\"moe_num_experts\": [4, 4]", "\"moe_num_experts\": [4, 4, 4]",
         "moe_num_experts = [4,4,4] is not supported (an integer"},
        {"[8, 4]", "8", "moe_intermediate_size = 8 is not supported"},
        {"[0, 0]", "[0, 1]", "moe_layer_start_index = [0,1]"},
        {"[29, 28]", "[29, 0]", "moe_layer_end_index = [29,0]"},
        {"[0, 0]", "2", "moe_layer_start_index = 2 is not supported"},
        {"\"freq_allocation\": 2", "\"freq_allocation\": 3",
         "freq_allocation = 3"},
        {"\"rope_3d\": true", "\"rope_3d\": false", "rope_3d = false"},
        {"\"use_bias\": false", "\"use_bias\": true", "use_bias = true"},
        {"\"moe_gate\": \"topk\"", "\"moe_gate\": \"hash\"", "moe_gate"},
        {"\"moe_layer_interval\": 1", "\"moe_layer_interval\": 2",
         "moe_layer_interval = 2"}};
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_pairs_t *model = NULL;
        write_flat(ctx, cases[i][0], cases[i][1]);
        assert_fails(ctx, loongi_hf_config_read(ctx, in_dir("flat"), &model),
                     LOONG_ERR_UNSUPPORTED, cases[i][2]);
    }
    test_context_end(&ctx);
}

/* `from` imported, converted and exported; the fields of its config.json. */
static loong_json_t *pass_through(loong_context_t *ctx, const char *from,
                                  const char *as)
{
    loong_checkpoint_import_params_t in = {
        from, in_dir("native"), {NULL}, NULL, NULL, 0};
    loong_checkpoint_convert_params_t convert = {
        in_dir("native"), in_dir("narrow"), LOONG_BF16, 0, NULL, NULL};
    loong_checkpoint_export_params_t out;
    loong_json_t *config = NULL;
    memset(&out, 0, sizeof(out));
    out.checkpoint = in_dir("narrow");
    out.out_dir = in_dir("back");
    out.as = as;
    out.bos_token_id = out.eos_token_id = out.pad_token_id = -1;
    assert_ok(ctx, loong_checkpoint_import(ctx, &in));
    assert_ok(ctx, loong_checkpoint_convert(ctx, &convert));
    assert_ok(ctx, loong_checkpoint_export(ctx, &out));
    assert_ok(ctx, loongi_json_load(ctx, in_dir("back/config.json"), &config));
    assert_ok(ctx, loongi_dir_remove(ctx, in_dir("native")));
    assert_ok(ctx, loongi_dir_remove(ctx, in_dir("narrow")));
    assert_ok(ctx, loongi_dir_remove(ctx, in_dir("back")));
    return config;
}

static int64_t int_of(const loong_json_t *object, const char *name)
{
    return loongi_json_int(loongi_json_get(object, name));
}

static void images_go_along(void **state)
{
    (void)state;
    static const char *const names[] = {"depth",
                                        "hidden_size",
                                        "num_heads",
                                        "patch_size",
                                        "spatial_merge_size",
                                        "intermediate_size",
                                        "temporal_merge_size"};
    loong_context_t *ctx = test_context();
    loong_json_t *source = NULL;
    assert_ok(ctx, loongi_json_load(ctx, FIXTURE "/config.json", &source));
    write_flat(ctx, NULL, NULL);
    assert_ok(ctx, loongi_file_copy(ctx, FIXTURE "/model.safetensors",
                                    in_dir("flat/model.safetensors")));
    for (int k = 0; k < 2; k++) {
        loong_json_t *config =
            pass_through(ctx, k == 0 ? FIXTURE : in_dir("flat"), NULL);
        const loong_json_t *vision = loongi_json_get(config, "vision_config");
        assert_string_equal(
            loongi_json_string(loongi_json_get(config, "model_type")),
            "ernie4_5_vl_moe");
        assert_null(loongi_json_get(config, "auto_map"));
        assert_int_equal(int_of(config, "image_token_id"), 100295);
        for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
            assert_non_null(loongi_json_get(vision, names[i]));
            assert_int_equal(
                int_of(vision, names[i]),
                int_of(loongi_json_get(source, "vision_config"), names[i]));
        }
        if (k == 0) {
            assert_int_equal(int_of(config, "video_token_id"), 103367);
        }
        loongi_json_destroy(&config);
    }
    loongi_json_destroy(&source);
    test_context_end(&ctx);
}

/* What the first Qwen does beyond its length: kept for its own type. */
static void longer_texts_go_along(void **state)
{
    (void)state;
    static const char *const names[] = {"use_dynamic_ntk", "use_logn_attn"};
    loong_context_t *ctx = test_context();
    const char *from = LOONG_SOURCE_DIR "/tests/golden/fixtures/qwen1_mha";
    loong_json_t *own = pass_through(ctx, from, "qwen");
    loong_json_t *other = pass_through(ctx, from, "qwen2");
    for (int64_t i = 0; i < LOONG_COUNT_OF(names); i++) {
        assert_true(loongi_json_bool(loongi_json_get(own, names[i])));
        assert_null(loongi_json_get(other, names[i])); /* and it is said */
    }
    loongi_json_destroy(&own);
    loongi_json_destroy(&other);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_files_are_one_model),
        cmocka_unit_test(what_differs_is_refused),
        cmocka_unit_test(images_go_along),
        cmocka_unit_test(longer_texts_go_along),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
