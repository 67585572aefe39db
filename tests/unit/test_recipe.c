/* SPDX-License-Identifier: Apache-2.0
 *
 * Recipes: every kind of mistake and its message, composition, overrides,
 * printing, the checks of keys together. */
#include <unistd.h>

#include "file.h"
#include "loong/recipe.h"
#include "test.h"
#include "test_dir.h"

TEST_DIR(root)

static loong_recipe_t *parse(loong_context_t *ctx, const char *text)
{
    loong_recipe_t *recipe = NULL;
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &recipe));
    return recipe;
}

static loong_recipe_t *parse_with(loong_context_t *ctx, const char *text,
                                  const char *override)
{
    loong_recipe_t *recipe = NULL;
    loong_recipe_params_t params = {NULL, 1, &override, 0, NULL};
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, &params, &recipe));
    return recipe;
}

static void refuse(loong_context_t *ctx, const char *text, const char *message)
{
    loong_recipe_t *recipe = NULL;
    assert_fails(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &recipe),
                 LOONG_ERR_CONFIG, message);
    assert_null(recipe);
}

static void refuse_override(loong_context_t *ctx, const char *text,
                            const char *override, const char *message)
{
    loong_recipe_t *recipe = NULL;
    loong_recipe_params_t params = {NULL, 1, &override, 0, NULL};
    assert_fails(ctx,
                 loong_recipe_parse(ctx, "r.yaml", text, &params, &recipe),
                 LOONG_ERR_CONFIG, message);
    assert_null(recipe);
}

static void write_text(loong_context_t *ctx, const char *name,
                       const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_ok(ctx, loongi_file_write(ctx, path, text, strlen(text)));
}

static loong_status_t load(loong_context_t *ctx, const char *name,
                           const char *config_dir, loong_recipe_t **recipe_p)
{
    char path[256];
    loong_recipe_params_t params = {config_dir, 0, NULL, 0, NULL};
    snprintf(path, sizeof(path), "%s/%s", root, name);
    return loong_recipe_load(ctx, path, &params, recipe_p);
}

