/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of programs, proved by brute force: random models with fake ops
 * are cut into stages, scheduled, compiled with random passes, and replayed on
 * the memory that was planned. Gradients, states, outputs and messages must be
 * those of a reference that knows nothing of all this (fake.h). */
#include "executor.h"
#include "fake.h"
#include "loong/ops.h"
#include "passes.h"
#include "plant.h"
#include "test.h"

/* ---- random cases ------------------------------------------------------- */

static const char *const names[] = {"one_stage", "1f1b", "interleaved",
                                    "zero_bubble_h1", "zero_bubble_v"};

/* Everything about a case depends on its seed. */
static fake_options_t random_options(uint64_t seed)
{
    fake_options_t o;
    memset(&o, 0, sizeof(o));
    int kind = (int)fake_draw(seed, 500, 5);
    o.schedule = names[kind];
    o.params.ranks = kind > 0 ? 1 + (int)fake_draw(seed, 501, 4) : 1;
    o.params.chunks = kind == 2   ? 2 + (int)fake_draw(seed, 502, 2)
                      : kind == 4 ? 2
                                  : 1;
    o.params.micro_batches = 1 + (int)fake_draw(seed, 503, 6);
    if (kind == 2) {
        o.params.micro_batches =
            o.params.ranks * (1 + (int)fake_draw(seed, 503, 3));
    }
    o.params.pair = kind < 3 && fake_draw(seed, 504, 2);
    o.in_place = fake_draw(seed, 506, 4) > 0;
    o.no_direct = fake_draw(seed, 507, 4) == 0;
    o.no_assemble = fake_draw(seed, 508, 4) == 0;
    static const char *const globs[] = {"layers_*", "layers_*.mlp",
                                        "layers_1", "end"};
    o.num_recompute = (int)fake_draw(seed, 509, 3);
    o.recompute[0] = globs[fake_draw(seed, 510, 4)];
    o.recompute[1] = globs[fake_draw(seed, 511, 4)];
    o.steps = 2;
    return o;
}

static bool run_case(loong_context_t *ctx, uint64_t seed, plant_t plant,
                     const fake_options_t *options, fake_counters_t *counters,
                     char error[FAKE_ERROR_SIZE])
{
    fake_reference_t reference;
    fake_model_t model = fake_model_make(
        seed, options->params.ranks * options->params.chunks);
    fake_reference_run(ctx, &model, options->steps,
                       options->params.micro_batches, &reference);
    plant_state.seed = seed;
    plant_state.plant = plant;
    bool good = fake_replay_run(ctx, &model, options, &reference, counters,
                                error);
    plant_state.plant = PLANT_NONE;
    fake_reference_free(&reference);
    loong_context_clear_error(ctx);
    return good;
}

static void fail_case(uint64_t seed, const fake_options_t *o,
                      const char *error)
{
    fail_msg("seed %d, %s of %d x %d, %d micro-batches%s%s%s%s, recompute "
             "%d: %s", (int)seed, o->schedule, o->params.ranks,
             o->params.chunks, o->params.micro_batches,
             o->params.pair ? ", pairs" : "",
             o->in_place ? ", in place" : "",
             o->no_direct ? "" : ", direct",
             o->no_assemble ? "" : ", assemble", o->num_recompute, error);
}

static void test_random(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    fake_counters_t n;
    char error[FAKE_ERROR_SIZE];
    const char *most = getenv("LOONG_PLANNER_SEEDS");
    uint64_t seeds = most != NULL ? (uint64_t)atoll(most) : 250;
    memset(&n, 0, sizeof(n));
    assert_ok(ctx, fake_register(ctx));
    for (uint64_t seed = 0; seed < seeds; seed++) {
        fake_options_t o = random_options(seed);
        if (!run_case(ctx, seed, PLANT_NONE, &o, &n, error)) {
            fail_case(seed, &o, error);
        }
    }
    print_message(
        "%lld steps compiled: %lld in place, %lld inputs with gaps, %lld "
        "direct, %lld assembled, %lld again, %lld in W\n"
        "%lld pairs, %lld slots taken over, %lld tied, "
        "%lld messages\n",
        (long long)n.steps_run, (long long)n.in_place, (long long)n.strided,
        (long long)n.direct, (long long)n.assembled, (long long)n.recomputed,
        (long long)n.weights, (long long)n.pairs,
        (long long)n.reused, (long long)n.tied,
        (long long)n.messages);
    int64_t least = (int64_t)seeds / 6;
    assert_true(n.in_place > least && n.strided > least && n.direct > least &&
                n.assembled > least && n.recomputed > least &&
                n.weights > least && n.pairs > least &&
                n.reused > least && n.tied > least &&
                n.messages > least);
    test_context_end(&ctx);
}

