/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph of a vision transformer. R: rows of a micro-batch on the stream, N:
 * pictures, H: hidden_size. Called through loong_family_t by src/component.
 * Read vision.h and loong/nn.h before. */
#include "vision.h"

#include <math.h>
#include <string.h>

#include "loong/collective.h"
#include "loong/moe.h"
#include "loong/op.h"

typedef struct vision {
    loong_nn_t nn;
    loong_graph_t *g;
    const loong_vision_config_t *c;
    const loong_model_request_t *request;
    loong_nn_sequence_t sequence;
    loong_val_t windows; /* as cu_seqlens */
    loong_val_t blocks;  /* those that become a row */
    loong_val_t merged;  /* cu_seqlens of these rows */
    int num_deep;
    loong_val_t sent[1 + LOONG_MAX_DEEP_FEATURES]; /* behind the features */
} vision_t;

/* Rows of all ranks of CP together: these have them one after another, whatever
 * pictures they are of. */
static int64_t all_rows(const vision_t *v)
{
    return v->request->rows * loong_graph_mesh(v->g)->size[LOONG_AXIS_CP];
}

/* Of an input with all rows those of the stream. */
static loong_val_t stream_rows(vision_t *v, loong_val_t x)
{
    return loong_nn_stream_rows(&v->nn,
                                loong_own_rows(v->g, x, LOONG_GROUP_CP));
}

/* An input of a value for each row, as the stream has them. */
static loong_val_t row_input(vision_t *v, const char *name)
{
    return stream_rows(v, loong_graph_input(v->g, name, LOONG_I32,
                                            loong_shape_1d(all_rows(v))));
}

static loong_val_t norm(vision_t *v, const char *name, loong_val_t x)
{
    return loong_nn_norm(&v->nn, name, v->c->normalization, x,
                         v->c->hidden_size, v->c->norm_eps);
}

/* x w' + bias. */
static loong_val_t linear(loong_nn_t *nn, const char *name, loong_val_t x,
                          int64_t out, bool bias)
{
    int64_t in = loong_value_shape(nn->graph, x).dim[1];
    loong_graph_push(nn->graph, "%s", name);
    loong_val_t w = loong_nn_matrix(nn, "weight", out, in, nn->init_std);
    loong_val_t b =
        bias ? loong_nn_vector(nn, "bias", out, LOONG_INIT_ZEROS) : LOONG_NONE;
    loong_graph_pop(nn->graph);
    return loong_linear(nn->graph, x, w, b);
}

static loong_val_t compute_type(loong_graph_t *g, loong_val_t x)
{
    return loong_cast(g, x, loong_graph_precision(g).compute);
}

/* Wide [rows of the stream, pixels of a patch]. */
static loong_val_t input_patches(vision_t *v)
{
    loong_shape_t shape =
        loong_shape_2d(v->request->rows, loongi_vision_pixels(v->c));
    return loong_nn_stream_rows(
        &v->nn, loong_graph_input(v->g, "patches",
                                  loong_graph_precision(v->g).wide, shape));
}

/* The parameter `name` in the rows of x that the input `marks` marks. */
static loong_val_t place_token(vision_t *v, loong_val_t x, const char *name,
                               const char *marks)
{
    loong_val_t marked = row_input(v, marks);
    loong_graph_push(v->g, "%s", name);
    loong_val_t token =
        loong_nn_matrix(&v->nn, "weight", 1, v->c->hidden_size, v->c->init_std);
    loong_graph_pop(v->g);
    return loong_select_rows(
        v->g, x, loong_embedding_slice(v->g, marked, token, 1, 2), marked);
}

/* Inputs of sums of k rows, of a table of parameters or of the stream. */
typedef struct sums {
    const char *taps, *weights, *order;
    bool table, whole; /* all rows of the table have a weight */
} sums_t;

/* Of k rows each times its weight: k rows of taps stand below one another for
 * each row of the stream. Where all have a weight the sums are a product. */
