/* SPDX-License-Identifier: Apache-2.0
 *
 * What the layers share among themselves. */
#ifndef LOONG_NN_IMPL_H
#define LOONG_NN_IMPL_H

#include "base.h"
#include "loong/moe.h"
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

enum { LOONG_NN_NAME = LOONG_MAX_SCOPE + 64 };

/* How a parameter starts, unless a rule says otherwise. */
typedef struct loong_nn_start {
    loong_init_kind_t kind;
    double std;
} loong_nn_start_t;

/* What all parameters have; `full`, LOONG_NN_NAME bytes, receives the name. */
loong_param_params_t loongi_nn_describe(const loong_nn_t *nn, const char *name,
                                        loong_shape_t shape,
                                        loong_nn_start_t start, char *full);

/* The whole of a parameter on every rank of a group; partial: each sees only a
 * part of what its gradient sums over. */
loong_placement_t loongi_nn_whole(const loong_nn_t *nn, loong_group_t group,
                                  bool partial);
/* A share of dimension `dim` of what a place says. */
loong_placement_t loongi_nn_part(loong_placement_t place, int dim,
                                 loong_nn_slice_t share);

/* The matrices of all experts are one parameter, of which a rank has its share
 * of the experts and of their channels: "gate_up_proj" [E, 2 ffn.total,
 * hidden], gate above up, or "down_proj" [E, hidden, ffn.total]. Channels are
 * dimension 1 or 2. */
typedef struct loong_nn_experts {
    loong_nn_slice_t experts;
    loong_nn_slice_t ffn;
    int64_t hidden;
} loong_nn_experts_t;

/* x of each expert times its matrix, whose channels are dimension `dim`, with
 * what adapters add. */
loong_val_t loongi_nn_expert_linear(loong_nn_t *nn, int dim,
                                    const loong_nn_experts_t *experts,
                                    const loong_expert_rows_t *rows,
                                    loong_val_t x);

/* This rank's share of the experts; of their channels, which are so many parts
 * of dimension `dim`, its share as well. dim 0: it has no channels, and ranks
 * that share out those of the same experts have it whole. */
loong_placement_t loongi_nn_expert_place(const loong_nn_t *nn,
                                         const loong_nn_experts_t *experts,
                                         int dim);

/* Has the matrix of a linear layer, or those of experts, stored as codes where
 * that is asked for and they stay fixed; a place that is no whole blocks breaks
 * the graph. */
void loongi_nn_quantize(const loong_nn_t *nn, loong_param_params_t *params);
/* What a linear layer multiplies and makes: y = x w', with the bias but where
 * magnitudes come before that (loongi_nn_has_magnitude). */
typedef struct loong_nn_product {
    loong_val_t x, w, bias; /* bias LOONG_NONE: without */
    loong_val_t y;
    loong_quant_t quant; /* of w */
} loong_nn_product_t;

/* w is the value of `params` or of a pack of such. */
loong_nn_product_t loongi_nn_product(loong_nn_t *nn,
                                     const loong_param_params_t *params,
                                     loong_val_t x, loong_val_t w,
                                     loong_val_t bias, bool magnitude);

/* x w' of another x, without the bias. */
loong_val_t loongi_nn_multiply(loong_nn_t *nn,
                               const loong_nn_product_t *product,
                               loong_val_t x);

/* What w, the product's matrix or rows of it, is a matrix of. */
loong_val_t loongi_nn_numbers(loong_nn_t *nn, const loong_nn_product_t *product,
                              loong_val_t w);

/* Returns y with what the layer's adapters add, or y where it has none. Of
 * columns and rows of a region (loong_nn_column_linear, loong_nn_row_linear),
 * and of a matrix that every rank has on the stream, whose name is the scope's.
 */
loong_val_t loongi_nn_adapt_columns(loong_nn_t *nn, int count,
                                    const loong_nn_column_t *columns,
                                    const loong_nn_product_t *product);
loong_val_t loongi_nn_adapt_rows(loong_nn_t *nn, const char *name,
                                 loong_nn_slice_t in,
                                 const loong_nn_product_t *product);
loong_val_t loongi_nn_adapt_stream(loong_nn_t *nn,
                                   const loong_nn_product_t *product);
/* Of the matrices of experts whose channels are dimension `dim`. */
loong_val_t loongi_nn_adapt_experts(loong_nn_t *nn, int dim,
                                    const loong_nn_experts_t *experts,
                                    const loong_expert_rows_t *rows,
                                    loong_val_t x, loong_val_t y);
/* Of an embedding, whose name is the scope's, of which rows are here: y are
 * parts of a sum. */
loong_val_t loongi_nn_adapt_embedding(loong_nn_t *nn, loong_val_t ids,
                                      loong_nn_slice_t rows, loong_val_t y);
/* Of the head, whose name is the scope's, of which rows are here: what is added
 * to the logits is second[0] [T,rank] times second[1]' [rows,rank]. False: it
 * has none. */
bool loongi_nn_adapt_head(loong_nn_t *nn, loong_val_t x, loong_nn_slice_t rows,
                          loong_val_t second[2]);
/* Whether adapters are asked for of a module, by its name below the scope; and
 * magnitudes with them. */
bool loongi_nn_has_adapter(const loong_nn_t *nn, const char *name);
bool loongi_nn_has_magnitude(const loong_nn_t *nn, const char *name);
/* How many of the columns, from the first, are one product: all, or those that
 * have magnitudes as the first, or have none as it. magnitude_p: which. */
int loongi_nn_alike(const loong_nn_t *nn, int count,
                    const loong_nn_column_t *columns, bool *magnitude_p);

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
