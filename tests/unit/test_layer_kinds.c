/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers have experts: expressions, refusals, the shortest form. */
#include "layer_kinds.h"
#include "test.h"

static loong_layer_kinds_t kinds;
static char problem[128];

static void expect(const char *text, const char *layers)
{
    int64_t n = (int64_t)strlen(layers);
    if (!loongi_layer_kinds_parse(text, n, &kinds, problem)) {
        fail_msg("%s: %s", text, problem);
    }
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(kinds.of[i], layers[i] - '0');
    }
}

static void test_expressions(void **state)
{
    (void)state;
    expect(NULL, "1111");
    expect("1", "111");
    expect("2", "10101");
    expect(" 3 ", "1001001");
    expect("[0]*1+[1]*3", "0111");
    expect("[0, 1,1]", "011");
    expect("([0]+[1]*2)*2", "011011");
    expect("[0]*2+[1]*", "00111");
    expect("[0]*2+[1]*", "001");
    expect("[0]+([1,1]+[0])*", "01101101");
    expect("[0]+[1,0]*2*", "01010101");
    expect("[1]+([0]*2+[1])*2*1+[0]*0", "1001001");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *problem;
    } cases[] = {
        {"", "[ or ( wanted at 'its end'"},
        {"0", "a positive number before wanted"},
        {"x", "[ or ( wanted at 'x'"},
        {"[0]*3", "3 layers, there are 4"},
        {"[2]*4", "0 or 1 wanted at '2]*4'"},
        {"[1", ", or ] wanted at 'its end'"},
        {"([1]*4", ") wanted at 'its end'"},
        {"[1]*4 5", "+, * or the end wanted at '5'"},
        {"[0]*5+[1]*", "5 layers, there are 4"},
        {"([1]*)", "a number of layers wanted at ')'"},
        {"[0]*+[1]", "a number of layers wanted at '+[1]'"},
        {"([0]*0)*", "a layer before the last * wanted"},
        {"[1]*-4", "a number of layers wanted at '-4'"},
        {"[1]*20000", "a number of layers wanted at '20000'"},
        {"([1]*9999)*9999", "at most 10000 layers wanted"},
        {"[1]*4+", "[ or ( wanted at 'its end'"},
        {"(((((((((([1]", "fewer parentheses wanted"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        assert_false(loongi_layer_kinds_parse(cases[i].text, 4, &kinds,
                                              problem));
        if (strstr(problem, cases[i].problem) == NULL) {
            fail_msg("'%s': %s", cases[i].text, problem);
        }
    }
}

/* What is printed means the same. */
static void test_print(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"1", "1"}, {"[1]*5", "1"}, {"2", "[1]*1+[0]*1+[1]*1+[0]*1+[1]*"},
        {"[0,0,1,1,1]", "[0]*2+[1]*"}, {"[1]*4+[0]", "[1]*4+[0]*"}};
    loong_context_t *ctx = test_context();
    for (int i = 0; i < LOONG_COUNT_OF(texts); i++) {
        loong_layer_kinds_t again;
        loong_text_t text = loongi_text_begin(ctx);
        assert_true(
            loongi_layer_kinds_parse(texts[i][0], 5, &kinds, problem));
        loongi_layer_kinds_print(&kinds, 5, &text);
        assert_string_equal(loongi_text_get(&text), texts[i][1]);
        assert_true(loongi_layer_kinds_parse(texts[i][1], 5, &again, problem));
        assert_memory_equal(kinds.of, again.of, 5);
        loongi_text_free(&text);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
