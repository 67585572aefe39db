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
 * are nothing. With context parallelism every rank has its rows of each sample
 * from the embedding to the loss; attention alone brings them together. */
#ifndef LOONG_NN_H
#define LOONG_NN_H

#include "loong/family.h"
#include "loong/moe.h"
#include "loong/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What all layers of a component share. */
typedef struct loong_nn {
    loong_graph_t *graph;
    double init_std;        /* of matrices */
    double output_init_std; /* of projections that end a residual branch */
    loong_param_rules_t rules;
    bool sequence_parallel; /* the stream is cut into rows over TP */
    loong_cp_comm_t cp_comm;
    loong_dispatcher_t dispatcher;
    double capacity_plan;
    int64_t seq_length; /* of a sample, on all ranks of CP; 0: of any length */
    bool train;
    loong_val_t token_key; /* of a region's rows, for adapters with dropout */
    loong_val_t reference; /* without adapters, for the request's kl_to_base */
    const char *stream;    /* its name between stages */
} loong_nn_t;

/* For the layers of one graph; both deviations are init_std. */
LOONG_API loong_nn_t loong_nn_begin(loong_graph_t *graph,
                                    const loong_model_request_t *request,
                                    double init_std);

/* The slice of something that a rank of TP has: `begin .. begin + count - 1` of
 * `total`. */
typedef struct loong_nn_slice {
    int64_t begin, count, total;
    int64_t padding; /* at the end of total: never saved, no real tokens */
} loong_nn_slice_t;
LOONG_API loong_nn_slice_t loong_nn_slice(const loong_nn_t *nn, int64_t total);

/* Rows of a vocabulary's tables, padded to `padded`: every rank has some of
 * real tokens. */
LOONG_API loong_nn_slice_t loong_nn_vocabulary(const loong_nn_t *nn,
                                               int64_t vocab, int64_t padded);

/* From the stream into a region and back: sums over the ranks. */
LOONG_API loong_val_t loong_nn_enter(loong_nn_t *nn, loong_val_t x);
LOONG_API loong_val_t loong_nn_leave(loong_nn_t *nn, loong_val_t y);
/* The stream [rows of T, width] from the stage before, to the stage behind, and
 * rows like it of another component (loong_graph_receive). */
LOONG_API loong_val_t loong_nn_stage_input(loong_nn_t *nn, int64_t rows,
                                           int64_t width);
LOONG_API void loong_nn_stage_output(loong_nn_t *nn, loong_val_t x);
LOONG_API loong_val_t loong_nn_receive(loong_nn_t *nn, const char *name,
                                       int64_t rows, int64_t width);
/* This rank's rows, as the stream has them, of an input equal on all ranks. */
LOONG_API loong_val_t loong_nn_stream_rows(loong_nn_t *nn, loong_val_t x);

/* Matrices in the compute type, vectors and wide ones in the wide type; a name
 * is the scope's path and `name`. `table` has its rows shared out over TP,
 * `matrix` and `vector` are whole and used on the stream. */
LOONG_API loong_val_t loong_nn_table(loong_nn_t *nn, const char *name,
                                     loong_nn_slice_t rows, int64_t cols,
                                     double std);
LOONG_API loong_val_t loong_nn_matrix(loong_nn_t *nn, const char *name,
                                      int64_t rows, int64_t cols, double std);
LOONG_API loong_val_t loong_nn_vector(loong_nn_t *nn, const char *name,
                                      int64_t size, loong_init_kind_t init);
LOONG_API loong_val_t loong_nn_wide_matrix(loong_nn_t *nn, const char *name,
                                           int64_t rows, int64_t cols,
                                           double std);

enum { LOONG_NN_MAX_PACK = 4 };

/* Inside a region, all rows -> a share of the channels: several linears of one
 * input as one product; y [T, sum of counts]. y = x w' (+ b), `name`.weight
 * [out, in], `name`.bias [out]. `holders`: the ranks of that group hold the
 * same share, this one is a copy unless it is the first. */
typedef struct loong_nn_column {
    const char *name;
    loong_nn_slice_t out;
    bool held_by_group;
    loong_group_t holders;
    const char *fused; /* the layer that all are parts of, for adapters; NULL */
} loong_nn_column_t;
LOONG_API loong_val_t loong_nn_column_linear(loong_nn_t *nn, int count,
    const loong_nn_column_t *columns, loong_val_t x, bool bias);

/* A share of the channels -> out of a region: x [T, in.count], `name`.weight
 * [out, in.total]. The first rank of TP alone holds `name`.bias, so that it
 * enters the sum once. */
LOONG_API loong_val_t loong_nn_row_linear(loong_nn_t *nn, const char *name,
                                          loong_val_t x, loong_nn_slice_t in,
                                          int64_t out, bool bias);

