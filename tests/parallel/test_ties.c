/* SPDX-License-Identifier: Apache-2.0
 *
 * A family that asks for parameters in several stages: an embedding that layers
 * in the middle read again and that is the head, and a matrix of some layers.
 * Any pipeline learns what one rank learns, in f64, and loads what any other
 * saved. Read src/engine/ties.h before. */
#include "layout_run.h"

#include "base.h"
#include "loong/family.h"
#include "loong/nn.h"

enum { MOST_LAYERS = 8 };

typedef struct config {
    int layers;
    int64_t hidden, vocab;
    int64_t again; /* bits: layers that read the embedding */
    int64_t mixed; /* those that multiply with "mix" */
} config_t;

#define M "model.foundation."
static const loong_recipe_key_t own_keys[] = {
    {M "again", LOONG_RECIPE_INT, "0", 0, 255, NULL, LOONG_RESUME_SAME,
     "layers that read the embedding again, as bits"},
    {M "mixed", LOONG_RECIPE_INT, "0", 0, 255, NULL, LOONG_RESUME_SAME,
     "layers with the shared matrix, as bits"},
};

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    (void)ctx, (void)component;
    config_t *c = config;
    c->layers = (int)loong_recipe_int(recipe, M "num_layers");
    c->hidden = loong_recipe_int(recipe, M "hidden_size");
    c->vocab = loong_recipe_int(recipe, M "vocab_size");
    c->again = loong_recipe_int(recipe, M "again");
    c->mixed = loong_recipe_int(recipe, M "mixed");
    return LOONG_OK;
}

static void facts(const void *config, loong_model_facts_t *facts)
{
    const config_t *c = config;
    facts->vocab_size = c->vocab;
    facts->num_layers = c->layers;
    facts->flops_per_row = 6.0 * (double)(c->hidden * c->vocab);
}

static loong_status_t any_mesh(loong_context_t *ctx, const void *config,
                               const loong_model_request_t *request,
                               const loong_mesh_t *mesh)
{
    (void)ctx, (void)config, (void)request, (void)mesh;
    return LOONG_OK;
}

typedef struct builder {
    const config_t *c;
    loong_nn_t nn;
    loong_nn_slice_t rows;
    int64_t tokens;
} builder_t;

static loong_val_t table(builder_t *b)
{
    return loong_nn_table(&b->nn, "table.weight", b->rows, b->c->hidden, 0.05);
}

static loong_val_t embed(builder_t *b)
{
    loong_val_t ids = loong_graph_input(b->nn.graph, "tokens", LOONG_I32,
                                        loong_shape_1d(b->tokens));
    return loong_nn_embedding(&b->nn, ids, table(b), b->rows);
}

static loong_val_t layer(builder_t *b, loong_val_t x, int i)
{
    loong_graph_t *g = b->nn.graph;
    int64_t n = b->c->hidden;
    char name[16];
    snprintf(name, sizeof(name), "own%d", i);
    x = loong_add(g, x,
                  loong_linear(g, x, loong_nn_matrix(&b->nn, name, n, n, 0.2),
                               LOONG_NONE));
    if (b->c->again >> i & 1) {
        x = loong_add(g, x, embed(b));
    }
    if (b->c->mixed >> i & 1) {
        loong_val_t w = loong_nn_matrix(&b->nn, "mix", n, n, 0.2);
        x = loong_add(g, x, loong_linear(g, x, w, LOONG_NONE));
    }
    return x;
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const config_t *c = config;
    builder_t b = {
        .c = c, .nn = loong_nn_begin(g, request, 0.2), .tokens = request->rows};
    b.rows = loong_nn_vocabulary(&b.nn, c->vocab, c->vocab);
    loong_val_t x = request->begins
                        ? embed(&b)
                        : loong_nn_stage_input(&b.nn, request->rows, c->hidden);
    for (int i = 0; i < request->num_layers; i++) {
        x = layer(&b, x, request->first_layer + i);
    }
    if (request->ends) {
        x = loong_nn_norm(&b.nn, "norm", LOONG_NORM_RMS, x, c->hidden, 1e-5);
        loong_nn_language_head(&b.nn, x, table(&b), b.rows, request);
    } else {
        loong_nn_stage_output(&b.nn, x);
    }
    return loong_graph_status(g);
}

static const loong_family_t sharing = {.name = "sharing",
                                       .config_size = sizeof(config_t),
                                       .configure = configure,
                                       .facts = facts,
                                       .check_mesh = any_mesh,
                                       .build = build};