static loong_val_t weighted_sums(vision_t *v, const sums_t *of, loong_val_t x,
                                 int64_t k)
{
    loong_graph_t *g = v->g;
    int64_t rows = all_rows(v);
    loong_val_t weights =
        stream_rows(v, loong_graph_input(g, of->weights,
                                         loong_graph_precision(g).wide,
                                         loong_shape_2d(rows, k)));
    if (of->whole) {
        return loong_linear_transposed(g, compute_type(g, weights), x);
    }
    loong_val_t taps = stream_rows(
        v, loong_graph_input(g, of->taps, LOONG_I32, loong_shape_1d(rows * k)));
    int64_t own = loong_value_shape(g, weights).dim[0];
    loong_val_t order =
        loong_graph_input(g, of->order, LOONG_I32, loong_shape_1d(own * k));
    const loong_expert_rows_t sums = {
        LOONG_NONE, order, loong_reshape(g, order, loong_shape_2d(own, k)),
        1.0};
    x = of->table ? loong_embedding(g, taps, x) : loong_gather_rows(g, x, taps);
    return loong_unpermute(g, x, &sums, weights);
}

/* [R,H] of the learned positions. */
static loong_val_t positions(vision_t *v)
{
    const loong_vision_config_t *c = v->c;
    bool square = c->num_positions > 0;
    loong_graph_push(v->g, "position_embeddings");
    loong_val_t table = loong_nn_matrix(
        &v->nn, "weight", square ? c->num_positions : loongi_vision_rows(c),
        c->hidden_size, c->init_std);
    const sums_t around = {"position_taps", "position_weights", "tap_order",
                           true, c->antialias};
    loong_position_table_t of = loongi_vision_table(c);
    loong_val_t x =
        square ? weighted_sums(v, &around, table, loong_position_taps(&of))
               : loong_embedding(v->g, row_input(v, "positions"), table);
    loong_graph_pop(v->g);
    return x;
}

/* Sines and cosines of the number of a patch's frame, where there are several
 * in its chunk. */
static loong_val_t add_time(vision_t *v, loong_val_t x)
{
    loong_graph_t *g = v->g;
    int64_t half = v->c->hidden_size / 2;
    const loong_rope_table_attr_t waves = {
        .rotary_dim = (int)v->c->hidden_size,
        .base = 1e4,
    };
    loong_graph_push(g, "time");
    loong_val_t table =
        loong_rope_table(g, row_input(v, "frame_numbers"), &waves);
    loong_val_t parts[2] = {loong_slice(g, table, half, half),
                            loong_slice(g, table, 0, half)};
    loong_val_t time = compute_type(g, loong_concat(g, 2, parts));
    x = loong_select_rows(g, x, loong_add(g, x, time),
                          row_input(v, "is_moving"));
    loong_graph_pop(g);
    return x;
}

/* [R,H] from the patches. */
static loong_val_t embed(vision_t *v)
{
    const loong_vision_config_t *c = v->c;
    loong_graph_t *g = v->g;
    loong_val_t x = compute_type(g, input_patches(v));
    x = linear(&v->nn, "patch_embedding", x, c->hidden_size, c->patch_bias);
    x = c->patch_norm ? norm(v, "patch_layernorm", x) : x;
    if (c->masked_image_modeling) {
        x = place_token(v, x, "mask_token", "is_masked");
    }
    if (c->class_token) {
        x = place_token(v, x, "class_token", "is_class");
    }
    if (!c->rotary || c->num_positions > 0) {
        x = loong_add(g, x, positions(v));
    }
    if (c->chunk_frames > 1) {
        x = add_time(v, x);
    }
    return c->pre_norm ? norm(v, "pre_layernorm", x) : x;
}

