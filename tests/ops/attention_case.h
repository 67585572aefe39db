/* SPDX-License-Identifier: Apache-2.0
 *
 * A case of attention as its test describes it, and the operands of the op. */
#ifndef LOONG_ATTENTION_CASE_H
#define LOONG_ATTENTION_CASE_H

#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

enum { MAX_ENTRIES = 8, MAX_TOKENS = OP_LARGE ? 2048 : 400 };

typedef struct ranges {
    int32_t at[3][2];
} ranges_t;

/* q, k and v are column slices of one row, so all three have gaps. */
typedef struct setting {
    int heads, kv_heads, head_dim;
    bool causal;
    int64_t window;
    double dropout;
    int entries;
    int32_t cu_seqlens[MAX_ENTRIES];
    /* Queries and keys stand in these rows alone, up to three ranges; none: in
     * all. */
    ranges_t queries;
    ranges_t keys;
    int v_dim; /* 0: head_dim */
    /* Rows begin .. end - 1 see one another, up to three ranges within
     * segments; NULL: none. */
    const ranges_t *blocks;
} setting_t;

#define ALL {{{0}}}

static loong_attention_backend_t backend; /* of the cases */
static uint64_t seed;
static bool latent; /* values are the first channels of the only key */
static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static int64_t keys[MAX_TOKENS];
static int32_t rows[MAX_TOKENS], key_rows[MAX_TOKENS], ends[MAX_TOKENS];

static loong_attention_attr_t attr_of(const setting_t *s)
{
    loong_attention_attr_t a;
    memset(&a, 0, sizeof(a));
    a.heads = s->heads;
    a.kv_heads = s->kv_heads;
    a.head_dim = s->head_dim;
    a.v_head_dim = s->v_dim;
    a.causal = s->causal;
    a.window = s->window;
    for (int i = 1; i < s->entries; i++) {
        a.max_seqlen = LOONG_MAX(a.max_seqlen, (int64_t)s->cu_seqlens[i] -
                                                   s->cu_seqlens[i - 1]);
    }
    a.scale = 1.0 / sqrt((double)s->head_dim);
    a.dropout = s->dropout;
    a.stream = 3;
    return a;
}

/* Rows that stand in ranges; values, unless NULL, receives them. */
static int64_t rows_in(const setting_t *s, const ranges_t *r, int32_t *values)
{
    static const ranges_t none = {{{0}}};
    ranges_t all = {{{0, s->cu_seqlens[s->entries - 1]}}};
    int64_t n = 0;
    r = memcmp(r, &none, sizeof(none)) == 0 ? &all : r;
    for (int i = 0; i < LOONG_COUNT_OF(r->at); i++) {
        for (int32_t row = r->at[i][0]; row < r->at[i][1]; row++) {
            if (values != NULL) {
                values[n] = row;
            }
            n++;
        }
    }
    return n;
}

static int64_t tokens_of(const setting_t *s)
{
    return rows_in(s, &s->keys, NULL);
}

static loong_dtype_t wide(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
}

static int64_t queries_of(const setting_t *s)
{
    return rows_in(s, &s->queries, NULL);
}

/* cuDNN takes rows at multiples of 16 bytes. */
static op_arg_t matrix_arg(int64_t count, int64_t width, loong_dtype_t dtype,
                           bool gap)
{
    op_arg_t a = op_mat(dtype, count, width);
    int64_t more = backend == LOONG_ATTENTION_LOCAL ? width + 3 : 2 * width;
    a.gap = gap ? more : 0;
    return a;
}

static op_arg_t keys_arg(const setting_t *s, loong_dtype_t dtype, bool gap)
{
    return matrix_arg(tokens_of(s), (int64_t)s->kv_heads * s->head_dim, dtype,
                      gap);
}

static int v_dim(const setting_t *s)
{
    return s->v_dim > 0 ? s->v_dim : s->head_dim;
}

static op_arg_t values_arg(const setting_t *s, loong_dtype_t dtype, bool gap)
{
    return matrix_arg(tokens_of(s), (int64_t)s->kv_heads * v_dim(s), dtype,
                      gap);
}

/* The first channels of operand k. */
static op_arg_t channels_of(const op_case_t *c, int k, int channels)
{
    op_arg_t a = c->arg[k];
    a.gap += a.dim[1] - channels;
    a.dim[1] = channels;
    a.within = k + 1;
    return a;
}

static op_arg_t queries_arg(const setting_t *s, loong_dtype_t dtype, bool gap)
{
    return matrix_arg(queries_of(s), (int64_t)s->heads * s->head_dim, dtype,
                      gap);
}

static op_arg_t outputs_arg(const setting_t *s, loong_dtype_t dtype, bool gap)
{
    return matrix_arg(queries_of(s), (int64_t)s->heads * v_dim(s), dtype, gap);
}

static op_arg_t cu_arg(const setting_t *s)
{
    op_arg_t a = op_vec(LOONG_I32, s->entries);
    a.values = s->cu_seqlens;
    return a;
}

static op_arg_t key_arg(const setting_t *s)
{
    op_arg_t a = op_vec(LOONG_I64, queries_of(s));
    for (int64_t t = 0; t < MAX_TOKENS; t++) {
        keys[t] = (INT64_C(1) << 33) + 7 * t;
    }
    a.values = keys;
    return a;
}

/* Absent when they are all rows. */
static op_arg_t rows_arg(const setting_t *s, const ranges_t *r,
                         int32_t *values)
{
    op_arg_t a = op_vec(LOONG_I32, rows_in(s, r, values));
    a.values = values;
    a.rank = r->at[0][1] > 0 ? 1 : 0;
    return a;
}

/* Absent when each row ends with itself. */
static op_arg_t ends_arg(const setting_t *s)
{
    op_arg_t a = op_vec(LOONG_I32, tokens_of(s));
    a.rank = s->blocks != NULL ? 1 : 0;
    a.values = ends;
    for (int32_t t = 0; t < MAX_TOKENS; t++) {
        ends[t] = t + 1;
    }
    for (int i = 0; i < 3 && s->blocks != NULL; i++) {
        for (int32_t t = s->blocks->at[i][0]; t < s->blocks->at[i][1]; t++) {
            ends[t] = s->blocks->at[i][1];
        }
    }
    return a;
}

static op_case_t forward_case(const setting_t *s,
                              const loong_attention_attr_t *attr,
                              loong_dtype_t dtype, bool gap)
{
    op_case_t c = {.op = "attention", .attr = attr, .num_in = 8, .num_out = 2};
    c.attention = backend;
    c.arg[0] = queries_arg(s, dtype, gap);
    c.arg[1] = keys_arg(s, dtype, gap);
    c.arg[2] = latent ? channels_of(&c, 1, v_dim(s))
                      : values_arg(s, dtype, gap);
    c.arg[3] = cu_arg(s);
    if (s->dropout > 0.0) {
        c.arg[4] = key_arg(s);
    }
    c.arg[5] = rows_arg(s, &s->queries, rows);
    c.arg[6] = rows_arg(s, &s->keys, key_rows);
    c.arg[7] = ends_arg(s);
    c.arg[8] = outputs_arg(s, dtype, gap);
    c.arg[9] = op_mat(wide(dtype), queries_of(s), s->heads);
    c.frame.seed = 99;
    c.frame.step = 5;
    c.seed = seed;
    /* Probabilities and the result are rounded; a score is a sum of head_dim
     * terms, the result one of max_seqlen. */
    c.bound.roundings = dtype == LOONG_BF16 ? 2 : 4;
    c.bound.terms = s->head_dim + attr->max_seqlen;
    return c;
}

#endif
