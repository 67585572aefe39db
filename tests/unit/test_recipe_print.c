/* SPDX-License-Identifier: Apache-2.0
 *
 * A printed recipe reads back as the same one; the hash. */
#include "loong/recipe.h"
#include "test.h"

static loong_recipe_t *parse(loong_context_t *ctx, const char *text)
{
    loong_recipe_t *recipe = NULL;
    assert_ok(ctx, loong_recipe_parse(ctx, "r.yaml", text, NULL, &recipe));
    return recipe;
}

static const char awkward[] =
    "name: \"two\\nlines \\\"q\\\" \\\\ \\t \\x01 \\u2028 \\u00e9\"\n"
    "data:\n"
    "  train:\n"
    "    - path: '- x'\n"
    "    - path: 'a: b'\n"
    "      weight: 0.5\n"
    "recompute: {scopes: ['', 'null', '~', 'true', '#', ' x', 'x ', '?', "
    "':', 'a:', '1', '-1', '---', '...', '<<', '=', '*a', '%', '{', '中']}\n"
    "eval: {sample: {prompts: []}}\n"
    "log:\n"
    "  interval: ~\n";

static void test_print(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_recipe_t *r = parse(ctx, awkward);
    loong_recipe_t *again = NULL;
    const char *first = NULL;
    const char *second = NULL;
    assert_ok(ctx, loong_recipe_print(r, false, &first));
    assert_ok(ctx, loong_recipe_parse(ctx, "p.yaml", first, NULL, &again));
    assert_ok(ctx, loong_recipe_print(again, false, &second));
    assert_string_equal(first, second);
    assert_string_equal(loong_recipe_text(again, "name"),
                        "two\nlines \"q\" \\ \t \x01 \xe2\x80\xa8 \xc3\xa9");
    assert_int_equal(loong_recipe_count(again, "recompute.scopes"), 20);
    for (int i = 0; i < 20; i++) {
        char path[64];
        snprintf(path, sizeof(path), "recompute.scopes[%d]", i);
        assert_string_equal(loong_recipe_text(again, path),
                            loong_recipe_text(r, path));
    }
    assert_non_null(strstr(second, "interval: 10\n"));
    loong_recipe_destroy(&again);
    /* With origins it still reads back, and says where values are from. */
    assert_ok(ctx, loong_recipe_print(r, true, &first));
    assert_non_null(strstr(first, "weight: 0.5  # r.yaml:6\n"));
    assert_non_null(strstr(first, "seed: 1234  # default\n"));
    assert_ok(ctx, loong_recipe_parse(ctx, "p.yaml", first, NULL, &again));
    loong_recipe_destroy(&again);
    loong_recipe_destroy(&r);
    test_context_end(&ctx);
}

static uint64_t hash_of(loong_context_t *ctx, const char *text)
{
    uint64_t hash = 0;
    loong_recipe_t *r = parse(ctx, text);
    assert_ok(ctx, loong_recipe_hash(r, &hash));
    loong_recipe_destroy(&r);
    return hash;
}

static void test_hash(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    uint64_t hash = hash_of(ctx, "seed: 7\nlog: {dir: x, interval: 10}\n");
    /* Order, comments, flow and written-out defaults do not count. */
    assert_true(hash == hash_of(ctx, "log:\n  dir: x # here\nseed: 7\n"));
    assert_true(hash != hash_of(ctx, "log:\n  dir: x\nseed: 8\n"));
    assert_true(hash != hash_of(ctx, "log:\n  dir: y\nseed: 7\n"));
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
