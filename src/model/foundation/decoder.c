/* SPDX-License-Identifier: Apache-2.0 */
#include "decoder.h"

#include <math.h>
#include <string.h>

/* Dropout sites: a stream number for each, the same in every layout. */
enum { SITE_EMBEDDING, SITE_ATTENTION, SITE_AFTER_ATTENTION, SITE_AFTER_MLP,
       SITES };

typedef struct decoder {
    loong_nn_t nn;
    loong_graph_t *g;
    const loong_decoder_config_t *c;
    const loong_decoder_batch_t *batch;
    loong_nn_sequence_t sequence;
    loong_nn_share_t vocab; /* rows of the two tables, padding included */
    loong_val_t stream_key; /* token_key of the rows of the stream */
    bool train;
} decoder_t;

static uint64_t stream_of(int layer, int site)
{
    return (uint64_t)(layer + 1) * SITES + (uint64_t)site;
}

static loong_val_t dropout(decoder_t *d, loong_val_t x, double p, int layer,
                           int site)
{
    if (!d->train || p == 0.0) {
        return x;
    }
    return loong_dropout(d->g, x, d->stream_key, p, stream_of(layer, site));
}

static bool needs_key(const loong_decoder_config_t *c)
{
    return c->attention_dropout > 0.0 || c->hidden_dropout > 0.0 ||
           c->embedding_dropout > 0.0;
}

static double embedding_std(const loong_decoder_config_t *c)
{
    return c->embedding_init_std > 0.0 ? c->embedding_init_std : c->init_std;
}

static loong_val_t embed(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    int64_t t = d->batch->tokens;
    loong_val_t ids =
        loong_graph_input(d->g, "tokens", LOONG_I32, loong_shape_1d(t));
    loong_val_t positions =
        loong_graph_input(d->g, "positions", LOONG_I32, loong_shape_1d(t));
    d->sequence.cu_seqlens =
        loong_graph_input(d->g, "cu_seqlens", LOONG_I32,
                          loong_shape_1d(d->batch->max_segments + 1));
    d->sequence.rope_table = LOONG_NONE;
    d->sequence.token_key = LOONG_NONE;
    if (d->train && needs_key(c)) {
        d->sequence.token_key =
            loong_graph_input(d->g, "token_key", LOONG_I64, loong_shape_1d(t));
        d->stream_key = loongi_nn_stream_rows(&d->nn, d->sequence.token_key);
    }
    loong_graph_push(d->g, "embed_tokens");
    loong_val_t table = loongi_nn_table(&d->nn, "weight", d->vocab,
                                        c->hidden_size, embedding_std(c));
    loong_val_t x = loong_embedding_part(d->g, ids, table, d->vocab.begin,
                                         d->vocab.total);
    x = loongi_nn_leave(&d->nn, x);
    loong_graph_pop(d->g);
    if (c->learned_positions) {
        loong_graph_push(d->g, "position_embeddings");
        loong_val_t wpe = loongi_nn_matrix(&d->nn, "weight",
                                           c->max_position_embeddings,
                                           c->hidden_size, embedding_std(c));
        loong_val_t rows = loongi_nn_stream_rows(&d->nn, positions);
        x = loong_add(d->g, x, loong_embedding(d->g, rows, wpe));
        loong_graph_pop(d->g);
    } else {
        loong_graph_push(d->g, "rope");
        d->sequence.rope_table = loong_rope_table(d->g, positions, &c->rope);
        loong_graph_pop(d->g);
    }
    return dropout(d, x, c->embedding_dropout, -1, SITE_EMBEDDING);
}

static loong_val_t layer(decoder_t *d, loong_val_t x, int index)
{
    const loong_decoder_config_t *c = d->c;
    loong_nn_attention_t attention;
    memset(&attention, 0, sizeof(attention));
    attention.heads = c->num_attention_heads;
    attention.kv_heads = c->num_query_groups;
    attention.head_dim = c->kv_channels;
    attention.hidden = c->hidden_size;
    attention.qkv_bias = c->qkv_bias;
    attention.output_bias = c->attention_output_bias;
    attention.qk_norm = c->qk_norm;
    attention.norm_eps = c->norm_eps;
    attention.window = index >= c->max_window_layers ? c->window_size : 0;
    attention.max_seqlen = d->batch->max_seqlen;
    attention.scale = c->softmax_scale > 0.0 ? c->softmax_scale
                                             : 1.0 / sqrt(c->kv_channels);
    attention.dropout = d->train ? c->attention_dropout : 0.0;
    attention.stream = stream_of(index, SITE_ATTENTION);

    loong_graph_push(d->g, "layers");
    loong_graph_push(d->g, "%d", index);
    loong_val_t h = loongi_nn_norm(&d->nn, "input_layernorm", c->normalization,
                                   x, c->hidden_size, c->norm_eps);
    h = loongi_nn_attention(&d->nn, h, &attention, &d->sequence);
    h = dropout(d, h, c->hidden_dropout, index, SITE_AFTER_ATTENTION);
    x = loong_add(d->g, h, x);
    h = loongi_nn_norm(&d->nn, "post_attention_layernorm", c->normalization, x,
                       c->hidden_size, c->norm_eps);
    h = loongi_nn_mlp(&d->nn, h, c->mlp, c->hidden_size, c->ffn_hidden_size,
                      c->mlp_bias);
    h = dropout(d, h, c->hidden_dropout, index, SITE_AFTER_MLP);
    x = loong_add(d->g, h, x);
    loong_graph_pop(d->g);
    loong_graph_pop(d->g);
    return x;
}

