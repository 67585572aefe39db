/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of a model of several components: what a rank takes of its device is,
 * byte for byte, what one process plans for it, whatever the layouts; what is
 * frozen takes no part in backwards; ports that nothing binds, and losses that
 * nothing reports, are refused. The linker sends requests for memory
 * through wrappers (train.cmake). */
#include "loong/family.h"
#include "loong/ops.h"
#include "loong/register.h"
#include "stage_plans.h"
#include "test.h"
#include "trainer_impl.h"

static const char recipe_text[] =
    "model:\n"
    "  image_encoder: {family: clip_vision_model, num_layers: 2,\n"
    "    hidden_size: 12, ffn_hidden_size: 20, num_attention_heads: 4,\n"
    "    image_size: 8, patch_size: 4, feature_layer: -2}\n"
    "  image_projector: {family: mlp_projector}\n"
    "  foundation: {family: llama, num_layers: 4, hidden_size: 16,\n"
    "    ffn_hidden_size: 21, num_attention_heads: 4, num_query_groups: 4,\n"
    "    vocab_size: 13, max_position_embeddings: 24}\n"
    "precision: {params_dtype: fp32}\n"
    "device: cpu\n"
    "data: {seq_length: 24, max_images: 4}\n"
    "train: {global_batch_size: 12, train_iters: 2}\n"
    "optimizer: {lr: 0.01}\n";

typedef struct layout {
    int ranks;
    const char *overrides[6];
} layout_t;

#define TP "+parallel.tensor_model_parallel_size="
#define PP "+parallel.pipeline_model_parallel_size="
#define SP "+parallel.sequence_parallel=true"
#define ZERO "+parallel.data_parallel_sharding="
#define E "+model.image_encoder."
#define J "+model.image_projector."
#define F "+model.foundation."
#define OF "parallel.tensor_model_parallel_size="

static const layout_t layouts[] = {
    {1, {NULL}},
    {3, {ZERO "none"}},
    {4, {E OF "2", PP "2", "+join=phases"}},
    {4, {PP "2", "+join=bubbles"}},
    {4, {TP "2", PP "2", E OF "2", "+join=bubbles"}},
    {4, {E OF "4", E "parallel.sequence_parallel=true", ZERO "optim_grads"}},
    {4, {J OF "2", ZERO "optim_grads_params", "+parallel.bucket_bytes=4096"}},
    {6, {TP "3", E OF "1", ZERO "optim_grads_params"}},
    {8, {TP "2", SP, PP "2", E OF "4", J OF "2", "+join=phases"}},
    {2, {E "freeze=true", TP "2"}},
    {4, {E "freeze=true", J "freeze=true", E OF "2", ZERO "optim_grads"}},
    {8, {E "freeze=true", E OF "4", PP "2", ZERO "optim_grads_params"}},
    {2, {E "precision.params_dtype=bf16", E "recompute.granularity=full"}},
    {4, {E "ranks=0-1", J "ranks=0-1", F "ranks=2-3", ZERO "optim_grads"}},
    {4, {E "ranks=0-1", J "ranks=1", F "ranks=1-3", "+join=phases"}},
    {6, {E "ranks=0,5", E OF "2", J "ranks=1-", F "ranks=1-4", TP "2", PP "2"}},
    {4, {E "ranks=1-2", TP "2", SP, PP "2", ZERO "optim_grads_params"}},
    {5, {E "ranks=0-2", J "ranks=3", F "ranks=3-", E "freeze=true", PP "2"}},
    {7, {E "ranks=4-", J "ranks=0-3", F "ranks=0-3", TP "4"}},
};

/* ---- what is asked of the device ----------------------------------------- */

/* Of the rank that the thread is. */
static _Thread_local int64_t asked[LOONG_BASE_COUNT];

static void count(const char *what, size_t bytes)
{
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        if (strcmp(what, loongi_base_name((loong_base_t)b)) == 0) {
            asked[b] += (int64_t)bytes;
        }
    }
}

loong_status_t __real_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p);
loong_status_t __wrap_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p);
loong_status_t __wrap_loong_device_alloc(loong_device_t *device, size_t bytes,
                                         const char *what, void **ptr_p)
{
    count(what, bytes);
    return __real_loong_device_alloc(device, bytes, what, ptr_p);
}

