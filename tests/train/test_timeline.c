/* SPDX-License-Identifier: Apache-2.0
 *
 * One process plans every rank of a layout, and a step is seen on a line of
 * time: predicted, and measured. */
#include <unistd.h>

#include "file.h"
#include "layout_job.h"
#include "loong/register.h"
#include "stage_plans.h"
#include "test.h"
#include "timeline.h"
#include "trainer_impl.h"

static const char recipe_text[] =
    "name: a<b\n"
    "model:\n"
    "  foundation: {family: qwen3, num_layers: 5, hidden_size: 24,\n"
    "    ffn_hidden_size: 43, num_attention_heads: 6,\n"
    "    num_query_groups: 3, kv_channels: 8, vocab_size: 61,\n"
    "    max_position_embeddings: 64, activation: swiglu}\n"
    "precision: {params_dtype: fp32}\n"
    "data: {seq_length: 16}\n"
    "train: {micro_batch_size: 1, global_batch_size: 12, train_iters: 3}\n"
    "optimizer: {lr: 3e-3}\n"
    "parallel: {data_parallel_sharding: optim}\n";

typedef struct layout {
    int ranks;
    int num_overrides;
    const char *overrides[4];
} layout_t;

#define TP "+parallel.tensor_model_parallel_size="
#define PP "+parallel.pipeline_model_parallel_size="
#define SP "+parallel.sequence_parallel=true"

static const layout_t layouts[] = {
    {2, 1, {PP "2"}},
    {6, 3, {PP "3", TP "2", SP}},
    {8, 3, {PP "2", TP "2", "+schedule=zero_bubble_h1"}},
    {6, 2, {TP "3", "parallel.data_parallel_sharding=none"}},
};

static loong_recipe_t *parse(loong_context_t *ctx, const layout_t *l)
{
    loong_recipe_t *recipe = NULL;
    loong_recipe_params_t params = {NULL, l->num_overrides, l->overrides, 0,
                                    NULL};
    assert_ok(ctx, loong_register_builtin(ctx));
    assert_ok(ctx, loong_recipe_parse(ctx, "test", recipe_text, &params,
                                      &recipe));
    return recipe;
}

/* ---- plans --------------------------------------------------------------- */

typedef struct alone {
    loong_context_t *ctx;
    loong_comm_t *comm;
    loong_recipe_t *recipe;
    loong_trainer_t *trainer;
} alone_t;

static alone_t plan_alone(const layout_t *l)
{
    alone_t a = {test_context(), NULL, NULL, NULL};
    assert_ok(a.ctx, loong_comm_create_self(a.ctx, NULL, &a.comm));
    a.recipe = parse(a.ctx, l);
    loong_trainer_params_t params = {.comm = a.comm, .recipe = a.recipe,
                                     .plan_only = true,
                                     .plan_ranks = l->ranks};
    assert_ok(a.ctx, loong_trainer_create(a.ctx, &params, &a.trainer));
    return a;
}

static void end_alone(alone_t *a)
{
    loong_trainer_destroy(&a->trainer);
    loong_recipe_destroy(&a->recipe);
    loong_comm_destroy(&a->comm);
    test_context_end(&a->ctx);
}

typedef struct together {
    const layout_t *layout;
    loong_trainer_t *alone;
} together_t;

/* Every rank by itself: what the one process has planned for the largest of
 * its stage is the same, and no other rank of the stage needs more. */
static loong_status_t compare_plan(loong_context_t *ctx, loong_comm_t *comm,
                                   void *user)
{
    const together_t *all = user;
    loong_trainer_t *t = NULL;
    loong_recipe_t *recipe = parse(ctx, all->layout);
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .plan_only = true};
    LOONG_TRY(loong_trainer_create(ctx, &params, &t));
    int stage = t->plan.mesh.coord[LOONG_AXIS_PP];
    const loong_component_t *most = all->alone->plan.stage_plans[stage];
    bool planned = most->params.mesh.rank == t->plan.mesh.rank;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        int64_t mine = t->component->model->bytes[b];
        LOONG_CHECK(ctx,
                    planned ? mine == most->model->bytes[b]
                            : mine <= most->model->bytes[b],
                    LOONG_ERR_MISMATCH,
                    "rank %d has %lld bytes of %s, planned for rank %d: %lld",
                    t->plan.mesh.rank, (long long)mine,
                    loongi_base_name((loong_base_t)b), most->params.mesh.rank,
                    (long long)most->model->bytes[b]);
    }
    loong_trainer_destroy(&t);
    loong_recipe_destroy(&recipe);
    return LOONG_OK;
}

