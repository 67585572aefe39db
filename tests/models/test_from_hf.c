/* SPDX-License-Identifier: Apache-2.0
 *
 * A recipe that says `model: {from_hf: DIR}` and nothing more, with a small
 * Hugging Face directory of every family: config.json alone says what the
 * model is. And what is told of a type that nobody knows. */
#include <dirent.h>

#include "file.h"
#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/rope.h"
#include "loong/trainer.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"
#include "trainer_impl.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(root)

typedef struct place {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_recipe_t *recipe;
} place_t;

static loong_status_t plan_text(place_t *p, const char *text,
                                loong_trainer_t **trainer_p)
{
    p->ctx = test_context();
    assert_ok(p->ctx, loong_register_builtin(p->ctx));
    assert_ok(p->ctx, loong_comm_create_self(p->ctx, NULL, &p->comm));
    assert_ok(p->ctx, loong_recipe_parse(p->ctx, "r.yaml", text, NULL,
                                         &p->recipe));
    loong_trainer_params_t params = {.comm = p->comm, .recipe = p->recipe,
                                     .plan_only = true};
    return loong_trainer_create(p->ctx, &params, trainer_p);
}

static loong_status_t plan(place_t *p, const char *dir,
                           loong_trainer_t **trainer_p)
{
    char text[600];
    snprintf(text, sizeof(text), "model: {from_hf: %s}\n", dir);
    return plan_text(p, text, trainer_p);
}

static void end(place_t *p)
{
    loong_recipe_destroy(&p->recipe);
    loong_comm_destroy(&p->comm);
    test_context_end(&p->ctx);
}

/* Tensors of layers that predict further tokens, and of what sees images. */
static bool left_out(const char *name)
{
    return strstr(name, ".mtp_layers.") != NULL ||
           strstr(name, ".vision_model.") != NULL ||
           strstr(name, ".resampler_model.") != NULL;
}

/* Elements of the weights beside it, but of what is left out. */
static int64_t count_elements(loong_context_t *ctx, const char *dir)
{
    char path[600];
    loong_safetensors_t *file = NULL;
    int64_t total = 0;
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_ok(ctx, loongi_safetensors_open(ctx, path, &file));
    for (int64_t i = 0; i < loongi_safetensors_count(file); i++) {
        const loong_safetensor_t *t = loongi_safetensors_get(file, i);
        if (!left_out(t->name)) {
            total += loongi_shape_count(t->ndim, t->shape);
        }
    }
    loongi_safetensors_close(&file);
    return total;
}

/* A directory that has the config.json of `dir` and nothing else. */
static void keep_config(loong_context_t *ctx, const char *dir)
{
    char path[600];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_ok(ctx, loongi_file_read(ctx, path, &text, &bytes));
    assert_ok(ctx, loongi_dir_remove(ctx, root));
    assert_ok(ctx, loongi_dir_make(ctx, root));
    snprintf(path, sizeof(path), "%s/config.json", root);
    assert_ok(ctx, loongi_file_write(ctx, path, text, bytes));
    loongi_free(ctx, text);
}

/* --print-config: each key of the model is there with the field that says it,
 * of those in the file. */
static void tells_origins(place_t *p, const char *name)
{
    char path[64], wanted[96];
    char *config = NULL;
    size_t bytes = 0;
    const char *text = NULL;
    int keys = 0;
    snprintf(path, sizeof(path), "%s/config.json", root);
    snprintf(wanted, sizeof(wanted), "  # %s: ", path);
    assert_ok(p->ctx, loongi_file_read(p->ctx, path, &config, &bytes));
    assert_ok(p->ctx, loong_recipe_print(p->recipe, true, &text));
    const char *at = strstr(text, "\n  foundation:\n");
    assert_non_null(at);
    for (at += 15; strncmp(at, "    ", 4) == 0; at = strchr(at, '\n') + 1) {
        char line[256], field[96];
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        const char *origin = strstr(line, wanted);
        if (strstr(line, "rope_scaling:") != NULL) {
            continue;
        }
        if (origin == NULL) {
            fail_msg("%s: no field is told of: %s", name, line);
        }
        origin += strlen(wanted);
        origin += strchr(origin, '.') != NULL ? strcspn(origin, ".") + 1 : 0;
        snprintf(field, sizeof(field), "\"%.*s\":",
                 (int)strcspn(origin, ","), origin);
        if (strstr(config, field) == NULL) {
            fail_msg("%s: config.json has no %s, told of: %s", name, field,
                     line);
        }
        keys++;
    }
    assert_true(keys > 20);
    loongi_free(p->ctx, config);
}

static void describes(const char *name)
{
    char dir[300];
    char wanted[64];
    char line[128] = "";
    const char *text = NULL;
    place_t p;
    loong_trainer_t *trainer = NULL;
    snprintf(dir, sizeof(dir), FIXTURES "/%s", name);
    loong_context_t *ctx = test_context();
    keep_config(ctx, dir);
    test_context_end(&ctx);
    loong_status_t status = plan(&p, root, &trainer);
    assert_ok(p.ctx, status);
    assert_ok(p.ctx, loong_trainer_describe(trainer, &text));
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
    snprintf(wanted, sizeof(wanted), "parameters: %lld (",
             (long long)count_elements(p.ctx, dir));
    if (strstr(line, wanted) == NULL) {
        fail_msg("%s: '%s' is not in: %s", name, wanted, line);
    }
    tells_origins(&p, name);
    loong_trainer_destroy(&trainer);
    end(&p);
}

