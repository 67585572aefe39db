/* SPDX-License-Identifier: Apache-2.0
 *
 * The ops of mixtures of experts behind the router: all kernels against the
 * references, gradients against finite differences, refused integers. */
#include "loong/moe.h"
#include "moe_case.h"
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

static loong_dtype_t wide(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
}

/* ---- order --------------------------------------------------------------- */

enum { T = 6, K = 2, WIDTH = 70, ROWS = 7 };

/* Experts 1 to 3 of 5 are here; 2 has no token. */
static const int32_t experts_of[T * K] = {3, 0, 1, 4, 0, 4, 1, 3, 3, 1, 4, 3};
static const int32_t offset[4] = {0, 3, 3, 7};
static const int32_t source[T * K] = {2, 6,  9,  0,  7,  8,
                                      11, -1, -1, -1, -1, -1};
static const int32_t dest[T * K] = {3, -1, 0, -1, -1, -1, 1, 4, 5, 2, -1, 6};

static void test_order(void **state)
{
    (void)state;
    loong_expert_order_attr_t attr = {5, 1, 3, 0};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "expert_order", .attr = &attr, .num_in = 1,
                   .num_out = 3};
    c.arg[0] = integers(T, K, experts_of);
    c.arg[1] = op_vec(LOONG_I32, 4);
    c.arg[2] = op_vec(LOONG_I32, (int64_t)T * K);
    c.arg[3] = op_mat(LOONG_I32, T, K);
    op_case_outputs(&c, "expert_order_ref", out);
    for (int i = 0; i < 4; i++) {
        assert_int_equal((int)out[0][i], offset[i]);
    }
    for (int i = 0; i < T * K; i++) {
        assert_int_equal((int)out[1][i], source[i]);
        assert_int_equal((int)out[2][i], dest[i]);
    }
    for (int o = 0; o < 3; o++) {
        free(out[o]);
    }
    op_case_reference(&c);
}

static void test_order_refusals(void **state)
{
    (void)state;
    static const int32_t outside[] = {0, 1, 5, 2};
    static const int32_t twice[] = {0, 1, 2, 2};
    loong_expert_order_attr_t attr = {5, 0, 5, 0};
    char text[512];
    op_case_t c = {.op = "expert_order", .attr = &attr, .num_in = 1,
                   .num_out = 3};
    c.arg[0] = integers(2, 2, outside);
    c.arg[1] = op_vec(LOONG_I32, 6);
    c.arg[2] = op_vec(LOONG_I32, 4);
    c.arg[3] = op_mat(LOONG_I32, 2, 2);
    assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
    assert_non_null(strstr(text, "expert 5 of token 1, allowed -1 to 4"));
    c.arg[0].values = twice;
    assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
    assert_non_null(strstr(text, "token 1 has expert 2 twice"));
    static const int32_t fine[] = {0, 1, 2, 3};
    attr.most = 3;
    c.arg[0].values = fine;
    c.arg[2] = op_vec(LOONG_I32, 3);
    assert_int_equal(op_case_status(&c, NULL, text), LOONG_ERR_ARG);
    assert_non_null(strstr(text, "4 rows of experts 0 to 4, room for 3"));
}

/* ---- permute, unpermute -------------------------------------------------- */

static op_case_t move_case(const char *op, loong_dtype_t dtype, bool weighted)
{
    bool back = strcmp(op, "unpermute") == 0;
    op_case_t c = {.op = op, .num_in = 4, .num_out = 1};
    c.arg[0] = op_mat(dtype, back ? T * K : T, WIDTH);
    c.arg[1] = integers((int64_t)T * K, 0, source);
    c.arg[2] = integers(T, K, dest);
    if (weighted) {
        c.arg[3] = op_mat(wide(dtype), T, K);
    } else {
        c.num_in = 3;
    }
    c.arg[c.num_in] = op_mat(dtype, back ? T : T * K, WIDTH);
    c.arg[back ? 0 : c.num_in].spare = T * K - ROWS;
    c.bound.roundings = 1;
    c.bound.terms = K;
    return c;
}

