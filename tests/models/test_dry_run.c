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
             "model: %s\nrecompute: {granularity: full}\ndevice: cpu\n"
             "precision: {params_dtype: fp32}\n",
             plan->model);
    assert_ok(ctx, loong_recipe_parse(ctx, "dry.yaml", text, &params,
                                      &recipe));
    return recipe;
}

/* ---- memory, by hand ----------------------------------------------------- */

enum {
    PARAMETERS, GRADIENTS, OPTIMIZER, STATES, SCRATCH, SLOTS, INPUTS, ALL, SIZES
};

/* What a plan comes to in fp32, in bytes. */
typedef struct by_hand {
    int stages;
    int tensor;
    double parameters; /* a rank of each stage, added up */
    double optimizer;  /* two moments, shared among the replicas */
    double hidden;     /* of a micro-batch on one rank */
} by_hand_t;

static by_hand_t reckon(const loong_recipe_t *recipe, const plan_t *plan,
                        const preset_size_t *size, int64_t hidden_size)
{
    by_hand_t h;
    double experts = 4.0 * (double)size->experts;
    double dense = 4.0 * (double)size->parameters - experts;
    h.tensor = (int)loong_recipe_int(recipe,
                                     "parallel.tensor_model_parallel_size");
    int64_t expert =
        loong_recipe_int(recipe, "parallel.expert_model_parallel_size");
    h.stages = (int)loong_recipe_int(recipe,
                                     "parallel.pipeline_model_parallel_size");
    double ranks = (double)plan->ranks / h.stages; /* of a stage */
    h.parameters = dense / h.tensor + experts / (double)expert;
    h.optimizer = 2.0 * (dense + experts) / ranks;
    h.hidden = 4.0 *
               (double)(loong_recipe_int(recipe, "data.seq_length") *
                        hidden_size / h.tensor);
    return h;
}

static void is_near(const char *model, const char *what, double found,
                    double wanted, double more)
{
    if (found < 0.99 * wanted || found > more * wanted) {
        fail_msg("%s: %s %.3f GiB; by hand %.3f, at most %.2f times that",
                 model, what, found / 0x1p30, wanted / 0x1p30, more);
    }
}

/* "766.13 MiB 1.32 GiB ...": the sizes of a line, in bytes; without experts
 * there are no states. */
static void read_sizes(const char *line, bool states, double bytes[SIZES])
{
    for (int i = 0; i < SIZES; i++) {
        char unit[8];
        int end = 0;
        bytes[i] = 0.0;
        if (i == STATES && !states) {
            continue;
        }
        assert_int_equal(sscanf(line, "%lf %7s%n", &bytes[i], unit, &end), 2);
        for (const char *u = "BKMGT"; *u != unit[0]; u++) {
            assert_true(*u != '\0');
            bytes[i] *= 1024.0;
        }
        line += end;
    }
    assert_int_equal(strspn(line, " "), strlen(line));
}

/* With full recomputation a slot keeps the input of each layer, and at most
 * one hidden state more, before the head that of all ranks of TP; 1F1B has as
 * many slots as stages are left. */
static void keeps_inputs(const plan_t *plan, const by_hand_t *h, int stage,
                         int layers, double slots)
{
    double states = (double)(h->stages - stage) * layers * h->hidden;
    double more = stage == h->stages - 1 ? h->tensor : 1.0;
    is_near(plan->model, "slots", slots, states,
            1.05 * (layers + more) / layers);
}

/* Models with experts whose layout is that of a paper. */
static bool exchanges(const plan_t *plan)
{
    bool found = false;
    for (int i = 0; i < PLAN_OVERRIDES && plan->overrides[i] != NULL; i++) {
        found = found || strcmp(plan->overrides[i], PLAN_A2A) == 0;
    }
    return found;
}

/* Rows of experts are laid out for at most twice an even share. */
static void tells_rows(const plan_t *plan, const char *text)
{
    double room = 0.0;
    double even = 0.0;
    const char *at = strstr(text, "experts: room for ");
    assert_non_null(at); /* also where the first stage has none */
    assert_int_equal(sscanf(at, "experts: room for %lf rows of a layer, more "
                                "run in rounds; %lf with", &room, &even), 2);
    if (!(room <= 2.0 * even)) {
        fail_msg("%s: room for %.0f rows, %.0f are even", plan->model, room,
                 even);
    }
}

/* A line for each stage, which follow one another through the layers, with
 * their sizes: classes, inputs, and all together. */
