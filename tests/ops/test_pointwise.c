/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops that are no matrix products: every kernel against the reference,
 * from a table of cases. */
#include "loong/collective.h"
#include "loong/latent.h"
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

typedef struct shape {
    int64_t rows, cols;
} shape_t;

/* Odd sizes, below and above a vector, a chunk, a piece and a block. */
static const shape_t shapes[] = {{7, 17},  {1, 1},   {3, 64},  {1, 4100},
                                 {33, 31}, {2, 515}, {3, 1600}};

/* What changes between the runs of one case. */
typedef struct variant {
    shape_t s;
    loong_dtype_t dtype;
    loong_dtype_t wide;
    int bits; /* each op reads them as it likes */
} variant_t;

enum { GAPS = 1, SUM = 2, OPTION = 4, VARIANTS = 8 };

/* Values that the cases share. */
static int32_t ids[1024], same_ids[1024];
static int64_t keys[1024];

static op_arg_t mat(const variant_t *v, int64_t rows, int64_t cols)
{
    static const int64_t gaps[] = {3, 7, 16, 1};
    op_arg_t a = op_mat(v->dtype, rows, cols);
    a.gap = v->bits & GAPS ? gaps[(rows + cols) % 4] : 0;
    return a;
}

static op_arg_t like(const variant_t *v)
{
    return mat(v, v->s.rows, v->s.cols);
}

static op_arg_t wide_vec(const variant_t *v, int64_t size)
{
    return op_vec(v->wide, size);
}

static op_arg_t statistic(const variant_t *v, int64_t cols)
{
    return op_mat(v->wide, v->s.rows, cols);
}

static op_arg_t id_arg(const variant_t *v)
{
    op_arg_t a = op_vec(LOONG_I32, v->s.rows);
    a.values = ids;
    return a;
}

/* ---- cases --------------------------------------------------------------- */

enum { VOCAB = 61 };

static const loong_embedding_attr_t whole = {VOCAB, 0, 0};

static void embedding(const variant_t *v, op_case_t *c)
{
    c->attr = &whole;
    c->arg[0] = id_arg(v);
    c->arg[1] = op_mat(v->dtype, VOCAB, v->s.cols);
    c->arg[2] = like(v);
}

static void embedding_grad(const variant_t *v, op_case_t *c)
{
    c->attr = &whole;
    c->arg[0] = id_arg(v);
    c->arg[0].values = v->bits & OPTION ? same_ids : ids;
    c->arg[1] = like(v);
    c->arg[2] = op_mat(v->wide, VOCAB, v->s.cols);
    c->accumulate = v->bits & SUM ? 1 : 0;
    c->bound.terms = v->s.rows;
}

static const loong_norm_attr_t norm_attr = {1e-5};

/* Values at which an activation bends or saturates; a single one may lie in a
 * tail, where errors are absolute. */
static double spread(const variant_t *v, double scale)
{
    return v->bits & OPTION && v->s.rows * v->s.cols > 1 ? scale : 1.0;
}

/* With the option: groups (per-head norms). */
static void rmsnorm(const variant_t *v, op_case_t *c)
{
    int64_t groups = v->bits & OPTION ? 3 : 1;
    c->attr = &norm_attr;
    c->arg[0] = mat(v, v->s.rows, groups * v->s.cols);
    c->arg[1] = wide_vec(v, v->s.cols);
    c->arg[2] = mat(v, v->s.rows, groups * v->s.cols);
    c->arg[3] = statistic(v, groups);
    c->bound.roundings = 1;
    c->bound.terms = v->s.cols;
}

static void add_rmsnorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->arg[2] = wide_vec(v, v->s.cols);
    c->arg[3] = like(v);
    c->arg[4] = statistic(v, 1);
    c->arg[5] = like(v);
    c->bound.roundings = 2;
    c->bound.terms = v->s.cols;
}

