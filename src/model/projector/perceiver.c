/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a perceiver's resampler (Jaegle et al. 2021; of Idefics2,
 * Laurencon et al. 2024): learned rows, as many of each picture, look at what
 * is left of its patches behind a gated product, and at themselves. R: rows
 * that arrive, P: those that go, K = R + P. Called by projector.c; read
 * projector.h before. */
#include "perceiver.h"

#include <math.h>

#include "loong/ops.h"

static loong_val_t norm(loong_nn_t *nn, const loong_projector_config_t *c,
                        const char *name, loong_val_t x)
{
    return loong_nn_norm(nn, name, c->normalization, x, c->hidden_size,
                         c->norm_eps);
}

static loong_val_t input(loong_graph_t *g, const char *name, int64_t count)
{
    return loong_graph_input(g, name, LOONG_I32, loong_shape_1d(count));
}

/* The learned rows of each picture, [P,hidden_size] of the stream. */
static loong_val_t latents(loong_nn_t *nn, const loong_projector_config_t *c,
                           int64_t rows)
{
    loong_graph_t *g = nn->graph;
    loong_val_t numbers =
        loong_nn_stream_rows(nn, input(g, "latent_numbers", rows));
    loong_graph_push(g, "latents");
    loong_val_t table = loong_nn_matrix(nn, "weight", c->num_latents,
                                        c->hidden_size, nn->init_std);
    loong_graph_pop(g);
    return loong_embedding(g, numbers, table);
}

loong_val_t loongi_perceiver(loong_nn_t *nn, const loong_projector_config_t *c,
                             const loong_model_request_t *request,
                             loong_val_t x)
{
    loong_graph_t *g = nn->graph;
    int64_t own = request->packed_rows;
    int64_t all = request->rows + own;
    const loong_nn_cross_rows_t rows = {
        .context = input(g, "context_rows", all),
        .own = input(g, "latent_rows", all),
        .is_own = input(g, "is_latent", all),
        .places = input(g, "latent_places", own),
        .cu_seqlens =
            input(g, "cu_latent_seqlens",
                  own / c->num_latents + request->rows / LOONG_PADDING_ROWS +
                      3),
    };
    const loong_nn_attention_t attention = {
        .heads = (int)c->num_attention_heads,
        .kv_heads = (int)c->num_query_groups,
        .head_dim = (int)c->kv_channels,
        .hidden = c->hidden_size,
        .max_seqlen = LOONG_MIN(
            LOONG_MAX(request->max_seqlen + c->num_latents, LOONG_PADDING_ROWS),
            all),
        .scale = 1.0 / sqrt((double)c->kv_channels),
        .bidirectional = true,
    };
    loong_graph_push(g, "projection");
    loong_val_t context = loong_nn_mlp(nn, x, LOONG_MLP_SWIGLU, c->hidden_size,
                                       c->ffn_hidden_size, false);
    loong_graph_pop(g);
    x = latents(nn, c, own);
    for (int i = 0; i < c->num_layers; i++) {
        loong_graph_push(g, "layers");
        loong_graph_push(g, "%d", i);
        loong_val_t h = loong_nn_cross_attention(
            nn, norm(nn, c, "input_layernorm", x),
            norm(nn, c, "context_layernorm", context), &attention, &rows);
        x = loong_add(g, h, x);
        h = norm(nn, c, "post_attention_layernorm", x);
        h = loong_nn_mlp(nn, h, LOONG_MLP_SWIGLU, c->hidden_size,
                         LOONG_PERCEIVER_WIDTH * c->hidden_size, false);
        x = loong_add(g, h, x);
        loong_graph_pop(g);
        loong_graph_pop(g);
    }
    return norm(nn, c, "norm", x);
}
