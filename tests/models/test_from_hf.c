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
#include "loong/trainer.h"
#include "safetensors.h"
#include "test.h"
#include "test_dir.h"

#define FIXTURES LOONG_SOURCE_DIR "/tests/golden/fixtures"

TEST_DIR(root)

typedef struct place {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_recipe_t *recipe;
} place_t;

static loong_status_t plan(place_t *p, const char *dir,
                           loong_trainer_t **trainer_p)
{
    char text[600];
    p->ctx = test_context();
    assert_ok(p->ctx, loong_register_builtin(p->ctx));
    assert_ok(p->ctx, loong_comm_create_self(p->ctx, NULL, &p->comm));
    snprintf(text, sizeof(text), "model: {from_hf: %s}\n", dir);
    assert_ok(p->ctx, loong_recipe_parse(p->ctx, "r.yaml", text, NULL,
                                         &p->recipe));
    loong_trainer_params_t params = {.comm = p->comm, .recipe = p->recipe,
                                     .plan_only = true};
    return loong_trainer_create(p->ctx, &params, trainer_p);
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
    loong_trainer_destroy(&trainer);
    end(&p);
}

static void every_fixture(void **state)
{
    struct dirent **names = NULL;
    int count = scandir(FIXTURES, &names, NULL, alphasort);
    (void)state;
    assert_true(count > 40);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            describes(names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

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

/* A recipe without a model, and one of a family that there is not. */
static void no_model(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"seed: 1\n", "no model: model: FAMILY/SIZE takes a preset"},
        {"foundation: {family: quen3}\n",
         "r.yaml:1: model.foundation.family: found quen3; did you mean "
         "qwen3?; there are gpt2"}};
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
        cmocka_unit_test(no_model),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
