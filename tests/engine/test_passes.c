/* SPDX-License-Identifier: Apache-2.0
 *
 * Precision by scope, logged tensors, full recomputation: what they change and
 * what they leave alone. */
#include "engine_run.h"

#include "convert.h"
#include "loong/ops.h"
#include "passes.h"

/* ---- attributes ---------------------------------------------------------- */

static void test_missing_attributes(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_graph_t *g = NULL;
    loong_precision_t precision = {LOONG_F32, LOONG_F32};
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    loong_val_t x =
        loong_graph_input(g, "x", LOONG_F32, loong_shape_2d(4, 6));
    loong_val_t in[2] = {x, x};
    loong_val_t y;
    loong_graph_apply(g, loong_find_op(ctx, "linear"), NULL, 2, in, 1, &y);
    assert_int_equal(loong_graph_status(g), LOONG_ERR_ARG);
    assert_non_null(
        strstr(loong_context_error(ctx), "linear: attributes are missing"));
    loong_graph_destroy(&g);
    test_context_end(&ctx);
}

/* ---- precision ----------------------------------------------------------- */

static void bf16_with(engine_run_t *run, int count, const char *const *globs)
{
    loong_component_params_t p = engine_params(LOONG_BF16);
    p.compile.num_wide = count;
    p.compile.wide = globs;
    engine_begin(run, &p);
}

/* |a - b| / |b| over a gradient. */
static double gradient_error(const engine_run_t *a, const engine_run_t *b,
                             int64_t param)
{
    const loong_chunk_param_t *p =
        &a->stage->chunk[LOONG_VARIANT_TRAIN]->params[param];
    const loong_chunk_param_t *q =
        &b->stage->chunk[LOONG_VARIANT_TRAIN]->params[param];
    double *x = engine_read(a, p, true);
    double *y = engine_read(b, q, true);
    double d = 0.0;
    double n = 0.0;
    for (int64_t i = 0; i < p->elements; i++) {
        d += (x[i] - y[i]) * (x[i] - y[i]);
        n += y[i] * y[i];
    }
    free(x);
    free(y);
    return sqrt(d / (n + 1e-300));
}

/* Turns the feed-forwards of the engine's model into experts. */
static void add_experts(void)
{
    loong_decoder_config_t *c = &engine_model;
    c->num_experts = 8;
    c->moe_ffn_hidden_size = 40;
    c->router.topk = 2;
    c->router.scaling_factor = 1.0;
    c->aux_loss_coeff = 0.05;
    for (int l = 0; l < c->num_layers; l++) {
        c->kinds.of[l] = true;
    }
}

/* Everything in fp32 over bf16 parameters is the fp32 model, bit for bit. */
static void check_precision_of_all(bool experts)
{
    static const char *const all[] = {"*"};
    engine_run_t mixed;
    engine_run_t wide;
    loong_frame_t frame = {0};
    loong_component_params_t p = engine_params(LOONG_F32);
    loong_component_params_t q = p;
    if (experts) {
        add_experts();
    }
    q.precision.compute = LOONG_BF16;
    q.compile.num_wide = 1;
    q.compile.wide = all;
    engine_begin(&mixed, &q);
    engine_begin(&wide, &p);
    engine_copy_params(&wide, &mixed);
    double a = engine_step(&mixed, &frame);
    double b = engine_step(&wide, &frame);
    assert_true(a == b && isfinite(a));
    for (int64_t i = 0; i < mixed.stage->layout->num_params; i++) {
        assert_true(gradient_error(&mixed, &wide, i) == 0.0);
    }
    engine_end(&mixed);
    engine_end(&wide);
}

static void test_precision_of_all(void **state)
{
    (void)state;
    check_precision_of_all(false);
    check_precision_of_all(true);
}

/* A router's logits are the product of bf16 rows and an fp32 weight, and its
 * gradient that of the bf16 rows and fp32 gradients of logits: none is cast. */
