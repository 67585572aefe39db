/* SPDX-License-Identifier: Apache-2.0
 *
 * linear, linear_dw and linear_add: every kernel against the reference, over
 * types, layouts and odd sizes. */
#include "op_case.h"
#include "op_device.h"
#include "op_draw.h"

typedef struct shape {
    int64_t t, n, k;
} shape_t;

static const shape_t shapes[] = {{1, 1, 1},     {3, 5, 2},     {7, 64, 33},
                                 {65, 17, 129}, {128, 96, 80}, {33, 257, 65}};

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static loong_dtype_t wide(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
}

static op_case_t linear_case(const loong_linear_attr_t *attr, shape_t s,
                             loong_dtype_t dtype, bool bias)
{
    op_case_t c = {.op = "linear", .attr = attr, .num_in = 3, .num_out = 2};
    c.arg[0] = op_mat(dtype, s.t, s.k);
    c.arg[1] =
        attr->transposed ? op_mat(dtype, s.k, s.n) : op_mat(dtype, s.n, s.k);
    if (bias) {
        c.arg[2] = op_vec(wide(dtype), s.n);
    }
    c.arg[3] = op_mat(dtype, s.t, s.n);
    c.bound.roundings = 1;
    c.bound.terms = s.k;
    return c;
}

static void expect(int kernels, loong_dtype_t dtype)
{
    if (dtype != LOONG_F64 && kernels < 1) {
        fail_msg("only the reference supports %s", loong_dtype_name(dtype));
    }
}

static void test_linear(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int variant = 0; variant < 8; variant++) {
                loong_linear_attr_t attr = {(variant & 1) != 0, LOONG_ACT_NONE};
                op_case_t c =
                    linear_case(&attr, shapes[i], types[t], (variant & 2) != 0);
                if (variant & 4) {
                    c.arg[0].gap = 3;
                    c.arg[1].gap = 5;
                    c.arg[3].gap = 7;
                }
                c.threads = 1 + (variant + i) % 3;
                expect(op_case_reference(&c), types[t]);
            }
        }
    }
}

static void test_linear_activation(void **state)
{
    (void)state;
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        for (int act = LOONG_ACT_GELU; act <= LOONG_ACT_GELU_TANH; act++) {
            loong_linear_attr_t attr = {false, (loong_activation_t)act};
            shape_t s = {37, 50, 24};
            op_case_t c = linear_case(&attr, s, types[t], true);
            c.arg[0].scale = 0.4;
            expect(op_case_reference(&c), types[t]);
            c.arg[4] = c.arg[3]; /* the value before it is wanted */
            op_case_reference(&c);
        }
    }
}

/* A product of gradients times the slope of GELU; with gaps also where rows do
 * not begin at multiples of 16 bytes. CPUs have its reference alone. */
static void test_linear_gelu_grad(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int variant = 0; variant < 8; variant++) {
                shape_t s = shapes[i];
                loong_linear_attr_t attr = {
                    (variant & 1) != 0,
                    variant & 2 ? LOONG_ACT_GELU : LOONG_ACT_GELU_TANH};
                op_case_t c = linear_case(&attr, s, types[t], false);
                c.op = "linear_gelu_grad";
                c.num_out = 1;
                c.arg[2] = op_mat(types[t], s.t, s.n);
                for (int a = 0; a < 4 && variant & 4; a++) {
                    c.arg[a].gap = 3 + 2 * a;
                }
                if (strcmp(OP_DEVICE, "cpu") != 0) {
                    expect(op_case_reference(&c), types[t]);
                } else {
                    op_case_reference(&c);
                }
            }
        }
    }
}

/* The slope of GELU by differences of linear with its activation: with w = 1
 * and x = before, y = gelu(before). */
static void test_slope(void **state)
{
    (void)state;
    enum { N = 33 };
    const double one = 1.0;
    double *before = op_normal(N, 1, 2.0);
    double *dy = op_normal(N, 2, 1.0);
    for (int act = LOONG_ACT_GELU; act <= LOONG_ACT_GELU_TANH; act++) {
        loong_linear_attr_t attr = {false, (loong_activation_t)act};
        shape_t s = {N, 1, 1};
        double *dx[LOONG_MAX_OPERANDS];
        op_case_t f = linear_case(&attr, s, LOONG_F64, false);
        f.arg[0].wide_values = before;
        f.arg[1].wide_values = &one;
        op_case_t b = f;
        b.op = "linear_gelu_grad";
        b.num_out = 1;
        b.arg[0].wide_values = dy;
        b.arg[2] = op_mat(LOONG_F64, N, 1);
        b.arg[2].wide_values = before;
        op_case_outputs(&b, "linear_gelu_grad_ref", dx);
        op_difference_t d = {&f, 0, 1, 1, {dy}, dx[0], 1e-9};
        op_case_differences(&d);
        free(dx[0]);
    }
    free(before);
    free(dy);
}