static void every_fixture(void **state)
{
    struct dirent **names = NULL;
    int count = scandir(FIXTURES, &names, NULL, alphasort);
    (void)state;
    assert_true(count > 40);
    for (int i = 0; i < count; i++) { /* whole models: vl_from_hf */
        if (names[i]->d_name[0] != '.' &&
            strncmp(names[i]->d_name, "ernie4_5_vl", 11) != 0) {
            describes(names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

#define WRONG_HEADS                                            \
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, "     \
    "\"hidden_size\": 8, \"intermediate_size\": 8, "             \
    "\"vocab_size\": 9, \"max_position_embeddings\": 16, "       \
    "\"rms_norm_eps\": 1e-6, \"num_attention_heads\": 2, "       \
    "\"num_key_value_heads\": 3}"

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        loong_status_t status;
        const char *text;
    } cases[] = {
        {"{\"model_type\": \"qwen3moe\"}", LOONG_ERR_UNSUPPORTED,
         "model_type 'qwen3moe' is not supported, the nearest is qwen3_moe"},
        {"{\"model_type\": \"qwen3moe\"}", LOONG_ERR_UNSUPPORTED,
         "wanted by model.from_hf (r.yaml:1)"},
        {WRONG_HEADS, LOONG_ERR_CONFIG,
         "num_query_groups: 3 does not divide num_attention_heads 2"},
        {WRONG_HEADS, LOONG_ERR_CONFIG, "num_query_groups is from /"},
        {WRONG_HEADS, LOONG_ERR_CONFIG, "/config.json: num_key_value_heads"},
        {"{\"model_type\": \"llama\"}", LOONG_ERR_UNSUPPORTED,
         "num_hidden_layers is missing"},
        {NULL, LOONG_ERR_NOT_FOUND, "config.json' does not exist"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        char path[64];
        place_t p;
        loong_trainer_t *trainer = NULL;
        loong_context_t *ctx = test_context();
        snprintf(path, sizeof(path), "%s/config.json", root);
        assert_ok(ctx, loongi_dir_remove(ctx, root));
        assert_ok(ctx, loongi_dir_make(ctx, root));
        if (cases[i].config != NULL) {
            assert_ok(ctx, loongi_file_write(ctx, path, cases[i].config,
                                             strlen(cases[i].config)));
        }
        test_context_end(&ctx);
        loong_status_t status = plan(&p, root, &trainer);
        assert_int_equal(status, cases[i].status);
        if (strstr(loong_context_error(p.ctx), cases[i].text) == NULL) {
            fail_msg("'%s' is not in: %s", cases[i].text,
                     loong_context_error(p.ctx));
        }
        end(&p);
    }
}

#define OF(fixture_, keys_)                                     \
    "model: {from_hf: " FIXTURES "/" fixture_ ", foundation: {" \
    keys_ "}}\n"
#define M "model.foundation."

/* Where the recipe takes another scaling or no window, numbers of those of
 * config.json are not read; numbers that it sets itself for nothing are
 * refused. */
static void replaced(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *key;    /* not set then */
        const char *refusal; /* NULL: planned */
    } cases[] = {
        {OF("llama31_rope_mqa", "rope_scaling: {type: none}"),
         M "rope_scaling.factor", NULL},
        {OF("llama31_rope_mqa", "rope_scaling: {type: linear, factor: 2}"),
         M "rope_scaling.low_freq_factor", NULL},
        {OF("qwen2_window", "window_size: 0"), M "max_window_layers", NULL},
        /* nor what the file of the weights has and the model's has not */
        {"model: {from_hf: " FIXTURES "/qwen2_gqa}\n"
         "init: {from_hf: " FIXTURES "/qwen2_window}\n",
         M "window_size", NULL},
        {OF("llama_yarn", "rope_scaling: {low_freq_factor: 2}"), NULL,
         "rope_scaling.low_freq_factor: has no effect with rope_scaling.type "
         "yarn"},
        {OF("llama_yarn", "rope_scaling: {beta_fast: 0}"), NULL,
         "  rope_scaling.beta_fast: found 0, at least 1 wanted\n"
         "  rope_scaling.beta_fast is from r.yaml:1"},
        {OF("llama_linear", "rope_scaling: {beta_fast: 2}"), NULL,
         "rope_scaling.beta_fast: has no effect with rope_scaling.type "
         "linear"},
        {OF("llama2_mha", "rope_scaling: {factor: 2}"), NULL,
         "rope_scaling.factor: has no effect without rope_scaling.type"},
        {OF("qwen2_gqa", "max_window_layers: 1"), NULL,
         "max_window_layers: has no effect without window_size"},
    };
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        place_t p;
        loong_trainer_t *trainer = NULL;
        loong_status_t status = plan_text(&p, cases[i].text, &trainer);
        if (cases[i].refusal != NULL) {
            assert_int_equal(status, LOONG_ERR_CONFIG);
            assert_non_null(
                strstr(loong_context_error(p.ctx), cases[i].refusal));
        } else {
            assert_ok(p.ctx, status);
            assert_false(loong_recipe_is_set(p.recipe, cases[i].key));
        }
        loong_trainer_destroy(&trainer);
        end(&p);
    }
}

static void count_overrides(void *user, loong_log_level_t level,
                            const char *line)
{
    (void)level;
    *(int *)user += strstr(line, ") holds, ") != NULL;
}

/* The same directory for model and weights is compared once, also with keys
 * that its config.json has nothing for. */
static void told_once(void **state)
{
    (void)state;
    static const char text[] =
        "model: {from_hf: " FIXTURES "/qwen2_gqa, foundation: "
        "{rotary_base: 5e5, mrope_section: '[1, 1, 2]'}}\n"
        "init: {from_hf: " FIXTURES "/qwen2_gqa}\n";
    loong_recipe_t *recipe = NULL;
    loong_context_t *ctx = NULL;
    int told = 0;
    loong_context_params_t params = {.log = count_overrides,
                                     .log_user = &told,
                                     .log_level = LOONG_LOG_WARN};
    assert_int_equal(loong_context_create(&params, &ctx), LOONG_OK);
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &recipe));
    assert_ok(ctx, loong_trainer_fill_recipe(ctx, recipe, true));
    assert_int_equal(told, 2);
    loong_recipe_destroy(&recipe);
    loong_context_destroy(&ctx);
}

