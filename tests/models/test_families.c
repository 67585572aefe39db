/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model of every family, read from its Hugging Face directory alone
 * and trained in f64, on one rank and in a mixed layout: loss, gradient norm,
 * parameters and moments agree. Half of them for six steps; all for twenty with
 * LOONG_FAMILIES=all. */
#include "layout_run.h"

#include "families.h"

enum { MOST = 20 };

static int steps(void)
{
    return getenv("LOONG_FAMILIES") != NULL ? MOST : 6;
}

static void trains_alike(void **state)
{
    const family_case_t *f = *state;
    bool whole = f->vision_ids != NULL; /* of which texts alone are read */
    char init[300], model[500];
    layout_place_t place = layout_begin();
    layout_run_t one = {.save = "one", .parallel = "{}",
                        .model = whole ? model
                                 : f->model != NULL ? f->model : "{}",
                        .more = whole ? "" : init, .dtype = "fp64", .ranks = 1,
                        .micro_batch_size = 6, .steps = steps(),
                        .vision_ids = f->vision_ids};
    layout_run_t mixed = one;
    double losses[MOST];
    snprintf(init, sizeof(init),
             "init: {from_hf: " LOONG_SOURCE_DIR "/tests/golden/fixtures/%s}",
             f->fixture);
    snprintf(model, sizeof(model), "{%s, %s", init,
             f->model != NULL ? f->model + 1 : "}");
    mixed.save = "mixed";
    mixed.parallel = f->parallel;
    mixed.ranks = f->ranks;
    one.losses = losses;
    layout_run(&place, &one);
    layout_run(&place, &mixed);
    layout_compare(&place, &mixed, &one, 1e-9);
    assert_true(one.loss < losses[0]); /* it learns */
    layout_end(&place);
}

int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(family_cases)];
    const char *only = getenv("LOONG_FIXTURE");
    bool all = only != NULL || getenv("LOONG_FAMILIES") != NULL;
    size_t count = 0;
    for (int64_t i = 0; i < LOONG_COUNT_OF(family_cases); i++) {
        const family_case_t *f = &family_cases[i];
        struct CMUnitTest test = {f->fixture, trains_alike, NULL, NULL,
                                  (void *)(uintptr_t)f};
        if ((all || f->daily) &&
            (only == NULL || strcmp(only, f->fixture) == 0)) {
            tests[count++] = test;
        }
    }
    return _cmocka_run_group_tests("families", tests, count, NULL, NULL);
}