static void test_linear_dw(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int variant = 0; variant < 8; variant++) {
                shape_t s = shapes[i];
                loong_dtype_t out = wide(types[t]);
                loong_linear_attr_t attr = {(variant & 1) != 0, LOONG_ACT_NONE};
                op_case_t c = {.op = "linear_dw",
                               .attr = &attr,
                               .num_in = 2,
                               .num_out = 1};
                c.arg[0] = op_mat(types[t], s.t, s.n);
                c.arg[1] = op_mat(types[t], s.t, s.k);
                c.arg[2] = attr.transposed ? op_mat(out, s.k, s.n)
                                           : op_mat(out, s.n, s.k);
                c.accumulate = (variant & 2) != 0;
                if (variant & 4) {
                    c.arg[0].gap = 4;
                    c.arg[1].gap = 2;
                    c.arg[2].gap = 1;
                }
                c.threads = 1 + (variant + i) % 3;
                c.bound.terms = s.t; /* the result is wide */
                expect(op_case_reference(&c), types[t]);
                c.op = "linear_dw_db"; /* and the gradient of the bias */
                c.num_out = 2;
                c.arg[3] = op_vec(out, s.n);
                c.accumulate = variant & 2 ? 3 : (uint32_t)(variant & 1) << 1;
                if (strcmp(OP_DEVICE, "cpu") != 0) {
                    expect(op_case_reference(&c), types[t]);
                } else {
                    op_case_reference(&c);
                }
            }
        }
    }
}

/* Also to columns behind others and before others. */
static void check_linear_add(shape_t s, loong_dtype_t dtype, int variant,
                             int threads)
{
    loong_linear_add_attr_t attr = {variant & 2 ? 3 : 0, (variant & 1) != 0};
    int64_t cols = s.n + 2 * attr.begin;
    op_case_t c = {
        .op = "linear_add", .attr = &attr, .num_in = 3, .num_out = 1};
    c.arg[0] = op_mat(dtype, s.t, cols);
    c.arg[1] = op_mat(dtype, s.t, s.k);
    c.arg[2] =
        attr.transposed ? op_mat(dtype, s.k, s.n) : op_mat(dtype, s.n, s.k);
    c.arg[3] = op_mat(dtype, s.t, cols);
    for (int a = 0; a < 4 && variant & 4; a++) {
        c.arg[a].gap = 3 + 2 * a;
    }
    c.threads = threads;
    c.bound.roundings = 1;
    c.bound.terms = s.k;
    expect(op_case_reference(&c), dtype);
}

static void test_linear_add(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
            for (int variant = 0; variant < 8; variant++) {
                check_linear_add(shapes[i], types[t], variant,
                                 1 + (variant + i) % 3);
            }
        }
    }
    /* oneDNN would make all of it in fp32 first: it is made in pieces of
     * rows, of which the last is shorter (kernels/onednn/onednn.c). */
    check_linear_add((shape_t){300, 8192, 5}, LOONG_BF16, 2, 1);
    check_linear_add((shape_t){300, 8192, 5}, LOONG_BF16, 3, 2);
}

/* With magnitudes or without, with a bias or without; sums are positive. */
static void test_magnitude(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        double *sums = op_normal(shapes[i].n, 9, 1.0);
        for (int64_t c = 0; c < shapes[i].n; c++) {
            sums[c] = 0.1 + sums[c] * sums[c];
        }
        for (int k = 0; k < 8 * LOONG_COUNT_OF(types); k++) {
            loong_dtype_t type = types[k / 8];
            loong_dtype_t wide = type == LOONG_F64 ? LOONG_F64 : LOONG_F32;
            op_case_t c = {.op = "magnitude", .num_in = 4, .num_out = 1};
            c.arg[0] = c.arg[4] = op_mat(type, shapes[i].t, shapes[i].n);
            c.arg[1] = op_mat(wide, shapes[i].n, 1);
            c.arg[1].wide_values = sums;
            c.arg[2] = c.arg[3] = op_vec(wide, shapes[i].n);
            c.arg[2].rank = k & 1;
            c.arg[3].rank = (k & 2) != 0;
            c.arg[0].gap = k & 4 ? 3 : 0;
            c.arg[4].gap = k & 4 ? 6 : 0;
            c.threads = 1 + (k + i) % 3;
            c.bound.roundings = 1;
            c.bound.terms = 1;
            expect(op_case_reference(&c), type);
        }
        free(sums);
    }
}

/* One operand is fp32, the other one bf16. A GPU multiplies the former as two
 * bf16 matrices, which keep 2^-17 of each element: 128 roundings of fp32. */