static op_case_t dw_case(loong_dtype_t dtype)
{
    op_case_t c = {.op = "unpermute_dw", .num_in = 3, .num_out = 1};
    c.arg[0] = op_mat(dtype, T, WIDTH);
    c.arg[1] = op_mat(dtype, (int64_t)T * K, WIDTH);
    c.arg[1].spare = T * K - ROWS;
    c.arg[2] = integers(T, K, dest);
    c.arg[3] = op_mat(wide(dtype), T, K);
    c.bound.terms = WIDTH;
    return c;
}

static void test_moves(void **state)
{
    (void)state;
    static const char *const ops[] = {"permute", "unpermute"};
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        for (int v = 0; v < 8; v++) {
            op_case_t c = move_case(ops[v & 1], types[t], v & 2);
            c.arg[0].gap = v & 4 ? 3 : 0;
            expect(op_case_reference(&c), &c, types[t]);
            op_case_threads(&c);
        }
        op_case_t c = dw_case(types[t]);
        expect(op_case_reference(&c), &c, types[t]);
        op_case_threads(&c);
    }
}

/* Gradient of unpermute: permute with weights, and unpermute_dw; of permute:
 * unpermute. */
static void test_move_gradients(void **state)
{
    (void)state;
    double *x = op_normal((int64_t)T * K * WIDTH, 1, 1.0);
    double *w = op_normal((int64_t)T * K, 2, 1.0);
    double *dy = op_normal((int64_t)T * K * WIDTH, 3, 1.0);
    double *dx[LOONG_MAX_OPERANDS];
    double *dw[LOONG_MAX_OPERANDS];
    op_case_t f = move_case("unpermute", LOONG_F64, true);
    op_case_t b = move_case("permute", LOONG_F64, true);
    op_case_t g = dw_case(LOONG_F64);
    f.arg[0].wide_values = g.arg[1].wide_values = x;
    f.arg[3].wide_values = b.arg[3].wide_values = w;
    b.arg[0].wide_values = g.arg[0].wide_values = dy;
    op_case_outputs(&b, "permute_ref", dx);
    op_case_outputs(&g, "unpermute_dw_ref", dw);
    op_difference_t d = {&f, 0, 7, 1, {dy}, dx[0], 1e-9};
    op_case_differences(&d);
    d.input = 3;
    d.stride = 1;
    d.grad = dw[0];
    op_case_differences(&d);
    free(dx[0]);
    free(dw[0]);
    f = move_case("permute", LOONG_F64, false);
    b = move_case("unpermute", LOONG_F64, false);
    f.arg[0].wide_values = x;
    b.arg[0].wide_values = dy;
    op_case_outputs(&b, "unpermute_ref", dx);
    d.input = 0;
    d.stride = 3;
    d.grad = dx[0];
    op_case_differences(&d);
    free(dx[0]);
    free(x);
    free(w);
    free(dy);
}

/* Of tokens 0 .. T - 1 those from LAST on are none. */
static void test_no_token(void **state)
{
    (void)state;
    enum { LAST = 4 };
    static const int32_t chosen[T * K] = {3,  0,  1,  4,  0,  4,
                                          1,  3,  -2, -2, -2, -2};
    static const int32_t to[T * K] = {2,  -1, 0,  -1, -1, -1,
                                      1,  3,  -2, -2, -2, -2};
    static const int32_t from[T * K] = {2,  6,  0,  7,  -1, -1,
                                        -1, -1, -1, -1, -1, -1};
    loong_expert_order_attr_t attr = {5, 1, 3, 0};
    double *out[LOONG_MAX_OPERANDS];
    op_case_t c = {.op = "expert_order", .attr = &attr, .num_in = 1,
                   .num_out = 3};
    c.arg[0] = integers(T, K, chosen);
    c.arg[1] = op_vec(LOONG_I32, 4);
    c.arg[2] = op_vec(LOONG_I32, (int64_t)T * K);
    c.arg[3] = op_mat(LOONG_I32, T, K);
    op_case_reference(&c);
    op_case_outputs(&c, "expert_order_ref", out);
    for (int i = 0; i < T * K; i++) {
        assert_int_equal((int)out[1][i], from[i]);
        assert_int_equal((int)out[2][i], to[i]);
    }
    for (int o = 0; o < 3; o++) {
        free(out[o]);
    }
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        op_case_t y = move_case("unpermute", types[t], true);
        y.arg[1].values = from;
        y.arg[2].values = to;
        y.arg[0].spare = T * K - 4;
        y.arg[4].spare = T - LAST;
        expect(op_case_reference(&y), &y, types[t]);
        op_case_t dw = dw_case(types[t]);
        dw.arg[1].spare = T * K - 4;
        dw.arg[2].values = to;
        dw.arg[3].spare = T - LAST;
        expect(op_case_reference(&dw), &dw, types[t]);
    }
}

