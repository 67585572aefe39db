/* SPDX-License-Identifier: Apache-2.0
 *
 * What ops refuse: each builder with one wrong argument names the op, what was
 * found and what is allowed, and the graph stays broken. What kernels refuse:
 * every op that runs ends with its reference, every refusal says why. And
 * which gradient nodes slices leave. */
#include "graph_impl.h"
#include "loong/collective.h"
#include "loong/latent.h"
#include "loong/register.h"
#include "op_device.h"
#include "test.h"

enum { T = 6, H = 12 };

typedef struct values {
    loong_val_t x;       /* [T,H] */
    loong_val_t narrow;  /* [T,8] */
    loong_val_t odd;     /* [T,7] */
    loong_val_t wide;    /* [T,H], fp32 */
    loong_val_t cube;    /* [T,3,4] */
    loong_val_t whole;   /* [T,H], i32 */
    loong_val_t ids;     /* [T] i32 */
    loong_val_t keys;    /* [T] i64 */
    loong_val_t keys7;   /* [7] i64 */
    loong_val_t table;   /* [20,H] */
    loong_val_t w;       /* [H] fp32 */
    loong_val_t w5;      /* [5] fp32 */
    loong_val_t half;    /* [H] bf16 */
    loong_val_t angles;  /* [T,4] fp32 */
    loong_val_t angles8; /* [T,8] fp32 */
    loong_val_t stat;    /* [T,1] fp32 */
} values_t;

static loong_val_t input(loong_graph_t *g, const char *name,
                         loong_dtype_t dtype, loong_shape_t shape)
{
    return loong_graph_input(g, name, dtype, shape);
}

static values_t make_values(loong_graph_t *g)
{
    loong_shape_t full = loong_shape_2d(T, H);
    loong_shape_t cube = {3, {T, 3, 4, 0}};
    values_t v;
    v.x = input(g, "x", LOONG_BF16, full);
    v.narrow = input(g, "narrow", LOONG_BF16, loong_shape_2d(T, 8));
    v.odd = input(g, "odd", LOONG_BF16, loong_shape_2d(T, 7));
    v.wide = input(g, "wide", LOONG_F32, full);
    v.cube = input(g, "cube", LOONG_BF16, cube);
    v.whole = input(g, "whole", LOONG_I32, full);
    v.ids = input(g, "ids", LOONG_I32, loong_shape_1d(T));
    v.keys = input(g, "keys", LOONG_I64, loong_shape_1d(T));
    v.keys7 = input(g, "keys7", LOONG_I64, loong_shape_1d(7));
    v.table = input(g, "table", LOONG_BF16, loong_shape_2d(20, H));
    v.w = input(g, "w", LOONG_F32, loong_shape_1d(H));
    v.w5 = input(g, "w5", LOONG_F32, loong_shape_1d(5));
    v.half = input(g, "half", LOONG_BF16, loong_shape_1d(H));
    v.angles = input(g, "angles", LOONG_F32, loong_shape_2d(T, 4));
    v.angles8 = input(g, "angles8", LOONG_F32, loong_shape_2d(T, 8));
    v.stat = input(g, "stat", LOONG_F32, loong_shape_2d(T, 1));
    return v;
}

/* Inputs of an op that has no builder. */
#define IN(...) ((const loong_val_t[5]){__VA_ARGS__, LOONG_NONE})

static loong_val_t apply(loong_graph_t *g, const char *name, const void *attr,
                         const loong_val_t *in)
{
    loong_val_t out[LOONG_MAX_OPERANDS];
    int count = 0;
    const loong_op_t *op = loong_find_op(loong_graph_context(g), name);
    assert_non_null(op);
    while (in[count] != LOONG_NONE) {
        count++;
    }
    return loong_graph_apply(g, op, attr, count, in, op->num_out, out);
}

static const loong_norm_attr_t norm = {1e-5};