static void rmsnorm_grad(const variant_t *v, op_case_t *c)
{
    bool groups = v->bits & OPTION;
    int64_t cols = groups ? 3 * v->s.cols : v->s.cols;
    c->arg[0] = mat(v, v->s.rows, cols);
    c->arg[1] = mat(v, v->s.rows, cols);
    c->arg[2] = wide_vec(v, v->s.cols);
    c->arg[3] = statistic(v, groups ? 3 : 1);
    if (v->bits & SUM) {
        c->arg[4] = mat(v, v->s.rows, cols);
    }
    c->arg[5] = mat(v, v->s.rows, cols);
    if (!(v->bits & GAPS) || !groups) {
        c->arg[6] = wide_vec(v, v->s.cols);
        c->accumulate = v->bits & SUM ? 2 : 0;
    }
    c->bound.roundings = 1;
    c->bound.terms = LOONG_MAX(cols, 3 * v->s.rows);
}

static void rope(const variant_t *v, op_case_t *c)
{
    static const loong_rope_attr_t attrs[] = {
        {8, false, false, 0}, {8, true, false, 0},  {8, false, true, 0},
        {8, true, true, 0},   {11, false, false, 3}, {11, true, false, 2},
        {11, true, true, 3},  {11, false, true, 1}};
    int which = (v->bits >> 1 & 3) + (v->s.rows % 2 == 1 ? 4 : 0);
    int head = attrs[which].head_dim;
    c->attr = &attrs[which];
    c->arg[0] = mat(v, v->s.rows, head * v->s.cols);
    c->arg[1] = op_mat(v->wide, v->s.rows, v->bits & GAPS ? 6 : 8);
    c->arg[2] = mat(v, v->s.rows, head * v->s.cols);
    c->bound.roundings = 1;
    c->bound.terms = 2;
}

static const loong_latent_attr_t latent = {3, 5, 4, 7};

static void latent_keys(const variant_t *v, op_case_t *c)
{
    c->attr = &latent;
    c->arg[0] = mat(v, v->s.rows, 3 * 12);
    c->arg[1] = mat(v, v->s.rows, 4);
    c->arg[2] = mat(v, v->s.rows, 3 * 9);
    c->arg[3] = mat(v, v->s.rows, 3 * 7);
}

static void latent_keys_grad(const variant_t *v, op_case_t *c)
{
    c->attr = &latent;
    c->arg[0] = mat(v, v->s.rows, 3 * 9);
    c->arg[1] = mat(v, v->s.rows, 3 * 7);
    c->arg[2] = mat(v, v->s.rows, 3 * 12);
    c->arg[3] = mat(v, v->s.rows, 4);
    c->bound.roundings = 1;
    c->bound.terms = 3;
}

static void swiglu(const variant_t *v, op_case_t *c)
{
    c->arg[0] = mat(v, v->s.rows, 2 * v->s.cols);
    c->arg[0].scale = spread(v, 30.0);
    c->arg[1] = like(v);
    c->bound.roundings = 4;
}

static void swiglu_grad(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = mat(v, v->s.rows, 2 * v->s.cols);
    c->arg[1].scale = spread(v, 30.0);
    c->arg[2] = mat(v, v->s.rows, 2 * v->s.cols);
    c->bound.roundings = 4;
}

static const loong_gelu_attr_t gelu_forms[] = {
    {LOONG_ACT_GELU}, {LOONG_ACT_GELU_TANH}, {LOONG_ACT_QUICK_GELU}};

static void gelu(const variant_t *v, op_case_t *c)
{
    c->attr = &gelu_forms[v->bits & SUM ? 1 : 0];
    c->arg[0] = like(v);
    c->arg[0].scale = spread(v, 10.0);
    c->arg[1] = like(v);
    c->bound.roundings = 4;
}

static void gelu_grad(const variant_t *v, op_case_t *c)
{
    c->attr = &gelu_forms[v->bits & SUM ? 1 : 0];
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->arg[1].scale = spread(v, 10.0);
    c->arg[2] = like(v);
    c->bound.roundings = 4;
}

static void quick_gelu(const variant_t *v, op_case_t *c)
{
    gelu(v, c);
    c->attr = &gelu_forms[2];
}

static void quick_gelu_grad(const variant_t *v, op_case_t *c)
{
    gelu_grad(v, c);
    c->attr = &gelu_forms[2];
}

