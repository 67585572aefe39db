/* SPDX-License-Identifier: Apache-2.0
 *
 * What the draft makes of the fields of config.json when the model type is not
 * known. */
#include "file.h"
#include "hf_config.h"
#include "hf_weights.h"
#include "loong/checkpoint.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(dir)

static void add_line(void *user, const char *line)
{
    loongi_text_printf(user, "%s\n", line);
}

/* The fixture with another text in its config.json; its draft's model.yaml
 * and what is said. */
static loong_status_t draft_changed(loong_context_t *ctx, const char *fixture,
                                    const char *was, const char *becomes,
                                    loong_text_t *said)
{
    char from[512], to[256], out[256];
    char *config = NULL;
    size_t length = 0;
    loong_text_t text = loongi_text_begin(ctx);
    snprintf(to, sizeof(to), "%s/changed", dir);
    snprintf(out, sizeof(out), "%s/drafted", dir);
    assert_ok(ctx, loongi_dir_make(ctx, to));
    snprintf(from, sizeof(from), FIXTURES "/%s/config.json", fixture);
    assert_ok(ctx, loongi_file_read(ctx, from, &config, &length));
    const char *at = strstr(config, was);
    assert_non_null(at);
    loongi_text_printf(&text, "%.*s%s%s", (int)(at - config), config, becomes,
                       at + strlen(was));
    snprintf(to, sizeof(to), "%s/changed/config.json", dir);
    assert_ok(ctx, loongi_file_write(ctx, to, text.data, text.length));
    snprintf(from, sizeof(from), FIXTURES "/%s/model.safetensors", fixture);
    snprintf(to, sizeof(to), "%s/changed/model.safetensors", dir);
    assert_ok(ctx, loongi_file_copy(ctx, from, to));
    snprintf(to, sizeof(to), "%s/changed", dir);
    loong_checkpoint_draft_params_t params = {to, out, add_line, said, NULL};
    loong_status_t status = loong_checkpoint_draft(ctx, &params);
    loongi_text_free(&text);
    loongi_free(ctx, config);
    return status;
}

/* A model that is not computed gets no draft, and with somebody's model and
 * map it is neither imported nor verified. */
static void others_are_refused(void **state)
{
    static const struct {
        const char *becomes;
        const char *told;
    } cases[] = {
        {"\"mine\", \"logits_scaling\": 8", "logits_scaling = 8 is"},
        {"\"mine\", \"attention_multiplier\": 2", "attention_multiplier = 2 "},
        {"\"mine\", \"attn_logit_softcapping\": 50.0",
         "attn_logit_softcapping = 50.0 is not computed"},
        {"\"gemma2\"", "model_type gemma2 is not computed: norms that"},
        {"\"olmo2\"", "model_type olmo2 is not computed: norms behind"},
        {"\"gpt_oss\"", "model_type gpt_oss is not computed: attention sinks"},
        {"\"cohere\"", "model_type cohere is not computed: attention and"},
        {"\"llama\", \"logits_scaling\": 8", "logits_scaling = 8 is"},
        {"\"llama\", \"shape_of_things\": 8", "shape_of_things = 8 is"},
    };
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_text_t said = loongi_text_begin(ctx);
        char from[256], native[256], model[256];
        assert_fails(ctx, draft_changed(ctx, "llama_yarn", "\"llama\"",
                                        cases[i].becomes, &said),
                     LOONG_ERR_UNSUPPORTED, cases[i].told);
        assert_null(strstr(loong_context_error(ctx), "nearest is gpt2"));
        snprintf(from, sizeof(from), "%s/changed", dir);
        snprintf(native, sizeof(native), "%s/native", dir);
        snprintf(model, sizeof(model), "%s/model.yaml", dir);
        static const char keys[] = "family: llama\n";
        assert_ok(ctx, loongi_file_write(ctx, model, keys, strlen(keys)));
        loong_checkpoint_import_params_t import = {
            .hf_dir = from, .save_dir = native, .names = {.model = model}};
        if (strstr(cases[i].told, "shape") == NULL) {
            loong_context_clear_error(ctx);
            assert_fails(ctx, loong_checkpoint_import(ctx, &import),
                         LOONG_ERR_UNSUPPORTED, cases[i].told);
        }
        loongi_text_free(&said);
        test_context_end(&ctx);
    }
}

