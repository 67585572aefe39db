/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of a language model. Called by src/model/foundation/decoder.c. Read
 * loong/nn.h before. */
#include "loong/nn.h"
#include "loong/op.h"
#include "nn_impl.h"

const char *const loong_projected_ports[LOONG_MAX_ENCODERS] = {
    "projected", "projected_videos"};
const char *const loong_feature_inputs[LOONG_MAX_ENCODERS] = {"is_feature",
                                                              "is_video"};

/* Part k of what a projector sends; in rows of text it is zero. */
static loong_val_t feature(loong_nn_t *nn, int64_t hidden,
                           const loong_model_request_t *request,
                           loong_val_t received, int k)
{
    return request->deep_features > 0
               ? loong_slice(nn->graph, received, k * hidden, hidden)
               : received;
}

loong_val_t loong_nn_select_features(loong_nn_t *nn, loong_val_t x,
                                     int64_t hidden,
                                     const loong_model_request_t *request,
                                     loong_val_t *received)
{
    int64_t width = (1 + request->deep_features) * hidden;
    for (int i = 0; i < request->features; i++) {
        if (received[i] == LOONG_NONE) {
            received[i] = loong_nn_receive(nn, loong_projected_ports[i],
                                           request->rows, width);
        }
        loong_val_t is_feature = loong_nn_stream_rows(
            nn, loong_graph_input(nn->graph, loong_feature_inputs[i], LOONG_I32,
                                  loong_shape_1d(request->rows)));
        x = loong_select_rows(nn->graph, x,
                              feature(nn, hidden, request, received[i], 0),
                              is_feature);
    }
    return x;
}

loong_val_t loong_nn_add_features(loong_nn_t *nn, loong_val_t x, int64_t hidden,
                                  int k, const loong_model_request_t *request,
                                  const loong_val_t *received)
{
    for (int i = 0; i < request->features; i++) {
        x = loong_add(nn->graph, x,
                      feature(nn, hidden, request, received[i], k));
    }
    return x;
}

loong_val_t loong_nn_embedding(loong_nn_t *nn, loong_val_t ids,
                               loong_val_t table, loong_nn_slice_t rows)
{
    loong_val_t x =
        loong_embedding_slice(nn->graph, ids, table, rows.begin, rows.total);
    return loong_nn_leave(nn, loongi_nn_adapt_embedding(nn, ids, rows, x));
}

/* x and the table, and what the head's adapter multiplies, if it has one. */
typedef struct head {
    loong_val_t x, table;
    loong_nn_slice_t rows;
    bool adapted;
    loong_val_t second[2];
} head_t;

static head_t head_of(loong_nn_t *nn, loong_val_t x, loong_val_t table,
                      loong_nn_slice_t rows)
{
    head_t head = {x, table, rows, false, {LOONG_NONE, LOONG_NONE}};
    head.adapted = loongi_nn_adapt_head(nn, x, rows, head.second);
    return head;
}

static loong_val_t label_logprob(loong_nn_t *nn, const head_t *head)
{
    loong_graph_t *g = nn->graph;
    loong_nn_slice_t rows = head->rows;
    loong_val_t x = head->x;
    loong_shape_t shape = loong_shape_1d(loong_value_shape(g, x).dim[0]);
    loong_val_t labels = loong_graph_input(g, "labels", LOONG_I32, shape);
    const loong_token_logprob_params_t params = {
        .vocab = rows.total - rows.padding,
        .begin = rows.begin,
        .shared = true,
        .group = LOONG_GROUP_TP,
        .second = head->adapted ? head->second : NULL};
    return loong_token_logprob(g, x, head->table, labels, &params);
}

loong_val_t loong_nn_label_logprob(loong_nn_t *nn, loong_val_t x,
                                   loong_val_t table, loong_nn_slice_t rows)
{
    head_t head = head_of(nn, x, table, rows);
    return label_logprob(nn, &head);
}

/* Against a frozen copy of the model, or against the model without its
 * adapters. */
static void add_kl(loong_nn_t *nn, loong_val_t logprob,
                   const loong_model_request_t *request)
{
    loong_graph_t *g = nn->graph;
    loong_shape_t shape = loong_shape_1d(request->rows);
    loong_dtype_t wide = loong_graph_precision(g).wide;
    const loong_loss_params_t loss = {.name = "kl",
                                      .normaliser = "loss_weight",
                                      .weight = request->kl_loss,
                                      .same = LOONG_SAME_TP};
    if (request->kl_to_base && nn->reference == LOONG_NONE) {
        (void)loong_graph_fail(g, LOONG_ERR_UNSUPPORTED,
                               "train.kl_loss_coeff: this family has no "
                               "forward without adapters beside its own");
        return;
    }
    loong_val_t weight = loong_graph_input(g, "loss_weight", wide, shape);
    loong_val_t reference =
        request->kl_to_base
            ? nn->reference
            : loong_graph_receive(g, LOONG_REFERENCE_PORT, wide, shape);
    loong_loss(
        g, loong_multiply(g, loong_kl_estimate(g, logprob, reference), weight),
        &loss);
}

void loong_nn_language_head(loong_nn_t *nn, loong_val_t x, loong_val_t table,
                            loong_nn_slice_t rows,
                            const loong_model_request_t *request)
{
    loong_graph_t *g = nn->graph;
    loong_shape_t shape = loong_shape_1d(request->rows);
    x = loong_nn_enter(nn, x);
    loong_graph_push(g, "lm_head");
    head_t head = head_of(nn, x, table, rows);
    if (request->head == LOONG_MODEL_LOGITS) {
        loong_val_t y = loong_linear(g, x, table, LOONG_NONE);
        if (head.adapted) {
            y = loong_linear_add(g, y, head.second[0], head.second[1], 0);
        }
        loong_graph_output(g, "logits", y);
    } else if (request->head == LOONG_MODEL_LOGPROB) {
        loong_graph_send(g, LOONG_REFERENCE_PORT, label_logprob(nn, &head));
    } else {
        loong_dtype_t wide = loong_graph_precision(g).wide;
        loong_val_t labels = loong_graph_input(g, "labels", LOONG_I32, shape);
        loong_val_t weight = loong_graph_input(g, "loss_weight", wide, shape);
        loong_cross_entropy_params_t loss = {
            .vocab = rows.total - rows.padding,
            .z_loss = request->z_loss,
            .begin = rows.begin,
            .shared = true,
            .group = LOONG_GROUP_TP,
            .second = head.adapted ? head.second : NULL,
            .loss = {.name = "lm", .normaliser = "loss_weight", .weight = 1.0}};
        loong_cross_entropy(g, x, table, labels, weight, &loss);
        if (request->kl_loss > 0.0) {
            add_kl(nn, label_logprob(nn, &head), request);
        }
    }
    loong_graph_pop(g);
}