loong_status_t __real_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p);
loong_status_t __wrap_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p);
loong_status_t __wrap_loong_comm_alloc_shared(loong_comm_t *comm, size_t bytes,
                                              const char *what, void *ptr_p)
{
    count(what, bytes > 1 ? bytes : 0); /* 1: others have some */
    return __real_loong_comm_alloc_shared(comm, bytes, what, ptr_p);
}

/* ---- plans --------------------------------------------------------------- */

static loong_status_t create(loong_context_t *ctx, loong_comm_t *comm,
                             const layout_t *l, loong_recipe_t **recipe_p,
                             loong_trainer_t **trainer_p)
{
    loong_recipe_params_t params = {.overrides = l->overrides};
    while (params.num_overrides < LOONG_COUNT_OF(l->overrides) &&
           l->overrides[params.num_overrides] != NULL) {
        params.num_overrides++;
    }
    LOONG_TRY(loong_recipe_parse(ctx, "test", recipe_text, &params, recipe_p));
    loong_trainer_params_t p = {.comm = comm,
                                .recipe = *recipe_p,
                                .plan_only = true,
                                .plan_ranks = l->ranks};
    return loong_trainer_create(ctx, &p, trainer_p);
}

typedef struct alone {
    const layout_t *layout;
    loong_model_t *const *models; /* of all ranks, planned by one */
} alone_t;

static loong_status_t compare(loong_context_t *ctx, const loong_model_t *mine,
                              const loong_model_t *planned, int rank)
{
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        LOONG_CHECK(
            ctx,
            asked[b] == mine->bytes[b] && mine->bytes[b] == planned->bytes[b],
            LOONG_ERR_MISMATCH,
            "rank %d takes %lld bytes of %s, has planned %lld; alone "
            "%lld are planned for it",
            rank, (long long)asked[b], loongi_base_name((loong_base_t)b),
            (long long)mine->bytes[b], (long long)planned->bytes[b]);
    }
    return LOONG_OK;
}

/* Of a rank of the job: takes its memory. */
static loong_status_t allocate(loong_context_t *ctx, loong_comm_t *comm,
                               void *user)
{
    const alone_t *alone = user;
    loong_trainer_t *t = NULL;
    loong_recipe_t *recipe = NULL;
    int rank = loong_comm_rank(comm);
    memset(asked, 0, sizeof(asked));
    LOONG_TRY(loong_register_builtin(ctx));
    LOONG_TRY(create(ctx, comm, alone->layout, &recipe, &t));
    LOONG_TRY(loongi_resources_create(ctx, t->plan.device, comm,
                                      &t->component->params.resources,
                                      &t->resources));
    LOONG_TRY(loongi_model_allocate(t->model, t->resources));
    loong_status_t status = compare(ctx, t->model, alone->models[rank], rank);
    loong_trainer_destroy(&t);
    loong_recipe_destroy(&recipe);
    return status;
}

static int64_t sum_of(const loong_model_t *m)
{
    int64_t sum = 0;
    for (int b = 0; b < LOONG_BASE_COUNT; b++) {
        sum += m->bytes[b];
    }
    return sum;
}

/* --dry-run tells the largest rank of each stage, and of those without one. */
static void check_largest(loong_trainer_t *t, const loong_model_t *model)
{
    const loong_component_params_t *last =
        &model->components[model->num_components - 1]->params;
    int stages = last->mesh.size[LOONG_AXIS_PP];
    int i = last->absent ? stages : last->mesh.coord[LOONG_AXIS_PP];
    int64_t largest = 0;
    assert_ok(t->ctx, loongi_stage_plans_create(&t->plan));
    for (int end = last->absent ? t->plan.num_stage_plans : i + 1; i < end;
         i++) {
        largest = LOONG_MAX(largest, sum_of(t->plan.stage_plans[i]->model));
    }
    assert_true(sum_of(model) <= largest);
}

/* A rank has nothing of a component that it is not of: no entry, no stage and
 * none of its parameters. */