static void test_router_types(void **state)
{
    (void)state;
    engine_run_t run;
    loong_component_params_t p = engine_params(LOONG_BF16);
    int found[2] = {0, 0};
    add_experts();
    engine_begin(&run, &p);
    for (int k = 0; k < LOONG_PROGRAM_COUNT; k++) {
        const loong_program_t *program =
            &run.stage->chunk[LOONG_VARIANT_TRAIN]->programs[k];
        for (int64_t i = 0; i < program->num_steps; i++) {
            const loong_step_t *step = &program->steps[i];
            const loong_karg_t *arg = step->query.arg;
            bool dw = strcmp(step->query.op, "linear_dw") == 0;
            if (strcmp(step->scope, "layers.1.mlp.gate") != 0) {
                continue;
            }
            if (dw || (strcmp(step->query.op, "linear") == 0 &&
                       arg[1].dtype == LOONG_F32)) {
                assert_int_equal(arg[0].dtype, dw ? LOONG_F32 : LOONG_BF16);
                assert_int_equal(arg[1].dtype, dw ? LOONG_BF16 : LOONG_F32);
                assert_int_equal(arg[2].dtype, LOONG_F32);
                found[dw]++;
            }
        }
    }
    assert_int_equal(found[0], 1);
    assert_int_equal(found[1], 1);
    engine_end(&run);
}

static bool is_cast(const loong_step_t *step)
{
    return strcmp(step->query.op, "cast") == 0;
}

/* Steps of the scopes read and write no bf16, all other steps no more fp32
 * than without; returns how many steps are casts. */
static int check_steps(const loong_program_t *p, int count,
                       const char *const *globs)
{
    int casts = 0;
    for (int64_t i = 0; i < p->num_steps; i++) {
        const loong_step_t *step = &p->steps[i];
        bool wide = false;
        for (int k = 0; k < count; k++) {
            wide = wide || loongi_scope_match(globs[k], step->scope);
        }
        casts += is_cast(step);
        for (int a = 0; wide && !is_cast(step) &&
                        a < step->query.num_in + step->query.num_out;
             a++) {
            assert_true(step->query.arg[a].rank == 0 ||
                        step->query.arg[a].dtype != LOONG_BF16);
        }
        if (!wide && strcmp(step->query.op, "linear") == 0) {
            assert_int_equal(step->query.arg[0].dtype, LOONG_BF16);
        }
    }
    return casts;
}

/* All but the embedding in fp32: it copies rows, so the loss is fp32's own; its
 * gradient is rounded once where it leaves the scopes, and no other is. */
static void test_precision_at_the_border(void **state)
{
    (void)state;
    static const char *const scopes[] = {"layers.*", "norm", "lm_head"};
    engine_run_t mixed;
    engine_run_t wide;
    loong_frame_t frame = {0};
    loong_component_params_t p = engine_params(LOONG_F32);
    bf16_with(&mixed, 3, scopes);
    engine_begin(&wide, &p);
    engine_copy_params(&wide, &mixed);
    assert_true(engine_step(&mixed, &frame) == engine_step(&wide, &frame));
    for (int64_t i = 0; i < mixed.stage->layout->num_params; i++) {
        const char *name = mixed.stage->layout->params[i].name;
        double error = gradient_error(&mixed, &wide, i);
        if (strcmp(name, "embed_tokens.weight") == 0) {
            assert_true(error > 0.0 && error < 1.0 / 256.0);
        } else {
            assert_true(error == 0.0);
        }
    }
    engine_end(&mixed);
    engine_end(&wide);
}

/* bf16 rounds to 2^-9 relatively; the longest way from a parameter to the loss
 * and back has fewer than 64 roundings. */
static void test_precision_of_scopes(void **state)
{
    (void)state;
    static const char *const scopes[] = {"lm_head",
                                         "layers.*.self_attn.core", "norm"};
    engine_run_t narrow;
    engine_run_t mixed;
    engine_run_t wide;
    loong_frame_t frame = {0};
    loong_component_params_t p = engine_params(LOONG_F32);
    bf16_with(&narrow, 0, NULL);
    bf16_with(&mixed, 3, scopes);
    engine_begin(&wide, &p);
    engine_copy_params(&wide, &mixed);
    double exact = engine_step(&wide, &frame);
    double mixed_loss = engine_step(&mixed, &frame);
    double narrow_loss = engine_step(&narrow, &frame);
    double bound = 64.0 / 512.0;
    assert_true(fabs(mixed_loss - exact) < bound * exact);
    assert_true(mixed_loss != narrow_loss);
    for (int64_t i = 0; i < mixed.stage->layout->num_params; i++) {
        assert_true(gradient_error(&mixed, &wide, i) < bound);
    }
    const loong_model_chunk_t *c = mixed.stage->chunk[LOONG_VARIANT_TRAIN];
    assert_true(check_steps(&c->programs[LOONG_PROGRAM_F], 3, scopes) > 0);
    assert_true(check_steps(&c->programs[LOONG_PROGRAM_B], 3, scopes) > 0);
    engine_end(&narrow);
    engine_end(&mixed);
    engine_end(&wide);
}