static void layernorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    c->arg[0] = like(v);
    c->arg[1] = wide_vec(v, v->s.cols);
    if (v->bits & OPTION) {
        c->arg[2] = wide_vec(v, v->s.cols);
    }
    c->arg[3] = like(v);
    c->arg[4] = statistic(v, 1);
    c->arg[5] = statistic(v, 1);
    c->bound.roundings = 2;
    c->bound.terms = v->s.cols;
}

/* Its statistics are of the sum as it is stored (test_rms_scale.c), which the
 * reference in fp64 does not round. Where channels cancel, that rounding, 2^-8
 * of each, has no bound relative to their mean: bf16 holds the sums here. */
static void add_layernorm(const variant_t *v, op_case_t *c)
{
    c->attr = &norm_attr;
    c->arg[0] = c->arg[1] = c->arg[4] = c->arg[7] = like(v);
    c->arg[2] = wide_vec(v, v->s.cols);
    if (v->bits & OPTION) {
        c->arg[3] = wide_vec(v, v->s.cols);
    }
    c->arg[5] = c->arg[6] = statistic(v, 1);
    c->arg[0].step = c->arg[1].step = 1.0 / 16.0;
    c->bound.roundings = 1;
    c->bound.terms = v->s.cols;
}

static void layernorm_grad(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->arg[2] = wide_vec(v, v->s.cols);
    c->arg[3] = statistic(v, 1);
    c->arg[4] = statistic(v, 1);
    if (v->bits & SUM) {
        c->arg[5] = like(v);
    }
    c->arg[6] = like(v);
    if (v->bits & OPTION || !(v->bits & GAPS)) {
        c->arg[7] = wide_vec(v, v->s.cols);
    }
    if (v->bits & OPTION) {
        c->arg[8] = wide_vec(v, v->s.cols);
    }
    /* Only what is there can be added to. */
    c->accumulate = !(v->bits & SUM) ? 0
                    : (c->arg[7].rank > 0 ? 2u : 0) |
                          (c->arg[8].rank > 0 ? 4u : 0);
    c->bound.roundings = 2;
    c->bound.terms = LOONG_MAX(v->s.cols, v->s.rows);
}

static void add(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->arg[2] = like(v);
    c->bound.roundings = 1;
}

static void scale(const variant_t *v, op_case_t *c)
{
    static const loong_scale_attr_t attr = {0.3, -0.7};
    c->attr = &attr;
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->bound.roundings = 1;
}

/* To the wide type, and back with the option. */
static void cast(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = like(v);
    c->arg[v->bits & OPTION ? 0 : 1].dtype = v->wide;
    /* Bounds count in the type of the input. */
    c->bound.roundings = v->dtype == LOONG_BF16 ? 1 << 15 : 1;
    if (c->arg[0].dtype == LOONG_BF16) {
        c->bound.roundings = 0; /* widening is exact */
    }
}

static void copy(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = op_mat(v->dtype, v->s.rows, v->s.cols);
}

static void accumulate(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = op_mat(v->wide, v->s.rows, v->s.cols);
    if (v->bits & OPTION && v->s.rows == 1) {
        c->arg[0] = op_vec(v->dtype, v->s.cols);
        c->arg[1] = op_vec(v->wide, v->s.cols);
    }
    c->accumulate = v->bits & SUM ? 1 : 0;
    c->bound.terms = 1;
}

static void concat(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = mat(v, v->s.rows, 3);
    c->arg[2] = mat(v, v->s.rows, 2 * v->s.cols);
    c->arg[3] = op_mat(v->dtype, v->s.rows, 3 * v->s.cols + 3);
}

static void slice_grad(const variant_t *v, op_case_t *c)
{
    static loong_slice_grad_attr_t attr;
    attr.begin = v->bits & SUM ? 5 : 0;
    attr.width = attr.begin + v->s.cols + (v->bits & OPTION ? 9 : 0);
    c->attr = &attr;
    c->arg[0] = like(v);
    c->arg[1] = op_mat(v->dtype, v->s.rows, attr.width);
}