static op_case_t mixed_case(const loong_linear_attr_t *attr, shape_t s,
                            bool dw)
{
    op_case_t c = linear_case(attr, s, LOONG_F32, false);
    c.arg[0].dtype = LOONG_BF16;
    if (dw) {
        c.op = "linear_dw";
        c.num_in = 2;
        c.num_out = 1;
        c.arg[0] = op_mat(LOONG_F32, s.t, s.n);
        c.arg[1] = op_mat(LOONG_BF16, s.t, s.k);
        c.arg[2] = attr->transposed ? op_mat(LOONG_F32, s.k, s.n)
                                    : op_mat(LOONG_F32, s.n, s.k);
        c.arg[3].rank = 0;
        c.bound.terms = s.t;
    }
    c.bound.roundings = strcmp(OP_DEVICE, "cpu") == 0 ? 1 : 128;
    return c;
}

static void test_mixed(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int variant = 0; variant < 8; variant++) {
            loong_linear_attr_t attr = {(variant & 1) != 0, LOONG_ACT_NONE};
            bool dw = (variant & 2) != 0;
            op_case_t c = mixed_case(&attr, shapes[i], dw);
            c.accumulate = dw && i % 2 == 1;
            for (int a = 0; a < c.num_in + c.num_out && variant & 4; a++) {
                c.arg[a].gap = c.arg[a].rank > 0 ? 3 + 2 * a : 0;
            }
            expect(op_case_reference(&c), LOONG_BF16);
        }
    }
}

/* The k largest of a row are marked. */
static void mark_largest(const double *row, int count, int k, bool *marked)
{
    memset(marked, 0, sizeof(*marked) * (size_t)count);
    for (int c = 0; c < k; c++) {
        int best = -1;
        for (int i = 0; i < count; i++) {
            if (!marked[i] && (best < 0 || row[i] > row[best])) {
                best = i;
            }
        }
        marked[best] = true;
    }
}

/* A router's logits from a weight of fp32 choose the same experts as those of
 * the reference; with the weight rounded to bf16 some tokens choose others. */
static void test_router_choice(void **state)
{
    (void)state;
    enum { EXPERTS = 64, CHOSEN = 8 };
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    shape_t s = {4096, EXPERTS, 96};
    op_case_t c = mixed_case(&attr, s, false);
    double *y[LOONG_MAX_OPERANDS];
    double *exact[LOONG_MAX_OPERANDS];
    op_case_outputs(&c, NULL, y);
    op_case_outputs(&c, "linear_ref", exact);
    for (int64_t t = 0; t < s.t; t++) {
        bool chosen[2][EXPERTS];
        mark_largest(y[0] + t * EXPERTS, EXPERTS, CHOSEN, chosen[0]);
        mark_largest(exact[0] + t * EXPERTS, EXPERTS, CHOSEN, chosen[1]);
        assert_memory_equal(chosen[0], chosen[1], sizeof(chosen[0]));
    }
    free(y[0]);
    free(exact[0]);
}

static op_case_t drawn_dw(op_draw_t *d, const loong_linear_attr_t *attr,
                          shape_t s, loong_dtype_t dtype)
{
    bool bias = strcmp(OP_DEVICE, "cpu") != 0 && op_draw_below(d, 2) == 1;
    op_case_t c = {.op = bias ? "linear_dw_db" : "linear_dw", .attr = attr,
                   .num_in = 2, .num_out = bias ? 2 : 1};
    c.arg[0] = op_mat(dtype, s.t, s.n);
    c.arg[1] = op_mat(dtype, s.t, s.k);
    c.arg[2] = attr->transposed ? op_mat(LOONG_F32, s.k, s.n)
                                : op_mat(LOONG_F32, s.n, s.k);
    if (bias) {
        c.arg[3] = op_vec(LOONG_F32, s.n);
    }
    c.accumulate = (uint32_t)op_draw_below(d, bias ? 4 : 2);
    c.bound.terms = s.t;
    return c;
}