/* ---- one pass more or less ---------------------------------------------- */

/* Every pass alone, none, and all: the same results (the reference's). */
static void test_passes(void **state)
{
    (void)state;
    enum { SEEDS = 40, WAYS = 7 };
    loong_context_t *ctx = test_context();
    char error[FAKE_ERROR_SIZE];
    assert_ok(ctx, fake_register(ctx));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int way = 0; way < WAYS; way++) {
            fake_counters_t n;
            fake_options_t o = random_options(seed);
            bool all = way == WAYS - 1;
            memset(&n, 0, sizeof(n));
            o.in_place = all || way == 1;
            o.no_direct = !all && way != 2;
            o.no_assemble = !all && way != 3;
            o.num_recompute = all || way == 4 ? 1 : 0;
            o.params.pair = (all || way == 5) &&
                            strncmp(o.schedule, "zero", 4) != 0;
            if (!run_case(ctx, seed, PLANT_NONE, &o, &n, error)) {
                fail_case(seed, &o, error);
            }
            /* What is off does not happen. */
            assert_true(o.in_place || n.in_place == 0);
            assert_true(!o.no_direct || n.direct == 0);
            assert_true(!o.no_assemble || n.assembled == 0);
            assert_true(o.num_recompute > 0 || n.recomputed == 0);
            assert_true(o.params.pair || n.pairs == 0);
        }
    }
    test_context_end(&ctx);
}

/* ---- refusals ----------------------------------------------------------- */

static void test_boundaries(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_precision_t precision = {LOONG_BF16, LOONG_F32};
    loong_shape_t shape = loong_shape_2d(3, 4);
    loong_compile_params_t params = {.device = FAKE_DEVICE, .threads = 1};
    loong_model_chunk_t *chunk = NULL;
    loong_graph_t *g = NULL;
    assert_ok(ctx, fake_register(ctx));
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    loong_graph_output(g, "y", loong_graph_input(g, "x", LOONG_BF16, shape));
    assert_fails(ctx, loongi_model_chunk_compile(g, true, &params, &chunk),
                 LOONG_ERR_ARG, "no loss and no boundary output");
    loong_graph_destroy(&g);

    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    loong_val_t x = loong_graph_boundary_input(g, "x", LOONG_BF16, shape);
    loong_graph_boundary_input(g, "lost", LOONG_BF16, shape);
    loong_graph_boundary_output(g, "y", loong_add(g, x, x));
    assert_fails(ctx, loongi_model_chunk_compile(g, true, &params, &chunk),
                 LOONG_ERR_ARG, "boundary input lost leads to no loss");
    loong_graph_destroy(&g);

    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    x = loong_graph_boundary_input(g, "x", LOONG_BF16, shape);
    loong_graph_boundary_input(g, "index", LOONG_I32, shape);
    loong_graph_boundary_output(g, "y", loong_add(g, x, x));
    assert_ok(ctx, loongi_model_chunk_compile(g, true, &params, &chunk));
    assert_non_null(loongi_model_chunk_input(chunk, "y.grad"));
    assert_int_equal(loongi_model_chunk_input(chunk, "y.grad")->dtype,
                     LOONG_BF16);
    assert_non_null(loongi_model_chunk_output(chunk, "x.grad"));
    assert_null(loongi_model_chunk_output(chunk, "index.grad"));
    loongi_model_chunk_destroy(&chunk);
    loong_graph_destroy(&g);
    test_context_end(&ctx);
}

/* ---- planted bugs ------------------------------------------------------- */

/* Each is noticed. Not in every case where it was planted: an interval that is
 * too short harms only where somebody else uses the gap. */
static void test_planted(void **state)
{
    (void)state;
    enum { SEEDS = 80, LEAST = 3 };
    loong_context_t *ctx = test_context();
    fake_counters_t n;
    char error[FAKE_ERROR_SIZE];
    char sample[FAKE_ERROR_SIZE];
    memset(&n, 0, sizeof(n));
    assert_ok(ctx, fake_register(ctx));
    for (int plant = 1; plant < PLANT_COUNT; plant++) {
        int planted = 0;
        int noticed = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            fake_options_t o = random_options(seed);
            o.unchecked = true;
            plant_state.planted = 0;
            bool good = run_case(ctx, seed, (plant_t)plant, &o, &n, error);
            planted += plant_state.planted > 0;
            noticed += !good;
            if (!good) {
                snprintf(sample, sizeof(sample), "%.90s", error);
            }
        }
        print_message("%-64s noticed %2d, planted %2d; %s\n",
                      plant_text((plant_t)plant), noticed, planted, sample);
        assert_true(noticed >= LEAST && noticed <= planted);
    }
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_planted),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