static void test_move_refusals(void **state)
{
    (void)state;
    static const int32_t wrong[T * K] = {2, 6, 12};
    char text[512];
    for (int fast = 0; fast < 2; fast++) {
        op_case_t c = move_case("permute", LOONG_F32, false);
        c.arg[1].values = wrong;
        assert_int_equal(
            op_case_status(&c, fast ? NULL : "permute_ref", text),
            LOONG_ERR_ARG);
        assert_non_null(strstr(text, "permute: operand 1 has 12 at 2, allowed "
                                     "-1 to 11"));
    }
}

/* ---- what is drawn ------------------------------------------------------- */

/* k different experts of each token, some dropped; the rows of those that are
 * here, as the reference orders them. */
typedef struct drawn {
    int64_t tokens, k;
    loong_expert_order_attr_t attr;
    int32_t *chosen, *source, *dest;
    int64_t rows; /* of the experts that are here */
} drawn_t;

static void drawn_order(op_draw_t *d, drawn_t *x)
{
    double *out[LOONG_MAX_OPERANDS];
    int experts = (int)op_draw_size(d, 70);
    x->tokens = op_draw_size(d, 300);
    x->k = 1 + op_draw_below(d, LOONG_MIN(experts, 9));
    x->attr.experts = experts;
    x->attr.begin = op_draw_below(d, experts);
    x->attr.count = 1 + op_draw_below(d, experts - (int)x->attr.begin);
    x->chosen = malloc(sizeof(int32_t) * (size_t)(x->tokens * x->k));
    for (int64_t t = 0; t < x->tokens; t++) {
        int begin = op_draw_below(d, experts);
        for (int64_t j = 0; j < x->k; j++) {
            x->chosen[t * x->k + j] =
                j > 0 && op_draw_below(d, 9) == 0
                    ? -1
                    : (int32_t)((begin + j) % experts);
        }
    }
    op_case_t c = {.op = "expert_order", .attr = &x->attr, .num_in = 1,
                   .num_out = 3};
    c.arg[0] = integers(x->tokens, x->k, x->chosen);
    c.arg[1] = op_vec(LOONG_I32, x->attr.count + 1);
    c.arg[2] = op_vec(LOONG_I32, x->tokens * x->k);
    c.arg[3] = op_mat(LOONG_I32, x->tokens, x->k);
    op_case_reference(&c);
    op_case_outputs(&c, "expert_order_ref", out);
    x->rows = (int64_t)out[0][x->attr.count];
    free(out[0]);
    x->source = whole_numbers(out[1], x->tokens * x->k);
    x->dest = whole_numbers(out[2], x->tokens * x->k);
}

static void drawn_moves(op_draw_t *d, const drawn_t *x, loong_dtype_t dtype)
{
    int64_t rows[2] = {x->tokens, x->tokens * x->k};
    int64_t cols = op_draw_size(d, 140);
    bool back = op_draw_below(d, 2) == 1;
    op_case_t c = {.op = back ? "unpermute" : "permute", .num_in = 4,
                   .num_out = 1};
    c.arg[0] = op_mat(dtype, rows[back], cols);
    c.arg[1] = integers(rows[1], 0, x->source);
    c.arg[2] = integers(x->tokens, x->k, x->dest);
    c.arg[3] = op_mat(LOONG_F32, x->tokens, x->k);
    c.arg[4] = op_mat(dtype, rows[!back], cols);
    c.arg[back ? 0 : 4].spare = rows[1] - x->rows;
    c.arg[0].gap = op_draw_gap(d);
    c.bound.roundings = 1;
    c.bound.terms = x->k;
    c.seed = d->seed;
    expect(op_case_reference(&c), &c, dtype);
    op_case_t g = {.op = "unpermute_dw", .num_in = 3, .num_out = 1};
    g.arg[0] = op_mat(dtype, rows[0], cols);
    g.arg[1] = op_mat(dtype, rows[1], cols);
    g.arg[1].spare = rows[1] - x->rows;
    g.arg[2] = c.arg[2];
    g.arg[3] = c.arg[3];
    g.bound.terms = cols;
    g.seed = d->seed;
    expect(op_case_reference(&g), &g, dtype);
}

