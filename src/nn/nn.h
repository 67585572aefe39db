/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers: short graph builders over ops. A layer takes its parameters' names
 * from the current scope ("layers.3.self_attn" + "q_proj.weight"), so names
 * are global and the same in every layout.
 *
 * Tensor parallelism (Shoeybi et al. 2019) is in the layers: between layers
 * flows the stream, equal on all ranks of TP or, with sequence parallelism
 * (Korthikanti et al. 2022), cut into their rows. Attention, feed-forward and
 * the two ends enter a region where every rank computes a part of the
 * channels on all rows, and leave it with a sum. In a group of one rank both
 * are nothing.
 */
#ifndef LOONG_NN_H
#define LOONG_NN_H

#include "base.h"
#include "loong/graph.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a recipe says of some parameters; of several rules that match the last
 * one holds. */
typedef struct loong_nn_rule {
    const char *scope; /* glob over parameter names and scopes above them */
    bool sets_init;    /* else the rule sets the factor of weight decay */
    double weight_decay;
    loong_init_kind_t init;
    double std; /* 0: as the model has it */
} loong_nn_rule_t;

/* Element `index` of a parameter at the start, from the stream (seed, key). */
double loongi_nn_initial(const loong_param_params_t *param, uint64_t seed,
                         uint64_t key, uint64_t index);

/* What all layers of a component share. */
typedef struct loong_nn {
    loong_graph_t *graph;
    double init_std;        /* of matrices */
    double output_init_std; /* of projections that end a residual branch */
    int num_freeze;
    const char *const *freeze; /* globs over parameter names */
    int num_rules;
    const loong_nn_rule_t *rules;
    bool sequence_parallel; /* the stream is cut into rows over TP */
} loong_nn_t;

/* A part of something that the ranks of TP share: `begin .. begin + count - 1`
 * of `total`. */
typedef struct loong_nn_share {
    int64_t begin;
    int64_t count;
    int64_t total;
} loong_nn_share_t;
loong_nn_share_t loongi_nn_share(const loong_nn_t *nn, int64_t total);

/* From the stream into a region and back: sums over the ranks. */
loong_val_t loongi_nn_enter(loong_nn_t *nn, loong_val_t x);
loong_val_t loongi_nn_leave(loong_nn_t *nn, loong_val_t y);
/* This rank's rows of an input that is equal on all ranks, as the stream has
 * them. */
loong_val_t loongi_nn_stream_rows(loong_nn_t *nn, loong_val_t x);

/* Matrices in the compute type, vectors in the wide type; the name is the
 * scope's path and `name`. `table` has its rows shared out over TP, `matrix`
 * and `vector` are whole and used on the stream. */
loong_val_t loongi_nn_table(loong_nn_t *nn, const char *name,
                            loong_nn_share_t rows, int64_t cols, double std);
loong_val_t loongi_nn_matrix(loong_nn_t *nn, const char *name, int64_t rows,
                             int64_t cols, double std);
loong_val_t loongi_nn_vector(loong_nn_t *nn, const char *name, int64_t size,
                             loong_init_kind_t init);

enum { LOONG_NN_MAX_PACK = 4 };

/* Inside a region, all rows -> a share of the channels: several linears of one
 * input as one product; y [T, sum of counts]. y = x w' (+ b), `name`.weight
 * [out, in], `name`.bias [out]. `holders`: the ranks of that group hold the
 * same share, this one is a copy unless it is the first. */
typedef struct loong_nn_column {
    const char *name;
    loong_nn_share_t out;
    bool held_by_group;
    loong_group_t holders;
} loong_nn_column_t;
loong_val_t loongi_nn_column_linear(loong_nn_t *nn, int count,
                                    const loong_nn_column_t *columns,
                                    loong_val_t x, bool bias);

/* A share of the channels -> out of a region: x [T, in.count], `name`.weight
 * [out, in.total]. The first rank of TP alone holds `name`.bias, so that it
 * enters the sum once. */
loong_val_t loongi_nn_row_linear(loong_nn_t *nn, const char *name,
                                 loong_val_t x, loong_nn_share_t in,
                                 int64_t out, bool bias);

typedef enum loong_norm_kind {
    LOONG_NORM_RMS,
    LOONG_NORM_LAYER
} loong_norm_kind_t;

/* `name`.weight (and .bias for LayerNorm) of the given width, on the stream. */
loong_val_t loongi_nn_norm(loong_nn_t *nn, const char *name,
                           loong_norm_kind_t kind, loong_val_t x,
                           int64_t width, double eps);

/* Attention with its projections; scope "self_attn". */
typedef struct loong_nn_attention {
    int heads;
    int kv_heads;
    int head_dim;
    int64_t hidden;
    bool qkv_bias;
    bool output_bias;
    bool qk_norm;
    double norm_eps;
    int64_t window;     /* 0: none */
    int64_t max_seqlen; /* longest segment */
    double scale;
    double dropout;
    uint64_t stream;
    bool interleaved;
} loong_nn_attention_t;

/* The heads of a rank of TP: whole groups of query heads with their key head,
 * or a part of the query heads of one key head, which several ranks hold. */
typedef struct loong_nn_heads {
    loong_nn_share_t q;
    loong_nn_share_t kv;
    bool shared; /* the key head, by the ranks of group KV */
} loong_nn_heads_t;
loong_nn_heads_t loongi_nn_heads(const loong_mesh_t *mesh, int heads,
                                 int kv_heads);

/* What attention reads besides the stream of activations: all rows. */
typedef struct loong_nn_sequence {
    loong_val_t rope_table; /* LOONG_NONE: no rotary embedding */
    loong_val_t cu_seqlens;
    loong_val_t token_key; /* LOONG_NONE: no dropout */
} loong_nn_sequence_t;

loong_val_t loongi_nn_attention(loong_nn_t *nn, loong_val_t x,
                                const loong_nn_attention_t *params,
                                const loong_nn_sequence_t *sequence);

typedef enum loong_mlp_kind {
    LOONG_MLP_SWIGLU,
    LOONG_MLP_GELU,
    LOONG_MLP_GELU_TANH
} loong_mlp_kind_t;

/* Feed-forward; scope "mlp". */
loong_val_t loongi_nn_mlp(loong_nn_t *nn, loong_val_t x, loong_mlp_kind_t kind,
                          int64_t hidden, int64_t ffn, bool bias);

#ifdef __cplusplus
}
#endif

#endif