static loong_val_t fused(loong_graph_t *g, const char *name, loong_val_t x,
                         loong_val_t residual, loong_val_t w)
{
    return apply(g, name, &norm, IN(x, residual, w));
}

static loong_val_t attend(loong_graph_t *g, loong_val_t q, loong_val_t kv,
                          loong_val_t rows)
{
    static const loong_attention_attr_t attr = {
        .heads = 2, .kv_heads = 2, .head_dim = H / 2, .max_seqlen = T,
        .scale = 1.0};
    loong_attention_operands_t x = {
        q, kv, kv, input(g, "cu", LOONG_I32, loong_shape_1d(2)), LOONG_NONE,
        rows, LOONG_NONE, LOONG_NONE};
    return loong_attention(g, &x, &attr);
}

static loong_val_t angle_table(loong_graph_t *g, const values_t *v, int dim,
                               loong_rope_table_attr_t a)
{
    a.rotary_dim = dim;
    return loong_rope_table(g, v->ids, &a);
}

static loong_rope_table_attr_t llama3(double low, double high, double length)
{
    loong_rope_table_attr_t a = {.scaling = LOONG_ROPE_LLAMA3,
                                 .base = 1e4,
                                 .factor = 8.0,
                                 .low_freq_factor = low,
                                 .high_freq_factor = high,
                                 .original_max_position_embeddings = length};
    return a;
}

static loong_rope_table_attr_t yarn(double base, double fast, double slow,
                                    double mscale)
{
    loong_rope_table_attr_t a = {.scaling = LOONG_ROPE_YARN,
                                 .base = base,
                                 .factor = 4.0,
                                 .original_max_position_embeddings = 64.0,
                                 .beta_fast = fast,
                                 .beta_slow = slow,
                                 .mscale = mscale};
    return a;
}

static loong_rope_table_attr_t plain(double base)
{
    loong_rope_table_attr_t a = {.base = base};
    return a;
}

static loong_val_t concat(loong_graph_t *g, loong_val_t a, loong_val_t b)
{
    const loong_val_t in[2] = {a, b};
    return loong_concat(g, 2, in);
}

static loong_val_t reshape(loong_graph_t *g, loong_val_t x, int64_t rows,
                           int64_t cols)
{
    return loong_reshape(g, x, loong_shape_2d(rows, cols));
}

static loong_val_t slice_grad(loong_graph_t *g, loong_val_t x, int64_t begin,
                              int64_t width)
{
    loong_slice_grad_attr_t attr = {begin, width};
    return apply(g, "slice_grad", &attr, IN(x));
}

static const loong_embedding_attr_t no_rows = {0, 0, 0};
static const loong_embedding_attr_t rows = {20, 0, 0};
static const loong_gelu_attr_t gelu = {LOONG_ACT_GELU};

static const loong_repeat_heads_attr_t heads = {4, 2};

static const loong_update_attr_t group;
static const loong_head_linear_attr_t four = {4, 5, 0, 5, false};
static const loong_token_logprob_params_t too_many = {.vocab = 21};
static const loong_head_linear_attr_t beyond = {2, 10, 8, 3, false};