static void test_moves_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(5);
    while (op_draw_next(&d)) {
        drawn_t x = {0};
        drawn_order(&d, &x);
        drawn_moves(&d, &x, op_draw_dtype(&d));
        free(x.chosen);
        free(x.source);
        free(x.dest);
    }
}

/* ---- grouped_linear ------------------------------------------------------ */

typedef struct grouped {
    int64_t rows, n, k;
    int experts;
    int32_t offset[6];
} grouped_t;

/* Without rows at both ends and between; all rows; no row at all; the last two
 * exceed the blocks of the fast kernels, in rows and columns and in the sum. */
static const grouped_t groups[] = {
    {9, 5, 3, 4, {0, 0, 4, 4, 7}},   {70, 33, 65, 3, {0, 1, 66, 70}},
    {40, 64, 48, 5, {0, 3, 3, 36, 40, 40}}, {4, 7, 6, 2, {0, 0, 0}},
    {130, 96, 80, 2, {0, 128, 129}}, {600, 208, 96, 3, {0, 330, 395, 600}},
    {20, 112, 1100, 2, {0, 7, 20}},
};

static op_case_t grouped_case(const grouped_t *p, loong_dtype_t dtype,
                              const loong_grouped_linear_attr_t *attr)
{
    op_case_t c = {.op = "grouped_linear", .attr = attr, .num_in = 3,
                   .num_out = 1};
    c.arg[0] = op_mat(dtype, p->rows, p->k);
    c.arg[1] = op_mat(dtype, p->experts, 0);
    c.arg[1].rank = 3;
    c.arg[1].dim[1] = attr->transposed ? p->k : p->n;
    c.arg[1].dim[2] = attr->transposed ? p->n : p->k;
    c.arg[2] = integers(p->experts + 1, 0, p->offset);
    c.arg[3] = op_mat(dtype, p->rows, p->n);
    c.arg[0].spare = c.arg[3].spare = p->rows - p->offset[p->experts];
    c.bound.roundings = 1;
    c.bound.terms = p->k;
    return c;
}

static op_case_t grouped_dw_case(const grouped_t *p, loong_dtype_t dtype)
{
    op_case_t c = {.op = "grouped_linear_dw", .num_in = 3, .num_out = 1};
    c.arg[0] = op_mat(dtype, p->rows, p->n);
    c.arg[1] = op_mat(dtype, p->rows, p->k);
    c.arg[0].spare = c.arg[1].spare = p->rows - p->offset[p->experts];
    c.arg[2] = integers(p->experts + 1, 0, p->offset);
    c.arg[3] = op_mat(wide(dtype), p->experts, p->n);
    c.arg[3].rank = 3;
    c.arg[3].dim[2] = p->k;
    c.bound.terms = p->rows;
    return c;
}

/* Our own kernel gives the same bits whatever the threads; oneDNN's not always:
 * it may cut the sum. */
static void expect_same_threads(op_case_t c)
{
    double *one[LOONG_MAX_OPERANDS];
    double *three[LOONG_MAX_OPERANDS];
    const char *name = op_case_chosen(&c);
    if (strstr(name, "onednn") != NULL) {
        return;
    }
    size_t n = (size_t)(c.arg[3].dim[0] * c.arg[3].dim[1]);
    c.threads = 1;
    op_case_outputs(&c, name, one);
    c.threads = 3;
    op_case_outputs(&c, name, three);
    assert_memory_equal(one[0], three[0], n * sizeof(*one[0]));
    free(one[0]);
    free(three[0]);
}