static op_case_t drawn_linear(op_draw_t *d, loong_linear_attr_t *attr,
                              shape_t s, loong_dtype_t dtype)
{
    op_case_t c = linear_case(attr, s, dtype, op_draw_below(d, 2) == 1);
    attr->activation = (loong_activation_t)op_draw_below(d, 3);
    if (attr->activation != LOONG_ACT_NONE) { /* where GELU bends */
        c.arg[0].scale = 2.0 / sqrt((double)s.k);
    }
    if (attr->activation != LOONG_ACT_NONE && op_draw_below(d, 2) == 1) {
        c.arg[4] = c.arg[3];
    }
    return c;
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(12);
    while (op_draw_next(&d)) {
        shape_t s = {op_draw_size(&d, 140), op_draw_size(&d, 140),
                     op_draw_size(&d, 140)};
        loong_dtype_t dtype = op_draw_dtype(&d);
        loong_linear_attr_t attr = {op_draw_below(&d, 2) == 1,
                                    LOONG_ACT_NONE};
        op_case_t c = op_draw_below(&d, 2) == 0
                          ? drawn_linear(&d, &attr, s, dtype)
                          : drawn_dw(&d, &attr, s, dtype);
        for (int i = 0; i < c.num_in + c.num_out; i++) {
            c.arg[i].gap = c.arg[i].rank > 1 ? op_draw_gap(&d) : 0;
        }
        c.threads = 1 + op_draw_below(&d, 3);
        c.seed = d.seed;
        int kernels = op_case_reference(&c);
        expect(c.arg[4].rank > 0 ? 1 : kernels, dtype); /* as above */
    }
}

/* dx is a linear with w the other way round, dw the op linear_dw. */
static void test_differences(void **state)
{
    (void)state;
    shape_t s = {5, 7, 6};
    double *x = op_normal(s.t * s.k, 1, 1.0);
    double *w = op_normal(s.n * s.k, 2, 1.0);
    double *dy = op_normal(s.t * s.n, 3, 1.0);
    for (int transposed = 0; transposed < 2; transposed++) {
        loong_linear_attr_t attr = {transposed != 0, LOONG_ACT_NONE};
        loong_linear_attr_t flipped = {transposed == 0, LOONG_ACT_NONE};
        double *dx[LOONG_MAX_OPERANDS];
        double *dw[LOONG_MAX_OPERANDS];
        op_case_t f = linear_case(&attr, s, LOONG_F64, false);
        f.arg[0].wide_values = x;
        f.arg[1].wide_values = w;
        op_case_t b = f;
        b.attr = &flipped;
        b.arg[0] = f.arg[3];
        b.arg[0].wide_values = dy;
        b.arg[3] = op_mat(LOONG_F64, s.t, s.k);
        op_case_outputs(&b, "linear_ref", dx);
        op_case_t g = {
            .op = "linear_dw",
            .attr = &attr,
            .num_in = 2,
            .num_out = 1,
            .arg = {b.arg[0], f.arg[0],
                    op_mat(LOONG_F64, f.arg[1].dim[0], f.arg[1].dim[1])}};
        op_case_outputs(&g, "linear_dw_ref", dw);
        op_difference_t d = {&f, 0, 1, 1, {dy}, dx[0], 1e-9};
        op_case_differences(&d);
        d.input = 1;
        d.grad = dw[0];
        op_case_differences(&d);
        free(dx[0]);
        free(dw[0]);
    }
    free(x);
    free(w);
    free(dy);
}

/* Which kernel is taken, as the processor allows. */
static void test_choice(void **state)
{
    (void)state;
    const char *limit = getenv("ONEDNN_MAX_CPU_ISA");
    loong_linear_attr_t attr = {false, LOONG_ACT_NONE};
    shape_t s = {64, 64, 64};
    op_case_t c = linear_case(&attr, s, LOONG_F64, false);
    if (strcmp(OP_DEVICE, "cpu") != 0) {
        bool blas = strcmp(OP_DEVICE, "xpu") == 0;
        const char *linear = blas ? "linear_xblas" : "linear_" OP_DEVICE;
        c = linear_case(&attr, s, LOONG_BF16, false);
        assert_string_equal(op_case_chosen(&c), linear);
        c = mixed_case(&attr, s, false);
        assert_string_equal(op_case_chosen(&c), linear);
        c = mixed_case(&attr, s, true);
        assert_string_equal(op_case_chosen(&c),
                            blas ? "linear_dw_xblas" : "linear_dw_" OP_DEVICE);
        return;
    }
    assert_string_equal(op_case_chosen(&c), "linear_ref");
    c = linear_case(&attr, s, LOONG_F32, false);
    assert_string_equal(op_case_chosen(&c), "linear_onednn");
    c = mixed_case(&attr, s, false);
    assert_string_equal(op_case_chosen(&c), "linear_onednn_widened");
    c = linear_case(&attr, s, LOONG_BF16, false);
    if (limit != NULL && strcmp(limit, "ALL") != 0) {
        assert_string_equal(op_case_chosen(&c), "linear_onednn_widened");
    } else {
        assert_non_null(strstr(op_case_chosen(&c), "linear_onednn"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_activation),
        cmocka_unit_test(test_linear_gelu_grad),
        cmocka_unit_test(test_slope),
        cmocka_unit_test(test_linear_dw),
        cmocka_unit_test(test_linear_add),
        cmocka_unit_test(test_magnitude),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_router_choice),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
