/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a projector; called through loong_family_t. R: rows
 * of a micro-batch. */
#include "projector.h"

#include <stdio.h>

#include "loong/ops.h"

loong_status_t loongi_projector_build(loong_graph_t *graph, const void *config,
                                      const loong_model_request_t *request)
{
    const loong_projector_config_t *c = config;
    loong_nn_t nn = loong_nn_begin(graph, request, c->init_std);
    loong_nn_shard_t inner = loong_nn_shard(&nn, c->hidden_size);
    const loong_nn_column_t first = {.name = "linear_1", .out = inner};
    loong_val_t x =
        loong_nn_receive(&nn, "features", request->tokens, c->input_size);
    x = loong_nn_enter(&nn, x);
    x = loong_nn_column_linear(&nn, 1, &first, x, true);
    x = loong_gelu(graph, x, LOONG_ACT_GELU);
    x = loong_nn_row_linear(&nn, "linear_2", x, inner, c->hidden_size, true);
    loong_graph_send(graph, "projected", loong_nn_leave(&nn, x));
    return loong_graph_status(graph);
}

/* ---- the family --------------------------------------------------------- */

static void facts(const void *config, loong_model_facts_t *facts)
{
    const loong_projector_config_t *c = config;
    facts->hidden_size = c->hidden_size;
    facts->flops_per_token =
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
    char path[3][96];
    snprintf(path[0], sizeof(path[0]), "%s.input_size", component);
    snprintf(path[1], sizeof(path[1]), "%s.hidden_size", component);
    snprintf(path[2], sizeof(path[2]), "%s.init_method_std", component);
    c->input_size = loong_recipe_int(recipe, path[0]);
    c->hidden_size = loong_recipe_int(recipe, path[1]);
    c->init_std = loong_recipe_is_set(recipe, path[2])
                      ? loong_recipe_real(recipe, path[2])
                      : 0.02;
    LOONG_CHECK(ctx, c->input_size > 0 && c->hidden_size > 0, LOONG_ERR_CONFIG,
                "%s and hidden_size: both must be given", path[0]);
    return LOONG_OK;
}

static loong_status_t state(const void *config, loong_model_state_fn add,
                            void *user)
{
    const loong_projector_config_t *c = config;
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)c->input_size);
    LOONG_TRY(add(user, "input_size", text));
    snprintf(text, sizeof(text), "%lld", (long long)c->hidden_size);
    return add(user, "hidden_size", text);
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
