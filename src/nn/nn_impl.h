/* SPDX-License-Identifier: Apache-2.0
 *
 * What the layers share among themselves. */
#ifndef LOONG_NN_IMPL_H
#define LOONG_NN_IMPL_H

#include "loong/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct loong_nn_feed_forward {
    const char *scope;
    loong_mlp_kind_t kind;
    int64_t hidden;
    int64_t ffn;
    bool bias;
} loong_nn_feed_forward_t;

/* The channels of some heads. */
loong_nn_slice_t loongi_nn_channels(loong_nn_slice_t heads, int64_t head_dim);

loong_val_t loongi_nn_feed_forward(loong_nn_t *nn, loong_val_t x,
                                   const loong_nn_feed_forward_t *params);

/* A vector on the stream, zeros at the start, that moves by `rate` against the
 * sign of its gradient; 0: it is fixed. */
loong_val_t loongi_nn_sign_vector(loong_nn_t *nn, const char *name,
                                  int64_t size, double rate);

#ifdef __cplusplus
}
#endif

#endif