/* Each text has one mistake; the message says where and what. */
static const struct {
    const char *text;
    const char *message;
} mistakes[] = {
    /* unknown keys */
    {"train:\n  train_itres: 5\n",
     "r.yaml:2: unknown key train.train_itres; did you mean "
     "train.train_iters?"},
    {"seed: 1\n\ntrian:\n  train_iters: 5\n",
     "r.yaml:3: unknown key trian; did you mean train?"},
    {"lr: 1e-3\n", "unknown key lr; did you mean optimizer.lr?"},
    {"train:\n  seq_length: 5\n", "did you mean data.seq_length?"},
    {"data:\n  train:\n    - path: x\n      wieght: 1\n",
     "r.yaml:4: unknown key data.train[0].wieght; did you mean "
     "data.train[].weight?"},
    {"zq: 1\n", "r.yaml:1: unknown key zq"},
    {"train.train_iters: 5\n", "key 'train.train_iters': a name without"},
    {"data:\n  train[0]: {path: x}\n", "key 'train[0]': a name without"},
    {"\"\": {seed: 1}\n", "key '': a name without"},
    /* types */
    {"seed: x\n", "r.yaml:1: seed: found x, a whole number wanted"},
    {"seed: 1.5\n", "found 1.5, a whole number"},
    {"seed: 5k\n", "found 5k, a whole number"},
    {"seed: \"\"\n", "found nothing, a whole number"},
    {"seed: [1]\n", "seed: found a list, a whole number wanted"},
    {"seed: {a: 1}\n", "seed: found a map, a whole number wanted"},
    {"seed: .inf\n", "found .inf"},
    {"optimizer: {lr: .nan}\n", "found .nan, a number wanted"},
    {"optimizer: {lr: nan}\n", "found nan, a number wanted"},
    {"optimizer: {lr: inf}\n", "found inf, a number wanted"},
    {"optimizer: {lr: 1e999}\n", "found 1e999, a number wanted"},
    {"log: {tensorboard: yes}\n", "found yes, true or false wanted"},
    {"train: {max_wall_time: 5w}\n", "found 5w, a time such as 90, 15m or 2h"},
    {"train: 5\n", "train: found 5, a map wanted"},
    {"train: [a]\n", "train: found a list, a map wanted"},
    {"data: {train: a}\n",
     "data.train: found a, a list of maps wanted, as in [a]"},
    {"data: {train: {path: a}}\n", "found a map, a list of maps wanted"},
    {"data:\n  train:\n    - [a]\n",
     "r.yaml:3: data.train[0]: found a list, a map wanted"},
    {"data: {train: [~]}\n", "data.train[0]: found ~, a map wanted"},
    {"recompute: {scopes: a}\n", "found a, a list of texts wanted, as in [a]"},
    {"finetune: {lora_rank: 8}\n", "lora_rank; did you mean finetune.rank?"},
    {"model: {foundation: {ranks: 0,2}}\n",
     "unknown key model.foundation.2; in {...} a comma ends a value that has"},
    {"recompute: {scopes: [[a]]}\n",
     "recompute.scopes[0]: found a list, a text wanted"},
    {"recompute: {scopes: [a, ~]}\n",
     "recompute.scopes[1]: found ~, a text wanted"},
    {"train: {rampup_batch_size: [1, x, 3]}\n",
     "train.rampup_batch_size[1]: found x, a whole number wanted"},
    /* ranges and choices */
    {"train: {micro_batch_size: 0}\n", "found 0, allowed 1 to 1000000"},
    {"seed: -1\n", "found -1, allowed 0 to 9e+15"},
    {"seed: 99999999999999999999\n", "allowed 0 to 9e+15"},
    {"train: {rampup_batch_size: [-4]}\n", "found -4, allowed 0 to"},
    {"train: {max_wall_time: -5m}\n", "found -5m, allowed 0 to"},
    {"training_phase: run\n",
     "training_phase: found run, allowed: pretrain midtrain sft"},
    {"training_phase: pretrain sft\n", "found pretrain sft, allowed:"},
    {"training_phase: sf\n", "found sf, allowed:"},
    {"training_phase: \"\"\n", "found nothing, allowed:"},
    /* YAML */
    {"seed: 1\nname: a\nseed: 2\n", "r.yaml:3:1: key seed is there twice"},
    {"train: {micro_batch_size: 2\n", "r.yaml:2:1:"},
    {"name: \"half\n", "r.yaml:2:1:"},
    {"a:\n\tb: 1\n", "r.yaml:2:1:"},
    {"? [a]\n: b\n", "r.yaml:1:3: a key must be a text"},
    {"name: *x\n", "r.yaml:1:7: an alias without its anchor; a text that "
                   "begins with * takes quotes"},
    {"model: {freeze: [a, *b*]}\n", "begins with * takes quotes"},
    {"train: &t\n  a: *t\n", "r.yaml:2:6: an alias inside its own anchor"},
    {"seed: 1\n---\nseed: 2\n", "a second document in one file"},
    {"name: \"a\\0b\"\n", "r.yaml:1:7: a NUL byte in a text"},
    {"seed: 1\nname: \xc3\n", "r.yaml:2:8: invalid trailing UTF-8 octet"},
    {"seed: 1\nname: a\x01\n", "r.yaml:2:8: control characters are not"},
    {"train: &t {}\neval:\n  <<: *t\n", "r.yaml:3:3: a merge key (<<)"},
    {"seed: !!int 5\n", "r.yaml:1:7: a tag (!...)"},
    {"data: !x {}\n", "r.yaml:1:7: a tag (!...)"},
    {"seed: 9223372036854775807\n", "807, allowed 0 to 9e+15"},
    {"- a\n", "r.yaml:1: a recipe is a map of keys"},
    {"a text\n", "r.yaml:1: a recipe is a map of keys"},
    {"defaults: x.yaml\n", "r.yaml:1: defaults: a list of files wanted"},
    {"defaults: [{a: 1}]\n", "defaults: found no text, file or"},
    {"defaults: ['']\n", "r.yaml:1: defaults: found , file or"},
    {"defaults: [a@]\n", "defaults: found a@, file or file@place"},
    {"defaults: [a@b..c]\n", "defaults: found a@b..c, file or"},
};