/* A model and the length of samples are enough for a plan. */
static void length_alone(void **state)
{
    (void)state;
    place_t p;
    loong_trainer_t *t = NULL;
    loong_status_t status = plan_text(
        &p, "model: {from_hf: " FIXTURES "/qwen2_gqa}\n"
            "data: {seq_length: 11}\n", &t);
    assert_ok(p.ctx, status);
    assert_int_equal(loong_recipe_int(p.recipe, "data.seq_length"), 11);
    assert_int_equal(loong_recipe_int(p.recipe, "train.global_batch_size"), 1);
    loong_trainer_destroy(&t);
    end(&p);
}

/* The length that the rotary tables of a chunk are made for. */
static double table_length(const loong_model_chunk_t *chunk)
{
    double length = -1.0;
    for (int p = 0; p < LOONG_PROGRAM_COUNT; p++) {
        const loong_program_t *program = &chunk->programs[p];
        for (int64_t i = 0; i < program->num_steps; i++) {
            if (strcmp(program->steps[i].op->name, "rope_table") == 0) {
                const loong_rope_table_attr_t *a =
                    program->steps[i].query.attr;
                assert_true(length < 0.0 || length == a->length);
                length = a->length;
            }
        }
    }
    return length;
}

/* Dynamic NTK: samples of 41 tokens raise the base, a prompt of what the model
 * knows, 24, does not. */
static void prompts_have_their_length(void **state)
{
    (void)state;
    place_t p;
    loong_trainer_t *t = NULL;
    loong_status_t status = plan_text(
        &p, "model: {from_hf: " FIXTURES "/internlm2_dynamic}\n"
            "data: {seq_length: 41, tokenizer: bytes}\n"
            "train: {global_batch_size: 1, train_iters: 1}\n"
            "optimizer: {lr: 0}\n"
            "eval: {sample: {prompts: [a]}}\n", &t);
    assert_ok(p.ctx, status);
    loong_model_chunk_t *const *chunk = t->component->stages[0]->chunk;
    assert_true(table_length(chunk[LOONG_VARIANT_TRAIN]) == 41.0);
    assert_true(table_length(chunk[LOONG_VARIANT_EVAL]) == 41.0);
    assert_true(table_length(chunk[LOONG_VARIANT_LOGITS]) == 24.0);
    assert_int_equal(t->component->params.logits_rows, 24);
    loong_trainer_destroy(&t);
    end(&p);
}

/* A recipe without a model, and one of a family that there is not. */
static void no_model(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"seed: 1\n", "no model: model: FAMILY/SIZE takes a preset"},
        {"foundation: {family: quen3}\n",
         "r.yaml:1: model.foundation.family: found quen3; did you mean "
         "qwen3? There are gpt2"}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_comm_t *comm = NULL;
        loong_recipe_t *recipe = NULL;
        loong_trainer_t *trainer = NULL;
        assert_ok(ctx, loong_register_builtin(ctx));
        assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
        assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", cases[i][0], NULL,
                                          &recipe));
        loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                         .plan_only = true};
        assert_fails(ctx, loong_trainer_create(ctx, &params, &trainer),
                     LOONG_ERR_CONFIG, cases[i][1]);
        loong_recipe_destroy(&recipe);
        loong_comm_destroy(&comm);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture),
        cmocka_unit_test(refusals),
        cmocka_unit_test(replaced),
        cmocka_unit_test(told_once),
        cmocka_unit_test(length_alone),
        cmocka_unit_test(prompts_have_their_length),
        cmocka_unit_test(no_model),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
