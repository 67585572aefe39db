/* SPDX-License-Identifier: Apache-2.0
 *
 * What the keys of a recipe must be together. */
#include "loong/recipe.h"
#include "test.h"

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

static const char complete[] =
    "data: {train: [{path: a}], seq_length: 512}\n"
    "train: {global_batch_size: 24, micro_batch_size: 4, train_iters: 100}\n"
    "optimizer: {lr: 1e-3}\n";

/* As above, of a model that knew half of the length. */
static const char longer[] =
    "data: {train: [{path: a}], seq_length: 512}\n"
    "train: {global_batch_size: 24, micro_batch_size: 4, train_iters: 100}\n"
    "optimizer: {lr: 1e-3}\n"
    "model:\n"
    "  foundation:\n"
    "    max_position_embeddings: 256\n"
    "    rope_scaling: {type: dynamic, factor: 2.0}\n";

static const struct {
    const char *override;
    const char *message;
} pairs[] = {
    {"~data.seq_length", "data.seq_length: not set, every run needs it"},
    {"~train.train_iters", "train.train_iters: not set"},
    {"~optimizer.lr", "optimizer.lr: not set"},
    {"~train.global_batch_size", "train.global_batch_size: not set"},
    {"train.train_tokens=1M",
     "train.train_tokens: set beside train.train_iters, one of them wanted"},
    {"data.train=[{weight: 1}]", "data.train[0].path: not set"},
    {"data.validation=[{path: a}]", "data.validation[0].name: not set"},
    {"model.foundation.max_position_embeddings=256",
     "data.seq_length: 512 is above "
     "model.foundation.max_position_embeddings 256"},
    {"train.rampup_batch_size=[8, 8]",
     "found 2 numbers, [start, increment, samples] wanted"},
    {"train.rampup_batch_size=[8, 0, 9]",
     "train.rampup_batch_size[1]: found 0"},
    {"train.rampup_batch_size=[6, 8, 9]",
     "train.rampup_batch_size[0]: 6 is no multiple of 8"},
    {"train.rampup_batch_size=[32, 8, 9]", "starts at 32, above"},
    {"train.rampup_batch_size=[8, 24, 9]",
     "steps of 24 from 8 do not meet train.global_batch_size 24"},
    {"optimizer.min_lr=1", "command line: optimizer.min_lr: 1 is above"},
    {"optimizer.lr_warmup_iters=101", "101 is above the end of the decay"},
    {"optimizer.lr_decay_style=WSD", "found 0, WSD wants 1 to 100"},
    {"recompute.granularity=selective", "recompute.scopes: empty"},
    {"recompute.scopes=[a]", "recompute.scopes: set, but"},
    {"checkpoint.save_interval=5", "needs checkpoint.save"},
    {"train.max_wall_time=1h", "train.max_wall_time: needs"},
    {"export.hf=a", "export.hf: goes through a checkpoint"},
    {"checkpoint.load=auto", "checkpoint.load: auto needs"},
    {"data.train=[{path: a, weight: 0}]",
     "data.train[0].weight: 0 takes nothing from this source"},
    {"data.train=[{path: a, weight: 1}, {path: b}]",
     "data.train[1].weight: not set, but 1 of 2 sources have a weight"},
    {"optimizer.stochastic_rounding=true",
     "optimizer.stochastic_rounding: has no effect: no state"},
    {"optimizer={lr: 1e-3, name: lion, adam_beta1: 0.9}",
     "optimizer.adam_beta1: a key of adamw, no parameter has that class; "
     "optimizer.name is lion"},
    {"optimizer.lion_beta2=0.9",
     "optimizer.lion_beta2: a key of lion, no parameter has that class"},
    {"optimizer={lr: 1e-3, name: sgd, exp_avg_dtype: bf16}",
     "optimizer.exp_avg_dtype: a key of adamw lion, no parameter has that"},
    {"optimizer={lr: 1e-3, groups: [{scope: a, name: lion}], adam_eps: 0}",
     "optimizer.adam_eps: a key of adamw, no parameter has that class"},
    {"optimizer={lr: 1e-3, name: muon, momentum_buffer_dtype: bf16}",
     "optimizer.momentum_buffer_dtype: bf16, muon's buffer is in fp32"},
    {"optimizer={lr: 1e-3, groups: [{name: lion}]}",
     "optimizer.groups[0].scope: not set"},
    {"optimizer={lr: 0, groups: [{scope: a, lr: 1}]}",
     "optimizer.groups[0].lr: follows the schedule in proportion to "
     "optimizer.lr, which is 0"},
    {"optimizer={lr: 1e-3, name: sgd, sgd_momentum: 0, sgd_nesterov: true}",
     "optimizer.sgd_nesterov: has no effect with optimizer.sgd_momentum 0"},
    {"precision.tf32=true",
     "precision.tf32: needs precision.params_dtype fp32"},
    {"parallel.sequence_parallel=true",
     "command line: parallel.sequence_parallel: has no effect with "
     "parallel.tensor_model_parallel_size 1"},
    {"parallel.tp_comm_overlap=true",
     "parallel.tp_comm_overlap: has no effect without "
     "parallel.sequence_parallel"},
    {"training_phase=midtrain",
     "command line: training_phase: midtrain goes on from trained weights"},
    {"data.vision_token_ids=[3]",
     "data.vision_token_ids: has no effect without "
     "model.foundation.moe_vision_ffn_hidden_size"},
    {"resume.override=[optimzer.lr]",
     "resume.override[0]: optimzer.lr is no key of a recipe; did you mean "
     "optimizer.lr?"},
};