static void test_grouped(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(groups); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int v = 0; v < 4; v++) {
                loong_grouped_linear_attr_t attr = {(v & 1) != 0, 1.0};
                op_case_t c = grouped_case(&groups[i], types[t], &attr);
                c.threads = 1 + (v + i) % 3;
                c.arg[0].gap = v & 2 ? 5 : 0;
                int kernels = op_case_reference(&c);
                expect(kernels, &c, types[t]);
                if (kernels > 0) {
                    expect_same_threads(c);
                }
                c = grouped_dw_case(&groups[i], types[t]);
                c.threads = 1 + (v + i) % 3;
                c.accumulate = (v & 1) != 0;
                c.arg[0].gap = v & 2 ? 3 : 0;
                c.arg[1].gap = v & 2 ? 1 : 0;
                expect(op_case_reference(&c), &c, types[t]);
            }
        }
    }
}

static void test_grouped_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(8);
    while (op_draw_next(&d)) {
        grouped_t p = {0, op_draw_size(&d, 140), op_draw_size(&d, 140),
                       1 + op_draw_below(&d, 5), {0}};
        loong_dtype_t dtype = op_draw_dtype(&d);
        loong_grouped_linear_attr_t attr = {op_draw_below(&d, 2) == 1, 1.0};
        for (int e = 0; e < p.experts; e++) {
            bool empty = op_draw_below(&d, 4) == 0;
            p.offset[e + 1] =
                p.offset[e] + (empty ? 0 : (int32_t)op_draw_size(&d, 130));
        }
        p.rows = p.offset[p.experts] + op_draw_below(&d, 20) + 1;
        op_case_t c = op_draw_below(&d, 2) == 0
                          ? grouped_case(&p, dtype, &attr)
                          : grouped_dw_case(&p, dtype);
        c.accumulate = strcmp(c.op, "grouped_linear_dw") == 0
                           ? (uint32_t)op_draw_below(&d, 2)
                           : 0;
        c.arg[0].gap = op_draw_gap(&d);
        c.threads = 1 + op_draw_below(&d, 3);
        c.seed = d.seed;
        expect(op_case_reference(&c), &c, dtype);
    }
}

static void test_grouped_gradients(void **state)
{
    (void)state;
    const grouped_t *p = &groups[0];
    loong_grouped_linear_attr_t plain = {false, 1.0};
    loong_grouped_linear_attr_t transposed = {true, 1.0};
    grouped_t turned = *p;
    double *x = op_normal(p->rows * p->k, 1, 1.0);
    double *w = op_normal(p->experts * p->n * p->k, 2, 1.0);
    double *dy = op_normal(p->rows * p->n, 3, 1.0);
    double *dx[LOONG_MAX_OPERANDS];
    double *dw[LOONG_MAX_OPERANDS];
    turned.n = p->k;
    turned.k = p->n;
    op_case_t f = grouped_case(p, LOONG_F64, &plain);
    op_case_t b = grouped_case(&turned, LOONG_F64, &transposed);
    op_case_t g = grouped_dw_case(p, LOONG_F64);
    f.arg[0].wide_values = g.arg[1].wide_values = x;
    f.arg[1].wide_values = b.arg[1].wide_values = w;
    b.arg[0].wide_values = g.arg[0].wide_values = dy;
    op_case_outputs(&b, "grouped_linear_ref", dx);
    op_case_outputs(&g, "grouped_linear_dw_ref", dw);
    op_difference_t d = {&f, 0, 1, 1, {dy}, dx[0], 1e-9};
    op_case_differences(&d);
    d.input = 1;
    d.grad = dw[0];
    op_case_differences(&d);
    free(dx[0]);
    free(dw[0]);
    free(x);
    free(w);
    free(dy);
}