static void one_process_plans_all_ranks(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        const char *text = NULL;
        alone_t a = plan_alone(&layouts[i]);
        assert_int_equal(a.trainer->plan.mesh.world, layouts[i].ranks);
        assert_ok(a.ctx, loong_trainer_describe(a.trainer, &text));
        assert_non_null(strstr(text, "memory by stage"));
        assert_ok(a.ctx, loongi_stage_plans_create(&a.trainer->plan));
        together_t all = {&layouts[i], a.trainer};
        loong_threads_params_t params;
        memset(&params, 0, sizeof(params));
        params.size = layouts[i].ranks;
        assert_ok(a.ctx, loong_threads_run(a.ctx, &params, compare_plan,
                                           &all));
        end_alone(&a);
    }
}

static void more_ranks_are_for_plans(void **state)
{
    (void)state;
    loong_context_t *ctx = test_context();
    loong_comm_t *comm = NULL;
    loong_trainer_t *trainer = NULL;
    assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
    loong_recipe_t *recipe = parse(ctx, &layouts[0]);
    loong_trainer_params_t params = {.comm = comm, .recipe = recipe,
                                     .plan_ranks = 2};
    assert_fails(ctx, loong_trainer_create(ctx, &params, &trainer),
                 LOONG_ERR_ARG, "a plan for 2 ranks on 1");
    loong_recipe_destroy(&recipe);
    loong_comm_destroy(&comm);
    test_context_end(&ctx);
}

/* ---- predictions --------------------------------------------------------- */

static void assert_picture(loong_context_t *ctx, const char *path,
                           const char *const *words)
{
    char *svg = NULL;
    size_t length = 0;
    assert_ok(ctx, loongi_file_read(ctx, path, &svg, &length));
    for (; *words != NULL; words++) {
        if (strstr(svg, *words) == NULL) {
            fail_msg("'%s' is not in %s", *words, path);
        }
    }
    loongi_free(ctx, svg);
    assert_int_equal(unlink(path), 0);
}

/* The predicted step is the simulated schedule of the costs that are told. */
static void predicted_step(void **state)
{
    (void)state;
    static const char path[] = "timeline_predicted.svg";
    static const char *const words[] = {
        "a&lt;b: zero_bubble_h1, 2 ranks of a pipeline, 6 micro-batches",
        ">simulated: ", ">rank 1<", "</svg>", NULL};
    const char *text = NULL;
    double told = 0.0;
    alone_t a = plan_alone(&layouts[2]);
    assert_fails(a.ctx, loong_trainer_plot(a.trainer, path, &text),
                 LOONG_ERR_ARG, "needs loong_trainer_predict");
    assert_ok(a.ctx, loong_trainer_predict(a.trainer, &text));
    assert_int_equal(sscanf(text, "predicted step: %lf ms", &told), 1);
    assert_non_null(strstr(text, "idle "));
    assert_non_null(strstr(text, "rank 1: forward "));
    assert_non_null(strstr(text, "rank 5: forward "));
    const loong_cell_t *cell = a.trainer->model->training;
    const loong_stage_cost_t *costs = a.trainer->plan.timeline.costs;
    loong_simulation_t total;
    assert_ok(a.ctx, loongi_cell_simulate(cell, costs, NULL, &total));
    assert_true(fabs(1e3 * total.seconds - told) <= 0.051);
    for (int stage = 0; stage < 2; stage++) {
        assert_true(costs[stage].seconds[LOONG_ENTRY_F] > 0.0);
        assert_true(costs[stage].seconds[LOONG_ENTRY_B] > 0.0);
        assert_true(costs[stage].seconds[LOONG_ENTRY_U] > 0.0);
    }
    assert_ok(a.ctx, loong_trainer_plot(a.trainer, path, &text));
    assert_non_null(strstr(text, "timeline of a step: timeline_predicted.svg"));
    assert_picture(a.ctx, path, words);
    end_alone(&a);
}

/* ---- measured ------------------------------------------------------------ */