/* In a model that is wide everywhere there is nothing to cast. */
static void test_precision_in_f64(void **state)
{
    (void)state;
    static const char *const all[] = {"*"};
    engine_run_t a;
    engine_run_t b;
    loong_frame_t frame = {0};
    loong_component_params_t p = engine_params(LOONG_F64);
    engine_begin(&a, &p);
    p.compile.num_wide = 1;
    p.compile.wide = all;
    engine_begin(&b, &p);
    assert_true(engine_step(&a, &frame) == engine_step(&b, &frame));
    assert_int_equal(a.stage->chunk[LOONG_VARIANT_TRAIN]
                         ->programs[LOONG_PROGRAM_F]
                         .num_steps,
                     b.stage->chunk[LOONG_VARIANT_TRAIN]
                         ->programs[LOONG_PROGRAM_F]
                         .num_steps);
    engine_end(&a);
    engine_end(&b);
}

static void test_globs_that_match_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = {"layers.*.self_attn", "layrs.*"};
    loong_context_t *ctx = test_context();
    loong_model_t *model = NULL;
    assert_ok(ctx, loong_register_builtin(ctx));
    loong_component_params_t p = engine_params(LOONG_BF16);
    p.family = loong_find_family(ctx, "qwen3");
    p.compile.num_wide = 2;
    p.compile.wide = wrong;
    assert_fails(ctx, loongi_model_create(ctx, 1, &p, &model), LOONG_ERR_CONFIG,
                 "scopes in fp32: 'layrs.*' matches no scope");
    p = engine_params(LOONG_BF16);
    p.family = loong_find_family(ctx, "qwen3");
    p.compile.num_watch = 2;
    p.compile.watch = wrong;
    assert_fails(ctx, loongi_model_create(ctx, 1, &p, &model), LOONG_ERR_CONFIG,
                 "scopes to log: 'layrs.*'");
    static const char *const meant[][3] = {
        {"layers.*.mpl", "did you mean 'layers.*.mlp'?", "lm_head"},
        {"layers.1.mlp.down_prj", "did you mean 'layers.*.mlp.down_proj'?",
         "layers.*.mlp.gate_proj, layers.*.mlp.up_proj"},
        {"layers.*.self_atn", "did you mean 'layers.*.self_attn'?",
         "layers.*.self_attn.o_proj"},
        {"lmhead.weight", "did you mean 'lm_head'?", "embed_tokens"},
    };
    for (int i = 0; i < LOONG_COUNT_OF(meant); i++) {
        p.compile.num_watch = 1;
        p.compile.watch = meant[i];
        assert_fails(ctx, loongi_model_create(ctx, 1, &p, &model),
                     LOONG_ERR_CONFIG, meant[i][1]);
        assert_fails(ctx, loongi_model_create(ctx, 1, &p, &model),
                     LOONG_ERR_CONFIG, meant[i][2]);
    }
    test_context_end(&ctx);
}

/* ---- recompute ----------------------------------------------------------- */

/* With every layer run again, the slot holds one tensor [T, hidden] a layer:
 * what one more layer costs. The numbers stay as they are. */
static void test_full_recompute(void **state)
{
    (void)state;
    static const char *const layers[] = {"layers.*"};
    engine_run_t run[2];
    int64_t slot[2];
    loong_frame_t frame = {0};
    for (int i = 0; i < 2; i++) {
        loong_component_params_t p = engine_params(LOONG_F64);
        p.compile.num_recompute = i;
        p.compile.recompute = layers;
        engine_begin(&run[i], &p);
    }
    assert_true(engine_step(&run[0], &frame) == engine_step(&run[1], &frame));
    for (int64_t i = 0; i < run[0].stage->layout->num_params; i++) {
        assert_true(gradient_error(&run[0], &run[1], i) == 0.0);
    }
    engine_end(&run[0]);
    engine_end(&run[1]);
    for (int i = 0; i < 2; i++) {
        loong_component_params_t p = engine_params(LOONG_F64);
        engine_model.num_layers = 4 + i;
        p.compile.num_recompute = 1;
        p.compile.recompute = layers;
        engine_begin(&run[0], &p);
        slot[i] = run[0].stage->chunk[LOONG_VARIANT_TRAIN]->slot_bytes;
        engine_end(&run[0]);
    }
    assert_int_equal(slot[1] - slot[0],
                     ENGINE_TOKENS * 48 * (int64_t)sizeof(double));
}