typedef enum loong_norm_kind { LOONG_NORM_RMS, LOONG_NORM_LAYER,
                               LOONG_NORM_RMS_1P } loong_norm_kind_t;

/* `name`.weight (and .bias for LayerNorm) of the given width, on the stream;
 * of RMS_1P the factors are 1 more. */
LOONG_API loong_val_t loong_nn_norm(loong_nn_t *nn, const char *name,
    loong_norm_kind_t kind, loong_val_t x, int64_t width, double eps);

/* Attention with its projections; scope "self_attn". */
typedef struct loong_nn_attention {
    int heads, kv_heads;
    int head_dim;
    int64_t hidden;
    bool qkv_bias, output_bias;
    bool qk_norm;
    bool qk_norm_whole; /* one norm over all heads, not one of each */
    double norm_eps;
    int64_t window;     /* 0: none */
    int64_t max_seqlen; /* longest segment */
    double scale;
    double dropout;
    uint64_t stream;
    bool interleaved;
    bool bidirectional; /* a query sees its whole segment */
} loong_nn_attention_t;

/* The heads of a rank of TP: whole groups of query heads with their key head,
 * or a part of the query heads of one key head, which several ranks hold. */
typedef struct loong_nn_heads {
    loong_nn_slice_t q, kv;
    bool shared; /* the key head, by the ranks of group KV */
} loong_nn_heads_t;
LOONG_API loong_nn_heads_t loong_nn_heads(const loong_mesh_t *mesh, int heads,
                                          int kv_heads);

/* What attention reads besides the stream of activations: all rows that this
 * rank of CP has, and the segments of all ranks' rows. */
typedef struct loong_nn_sequence {
    loong_val_t rope_table; /* LOONG_NONE: no rotary embedding */
    loong_val_t cu_seqlens;
    loong_val_t token_key; /* LOONG_NONE: no dropout */
    loong_val_t key_ends;  /* as of loong_attention; LOONG_NONE: none */
} loong_nn_sequence_t;

/* A rope table in which the rows that `marks` i32 [rows of it] marks turn by
 * learned angles, `name` wide [1, R/2]. */
LOONG_API loong_val_t loong_nn_learned_angles(loong_nn_t *nn, const char *name,
                                              loong_val_t table,
                                              loong_val_t marks);

LOONG_API loong_val_t loong_nn_attention(loong_nn_t *nn, loong_val_t x,
                                         const loong_nn_attention_t *params,
                                         const loong_nn_sequence_t *sequence);

/* Rows of x [T,H] see those of the context [R,H] and x; both by segment, i32
 * [T + R], of x where is_own is 1; places i32 [T] of x; scope "self_attn". */
typedef struct loong_nn_cross_rows {
    loong_val_t context, own, is_own, places, cu_seqlens;
} loong_nn_cross_rows_t;
LOONG_API loong_val_t loong_nn_cross_attention(loong_nn_t *nn, loong_val_t x,
    loong_val_t context, const loong_nn_attention_t *params,
    const loong_nn_cross_rows_t *rows);

/* Multi-head latent attention (latent.h); scope "self_attn". Parameters: q_proj
 * (or with q_rank q_a_proj, q_a_layernorm, q_b_proj), kv_a_proj_with_mqa,
 * kv_a_layernorm, kv_b_proj, o_proj. The short vectors are made of this rank's
 * rows of the stream; the heads are shared out over TP.
 * Absorbed, kv_b_proj makes no keys and values: its key rows turn queries into
 * ones over the short vectors, keys and values of all heads, and its value rows
 * turn what was gathered into outputs, at other costs (.._absorbs). */
typedef struct loong_nn_latent {
    int heads;
    int64_t hidden;
    int64_t q_rank; /* 0: queries straight from the stream */
    int64_t kv_rank;
    int nope;
    int rope;
    int v_head_dim;
    int64_t max_seqlen;
    double scale;
    double dropout;
    uint64_t stream;
    bool interleaved;
    bool absorb;
    bool short_bias;  /* of q_a_proj and kv_a_proj_with_mqa */
    bool output_bias; /* of o_proj */
} loong_nn_latent_t;

/* Whether the absorbed form costs less, in products and in memory: a head's
 * query and output over the short vector, which are rope + 2 kv_rank channels,
 * against key and value, nope + rope + v_head_dim. */
LOONG_API bool loong_nn_latent_absorbs(int64_t kv_rank, int nope,
                                       int v_head_dim);
LOONG_API loong_val_t loong_nn_latent_attention(
    loong_nn_t *nn, loong_val_t x, const loong_nn_latent_t *params,
    const loong_nn_sequence_t *sequence);

typedef enum loong_mlp_kind {
    LOONG_MLP_SWIGLU, LOONG_MLP_GELU, LOONG_MLP_GELU_TANH, LOONG_MLP_QUICK_GELU,
    LOONG_MLP_GEGLU_TANH /* as SWIGLU, with GELU_TANH of the gates */
} loong_mlp_kind_t;