static loong_status_t enter(loong_context_t *ctx)
{
    return loong_register_family(ctx, &sharing);
}

/* ---- layouts ------------------------------------------------------------- */

#define MODEL(more_)                                                     \
    "{family: sharing, num_layers: 4, hidden_size: 16, vocab_size: 61, " \
    "max_position_embeddings: 64, " more_ "}"
#define PP "pipeline_model_parallel_size: "
#define TP "tensor_model_parallel_size: "
#define CHUNKS "num_layers_per_virtual_pipeline_stage: 1"
#define LAYOUT "pipeline_model_parallel_layout: "
#define SHARD "bucket_bytes: 4096, data_parallel_sharding: "
#define FOLDED LAYOUT "Et|t|t|tL}\nschedule: zero_bubble_v"

typedef struct layout {
    int ranks;
    const char *parallel;
} layout_t;

static layout_run_t make_run(const char *save, const char *model,
                             const layout_t *layout)
{
    return (layout_run_t){
        .save = save,
        .model = model,
        .parallel = layout->parallel,
        .more = "",
        .dtype = "fp64",
        .ranks = layout->ranks,
        .micro_batch_size = 2,
        .steps = 4,
        .enter = enter,
        .params = {.num_keys = LOONG_COUNT_OF(own_keys), .keys = own_keys}};
}

static const layout_t alone = {1, "{}"};
static const layout_t layouts[] = {
    {4, "{" PP "4}"},
    {4, "{" PP "4}\nschedule: zero_bubble_h1"},
    {2, "{" PP "2, " CHUNKS "}"}, /* two chunks of a rank, and another rank */
    {2, "{" PP "2, " FOLDED},
    {1, "{" LAYOUT "Et|tttL}\nschedule: zero_bubble_v"},
    {8, "{" PP "4, " SHARD "none}"},
    {8, "{" PP "4, " SHARD "optim}"},
    {4, "{" PP "2, " CHUNKS ", " SHARD "optim_grads}"},
    {4, "{" PP "2, " SHARD "optim_grads_params, " FOLDED},
    {4, "{" PP "2, " CHUNKS ", " TP "2, sequence_parallel: true}"},
};

static void check_layouts(const char *model)
{
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, &alone);
    layout_run(&place, &one);
    assert_true(one.grad_norm > 0.01);
    for (int i = 0; i < LOONG_COUNT_OF(layouts); i++) {
        char save[16];
        snprintf(save, sizeof(save), "layout%d", i);
        layout_run_t run = make_run(save, model, &layouts[i]);
        layout_run(&place, &run);
        layout_compare(&place, &run, &one, 1e-9);
    }
    layout_end(&place);
}

/* The embedding on stages 0, 2 and 3 of four, the matrix on 1 and 2. */
static void three_holders(void **state)
{
    (void)state;
    check_layouts(MODEL("again: 4, mixed: 6"));
}

/* All stages hold both, in one tie. */
static void all_stages(void **state)
{
    (void)state;
    check_layouts(MODEL("again: 15, mixed: 15"));
}

static void frozen(void **state)
{
    (void)state;
    check_layouts(MODEL("again: 4, mixed: 6") ", freeze: ['table.*']");
}

/* What one layout saves another goes on with, to where one rank comes without
 * a break. */
static void resumed(void **state)
{
    (void)state;
    static const int pairs[][2] = {{0, 2}, {2, 3}, {3, -1}, {-1, 8}, {8, 0}};
    const char *model = MODEL("again: 4, mixed: 6");
    layout_place_t place = layout_begin();
    layout_run_t one = make_run("one", model, &alone);
    layout_run(&place, &one);
    for (int i = 0; i < LOONG_COUNT_OF(pairs); i++) {
        char load[128];
        char save[2][16];
        snprintf(save[0], sizeof(save[0]), "from%d", i);
        snprintf(save[1], sizeof(save[1]), "to%d", i);
        snprintf(load, sizeof(load), "%s/%s", place.dir, save[0]);
        const layout_t *l = pairs[i][0] < 0 ? &alone : &layouts[pairs[i][0]];
        layout_run_t from = make_run(save[0], model, l);
        from.stop_at = 2;
        layout_run(&place, &from);
        l = pairs[i][1] < 0 ? &alone : &layouts[pairs[i][1]];
        layout_run_t to = make_run(save[1], model, l);
        to.load = load;
        layout_run(&place, &to);
        layout_compare(&place, &to, &one, 1e-9);
    }
    layout_end(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_holders),
        cmocka_unit_test(all_stages),
        cmocka_unit_test(frozen),
        cmocka_unit_test(resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
