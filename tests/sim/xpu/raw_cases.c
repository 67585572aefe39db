/* SPDX-License-Identifier: Apache-2.0
 *
 * Read raw_cases.h before; called by test_raw.c. */
#include "raw_cases.h"

#include "exact_sum.h"
#include "loong/loss_ops.h"
#include "loong/moe.h"
#include "loong/rope.h"
#include "loong/update.h"

static op_arg_t like(const variant_t *v)
{
    return raw_mat(v, v->rows, v->cols);
}

static const loong_norm_attr_t norm_attr = {1e-5};

/* With the option: groups. */
static int64_t groups_of(const variant_t *v)
{
    return v->bits & OPTION ? 3 : 1;
}

static void rmsnorm(const variant_t *v, op_case_t *c)
{
    int64_t groups = groups_of(v);
    c->attr = &norm_attr;
    c->num_in = 2;
    c->num_out = 2;
    c->arg[0] = raw_mat(v, v->rows, groups * v->cols);
    c->arg[1] = op_vec(LOONG_F32, v->cols);
    c->arg[2] = c->arg[0];
    c->arg[3] = op_mat(LOONG_F32, v->rows, groups);
}

static void add_rmsnorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    c->num_in = 3;
    c->num_out = 3;
    c->arg[0] = c->arg[1] = c->arg[3] = c->arg[5] = like(v);
    c->arg[2] = op_vec(LOONG_F32, v->cols);
    c->arg[4] = op_mat(LOONG_F32, v->rows, 1);
}

static void rmsnorm_grad(const variant_t *v, op_case_t *c)
{
    int64_t groups = groups_of(v);
    c->attr = &norm_attr;
    c->num_in = 5;
    c->num_out = 2;
    c->arg[0] = c->arg[1] = c->arg[5] = raw_mat(v, v->rows, groups * v->cols);
    c->arg[2] = c->arg[6] = op_vec(LOONG_F32, v->cols);
    c->arg[3] = op_mat(LOONG_F32, v->rows, groups);
    if (v->bits & OPTION) {
        c->arg[4] = c->arg[0];
    }
    c->accumulate = v->bits & SUM ? 2 : 0;
    c->bound.terms = groups * (v->rows + v->cols);
}

static void rope(const variant_t *v, op_case_t *c)
{
    static loong_rope_attr_t attr;
    int heads = 3;
    attr.head_dim = (int)(v->cols + (v->bits & OPTION ? 6 : 0));
    attr.begin = v->bits & OPTION ? 4 : 0;
    attr.interleaved = (v->bits & SUM) != 0;
    attr.inverse = (v->bits & GAPS) != 0;
    c->attr = &attr;
    c->num_in = 2;
    c->num_out = 1;
    c->arg[0] = c->arg[2] = raw_mat(v, v->rows, heads * attr.head_dim);
    c->arg[1] = op_mat(LOONG_F32, v->rows, v->cols);
}

/* Positions that are far, of one axis or, with the option, of two. */
static void rope_table(const variant_t *v, op_case_t *c)
{
    static loong_rope_table_attr_t attr;
    static int32_t positions[2 * MOST];
    int64_t axes = v->bits & OPTION ? 2 : 1;
    attr = (loong_rope_table_attr_t){.rotary_dim = (int)v->cols / 2 * 2,
                                     .base = 10000.0};
    if (axes > 1) {
        attr.axes = 2;
        attr.sections[0] = attr.rotary_dim / 4;
        attr.sections[1] = attr.rotary_dim / 2 - attr.sections[0];
    }
    for (int64_t i = 0; i < axes * v->rows; i++) {
        positions[i] = (int32_t)(i * i * 977);
    }
    c->attr = &attr;
    c->num_in = 1;
    c->num_out = 1;
    c->arg[0] = axes > 1 ? op_mat(LOONG_I32, axes, v->rows)
                         : op_vec(LOONG_I32, v->rows);
    c->arg[0].values = positions;
    c->arg[1] = op_mat(LOONG_F32, v->rows, attr.rotary_dim);
    c->arg[1].gap = v->bits & GAPS ? 5 : 0;
}

/* Three query heads of each of two key heads, whose values with the option have
 * another width, in three segments of which one is empty; the rest of
 * cu_seqlens repeats the end. With the bit of sums a window. */