static void zigzag(const variant_t *v, op_case_t *c)
{
    static loong_zigzag_attr_t attr;
    attr.ranks = v->bits & SUM ? 3 : 2;
    attr.length = 2 * attr.ranks * v->s.rows;
    attr.inverse = (v->bits & OPTION) != 0;
    c->attr = &attr;
    c->arg[0] = op_mat(v->dtype, 3 * attr.length, v->s.cols);
    c->arg[1] = c->arg[0];
}

/* One or three heads of `cols` channels, two or four times. */
static const loong_repeat_heads_attr_t *heads_attr(const variant_t *v,
                                                   int64_t *heads_p)
{
    static loong_repeat_heads_attr_t attr;
    attr.head_dim = (int)v->s.cols;
    attr.times = v->bits & SUM ? 4 : 2;
    *heads_p = v->bits & OPTION ? 3 : 1;
    return &attr;
}

static void repeat_heads(const variant_t *v, op_case_t *c)
{
    int64_t heads = 0;
    const loong_repeat_heads_attr_t *a = heads_attr(v, &heads);
    c->attr = a;
    c->arg[0] = mat(v, v->s.rows, heads * v->s.cols);
    c->arg[1] = mat(v, v->s.rows, heads * a->times * v->s.cols);
}

static void sum_heads(const variant_t *v, op_case_t *c)
{
    int64_t heads = 0;
    const loong_repeat_heads_attr_t *a = heads_attr(v, &heads);
    c->attr = a;
    c->arg[0] = mat(v, v->s.rows, heads * a->times * v->s.cols);
    c->arg[1] = mat(v, v->s.rows, heads * v->s.cols);
    c->bound.terms = a->times;
    c->bound.roundings = 1;
}

/* Rows and heads without a key on either side among them. */
static void attention_merge(const variant_t *v, op_case_t *c)
{
    static double lse[2][1024];
    int64_t heads = 3;
    op_arg_t sums = op_mat(v->wide, v->s.rows, heads);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 1024; i++) {
            bool none = i % 5 == k || i % 7 == 0;
            lse[k][i] = none ? -INFINITY : 3.0 * sin(i * (k + 1.0));
        }
    }
    for (int k = 0; k < 2; k++) {
        c->arg[2 * k] = mat(v, v->s.rows, heads * v->s.cols);
        c->arg[2 * k + 1] = sums;
        c->arg[2 * k + 1].wide_values = lse[k];
    }
    c->arg[4] = mat(v, v->s.rows, heads * v->s.cols);
    c->arg[5] = sums;
    c->bound.roundings = 1;
    c->bound.terms = 4;
}

static void sum_rows(const variant_t *v, op_case_t *c)
{
    c->arg[0] = like(v);
    c->arg[1] = wide_vec(v, v->s.cols);
    c->accumulate = v->bits & SUM ? 1 : 0;
    c->bound.terms = v->s.rows;
}

static void dropout(const variant_t *v, op_case_t *c)
{
    static const loong_dropout_attr_t attrs[] = {{.25, 3, 0}, {.5, 3, 7}};
    c->attr = &attrs[v->bits & OPTION ? 1 : 0];
    c->arg[0] = like(v);
    c->arg[1] = op_vec(LOONG_I64, v->s.rows);
    c->arg[1].values = keys;
    c->arg[2] = like(v);
    c->bound.roundings = 1;
}

/* ---- the table ----------------------------------------------------------- */

typedef struct entry {
    const char *op;
    int num_in;
    int num_out;
    void (*make)(const variant_t *v, op_case_t *c);
} entry_t;

