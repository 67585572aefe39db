/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a pipeline cuts a model: equal parts, layout strings, refusals. */
#include "pipeline_split.h"
#include "test.h"

/* Cuts in the form of a layout string. */
static void assert_cut(const loong_split_params_t *params, int chunks,
                       const char *want)
{
    loong_context_t *ctx = test_context();
    loong_arena_t *arena = NULL;
    loong_stage_split_t *cuts = NULL;
    char text[256] = "";
    int found = 0;
    int layers = 0;
    assert_ok(ctx, loongi_arena_create(ctx, "test", &arena));
    assert_ok(ctx, loongi_pipeline_split(ctx, params, arena, &cuts, &found));
    assert_int_equal(found, chunks);
    for (int s = 0; s < chunks * params->ranks; s++) {
        strcat(text, s > 0 ? "|" : "");
        strcat(text, cuts[s].begins ? "E" : "");
        assert_int_equal(cuts[s].first_layer, layers);
        for (int i = 0; i < cuts[s].num_layers; i++, layers++) {
            strcat(text, "t");
        }
        strcat(text, cuts[s].ends ? "L" : "");
    }
    assert_int_equal(layers, params->num_layers);
    assert_string_equal(text, want);
    loongi_arena_destroy(&arena);
    test_context_end(&ctx);
}

static void equal_parts(void **state)
{
    (void)state;
    assert_cut(&(loong_split_params_t){4, 1, 0, NULL}, 1, "EttttL");
    assert_cut(&(loong_split_params_t){5, 3, 0, NULL}, 1, "Ett|tt|tL");
    assert_cut(&(loong_split_params_t){8, 2, 2, NULL}, 2, "Ett|tt|tt|ttL");
    assert_cut(&(loong_split_params_t){8, 2, 4, NULL}, 1, "Etttt|ttttL");
}

static void layout_strings(void **state)
{
    (void)state;
    assert_cut(&(loong_split_params_t){3, 2, 0, "Ettt|L"}, 1, "Ettt|L");
    assert_cut(&(loong_split_params_t){3, 2, 0, "E,t|t|t|L"}, 2, "Et|t|t|L");
    assert_cut(&(loong_split_params_t){9, 2, 0, "Et*3|(tt|)*2 tt,L"}, 2,
               "Ettt|tt|tt|ttL");
    assert_cut(&(loong_split_params_t){12, 5, 0, "E|((t*2)*2|)*3L"}, 1,
               "E|tttt|tttt|tttt|L");
}

static void assert_refused(const loong_split_params_t *params, const char *text)
{
    loong_context_t *ctx = test_context();
    loong_arena_t *arena = NULL;
    loong_stage_split_t *cuts = NULL;
    int chunks = 0;
    assert_ok(ctx, loongi_arena_create(ctx, "test", &arena));
    assert_fails(ctx, loongi_pipeline_split(ctx, params, arena, &cuts, &chunks),
                 LOONG_ERR_CONFIG, text);
    loongi_arena_destroy(&arena);
    test_context_end(&ctx);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        int layers;
        int ranks;
        int each;
        const char *layout;
        const char *text;
    } cases[] = {
        {2, 3, 0, NULL, "the model has 2 layers"},
        {8, 2, 3, NULL, "no multiple of it times 2 ranks"},
        {8, 1, 4, NULL, "pipeline_model_parallel_size above 1"},
        {2, 2, 1, "Et|tL", "both set"},
        {2, 2, 0, "", "nothing"},
        {2, 2, 0, "Et|tX", "only E, t, L"},
        {2, 2, 0, "Et||tL", "stage 2 of it is empty"},
        {2, 2, 0, "EttL|", "stage 2 of it is empty"},
        {2, 2, 0, "|EttL", "stage 1 of it is empty"},
        {2, 2, 0, "Et|(tL", "a ')' is missing at character 7"},
        {2, 2, 0, "Et|tL)", "a ')' without '(' at character 6"},
        {2, 2, 0, "Et*|tL", "a number of times"},
        {2, 2, 0, "Et*0|tL", "a number of times"},
        {2, 2, 0, "t|tL", "one E at the front"},
        {2, 2, 0, "EtL|t", "one E at the front"},
        {2, 2, 0, "Et|ttL", "3 layers, the model has 2"},
        {2, 2, 0, "E|t|tL", "3 stages, a multiple"},
        {2, 2, 0, "Et|tmL", "multi-token prediction"},
        {2, 2, 0, "E(t*9999)*9999|L", "more than 65536 items"},
        {2, 2, 0, "(((((((((((((((((E", "inside each other"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_split_params_t p = {cases[i].layers, cases[i].ranks,
                                  cases[i].each, cases[i].layout};
        assert_refused(&p, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts),
        cmocka_unit_test(layout_strings),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