/* X(expression, message): in the expression g is the graph, v the values. */
#define REFUSALS(X)                                                           \
    X(embedding_rank, loong_embedding(g, v->x, v->table),                     \
      "embedding: ids has 2 dimensions, 1 wanted")                            \
    X(embedding_type, loong_embedding(g, v->keys, v->table),                  \
      "embedding: ids is int64, int32 wanted")                                \
    X(embedding_table, loong_embedding(g, v->ids, v->whole),                  \
      "embedding: table is int32; fp64, fp32 or bf16 wanted")                 \
    X(embedding_missing, loong_embedding(g, v->ids, LOONG_NONE),              \
      "embedding: input 1 is missing")                                        \
    X(embedding_stranger, loong_embedding(g, v->ids, 999),                    \
      "embedding: input 1 is no value of this graph")                         \
    X(embedding_grad_rows,                                                    \
      apply(g, "embedding_grad", &no_rows, IN(v->ids, v->x)),                 \
      "embedding_grad: a table of 0 rows, a positive number wanted")          \
    X(embedding_grad_tokens,                                                  \
      apply(g, "embedding_grad", &rows, IN(v->ids, v->table)),                \
      "embedding_grad: dimension 0 of dy is 20, 6 wanted")                    \
    X(rmsnorm_rank, loong_rmsnorm(g, v->cube, v->w, 1e-5),                    \
      "rmsnorm: x has 3 dimensions, 2 wanted")                                \
    X(rmsnorm_width, loong_rmsnorm(g, v->x, v->w5, 1e-5),                     \
      "rmsnorm: x has 12 channels, not a multiple of w's 5")                  \
    X(rmsnorm_weight, loong_rmsnorm(g, v->x, v->half, 1e-5),                  \
      "rmsnorm: w is bf16, fp32 wanted")                                      \
    X(rmsnorm_eps, loong_rmsnorm(g, v->x, v->w, -1e-5),                       \
      "rmsnorm: eps is -1e-05, a number not below 0 wanted")                  \
    X(rmsnorm_nan, loong_rmsnorm(g, v->x, v->w, NAN), "rmsnorm: eps is ")     \
    X(add_rmsnorm_shape, fused(g, "add_rmsnorm", v->x, v->narrow, v->w),      \
      "add_rmsnorm: dimension 1 of residual is 8, 12 wanted")                 \
    X(add_rmsnorm_type, fused(g, "add_rmsnorm", v->x, v->wide, v->w),         \
      "add_rmsnorm: residual is fp32, bf16 wanted")                           \
    X(add_layernorm_type, fused(g, "add_layernorm", v->x, v->wide, v->w),     \
      "add_layernorm: residual is fp32, bf16 wanted")                         \
    X(layernorm_bias, loong_layernorm(g, v->x, v->w, v->w5, 1e-5),            \
      "layernorm: dimension 0 of b is 5, 12 wanted")                          \
    X(layernorm_weight, loong_layernorm(g, v->x, v->w5, v->w, 1e-5),          \
      "layernorm: dimension 0 of w is 5, 12 wanted")                          \
    X(rmsnorm_grad_shape,                                                     \
      apply(g, "rmsnorm_grad", NULL, IN(v->narrow, v->x, v->w, v->stat)),     \
      "rmsnorm_grad: dimension 1 of x is 12, 8 wanted")                       \
    X(table_odd, angle_table(g, v, 5, plain(1e4)),                            \
      "rope_table: rotary_dim is 5, an even number wanted")                   \
    X(table_base, angle_table(g, v, 4, plain(0.0)),                           \
      "rope_table: base is 0, factor is 0; both positive")                    \
    X(table_llama3, angle_table(g, v, 4, llama3(4.0, 1.0, 64.0)),             \
      "rope_table: low_freq_factor is 4, high_freq_factor is 1")              \
    X(table_length, angle_table(g, v, 4, llama3(1.0, 4.0, 0.0)),              \
      "rope_table: original_max_position_embeddings is 0, a positive")        \
    X(table_yarn_base, angle_table(g, v, 4, yarn(1.0, 32.0, 1.0, 0.0)),       \
      "rope_table: base is 1, more than 1 wanted")                            \
    X(table_yarn_beta, angle_table(g, v, 4, yarn(1e4, 1.0, 32.0, 0.0)),       \
      "rope_table: beta_fast is 1, beta_slow is 32")                          \
    X(table_yarn_mscale, angle_table(g, v, 4, yarn(1e4, 32.0, 1.0, -1.0)),    \
      "mscale is -1, mscale_all_dim is 0; none may be negative")              \
    X(rope_heads, loong_rope(g, v->x, v->angles, 5, false),                   \
      "rope: 12 channels, heads of 5, 4 rotated from 0 on")                   \
    X(rope_rotated, loong_rope(g, v->x, v->angles8, 6, false),                \
      "rope: 12 channels, heads of 6, 8 rotated from 0 on")                   \
    X(rope_type, loong_rope(g, v->x, v->narrow, 6, false),                    \
      "rope: table is bf16, fp32 wanted")                                     \
    X(swiglu_odd, loong_swiglu(g, v->odd, LOONG_NONE),                        \
      "swiglu: x has 7 channels, an even number wanted")                      \
    X(swiglu_grad_width,                                                      \
      apply(g, "swiglu_grad", NULL, IN(v->x, v->x)),                          \
      "swiglu_grad: dimension 1 of x is 12, 24 wanted")                       \
    X(gelu_type, loong_gelu(g, v->whole, LOONG_ACT_GELU),                     \
      "gelu: x is int32; fp64, fp32 or bf16 wanted")                          \
    X(gelu_grad_shape,                                                        \
      apply(g, "gelu_grad", &gelu, IN(v->narrow, v->x)),                      \
      "gelu_grad: dimension 1 of x is 12, 8 wanted")                          \
    X(add_type, loong_add(g, v->x, v->wide), "add: b is fp32, bf16 wanted")   \
    X(add_shape, loong_add(g, v->x, v->narrow),                               \
      "add: dimension 1 of b is 8, 12 wanted")                                \
    X(add_rank, loong_add(g, v->x, v->half),                                  \
      "add: b has 1 dimensions, 2 wanted")                                    \
    X(dropout_one, loong_dropout(g, v->x, v->keys, 1.0, 0),                   \
      "dropout: probability 1, from 0 up to but not 1 wanted")                \
    X(dropout_nan, loong_dropout(g, v->x, v->keys, NAN, 0),                   \
      "dropout: probability ")                                                \
    X(dropout_keys, loong_dropout(g, v->x, v->ids, 0.1, 0),                   \
      "dropout: token_key is int32, int64 wanted")                            \
    X(dropout_rows, loong_dropout(g, v->x, v->keys7, 0.1, 0),                 \
      "dropout: dimension 0 of token_key is 7, 6 wanted")                     \
    X(cast_whole, loong_cast(g, v->x, LOONG_I32),                             \
      "cast: to int32; fp64, fp32 or bf16 wanted")                            \
    X(slice_end, loong_slice(g, v->x, 8, 5),                                  \
      "slice: 5 columns from column 8 of 12")                                 \
    X(slice_far, loong_slice(g, v->x, INT64_MAX, INT64_MAX),                  \
      "columns from column 9223372036854775807 of 12")                        \
    X(slice_none, loong_slice(g, v->x, 3, 0),                                 \
      "slice: 0 columns from column 3 of 12")                                 \
    X(slice_grad_end, slice_grad(g, v->x, 4, 15),                             \
      "slice_grad: 12 columns at column 4 of 15")                             \
    X(concat_type, concat(g, v->x, v->wide),                                  \
      "concat: a part is fp32, bf16 wanted")                                  \
    X(concat_rows, concat(g, v->x, v->table),                                 \
      "concat: dimension 0 of a part is 20, 6 wanted")                        \
    X(reshape_more, reshape(g, v->x, T, 2 * H),                               \
      "reshape: dimension 1 is 24, which does not divide 12")                 \
    X(reshape_less, reshape(g, v->x, 3, H),                                   \
      "reshape: 2 elements for each of the new shape's (of 72)")              \
    X(reshape_negative, reshape(g, v->x, -T, -H),                             \
      "reshape: dimension 0 is -6")                                           \
    X(zigzag_length, loong_zigzag(g, v->x, 2, T, false),                      \
      "zigzag: 6 rows of samples of 6 over 2 ranks; whole samples of a "      \
      "multiple of twice the ranks wanted")                                   \
    X(zigzag_samples, loong_zigzag(g, v->x, 2, 4, false),                     \
      "zigzag: 6 rows of samples of 4 over 2 ranks")                          \
    X(repeat_heads_part, loong_repeat_heads(g, v->x, 5, 2),                   \
      "repeat_heads: 12 channels, heads of 5, 2 times; whole heads wanted")   \
    X(sum_heads_part, apply(g, "sum_heads", &heads, IN(v->x)),                \
      "sum_heads: 12 channels, heads of 4, 2 times; whole heads wanted")      \
    X(attention_some, attend(g, v->x, v->table, LOONG_NONE),                  \
      "attention: dimension 0 of q is 6, 20 wanted")                          \
    X(attention_rows, attend(g, v->x, v->table, v->keys7),                    \
      "attention: dimension 0 of rows is 7, 6 wanted")                        \
    X(attention_type, attend(g, v->x, v->table, v->keys),                     \
      "attention: rows is int64, int32 wanted")                               \
    X(linear_types, loong_linear(g, v->wide, v->x, LOONG_NONE),               \
      "linear: w is bf16, fp32 wanted")                                       \
    X(linear_mixed_bias, loong_linear(g, v->x, v->wide, v->w),                \
      "linear: x is bf16 and w is fp32, with a bias or an activation both "   \
      "have one type")                                                        \
    X(mean_squares_factor, loong_mean_squares(g, v->x, 0.0),                  \
      "mean_squares: factor is 0, a number above 0 up to 1 wanted")           \
    X(rms_scale_m, loong_rms_scale(g, v->x, v->wide, v->w, 1e-5),             \
      "rms_scale: dimension 1 of m is 12, 1 wanted")                          \
    X(rms_scale_w, loong_rms_scale(g, v->x, v->stat, v->w5, 1e-5),            \
      "rms_scale: dimension 0 of w is 5, 12 wanted")                          \
    X(head_linear_rows, loong_head_linear(g, v->x, v->table, &four),          \
      "head_linear: x has 6 rows, a multiple of its 4 heads wanted")          \
    X(head_linear_attr, loong_head_linear(g, v->x, v->table, &beyond),        \
      "head_linear: 2 heads, rows 8 to 10 of 10 of each")                     \
    X(select_rows_type, loong_select_rows(g, v->x, v->wide, v->ids),        \
      "select_rows: features is fp32, bf16 wanted")                         \
    X(select_rows_shape, loong_select_rows(g, v->x, v->narrow, v->ids),     \
      "select_rows: dimension 1 of features is 8, 12 wanted")               \
    X(select_rows_flags, loong_select_rows(g, v->x, v->x, v->keys),         \
      "select_rows: is_feature is int64, int32 wanted")                     \
    X(segment_sum_type, loong_segment_sum(g, v->w, v->keys),                  \
      "segment_sum: cu_seqlens is int64, int32 wanted")                       \
    X(segment_repeat_rows, loong_segment_repeat(g, v->w, v->ids, 0),          \
      "segment_repeat: 0 rows, 1 to 2147483647 wanted")                       \
    X(segment_repeat_size, loong_segment_repeat(g, v->w, v->ids, 9),          \
      "segment_repeat: dimension 0 of x is ")                                 \
    X(token_logprob_labels,                                                   \
      loong_token_logprob(g, v->x, v->table, v->keys, &too_many),             \
      "token_logprob: labels is int64, int32 wanted")                         \
    X(token_logprob_vocab,                                                    \
      loong_token_logprob(g, v->x, v->table, v->ids, &too_many),              \
      "token_logprob: vocab 21, w has 20 rows from 0 on")                     \
    X(softmax_cross_entropy_labels,                                           \
      loong_softmax_cross_entropy(g, v->x, v->keys, v->w),                    \
      "softmax_cross_entropy: labels is int64, int32 wanted")                 \
    X(sum_rows_rank, loong_sum_rows(g, v->w),                                 \
      "sum_rows: x has 1 dimensions, 2 wanted")                               \
    X(adamw_graph, apply(g, "adamw", &group, IN(v->w)),                       \
      "adamw: is put into programs, it stands in no graph")

