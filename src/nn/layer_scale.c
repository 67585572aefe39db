/* SPDX-License-Identifier: Apache-2.0
 *
 * A factor of each channel (LayerScale, Touvron et al. 2021). Called by vision
 * transformers. Read loong/nn.h before. */
#include "nn_impl.h"

loong_val_t loong_nn_layer_scale(loong_nn_t *nn, const char *name,
                                 loong_val_t x, loong_val_t ones, double start)
{
    char full[LOONG_NN_NAME];
    loong_shape_t shape = loong_value_shape(nn->graph, x);
    const loong_nn_start_t constant = {LOONG_INIT_CONSTANT, start};
    loong_param_params_t p = loongi_nn_describe(
        nn, name, loong_shape_1d(shape.dim[1]), constant, full);
    p.place = loongi_nn_whole(nn, LOONG_GROUP_TP, nn->sequence_parallel);
    return loong_rms_scale(nn->graph, x, ones,
                           loong_graph_param(nn->graph, &p), 0.0);
}