static void test_grouped_refusals(void **state)
{
    (void)state;
    static const struct {
        int32_t offset[5];
        const char *text;
    } wrong[] = {
        {{0, 4, 3, 7, 9}, "offset 2 is 3 after 4, there are 9 rows"},
        {{0, 1, 2, 3, 10}, "offset 4 is 10 after 3, there are 9 rows"},
        {{1, 1, 2, 3, 9}, "offset 0 is 1 after 0, there are 9 rows"},
    };
    loong_grouped_linear_attr_t attr = {false, 1.0};
    char text[512];
    for (int i = 0; i < LOONG_COUNT_OF(wrong); i++) {
        for (int fast = 0; fast < 2; fast++) {
            op_case_t c = grouped_case(&groups[0], LOONG_F32, &attr);
            c.arg[2].values = wrong[i].offset;
            assert_int_equal(
                op_case_status(&c, fast ? NULL : "grouped_linear_ref", text),
                LOONG_ERR_ARG);
            assert_non_null(strstr(text, wrong[i].text));
            c = grouped_dw_case(&groups[0], LOONG_F32);
            c.arg[2].values = wrong[i].offset;
            assert_int_equal(
                op_case_status(&c, fast ? NULL : "grouped_linear_dw_ref",
                               text),
                LOONG_ERR_ARG);
            assert_non_null(strstr(text, wrong[i].text));
        }
    }
}

/* ---- sigmoid_gate -------------------------------------------------------- */

static void test_gate(void **state)
{
    (void)state;
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        op_case_t c = {.op = "sigmoid_gate", .num_in = 2, .num_out = 1};
        c.arg[0] = op_mat(types[t], 5, 600);
        c.arg[1] = op_mat(types[t], 5, 1);
        c.arg[2] = op_mat(types[t], 5, 600);
        c.bound.roundings = 1;
        expect(op_case_reference(&c), &c, types[t]);
        op_case_t g = {.op = "sigmoid_gate_grad", .num_in = 3, .num_out = 2};
        g.arg[0] = g.arg[1] = g.arg[3] = c.arg[0];
        g.arg[2] = g.arg[4] = c.arg[1];
        g.bound.roundings = 1;
        g.bound.terms = 600;
        expect(op_case_reference(&g), &g, types[t]);
    }
}

static void test_gate_gradient(void **state)
{
    (void)state;
    double *x = op_normal(5 * 7, 1, 1.0);
    double *gate = op_normal(5, 2, 1.0);
    double *dy = op_normal(5 * 7, 3, 1.0);
    double *grad[LOONG_MAX_OPERANDS];
    op_case_t f = {.op = "sigmoid_gate", .num_in = 2, .num_out = 1};
    f.arg[0] = f.arg[2] = op_mat(LOONG_F64, 5, 7);
    f.arg[1] = op_mat(LOONG_F64, 5, 1);
    op_case_t b = {.op = "sigmoid_gate_grad", .num_in = 3, .num_out = 2};
    b.arg[0] = b.arg[1] = b.arg[3] = f.arg[0];
    b.arg[2] = b.arg[4] = f.arg[1];
    f.arg[0].wide_values = b.arg[1].wide_values = x;
    f.arg[1].wide_values = b.arg[2].wide_values = gate;
    b.arg[0].wide_values = dy;
    op_case_outputs(&b, "sigmoid_gate_grad_ref", grad);
    for (int i = 0; i < 2; i++) {
        op_difference_t d = {&f, i, 1, 1, {dy}, grad[i], 1e-8};
        op_case_differences(&d);
        free(grad[i]);
    }
    free(x);
    free(gate);
    free(dy);
}

/* ---- loss_scale ---------------------------------------------------------- */

/* What the frame says of the loss, exactly. */
static void test_loss_scale(void **state)
{
    (void)state;
    for (int n = 1; n <= 600; n = 3 * n + 2) {
        loong_loss_attr_t attr = {n % 3};
        op_case_t c = {.op = "loss_scale", .attr = &attr, .num_in = 1,
                       .num_out = 1};
        c.arg[0] = c.arg[1] = op_vec(LOONG_F32, n);
        for (int i = 0; i < 3; i++) {
            c.frame.loss_scale[i] = 0.25 * (i + 1);
        }
        int kernels = op_case_reference(&c);
        assert_true(kernels > 0 || strcmp(OP_DEVICE, "cpu") == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_refusals),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_move_gradients),
        cmocka_unit_test(test_move_refusals),
        cmocka_unit_test(test_moves_drawn),
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_grouped_drawn),
        cmocka_unit_test(test_grouped_gradients),
        cmocka_unit_test(test_grouped_refusals),
        cmocka_unit_test(test_no_token),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_gate_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