static void tells_stages(const plan_t *plan, const by_hand_t *h,
                         int64_t layers, const char *text)
{
    const char *at = strstr(text, "memory by stage, of its largest rank:\n");
    double sum[SIZES] = {0.0};
    int next = 0;
    assert_non_null(at);
    at = strchr(at, '\n') + 1; /* to the heads of columns */
    const char *states = strstr(at, " states ");
    bool has_states = states != NULL && states < strchr(at, '\n');
    for (int i = 0; i < h->stages; i++) {
        char line[256];
        double bytes[SIZES], all = 0.0;
        int rank = -1, first = -1, last = -1, end = 0;
        at = strchr(at, '\n') + 1;
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        sscanf(line, " %*s %*s%n", &end);
        if (sscanf(line, "%d %d-%d", &rank, &first, &last) < 2 ||
            first != next) {
            fail_msg("%s, stage %d of %d: %s", plan->model, i, h->stages,
                     line);
        }
        last = last < 0 ? first : last;
        read_sizes(line + end, has_states, bytes);
        for (int k = 0; k < SIZES; k++) {
            sum[k] += bytes[k];
            all += k < ALL ? bytes[k] : 0.0;
        }
        is_near(plan->model, "together", bytes[ALL], all, 1.01);
        keeps_inputs(plan, h, i, last - first + 1, bytes[SLOTS]);
        if (exchanges(plan) && !(bytes[ALL] <= 80e9)) {
            fail_msg("%s: stage %d takes %.3g bytes", plan->model, i,
                     bytes[ALL]);
        }
        next = last + 1;
    }
    assert_int_equal(next, layers);
    is_near(plan->model, "parameters", sum[PARAMETERS], h->parameters, 1.02);
    is_near(plan->model, "gradients", sum[GRADIENTS], h->parameters, 1.02);
    is_near(plan->model, "moments", sum[OPTIMIZER], h->optimizer, 1.02);
}

/* The parameters that the preset's graph has, and memory. */
static void tells_all(loong_context_t *ctx, const plan_t *plan,
                      const loong_recipe_t *recipe, const char *text)
{
    char wanted[64];
    preset_size_t size;
    int64_t layers = 0, hidden_size = 0;
    loong_pairs_t *pairs = preset_load(ctx, plan->model);
    preset_measure(ctx, pairs, &size);
    assert_true(loongi_pairs_int(pairs, "num_layers", &layers));
    assert_true(loongi_pairs_int(pairs, "hidden_size", &hidden_size));
    loongi_pairs_destroy(&pairs);
    by_hand_t h = reckon(recipe, plan, &size, hidden_size);
    snprintf(wanted, sizeof(wanted), "parameters: %lld (",
             (long long)size.parameters);
    if (strstr(text, wanted) == NULL) {
        fail_msg("%s: '%s' is not told", plan->model, wanted);
    }
    if (h.stages == 1) {
        assert_non_null(strstr(text, "memory of this rank:\n  parameters "));
    } else {
        tells_stages(plan, &h, layers, text);
        if (exchanges(plan)) {
            tells_rows(plan, text);
        }
    }
}

/* All-to-all from where on it moves fewer bytes, unless the recipe says
 * otherwise. */
static void dispatch_moves_fewer_bytes(void **state)
{
    (void)state;
    static const struct {
        plan_t plan;
        const char *text;
    } cases[] = {
        {{"mixtral/mixtral_8x7b", 4, false, {PLAN_EP "4", PLAN_TWO}},
         "tokens come by allgather (auto: 10.0 rows moved for a token, by "
         "alltoall 11.2)\n"},
        {{"mixtral/mixtral_8x7b", 8, false, {PLAN_EP "8", PLAN_TWO}},
         "tokens come by alltoall (auto: 12.5 rows moved for a token, by "
         "allgather 22.0)\n"},
        {{"mixtral/mixtral_8x7b", 8, false,
          {PLAN_EP "8", PLAN_TWO,
           "parallel.moe_token_dispatcher_type=allgather"}},
         "tokens come by allgather\n"},
        {{"mixtral/mixtral_8x7b", 4, false, {PLAN_EP "4", PLAN_TWO, PLAN_A2A}},
         "tokens come by alltoall\n"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(cases); i++) {
        const plan_t *plan = &cases[i].plan;
        loong_comm_t *comm = NULL;
        loong_trainer_t *trainer = NULL;
        const char *text = NULL;
        loong_context_t *ctx = test_context();
        assert_ok(ctx, loong_register_builtin(ctx));
        assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
        loong_recipe_t *recipe = read_recipe(ctx, plan);
        loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                         .plan_only = true,
                                         .plan_ranks = plan->ranks};
        assert_ok(ctx, loong_trainer_create(ctx, &params, &trainer));
        assert_ok(ctx, loong_trainer_describe(trainer, &text));
        if (strstr(text, cases[i].text) == NULL) {
            fail_msg("'%s' is not told: %s", cases[i].text, text);
        }
        loong_trainer_destroy(&trainer);
        loong_recipe_destroy(&recipe);
        loong_comm_destroy(&comm);
        test_context_end(&ctx);
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
    tells_all(ctx, plan, recipe, text);
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
    static struct CMUnitTest tests[MOST + 1];
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
    struct CMUnitTest dispatch = cmocka_unit_test(dispatch_moves_fewer_bytes);
    tests[c.count++] = dispatch;
    return _cmocka_run_group_tests("dry_run", tests, (size_t)c.count, NULL,
                                   NULL);
}
