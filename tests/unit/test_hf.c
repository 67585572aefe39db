/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face directories: the fixtures that transformers wrote are mapped,
 * exported and found bit-equal; unsupported fields are refused by name. */
#include <dirent.h>
#include <unistd.h>

#include "convert.h"
#include "file.h"
#include "hf_composite.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "safetensors.h"
#include "memory_source.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

/* Calls the function for every fixture; returns how many there are. */
static int each_fixture(void (*function)(loong_context_t *, const char *))
{
    struct dirent *entry = NULL;
    int count = 0;
    DIR *folder = opendir(FIXTURES);
    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        char path[512], config[600];
        snprintf(path, sizeof(path), FIXTURES "/%s", entry->d_name);
        snprintf(config, sizeof(config), "%s/config.json", path);
        if (loongi_file_exists(config)) {
            loong_context_t *ctx = test_context();
            function(ctx, path);
            test_context_end(&ctx);
            count++;
        }
    }
    closedir(folder);
    return count;
}

static void assert_pair(const loong_pairs_t *pairs, const char *key,
                        const char *value)
{
    const char *found = loongi_pairs_get(pairs, key);
    if (value == NULL || found == NULL) {
        assert_ptr_equal(found, value);
    } else {
        assert_string_equal(found, value);
    }
}

static void configs_are_mapped(void **state)
{
    (void)state;
    static const struct {
        const char *fixture, *key, *value;
    } cases[] = {
        {"gpt2_tied", "family", "gpt2"},
        {"gpt2_tied", "activation", "gelu_tanh"},
        {"gpt2_tied", "ffn_hidden_size", "96"},
        {"gpt2_tied", "kv_channels", "12"},
        {"gpt2_tied", "position_embedding_type", "learned_absolute"},
        {"gpt2_tied", "normalization", "LayerNorm"},
        {"gpt2_tied", "add_bias_linear", "true"},
        {"gpt2_tied", "untie_embeddings_and_output_weights", "false"},
        {"gpt2_tied", "layernorm_epsilon", "1e-05"},
        {"gpt2_tied", "hidden_dropout", "0.0"},
        {"gpt2_untied", "activation", "gelu"},
        {"gpt2_untied", "ffn_hidden_size", "53"},
        {"gpt2_untied", "untie_embeddings_and_output_weights", "true"},
        {"gpt2_untied", "rotary_base", NULL},
        {"llama_bias_mqa", "add_bias_linear", "true"},
        {"llama_bias_mqa", "kv_channels", "12"},
        {"llama_bias_mqa", "num_query_groups", "1"},
        {"llama31_rope_mqa", "rope_scaling.type", "llama3"},
        {"llama31_rope_mqa", "rope_scaling.factor", "8.0"},
        {"llama31_rope_mqa", "rope_scaling.low_freq_factor", "1.0"},
        {"llama31_rope_mqa", "rope_scaling.high_freq_factor", "4.0"},
        {"llama31_rope_mqa", "rope_scaling.original_max_position_embeddings",
         "32"},
        {"llama31_rope_mqa", "rotary_base", "500.0"},
        {"llama_yarn", "rope_scaling.type", "yarn"},
        {"llama_yarn", "rope_scaling.beta_fast", NULL},
        {"llama_linear", "rope_scaling.factor", "2.5"},
        {"qwen3_yarn", "rope_scaling.truncate", "false"},
        {"qwen2_gqa", "add_qkv_bias", "true"},
        {"qwen2_gqa", "add_bias_linear", "false"},
        {"qwen2_gqa", "window_size", NULL},
        {"qwen2_window", "window_size", "7"},
        {"qwen2_window", "max_window_layers", "1"},
        {"qwen3_mqa_untied", "add_attn_proj_bias", "true"},
        {"qwen3_mqa_untied", "add_bias_linear", "false"},
        {"qwen3_gqa_tied", "family", "qwen3"},
        {"qwen3_gqa_tied", "qk_layernorm", "true"},
        {"qwen3_gqa_tied", "kv_channels", "16"},
        {"qwen3_gqa_tied", "init_method_std", "0.02"},
        {"qwen3_gqa_tied", "activation", "swiglu"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_pairs_t *pairs = NULL;
        char path[512];
        snprintf(path, sizeof(path), FIXTURES "/%s", cases[i].fixture);
        assert_ok(ctx, loongi_hf_config_read(ctx, path, &pairs));
        assert_pair(pairs, cases[i].key, cases[i].value);
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

/* The field names of transformers 4 mean the same. */
static void old_names_mean_the_same(loong_context_t *ctx, const char *path)
{
    char old[600];
    loong_pairs_t *a = NULL, *b = NULL;
    snprintf(old, sizeof(old), "%s/config_v4.json", path);
    if (!loongi_file_exists(old)) {
        return;
    }
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("old")));
    assert_ok(ctx, loongi_file_copy(ctx, old, in_dir("old/config.json")));
    assert_ok(ctx, loongi_hf_config_read(ctx, path, &a));
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("old"), &b));
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        assert_pair(b, a->items[i].key, a->items[i].value);
    }
    loongi_pairs_destroy(&a);
    loongi_pairs_destroy(&b);
}

