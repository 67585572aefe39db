/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows whose rotary angles are parameters (the class token of RICE, Xie et al.
 * 2025). Called by vision transformers. Read loong/nn.h before. */
#include "nn_impl.h"

#include "loong/collective.h"

loong_val_t loong_nn_learned_angles(loong_nn_t *nn, const char *name,
                                    loong_val_t table, loong_val_t marks)
{
    char full[LOONG_NN_NAME];
    loong_graph_t *g = nn->graph;
    int64_t pairs = loong_value_shape(g, table).dim[1] / 2;
    const loong_nn_start_t normal = {LOONG_INIT_NORMAL, 1.0};
    loong_param_params_t p = loongi_nn_describe(
        nn, name, loong_shape_2d(1, pairs), normal, full);
    p.dtype = loong_graph_precision(g).wide;
    p.place = loongi_nn_whole(nn, LOONG_GROUP_TP, true); /* of its heads */
    loong_val_t row = loong_rope_angles(g, loong_graph_param(g, &p));
    return loong_select_rows(
        g, table, loong_embedding_slice(g, marks, row, 1, 2), marks);
}