static void check_absent(const loong_model_t *m)
{
    const loong_rank_schedule_t *lists[] = {
        &m->training->ranks[m->ranks.cell_rank],
        &m->evaluation->ranks[m->ranks.cell_rank]};
    int64_t params = 0;
    for (int c = 0; c < m->num_components; c++) {
        const loong_component_t *component = m->components[c];
        bool here = loongi_component_rank(&component->params,
                                          loongi_model_rank(m)) >= 0;
        assert_int_equal(component->params.absent, !here);
        assert_int_equal(component->num_stages > 0, here);
        for (int s = 0; s < component->num_stages; s++) {
            params += component->stages[s]->layout->param_bytes;
        }
        for (int k = 0; k < 2; k++) {
            int64_t entries = 0;
            for (int64_t i = 0; i < lists[k]->num_entries; i++) {
                entries += lists[k]->entries[i].component == c;
            }
            assert_int_equal(entries > 0, here);
        }
    }
    assert_int_equal(m->bytes[LOONG_BASE_PARAM], params);
}

static void memory_is_as_planned(void **state)
{
    (void)state;
    for (int64_t i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        enum { MOST = 8 };
        const layout_t *l = &layouts[i];
        loong_context_t *ctx = test_context();
        loong_comm_t *comm = NULL;
        loong_recipe_t *recipe = NULL;
        loong_trainer_t *t = NULL;
        loong_model_t *models[MOST] = {NULL};
        loong_threads_params_t params;
        alone_t alone = {l, models};
        assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
        assert_ok(ctx, loong_register_builtin(ctx));
        assert_ok(ctx, create(ctx, comm, l, &recipe, &t));
        for (int r = 0; r < l->ranks; r++) {
            assert_ok(ctx, loongi_stage_plans_model(&t->plan, r, &models[r]));
            check_largest(t, models[r]);
            check_absent(models[r]);
        }
        memset(&params, 0, sizeof(params));
        params.size = l->ranks;
        assert_ok(ctx, loong_threads_run(ctx, &params, allocate, &alone));
        for (int r = 0; r < l->ranks; r++) {
            loongi_model_destroy(&models[r]);
        }
        loong_trainer_destroy(&t);
        loong_recipe_destroy(&recipe);
        loong_comm_destroy(&comm);
        test_context_end(&ctx);
    }
}

/* ---- what is frozen ------------------------------------------------------ */

/* Entries of a component in the lists of all ranks of a cell, by kind. */
static int64_t count_entries(const loong_cell_t *cell, int component,
                             loong_entry_kind_t kind)
{
    int64_t found = 0;
    for (int r = 0; r < cell->params.ranks; r++) {
        for (int64_t i = 0; i < cell->ranks[r].num_entries; i++) {
            const loong_entry_t *e = &cell->ranks[r].entries[i];
            found += e->component == component && e->kind == kind;
        }
    }
    return found;
}

static int64_t count_back(const loong_cell_t *cell, int edge)
{
    int64_t found = 0;
    for (int64_t i = 0; i < cell->params.num_messages; i++) {
        const loong_message_t *m = &cell->params.messages[i];
        found += m->edge == edge && m->backward;
    }
    return found;
}

/* Components before `first_trained` are frozen. */
static void check_frozen(const loong_model_t *m, int first_trained)
{
    static const loong_entry_kind_t behind[] = {LOONG_ENTRY_B, LOONG_ENTRY_W,
                                                LOONG_ENTRY_REDUCE};
    for (int c = 0; c < m->num_components; c++) {
        const loong_stage_t *s = m->components[c]->stages[0];
        bool trained = c >= first_trained;
        assert_int_equal(m->components[c]->params.train, trained);
        assert_int_equal(s->shards->grad_bytes > 0, trained);
        assert_int_equal(s->optimizer != NULL, trained);
        assert_true(count_entries(m->training, c, LOONG_ENTRY_F) +
                        count_entries(m->training, c, LOONG_ENTRY_E) >
                    0);
        assert_int_equal(count_entries(m->training, c, LOONG_ENTRY_B) > 0,
                         trained);
        for (int64_t k = 1; k < LOONG_COUNT_OF(behind) && !trained; k++) {
            assert_int_equal(count_entries(m->training, c, behind[k]), 0);
        }
    }
    for (int e = 0; e < m->num_edges; e++) {
        bool back = m->edges[e].from >= first_trained;
        assert_int_equal(m->edges[e].gradient, back);
        assert_int_equal(count_back(m->training, e) > 0, back);
    }
}