/* Columns are cut from whole rows. */
static loong_status_t from_hf(void *user, const loong_hf_block_t *block,
                              loong_dtype_t dtype, void *dst)
{
    const loong_hf_param_t *p =
        loongi_hf_map_find(loongi_hf_get_map(user), block->name);
    size_t size = loong_dtype_size(dtype);
    size_t length = (size_t)p->shape[1] * size;
    char *rows = malloc((size_t)block->rows * length);
    assert_non_null(rows);
    loong_status_t status = loongi_hf_read(user, block->name, block->row,
                                           block->rows, dtype, rows);
    for (int64_t r = 0; r < block->rows; r++) {
        size_t bytes = (size_t)block->columns * size;
        memcpy((char *)dst + (size_t)r * bytes,
               rows + (size_t)r * length + (size_t)block->column * size,
               bytes);
    }
    free(rows);
    return status;
}

/* All but those that the map leaves out. */
static void same_tensors(loong_context_t *ctx, const loong_hf_map_t *map,
                         const char *a, const char *b)
{
    int64_t left_out = 0;
    loong_safetensors_set_t *x = NULL, *y = NULL;
    assert_ok(ctx, loongi_safetensors_set_open(ctx, a, &x));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, b, &y));
    for (int64_t i = 0; i < loongi_safetensors_set_count(x); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(x, i);
        if (loongi_hf_map_predicts(map, t->name) ||
            loongi_hf_map_is_extra(map, t->name) ||
            loongi_hf_composite_is_other(map, t->name)) {
            left_out++;
            continue;
        }
        const loong_safetensor_t *u = loongi_safetensors_set_find(y, t->name);
        assert_non_null(u);
        assert_int_equal(t->dtype, u->dtype);
        assert_int_equal(t->ndim, u->ndim);
        assert_memory_equal(t->shape, u->shape, sizeof(t->shape));
        assert_memory_equal(t->data, u->data, t->bytes);
    }
    assert_int_equal(loongi_safetensors_set_count(x) - left_out,
                     loongi_safetensors_set_count(y));
    loongi_safetensors_set_close(&x);
    loongi_safetensors_set_close(&y);
}

/* Directory -> our names and rows -> directory: the same bits, and the
 * configuration says the same. */
static void round_trip(loong_context_t *ctx, const char *path)
{
    loong_hf_t *hf = NULL;
    loong_pairs_t *again = NULL;
    loong_hf_export_params_t params = {0};
    assert_ok(ctx, loongi_hf_open(ctx, path, &hf));
    params.dir = in_dir("export");
    params.model = loongi_hf_model(hf);
    params.dtype = LOONG_F32;
    params.max_shard_bytes = 20000;
    params.source = from_hf;
    params.user = hf;
    params.files_dir = path;
    assert_ok(ctx, loongi_hf_export(ctx, &params));
    same_tensors(ctx, loongi_hf_get_map(hf), path, in_dir("export"));
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("export"), &again));
    for (int64_t i = 0; i < params.model->count; i++) {
        assert_pair(again, params.model->items[i].key,
                    params.model->items[i].value);
    }
    assert_int_equal(again->count, params.model->count);
    loongi_pairs_destroy(&again);
    loongi_hf_close(&hf);
    assert_ok(ctx, loongi_dir_remove(ctx, in_dir("export")));
}

static void fixtures_round_trip(void **state)
{
    (void)state;
    assert_true(each_fixture(round_trip) >= 8);
    each_fixture(old_names_mean_the_same);
}

/* GPT-2: element (r, c) of ours is element (c, part * out + r) of c_attn, for
 * every row range and type. */