#define BUILD(name_, expression_, message_)                                   \
    static loong_val_t build_##name_(loong_graph_t *g, const values_t *v)     \
    {                                                                         \
        return expression_;                                                   \
    }
REFUSALS(BUILD)
#undef BUILD

static const struct {
    const char *name;
    loong_val_t (*build)(loong_graph_t *g, const values_t *v);
    const char *message;
} refusals[] = {
#define ROW(name_, expression_, message_) {#name_, build_##name_, message_},
    REFUSALS(ROW)
#undef ROW
};

static void check_refusal(loong_context_t *ctx, int i)
{
    const loong_precision_t precision = {LOONG_BF16, LOONG_F32};
    loong_graph_t *g = NULL;
    loong_context_clear_error(ctx);
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    values_t v = make_values(g);
    assert_ok(ctx, loong_graph_status(g));
    if (refusals[i].build(g, &v) != LOONG_NONE) {
        fail_msg("%s was built", refusals[i].name);
    }
    assert_int_equal(loong_graph_status(g), LOONG_ERR_ARG);
    if (strstr(loong_context_error(ctx), refusals[i].message) == NULL) {
        fail_msg("%s: '%s' is not in: %s", refusals[i].name,
                 refusals[i].message, loong_context_error(ctx));
    }
    /* The first error stays, what comes after it does nothing. */
    assert_int_equal(loong_add(g, v.x, v.x), LOONG_NONE);
    assert_int_equal(loong_graph_status(g), LOONG_ERR_ARG);
    loong_graph_destroy(&g);
}