/* What a layer adds to the stream. */
static loong_val_t scaled(vision_t *v, const char *name, loong_val_t x)
{
    if (v->c->layer_scale == 0.0) {
        return x;
    }
    loong_val_t ones =
        loong_graph_input(v->g, "ones", loong_graph_precision(v->g).wide,
                          loong_shape_2d(loong_value_shape(v->g, x).dim[0], 1));
    return loong_nn_layer_scale(&v->nn, name, x, ones, v->c->layer_scale);
}

/* Rows see all of their segment, of which the longest has max_seqlen. */
static loong_val_t attention(vision_t *v, loong_val_t x, loong_val_t cu_seqlens,
                             int64_t max_seqlen)
{
    const loong_vision_config_t *c = v->c;
    int head_dim = (int)(c->hidden_size / c->num_attention_heads);
    loong_nn_sequence_t sequence = v->sequence;
    const loong_nn_attention_t attention = {
        .heads = (int)c->num_attention_heads,
        .kv_heads = (int)c->num_attention_heads,
        .head_dim = head_dim,
        .hidden = c->hidden_size,
        .qkv_bias = c->qkv_bias,
        .qk_norm = c->qk_norm,
        .qk_norm_whole = c->qk_norm_whole,
        .norm_eps = c->norm_eps,
        .output_bias = c->attention_output_bias,
        .max_seqlen = max_seqlen,
        .scale = 1.0 / sqrt(head_dim),
        .interleaved = c->rotary_interleaved,
        .bidirectional = true,
    };
    sequence.cu_seqlens = cu_seqlens;
    return loong_nn_attention(&v->nn, x, &attention, &sequence);
}

static loong_val_t layer(vision_t *v, loong_val_t x, int index)
{
    const loong_vision_config_t *c = v->c;
    bool windows = c->window_size > 0 && !c->full.of[index];
    int64_t merged = loongi_vision_merged(c, index);
    int64_t longest = v->request->max_seqlen / merged;
    loong_graph_push(v->g, "layers");
    loong_graph_push(v->g, "%d", index);
    loong_val_t h = norm(v, "input_layernorm", x);
    h = attention(v, h,
                  windows      ? v->windows
                  : merged > 1 ? v->merged
                               : v->sequence.cu_seqlens,
                  windows ? LOONG_MIN(longest, loongi_vision_window_rows(c))
                          : longest);
    x = loong_add(v->g, scaled(v, "attention_scale", h), x);
    h = norm(v, "post_attention_layernorm", x);
    h = loong_nn_mlp(&v->nn, h, c->mlp, c->hidden_size, c->ffn_hidden_size,
                     c->mlp_bias);
    x = loong_add(v->g, scaled(v, "mlp_scale", h), x);
    loong_graph_pop(v->g);
    loong_graph_pop(v->g);
    return x;
}

/* The mean of the rows of each block and two products of all of them, from
 * [r,H] to [r/4,H]. One that is kept makes r rows, of which any number is. */
static loong_val_t merger(vision_t *v, loong_val_t x, bool kept)
{
    enum { ROWS = LOONG_VISION_MERGE * LOONG_VISION_MERGE };
    const loong_vision_config_t *c = v->c;
    loong_graph_t *g = v->g;
    loong_nn_slice_t inner = loong_nn_slice(&v->nn, ROWS * c->ffn_hidden_size);
    const loong_nn_column_t first = {.name = "linear_1", .out = inner};
    loong_val_t part[ROWS] = {x, x, x, x};
    loong_graph_push(g, "merger");
    loong_val_t h = norm(v, "input_layernorm", x);
    h = kept ? attention(v, h, v->sequence.cu_seqlens, v->request->max_seqlen)
             : attention(v, h, v->blocks, ROWS);
    h = loong_add(g, h, x);
    int64_t rows = loong_value_shape(g, h).dim[0];
    loong_val_t block =
        kept ? loong_concat(g, ROWS, part)
             : loong_reshape(g, h, loong_shape_2d(rows / ROWS,
                                                  ROWS * c->hidden_size));
    for (int i = 0; i < ROWS; i++) {
        part[i] = loong_slice(g, block, i * c->hidden_size, c->hidden_size);
    }
    loong_val_t sum = loong_add(g, loong_add(g, part[0], part[1]),
                                loong_add(g, part[2], part[3]));
    h = loong_nn_norm(&v->nn, "norm", c->normalization, block,
                      ROWS * c->hidden_size, c->norm_eps);
    h = loong_nn_enter(&v->nn, h);
    h = loong_nn_column_linear(&v->nn, 1, &first, h, true);
    h = loong_gelu(g, h, LOONG_ACT_GELU_TANH);
    h = loong_nn_row_linear(&v->nn, "linear_2", h, inner, c->hidden_size, true);
    h = loong_nn_leave(&v->nn, h);
    loong_graph_pop(g);
    return loong_add(g, h, loong_scale(g, sum, 1.0 / ROWS));
}

