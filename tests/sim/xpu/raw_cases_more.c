/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases of raw kernels of parts of sequences, norms and moves; read raw_cases.h
 * before. Called by test_raw.c. */
#include "raw_cases.h"

#include "loong/collective.h"
#include "loong/latent.h"

static op_arg_t like(const variant_t *v)
{
    return raw_mat(v, v->rows, v->cols);
}

static op_arg_t wide(int64_t n)
{
    return op_vec(LOONG_F32, n);
}

static void operands(op_case_t *c, int num_in, int num_out)
{
    c->num_in = num_in;
    c->num_out = num_out;
}

/* ---- attention ----------------------------------------------------------- */

/* Every third query of a sequence of 2 v->rows, whose keys are those of odd
 * rows: what a rank has beside others. Some see no key. With the option
 * dropout. */
static void attention_of_ranks(const variant_t *v, op_case_t *c)
{
    static loong_attention_attr_t attr;
    static int32_t cu[3], rows[2 * MOST], key_rows[2 * MOST];
    static int64_t tokens[2 * MOST];
    int64_t all = 2 * v->rows;
    int64_t d = LOONG_MIN(v->cols, 100);
    int64_t queries = 0;
    int64_t keys = 0;
    for (int32_t t = 0; t < all; t++) {
        if (t % 3 == 0) {
            tokens[queries] = 1000 + t;
            rows[queries++] = t;
        }
        if (t % 2 == 1) {
            key_rows[keys++] = t;
        }
    }
    attr = (loong_attention_attr_t){.heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = (int)d,
                                    .causal = (v->bits & GAPS) == 0,
                                    .window = v->bits & SUM ? 5 : 0,
                                    .max_seqlen = all,
                                    .scale = 1.0 / sqrt((double)d),
                                    .dropout = v->bits & OPTION ? 0.3 : 0.0,
                                    .stream = 7,
                                    .first_head = 2};
    cu[1] = (int32_t)all / 3;
    cu[2] = (int32_t)all;
    c->attr = &attr;
    operands(c, 7, 2);
    c->arg[0] = raw_mat(v, queries, 4 * d);
    c->arg[1] = c->arg[2] = raw_mat(v, keys, 2 * d);
    c->arg[3] = op_vec(LOONG_I32, 3);
    c->arg[3].values = cu;
    if (v->bits & OPTION) {
        c->arg[4] = op_vec(LOONG_I64, queries);
        c->arg[4].values = tokens;
    }
    c->arg[5] = op_vec(LOONG_I32, queries);
    c->arg[5].values = rows;
    c->arg[6] = op_vec(LOONG_I32, keys);
    c->arg[6].values = key_rows;
    c->arg[7] = raw_mat(v, queries, 4 * d);
    c->arg[8] = op_mat(LOONG_F32, queries, 4);
    c->frame.seed = 77;
    c->frame.step = 3;
    c->bound.terms = all + d;
    c->compare = v->bits & GAPS ? 0 : 1; /* lse of no key is minus infinity */
}

/* Rows before a common end see one another: a prefix. */
static void attention_of_ends(const variant_t *v, op_case_t *c)
{
    static int32_t ends[MOST];
    variant_t plain = *v;
    plain.bits &= OPTION; /* without gaps between rows it is not causal */
    attention_of_ranks(&plain, c);
    loong_attention_attr_t *attr = (loong_attention_attr_t *)(uintptr_t)c->attr;
    attr->window = 0;
    attr->causal = true;
    int32_t *cu = (int32_t *)(uintptr_t)c->arg[3].values;
    int64_t d = attr->head_dim;
    cu[1] = (int32_t)v->rows / 2;
    cu[2] = (int32_t)v->rows;
    for (int32_t t = 0; t < v->rows; t++) {
        int32_t begin = t < cu[1] ? 0 : cu[1];
        int32_t prefix = begin + (t < cu[1] ? cu[1] : cu[2] - cu[1]) / 2;
        ends[t] = t < prefix ? prefix : t + 1;
    }
    operands(c, 8, 2);
    memset(c->arg, 0, sizeof(c->arg));
    c->arg[0] = raw_mat(v, v->rows, 4 * d);
    c->arg[1] = c->arg[2] = raw_mat(v, v->rows, 2 * d);
    c->arg[3] = op_vec(LOONG_I32, 3);
    c->arg[3].values = cu;
    c->arg[7] = op_vec(LOONG_I32, v->rows);
    c->arg[7].values = ends;
    c->arg[8] = c->arg[0];
    c->arg[9] = op_mat(LOONG_F32, v->rows, 4);
    attr->dropout = 0.0;
    c->compare = 0;
}

