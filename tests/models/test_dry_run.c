/* SPDX-License-Identifier: Apache-2.0
 *
 * What `loongrun --dry-run` does for presets, the large ones in layouts that
 * one would choose (plans.h): within two seconds of one core each, prediction
 * included; others planned within these. Prints the memory of each stage's
 * largest rank. The largest ones; with LOONG_PLANS=large all of plans.h, with
 * all every preset. */
#include <time.h>

#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "plans.h"
#include "preset.h"
#include "test.h"

static const double SECONDS = 2.0;
enum { MOST = 128 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static loong_recipe_t *read_recipe(loong_context_t *ctx, const plan_t *plan)
{
    char text[128];
    loong_recipe_t *recipe = NULL;
    loong_recipe_params_t params = {LOONG_SOURCE_DIR "/configs", 0,
                                    plan->overrides, 0, NULL};
    while (params.num_overrides < LOONG_COUNT_OF(plan->overrides) &&
           plan->overrides[params.num_overrides] != NULL) {
        params.num_overrides++;
    }
    snprintf(text, sizeof(text),
             "model: %s\nrecompute: {granularity: full}\ndevice: cpu\n",
             plan->model);
    assert_ok(ctx, loong_recipe_parse(ctx, "dry.yaml", text, &params,
                                      &recipe));
    return recipe;
}

/* A line for each stage, which follow one another through the layers, with
 * seven sizes: five classes, inputs, and all together. */
static void tells_stages(const plan_t *plan, int stages, int64_t layers,
                         const char *text)
{
    const char *at = strstr(text, "memory by stage, of its largest rank:\n");
    int next = 0;
    assert_non_null(at);
    at = strchr(at, '\n') + 1; /* to the heads of columns */
    for (int i = 0; i < stages; i++) {
        char line[256];
        int rank = -1, first = -1, last = -1, sizes = 0;
        at = strchr(at, '\n') + 1;
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        for (const char *c = line; (c = strstr(c, "iB")) != NULL; c += 2) {
            sizes++;
        }
        if (sscanf(line, "%d %d-%d", &rank, &first, &last) < 2 || sizes != 7 ||
            first != next) {
            fail_msg("%s, stage %d of %d: %s", plan->model, i, stages, line);
        }
        next = (last < 0 ? first : last) + 1;
    }
    assert_int_equal(next, layers);
}

/* The parameters that the preset's graph has, and memory. */
static void tells_all(loong_context_t *ctx, const plan_t *plan, int stages,
                      const char *text)
{
    char wanted[64];
    preset_size_t size;
    int64_t layers = 0;
    loong_pairs_t *pairs = preset_load(ctx, plan->model);
    preset_measure(ctx, pairs, &size);
    assert_true(loongi_pairs_int(pairs, "num_layers", &layers));
    loongi_pairs_destroy(&pairs);
    snprintf(wanted, sizeof(wanted), "parameters: %lld (",
             (long long)size.parameters);
    if (strstr(text, wanted) == NULL) {
        fail_msg("%s: '%s' is not told", plan->model, wanted);
    }
    if (stages == 1) {
        assert_non_null(strstr(text, "memory of this rank:\n  parameters "));
    } else {
        tells_stages(plan, stages, layers, text);
    }
}

static void plans_in_time(void **state)
{
    const plan_t *plan = *state;
    loong_comm_t *comm = NULL;
    loong_trainer_t *trainer = NULL;
    const char *text = NULL;
    double begin = cpu_seconds();
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    loong_recipe_t *recipe = read_recipe(ctx, plan);
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .plan_only = true,
                                     .plan_ranks = plan->ranks};
    assert_ok(ctx, loong_trainer_create(ctx, &params, &trainer));
    assert_ok(ctx, loong_trainer_describe(trainer, &text));
    printf("%s:\n%s", plan->model, text); /* cmocka cuts long ones */
    double planned = cpu_seconds() - begin;
    tells_all(ctx, plan,
              (int)loong_recipe_int(
                  recipe, "parallel.pipeline_model_parallel_size"), text);
    begin += cpu_seconds() - begin - planned; /* the check is not counted */
    assert_ok(ctx, loong_trainer_predict(trainer, &text));
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
    double seconds = cpu_seconds() - begin;
    print_message("%.2f s of one core, %.2f of them to plan\n\n", seconds,
                  planned);
    /* A model that this machine can hold is predicted by measuring longer. */
    if ((plan->ranks > 1 ? seconds : planned) >= SECONDS) {
        fail_msg("%s: %.2f s of one core, %.1f are allowed", plan->model,
                 seconds, SECONDS);
    }
}

/* ---- which --------------------------------------------------------------- */

typedef struct chosen {
    loong_context_t *ctx;
    bool large; /* all with a layout in plans.h */
    bool all;
    char names[MOST][64];
    plan_t plans[MOST];
    int count;
} chosen_t;

static void choose(void *user, const char *name)
{
    chosen_t *c = user;
    plan_t plan = {c->names[c->count], 1, false, {NULL}};
    preset_size_t size;
    bool found = false;
    assert_true(c->count < MOST);
    snprintf(c->names[c->count], sizeof(c->names[0]), "%s", name);
    for (int64_t i = 0; i < LOONG_COUNT_OF(plans); i++) {
        if (strcmp(plans[i].model, name) == 0) {
            plan = plans[i];
            found = true;
        }
    }
    if (c->all && !found) {
        loong_pairs_t *pairs = preset_load(c->ctx, name);
        preset_measure(c->ctx, pairs, &size);
        loongi_pairs_destroy(&pairs);
        if ((double)size.parameters >= PLANNED_FROM) {
            fail_msg("%s has %lld parameters and no plan in plans.h", name,
                     (long long)size.parameters);
        }
    }
    if (c->all || (c->large && found) || plan.daily) {
        c->plans[c->count++] = plan;
    }
}

int main(void)
{
    static chosen_t c;
    static struct CMUnitTest tests[MOST];
    const char *wanted = getenv("LOONG_PLANS");
    c.large = wanted != NULL && strcmp(wanted, "large") == 0;
    c.all = wanted != NULL && strcmp(wanted, "all") == 0;
    c.ctx = test_context();
    assert_ok(c.ctx, loong_register_builtin(c.ctx));
    (void)preset_each(choose, &c);
    test_context_end(&c.ctx);
    for (int i = 0; i < c.count; i++) {
        struct CMUnitTest test = {c.plans[i].model, plans_in_time, NULL, NULL,
                                  &c.plans[i]};
        tests[i] = test;
    }
    return _cmocka_run_group_tests("dry_run", tests, (size_t)c.count, NULL,
                                   NULL);
}