/* ---- logged tensors ------------------------------------------------------ */

static void read_stats(const engine_run_t *run, int64_t watch,
                       double stats[3])
{
    const loong_model_chunk_t *c = run->stage->chunk[LOONG_VARIANT_TRAIN];
    memcpy(stats,
           run->stage->run.base[LOONG_BASE_STATE] + c->watches[watch].offset,
           3 * sizeof(*stats));
}

static int64_t find_watch(const engine_run_t *run, const char *name,
                          bool gradient)
{
    const loong_model_chunk_t *c = run->stage->chunk[LOONG_VARIANT_TRAIN];
    for (int64_t i = 0; i < c->num_watches; i++) {
        if (c->watches[i].gradient == gradient &&
            strcmp(c->watches[i].name, name) == 0) {
            return i;
        }
    }
    fail_msg("%s is not logged", name);
    return -1;
}

/* The bias of q, k, v gets the sum over rows of the gradient of their product:
 * with one token, that gradient itself. The loss of a token is an output. */
static void test_watch_figures(void **state)
{
    (void)state;
    static const char *const globs[] = {"layers.1.self_attn", "lm_head"};
    engine_run_t run;
    engine_run_t plain;
    loong_frame_t frame = {0};
    double stats[3];
    loong_component_params_t p = engine_params(LOONG_F64);
    engine_begin(&plain, &p);
    p.compile.num_watch = 2;
    p.compile.watch = globs;
    engine_begin(&run, &p);
    frame.log_tensors = 1;
    double loss = engine_step(&run, &frame);
    assert_true(loss == engine_step(&plain, &frame));
    for (int64_t i = 0; i < run.stage->layout->num_params; i++) {
        assert_true(gradient_error(&run, &plain, i) == 0.0);
    }
    const loong_port_t *port =
        &run.stage->chunk[LOONG_VARIANT_TRAIN]->losses[0].port;
    const double *losses = loongi_stage_port(run.stage, port);
    double sum = 0.0;
    double most = 0.0;
    for (int i = 0; i < ENGINE_TOKENS; i++) {
        sum += losses[i] * losses[i];
        most = fmax(most, fabs(losses[i]));
    }
    read_stats(&run, find_watch(&run, "lm_head.cross_entropy", false), stats);
    assert_true(fabs(stats[0] - sum) < 1e-12 * sum);
    assert_true(stats[1] == most && stats[2] == 0.0);
    read_stats(&run, find_watch(&run, "layers.1.self_attn.linear", true),
               stats);
    assert_true(stats[0] > 0.0 && stats[1] > 0.0 && stats[2] == 0.0);
    /* The second micro-batch of a step adds to the first. */
    double once = stats[0];
    frame.first = 0;
    engine_end(&plain);
    assert_ok(run.ctx, loongi_stage_execute(run.stage, LOONG_VARIANT_TRAIN,
                                            LOONG_PROGRAM_F, &frame));
    assert_ok(run.ctx, loongi_stage_execute(run.stage, LOONG_VARIANT_TRAIN,
                                            LOONG_PROGRAM_B, &frame));
    read_stats(&run, find_watch(&run, "layers.1.self_attn.linear", true),
               stats);
    assert_true(fabs(stats[0] - 2.0 * once) < 1e-12 * once);
    engine_end(&run);
}

/* Products are found and named by their parameters; of several at once, by any
 * of them, and the op's name stays. */
static void test_watch_names(void **state)
{
    (void)state;
    static const char *const globs[] = {"layers.1.mlp.up_proj",
                                        "layers.*.mlp.down_proj",
                                        "layers.0.self_attn.o_proj"};
    engine_run_t run;
    loong_component_params_t p = engine_params(LOONG_BF16);
    p.compile.num_watch = 3;
    p.compile.watch = globs;
    engine_begin(&run, &p);
    int64_t outputs = 0;
    for (int64_t w = 0; w < run.stage->chunk[LOONG_VARIANT_TRAIN]->num_watches;
         w++) {
        outputs += !run.stage->chunk[LOONG_VARIANT_TRAIN]->watches[w].gradient;
    }
    assert_int_equal(outputs, 4);
    find_watch(&run, "layers.1.mlp.linear", false);
    find_watch(&run, "layers.0.mlp.down_proj", true);
    find_watch(&run, "layers.1.mlp.down_proj", false);
    find_watch(&run, "layers.0.self_attn.o_proj", true);
    engine_end(&run);
}