static void test_ops(void **state)
{
    loong_context_t *ctx = *state;
    for (int i = 0; i < LOONG_COUNT_OF(refusals); i++) {
        check_refusal(ctx, i);
    }
}

/* ---- gradients ----------------------------------------------------------- */

static loong_graph_t *new_graph(loong_context_t *ctx, loong_val_t *x_p)
{
    const loong_precision_t precision = {LOONG_F32, LOONG_F32};
    loong_graph_t *g = NULL;
    assert_ok(ctx, loong_graph_create(ctx, precision, &g));
    *x_p = loong_graph_boundary_input(g, "x", LOONG_F32,
                                      loong_shape_2d(T, H));
    return g;
}

static int live_nodes(const loong_graph_t *g, const char *op)
{
    int count = 0;
    for (int64_t i = 0; i < g->num_nodes; i++) {
        count += !g->nodes[i].dead && strcmp(g->nodes[i].op->name, op) == 0;
    }
    return count;
}

/* A wanted gradient that an op does not have is an error that names it. */
static void test_no_gradient(void **state)
{
    loong_context_t *ctx = *state;
    loong_val_t x;
    loong_graph_t *g = new_graph(ctx, &x);
    loong_graph_boundary_output(g, "y", loong_sum_rows(g, x));
    assert_ok(ctx, loong_graph_status(g));
    assert_fails(ctx, loongi_graph_differentiate(g), LOONG_ERR_UNSUPPORTED,
                 "sum_rows has no gradient");
    loong_graph_destroy(&g);
}

