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
#include "problems.h"

typedef struct vision {
    loong_nn_t nn;
    loong_graph_t *g;
    const loong_vision_config_t *c;
    const loong_model_request_t *request;
    loong_nn_sequence_t sequence;
    loong_val_t windows; /* as cu_seqlens */
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

static int64_t pixels_of(const loong_vision_config_t *c)
{
    return c->num_channels * c->temporal_patch_size * c->patch_size *
           c->patch_size;
}

/* Wide [rows of the stream, pixels of a patch]. */
static loong_val_t input_patches(vision_t *v)
{
    loong_shape_t shape = loong_shape_2d(v->request->rows, pixels_of(v->c));
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

/* The sum of the k rows of a table around a patch's place, each times its
 * weight: k rows of taps stand below one another for each row of the stream.
 * Where all rows have a weight the sums are a product. */
static loong_val_t resampled(vision_t *v, loong_val_t table)
{
    loong_graph_t *g = v->g;
    loong_position_table_t of = loongi_vision_table(v->c);
    int64_t k = loong_position_taps(&of);
    int64_t rows = all_rows(v);
    loong_val_t weights =
        stream_rows(v, loong_graph_input(g, "position_weights",
                                         loong_graph_precision(g).wide,
                                         loong_shape_2d(rows, k)));
    if (of.antialias) {
        return loong_linear_transposed(g, compute_type(g, weights), table);
    }
    loong_val_t taps =
        stream_rows(v, loong_graph_input(g, "position_taps", LOONG_I32,
                                         loong_shape_1d(rows * k)));
    int64_t own = loong_value_shape(g, weights).dim[0];
    loong_val_t order =
        loong_graph_input(g, "tap_order", LOONG_I32, loong_shape_1d(own * k));
    const loong_expert_rows_t sums = {
        LOONG_NONE, order, loong_reshape(g, order, loong_shape_2d(own, k)),
        1.0};
    return loong_unpermute(g, loong_embedding(g, taps, table), &sums, weights);
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
    loong_val_t x =
        square ? resampled(v, table)
               : loong_embedding(v->g, row_input(v, "positions"), table);
    loong_graph_pop(v->g);
    return x;
}

/* [R,H] from the patches. */
static loong_val_t embed(vision_t *v)
{
    const loong_vision_config_t *c = v->c;
    loong_graph_t *g = v->g;
    loong_val_t patches = compute_type(g, input_patches(v));
    loong_val_t x = linear(&v->nn, "patch_embedding", patches, c->hidden_size,
                           c->patch_bias);
    if (c->masked_image_modeling) {
        x = place_token(v, x, "mask_token", "is_masked");
    }
    if (c->class_token) {
        x = place_token(v, x, "class_token", "is_class");
    }
    if (!c->rotary || c->num_positions > 0) {
        x = loong_add(g, x, positions(v));
    }
    return c->pre_norm ? norm(v, "pre_layernorm", x) : x;
}

static int64_t window_side(const loong_vision_config_t *c)
{
    return c->window_size / c->patch_size;
}

static int64_t window_rows(const loong_vision_config_t *c)
{
    return window_side(c) * window_side(c);
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

static loong_val_t layer(vision_t *v, loong_val_t x, int index)
{
    const loong_vision_config_t *c = v->c;
    int head_dim = (int)(c->hidden_size / c->num_attention_heads);
    bool windows = c->window_size > 0 && !c->full.of[index];
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
        .output_bias = true,
        .max_seqlen = windows
                          ? LOONG_MIN(v->request->max_seqlen, window_rows(c))
                          : v->request->max_seqlen,
        .scale = 1.0 / sqrt(head_dim),
        .interleaved = c->rotary_interleaved,
        .bidirectional = true,
    };
    sequence.cu_seqlens = windows ? v->windows : sequence.cu_seqlens;
    loong_graph_push(v->g, "layers");
    loong_graph_push(v->g, "%d", index);
    loong_val_t h = norm(v, "input_layernorm", x);
    h = loong_nn_attention(&v->nn, h, &attention, &sequence);
    x = loong_add(v->g, scaled(v, "attention_scale", h), x);
    h = norm(v, "post_attention_layernorm", x);
    h = loong_nn_mlp(&v->nn, h, c->mlp, c->hidden_size, c->ffn_hidden_size,
                     true);
    x = loong_add(v->g, scaled(v, "mlp_scale", h), x);
    loong_graph_pop(v->g);
    loong_graph_pop(v->g);
    return x;
}

/* What nobody reads: a layer, or with -1 the norm behind them. Its parameters
 * stay as they are, and what it makes of x is dropped with all that leads
 * there. */
static void keep_layer(const vision_t *v, loong_val_t x, int index)
{
    static const char *const all[] = {"*"};
    vision_t kept = *v;
    loong_model_request_t request = *v->request;
    request.rules.num_freeze = 1;
    request.rules.freeze = all;
    kept.nn = loong_nn_begin(v->g, &request, v->c->init_std);
    kept.nn.seq_length = 0;
    if (index < 0) {
        norm(&kept, "norm", x);
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
    x = linear(&v->nn, "decoder", x, pixels_of(v->c), true);
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

/* Rows of others, in the order that pictures have without windows. */
static void send(vision_t *v, loong_val_t x)
{
    v->sent[0] = x;
    if (v->num_deep > 0) {
        x = loong_concat(v->g, 1 + v->num_deep, v->sent);
    }
    if (v->c->window_size > 0) {
        loong_val_t index = row_input(v, "raster_index");
        if (v->nn.sequence_parallel) {
            x = loong_all_gather(v->g, x, LOONG_GROUP_TP);
        }
        x = loong_all_gather(v->g, x, LOONG_GROUP_CP);
        x = loong_gather_rows(v->g, x, index);
    }
    loong_graph_send(v->g, "features", x);
}

static void end(vision_t *v, loong_val_t x)
{
    if (v->c->feature_layer != 0) {
        if (v->c->post_norm) {
            keep_layer(v, x, -1);
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
    loong_val_t x = loong_nn_stage_input(&v->nn, v->request->rows,
                                         (1 + v->num_deep) * width);
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
        int64_t rows = LOONG_MIN(window_side(c), LOONG_PADDING_ROWS);
        int64_t count = all_rows(&v) / rows + request->max_segments + 2;
        v.windows = loong_graph_input(graph, "cu_window_seqlens", LOONG_I32,
                                      loong_shape_1d(count));
    }
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

/* ---- the family --------------------------------------------------------- */

static void facts(const void *config, loong_model_facts_t *facts)
{
    const loong_vision_config_t *c = config;
    double h = (double)c->hidden_size;
    double pixels = (double)pixels_of(c);
    memset(facts, 0, sizeof(*facts));
    facts->hidden_size = c->hidden_size;
    facts->image_size = c->image_size;
    facts->patch_size = c->patch_size;
    facts->temporal_patch_size = c->temporal_patch_size;
    facts->window_size = c->window_size;
    facts->tokens_per_second = c->tokens_per_second;
    facts->positions = loongi_vision_table(c);
    facts->patch_channels_last = c->channels_last;
    for (int64_t i = 0; i < c->num_layers; i++) {
        facts->deep_features += c->deep.of[i];
    }
    facts->num_classes = c->num_classes;
    facts->class_token = c->class_token;
    facts->sends_class_token = c->class_token && c->select_class_token;
    facts->pool_class_token = c->pooling == LOONG_POOL_CLASS_TOKEN;
    facts->masked_image_modeling = c->masked_image_modeling;
    facts->kv_heads = (int)c->num_attention_heads;
    facts->num_layers = (int)c->num_layers;
    double width = 4.0 * h + (c->mlp == LOONG_MLP_SWIGLU ? 3.0 : 2.0) *
                                 (double)c->ffn_hidden_size;
    pixels *= c->masked_image_modeling ? 2.0 : 1.0; /* once more at the end */
    facts->flops_per_row = 6.0 * h * (pixels + (double)c->num_layers * width);
}

/* A row sees all of its picture, or of its window. */
static double attention_flops(const void *config, int64_t length)
{
    const loong_vision_config_t *c = config;
    int64_t seen = 0;
    for (int64_t i = 0; i < c->num_layers; i++) {
        bool all = c->window_size == 0 || c->full.of[i];
        seen += all ? length : LOONG_MIN(length, window_rows(c));
    }
    return 12.0 * (double)(c->hidden_size * seen);
}

/* Of each tensor parallel rank, which context parallel ones exchange. */
static void want_heads(loong_problems_t *problems,
                       const loong_vision_config_t *c, const loong_mesh_t *mesh)
{
    int cp = mesh->size[LOONG_AXIS_CP];
    loong_mesh_t on = *mesh;
    for (int r = 0; r < mesh->size[LOONG_AXIS_TP]; r++) {
        on.coord[LOONG_AXIS_TP] = r;
        int64_t heads =
            loong_nn_heads(&on, c->num_attention_heads, c->num_attention_heads)
                .q.count;
        if (heads % cp != 0) {
            loongi_problems_add(problems,
                                "context_parallel_size %d: %lld heads of "
                                "tensor parallel rank %d; a divisor of them "
                                "is wanted, as the ranks exchange heads",
                                cp, (long long)heads, r);
            return;
        }
    }
}

static loong_status_t check_mesh(loong_context_t *ctx, const void *config,
                                 const loong_model_request_t *request,
                                 const loong_mesh_t *mesh)
{
    const loong_vision_config_t *c = config;
    int tp = mesh->size[LOONG_AXIS_TP];
    int cp = mesh->size[LOONG_AXIS_CP];
    int64_t rows = loongi_vision_rows(c);
    loong_problems_t problems = loongi_problems_begin(ctx);
    if (c->num_attention_heads < tp || c->ffn_hidden_size < tp) {
        loongi_problems_add(&problems,
                            "tensor_model_parallel_size %d: %lld heads, "
                            "ffn_hidden_size %lld, each rank needs one",
                            tp, (long long)c->num_attention_heads,
                            (long long)c->ffn_hidden_size);
    }
    if (cp > 1 && (c->num_classes > 0 || c->masked_image_modeling)) {
        loongi_problems_add(&problems,
                            "context_parallel_size %d: a vision transformer "
                            "with a loss has whole pictures on each rank",
                            cp);
    } else if (cp > 1) {
        want_heads(&problems, c, mesh);
    }
    if (mesh->size[LOONG_AXIS_EP] * mesh->size[LOONG_AXIS_ETP] > 1) {
        loongi_problems_add(&problems, "expert parallel ranks: the model has "
                                       "no experts");
    }
    if (request->rows * cp < rows) {
        loongi_problems_add(&problems,
                            "%lld rows of a micro-batch, a picture has %lld",
                            (long long)request->rows * cp, (long long)rows);
    }
    if (request->sequence_parallel && request->rows % tp != 0) {
        loongi_problems_add(&problems,
                            "sequence_parallel: %lld rows of a micro-batch "
                            "are no multiple of tensor_model_parallel_size %d",
                            (long long)request->rows, tp);
    }
    return loongi_problems_end(&problems, LOONG_ERR_CONFIG, "parallel");
}

static loong_status_t configure(loong_context_t *ctx,
                                const loong_recipe_t *recipe,
                                const char *component, void *config)
{
    loong_pairs_t *keys = NULL;
    LOONG_TRY(loongi_recipe_fields_read(ctx, recipe, component, &keys));
    loong_status_t status = loongi_vision_configure(ctx, keys, config);
    if (status == LOONG_ERR_CONFIG) {
        loongi_error_note(ctx, "  %s is from %s", component,
                          loong_recipe_where(recipe, component));
    }
    loongi_pairs_destroy(&keys);
    return status;
}

#define FAMILY(name_, processor_, videos_, projector_)                         \
    {                                                                          \
        .name = name_, .role = "image_encoder", .image_processor = processor_, \
        .video_processor = videos_, .projector = projector_,                   \
        .config_size = sizeof(loong_vision_config_t), .configure = configure,  \
        .facts = facts, .attention_flops = attention_flops,                    \
        .check_mesh = check_mesh, .build = loongi_vision_build,                \
        .state = loongi_vision_state,                                          \
        .loss_keys = "num_classes or masked_image_modeling"                    \
    }

static const loong_family_t families[] = {
    FAMILY("vit", "ViT", NULL, "mlp_projector"),
    FAMILY("clip_vision_model", "CLIP", NULL, "mlp_projector"),
    FAMILY("siglip_vision_model", "Siglip", "LlavaOnevision", "mlp_projector"),
    FAMILY("qwen2_vl_vision", "Qwen2VL", "Qwen2VL", "patch_merger"),
    FAMILY("qwen2_5_vl_vision", "Qwen2VL", "Qwen2VL", "qwen2_5_vl_merger"),
    FAMILY("qwen3_vl_vision", "Qwen2VL", "Qwen3VL", "qwen3_vl_merger"),
    FAMILY("internvl_vision", "GotOcr2", "InternVL", "internvl_projector"),
    FAMILY("kimi_k25_vision", "Qwen2VL", NULL, "kimi_projector"),
    FAMILY("rice_vit", "Qwen2VL", "Qwen2VL", "patch_merger"),
    FAMILY("siglip2_vision_model", "Siglip2", NULL, "mlp_projector")};

loong_status_t loongi_register_vision(loong_context_t *ctx)
{
    for (int64_t i = 0; i < LOONG_COUNT_OF(families); i++) {
        LOONG_TRY(loong_register_family(ctx, &families[i]));
    }
    return LOONG_OK;
}