/* Parameters that are not finite show in every tensor behind them. */
static void test_watch_counts(void **state)
{
    (void)state;
    static const char *const globs[] = {"layers.*.mlp"};
    engine_run_t run;
    loong_frame_t frame = {0};
    double stats[3];
    loong_component_params_t p = engine_params(LOONG_BF16);
    p.compile.num_watch = 1;
    p.compile.watch = globs;
    engine_begin(&run, &p);
    const loong_chunk_param_t *bad =
        loongi_model_chunk_param(run.stage->chunk[LOONG_VARIANT_TRAIN],
                                 "layers.1.post_attention_layernorm.weight");
    assert_non_null(bad);
    double nan = NAN;
    assert_ok(run.ctx, loongi_stage_upload(run.stage));
    assert_ok(run.ctx, loongi_stage_set_param(run.stage, bad, 7, 1, &nan));
    assert_ok(run.ctx, loongi_stage_uploaded(run.stage, LOONG_OK));
    frame.log_tensors = 1;
    engine_step(&run, &frame);
    read_stats(&run, find_watch(&run, "layers.0.mlp.swiglu", false), stats);
    assert_true(stats[0] > 0.0 && stats[2] == 0.0);
    read_stats(&run, find_watch(&run, "layers.1.mlp.swiglu", false), stats);
    assert_true(stats[2] == ENGINE_TOKENS * 80.0 && stats[1] == 0.0);
    engine_end(&run);
}

static void count_steps(void *user, const loong_program_t *program,
                        int64_t index, void *const *ptr,
                        const loong_step_time_t *time)
{
    (void)program;
    (void)index;
    (void)ptr;
    (void)time;
    ++*(int64_t *)user;
}

/* Off, nothing is compiled in; in steps that are not logged nothing runs; the
 * memory is one area of 64 bytes a tensor. */
static void test_watch_cost(void **state)
{
    (void)state;
    static const char *const globs[] = {"layers.*.mlp"};
    engine_run_t run[2];
    loong_frame_t frame = {0};
    int64_t steps[3] = {0, 0, 0};
    for (int i = 0; i < 2; i++) {
        loong_component_params_t p = engine_params(LOONG_F32);
        p.compile.num_watch = i;
        p.compile.watch = globs;
        engine_begin(&run[i], &p);
        run[i].stage->run.hook = count_steps;
        run[i].stage->run.hook_user = &steps[i];
        engine_step(&run[i], &frame);
    }
    const loong_model_chunk_t *c = run[1].stage->chunk[LOONG_VARIANT_TRAIN];
    run[1].stage->run.hook_user = &steps[2];
    frame.log_tensors = 1;
    engine_step(&run[1], &frame);
    assert_int_equal(steps[0], steps[1]);
    assert_int_equal(steps[2], steps[1] + c->num_watches);
    assert_int_equal(run[0].component->model->bytes[LOONG_BASE_STATE], 0);
    assert_int_equal(run[1].component->model->bytes[LOONG_BASE_STATE],
                     64 * c->num_watches);
    engine_end(&run[0]);
    engine_end(&run[1]);
}

/* Between what has its place, where it is free at that time, up to a limit. */
static void test_gaps(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_interval_t at[] = {{0, 9, 256, 0},   {0, 4, 512, 256},
                             {5, 9, 256, -2},  {5, 7, 256, -2},
                             {4, 5, 256, -2},  {8, 9, 256, -2}};
    assert_ok(ctx, loongi_place_in_gaps(ctx, 2, LOONG_COUNT_OF(at), at, 768));
    assert_int_equal(at[0].offset, 0);
    assert_int_equal(at[1].offset, 256);
    assert_int_equal(at[2].offset, 256);
    assert_int_equal(at[3].offset, 512);
    assert_int_equal(at[4].offset, -1);
    assert_int_equal(at[5].offset, 512);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_attributes),
        cmocka_unit_test(test_precision_of_all),
        cmocka_unit_test(test_router_types),
        cmocka_unit_test(test_precision_at_the_border),
        cmocka_unit_test(test_precision_of_scopes),
        cmocka_unit_test(test_precision_in_f64),
        cmocka_unit_test(test_globs_that_match_nothing),
        cmocka_unit_test(test_full_recompute),
        cmocka_unit_test(test_watch_figures),
        cmocka_unit_test(test_watch_names),
        cmocka_unit_test(test_watch_counts),
        cmocka_unit_test(test_watch_cost),
        cmocka_unit_test(test_gaps),
    };
    return cmocka_run_group_tests_name("passes", tests, NULL, NULL);
}
