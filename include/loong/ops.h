/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in ops: attributes and builders. T is the number of tokens of a
 * micro-batch (all its rows one after the other), H a width. "wide" is the
 * graph's wide type (loong_precision_t). The formulas and derivatives stand in
 * kernels/<op>/<op>_ref.c.
 *
 * A builder returns the op's first output; see graph.h for errors.
 */
#ifndef LOONG_OPS_H
#define LOONG_OPS_H

#include "loong/graph.h"
#include "loong/loss_ops.h"
#include "loong/rope.h"
#include "loong/update.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum loong_activation {
    LOONG_ACT_NONE,
    LOONG_ACT_GELU,      /* exact, by erf */
    LOONG_ACT_GELU_TANH, /* tanh approximation */
    LOONG_ACT_QUICK_GELU /* x / (1 + exp(-1.702 x)); of op gelu alone */
} loong_activation_t;

/* embedding: ids i32 [T], table [V,H] -> [T,H]; a table of a part of the
 * vocabulary gives zero rows for the ids of the other parts.
 * embedding_grad: ids [T], dy [T,H] -> [V,H] wide; sums in token order.
 * An id outside of 0 .. vocab - 1 is LOONG_ERR_ARG. */
typedef struct loong_embedding_attr {
    int64_t rows;  /* V */
    int64_t begin; /* id of row 0 */
    int64_t vocab; /* ids there are; 0: rows */
} loong_embedding_attr_t;
LOONG_API loong_val_t loong_embedding(loong_graph_t *g, loong_val_t ids,
                                      loong_val_t table);
LOONG_API loong_val_t loong_embedding_slice(loong_graph_t *g, loong_val_t ids,
                                            loong_val_t table, int64_t begin,
                                            int64_t vocab);
/* The embedding of rows that are computed: x [R,H], index i32 [T] -> [T,H], row
 * t is row index[t] of x. The gradient has x's type, its sums are wide. */
LOONG_API loong_val_t loong_gather_rows(loong_graph_t *g, loong_val_t x,
                                        loong_val_t index);
/* Op embedding_grad of rows that are no gradient: x [T,H] -> [rows,H] wide,
 * row i the sum of those whose id is i. Id `rows` is in none. */
LOONG_API loong_val_t loong_sum_by_id(loong_graph_t *g, loong_val_t ids,
                                      loong_val_t x, int64_t rows);

/* linear: x [T,K], w [N,K] (or [K,N] with `transposed`), bias [N] or none ->
 * y [T,N] = act(x w' + bias), of w's type: that of x, or wide where there is
 * neither bias nor act, which has output 1, the value before it, where wanted.
 * linear_dw: dy [T,N] like x or wide, x [T,K] -> dy' x [N,K] wide (or x' dy
 * [K,N] with `transposed`). */
typedef struct loong_linear_attr {
    bool transposed;
    loong_activation_t activation;
} loong_linear_attr_t;
LOONG_API loong_val_t loong_linear(loong_graph_t *g, loong_val_t x,
                                   loong_val_t w, loong_val_t bias);
LOONG_API loong_val_t loong_linear_transposed(loong_graph_t *g, loong_val_t x,
                                              loong_val_t w);

/* linear_add: y [T,C], x [T,K], w [N,K] (or [K,N] with `transposed`), all of
 * one type -> y with x w' added to its columns begin .. begin+N-1. */
typedef struct loong_linear_add_attr {
    int64_t begin;
    bool transposed;
} loong_linear_add_attr_t;
LOONG_API loong_val_t loong_linear_add(loong_graph_t *g, loong_val_t y,
                                       loong_val_t x, loong_val_t w,
                                       int64_t begin);

/* rmsnorm: x [T,G*d], w [d] wide -> y like x, rstd [T,G] wide. G = 1 unless
 * the width of w is smaller (per-head norms). add_rmsnorm: x, residual, w ->
 * y, rstd, sum = x + residual. */
typedef struct loong_norm_attr {
    double eps;
} loong_norm_attr_t;
LOONG_API loong_val_t loong_rmsnorm(loong_graph_t *g, loong_val_t x,
                                    loong_val_t w, double eps);

/* The same norm when ranks have a part of the channels each. mean_squares: x
 * [T,C] -> factor times the sum of squares of each row [T,1] wide. rms_scale: x
 * [T,C], m [T,1] wide, w [C] wide -> x w / sqrt(m + eps), m being the sum over
 * the ranks. mean_squares_grad: x, dm -> dx. rms_scale_grad: dy, x, m, w -> dx,
 * dm, dw. */
typedef struct loong_mean_squares_attr {
    double factor;
} loong_mean_squares_attr_t;
LOONG_API loong_val_t loong_mean_squares(loong_graph_t *g, loong_val_t x,
                                         double factor);
LOONG_API loong_val_t loong_rms_scale(loong_graph_t *g, loong_val_t x,
                                      loong_val_t m, loong_val_t w,
                                      double eps);