/* What nobody reads: a layer, the norm behind them or the merger. Its
 * parameters stay as they are, and what it makes of x is dropped with all that
 * leads there. */
enum { KEEP_NORM = -1, KEEP_MERGER = -2 };
static void keep_layer(const vision_t *v, loong_val_t x, int index)
{
    static const char *const all[] = {"*"};
    vision_t kept = *v;
    loong_model_request_t request = *v->request;
    request.rules.num_freeze = 1;
    request.rules.freeze = all;
    kept.nn = loong_nn_begin(v->g, &request, v->c->init_std);
    kept.nn.seq_length = 0;
    if (index == KEEP_NORM) {
        norm(&kept, "norm", x);
    } else if (index == KEEP_MERGER) {
        merger(&kept, x, true);
    } else {
        layer(&kept, x, index);
    }
}

/* [N,H]: each rank sums its rows of the stream, and all have the whole. */
static loong_val_t pool(vision_t *v, loong_val_t x, int64_t pictures)
{
    const loong_vision_config_t *c = v->c;
    loong_val_t y =
        loong_sum_by_id(v->g, row_input(v, "pooled_picture"), x, pictures);
    if (v->nn.sequence_parallel) {
        y = loong_all_reduce(v->g, y, LOONG_GROUP_TP);
    }
    if (c->pooling == LOONG_POOL_MEAN) {
        int64_t patches = loongi_vision_rows(c) - (c->class_token ? 1 : 0);
        y = loong_scale(v->g, y, 1.0 / (double)patches);
    }
    return compute_type(v->g, y);
}

/* All ranks of TP compute the same from here on. */
static void classify(vision_t *v, loong_val_t x)
{
    const loong_vision_config_t *c = v->c;
    loong_graph_t *g = v->g;
    loong_nn_t whole = v->nn;
    int64_t pictures = v->request->rows / loongi_vision_rows(c);
    whole.sequence_parallel = false;
    x = linear(&whole, "classifier", pool(v, x, pictures), c->num_classes,
               c->classifier_bias);
    if (v->request->head == LOONG_MODEL_LOGITS) {
        loong_graph_output(g, "logits", x);
        return;
    }
    const loong_loss_params_t loss = {.name = "classification",
                                      .normaliser = "pictures",
                                      .weight = 1.0,
                                      .coupling = LOONG_LOSS_OF_ITEM,
                                      .same = LOONG_SAME_TP};
    loong_shape_t shape = loong_shape_1d(pictures);
    loong_val_t labels = loong_graph_input(g, "labels", LOONG_I32, shape);
    loong_val_t weight = loong_graph_input(
        g, "loss_weight", loong_graph_precision(g).wide, shape);
    loong_loss(g, loong_softmax_cross_entropy(g, x, labels, weight), &loss);
}

