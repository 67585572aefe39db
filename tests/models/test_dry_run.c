/* SPDX-License-Identifier: Apache-2.0
 *
 * What `loongrun --dry-run` does for the largest presets in layouts that one
 * would choose: within two seconds of one core each. Prints the memory of
 * each stage's largest rank. */
#include <time.h>

#include "loong/comm.h"
#include "loong/recipe.h"
#include "loong/register.h"
#include "loong/trainer.h"
#include "test.h"

#define TP "parallel.tensor_model_parallel_size="
#define SP "parallel.sequence_parallel=true"
#define PP "parallel.pipeline_model_parallel_size="
#define EP "parallel.expert_model_parallel_size="
#define LAYOUT "parallel.pipeline_model_parallel_layout="
/* 61 layers on 16 stages, the ends with fewer. */
#define SIXTY_ONE LAYOUT "Et*3|(t*4|)*14t*2L"

static const double SECONDS = 2.0;

typedef struct plan {
    const char *model;
    int ranks;
    const char *overrides[6];
} plan_t;

static const plan_t plans[] = {
    {"llama3.1/llama3.1_70b", 64, {TP "8", SP, PP "4"}},
    {"qwen3/qwen3_235b_a22b",
     128,
     {TP "4", SP, PP "8", EP "16", LAYOUT "Et*11|(t*12|)*6t*11L"}},
    {"deepseek_v3/deepseek_v3_671b", 1024, {PP "16", EP "64", SIXTY_ONE}},
    {"kimi_k2/kimi_k2_1t", 1024, {PP "16", EP "64", SIXTY_ONE}},
    {"moe/moe_1t_64e", 768, {TP "8", SP, PP "12", EP "64"}},
    {"gpt3/gpt3_175b", 128, {TP "8", SP, PP "16"}},
};

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
    assert_ok(ctx, loong_trainer_predict(trainer, &text));
    loong_trainer_destroy(&trainer);
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
    double seconds = cpu_seconds() - begin;
    print_message("%.2f s of one core, %.2f of them to plan\n\n", seconds,
                  planned);
    if (seconds >= SECONDS) {
        fail_msg("%s: %.2f s of one core, %.1f are allowed", plan->model,
                 seconds, SECONDS);
    }
}

int main(void)
{
    struct CMUnitTest tests[LOONG_COUNT_OF(plans)];
    for (int64_t i = 0; i < LOONG_COUNT_OF(plans); i++) {
        struct CMUnitTest test = {plans[i].model, plans_in_time, NULL, NULL,
                                  (void *)(uintptr_t)&plans[i]};
        tests[i] = test;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