/* layernorm: x [T,H], w [H] wide, b [H] wide or none -> y, mean [T,1] wide,
 * rstd [T,1] wide. add_layernorm: x, residual, w, b -> y, mean, rstd, sum. */
LOONG_API loong_val_t loong_layernorm(loong_graph_t *g, loong_val_t x,
                                      loong_val_t w, loong_val_t b,
                                      double eps);

/* attention: q [Q,heads*d], k [T,kv_heads*d], v [T,kv_heads*dv], cu_seqlens i32
 * [S+1] -> o [Q,heads*dv], lse [Q,heads] wide (natural log of the sum of
 * exponentials). cu_seqlens[0] = 0; segment s is rows cu[s] .. cu[s+1]-1;
 * entries after the last segment repeat T. No attention across segments. Query
 * head h reads key head h / (heads / kv_heads). `window` > 0: a query sees
 * itself and the window-1 tokens before it. `max_seqlen` bounds a segment.
 * Memory is linear in T. Query t stands in row rows[t] of the sequence, rows
 * i32 [Q] ascending, key t in row key_rows[t], i32 [T] likewise; without them
 * query or key t stands in row t. With key_ends, i32 [T] of all rows and with
 * causal alone, the query of row t sees the keys before row key_ends[t] in
 * place of those up to its own: these ascend, each is behind its row and in its
 * segment, so that rows before a common end see one another. A query that sees
 * no key gets o 0 and lse minus infinity. Dropout on the probabilities by
 * (seed, step, stream, global token of the query, head, key position in the
 * segment), with token_key i64 [Q].
 * attention_grad: do, q, k, v, o, lse, cu_seqlens, token_key, rows, key_rows,
 * key_ends -> dq, dk, dv. When k and v are some of the keys that o and lse are
 * of, these are their parts of the gradients.
 * attention_merge: o_a, lse_a, o_b, lse_b -> o, lse, attention over two sets of
 * keys from the results over each; no attributes. */
typedef struct loong_attention_attr {
    int heads;
    int kv_heads;
    int head_dim;   /* of queries and keys */
    int v_head_dim; /* of values and outputs, dv; 0: head_dim */
    bool causal;
    int64_t window;     /* 0: none */
    int64_t max_seqlen; /* at most T */
    double scale;
    double dropout; /* probability of dropping; 0: no token_key */
    uint64_t stream; /* distinguishes dropout sites */
    int first_head;  /* number of query head 0 among those of all ranks */
} loong_attention_attr_t;
typedef struct loong_attention_operands {
    loong_val_t q;
    loong_val_t k;
    loong_val_t v;
    loong_val_t cu_seqlens;
    loong_val_t token_key; /* LOONG_NONE without dropout */
    loong_val_t rows;      /* LOONG_NONE: query t stands in row t */
    loong_val_t key_rows;  /* likewise of keys */
    loong_val_t key_ends;  /* LOONG_NONE: each row ends with itself */
} loong_attention_operands_t;
LOONG_API loong_val_t
loong_attention(loong_graph_t *g, const loong_attention_operands_t *operands,
                const loong_attention_attr_t *attr);

/* swiglu: x [T,2F] = gate|up, offsets i32 [n+1] or none -> silu(gate) * up
 * [T,F], of the rows before offsets[n] alone (moe.h) or of all.
 * swiglu_grad: dy [T,F], x, offsets -> dx [T,2F]. No attributes. */
LOONG_API loong_val_t loong_swiglu(loong_graph_t *g, loong_val_t x,
                                   loong_val_t offsets);

/* gelu: x -> like x, in any form but LOONG_ACT_NONE. gelu_grad: dy, x -> dx. */
typedef struct loong_gelu_attr {
    loong_activation_t form;
} loong_gelu_attr_t;
LOONG_API loong_val_t loong_gelu(loong_graph_t *g, loong_val_t x,
                                 loong_activation_t form);

/* add: a, b of one shape and type -> a + b. multiply: a, b likewise -> a b,
 * element by element. scale: x -> factor * x + shift. */
LOONG_API loong_val_t loong_add(loong_graph_t *g, loong_val_t a, loong_val_t b);
LOONG_API loong_val_t loong_multiply(loong_graph_t *g, loong_val_t a,
                                     loong_val_t b);
typedef struct loong_scale_attr {
    double factor;
    double shift;
} loong_scale_attr_t;
LOONG_API loong_val_t loong_scale(loong_graph_t *g, loong_val_t x,
                                  double factor);
LOONG_API loong_val_t loong_shift(loong_graph_t *g, loong_val_t x,
                                  double shift);

/* dropout: x [T,H], token_key i64 [T] (global token number) -> x * mask /
 * (1-p), the mask a function of (seed, step, stream, token_key, channel): the
 * same under recomputation and in every layout, where x begins with channel
 * `first` of the whole. Its own adjoint. */