/* Pixels of the patches, each from its row. */
static void reconstruct(vision_t *v, loong_val_t x)
{
    const loong_loss_params_t loss = {
        .name = "masked_mse",
        .normaliser = "masked_patches",
        .weight = 1.0,
        .coupling = LOONG_LOSS_OF_ITEM,
        .same = v->nn.sequence_parallel ? 0 : LOONG_SAME_TP};
    x = linear(&v->nn, "decoder", x, loongi_vision_pixels(v->c), true);
    if (v->request->head == LOONG_MODEL_LOGITS) {
        loong_graph_output(v->g, "reconstruction", x);
        return;
    }
    /* Patches that are not masked stand for themselves, without an error. */
    loong_val_t patches = input_patches(v);
    x = loong_cast(v->g, x, loong_graph_precision(v->g).wide);
    x = loong_select_rows(v->g, patches, x, row_input(v, "is_masked"));
    loong_loss(v->g, loong_squared_error(v->g, x, patches), &loss);
}

/* The stream of all ranks. */
static loong_val_t all_of_stream(vision_t *v, loong_val_t x)
{
    if (v->nn.sequence_parallel) {
        x = loong_all_gather(v->g, x, LOONG_GROUP_TP);
    }
    return loong_all_gather(v->g, x, LOONG_GROUP_CP);
}

/* Rows of others, in the order that pictures have without windows; means over
 * frames are in the rows of the first. */
static void send(vision_t *v, loong_val_t x)
{
    static const sums_t means = {"frame_taps", "frame_weights", "frame_order",
                                 false, false};
    v->sent[0] = x;
    if (v->num_deep > 0) {
        x = loong_concat(v->g, 1 + v->num_deep, v->sent);
    }
    if (v->c->window_size > 0) {
        loong_val_t index = row_input(v, "raster_index");
        x = loong_gather_rows(v->g, all_of_stream(v, x), index);
    }
    if (v->c->chunk_frames > 1) {
        x = weighted_sums(v, &means, all_of_stream(v, x), v->c->chunk_frames);
    }
    loong_graph_send(v->g, "features", x);
}

static void end(vision_t *v, loong_val_t x)
{
    if (v->c->feature_layer != 0) {
        if (v->c->post_norm) {
            keep_layer(v, x, KEEP_NORM);
        }
        send(v, x);
        return;
    }
    if (v->c->post_norm) {
        x = norm(v, "norm", x);
    }
    if (v->c->masked_image_modeling) {
        reconstruct(v, x);
    } else if (v->c->num_classes > 0) {
        classify(v, x);
    } else {
        send(v, x);
    }
}

/* A quarter of a head turns by the row of a patch, one by its column; and
 * their partners. */
static loong_val_t rope_table(vision_t *v)
{
    const loong_vision_config_t *c = v->c;
    int head_dim = (int)(c->hidden_size / c->num_attention_heads);
    const loong_rope_table_attr_t rope = {
        .rotary_dim = head_dim,
        .axes = 2,
        .sections = {head_dim / 4, head_dim / 4},
        .order =
            c->rotary_interleaved ? LOONG_ROPE_ALTERNATE : LOONG_ROPE_SEPARATE,
        .base = c->rotary_base,
    };
    loong_val_t positions =
        loong_graph_input(v->g, "patch_positions", LOONG_I32,
                          loong_shape_2d(rope.axes, all_rows(v)));
    loong_graph_push(v->g, "rope");
    loong_val_t table = loong_rope_table(v->g, positions, &rope);
    loong_graph_pop(v->g);
    table = loong_own_rows(v->g, table, LOONG_GROUP_CP);
    if (!c->class_angles) {
        return table;
    }
    loong_val_t marks = loong_graph_input(v->g, "is_class", LOONG_I32,
                                          loong_shape_1d(all_rows(v)));
    return loong_nn_learned_angles(&v->nn, "class_angles.weight", table,
                                   loong_own_rows(v->g, marks, LOONG_GROUP_CP));
}