static void attention(const variant_t *v, op_case_t *c)
{
    static loong_attention_attr_t attr;
    static int32_t cu[6];
    int64_t d = LOONG_MIN(v->cols, 100);
    attr = (loong_attention_attr_t){
        .heads = 6,
        .kv_heads = 2,
        .head_dim = (int)d,
        .v_head_dim = v->bits & OPTION ? (int)d / 2 : 0,
        .causal = (v->bits & GAPS) != 0,
        .window = v->bits & SUM ? 3 : 0,
        .max_seqlen = v->rows,
        /* Larger scores would give their own rounding a larger exp. */
        .scale = 1.0 / sqrt((double)d),
    };
    int64_t dv = attr.v_head_dim > 0 ? attr.v_head_dim : d;
    cu[1] = cu[2] = (int32_t)v->rows / 3;
    cu[3] = cu[4] = cu[5] = (int32_t)v->rows;
    c->attr = &attr;
    c->num_in = 4;
    c->num_out = 2;
    c->arg[0] = raw_mat(v, v->rows, 6 * d);
    c->arg[1] = raw_mat(v, v->rows, 2 * d);
    c->arg[2] = raw_mat(v, v->rows, 2 * dv);
    c->arg[3] = op_vec(LOONG_I32, 6);
    c->arg[3].values = cu;
    c->arg[4] = raw_mat(v, v->rows, 6 * dv);
    c->arg[5] = op_mat(LOONG_F32, v->rows, 6);
    c->bound.terms = v->rows + d;
}

/* o and lse are any: what is made of them is a formula. */
static void attention_grad(const variant_t *v, op_case_t *c)
{
    op_case_t f = {.op = "attention"};
    attention(v, &f);
    c->attr = f.attr;
    c->num_in = 7;
    c->num_out = 3;
    c->arg[0] = c->arg[4] = f.arg[4];
    c->arg[5] = f.arg[5];
    for (int i = 0; i < 3; i++) {
        c->arg[1 + i] = c->arg[7 + i] = f.arg[i];
    }
    c->arg[6] = f.arg[3];
    c->bound.terms = 6 * v->rows + 2 * v->cols;
}

static const int32_t offsets[] = {0, 2, 4};

static void swiglu(const variant_t *v, op_case_t *c)
{
    c->num_in = v->bits & OPTION ? 2 : 1;
    c->num_out = 1;
    c->arg[0] = raw_mat(v, v->rows, 2 * v->cols);
    c->arg[c->num_in] = like(v);
    if (v->bits & OPTION) {
        c->arg[1] = op_vec(LOONG_I32, 3);
        c->arg[1].values = offsets;
        c->arg[0].dim[0] = c->arg[2].dim[0] = 7;
        c->arg[0].spare = c->arg[2].spare = 3;
    }
}

static void swiglu_grad(const variant_t *v, op_case_t *c)
{
    c->num_in = 2;
    c->num_out = 1;
    c->arg[0] = like(v);
    c->arg[1] = c->arg[2] = raw_mat(v, v->rows, 2 * v->cols);
}

static int32_t labels[MOST], source[MOST], dest[2 * MOST];

static void softmax(const variant_t *v, op_case_t *c)
{
    for (int64_t t = 0; t < v->rows; t++) {
        labels[t] =
            t % 5 == 3 ? LOONG_IGNORE_LABEL : (int32_t)(t * 7919 % v->cols);
    }
    c->num_in = 3;
    c->num_out = 2;
    c->arg[0] = like(v);
    c->arg[0].scale = 3.0;
    c->arg[1] = op_vec(LOONG_I32, v->rows);
    c->arg[1].values = labels;
    c->arg[2] = c->arg[3] = c->arg[4] = op_vec(LOONG_F32, v->rows);
}

static void softmax_grad(const variant_t *v, op_case_t *c)
{
    softmax(v, c);
    c->num_in = 5;
    c->num_out = 1;
    c->arg[5] = like(v);
}

enum { SPARE = 2 };

/* Two experts a token, of whose slots every third is elsewhere; so many rows,
 * those behind the last included. */
static int route(const variant_t *v)
{
    int r = 0;
    for (int s = 0; s < 2 * v->rows; s++) {
        dest[s] = s % 3 == 2 ? -1 : r;
        if (s % 3 != 2) {
            source[r++] = s;
        }
    }
    for (int i = 0; i < SPARE; i++) {
        source[r++] = -1;
    }
    return r;
}