static void test_mistakes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    for (int64_t i = 0; i < LOONG_COUNT_OF(mistakes); i++) {
        refuse(ctx, mistakes[i].text, mistakes[i].message);
    }
    test_context_end(&ctx);
}

/* A far name is not offered. */
static void test_no_hint(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *recipe = NULL;
    assert_int_equal(
        loong_recipe_parse(ctx, "r.yaml", "xq: 1\n", NULL, &recipe),
        LOONG_ERR_CONFIG);
    assert_null(strstr(loong_context_error(ctx), "did you mean"));
    loong_context_clear_error(ctx);
    test_context_end(&ctx);
}

static void test_all_together(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char text[] = "seed: x\n"
                               "training_phase: gpu\n"
                               "train:\n"
                               "  micro_batch_size: 0\n"
                               "  no_such: 1\n"
                               "log: 4\n";
    refuse(ctx, text, "the recipe: 5 problems");
    refuse(ctx, text, "r.yaml:1: seed");
    refuse(ctx, text, "r.yaml:2: training_phase");
    refuse(ctx, text, "r.yaml:4: train.micro_batch_size");
    refuse(ctx, text, "r.yaml:5: unknown key train.no_such");
    refuse(ctx, text, "r.yaml:6: log: found 4, a map wanted");
    test_context_end(&ctx);
}

/* Deep, wide and self-multiplying texts end with a message. */
static void test_limits(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_text_t text = loongi_text_begin(ctx);
    for (int i = 0; i < 100; i++) {
        loongi_text_printf(&text, "[");
    }
    refuse(ctx, loongi_text_get(&text), "nested deeper than 64");
    loongi_text_free(&text);

    text = loongi_text_begin(ctx);
    loongi_text_printf(&text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 9; i++) {
        loongi_text_printf(&text, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++) {
            loongi_text_printf(&text, "%s*a%d", j > 0 ? ", " : "", i - 1);
        }
        loongi_text_printf(&text, "]\n");
    }
    refuse(ctx, loongi_text_get(&text), "more than 200000 nodes");
    loongi_text_free(&text);

    text = loongi_text_begin(ctx);
    for (int i = 0; i < 300; i++) {
        loongi_text_printf(&text, "k%d: &a%d x\n", i, i);
    }
    refuse(ctx, loongi_text_get(&text), "r.yaml:257:7: more than 256 anchors");
    loongi_text_free(&text);

    text = loongi_text_begin(ctx);
    loongi_text_printf(&text, "train:\n  ");
    for (int i = 0; i < 300; i++) {
        loongi_text_printf(&text, "k");
    }
    loongi_text_printf(&text, ": 1\n");
    refuse(ctx, loongi_text_get(&text), "r.yaml:2: a key is longer than 255");
    loongi_text_free(&text);
    test_context_end(&ctx);
}