static void conv1d_is_turned(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_hf_t *hf = NULL;
    loong_safetensors_set_t *set = NULL;
    enum { H = 24 };
    static double rows[H * H];
    assert_ok(ctx, loongi_hf_open(ctx, FIXTURES "/gpt2_tied", &hf));
    assert_ok(ctx,
              loongi_safetensors_set_open(ctx, FIXTURES "/gpt2_tied", &set));
    const loong_safetensor_t *fused =
        loongi_safetensors_set_find(set, "transformer.h.1.attn.c_attn.weight");
    const char *names[] = {"layers.1.self_attn.q_proj.weight",
                           "layers.1.self_attn.k_proj.weight",
                           "layers.1.self_attn.v_proj.weight"};
    for (int part = 0; part < 3; part++) {
        assert_ok(ctx, loongi_hf_read(hf, names[part], 5, 7, LOONG_F64, rows));
        for (int r = 0; r < 7; r++) {
            for (int c = 0; c < H; c++) {
                float value;
                memcpy(&value,
                       (const char *)fused->data +
                           4 * (c * 3 * H + part * H + 5 + r),
                       4);
                assert_true(rows[r * H + c] == (double)value);
            }
        }
    }
    assert_fails(ctx, loongi_hf_read(hf, names[0], 20, 5, LOONG_F32, rows),
                 LOONG_ERR_ARG, "rows 20 to 25");
    assert_fails(ctx,
                 loongi_hf_read(hf, "lm_head.weight", 0, 1, LOONG_F32, rows),
                 LOONG_ERR_NOT_FOUND, "lm_head.weight");
    loongi_safetensors_set_close(&set);
    loongi_hf_close(&hf);
    test_context_end(&ctx);
}

#define LLAMA                                                              \
    "\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12," \
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"vocab_size\":9,"  \
    "\"max_position_embeddings\":16"
#define QWEN2                                                              \
    "\"model_type\":\"qwen2\",\"hidden_size\":8,\"intermediate_size\":12," \
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"vocab_size\":9,"  \
    "\"max_position_embeddings\":16"

static void write_config(loong_context_t *ctx, const char *text)
{
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("config")));
    assert_ok(ctx, loongi_file_write(ctx, in_dir("config/config.json"), text,
                                     strlen(text)));
}

static const struct {
    const char *config, *text;
} refused[] = {
    {"{}", "no model_type"},
    {"{\"model_type\":\"bert\"}",
     "'bert' is not supported (gpt2, llama"},
    {"{\"model_type\":\"deepseek_v32\"}", "the nearest is deepseek_v2 ("},
    {"{\"model_type\":\"gemma2\"}", "'gemma2' is not supported: it has norms"},
    {"{\"model_type\":\"llama\"}", "hidden_size is missing"},
    {"{" LLAMA ",\"hidden_act\":\"relu\"}", "hidden_act = \"relu\""},
    {"{" QWEN2 ",\"attention_bias\":true}", "attention_bias = true"},
    {"{" LLAMA ",\"sliding_window\":4}", "sliding_window = 4"},
    {"{" LLAMA ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
    {"{" LLAMA ",\"quantization_config\":{\"bits\":4}}",
     "quantization_config = {\"bits\":4}"},
    {"{" LLAMA ",\"logit_scale\":0.5}", "logit_scale = 0.5"},
    {"{" LLAMA ",\"hidden_size\":8.5}", "duplicate"},
    {"{" LLAMA ",\"num_key_value_heads\":\"2\"}", "num_key_value_heads"},
    {"{" LLAMA ",\"architectures\":[\"LlamaForTokenClassification\"]}",
     "architectures"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\","
     "\"factor\":2}}",
     "rope_scaling.rope_type = 'longrope'"},
    {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}}",
     "rope_scaling.factor is missing"},
    {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\","
     "\"factor\":2,\"truncate\":3,\"mscale\":\"x\"}}",
     "rope_parameters.mscale = \"x\""},
    {"{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\","
     "\"mrope_section\":[1]}}",
     "rope_parameters.mrope_section = [1]"},
    {"{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"default\"},"
     "\"rope_parameters\":{\"rope_type\":\"default\"}}",
     "are both there"},
    {"{" QWEN2 ",\"layer_types\":[\"full_attention\","
     "\"sliding_attention\"]}",
     "layer_types[1] = 'sliding_attention'"},
    {"{" QWEN2 ",\"layer_types\":[\"full_attention\"]}",
     "one entry for each layer"},
    {"{" QWEN2 ",\"use_sliding_window\":1}", "true or false is needed"},
    {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
     "scale_attn_by_inverse_layer_idx = true"},
    {"{\"model_type\":\"gpt2\",\"scale_attn_weights\":false}",
     "scale_attn_weights = false"},
    {"{\"model_type\":\"gpt2\",\"reorder_and_upcast_attn\":true}",
     "reorder_and_upcast_attn"},
    {"{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"}",
     "activation_function"},
};