/* Slices of x from begin[i], each through gelu, are differentiated. */
static loong_graph_t *sliced(loong_context_t *ctx, int n, int64_t count,
                             const int64_t *begin)
{
    loong_val_t x;
    loong_graph_t *g = new_graph(ctx, &x);
    loong_val_t sum = LOONG_NONE;
    for (int i = 0; i < n; i++) {
        loong_val_t y = loong_gelu(g, loong_slice(g, x, begin[i], count),
                                   LOONG_ACT_GELU);
        sum = i > 0 ? loong_add(g, sum, y) : y;
    }
    loong_graph_boundary_output(g, "y", sum);
    assert_ok(ctx, loong_graph_status(g));
    assert_ok(ctx, loongi_graph_differentiate(g));
    return g;
}

/* In whatever order; the padded ones are not made. */
static void test_slices_cover(void **state)
{
    static const int64_t begin[] = {4, 8, 0};
    loong_graph_t *g = sliced(*state, 3, 4, begin);
    assert_int_equal(live_nodes(g, "concat"), 1);
    for (int64_t i = 0; i < g->num_nodes; i++) {
        const loong_node_t *node = &g->nodes[i];
        if (strcmp(node->op->name, "concat") == 0) {
            assert_int_equal(node->num_in, 3);
            assert_int_equal(loong_value_shape(g, node->out[0]).dim[1], H);
        }
    }
    loong_graph_destroy(&g);
}

