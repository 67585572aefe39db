/* SPDX-License-Identifier: Apache-2.0 */
#include "mixer.h"

#include <stdio.h>
#include <string.h>

#include "decoder.h"
#include "decoder_config.h"
#include "loong/nn.h"

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    return loong_find_family(ctx, "llama")->configure(ctx, recipe, component,
                                                      config);
}

static loong_val_t table(loong_nn_t *nn, const char *scope,
                         const loong_decoder_config_t *c)
{
    loong_nn_share_t vocab =
        loong_nn_vocabulary(nn, c->vocab_size, c->padded_vocab_size);
    loong_graph_push(nn->graph, scope);
    loong_val_t w = loong_nn_table(nn, "weight", vocab, c->hidden_size,
                                   c->init_std);
    loong_graph_pop(nn->graph);
    return w;
}

static loong_status_t build(loong_graph_t *g, const void *config,
                            const loong_model_request_t *request)
{
    const loong_decoder_config_t *c = config;
    loong_nn_t nn = loong_nn_begin(g, request, c->init_std);
    loong_nn_share_t vocab =
        loong_nn_vocabulary(&nn, c->vocab_size, c->padded_vocab_size);
    loong_val_t x = LOONG_NONE;
    if (request->begins) {
        loong_val_t ids =
            loong_graph_input(g, "tokens", LOONG_I32,
                              loong_shape_1d(request->tokens));
        x = loong_nn_embedding(&nn, ids, table(&nn, "embed_tokens", c), vocab);
    } else {
        x = loong_nn_stage_input(&nn, request->tokens, c->hidden_size);
    }
    for (int i = 0; i < request->num_layers; i++) {
        char scope[32];
        snprintf(scope, sizeof(scope), "layers.%d", request->first_layer + i);
        loong_graph_push(g, scope);
        loong_val_t h = loong_nn_norm(&nn, "norm", c->normalization, x,
                                      c->hidden_size, c->norm_eps);
        x = loong_add(g, x, loong_nn_mlp(&nn, h, c->mlp, c->hidden_size,
                                         c->ffn_hidden_size, false));
        loong_graph_pop(g);
    }
    if (request->ends) {
        x = loong_nn_norm(&nn, "norm", c->normalization, x, c->hidden_size,
                          c->norm_eps);
        loong_nn_language_head(&nn, x, table(&nn, "lm_head", c), vocab,
                               request);
    } else {
        loong_nn_stage_output(&nn, x);
    }
    return loong_graph_status(g);
}

const loong_family_t mixer_family = {
    .name = "mixer",
    .config_size = sizeof(loong_decoder_config_t),
    .configure = configure,
    .facts = loongi_decoder_facts,
    .check_mesh = loongi_decoder_check_mesh,
    .build = build,
    .state = loongi_decoder_state,
};