typedef struct loong_dropout_attr {
    double p;
    uint64_t stream;
    int64_t first;
} loong_dropout_attr_t;
LOONG_API loong_val_t loong_dropout(loong_graph_t *g, loong_val_t x,
                                    loong_val_t token_key, double p,
                                    uint64_t stream);
LOONG_API loong_val_t loong_dropout_slice(loong_graph_t *g, loong_val_t x,
                                          loong_val_t token_key, double p,
                                          uint64_t stream, int64_t first);

/* cast: x -> the same values in another type (round to nearest even). */
typedef struct loong_cast_attr {
    loong_dtype_t dtype;
} loong_cast_attr_t;
LOONG_API loong_val_t loong_cast(loong_graph_t *g, loong_val_t x,
                                 loong_dtype_t dtype);

/* slice: x [..,C] -> columns begin .. begin+count-1; a view. concat: up to 8
 * tensors with equal rows -> side by side. reshape: same elements, other
 * shape; a view of a dense tensor. copy: a dense copy. */
typedef struct loong_slice_attr {
    int64_t begin;
    int64_t count;
} loong_slice_attr_t;
LOONG_API loong_val_t loong_slice(loong_graph_t *g, loong_val_t x,
                                  int64_t begin, int64_t count);
LOONG_API loong_val_t loong_concat(loong_graph_t *g, int num_in,
                                   const loong_val_t *in);
typedef struct loong_reshape_attr {
    loong_shape_t shape;
} loong_reshape_attr_t;
LOONG_API loong_val_t loong_reshape(loong_graph_t *g, loong_val_t x,
                                    loong_shape_t shape);

/* zigzag: x [T,C], rows of samples of `length` as `ranks` context parallel
 * ranks have them, one rank below the other (rank r has chunks r and 2 ranks -
 * 1 - r of 2 ranks of each sample) -> the samples one below the other;
 * `inverse` leads back, each is the other's adjoint. */
typedef struct loong_zigzag_attr {
    int ranks;
    int64_t length; /* a multiple of 2 x ranks */
    bool inverse;
} loong_zigzag_attr_t;
LOONG_API loong_val_t loong_zigzag(loong_graph_t *g, loong_val_t x, int ranks,
                                   int64_t length, bool inverse);

/* slice_grad: x [..,c] -> [..,C], x in columns begin.. and zero elsewhere; sums
 * of them that cover all columns become a concat. */
typedef struct loong_slice_grad_attr {
    int64_t begin;
    int64_t width; /* C */
} loong_slice_grad_attr_t;

/* select_rows: x [T,H], is_feature i32 [T], features [T,H] -> [T,H]: row t is
 * that of features where is_feature[t] is not 0, else that of x. Features
 * LOONG_NONE are rows of zeros. `inverse`: where it is 0. The gradient of each
 * is zero in the rows that came from the other. */
typedef struct loong_select_rows_attr {
    bool inverse; /* set by differentiation */
} loong_select_rows_attr_t;
LOONG_API loong_val_t loong_select_rows(loong_graph_t *g, loong_val_t x,
                                        loong_val_t features,
                                        loong_val_t is_feature);

/* sum_rows: x [T,N] -> [N] wide, the sum over rows in row order. */
LOONG_API loong_val_t loong_sum_rows(loong_graph_t *g, loong_val_t x);

/* segment_sum: x wide [T], cu_seqlens i32 [S+1] -> wide [S], the sums over the
 * rows cu[s] .. cu[s+1]-1 in row order; 0 for a segment without rows. Rows
 * outside of cu[0] .. cu[S]-1 are in none. segment_repeat: x wide [S],
 * cu_seqlens -> wide [T], what a row's segment has; 0 in none. Each is the
 * gradient of the other. Offsets that fall, or lie outside of 0 .. T, are
 * LOONG_ERR_ARG. */
typedef struct loong_segment_attr {
    int64_t rows; /* T */
} loong_segment_attr_t;
LOONG_API loong_val_t loong_segment_sum(loong_graph_t *g, loong_val_t x,
                                        loong_val_t cu_seqlens);
LOONG_API loong_val_t loong_segment_repeat(loong_graph_t *g, loong_val_t x,
                                           loong_val_t cu_seqlens,
                                           int64_t rows);

/* accumulate: inserted by differentiation as accumulate(gradient, x); the
 * kernel sees x -> out: out += x when the call's accumulate bit 0 is set, else
 * out = x. Types may differ (x is widened). No attributes. */

/* tensor_stats: x [..], offsets i32 [n+1] or none -> f64 [3]: the sum of
 * squares, the largest finite |x| and the number of elements that are not
 * finite, of the rows before offsets[n] or of all; the call's accumulate bit 0
 * takes what the output holds in. Of no gradient; tensor logging inserts it.
 */

#ifdef __cplusplus
}
#endif

#endif