/* Slices that overlap, or leave a gap, are padded and added. */
static void test_slices_overlap(void **state)
{
    static const int64_t overlap[] = {0, 3, 8};
    static const int64_t gap[] = {0, 8};
    static const int64_t twice[] = {0, 4, 4, 8};
    loong_graph_t *g = sliced(*state, 3, 4, overlap);
    assert_int_equal(live_nodes(g, "concat"), 0);
    assert_int_equal(live_nodes(g, "slice_grad"), 3);
    loong_graph_destroy(&g);
    g = sliced(*state, 2, 4, gap);
    assert_int_equal(live_nodes(g, "concat"), 0);
    assert_int_equal(live_nodes(g, "slice_grad"), 2);
    loong_graph_destroy(&g);
    g = sliced(*state, 4, 4, twice);
    assert_int_equal(live_nodes(g, "concat"), 0);
    assert_int_equal(live_nodes(g, "slice_grad"), 4);
    loong_graph_destroy(&g);
}

/* A view of a slice has the slice's rows: neither dense nor elsewhere. */
static void test_view_of_slice(void **state)
{
    loong_precision_t precision = {LOONG_F32, LOONG_F32};
    loong_mesh_t mesh = loong_mesh_single();
    loong_graph_t *g = NULL;
    mesh.size[LOONG_AXIS_TP] = 2;
    assert_ok(*state, loong_graph_create(*state, precision, &g));
    loong_graph_set_mesh(g, &mesh);
    loong_val_t x = input(g, "x", LOONG_F32, loong_shape_2d(T, H));
    loong_val_t y =
        loong_replicate(g, loong_slice(g, x, 3, 5), LOONG_GROUP_TP);
    assert_ok(*state, loong_graph_status(g));
    assert_int_equal(g->values[y].root, x);
    assert_int_equal(g->values[y].column, 3);
    assert_int_equal(g->values[y].ld, H);
    loong_graph_destroy(&g);
}

/* ---- kernels ------------------------------------------------------------- */

/* Views have no kernels. */
static const char *const run_ops[] = {
    "embedding", "embedding_grad", "rmsnorm", "add_rmsnorm", "rmsnorm_grad",
    "layernorm", "add_layernorm", "layernorm_grad", "rope_table", "rope",
    "swiglu", "swiglu_grad", "gelu", "gelu_grad", "add", "scale", "dropout",
    "multiply", "kl_estimate", "kl_estimate_grad", "cast", "copy", "accumulate",
    "zero", "sum_rows", "concat", "slice_grad", "segment_sum", "segment_repeat",
    "select_rows", "zigzag", "repeat_heads", "sum_heads", "linear", "linear_dw",
    "attention", "attention_grad", "mean_squares", "mean_squares_grad",
    "rms_scale", "rms_scale_grad", "head_linear", "head_linear_dw",
    "linear_add", "magnitude",
    "cross_entropy", "token_logprob", "token_logprob_grad",
    "softmax_cross_entropy", "softmax_cross_entropy_grad", "adamw", "sumsq",
    "sum", "topk_router", "sign_step", "topk_router_grad", "expert_counts",
    "expert_excess", "expert_capacity", "router_loss", "router_loss_grad",
    "attention_merge", "expert_order", "permute", "unpermute", "unpermute_dw",
    "grouped_linear", "grouped_linear_dw", "sigmoid_gate", "sigmoid_gate_grad",
    "rope_angles", "rope_table_grad", "loss_scale"};

