/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a projector; called through loong_family_t. R: rows
 * of a micro-batch. Read projector.h before. */
#include "projector.h"

#include "field_rows.h"
#include "loong/ops.h"

loong_status_t loongi_projector_build(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    const loong_projector_config_t *c = config;
    loong_nn_t nn = loong_nn_begin(graph, request, c->init_std);
    loong_nn_slice_t inner = loong_nn_slice(&nn, c->hidden_size);
    const loong_nn_column_t first = {.name = "linear_1", .out = inner};
    loong_val_t x =
        loong_nn_receive(&nn, "features", request->rows, c->input_size);
    x = loong_nn_enter(&nn, x);
    x = loong_nn_column_linear(&nn, 1, &first, x, true);
    x = loong_gelu(graph, x, LOONG_ACT_GELU);
    x = loong_nn_row_linear(&nn, "linear_2", x, inner, c->hidden_size, true);
    loong_graph_send(graph, "projected", loong_nn_leave(&nn, x));
    return loong_graph_status(graph);
}

/* ---- the keys ---------------------------------------------------------- */

#define LOONG_FIELD_PREFIX "model.image_projector."
#define LOONG_FIELD_STRUCT loong_projector_config_t

static const loong_recipe_field_t fields[] = {
    {TEXT("family", SAME, "mlp_projector: LLaVA's, two products"),
     .needed = true},
    {INT64("input_size", input_size, 1, 1e6, SAME,
           "width of what it reads; the encoder's hidden_size when not given"),
     .needed = true},
    {INT64("hidden_size", hidden_size, 1, 1e6, SAME,
           "width of what it makes; the foundation's when not given"),
     .needed = true},
    {REAL("init_method_std", init_std, 0, 10, FREE,
          "standard deviation of matrices at the start; 0.02 when not given")},
};

const loong_recipe_table_t loongi_projector_fields = {
    LOONG_FIELD_PREFIX, fields, LOONG_COUNT_OF(fields)};

/* ---- the family --------------------------------------------------------- */

static void facts(const void *config, loong_model_facts_t *facts)
{
    const loong_projector_config_t *c = config;
    facts->hidden_size = c->hidden_size;
    facts->flops_per_row =
        6.0 * (double)c->hidden_size * (double)(c->input_size + c->hidden_size);
}

static loong_status_t check_mesh(loong_context_t *ctx, const void *config,
                                 const loong_model_request_t *request,
                                 const loong_mesh_t *mesh)
{
    const loong_projector_config_t *c = config;
    (void)request;
    LOONG_CHECK(ctx, c->hidden_size >= mesh->size[LOONG_AXIS_TP],
                LOONG_ERR_CONFIG,
                "tensor_model_parallel_size %d: hidden_size %lld, each rank "
                "needs a channel",
                mesh->size[LOONG_AXIS_TP], (long long)c->hidden_size);
    return LOONG_OK;
}

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    loong_projector_config_t *c = config;
    loong_problems_t problems = loongi_problems_begin(ctx);
    loong_pairs_t *keys = NULL;
    LOONG_TRY(loongi_recipe_fields_read(ctx, recipe, component, &keys));
    c->init_std = 0.02;
    for (int64_t i = 0; i < keys->count; i++) {
        loongi_recipe_field_set(&problems, &loongi_projector_fields,
                                "a projector", &keys->items[i], config);
    }
    if (c->input_size == 0 || c->hidden_size == 0) {
        loongi_problems_add(&problems,
                            "input_size and hidden_size: both must be given");
    }
    loongi_pairs_destroy(&keys);
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, component);
}

static loong_status_t state(const void *config, loong_model_state_fn add,
                            void *user)
{
    return loongi_recipe_fields_each(&loongi_projector_fields, config, add,
                                     user);
}

const loong_family_t loongi_projector_family = {
    .name = "mlp_projector",
    .role = "image_projector",
    .config_size = sizeof(loong_projector_config_t),
    .configure = configure,
    .facts = facts,
    .check_mesh = check_mesh,
    .build = loongi_projector_build,
    .state = state};

loong_status_t loongi_register_projector(loong_context_t *ctx)
{
    return loong_register_family(ctx, &loongi_projector_family);
}
