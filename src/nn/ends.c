/* SPDX-License-Identifier: Apache-2.0
 *
 * The ends of a language model. */
#include "loong/nn.h"

loong_val_t loong_nn_embedding(loong_nn_t *nn, loong_val_t ids,
                               loong_val_t table, loong_nn_share_t rows)
{
    loong_val_t x = loong_embedding_part(nn->graph, ids, table, rows.begin,
                                         rows.total);
    return loong_nn_leave(nn, x);
}

void loong_nn_language_head(loong_nn_t *nn, loong_val_t x, loong_val_t table,
                            loong_nn_share_t rows,
                            const loong_model_request_t *request)
{
    loong_graph_t *g = nn->graph;
    loong_shape_t tokens = loong_shape_1d(request->tokens);
    x = loong_nn_enter(nn, x);
    loong_graph_push(g, "lm_head");
    if (request->head == LOONG_MODEL_LOGITS) {
        loong_graph_output(g, "logits", loong_linear(g, x, table, LOONG_NONE));
    } else {
        loong_dtype_t wide = loong_graph_precision(g).wide;
        loong_val_t labels = loong_graph_input(g, "labels", LOONG_I32, tokens);
        loong_val_t weight = loong_graph_input(g, "loss_weight", wide, tokens);
        loong_cross_entropy_params_t loss = {
            .vocab = rows.total - rows.padding,
            .z_loss = request->z_loss,
            .begin = rows.begin,
            .shared = true,
            .group = LOONG_GROUP_TP,
            .loss = {.name = "lm", .normaliser = "loss_weight", .weight = 1.0}};
        loong_cross_entropy(g, x, table, labels, weight, &loss);
    }
    loong_graph_pop(g);
}