static void grad_of(const op_case_t *f, op_case_t *c)
{
    int more = f->num_in - 3; /* cu_seqlens and what is behind it */
    c->attr = f->attr;
    c->frame = f->frame;
    operands(c, 6 + more, 3);
    c->arg[0] = c->arg[4] = f->arg[f->num_in];
    c->arg[5] = f->arg[f->num_in + 1];
    for (int i = 0; i < 3; i++) {
        c->arg[1 + i] = c->arg[6 + more + i] = f->arg[i];
    }
    for (int i = 0; i < more; i++) {
        c->arg[6 + i] = f->arg[3 + i];
    }
    c->bound.terms = 12 * f->arg[1].dim[0] + 2 * f->arg[0].dim[1];
}

static void attention_grad_of_ranks(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "attention"};
    attention_of_ranks(v, &f);
    grad_of(&f, c);
}

static void attention_grad_of_ends(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "attention"};
    attention_of_ends(v, &f);
    grad_of(&f, c);
}

/* ---- norms and activations ----------------------------------------------- */

static const loong_norm_attr_t norm_attr = {1e-5};

static void layernorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    operands(c, 3, 3);
    c->arg[0] = c->arg[3] = like(v);
    c->arg[1] = wide(v->cols);
    if (v->bits & OPTION) {
        c->arg[2] = wide(v->cols);
    }
    c->arg[4] = c->arg[5] = op_mat(LOONG_F32, v->rows, 1);
}

static void add_layernorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    operands(c, 4, 4);
    c->arg[0] = c->arg[1] = c->arg[4] = c->arg[7] = like(v);
    c->arg[0].step = c->arg[1].step = 1.0 / 16.0; /* as test_pointwise.c */
    c->arg[2] = wide(v->cols);
    if (v->bits & OPTION) {
        c->arg[3] = wide(v->cols);
    }
    c->arg[5] = c->arg[6] = op_mat(LOONG_F32, v->rows, 1);
}

static void layernorm_grad(const variant_t *v, op_case_t *c)
{
    operands(c, 6, 3);
    c->arg[0] = c->arg[1] = c->arg[6] = like(v);
    c->arg[2] = c->arg[7] = wide(v->cols);
    c->arg[3] = c->arg[4] = op_mat(LOONG_F32, v->rows, 1);
    if (v->bits & OPTION) {
        c->arg[5] = like(v);
        c->arg[8] = wide(v->cols);
    }
    c->accumulate = v->bits & SUM ? 2 : 0;
    c->bound.terms = v->rows + v->cols;
}

static void mean_squares(const variant_t *v, op_case_t *c)
{
    static const loong_mean_squares_attr_t attr = {0.25};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = like(v);
    c->arg[1] = op_mat(LOONG_F32, v->rows, 1);
}

static void mean_squares_grad(const variant_t *v, op_case_t *c)
{
    mean_squares(v, c);
    operands(c, 2, 1);
    c->arg[2] = like(v);
}

/* What means of squares are: not below 0. */
static op_arg_t squares(const variant_t *v)
{
    static double values[MOST];
    op_arg_t a = op_mat(LOONG_F32, v->rows, 1);
    for (int64_t i = 0; i < v->rows; i++) {
        values[i] = 0.5 + 0.125 * (double)i;
    }
    a.wide_values = values;
    return a;
}

static void rms_scale(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    operands(c, 3, 1);
    c->arg[0] = c->arg[3] = like(v);
    c->arg[1] = squares(v);
    c->arg[2] = wide(v->cols);
}