static const char measured_path[] = "timeline_measured.svg";

/* Stage 0 sends one tensor forward a micro-batch and receives its gradient,
 * stage 1 the other way round; evaluations send as well. */
static loong_status_t check_traffic(loong_trainer_t *t, const char *table)
{
    static const char *const rows[] = {"\nsend ", "\nreceive ",
                                       "\nbetween programs "};
    const loong_stage_t *s = t->component->stages[0];
    int64_t messages = t->state.step *
                       t->component->schedule->params.micro_batches;
    for (int i = 0; i < 3; i++) {
        LOONG_CHECK(t->ctx, strstr(table, rows[i]) != NULL,
                    LOONG_ERR_MISMATCH, "no row%s in%s", rows[i], table);
    }
    for (int received = 0; received < 2; received++) {
        loong_transfer_stats_t m =
            loongi_transfer_stats(s->transfer[LOONG_VARIANT_TRAIN], received);
        LOONG_CHECK(t->ctx,
                    m.count == messages && m.bytes > 0.0 &&
                        m.seconds >= m.blocked && m.blocked > 0.0,
                    LOONG_ERR_MISMATCH,
                    "%lld messages of %g bytes, %g s, %g waited; %lld wanted",
                    (long long)m.count, m.bytes, m.seconds, m.blocked,
                    (long long)messages);
    }
    return LOONG_OK;
}

static loong_status_t train_and_plot(loong_trainer_t *trainer)
{
    const char *text = NULL;
    const char *table = NULL;
    loong_trainer_t *t = trainer;
    LOONG_TRY(loong_trainer_profile_begin(t));
    LOONG_TRY(loong_trainer_run(t));
    LOONG_TRY(loong_trainer_profile_end(t, NULL, &table));
    LOONG_TRY(check_traffic(t, table));
    LOONG_TRY(loong_trainer_plot(t, measured_path, &text));
    bool first = loong_comm_rank(t->comm) == 0;
    LOONG_CHECK(t->ctx, first == (text[0] != '\0'), LOONG_ERR_MISMATCH,
                "rank %d tells: %s", loong_comm_rank(t->comm), text);
    const loong_rank_schedule_t *list =
        loongi_model_entries(t->component->model, LOONG_VARIANT_TRAIN);
    double end = 0.0;
    for (int64_t i = 0; i < list->num_entries; i++) {
        loong_entry_kind_t kind = list->entries[i].kind;
        loong_span_t span = t->plan.timeline.own[i];
        bool follows = span.begin >= end && span.end > span.begin;
        bool ran = kind == LOONG_ENTRY_F || kind == LOONG_ENTRY_B ||
                   kind == LOONG_ENTRY_U;
        LOONG_CHECK(t->ctx, !ran || follows,
                    LOONG_ERR_MISMATCH, "entry %lld: %g to %g behind %g",
                    (long long)i, span.begin, span.end, end);
        end = ran ? span.end : end;
    }
    return LOONG_OK;
}

static void measured_step(void **state)
{
    (void)state;
    static const char *const words[] = {
        ">simulated with the measured programs: ", ">measured, last step: ",
        "1f1b, 2 ranks of a pipeline, 12 micro-batches", "</svg>", NULL};
    static const char *const overrides[] = {
        PP "2", "++data.train=[{path: timeline_data}]"};
    layout_data_t data = {.prefix = "timeline_data", .vocab_size = 61,
                          .documents = 20, .length = 60};
    loong_context_t *ctx = test_context();
    layout_job_t job;
    memset(&job, 0, sizeof(job));
    job.params.num_overrides = LOONG_COUNT_OF(overrides);
    job.params.overrides = overrides;
    job.path = "test";
    job.text = recipe_text;
    job.ranks = 2;
    job.work = train_and_plot;
    assert_ok(ctx, layout_data_write(ctx, &data));
    assert_ok(ctx, layout_job_run(ctx, &job));
    assert_picture(ctx, measured_path, words);
    assert_int_equal(unlink("timeline_data.bin"), 0);
    assert_int_equal(unlink("timeline_data.idx"), 0);
    test_context_end(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_plans_all_ranks),
        cmocka_unit_test(more_ranks_are_for_plans),
        cmocka_unit_test(predicted_step),
        cmocka_unit_test(measured_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