static void test_values(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse(ctx, "name: a b\n"
                                   "seed: 1e3\n"
                                   "optimizer:\n"
                                   "  lr: 3e-4\n"
                                   "train:\n"
                                   "  max_wall_time: 1.5h\n"
                                   "  rampup_batch_size: [2, 4, 600]\n"
                                   "log:\n"
                                   "  interval: null\n"
                                   "  tensorboard: False\n"
                                   "eval:\n"
                                   "data:\n"
                                   "  train: &t\n"
                                   "    - path: x\n"
                                   "      weight: 0.25\n"
                                   "    - path: y\n"
                                   "  validation: [{name: v, path: z}]\n");
    assert_string_equal(loong_recipe_text(r, "name"), "a b");
    assert_int_equal(loong_recipe_int(r, "seed"), 1000);
    assert_float_equal(loong_recipe_real(r, "optimizer.lr"), 3e-4, 0.0);
    assert_float_equal(loong_recipe_real(r, "train.max_wall_time"), 5400.0,
                       0.0);
    assert_int_equal(loong_recipe_count(r, "train.rampup_batch_size"), 3);
    assert_int_equal(loong_recipe_int(r, "train.rampup_batch_size[2]"), 600);
    assert_false(loong_recipe_bool(r, "log.tensorboard"));
    assert_int_equal(loong_recipe_count(r, "data.train"), 2);
    assert_string_equal(loong_recipe_text(r, "data.train[1].path"), "y");
    assert_float_equal(loong_recipe_real(r, "data.train[0].weight"), 0.25, 0);
    /* Defaults; null counts as not set. */
    assert_float_equal(loong_recipe_real(r, "data.train[1].weight"), 0.0, 0);
    assert_int_equal(loong_recipe_int(r, "log.interval"), 10);
    assert_false(loong_recipe_is_set(r, "log.interval"));
    assert_true(loong_recipe_is_set(r, "seed"));
    assert_string_equal(loong_recipe_text(r, "device"), "auto");
    assert_float_equal(loong_recipe_real(r, "comm.timeout"), 300.0, 0.0);
    assert_true(loong_recipe_bool(r, "checkpoint.async"));
    /* Neither set nor a default. */
    assert_null(loong_recipe_text(r, "log.dir"));
    assert_int_equal(loong_recipe_int(r, "train.train_iters"), 0);
    assert_int_equal(loong_recipe_count(r, "recompute.scopes"), 0);
    assert_null(loong_recipe_text(r, "data.train[2].path"));
    loong_recipe_destroy(&r);
    assert_null(r);
    loong_recipe_destroy(&r);
    r = parse(ctx, "");
    assert_int_equal(loong_recipe_int(r, "seed"), 1234);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_defaults(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    char configs[64];
    snprintf(configs, sizeof(configs), "%s/configs", root);
    assert_ok(ctx, loongi_dir_make(ctx, configs));
    write_text(ctx, "configs/small.yaml",
               "num_layers: 2\nhidden_size: 64\nrope_scaling: {type: yarn, "
               "factor: 2}\n");
    write_text(ctx, "base.yaml", "seed: 1\nname: base\nlog: {interval: 5}\n");
    write_text(ctx, "more.yaml",
               "defaults: [base.yaml]\nname: more\nlog: {dir: x}\n");
    write_text(ctx, "top.yaml",
               "defaults:\n"
               "  - more.yaml\n"
               "  - small.yaml@model.foundation\n"
               "model: {foundation: {hidden_size: 128, rope_scaling: {factor: "
               "4}}}\n"
               "seed: 3\n");
    assert_ok(ctx, load(ctx, "top.yaml", configs, &r));
    assert_int_equal(loong_recipe_int(r, "seed"), 3);
    assert_string_equal(loong_recipe_text(r, "name"), "more");
    assert_int_equal(loong_recipe_int(r, "log.interval"), 5);
    assert_string_equal(loong_recipe_text(r, "log.dir"), "x");
    assert_int_equal(loong_recipe_int(r, "model.foundation.num_layers"), 2);
    assert_int_equal(loong_recipe_int(r, "model.foundation.hidden_size"), 128);
    assert_string_equal(
        loong_recipe_text(r, "model.foundation.rope_scaling.type"), "yarn");
    assert_float_equal(
        loong_recipe_real(r, "model.foundation.rope_scaling.factor"), 4.0, 0);
    loong_recipe_destroy(&r);

    assert_fails(ctx, load(ctx, "top.yaml", NULL, &r), LOONG_ERR_NOT_FOUND,
                 "top.yaml:3: defaults: no file 'small.yaml' beside this one");
    assert_fails(ctx, load(ctx, "none.yaml", NULL, &r), LOONG_ERR_NOT_FOUND,
                 "none.yaml");
    test_context_end(&ctx);
}

static void test_default_mistakes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    char configs[64];
    snprintf(configs, sizeof(configs), "%s/configs", root);
    assert_ok(ctx, loongi_dir_make(ctx, configs));
    write_text(ctx, "base.yaml", "seed: 1\n");
    write_text(ctx, "top.yaml",
               "defaults:\n  - small.yaml@model.foundation\nseed: 3\n");
    /* A mistake in a default names the default's line. */
    write_text(ctx, "configs/small.yaml", "num_layers: 2\nhidden_sise: 64\n");
    assert_fails(ctx, load(ctx, "top.yaml", configs, &r), LOONG_ERR_CONFIG,
                 "small.yaml:2: unknown key model.foundation.hidden_sise; did "
                 "you mean model.foundation.hidden_size?");
    write_text(ctx, "configs/small.yaml", "num_layers: [2\n");
    assert_fails(ctx, load(ctx, "top.yaml", configs, &r), LOONG_ERR_CONFIG,
                 "among the defaults of /tmp/loong_test");
    /* The same file twice is no cycle; one within itself is. */
    write_text(ctx, "twice.yaml", "defaults: [base.yaml, base.yaml]\n");
    assert_ok(ctx, load(ctx, "twice.yaml", NULL, &r));
    loong_recipe_destroy(&r);
    write_text(ctx, "a.yaml", "defaults: [./configs/../b.yaml]\n");
    write_text(ctx, "b.yaml", "defaults: [a.yaml]\n");
    assert_fails(ctx, load(ctx, "a.yaml", NULL, &r), LOONG_ERR_CONFIG,
                 "a.yaml is among its own defaults");
    assert_null(r);
    for (int i = 0; i < 20; i++) {
        char name[32];
        char text[64];
        snprintf(name, sizeof(name), "c%d.yaml", i);
        snprintf(text, sizeof(text), "defaults: [c%d.yaml]\n", i + 1);
        write_text(ctx, name, i < 19 ? text : "seed: 1\n");
    }
    assert_fails(ctx, load(ctx, "c0.yaml", NULL, &r), LOONG_ERR_CONFIG,
                 "defaults nested deeper than 16");
    assert_ok(ctx, load(ctx, "c4.yaml", NULL, &r));
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static const struct {
    const char *override;
    const char *path;
    const char *text;
} good_overrides[] = {
    {"seed=7", "seed", "7"},
    {"train.micro_batch_size=8", "train.on_nan", "skip"},
    {"train={micro_batch_size: 9}", "train.micro_batch_size", "9"},
    {"+log.interval=3", "log.interval", "3"},
    {"++seed=8", "seed", "8"},
    {"++log.dir=\"x y\"", "log.dir", "x y"},
    {"~seed", "seed", "1234"},
    {"~train.on_nan", "train.micro_batch_size", "4"},
    {"~train", "train.micro_batch_size", "1"},
    {"~data.train[0]", "data.train[0].path", "b"},
    {"seed=null", "seed", "1234"},
    {"name=", "name", ""},
    {"name=  ", "name", ""},
    {"name=a=b", "name", "a=b"},
    {"name=a#b", "name", "a#b"},
    {"name='a #b'", "name", "a #b"},
    {"data.train[1].path=c", "data.train[1].path", "c"},
    {"data.train[1].path=c", "data.train[0].path", "a"},
    {"data.train[2].path=c", "data.train[2].path", "c"},
    {"data.train=[{path: q}]", "data.train[0].path", "q"},
    {"recompute.scopes=[a, b]", "recompute.scopes[1]", "b"},
};

static const struct {
    const char *override;
    const char *message;
} bad_overrides[] = {
    {"seed", "a.b=c, +a.b=c, ++a.b=c or ~a.b wanted"},
    {"seed", "in the override 'seed'"},
    {"=5", "'' is no path"},
    {"a..b=5", "'a..b' is no path"},
    {".a=5", "'.a' is no path"},
    {"a.=5", "'a.' is no path"},
    {"a[x]=5", "'a[x]' is no path"},
    {"a[1=5", "'a[1' is no path"},
    {"~", "'' is no path"},
    {"+++seed=1", "unknown key +seed; did you mean seed?"},
    {"+seed=6", "the key is set already; seed=... changes it"},
    {"~log.interval", "log.interval: the key is not set"},
    {"~nothing", "nothing: the key is not set"},
    {"data.train[3].path=c", "data.train[3].path: the list has 2 items"},
    {"~data.train[2]", "the list has 2 items"},
    {"data.validation[0].path=c", "there is no list"},
    {"seed=[1", "command line:2:1: did not find"},
    {"seed=[1", "in the override 'seed=[1'"},
    {"name=a #b", "a '#' begins a comment: name='...' in quotation marks"},
    {"name=#b", "a '#' begins a comment: name='...' in quotation marks"},
    {"seed=x", "command line: seed: found x, a whole number wanted"},
    {"sead=1", "command line: unknown key sead; did you mean seed?"},
    {"train={}", "an empty one changes nothing: ~train takes all of it away"},
    {"train.lr=1", "unknown key train.lr; did you mean optimizer.lr?"},
};

static void test_overrides(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char base[] = "seed: 5\n"
                               "train: {micro_batch_size: 4, on_nan: skip}\n"
                               "data: {train: [{path: a}, {path: b}]}\n";
    for (int64_t i = 0; i < LOONG_COUNT_OF(good_overrides); i++) {
        loong_recipe_t *r = parse_with(ctx, base, good_overrides[i].override);
        assert_string_equal(loong_recipe_text(r, good_overrides[i].path),
                            good_overrides[i].text);
        loong_recipe_destroy(&r);
    }
    for (int64_t i = 0; i < LOONG_COUNT_OF(bad_overrides); i++) {
        refuse_override(ctx, base, bad_overrides[i].override,
                        bad_overrides[i].message);
    }
    test_context_end(&ctx);
}

/* Aliases are copies: changing one place leaves the other. */
static void test_aliases(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    static const char text[] = "data:\n"
                               "  train:\n"
                               "    - &x {path: p, weight: 2}\n"
                               "    - *x\n"
                               "recompute: {scopes: &s [a, b]}\n"
                               "model: {freeze: *s}\n";
    loong_recipe_t *r = parse_with(ctx, text, "~data.train[0].weight");
    assert_false(loong_recipe_is_set(r, "data.train[0].weight"));
    assert_float_equal(loong_recipe_real(r, "data.train[1].weight"), 2.0, 0);
    assert_string_equal(loong_recipe_text(r, "model.freeze[1]"), "b");
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_set(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse(ctx, "seed: 5\n");
    assert_ok(ctx, loong_recipe_set(r, "model.foundation.num_layers", "3",
                                    "config.json"));
    assert_int_equal(loong_recipe_int(r, "model.foundation.num_layers"), 3);
    assert_fails(ctx,
                 loong_recipe_set(r, "model.foundation.num_layers", "many",
                                  "config.json"),
                 LOONG_ERR_CONFIG,
                 "config.json: model.foundation.num_layers: found many");
    assert_fails(ctx, loong_recipe_set(r, "a.", "1", "config.json"),
                 LOONG_ERR_CONFIG, "'a.' is no path");
    /* What was refused left nothing behind. */
    assert_int_equal(loong_recipe_int(r, "model.foundation.num_layers"), 3);
    assert_int_equal(loong_recipe_int(r, "seed"), 5);
    assert_ok(ctx, loong_recipe_set(r, "data.vision_token_ids", "[3, 5]",
                                    "config.json"));
    assert_int_equal(loong_recipe_int(r, "data.vision_token_ids[1]"), 5);
    assert_fails(ctx, loong_recipe_set(r, "data.vision_token_ids", "[x]", "c"),
                 LOONG_ERR_CONFIG, "data.vision_token_ids[0]: found x");
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static loong_status_t collect(void *user, const char *key, const char *value)
{
    char *all = user;
    size_t n = strlen(all);
    snprintf(all + n, 256 - n, "%s=%s;", key, value);
    return strcmp(key, "stop") == 0 ? LOONG_ERR_ARG : LOONG_OK;
}

static void test_each(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    char all[256] = "";
    loong_recipe_t *r =
        parse(ctx, "model:\n  freeze: [a]\n  foundation:\n    num_layers: 2\n"
                   "    rope_scaling: {type: yarn, factor: ~}\n"
                   "image_encoder: {num_layers: 3}\n");
    assert_ok(ctx, loong_recipe_each(r, "model.foundation", collect, all));
    assert_string_equal(all, "num_layers=2;rope_scaling.type=yarn;");
    all[0] = '\0';
    assert_ok(ctx, loong_recipe_each(r, "model.image_encoder", collect, all));
    assert_string_equal(all, "num_layers=3;");
    assert_ok(ctx, loong_recipe_each(r, "data", collect, all));
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static void test_own_keys(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_key_t keys[] = {
        {"mine.depth", LOONG_RECIPE_INT, "4", 1, 9, NULL, LOONG_RESUME_SAME,
         "levels"}};
    loong_recipe_params_t params = {NULL, 0, NULL, 1, keys};
    loong_recipe_t *r = NULL;
    const char *text = NULL;
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", "", &params, &r));
    assert_int_equal(loong_recipe_int(r, "mine.depth"), 4);
    assert_ok(ctx, loong_recipe_print(r, false, &text));
    assert_non_null(strstr(text, "mine:\n  depth: 4\n"));
    loong_recipe_destroy(&r);
    assert_fails(ctx,
                 loong_recipe_parse(ctx, "r.yaml", "mine: {depth: 10}\n",
                                    &params, &r),
                 LOONG_ERR_CONFIG, "mine.depth: found 10, allowed 1 to 9");
    assert_fails(ctx,
                 loong_recipe_parse(ctx, "r.yaml", "mine: {dpeth: 2}\n",
                                    &params, &r),
                 LOONG_ERR_CONFIG, "did you mean mine.depth?");
    keys[0].path = "seed";
    assert_fails(ctx, loong_recipe_parse(ctx, "r.yaml", "", &params, &r),
                 LOONG_ERR_ARG, "seed is a key already");
    test_context_end(&ctx);
}

/* Every default of the schema passes the schema's own checks. */
static void test_schema(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse(ctx, "");
    for (int64_t i = 0; i < loong_recipe_num_keys(); i++) {
        const loong_recipe_key_t *key = loong_recipe_key(i);
        assert_true(key->help[0] != '\0');
        assert_true(key->type != LOONG_RECIPE_CHOICE || key->choices != NULL);
        if (key->fallback != NULL && strchr(key->path, '[') == NULL) {
            assert_ok(ctx, loong_recipe_set(r, key->path, key->fallback, "s"));
        }
        for (int64_t j = 0; j < i; j++) {
            assert_string_not_equal(key->path, loong_recipe_key(j)->path);
        }
    }
    assert_null(loong_recipe_key(-1));
    assert_null(loong_recipe_key(loong_recipe_num_keys()));
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_no_hint),
        cmocka_unit_test(test_all_together),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_default_mistakes),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_own_keys),
        cmocka_unit_test(test_schema),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