static void rms_scale_grad(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    operands(c, 4, 3);
    c->arg[0] = c->arg[1] = c->arg[4] = like(v);
    c->arg[2] = squares(v);
    c->arg[3] = c->arg[6] = wide(v->cols);
    c->arg[5] = op_mat(LOONG_F32, v->rows, 1);
    c->accumulate = v->bits & SUM ? 4 : 0;
    c->bound.terms = v->rows + v->cols;
}

static void gelu(const variant_t *v, op_case_t *c)
{
    static const loong_gelu_attr_t forms[] = {
        {LOONG_ACT_GELU}, {LOONG_ACT_GELU_TANH}, {LOONG_ACT_QUICK_GELU}};
    c->attr = &forms[v->bits / OPTION % 3];
    operands(c, 1, 1);
    c->arg[0] = c->arg[1] = like(v);
    c->arg[0].scale = 3.0;
    c->bound.roundings = 4;
}

/* The derivative is a sum of two terms below 1 that passes through 0. */
static void gelu_grad(const variant_t *v, op_case_t *c)
{
    gelu(v, c);
    c->bound.cancels = 1;
    operands(c, 2, 1);
    c->arg[2] = like(v);
    c->arg[1].scale = 3.0;
}

/* ---- element by element -------------------------------------------------- */

static void add(const variant_t *v, op_case_t *c)
{
    operands(c, 2, 1);
    c->arg[0] = c->arg[1] = c->arg[2] = like(v);
}

static void scale(const variant_t *v, op_case_t *c)
{
    static const loong_scale_attr_t attr = {0.3, -0.7};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = c->arg[1] = like(v);
}

static void cast(const variant_t *v, op_case_t *c)
{
    scale(v, c);
    c->attr = NULL;
    c->arg[v->bits & OPTION ? 0 : 1].dtype = LOONG_F32;
    c->bound.roundings = v->dtype == LOONG_BF16 ? 1 << 15 : 1;
}

static void dropout(const variant_t *v, op_case_t *c)
{
    static const loong_dropout_attr_t attr = {0.25, 5, 3};
    static int64_t tokens[MOST];
    for (int64_t i = 0; i < v->rows; i++) {
        tokens[i] = i * i + 11;
    }
    c->attr = &attr;
    operands(c, 2, 1);
    c->arg[0] = c->arg[2] = like(v);
    c->arg[1] = op_vec(LOONG_I64, v->rows);
    c->arg[1].values = tokens;
    c->frame.seed = 9;
    c->frame.step = 4;
}

/* ---- moves --------------------------------------------------------------- */

static void zero(const variant_t *v, op_case_t *c)
{
    operands(c, 0, 1);
    c->arg[0] = like(v);
}

static void concat(const variant_t *v, op_case_t *c)
{
    operands(c, 2, 1);
    c->arg[0] = like(v);
    c->arg[1] = raw_mat(v, v->rows, 3);
    c->arg[2] = raw_mat(v, v->rows, v->cols + 3);
}

static void slice_grad(const variant_t *v, op_case_t *c)
{
    static loong_slice_grad_attr_t attr;
    attr = (loong_slice_grad_attr_t){v->bits & OPTION ? 0 : 5, v->cols + 9};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = like(v);
    c->arg[1] = raw_mat(v, v->rows, v->cols + 9);
}

static void select_rows(const variant_t *v, op_case_t *c)
{
    static loong_select_rows_attr_t attr;
    static int32_t flags[MOST];
    attr.inverse = (v->bits & SUM) != 0;
    for (int64_t i = 0; i < v->rows; i++) {
        flags[i] = i % 3 == 1;
    }
    c->attr = &attr;
    operands(c, v->bits & OPTION ? 3 : 2, 1);
    c->arg[0] = c->arg[2] = c->arg[3] = like(v);
    c->arg[1] = op_vec(LOONG_I32, v->rows);
    c->arg[1].values = flags;
}