/* Every rank of TP has rows of real tokens; padding stands at the end. */
static loong_nn_share_t share_vocabulary(const decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    loong_nn_share_t share = loongi_nn_share(&d->nn, c->vocab_size);
    if (share.begin + share.count == share.total) {
        share.count += c->padded_vocab_size - c->vocab_size;
    }
    share.total = c->padded_vocab_size;
    return share;
}

/* The output matrix: the embedding itself when tied. */
static loong_val_t head_matrix(decoder_t *d)
{
    const loong_decoder_config_t *c = d->c;
    double std = c->tied ? embedding_std(c) : c->init_std;
    loong_graph_push(d->g, c->tied ? "embed_tokens" : "lm_head");
    loong_val_t w =
        loongi_nn_table(&d->nn, "weight", d->vocab, c->hidden_size, std);
    loong_graph_pop(d->g);
    return w;
}

static void end(decoder_t *d, loong_val_t x, loong_decoder_head_t head)
{
    const loong_decoder_config_t *c = d->c;
    int64_t t = d->batch->tokens;
    x = loongi_nn_norm(&d->nn, "norm", c->normalization, x, c->hidden_size,
                       c->norm_eps);
    x = loongi_nn_enter(&d->nn, x);
    loong_val_t w = head_matrix(d);
    loong_graph_push(d->g, "lm_head");
    if (head == LOONG_DECODER_LOGITS) {
        loong_graph_output(d->g, "logits",
                           loong_linear(d->g, x, w, LOONG_NONE));
    } else {
        loong_dtype_t wide = loong_graph_precision(d->g).wide;
        loong_val_t labels =
            loong_graph_input(d->g, "labels", LOONG_I32, loong_shape_1d(t));
        loong_val_t weight =
            loong_graph_input(d->g, "loss_weight", wide, loong_shape_1d(t));
        loong_cross_entropy_params_t loss = {
            .vocab = c->vocab_size, .z_loss = d->batch->z_loss, .weight = 1.0,
            .begin = d->vocab.begin, .shared = true, .group = LOONG_GROUP_TP};
        loong_cross_entropy(d->g, "lm", x, w, labels, weight, &loss);
    }
    loong_graph_pop(d->g);
}

loong_status_t loongi_decoder_build(loong_graph_t *graph,
                                    const loong_decoder_config_t *config,
                                    const loong_decoder_batch_t *batch,
                                    loong_decoder_head_t head, bool train)
{
    decoder_t d;
    memset(&d, 0, sizeof(d));
    d.g = graph;
    d.c = config;
    d.batch = batch;
    d.train = train;
    d.nn.graph = graph;
    d.nn.init_std = config->init_std;
    d.nn.output_init_std =
        config->scaled_output_init
            ? config->init_std / sqrt(2.0 * config->num_layers)
            : config->init_std;
    d.nn.num_freeze = config->num_freeze;
    d.nn.freeze = config->freeze;
    d.nn.num_rules = config->num_rules;
    d.nn.rules = config->rules;
    d.nn.sequence_parallel = batch->sequence_parallel;
    d.vocab = share_vocabulary(&d);
    loong_val_t x = embed(&d);
    for (int i = 0; i < config->num_layers; i++) {
        x = layer(&d, x, i);
    }
    end(&d, x, head);
    return loong_graph_status(graph);
}

double loongi_decoder_flops_per_token(const loong_decoder_config_t *config)
{
    double h = (double)config->hidden_size;
    double q = (double)config->num_attention_heads * config->kv_channels;
    double kv = (double)config->num_query_groups * config->kv_channels;
    double mlp = (config->mlp == LOONG_MLP_SWIGLU ? 3.0 : 2.0) * h *
                 (double)config->ffn_hidden_size;
    double one = h * (2.0 * q + 2.0 * kv) + mlp;
    double head = h * (double)config->vocab_size;
    return 6.0 * (config->num_layers * one + head);
}