/* Feed-forward; scope "mlp". */
LOONG_API loong_val_t loong_nn_mlp(loong_nn_t *nn, loong_val_t x,
    loong_mlp_kind_t kind, int64_t hidden, int64_t ffn, bool bias);

typedef struct loong_nn_expert_set { /* of tokens of one type */
    const char *name; /* scope of its parameters; "": none */
    int64_t ffn;      /* width of an expert */
} loong_nn_expert_set_t;
enum { LOONG_NN_MAX_EXPERT_SETS = 2 };

/* Layers that are balanced together (pooled_aux_loss). */
typedef struct loong_nn_router_pool {
    int layers, num_sets, topk;
    loong_val_t *logits; /* of each; borrowed room for all */
    loong_val_t counts;  /* of this rank's choices; LOONG_NONE at first */
    loong_val_t types;   /* as the layers have them */
} loong_nn_router_pool_t;

/* A mixture of experts in place of the feed-forward; scope "mlp". Parameters:
 * gate.weight [E,H] (wide), experts.gate_up_proj [E,2F,H], experts.down_proj
 * [E,H,F], and with a shared expert shared_expert.*_proj.weight and, gated,
 * shared_expert_gate.weight [1,H]. With several sets of experts each token
 * knows those of its type alone; each set has a router, experts and losses of
 * its own (NAME.gate.weight, NAME.experts.*), the shared expert is everybody's.
 *
 * Every rank routes the rows of the stream that it has (with TP > 1 that takes
 * sequence parallelism: else several ranks have the same). The ranks of EP
 * gather their rows, each runs its experts on all of them, and the sums go
 * back: exact, and equal to one rank. */
typedef struct loong_nn_moe {
    int64_t hidden;
    int experts, num_sets; /* experts of a set */
    loong_nn_expert_set_t set[LOONG_NN_MAX_EXPERT_SETS];
    loong_val_t types; /* i32 [rows of the stream]: which set; of one: none */
    loong_router_attr_t router;
    loong_routing_t routing;
    int layer; /* names the port of its choices */
    /* Tokens that an expert takes, times an even share of a rank's; 0: all. */
    double capacity_factor;
    bool drop_by_position; /* the last ones; else those of least weight */
    bool bias; /* gate.e_score_correction_bias [E of all sets] (wide) */
    double bias_rate; /* that evens the choices out, a step; 0: it stays */
    int64_t shared_ffn; /* of the shared expert; 0: none */
    bool shared_gate;
    double aux_loss, z_loss; /* factors of the losses; 0: none */
    int64_t sequence; /* whose balance the loss measures; 0: micro-batch */
    loong_nn_router_pool_t *pool; /* joined by the layer; NULL: none */
    bool metrics; /* of the layer are added up, moe_metrics.h */
} loong_nn_moe_t;

/* Tokens' losses of the router are added to *loss_p [rows of the stream],
 * LOONG_NONE at first: their mean over the micro-batch's tokens is Megatron's
 * load balancing loss and z-loss of the layer. */
LOONG_API loong_val_t loong_nn_moe(loong_nn_t *nn, loong_val_t x,
                                   const loong_nn_moe_t *params,
                                   loong_val_t *loss_p);

/* The loss of a pool, times `factor`, is added in the same way. */
LOONG_API void loong_nn_pooled_loss(loong_nn_t *nn,
                                    const loong_nn_router_pool_t *pool,
                                    double factor, loong_val_t *loss_p);

/* x of the stream times `name` wide [width], which begins as `start`, row by
 * row; ones: wide [rows of the stream,1], all 1. */
LOONG_API loong_val_t loong_nn_layer_scale(loong_nn_t *nn, const char *name,
                                           loong_val_t x, loong_val_t ones,
                                           double start);

/* ids i32 [T] of all rows -> the stream; `table` has the given rows. */
LOONG_API loong_val_t loong_nn_embedding(loong_nn_t *nn, loong_val_t ids,
                                         loong_val_t table,
                                         loong_nn_slice_t rows);

/* Ends a language model: the stream, times the rows of `table`; loss "lm" over
 * the inputs labels and loss_weight, or output "logits". Scope "lm_head". */
LOONG_API void loong_nn_language_head(loong_nn_t *nn, loong_val_t x,
                                      loong_val_t table, loong_nn_slice_t rows,
                                      const loong_model_request_t *request);
/* Log-probabilities of input labels; x: of all rows, loong_nn_enter. */
LOONG_API loong_val_t loong_nn_label_logprob(loong_nn_t *nn, loong_val_t x,
                                             loong_val_t table,
                                             loong_nn_slice_t rows);

#ifdef __cplusplus
}
#endif

#endif