static void zigzag(const variant_t *v, op_case_t *c)
{
    static loong_zigzag_attr_t attr;
    attr = (loong_zigzag_attr_t){2, 8, (v->bits & OPTION) != 0};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = c->arg[1] = op_mat(v->dtype, 16, v->cols);
}

static void sum_heads(const variant_t *v, op_case_t *c)
{
    static loong_repeat_heads_attr_t attr;
    attr = (loong_repeat_heads_attr_t){(int)v->cols, 3};
    c->attr = &attr;
    operands(c, 1, 1);
    c->arg[0] = raw_mat(v, v->rows, 6 * v->cols);
    c->arg[1] = raw_mat(v, v->rows, 2 * v->cols);
}

static void repeat_heads(const variant_t *v, op_case_t *c)
{
    sum_heads(v, c);
    op_arg_t x = c->arg[0];
    c->arg[0] = c->arg[1];
    c->arg[1] = x;
}

static void latent_keys(const variant_t *v, op_case_t *c)
{
    static loong_latent_attr_t attr;
    int64_t n = v->cols;
    attr = (loong_latent_attr_t){3, (int)n, 6, 7};
    c->attr = &attr;
    operands(c, 2, 2);
    c->arg[0] = raw_mat(v, v->rows, 3 * (n + 7));
    c->arg[1] = raw_mat(v, v->rows, 6);
    c->arg[2] = raw_mat(v, v->rows, 3 * (n + 6));
    c->arg[3] = raw_mat(v, v->rows, 3 * 7);
}

static void latent_keys_grad(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "latent_keys"};
    latent_keys(v, &f);
    c->attr = f.attr;
    operands(c, 2, 2);
    c->arg[0] = f.arg[2];
    c->arg[1] = f.arg[3];
    c->arg[2] = f.arg[0];
    c->arg[3] = f.arg[1];
}

/* ---- segments ------------------------------------------------------------ */

/* The first rows and the last are in none. */
static void segment_sum(const variant_t *v, op_case_t *c)
{
    static loong_segment_attr_t attr;
    static int32_t cu[5];
    int32_t rows = (int32_t)(v->rows * v->cols);
    attr.rows = rows;
    cu[0] = 1;
    cu[1] = cu[2] = 1 + rows / 3;
    cu[3] = cu[4] = rows - rows / 4;
    c->attr = &attr;
    operands(c, 2, 1);
    c->arg[0] = wide(rows);
    c->arg[1] = op_vec(LOONG_I32, 5);
    c->arg[1].values = cu;
    c->arg[2] = wide(4);
    c->bound.terms = rows;
}

static void segment_repeat(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "segment_sum"};
    segment_sum(v, &f);
    c->attr = f.attr;
    operands(c, 2, 1);
    c->arg[0] = f.arg[2];
    c->arg[1] = f.arg[1];
    c->arg[2] = f.arg[0];
}

const raw_case_t raw_cases_more[] = {
    {"attention", attention_of_ranks},
    {"attention", attention_of_ends},
    {"attention_grad", attention_grad_of_ranks},
    {"attention_grad", attention_grad_of_ends},
    {"layernorm", layernorm},
    {"add_layernorm", add_layernorm},
    {"layernorm_grad", layernorm_grad},
    {"mean_squares", mean_squares},
    {"mean_squares_grad", mean_squares_grad},
    {"rms_scale", rms_scale},
    {"rms_scale_grad", rms_scale_grad},
    {"gelu", gelu},
    {"gelu_grad", gelu_grad},
    {"add", add},
    {"multiply", add},
    {"scale", scale},
    {"cast", cast},
    {"dropout", dropout},
    {"zero", zero},
    {"concat", concat},
    {"slice_grad", slice_grad},
    {"select_rows", select_rows},
    {"zigzag", zigzag},
    {"repeat_heads", repeat_heads},
    {"sum_heads", sum_heads},
    {"latent_keys", latent_keys},
    {"latent_keys_grad", latent_keys_grad},
    {"segment_sum", segment_sum},
    {"segment_repeat", segment_repeat},
    {NULL, NULL},
};