/* Deep features of layers before travel as further columns of the stream. */
static loong_val_t begin_stage(vision_t *v)
{
    int64_t width = v->c->hidden_size;
    for (int i = 0; i < v->request->first_layer; i++) {
        v->num_deep += v->c->deep.of[i];
    }
    v->num_deep = LOONG_MIN(v->num_deep, v->request->deep_features);
    int64_t rows = v->request->rows /
                   loongi_vision_merged(v->c, v->request->first_layer);
    loong_val_t x =
        loong_nn_stage_input(&v->nn, rows, (1 + v->num_deep) * width);
    for (int k = 0; k < v->num_deep; k++) {
        v->sent[1 + k] = loong_slice(v->g, x, (1 + k) * width, width);
    }
    return v->num_deep > 0 ? loong_slice(v->g, x, 0, width) : x;
}

static void end_stage(vision_t *v, loong_val_t x)
{
    v->sent[0] = x;
    loong_nn_stage_output(
        &v->nn,
        v->num_deep > 0 ? loong_concat(v->g, 1 + v->num_deep, v->sent) : x);
}

/* Those that the layers of this stage read. */
static void inputs_of_blocks(vision_t *v)
{
    const loong_model_request_t *r = v->request;
    const loong_vision_config_t *c = v->c;
    int64_t end = r->first_layer + r->num_layers;
    int64_t rows = loongi_vision_merge(c) * loongi_vision_merge(c);
    if (rows > 1 && r->first_layer <= c->merger_layer &&
        c->merger_layer < end) {
        v->blocks =
            loong_graph_input(v->g, "cu_block_seqlens", LOONG_I32,
                              loong_shape_1d(all_rows(v) / rows + 1));
    }
    if (rows > 1 && end > c->merger_layer + 1) {
        v->merged = loong_graph_input(v->g, "cu_merged_seqlens", LOONG_I32,
                                      loong_shape_1d(r->max_segments + 1));
    }
}

loong_status_t loongi_vision_build(loong_graph_t *graph, const void *config,
                                   const loong_model_request_t *request)
{
    const loong_vision_config_t *c = config;
    vision_t v = {.g = graph, .c = c, .request = request};
    v.nn = loong_nn_begin(graph, request, c->init_std);
    v.nn.seq_length = 0;
    v.sequence.rope_table = c->rotary ? rope_table(&v) : LOONG_NONE;
    v.sequence.token_key = LOONG_NONE;
    v.sequence.key_ends = LOONG_NONE;
    v.sequence.cu_seqlens =
        loong_graph_input(graph, "cu_seqlens", LOONG_I32,
                          loong_shape_1d(request->max_segments + 1));
    if (c->window_size > 0) {
        int64_t rows = LOONG_MIN(loongi_vision_window(c), LOONG_PADDING_ROWS);
        int64_t count = all_rows(&v) / rows + request->max_segments + 2;
        v.windows = loong_graph_input(graph, "cu_window_seqlens", LOONG_I32,
                                      loong_shape_1d(count));
    }
    inputs_of_blocks(&v);
    int64_t last = loongi_vision_layers(c);
    if (request->first_layer > 0 && request->first_layer >= last) {
        loong_graph_fail(
            graph, LOONG_ERR_CONFIG,
            "model.image_encoder: a stage of its pipeline begins with layer "
            "%d, the last one that is read is %d (feature_layer): with fewer "
            "stages each computes some",
            request->first_layer + 1, (int)last);
        return loong_graph_status(graph);
    }
    loong_val_t x = request->begins ? embed(&v) : begin_stage(&v);
    for (int i = 0; i < request->num_layers; i++) {
        int index = request->first_layer + i;
        if (index < last) {
            x = layer(&v, x, index);
        } else {
            keep_layer(&v, x, index);
        }
        if (index == c->merger_layer && c->use_merger) {
            x = merger(&v, x, false);
        } else if (index == c->merger_layer) {
            keep_layer(&v, x, KEEP_MERGER);
        }
        if (c->deep.of[index] && v.num_deep < request->deep_features) {
            v.sent[1 + v.num_deep++] = x;
        }
    }
    if (request->ends) {
        end(&v, x);
    } else {
        end_stage(&v, x);
    }
    return loong_graph_status(graph);
}