/* A query of matrices in fp64, which only references and copies take. */
static loong_kernel_query_t query_of(const loong_op_t *op, const void *attr)
{
    loong_kernel_query_t q = {op->name, attr, op->max_in, op->num_out,
                              1,        0,    {{0}},      {0}};
    for (int i = 0; i < q.num_in + q.num_out; i++) {
        loong_karg_t full = {LOONG_F64, 2, {T, H, 0, 0}, H};
        q.arg[i] = full;
    }
    return q;
}

/* The kernels of a device for the op of q; the last one. */
static const loong_kernel_t *check_list(loong_context_t *ctx,
                                        const loong_kernel_query_t *q,
                                        const char *device)
{
    const loong_kernel_t *k = NULL;
    const loong_kernel_t *last = NULL;
    for (int i = 0; (k = loong_find_kernel(ctx, q->op, device, i)) != NULL;
         i++) {
        char reason[LOONG_REASON_SIZE] = "";
        assert_string_equal(k->op, q->op);
        assert_non_null(k->run);
        assert_true((k->prepare != NULL) == (k->destroy != NULL));
        if (k->support != NULL && k->support(q, reason) !=
                                      (reason[0] == '\0')) {
            fail_msg("%s: refuses without a reason, or accepts with one",
                     k->name);
        }
        last = k;
    }
    return last;
}

static void check_kernels(loong_context_t *ctx, const loong_op_t *op)
{
    static const double zeros[64]; /* as large as any attribute struct */
    static const loong_attention_attr_t attention = {
        .heads = 2, .kv_heads = 1, .head_dim = 6, .max_seqlen = T};
    static const loong_cross_entropy_attr_t loss = {.vocab = 5};
    static const loong_head_linear_attr_t heads_of_two = {2, 6, 0, 6, false};
    const void *attr = strncmp(op->name, "attention", 9) == 0 ? &attention
                       : strcmp(op->name, "cross_entropy") == 0 ||
                               strncmp(op->name, "token_logprob", 13) == 0
                           ? (const void *)&loss
                       : strncmp(op->name, "head_linear", 11) == 0
                           ? (const void *)&heads_of_two
                           : (const void *)zeros;
    loong_kernel_query_t q = query_of(op, attr);
    check_list(ctx, &q, OP_DEVICE);
    const loong_kernel_t *last = check_list(ctx, &q, "cpu");
    assert_non_null(last);
    if (strstr(last->name, "_ref") == NULL || last->support != NULL) {
        fail_msg("%s: the last kernel is %s, a reference for all wanted",
                 op->name, last->name);
    }
}

static void test_kernels(void **state)
{
    loong_context_t *ctx = *state;
    for (int i = 0; i < LOONG_COUNT_OF(run_ops); i++) {
        const loong_op_t *op = loong_find_op(ctx, run_ops[i]);
        if (op == NULL) {
            fail_msg("no op %s", run_ops[i]);
        }
        check_kernels(ctx, op);
    }
}

static int setup(void **state)
{
    loong_context_t *ctx = test_context();
    assert_ok(ctx, loong_register_builtin(ctx));
    *state = ctx;
    return 0;
}

static int teardown(void **state)
{
    loong_context_t *ctx = *state;
    test_context_end(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_no_gradient),
        cmocka_unit_test(test_slices_cover),
        cmocka_unit_test(test_slices_overlap),
        cmocka_unit_test(test_view_of_slice),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