static void permute(const variant_t *v, op_case_t *c)
{
    int64_t rows = route(v);
    c->num_in = v->bits & OPTION ? 4 : 3;
    c->num_out = 1;
    c->arg[0] = like(v);
    c->arg[1] = op_vec(LOONG_I32, rows);
    c->arg[1].values = source;
    c->arg[2] = op_mat(LOONG_I32, v->rows, 2);
    c->arg[2].values = dest;
    if (v->bits & OPTION) {
        c->arg[3] = op_mat(LOONG_F32, v->rows, 2);
    }
    c->arg[c->num_in] = raw_mat(v, rows, v->cols);
    c->arg[c->num_in].spare = SPARE;
}

static void unpermute(const variant_t *v, op_case_t *c)
{
    permute(v, c);
    int y = c->num_in;
    op_arg_t rows = c->arg[y];
    c->arg[y] = c->arg[0];
    c->arg[0] = rows;
    c->accumulate = v->bits & SUM ? 1 : 0;
}

/* test_optimizer.c compares these, and sums. */
static void adamw(const variant_t *v, op_case_t *c)
{
    static const loong_update_attr_t attr = {.group = 1,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1};
    c->attr = &attr;
    c->num_in = 1;
    c->num_out = 4;
    c->arg[0] = c->arg[3] = c->arg[4] = op_vec(LOONG_F32, v->rows * v->cols);
    c->arg[1] = op_vec(v->dtype, v->rows * v->cols);
    if (v->dtype == LOONG_BF16) {
        c->arg[2] = op_vec(LOONG_U16, v->rows * v->cols);
    }
    c->frame.updates = 3;
    c->frame.grad_scale = 0.5;
    c->frame.lr[1] = 1e-3;
}

/* Without the option some ids are of other parts of the vocabulary. */
static void embedding(const variant_t *v, op_case_t *c)
{
    static loong_embedding_attr_t attr;
    attr.rows = 9;
    attr.begin = v->bits & OPTION ? 0 : 4;
    attr.vocab = v->bits & OPTION ? 0 : 20;
    for (int64_t t = 0; t < v->rows; t++) {
        labels[t] = (int32_t)(t * 5 % (attr.vocab > 0 ? 20 : 9));
    }
    c->attr = &attr;
    c->num_in = 2;
    c->num_out = 1;
    c->arg[0] = op_vec(LOONG_I32, v->rows);
    c->arg[0].values = labels;
    c->arg[1] = raw_mat(v, attr.rows, v->cols);
    c->arg[2] = like(v);
}

static void embedding_grad(const variant_t *v, op_case_t *c)
{
    embedding(v, c);
    c->arg[1] = like(v);
    c->arg[2] = op_mat(LOONG_F32, 9, v->cols);
    c->accumulate = v->bits & SUM ? 1 : 0;
    c->bound.terms = v->rows;
}

static void sums(const variant_t *v, op_case_t *c)
{
    c->num_in = 1;
    c->num_out = 1;
    c->arg[0] = op_vec(v->dtype, v->rows * v->cols);
    c->arg[1] = op_vec(LOONG_I64, LOONG_EXACT_WORDS);
    c->accumulate = v->bits & SUM ? 1 : 0;
}

static void accumulate(const variant_t *v, op_case_t *c)
{
    c->num_in = 1;
    c->num_out = 1;
    c->arg[0] = like(v);
    c->arg[1] = op_mat(LOONG_F32, v->rows, v->cols);
    c->accumulate = v->bits & SUM ? 1 : 0;
}

static void copy(const variant_t *v, op_case_t *c)
{
    c->num_in = 1;
    c->num_out = 1;
    c->arg[0] = c->arg[1] = like(v);
}

static void sum_rows(const variant_t *v, op_case_t *c)
{
    accumulate(v, c);
    c->arg[1] = op_vec(LOONG_F32, v->cols);
    c->bound.terms = v->rows;
}

const raw_case_t raw_cases[] = {
    {"rmsnorm", rmsnorm},
    {"add_rmsnorm", add_rmsnorm},
    {"rmsnorm_grad", rmsnorm_grad},
    {"rope", rope},
    {"rope_table", rope_table},
    {"attention", attention},
    {"attention_grad", attention_grad},
    {"swiglu", swiglu},
    {"swiglu_grad", swiglu_grad},
    {"softmax_cross_entropy", softmax},
    {"softmax_cross_entropy_grad", softmax_grad},
    {"permute", permute},
    {"unpermute", unpermute},
    {"adamw", adamw},
    {"embedding", embedding},
    {"embedding_grad", embedding_grad},
    {"accumulate", accumulate},
    {"copy", copy},
    {"sum_rows", sum_rows},
    {"sum", sums},
    {"sumsq", sums},
    {NULL, NULL},
};