static void fields_are_refused(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(refused); i++) {
        loong_pairs_t *pairs = NULL;
        write_config(ctx, refused[i].config);
        assert_int_not_equal(
            loongi_hf_config_read(ctx, in_dir("config"), &pairs), LOONG_OK);
        if (strstr(loong_context_error(ctx), refused[i].text) == NULL) {
            fail_msg("'%s' is not in: %s", refused[i].text,
                     loong_context_error(ctx));
        }
        loong_context_clear_error(ctx);
    }
    test_context_end(&ctx);
}

/* One report names every problem. */
static void problems_come_together(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_pairs_t *pairs = NULL;
    write_config(ctx, "{" LLAMA ",\"hidden_act\":\"relu\",\"alibi\":true,"
                      "\"rope_scaling\":{\"type\":\"longrope\"}}");
    assert_int_equal(loongi_hf_config_read(ctx, in_dir("config"), &pairs),
                     LOONG_ERR_UNSUPPORTED);
    const char *trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "3 problems"));
    assert_non_null(strstr(trail, "hidden_act"));
    assert_non_null(strstr(trail, "alibi"));
    assert_non_null(strstr(trail, "longrope"));
    test_context_end(&ctx);
}

static void harmless_fields_pass(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_pairs_t *pairs = NULL;
    write_config(ctx, "{" LLAMA ",\"is_llama_config\":true,"
                      "\"rope_interleaved\":false,\"pretraining_tp\":1,"
                      "\"_name_or_path\":\"x\",\"torch_dtype\":\"bfloat16\","
                      "\"use_cache\":true,\"future\":null,\"other\":false,"
                      "\"rope_scaling\":null,\"pruned_heads\":{}}");
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("config"), &pairs));
    assert_pair(pairs, "num_query_groups", "2");
    assert_pair(pairs, "rotary_base", "10000.0");
    loongi_pairs_destroy(&pairs);
    write_config(ctx, "{\"model_type\":\"mistral\",\"hidden_size\":16,"
                      "\"intermediate_size\":12,\"num_hidden_layers\":2,"
                      "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                      "\"vocab_size\":9,\"max_position_embeddings\":16,"
                      "\"sliding_window\":5}");
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("config"), &pairs));
    assert_pair(pairs, "family", "llama");
    assert_pair(pairs, "window_size", "5");
    assert_pair(pairs, "max_window_layers", NULL);
    loong_hf_config_params_t params = {
        .dir = in_dir("mistral"), .model = pairs, .dtype = LOONG_BF16};
    assert_ok(ctx, loongi_hf_config_write(ctx, &params));
    loong_pairs_t *again = NULL;
    assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("mistral"), &again));
    assert_int_equal(again->count, pairs->count);
    assert_pair(again, "window_size", "5");
    assert_ok(ctx, loongi_pairs_set(pairs, "family", "internlm2"));
    assert_fails(ctx, loongi_hf_config_write(ctx, &params),
                 LOONG_ERR_UNSUPPORTED,
                 "window_size = 5: model type internlm2 has 0");
    assert_ok(ctx, loongi_pairs_set(pairs, "family", "llama"));
    /* Padding stays here; a share of the head cannot be told. */
    assert_ok(ctx, loongi_pairs_set(pairs, "make_vocab_size_divisible_by",
                                    "128"));
    assert_ok(ctx, loongi_pairs_set(pairs, "rotary_percent", "1.0"));
    assert_ok(ctx, loongi_hf_config_write(ctx, &params));
    assert_ok(ctx, loongi_pairs_set(pairs, "rotary_percent", "0.5"));
    assert_fails(ctx, loongi_hf_config_write(ctx, &params),
                 LOONG_ERR_UNSUPPORTED,
                 "rotary_percent = 0.5: model type mistral has 1");
    assert_ok(ctx, loongi_pairs_set(pairs, "rotary_percent", "1.0"));
    assert_ok(ctx, loongi_pairs_set(pairs, "qk_layernorm", "true"));
    assert_ok(ctx, loongi_pairs_set(pairs, "num_experts", "8"));
    assert_fails(ctx, loongi_hf_config_write(ctx, &params),
                 LOONG_ERR_UNSUPPORTED,
                 "qk_layernorm = true: model type "
                 "mistral has false");
    assert_int_equal(loongi_hf_config_write(ctx, &params),
                     LOONG_ERR_UNSUPPORTED);
    assert_non_null(strstr(loong_context_error(ctx), "num_experts"));
    loongi_pairs_destroy(&again);
    loongi_pairs_destroy(&pairs);
    test_context_end(&ctx);
}