static void frozen_has_no_backward(void **state)
{
    (void)state;
    static const layout_t kinds[] = {
        {4, {PP "2"}},
        {4, {E "freeze=true", E OF "2", PP "2"}},
        {4, {E "freeze=true", J "freeze=true", TP "2", "+join=phases"}}};
    for (int i = 0; i < LOONG_COUNT_OF(kinds); i++) {
        loong_context_t *ctx = test_context();
        loong_comm_t *comm = NULL;
        loong_recipe_t *recipe = NULL;
        loong_trainer_t *t = NULL;
        assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
        assert_ok(ctx, loong_register_builtin(ctx));
        assert_ok(ctx, create(ctx, comm, &kinds[i], &recipe, &t));
        assert_int_equal(t->model->num_components, 3);
        check_frozen(t->model, i);
        assert_int_equal(t->model->bytes[LOONG_BASE_EDGE_GRAD] > 0, i < 2);
        loong_trainer_destroy(&t);
        loong_recipe_destroy(&recipe);
        loong_comm_destroy(&comm);
        test_context_end(&ctx);
    }
}

/* ---- what nobody binds, reads or reports --------------------------------- */

static const loong_family_t *builtin(loong_graph_t *graph, const char *name)
{
    return loong_find_family(loong_graph_context(graph), name);
}

/* Beside the rows of an edge a projector has no data. */
static loong_status_t build_with_data(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    loong_graph_input(graph, "scale", LOONG_F32, loong_shape_1d(request->rows));
    return builtin(graph, "mlp_projector")->build(graph, config, request);
}

static loong_status_t build_with_edge(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    loong_graph_receive(graph, "depths", LOONG_F32,
                        loong_shape_2d(request->rows, 4));
    return builtin(graph, "mlp_projector")->build(graph, config, request);
}

static loong_status_t build_with_loss(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    const loong_loss_params_t loss = {.name = "own", .normaliser = "tokens"};
    LOONG_TRY(builtin(graph, "mlp_projector")->build(graph, config, request));
    loong_loss(graph,
               loong_graph_input(graph, "loss_weight",
                                 loong_graph_precision(graph).wide,
                                 loong_shape_1d(request->rows)),
               &loss);
    return loong_graph_status(graph);
}

/* What it makes nobody reads. */
static loong_status_t build_aside(loong_graph_t *graph, const void *config,
                                  const loong_model_request_t *request)
{
    loong_param_params_t p = {.name = "weight", .shape = loong_shape_2d(4, 12)};
    (void)config;
    p.dtype = loong_graph_precision(graph).compute;
    loong_val_t x = loong_graph_receive(graph, "features", p.dtype,
                                        loong_shape_2d(request->rows, 12));
    loong_graph_send(
        graph, "elsewhere",
        loong_linear(graph, x, loong_graph_param(graph, &p), LOONG_NONE));
    return loong_graph_status(graph);
}

static void what_nobody_binds_is_refused(void **state)
{
    (void)state;
    static const layout_t layout = {1, {"++model.image_projector.family=own"}};
    static const struct {
        loong_status_t (*build)(loong_graph_t *graph, const void *config,
                                const loong_model_request_t *request);
        const char *error;
    } cases[] = {
        {build_with_data, "image_projector reads an input 'scale', but no data "
                          "is read for it"},
        {build_with_edge, "image_projector reads 'depths', which no component "
                          "before it makes"},
        {build_with_loss, "image_projector declares a loss 'own', which "
                          "nothing reports: losses are those of foundation"},
        {build_aside, "foundation reads 'projected', which no component "
                      "before it makes"}};
    for (int64_t i = 0; i < LOONG_COUNT_OF(cases); i++) {
        loong_context_t *ctx = test_context();
        loong_comm_t *comm = NULL;
        loong_recipe_t *recipe = NULL;
        loong_trainer_t *t = NULL;
        assert_ok(ctx, loong_register_builtin(ctx));
        loong_family_t own = *loong_find_family(ctx, "mlp_projector");
        own.name = "own";
        own.build = cases[i].build;
        assert_ok(ctx, loong_register_family(ctx, &own));
        assert_ok(ctx, loong_comm_create_self(ctx, NULL, &comm));
        assert_fails(ctx, create(ctx, comm, &layout, &recipe, &t),
                     LOONG_ERR_CONFIG, cases[i].error);
        loong_recipe_destroy(&recipe);
        loong_comm_destroy(&comm);
        test_context_end(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(frozen_has_no_backward),
        cmocka_unit_test(what_nobody_binds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
