/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs that are filled from the keys of a recipe. */
#include "loong/recipe.h"
#include "lr_schedule.h"
#include "optimizer_settings.h"
#include "settings.h"
#include "test.h"

static const char text[] =
    "train: {train_iters: 2k, max_wall_time: 1.5m, on_nan: skip}\n"
    "log: {dir: out, tensorboard: False}\n"
    "optimizer:\n"
    "  lr_decay_style: WSD\n"
    "  exp_avg_sq_dtype: bf16\n"
    "  sgd_momentum: 0.5\n"
    "  groups: [{scope: a, lr: 0}, {scope: b, name: muon}]\n";

static void test_fill(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    loong_train_settings_t set = {.epochs = 7.0, .tensorboard = true};
    loong_lr_schedule_t lr = {.lr = 3.0};
    loong_optimizer_params_t all = {.num_groups = 5};
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &r));
    LOONG_FILL(r, "", loong_train_settings_t, &set);
    LOONG_FILL(r, "", loong_lr_schedule_t, &lr);
    LOONG_FILL(r, "", loong_optimizer_params_t, &all);
    assert_int_equal(set.train_iters, 2000);
    assert_true(set.max_wall_time == 90.0);
    assert_true(set.skip_nan && !set.tensorboard && set.async_save);
    assert_string_equal(set.log_dir, "out");
    assert_null(set.save_dir);
    assert_int_equal(lr.style, LOONG_LR_WSD);
    assert_int_equal(lr.wsd_style, LOONG_WSD_EXPONENTIAL);
    assert_true(all.bf16[LOONG_STATE_EXP_AVG_SQ]);
    assert_false(all.bf16[LOONG_STATE_EXP_AVG]);
    /* What has no value stays. */
    assert_true(set.epochs == 7.0 && lr.lr == 3.0);
    assert_int_equal(all.num_groups, 5);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

/* Of one item, and of the keys below a prefix. */
static void test_fill_item(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = NULL;
    loong_optimizer_group_t group[2] = {{.lr = 3.0}, {.lr = 3.0}};
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &r));
    for (int64_t i = 0; i < 2; i++) {
        LOONG_FILL_ITEM(r, "optimizer.groups", i, loong_optimizer_group_t,
                        &group[i]);
        assert_true(group[i].lr == (i == 0 ? 0.0 : 3.0));
        assert_string_equal(loongi_optimizer_class(group[i].kind)->name,
                            i == 0 ? "adamw" : "muon");
        assert_true(group[i].momentum == 0.0);
    }
    LOONG_FILL(r, "optimizer.sgd_", loong_optimizer_group_t, &group[0]);
    assert_true(group[0].momentum == 0.5 && group[0].beta1 == 0.0);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_fill_item),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