/* Copies a fixture, letting the caller change tensors on the way. */
static void copy_without(loong_context_t *ctx, const char *skip,
                         const char *extra, const char *reshape)
{
    loong_safetensors_set_t *set = NULL;
    loong_safetensors_set_writer_t *writer = NULL;
    int64_t index = 0;
    assert_ok(ctx, loongi_dir_make(ctx, in_dir("broken")));
    assert_ok(ctx, loongi_file_copy(ctx, FIXTURES "/qwen3_gqa_tied/config.json",
                                    in_dir("broken/config.json")));
    assert_ok(ctx, loongi_safetensors_set_open(ctx, FIXTURES "/qwen3_gqa_tied",
                                               &set));
    loong_safetensors_set_params_t params = {in_dir("broken"), 1 << 30, ""};
    loong_meter_t meter = {NULL, NULL, 0, 0};
    memory_t source;
    loong_safetensors_source_t from = {from_memory, &source, &meter};
    assert_ok(ctx, loongi_safetensors_set_create(ctx, &params, &writer));
    for (int64_t i = 0; i < loongi_safetensors_set_count(set); i++) {
        const loong_safetensor_t *t = loongi_safetensors_set_get(set, i);
        int64_t shape[8];
        memcpy(shape, t->shape, sizeof(shape));
        if (strcmp(t->name, skip) == 0) {
            continue;
        }
        if (strcmp(t->name, reshape) == 0) {
            shape[0] = t->shape[1];
            shape[1] = t->shape[0];
        }
        assert_ok(ctx, loongi_safetensors_set_declare(
                           writer, t->name, t->dtype, t->ndim, shape, &index));
        source.data[index] = t->data;
        source.row_bytes[index] =
            (size_t)(t->ndim > 1 ? shape[t->ndim - 1] : 1) *
            loong_dtype_size(t->dtype);
    }
    int64_t one[] = {1};
    assert_ok(ctx, loongi_safetensors_set_declare(writer, extra, LOONG_F32, 1,
                                                  one, &index));
    source.data[index] = "abcd";
    source.row_bytes[index] = 4;
    assert_ok(ctx, loongi_safetensors_set_fill(writer, &from));
    assert_ok(ctx, loongi_safetensors_set_commit(writer));
    loongi_safetensors_set_destroy(&writer);
    loongi_safetensors_set_close(&set);
}

static void differences_are_listed(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_hf_t *hf = NULL;
    copy_without(ctx, "model.layers.1.mlp.up_proj.weight", "model.visual.x",
                 "model.layers.0.mlp.down_proj.weight");
    assert_int_equal(loongi_hf_open(ctx, in_dir("broken"), &hf),
                     LOONG_ERR_MISMATCH);
    const char *trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "3 problems"));
    assert_non_null(
        strstr(trail, "missing: model.layers.1.mlp.up_proj.weight [52, 32]"));
    assert_non_null(strstr(trail, "unexpected: model.visual.x"));
    assert_non_null(strstr(trail, "shape: model.layers.0.mlp.down_proj.weight "
                                  "is [52, 32], config.json says [32, 52]"));
    loong_context_clear_error(ctx);
    copy_without(ctx, "", "lm_head.weight", "");
    assert_fails(ctx, loongi_hf_open(ctx, in_dir("broken"), &hf),
                 LOONG_ERR_MISMATCH, "tied: config.json ties lm_head.weight");
    assert_ok(ctx, loongi_hf_open(ctx, FIXTURES "/qwen3_gqa_tied", &hf));
    loong_hf_wanted_t wanted[] = {{"norm.weight", 1, {33, 1}},
                                  {"layers.7.input_layernorm.weight", 1, {24}}};
    assert_int_equal(loongi_hf_check(hf, wanted, 2), LOONG_ERR_MISMATCH);
    trail = loong_context_error(ctx);
    assert_non_null(strstr(trail, "shape: norm.weight is [32] in the directory"
                                  ", [33] in the model"));
    assert_non_null(strstr(trail, "missing: layers.7"));
    assert_non_null(strstr(trail, "unexpected: embed_tokens.weight"));
    loongi_hf_close(&hf);
    test_context_end(&ctx);
}