static bool is_shared(const char *key)
{
    return strncmp(key, "rope_scaling.", 13) == 0 ||
           strcmp(key, "rotary_base") == 0 || strcmp(key, "window_size") == 0 ||
           strcmp(key, "max_window_layers") == 0;
}

static int64_t count_shared(const loong_pairs_t *model)
{
    int64_t count = 0;
    for (int64_t i = 0; i < model->count; i++) {
        count += is_shared(model->items[i].key);
    }
    return count;
}

/* Positions and windows of a type that is not known are those of the type that
 * says them so. */
static void known_fields_are_read(void **state)
{
    static const char *const cases[][2] = {
        {"llama_yarn", "\"llama\""},
        {"llama_linear", "\"llama\""},
        {"llama31_rope_mqa", "\"llama\""},
        {"mistral_window", "\"mistral\""},
        {"qwen2_window", "\"qwen2\""},
        {"qwen3_yarn", "\"qwen3\""}};
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_text_t said = loongi_text_begin(ctx);
        loong_pairs_t *theirs = NULL;
        loong_pairs_t *model = NULL;
        char path[512];
        snprintf(path, sizeof(path), FIXTURES "/%s", cases[i][0]);
        assert_ok(ctx, loongi_hf_config_read(ctx, path, &theirs));
        assert_ok(ctx, draft_changed(ctx, cases[i][0], cases[i][1],
                                     "\"mine\"", &said));
        assert_null(strstr(said.data, "not used"));
        snprintf(path, sizeof(path), "%s/drafted/model.yaml", dir);
        assert_ok(ctx, loongi_hf_model_read(ctx, path, &model));
        assert_true(count_shared(theirs) > 1);
        assert_int_equal(count_shared(theirs), count_shared(model));
        for (int64_t k = 0; k < theirs->count; k++) {
            const char *key = theirs->items[k].key;
            if (is_shared(key)) {
                assert_non_null(loongi_pairs_get(model, key));
                assert_string_equal(theirs->items[k].value,
                                    loongi_pairs_get(model, key));
            }
        }
        loongi_pairs_destroy(&model);
        loongi_pairs_destroy(&theirs);
        loongi_text_free(&said);
        test_context_end(&ctx);
    }
}

/* Any other field that may say more is told, in the file and beside it. */
static void other_fields_are_told(void **state)
{
    static const struct {
        const char *becomes; /* the type of llama_yarn */
        const char *told;
    } cases[] = {
        {"\"mine\", \"num_experts\": 4", "num_experts = 4 is"},
        {"\"mine\", \"layer_types\": [\"x\"]", "layer_types = [\"x\"] is"},
        {"\"mine\", \"rope_scaling\": {\"type\": \"longrope\"}",
         "rope_scaling and rope_parameters are both there"},
    };
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_text_t said = loongi_text_begin(ctx);
        char path[256];
        char *model = NULL;
        size_t length = 0;
        assert_ok(ctx, draft_changed(ctx, "llama_yarn", "\"llama\"",
                                     cases[i].becomes, &said));
        snprintf(path, sizeof(path), "%s/drafted/model.yaml", dir);
        assert_ok(ctx, loongi_file_read(ctx, path, &model, &length));
        assert_non_null(strstr(said.data, "1 field of "));
        assert_non_null(strstr(said.data, cases[i].told));
        assert_non_null(strstr(model, "\n# 1 field of "));
        const char *at = strstr(model, cases[i].told);
        assert_non_null(at);
        assert_true(strncmp(at - 4, "#   ", 4) == 0);
        loongi_free(ctx, model);
        loongi_text_free(&said);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_fields_are_read),
        cmocka_unit_test(other_fields_are_told),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