static void test_together(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse(ctx, complete);
    assert_ok(ctx, loong_recipe_check(r, 1));
    assert_ok(ctx, loong_recipe_check(r, 2));
    assert_ok(ctx, loong_recipe_check(r, 6));
    assert_fails(ctx, loong_recipe_check(r, 4), LOONG_ERR_CONFIG,
                 "r.yaml:2: train.global_batch_size: 24 is no multiple of 16 "
                 "(train.micro_batch_size 4 x 4 data-parallel ranks), "
                 "nearest: 16, 32");
    assert_fails(ctx, loong_recipe_check(r, 7), LOONG_ERR_CONFIG,
                 "nearest: 28");
    assert_fails(ctx, loong_recipe_check(r, 0), LOONG_ERR_ARG, "found 0");
    loong_recipe_destroy(&r);
    r = parse(ctx, longer);
    assert_ok(ctx, loong_recipe_check(r, 1));
    loong_recipe_destroy(&r);
    r = parse_with(ctx, longer, "data.reset_position_ids=true");
    assert_fails(ctx, loong_recipe_check(r, 1), LOONG_ERR_CONFIG,
                 "data.reset_position_ids: true, and data.seq_length 512 is "
                 "above model.foundation.max_position_embeddings 256: "
                 "model.foundation.rope_scaling.type dynamic turns all "
                 "positions by the length of a sample");
    loong_recipe_destroy(&r);
    for (int64_t i = 0; i < LOONG_COUNT_OF(pairs); i++) {
        r = parse_with(ctx, complete, pairs[i].override);
        assert_fails(ctx, loong_recipe_check(r, 2), LOONG_ERR_CONFIG,
                     pairs[i].message);
        assert_fails(ctx, loong_recipe_check(r, 2), LOONG_ERR_CONFIG,
                     "the recipe: 1 problem");
        loong_recipe_destroy(&r);
    }
    r = parse(ctx, "");
    assert_fails(ctx, loong_recipe_check(r, 2), LOONG_ERR_CONFIG,
                 "the recipe: 4 problems");
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

/* A path alone stands for a map with it, in files and overrides. */
static void test_paths(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse_with(ctx,
                                   "data:\n  train:\n    - a\n"
                                   "    - {path: b, weight: 2}\n",
                                   "data.validation=[v.jsonl, 7]");
    assert_int_equal(loong_recipe_count(r, "data.train"), 2);
    assert_string_equal(loong_recipe_text(r, "data.train[0].path"), "a");
    assert_string_equal(loong_recipe_text(r, "data.train[1].path"), "b");
    assert_string_equal(loong_recipe_where(r, "data.train[0].path"),
                        "r.yaml:3");
    assert_string_equal(loong_recipe_text(r, "data.validation[0].path"),
                        "v.jsonl");
    assert_string_equal(loong_recipe_text(r, "data.validation[1].path"), "7");
    assert_string_equal(loong_recipe_text(r, "data.validation[1].name"), "7");
    assert_ok(ctx, loong_recipe_status(r));
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