static loong_status_t of_zeros(void *user, const loong_hf_block_t *block,
                               loong_dtype_t dtype, void *dst)
{
    (void)user;
    memset(dst, 0, (size_t)(block->rows * block->columns) *
                       loong_dtype_size(dtype));
    return LOONG_OK;
}

/* Classes that have shared experts of no width state them in their files. */
static void hollow_tensors(void **state)
{
    (void)state;
    static const char shared[] = "model.layers.%d.mlp.shared_experts.%s.weight";
    static const char *const types[] = {"deepseek_v2", "deepseek_v3"};
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    for (int64_t i = 0; i < LOONG_COUNT_OF(types); i++) {
        loong_context_t *ctx = test_context();
        loong_hf_export_params_t params = {0};
        loong_pairs_t *pairs = NULL;
        loong_safetensors_set_t *set = NULL;
        loong_hf_t *hf = NULL;
        char name[128], text[1024];
        snprintf(text, sizeof(text),
                 "{\"model_type\":\"%s\",\"hidden_size\":8,"
                 "\"intermediate_size\":12,\"num_hidden_layers\":2,"
                 "\"num_attention_heads\":2,\"vocab_size\":9,"
                 "\"max_position_embeddings\":16,\"q_lora_rank\":4,"
                 "\"kv_lora_rank\":4,\"qk_nope_head_dim\":4,"
                 "\"qk_rope_head_dim\":2,\"v_head_dim\":4,"
                 "\"first_k_dense_replace\":1,\"n_routed_experts\":4,"
                 "\"n_shared_experts\":0,\"num_experts_per_tok\":2,"
                 "\"n_group\":1,\"moe_intermediate_size\":4}",
                 types[i]);
        write_config(ctx, text);
        assert_ok(ctx, loongi_hf_config_read(ctx, in_dir("config"), &pairs));
        params.dir = in_dir("hollow");
        params.model = pairs;
        params.dtype = LOONG_BF16;
        params.source = of_zeros;
        assert_ok(ctx, loongi_hf_export(ctx, &params));
        assert_ok(ctx, loongi_safetensors_set_open(ctx, params.dir, &set));
        for (int k = 0; k < 6; k++) { /* the first layer is dense */
            snprintf(name, sizeof(name), shared, k / 3, parts[k % 3]);
            const loong_safetensor_t *t =
                loongi_safetensors_set_find(set, name);
            assert_int_equal(t != NULL, k / 3);
            assert_true(t == NULL || (t->shape[0] == (k < 5 ? 0 : 8) &&
                                      t->shape[1] == (k < 5 ? 8 : 0)));
        }
        loongi_safetensors_set_close(&set);
        assert_ok(ctx, loongi_hf_open(ctx, params.dir, &hf));
        loongi_hf_close(&hf);
        assert_ok(ctx, loongi_dir_remove(ctx, params.dir));
        loongi_pairs_destroy(&pairs);
        test_context_end(&ctx);
    }
}

/* The n-th allocation fails, for every n: an error, no leak, no crash. */
static void memory_runs_out(void **state)
{
    (void)state;
    loong_status_t status = LOONG_ERR_MEMORY;
    for (uint64_t n = 1; status != LOONG_OK; n++) {
        loong_context_t *ctx = test_context();
        loong_hf_t *hf = NULL;
        loong_hf_export_params_t params = {0};
        loong_context_fail_alloc(ctx, n);
        status = loongi_hf_open(ctx, FIXTURES "/gpt2_tied", &hf);
        if (status == LOONG_OK) {
            params.dir = in_dir("memory");
            params.model = loongi_hf_model(hf);
            params.dtype = LOONG_F32;
            params.source = from_hf;
            params.user = hf;
            status = loongi_hf_export(ctx, &params);
        }
        loongi_hf_close(&hf);
        test_context_end(&ctx);
        assert_true(n < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_are_mapped),
        cmocka_unit_test(fixtures_round_trip),
        cmocka_unit_test(hollow_tensors),
        cmocka_unit_test(conv1d_is_turned),
        cmocka_unit_test(fields_are_refused),
        cmocka_unit_test(problems_come_together),
        cmocka_unit_test(harmless_fields_pass),
        cmocka_unit_test(differences_are_listed),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