static const entry_t entries[] = {
    {"embedding", 2, 1, embedding},
    {"embedding_grad", 2, 1, embedding_grad},
    {"rmsnorm", 2, 2, rmsnorm},
    {"add_rmsnorm", 3, 3, add_rmsnorm},
    {"rmsnorm_grad", 5, 2, rmsnorm_grad},
    {"rope", 2, 1, rope},
    {"latent_keys", 2, 2, latent_keys},
    {"latent_keys_grad", 2, 2, latent_keys_grad},
    {"swiglu", 1, 1, swiglu},
    {"swiglu_grad", 2, 1, swiglu_grad},
    {"gelu", 1, 1, gelu},
    {"gelu_grad", 2, 1, gelu_grad},
    {"gelu", 1, 1, quick_gelu},
    {"gelu_grad", 2, 1, quick_gelu_grad},
    {"layernorm", 3, 3, layernorm},
    {"add_layernorm", 4, 4, add_layernorm},
    {"layernorm_grad", 6, 3, layernorm_grad},
    {"add", 2, 1, add},
    {"multiply", 2, 1, add},
    {"scale", 1, 1, scale},
    {"cast", 1, 1, cast},
    {"copy", 1, 1, copy}, {"zero", 0, 1, copy},
    {"accumulate", 1, 1, accumulate},
    {"concat", 3, 1, concat},
    {"slice_grad", 1, 1, slice_grad},
    {"zigzag", 1, 1, zigzag},
    {"repeat_heads", 1, 1, repeat_heads},
    {"sum_heads", 1, 1, sum_heads},
    {"attention_merge", 4, 2, attention_merge},
    {"sum_rows", 1, 1, sum_rows},
    {"dropout", 2, 1, dropout},
};

static op_case_t case_of(const entry_t *e, const variant_t *v)
{
    op_case_t c = {.op = e->op, .num_in = e->num_in, .num_out = e->num_out};
    c.frame.step = 3;
    c.frame.seed = 11;
    c.threads = 2;
    e->make(v, &c);
    return c;
}

static void run_entry(const entry_t *e, loong_dtype_t dtype)
{
    if (!op_present(e->op)) {
        print_message("%s: no kernel of %s\n", e->op, OP_DEVICE);
        return;
    }
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        /* All variants of the first, two of each other one. */
        for (int k = 0; k < (i == 0 ? VARIANTS : 2); k++) {
            int bits = i == 0 ? k : (3 * i + 5 * k) % VARIANTS;
            variant_t v = {shapes[i], dtype, LOONG_F32, bits};
            op_case_t c = case_of(e, &v);
            if (op_case_reference(&c) < 1) {
                fail_msg("%s: only the reference takes %s", e->op,
                         loong_dtype_name(dtype));
            }
            if (i == 4) {
                op_case_threads(&c);
            }
        }
    }
}

static void test_float(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(entries); i++) {
        run_entry(&entries[i], LOONG_F32);
    }
}

/* Large enough for several threads and for pieces that end in the middle. */
static void test_threads(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(entries); i++) {
        for (int bits = 0; bits < 4; bits += 3) {
            variant_t v = {{151, 131}, LOONG_BF16, LOONG_F32, bits};
            op_case_t c = case_of(&entries[i], &v);
            op_case_threads(&c);
        }
    }
}

static void test_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(entries); i++) {
        run_entry(&entries[i], LOONG_BF16);
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(20);
    while (op_draw_next(&d)) {
        variant_t v = {{op_draw_size(&d, 70), op_draw_size(&d, 530)},
                       op_draw_dtype(&d), LOONG_F32,
                       op_draw_below(&d, VARIANTS)};
        op_case_t c =
            case_of(&entries[op_draw_below(&d, LOONG_COUNT_OF(entries))], &v);
        c.seed = d.seed;
        assert_true(!op_present(c.op) || op_case_reference(&c) > 0);
    }
}

static void test_bad_id(void **state)
{
    (void)state;
    static const char *const names[] = {"embedding", "embedding_grad"};
    static const int32_t bad[] = {0, 60, VOCAB};
    for (int i = 0; i < 2; i++) {
        variant_t v = {{3, 8}, LOONG_F32, LOONG_F32, 0};
        op_case_t c = case_of(&entries[i], &v);
        char text[512];
        assert_string_equal(c.op, names[i]);
        if (!op_present(c.op)) {
            continue;
        }
        c.arg[0].values = bad;
        assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
        assert_non_null(strstr(text, "id 61 at row 2, allowed 0 to 60"));
    }
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(ids); i++) {
        /* One id every seven tokens, others twice in a row. */
        int of = i % 7 == 0 ? 3 : i - (i % 5 == 1);
        ids[i] = (int32_t)((unsigned)of * 2654435761u % VOCAB);
        keys[i] = (int64_t)i * 4294967311;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_bad_id),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
