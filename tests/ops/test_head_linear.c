/* SPDX-License-Identifier: Apache-2.0
 *
 * head_linear and head_linear_dw: every kernel against the reference, over
 * types, layouts and odd sizes; what does not fit is refused. Gradients:
 * test_gradients.c. */
#include "loong/latent.h"
#include "op_case.h"
#include "op_draw.h"

typedef struct shape {
    int64_t tokens;
    int64_t wide; /* columns of w */
    loong_head_linear_attr_t attr;
} shape_t;

static const shape_t shapes[] = {
    {1, 1, {1, 1, 0, 1, false}},     {5, 7, {3, 4, 1, 2, false}},
    {33, 65, {2, 40, 17, 23, false}}, {64, 33, {4, 24, 0, 9, false}},
    {17, 96, {5, 32, 16, 16, false}},
};

static const loong_dtype_t types[] = {LOONG_F64, LOONG_F32, LOONG_BF16};

static loong_dtype_t wide(loong_dtype_t dtype)
{
    return dtype == LOONG_F64 ? LOONG_F64 : LOONG_F32;
}

static void expect(int kernels, const op_case_t *c, loong_dtype_t dtype)
{
    if (dtype != LOONG_F64 && kernels < 1) {
        fail_msg("%s: only the reference supports %s", c->op,
                 loong_dtype_name(dtype));
    }
}

/* x, w -> y; the widths of x and y change places with `transposed`. */
static op_case_t forward_case(const loong_head_linear_attr_t *a,
                              const shape_t *s, loong_dtype_t dtype)
{
    int64_t rows = s->tokens * a->heads;
    op_case_t c = {.op = "head_linear", .attr = a, .num_in = 2, .num_out = 1};
    c.arg[0] = op_mat(dtype, rows, a->transposed ? a->count : s->wide);
    c.arg[1] = op_mat(dtype, a->heads * a->stride, s->wide);
    c.arg[2] = op_mat(dtype, rows, a->transposed ? s->wide : a->count);
    c.bound.roundings = 1;
    c.bound.terms = c.arg[0].dim[1];
    return c;
}

static op_case_t dw_case(const loong_head_linear_attr_t *a, const shape_t *s,
                         loong_dtype_t dtype)
{
    op_case_t f = forward_case(a, s, dtype);
    op_case_t c = {.op = "head_linear_dw", .attr = a, .num_in = 2,
                   .num_out = 1};
    c.arg[0] = f.arg[2];
    c.arg[1] = f.arg[0];
    c.arg[2] = op_mat(wide(dtype), a->heads * a->stride, s->wide);
    c.bound.terms = s->tokens; /* the result is wide */
    return c;
}

static void test_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < LOONG_COUNT_OF(shapes); i++) {
        for (int v = 0; v < LOONG_COUNT_OF(types) * 8; v++) {
            loong_dtype_t dtype = types[v / 8];
            loong_head_linear_attr_t a = shapes[i].attr;
            a.transposed = (v & 1) != 0;
            op_case_t c[2] = {forward_case(&a, &shapes[i], dtype),
                              dw_case(&a, &shapes[i], dtype)};
            c[1].accumulate = (v & 2) != 0;
            for (int k = 0; k < 2; k++) {
                for (int o = 0; o < 3 && v & 4; o++) {
                    c[k].arg[o].gap = 3 + 2 * o;
                }
                c[k].threads = 1 + (v + i) % 3;
                expect(op_case_reference(&c[k]), &c[k], dtype);
            }
        }
    }
}

static void test_threads(void **state)
{
    (void)state;
    for (int t = 0; t < LOONG_COUNT_OF(types); t++) {
        op_case_t f = forward_case(&shapes[2].attr, &shapes[2], types[t]);
        op_case_t d = dw_case(&shapes[2].attr, &shapes[2], types[t]);
        op_case_threads(&f);
        op_case_threads(&d);
    }
}

static void test_drawn(void **state)
{
    (void)state;
    op_draw_t d = op_draw_begin(10);
    while (op_draw_next(&d)) {
        loong_dtype_t dtype = op_draw_dtype(&d);
        int stride = (int)op_draw_size(&d, 40);
        int first = op_draw_below(&d, stride);
        int count = 1 + op_draw_below(&d, stride - first);
        shape_t s = {op_draw_size(&d, 70), op_draw_size(&d, 130),
                     {1 + op_draw_below(&d, 5), stride, first, count,
                      op_draw_below(&d, 2) == 1}};
        bool dw = op_draw_below(&d, 2) == 1;
        op_case_t c = dw ? dw_case(&s.attr, &s, dtype)
                         : forward_case(&s.attr, &s, dtype);
        for (int i = 0; i < 3; i++) {
            c.arg[i].gap = op_draw_gap(&d);
        }
        c.accumulate = dw ? (uint32_t)op_draw_below(&d, 2) : 0;
        c.threads = 1 + op_draw_below(&d, 3);
        c.seed = d.seed;
        expect(op_case_reference(&c), &c, dtype);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
